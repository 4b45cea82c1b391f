"""Sizes of the least expected cost under the capacity of all servers (batch-provisioning.txt section 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from daemons.models.deadline.capacity import all_sizes, capacity
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from daemons.models.deadline.rules import SizeTable
from daemons.models.deadline.threshold import jobs_decided_on, least_sizes

TIE = 1e-9
"""Nothing is changed where that costs at most this share of (the expected cost + the highest price) more."""
GUARD_ROUNDS = 10
LEAST_MISS = 1e-12  # a confidence nearer to 1 drowns in rounding


@dataclass(frozen=True, slots=True)
class CostStep:
    """A decision point: the size chosen for each size p and each number of jobs n, and what is expected from then on.

    sizes: int64[P, N + 1]. values: float64[P, N + 1], L_s(p, n): server cost and penalty if the rule is followed;
    float64[1, N + 1] for `fast`, which leaves the removed servers' cost out.
    """

    interval: int
    sizes: Ints
    values: Floats


def cost_table(
    problem: DeadlineProblem, monotone: bool = False, fast: bool = False, guarded: bool = False
) -> SizeTable:
    """Heuristic 3; with `monotone` 4, which never chooses less than for one job fewer; with `fast` 5, which takes
    removal for free when it chooses (sections 4.3.3, 4.3.5 and 4.3.6).

    The recursion ignores `deploy`. With g_s(`servers_max`) jobs or more the size is the largest, from the end of
    submission on `needed(n)`; before the deadline it is the least that keeps the promise. Ties go to no change, then to
    the nearest size. guarded: sizes q are left out with which Pr[n_{s+1} > g_{s+1}(`servers_max`) | n, q] is above
    1 - `confidence`; where none is left the size is the largest, as above. The confidence in this is raised
    (`GUARD_ROUNDS` times at most) until the table keeps the problem's, from `servers_min` servers and no job on and
    with `deploy`; where that is not reached, the table that misses least is returned.
    """
    if not guarded:
        return _table(problem, monotone, fast, False)
    allowed = 1.0 - problem.confidence
    tried: list[tuple[float, SizeTable]] = []
    stricter = allowed
    while len(tried) < GUARD_ROUNDS and stricter > LEAST_MISS:
        table = _table(replace(problem, confidence=1.0 - stricter), monotone, fast, True)
        miss = evaluate(problem, table).miss_probability
        if miss <= allowed:
            return table
        tried.append((miss, table))
        stricter *= min(0.95, 0.98 * allowed / miss)
    return min(tried, key=lambda pair: pair[0])[1] if tried else _table(problem, monotone, fast, True)


def _table(problem: DeadlineProblem, monotone: bool, fast: bool, guarded: bool) -> SizeTable:
    capacities = capacity(problem)
    count = problem.servers_max - problem.servers_min + 1
    kept = jobs_decided_on(problem, capacities) + 1
    sizes = np.empty((problem.intervals, count, kept), dtype=np.uint16)
    sizes[0] = all_sizes(problem)[:, None]
    first: Floats = np.empty((1, 0))
    for step in cost_steps(problem, monotone, fast, guarded, capacities):
        sizes[step.interval] = step.sizes[:, :kept]
        first = step.values[:1]
    chain = Chain(problem, first.shape[1] - 1)
    value = chain.backward(0, first, np.array([problem.servers_min]))[0, 0]
    return SizeTable(problem.servers_min, sizes, value_at_0=float(value + problem.servers_min * problem.price[0]))


def cost_steps(
    problem: DeadlineProblem,
    monotone: bool = False,
    fast: bool = False,
    guarded: bool = False,
    capacities: Ints | None = None,
) -> Iterator[CostStep]:
    """Yield the decision points of `cost_table`, from d - 1 back to 1. guarded: as there, with the problem's
    confidence; capacities: `capacity` of all sizes, if already computed.

    N is large enough for every number of jobs that can follow from one that the table decides on.
    """
    table = capacity(problem) if capacities is None else capacities
    reachable = jobs_decided_on(problem, table) + count_bound(float(problem.arrivals[:, 0].sum()))
    planner = _Planner(problem, table, Chain(problem, reachable), monotone, fast, guarded)
    rows = 1 if fast else planner.count
    values = np.broadcast_to(problem.penalty * np.arange(reachable + 1.0), (rows, reachable + 1))
    for interval in range(problem.intervals - 1, 0, -1):
        costs = planner.costs(interval, values)
        chosen = planner.choose(interval, costs)
        values = planner.values(interval, costs, chosen)
        yield CostStep(interval, problem.servers_min + chosen, values)


class _Planner:
    """One backward step; sizes are meant by their place q - servers_min."""

    def __init__(
        self,
        problem: DeadlineProblem,
        capacities: Ints,
        chain: Chain,
        monotone: bool,
        fast: bool,
        guarded: bool,
    ) -> None:
        self.problem = problem
        self.chain = chain
        self.monotone = monotone
        self.fast = fast
        self.guarded = guarded
        self.sizes = all_sizes(problem)
        self.count = int(self.sizes.size)
        self.most = capacities[:, -1]
        self.jobs = np.arange(chain.jobs_max + 1)
        self.least_last = least_sizes(problem, capacities[-1:], chain.jobs_max)[0] - problem.servers_min

    def costs(self, interval: int, values: Floats) -> Floats:
        """Return float64[P, N + 1]: the cost of q servers for one interval and of all later intervals, without
        removal."""
        following = np.broadcast_to(values, (self.count, values.shape[1]))
        costs = self.chain.backward(interval, following, self.sizes)
        costs += self.sizes[:, None] * self.problem.price[interval]
        return costs

    def removal(self, interval: int) -> float:
        """Charged for each removed server when sizes are chosen."""
        return 0.0 if self.fast else float(self.problem.removal_price[interval])

    def largest(self, interval: int) -> Ints:
        """Return w for each number of jobs: more servers are never needed."""
        if interval < self.problem.submission_end:
            return np.full(self.jobs.size, self.count - 1)
        needed = np.ceil(self.jobs / self.problem.slots).astype(np.int64) - self.problem.servers_min
        return np.clip(needed, 0, self.count - 1)

    def choose(self, interval: int, costs: Floats) -> Ints:
        """Return int64[P, N + 1]: the size for each (p, n)."""
        largest = self.largest(interval)
        if interval == self.problem.intervals - 1:
            return np.broadcast_to(np.minimum(largest, self.least_last), (self.count, self.jobs.size))
        free = max(0, int(self.most[interval]))
        allowed = np.arange(self.count)[:, None] <= largest[:free]
        if self.guarded:
            allowed &= self._above(interval)[:, :free] <= 1.0 - self.problem.confidence
        chosen = np.broadcast_to(largest, (self.count, largest.size)).copy()
        left = np.flatnonzero(allowed.any(axis=0))
        scope = _Scope(np.where(allowed, costs[:, :free], np.inf), self.removal(interval), self._tie(costs[:, :free]))
        chosen[:, left] = scope.cheapest()[:, left]
        if self.monotone:
            scope.raise_sizes(chosen, largest)
        return chosen

    def _above(self, interval: int) -> Floats:
        """Return float64[P, N + 1]: Pr[more jobs at the next decision point than all servers finish in time], for (q,
        n)."""
        above = (self.jobs > self.most[interval + 1]).astype(np.float64)
        return self.chain.backward(interval, np.broadcast_to(above, (self.count, above.size)), self.sizes)

    def _tie(self, costs: Floats) -> Floats:
        highest = float(np.abs(self.problem.price).max())
        return np.asarray(TIE * (np.abs(costs).min(axis=0) + highest), dtype=np.float64)

    def values(self, interval: int, costs: Floats, chosen: Ints) -> Floats:
        """Return the cost of the chosen sizes: float64[P, N + 1], or float64[1, N + 1] if removal counts as free."""
        if self.fast:
            return np.take_along_axis(costs, chosen[:1], axis=0)
        removed = np.maximum(np.arange(self.count)[:, None] - chosen, 0)
        return np.asarray(np.take_along_axis(costs, chosen, axis=0) + removed * self.removal(interval))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Costs of the sizes q that may be chosen (inf: may not), for each number of jobs; tie: float64[jobs]."""

    costs: Floats
    removal: float
    tie: Floats

    def cheapest(self) -> Ints:
        """Return the minimum over q, as two running minima: the removal cost separates into a part of p and a part of
        q."""
        places = np.arange(self.costs.shape[0])[:, None]
        fewer, fewer_at = _running_least(self.costs - places * self.removal)
        more, more_at = (part[::-1] for part in _running_least(self.costs[::-1]))
        fewer = fewer + places * self.removal
        best = np.minimum(fewer, more)
        chosen = np.where(fewer <= more, fewer_at, self.costs.shape[0] - 1 - more_at)
        return np.where(self.costs <= best + self.tie, places, chosen)

    def raise_sizes(self, chosen: Ints, largest: Ints) -> None:
        """Choose again, in place, where a size is below the one for a job fewer."""
        for jobs in range(1, self.costs.shape[1]):
            low = np.flatnonzero(chosen[:, jobs] < chosen[:, jobs - 1])
            if low.size:
                chosen[low, jobs] = self._from(low, chosen[low, jobs - 1], jobs, int(largest[jobs]))

    def _from(self, places: Ints, floors: Ints, jobs: int, forced: int) -> Ints:
        """Return the cheapest sizes from `floors` on for the sizes `places`; `forced` if none may be chosen."""
        sizes = np.arange(self.costs.shape[0])
        away = places[:, None] - sizes
        costs = self.costs[:, jobs] + np.maximum(away, 0) * self.removal
        costs = np.where(sizes >= floors[:, None], costs, np.inf)
        best = costs.min(axis=1, keepdims=True)
        near = np.where(costs <= best, np.abs(away), self.costs.shape[0])
        stays = (costs <= best + self.tie[jobs]) & (away == 0)
        chosen = np.where(stays.any(axis=1), places, near.argmin(axis=1))
        return np.where(np.isfinite(best[:, 0]), chosen, forced)


def _running_least(costs: Floats) -> tuple[Floats, Ints]:
    """Return the least of costs[: i + 1] for each i, and the last index at which it occurs."""
    least = np.minimum.accumulate(costs, axis=0)
    places = np.where(costs <= least, np.arange(costs.shape[0])[:, None], 0)
    return least, np.maximum.accumulate(places, axis=0)
