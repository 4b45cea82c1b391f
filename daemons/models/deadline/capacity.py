"""How many jobs a number of servers finishes by the deadline, exactly (equations 4.3 and 4.4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from shared.values.scalars import whole

SURE = 1e-15
"""A finish probability that is so close to 1 is 1 and so close to 0 is 0: saves the work on what is certain."""


def all_sizes(problem: DeadlineProblem) -> Ints:
    """Return the numbers of servers to choose from, ascending."""
    return np.arange(problem.servers_min, problem.servers_max + 1)


def finish_probabilities(
    problem: DeadlineProblem, servers: Ints | None = None, last: int = 0
) -> Iterator[tuple[int, Floats]]:
    """Yield, for s = d, d - 1, .., `last`: s and Pr[no job left at the deadline | n jobs at s, servers from s on].

    servers: int[P], all sizes by default. Each array is float64[P, N + 1]; more than N jobs count as not finished.
    """
    sizes = all_sizes(problem) if servers is None else servers
    busiest = problem.slots * int(sizes.max()) * (problem.intervals - last) / problem.service
    chain = Chain(problem, max(count_bound(busiest), 1))
    finish = np.zeros((sizes.size, chain.jobs_max + 1))
    finish[:, 0] = 1.0
    yield problem.intervals, finish
    for interval in range(problem.intervals - 1, last - 1, -1):
        finish = chain.backward(interval, finish, sizes)
        finish[finish > 1.0 - SURE] = 1.0
        finish[finish < SURE] = 0.0
        yield interval, finish


def capacity(problem: DeadlineProblem, servers: Ints | None = None) -> Ints:
    """Return int64[d, P], g_s(p): the most jobs at s that p servers from s on finish with the required confidence; -1
    if not even 0 jobs. servers: int[P], all sizes by default."""
    sizes = all_sizes(problem) if servers is None else servers
    table = np.full((problem.intervals, sizes.size), -1, dtype=np.int64)
    for interval, finish in finish_probabilities(problem, sizes):
        if interval < problem.intervals:
            table[interval] = np.argmax(finish < problem.confidence, axis=1) - 1
    return table


def breach(problem: DeadlineProblem, interval: int, jobs: int, servers: Ints | None = None) -> Floats:
    """Return float64[P], Pr[a job is left at the deadline | `jobs` at `interval`] for each number of servers from there
    on (all sizes by default). Raises `InvalidValue` for an interval outside 0..d or jobs below 0."""
    whole("interval", interval, 0, problem.intervals)
    whole("jobs", jobs, 0, 10**9)
    sizes = all_sizes(problem) if servers is None else servers
    finish = np.zeros((sizes.size, 1))
    for _, table in finish_probabilities(problem, sizes, interval):
        finish = table
    return 1.0 - finish[:, jobs] if jobs < finish.shape[1] else np.ones(sizes.size)
