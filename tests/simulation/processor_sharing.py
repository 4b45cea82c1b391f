"""Jobs that go from resource to resource, each resource shared evenly among who is there: a discrete-event simulation.

Many copies of a node are played at the same time, each with its own clock: at each step every copy goes to its next
event, the end of the slice that is nearest to it.
"""

from __future__ import annotations

import numpy as np

from daemons.models.dilation.formula import Floats, Ints

WARM_EVENTS = 60


def simulated(p: Floats, servers: Ints, rng: np.random.Generator, copies: int, events: int) -> Floats:
    """Dilation of each job, float64[n]: time that passed over work done, in all copies from `WARM_EVENTS` on.

    A slice needs an exponential time of mean 1 alone. It goes to resource i with the job's probability p_i, else to
    none, where it is never slowed; with k slices at a resource of s servers each goes at min(1, s / k)."""
    jobs, resources = p.shape
    chances = np.cumsum(p, axis=1)
    place = (rng.random((copies, jobs))[:, :, None] >= chances).sum(axis=2)
    left = rng.exponential(size=(copies, jobs))
    limits = np.append(servers.astype(np.float64), np.inf)
    passed, done = 0.0, np.zeros(jobs)
    every = np.arange(copies)
    for event in range(WARM_EVENTS + events):
        crowd = np.stack([(place == at).sum(axis=1) for at in range(resources + 1)], axis=1)
        speeds = np.minimum(1.0, limits / np.maximum(crowd, 1))[every[:, None], place]
        ends = left / speeds
        ended = ends.argmin(axis=1)
        step = ends[every, ended]
        work = speeds * step[:, None]
        left -= work
        if event >= WARM_EVENTS:
            passed += float(step.sum())
            done += work.sum(axis=0)
        left[every, ended] = rng.exponential(size=copies)
        place[every, ended] = (rng.random(copies)[:, None] >= chances[ended]).sum(axis=1)
    return passed / done
