"""Sizes from the capacity table alone (batch-provisioning.txt section 4.2), and the size that is never changed."""

from __future__ import annotations

import numpy as np

from daemons.models.deadline.capacity import all_sizes, breach, capacity
from daemons.models.deadline.problem import DeadlineProblem, Ints
from daemons.models.deadline.rules import SizeTable


def jobs_decided_on(problem: DeadlineProblem, table: Ints) -> int:
    """N, so many jobs that more change no size: above what all servers finish in time, and all of them are needed."""
    return max(int(table.max()), problem.slots * problem.servers_max) + 1


def least_sizes(problem: DeadlineProblem, table: Ints, jobs_max: int) -> Ints:
    """Return int64[d, jobs_max + 1], v_s(n) clipped: the fewest servers that finish n jobs with the required
    confidence, and `servers_max` if no size does. table: `capacity` of all sizes."""
    jobs = np.arange(jobs_max + 1)
    best = np.maximum.accumulate(table, axis=1)
    rows = np.array([np.searchsorted(row, jobs, side="left") for row in best], dtype=np.int64)
    return np.asarray(problem.servers_min + np.minimum(rows, table.shape[1] - 1), dtype=np.int64)


def threshold_table(problem: DeadlineProblem, delayed: bool = False) -> SizeTable:
    """Heuristic 1 (section 4.2.1): the fewest servers that keep the promise if nothing is changed any more; with
    `delayed` heuristic 2, which removes servers only when it wanted to at the decision point before too."""
    table = capacity(problem)
    jobs_max = jobs_decided_on(problem, table)
    sizes = all_sizes(problem)
    chosen = np.repeat(least_sizes(problem, table, jobs_max)[:, None, :], sizes.size, axis=1).astype(np.uint16)
    chosen[0] = sizes[:, None]
    return SizeTable(problem.servers_min, chosen, delayed)


def static_size(problem: DeadlineProblem) -> int:
    """Return the fewest servers that meet the confidence in service from time 0 on, starting without jobs;
    `servers_max` if none does."""
    kept = breach(problem, 0, 0) <= 1.0 - problem.confidence
    return problem.servers_min + int(np.argmax(kept)) if kept.any() else problem.servers_max


def static_table(problem: DeadlineProblem) -> SizeTable:
    """Return a table with `static_size` everywhere, from time 0 on."""
    count = problem.servers_max - problem.servers_min + 1
    chosen = np.full((problem.intervals, count, 1), static_size(problem), dtype=np.uint16)
    return SizeTable(problem.servers_min, chosen)
