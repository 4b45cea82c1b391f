"""Resources on demand (EC2 + RightScale, phoenixcloud.txt section 6.6): every job runs at once on nodes that its user
leases for whole units; the web side has what it needs. Nothing is shared, so that all of it can be summed up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.coordination.values import SECONDS_PER_HOUR, Coordinated, Setting, WebDemand
from shared.base.clock import perf_s
from shared.values.replay_job import ReplayJob

Floats = NDArray[np.float64]


def on_demand(jobs: Sequence[ReplayJob], demand: WebDemand, setting: Setting) -> Coordinated:
    """Return the figures of jobs submitted in [0, horizon). Every started unit counts in full, at least one for a job;
    adjustments count leases, their ends within the horizon, and changes of the web side."""
    begun_s = perf_s()
    horizon_s, lease_s = setting.horizon_s, setting.lease_s
    submits_s, runs_s, sizes = _columns(jobs)
    units = np.maximum(1.0, np.ceil(runs_s / lease_s))
    until_s = submits_s + units * lease_s
    done = submits_s + runs_s <= horizon_s
    changes = list(demand.changes(horizon_s))
    times_s = np.array([at_s for at_s, _ in changes])
    nodes = np.array([each for _, each in changes], dtype=np.float64)
    web_node_s = float(nodes @ np.diff(times_s, append=horizon_s)) if changes else 0.0
    mean_s = float(runs_s[done].mean()) if done.any() else None
    return Coordinated(
        jobs_submitted=len(jobs),
        jobs_completed=int(done.sum()),
        mean_execution_s=mean_s,
        mean_turnaround_s=mean_s,
        peak_nodes=_peak(_by_hour(submits_s, until_s, sizes, times_s, nodes, horizon_s)),
        peak_nodes_instant=_peak(_by_moment(submits_s, until_s, sizes, times_s, nodes, horizon_s)),
        node_hours=(float((units * sizes).sum()) * lease_s + web_node_s) / SECONDS_PER_HOUR,
        adjustments=len(jobs) + int((until_s <= horizon_s).sum()) + max(0, len(changes) - 1),
        wall_s=perf_s() - begun_s,
    )


def _columns(jobs: Sequence[ReplayJob]) -> tuple[Floats, Floats, Floats]:
    columns = np.array([(job.submit_s, job.run_s, job.nodes) for job in jobs], dtype=np.float64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _peak(nodes: Floats) -> int:
    return int(nodes.max(initial=0.0))


def _by_hour(begins_s: Floats, ends_s: Floats, sizes: Floats, times_s: Floats, web: Floats, horizon_s: float) -> Floats:
    """Return, for each clock hour: all leases that overlap it, and the most that the web side has in it."""
    hours = max(1, math.ceil(horizon_s / SECONDS_PER_HOUR))
    change = np.zeros(hours + 1)
    first = (begins_s // SECONDS_PER_HOUR).astype(np.int64)
    past = np.minimum(np.ceil(ends_s / SECONDS_PER_HOUR), hours).astype(np.int64)
    np.add.at(change, first, sizes)
    np.add.at(change, past, -sizes)
    most = np.zeros(hours)
    if len(times_s):
        begins = np.arange(hours) * SECONDS_PER_HOUR
        most = web[np.searchsorted(times_s, begins, "right") - 1]
        np.maximum.at(most, (times_s // SECONDS_PER_HOUR).astype(np.int64), web)
    total: Floats = np.cumsum(change)[:-1] + most
    return total


def _by_moment(
    begins_s: Floats, ends_s: Floats, sizes: Floats, times_s: Floats, web: Floats, horizon_s: float
) -> Floats:
    """Return the size after each change before the horizon; at the same instant, ends are processed before begins."""
    at_s = np.concatenate([begins_s, ends_s, times_s])
    change = np.concatenate([sizes, -sizes, np.diff(web, prepend=0.0)])
    order = np.argsort(at_s, kind="stable")
    at_s, change = at_s[order], change[order]
    last = np.append(at_s[1:] != at_s[:-1], True) & (at_s < horizon_s)
    held: Floats = np.cumsum(change)[last]
    return held
