"""Sizes by the linear program of mean numbers of jobs (batch-provisioning.txt section 6.3, item 1).

Interpretation. The jobs n at the decision point s are known and hold all that arrived before; jobs that arrive in
interval j are present at j + 1. A server that has a job finishes it within the interval with the probability f = 1 -
e**(-1/x), x the mean service time, and no other. The mean number of jobs left at the deadline is at most 1 -
confidence: 0 cannot be reached, and the probability of a late job is at most the mean number of late jobs. With b_j
jobs served, the program is

    minimise sum_j c_j q_j  so that  n_j+1 = n_j - f b_j + a_j,  b_j <= n_j,  b_j <= slots q_j,  n_d <= 1 - confidence.

One program per decision point covers all n. Its value is convex in n. Therefore one number of jobs y is best to leave,
for every n: the first size is the one that goes down to y, or as near to it as n and the sizes allow. The program finds
y when the first interval's jobs are bought at its price per job finished.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]  # scipy has no types of its own
from scipy.optimize import linprog  # type: ignore[import-untyped]

from daemons.models.deadline.capacity import all_sizes, capacity
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from daemons.models.deadline.rules import SizeTable
from daemons.models.deadline.threshold import jobs_decided_on

LATER = 1e-7
"""Prices are taken to rise by this share of the highest per interval: among equal optima jobs are served early."""
ROUND = 1e-6
"""A size above a whole number by less than this is that number; otherwise it is rounded up."""
GUARD_ROUNDS = 10
LEAST_MISS = 1e-12


def lp_table(problem: DeadlineProblem, guarded: bool = False) -> SizeTable:
    """Return the first size of the program's solution at every decision point, rounded up: serving more than the
    program requires cannot violate its constraint.

    The size is the largest with g_s(`servers_max`) jobs or more, or if the program has no solution. From the end of
    submission on it is `needed(n)`; at a price below 0 it is the largest too. guarded: sizes with which Pr[n_{s+1} >
    g_{s+1}(`servers_max`) | n, size] is above 1 - `confidence` are raised until it is not. The confidence of the whole
    table is raised (`GUARD_ROUNDS` times at most) until the table keeps the problem's, from `servers_min` servers and
    no job on and with `deploy`. If that is not reached, the table with the lowest miss probability is returned.
    """
    if not guarded:
        return _table(problem, guarded=False)
    allowed = 1.0 - problem.confidence
    stricter = allowed
    tried: list[tuple[float, SizeTable]] = []
    while len(tried) < GUARD_ROUNDS and (stricter > LEAST_MISS or not tried):
        table = _table(replace(problem, confidence=1.0 - stricter), guarded=True)
        miss = evaluate(problem, table).miss_probability
        if miss <= allowed:
            return table
        tried.append((miss, table))
        stricter *= min(0.95, 0.98 * allowed / miss)
    return min(tried, key=lambda pair: pair[0])[1]


def jobs_to_leave(problem: DeadlineProblem) -> Floats:
    """Return float64[d], y for each decision point s (entry 0 is 0): the program serves jobs until y are left, as far
    as servers and jobs allow. 0 if no solution exists: as many as possible are served."""
    program = _Program(problem)
    return np.array([0.0] + [program.left(interval) for interval in range(1, problem.intervals)])


def _table(problem: DeadlineProblem, guarded: bool) -> SizeTable:
    most = capacity(problem, np.array([problem.servers_max]))
    jobs = np.arange(jobs_decided_on(problem, most) + 1)
    left = jobs_to_leave(problem)
    finished = 1.0 - math.exp(-1.0 / problem.service)
    served = np.clip((jobs - left[:, None]) / finished, 0.0, jobs)
    wanted = np.ceil(served / problem.slots - ROUND)
    wanted[problem.price < 0.0] = problem.servers_max
    chosen = np.clip(wanted, problem.servers_min, problem.servers_max).astype(np.int64)
    if guarded:
        chosen = np.maximum(chosen, _guarded(problem, most[:, 0], int(jobs[-1])))
    needed = np.clip(np.ceil(jobs / problem.slots), problem.servers_min, problem.servers_max).astype(np.int64)
    for interval in range(1, problem.intervals):
        forced = needed if interval >= problem.submission_end else np.full_like(needed, problem.servers_max)
        chosen[interval] = np.where(jobs >= most[interval, 0], forced, chosen[interval])
    sizes = all_sizes(problem)
    table = np.repeat(chosen[:, None, :], sizes.size, axis=1).astype(np.uint16)
    table[0] = sizes[:, None]
    table.setflags(write=False)
    return SizeTable(problem.servers_min, table)


def _guarded(problem: DeadlineProblem, most: Ints, jobs_max: int) -> Ints:
    """Return int64[d, jobs_max + 1]: the fewest servers with which the next number of jobs exceeds `most` with no more
    than the allowed probability; `servers_min` if all servers cannot prevent it (the capacity forces the size
    there)."""
    sizes = all_sizes(problem)
    chain = Chain(problem, jobs_max + count_bound(float(problem.arrivals[:, 0].max())))
    jobs = np.arange(chain.jobs_max + 1)
    least = np.full((problem.intervals, jobs_max + 1), problem.servers_min, dtype=np.int64)
    for interval in range(1, problem.intervals - 1):
        above = np.broadcast_to((jobs > most[interval + 1]).astype(np.float64), (sizes.size, jobs.size))
        risk = chain.backward(interval, above, sizes)[:, : jobs_max + 1]
        kept = risk <= 1.0 - problem.confidence
        least[interval] = np.where(kept.any(axis=0), sizes[kept.argmax(axis=0)], problem.servers_min)
    return least


class _Program:
    """The constraints of all intervals once, as sparse matrices; what counts from an interval on is their lower right
    part. Variables n_j, b_j, q_j for j = 1..d-1 in the order of j, then n_d."""

    def __init__(self, problem: DeadlineProblem) -> None:
        self.problem = problem
        self.finished = 1.0 - math.exp(-1.0 / problem.service)
        self.scale = float(np.abs(problem.price).max()) or 1.0
        self.price = problem.price / self.scale + LATER * np.arange(problem.intervals)
        self.arrived = problem.arrivals[:, 0]
        count = problem.intervals - 1
        j = np.arange(count)
        jobs, served, servers, after = 3 * j, 3 * j + 1, 3 * j + 2, 3 * j + 3
        one = np.ones(count)
        self.upper = _matrix(
            [2 * j, 2 * j, 2 * j + 1, 2 * j + 1],
            [served, jobs, served, servers],
            [one, -one, one, -problem.slots * one],
            (2 * count, 3 * count + 1),
        )
        self.equal = _matrix([j, j, j], [after, jobs, served], [one, -one, self.finished * one], (count, 3 * count + 1))

    def left(self, interval: int) -> float:
        """Return y: the number of the jobs at `interval` that it is best to leave. Each of them saves the price of its
        service."""
        problem = self.problem
        count = problem.intervals - 1 - interval
        cost = np.zeros(3 * count + 1)
        cost[2::3] = self.price[interval + 1 :]
        cost[0] = -self.price[interval] / (self.finished * problem.slots)
        bounds = np.tile([[0.0, np.inf], [0.0, np.inf], [problem.servers_min, problem.servers_max]], (count + 1, 1))
        bounds = bounds[: 3 * count + 1]
        bounds[-1, 1] = 1.0 - problem.confidence
        bounds[0, 0] = self.arrived[interval]
        if problem.price[interval] < 0.0 or bounds[0, 0] > bounds[0, 1]:
            return 0.0
        solution = linprog(
            cost,
            A_ub=self.upper[2 * interval :, 3 * interval :] if count else None,
            b_ub=np.zeros(2 * count) if count else None,
            A_eq=self.equal[interval:, 3 * interval :] if count else None,
            b_eq=self.arrived[interval + 1 :] if count else None,
            bounds=bounds,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        return max(0.0, float(solution.x[0] - self.arrived[interval])) if solution.status == 0 else 0.0


def _matrix(rows: list[Ints], columns: list[Ints], values: list[Floats], shape: tuple[int, int]) -> sparse.csr_array:
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(entries, shape=shape)
