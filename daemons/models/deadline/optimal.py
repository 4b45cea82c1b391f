"""The cheapest rule for sizes that keeps the promise, by dynamic programming with a multiplier on missing the deadline.

For a multiplier y >= 0 the rule of least expected cost + penalty + y Pr[a job is left at the deadline] follows
backwards over (s, servers, jobs). Its value less y (1 - confidence) is below the cost of every rule that keeps the
promise. The multiplier is raised until the rule itself keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daemons.models.deadline.capacity import all_sizes
from daemons.models.deadline.costs import cost_table
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.lp import lp_table
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from daemons.models.deadline.rules import SizeTable
from daemons.models.deadline.threshold import threshold_table
from shared.base.errors import InvalidValue

GAP = 5e-5
TIE = 1e-9
"""Sizes whose costs differ by less than this share of all servers' cost are equal: the one in force stays."""
UNREACHED = 1e-14
"""Numbers of jobs that arrive with a smaller probability are decided on as the largest that is not."""
PAIRS_MAX = 300
"""So many pairs of a size and a larger one (25 sizes) are carried exactly through the time to deploy."""
SOLVES_MAX = 60
TRIES_MAX = 4
FAR_GAPS = 5.0
HALVINGS = 6


@dataclass(frozen=True, slots=True)
class OptimalResult:
    """The best rule found, and what it brings from time 0 on.

    expected_penalty: the problem's penalty per late job. lower_bound: no rule that keeps the promise has a smaller
    expected server cost + penalty (-inf where the promise cannot be kept; with more than 25 sizes and a time to deploy
    exact to about 1e-5 of itself). multiplier: of the miss probability. keeps: false where not even all servers keep
    the promise; the rule is then one that misses with the least probability.
    """

    table: SizeTable
    expected_server_cost: float
    expected_penalty: float
    miss_probability: float
    lower_bound: float
    multiplier: float
    keeps: bool


@dataclass(frozen=True, slots=True)
class _Solution:
    """A rule that is best for a multiplier: its expected cost + penalty and its miss probability."""

    multiplier: float
    sizes: NDArray[np.uint16]
    server_cost: float
    late: float
    cost: float
    miss: float

    def dual(self, allowed: float) -> float:
        """Return a lower bound of the cost of every rule that misses with a probability of at most `allowed`."""
        return self.cost + self.multiplier * (self.miss - allowed)


def optimal_table(problem: DeadlineProblem, gap: float = GAP) -> SizeTable:
    """Return the sizes of `optimal`."""
    return optimal(problem, gap).table


def optimal(problem: DeadlineProblem, gap: float = GAP) -> OptimalResult:
    """Return the least expected server cost + penalty subject to Pr[a job is left at the deadline] <= 1 - confidence.

    Without a penalty, the rule abandons a deadline that is certain to be missed, at the least cost; a penalty of at
    least the cost of a job's service keeps it working. gap: the search ends when the best rule that meets the
    confidence costs at most this share (above 0) of all servers' cost more than the lower bound, or when no multiplier
    leads to a better one: a deterministic rule cannot always use the whole allowed probability. With more than 25 sizes
    the time to deploy enters the choice of sizes to second order only; the evaluation of the rule is still exact.
    Raises `InvalidValue` for the gap.
    """
    if not gap > 0.0:
        raise InvalidValue("gap", gap, "a share above 0")
    recursion = _Recursion(problem)
    allowed = 1.0 - problem.confidence
    for _ in range(TRIES_MAX):
        search = _Search(recursion, gap, allowed)
        while search.step():
            pass
        if search.kept is None:
            break
        result = _result(problem, search.kept, search.bound)
        if not recursion.exact:
            result = _evaluated(problem, result)
        if result.keeps:
            return _or_other(problem, result, search.gap)
        allowed *= min(0.999, (1.0 - problem.confidence) / result.miss_probability)
    result = _result(problem, recursion.solve(np.full(problem.intervals, search.most)), -math.inf)
    return result if recursion.exact else _evaluated(problem, result)


def _or_other(problem: DeadlineProblem, result: OptimalResult, gap: float) -> OptimalResult:
    """Return another kind of rule if it comes nearer to the allowed probability, when the rules for multipliers jump
    far over it."""
    if result.expected_server_cost + result.expected_penalty - result.lower_bound <= FAR_GAPS * gap:
        return result
    others = [
        threshold_table(problem),
        threshold_table(problem, delayed=True),
        cost_table(problem, guarded=True),
        cost_table(problem, fast=True, guarded=True),
        lp_table(problem, guarded=True),
    ]
    found = [_evaluated(problem, replace(result, table=table)) for table in others]
    kept = [result, *(each for each in found if each.keeps)]
    return min(kept, key=lambda each: each.expected_server_cost + each.expected_penalty)


def _evaluated(problem: DeadlineProblem, result: OptimalResult) -> OptimalResult:
    found = evaluate(problem, result.table)
    penalty = problem.penalty * found.missed_jobs
    return replace(
        result,
        table=replace(result.table, value_at_0=found.expected_server_cost + penalty),
        expected_server_cost=found.expected_server_cost,
        expected_penalty=penalty,
        miss_probability=found.miss_probability,
        keeps=found.miss_probability <= 1.0 - problem.confidence,
    )


def _result(problem: DeadlineProblem, solution: _Solution, bound: float) -> OptimalResult:
    table = SizeTable(problem.servers_min, solution.sizes, value_at_0=solution.cost)
    penalty = problem.penalty * solution.late
    keeps = solution.miss <= 1.0 - problem.confidence
    return OptimalResult(table, solution.cost - penalty, penalty, solution.miss, bound, solution.multiplier, keeps)


class _Search:
    """For the multiplier from which on the promise is kept.

    `low` breaks the promise, `high` keeps it; as lines of cost over the multiplier they cross above every lower bound.
    """

    def __init__(self, recursion: _Recursion, gap: float, allowed: float) -> None:
        self.recursion = recursion
        self.allowed = allowed
        self.gap = gap * recursion.scale
        self.most = 1e4 * (recursion.scale + recursion.problem.penalty * recursion.jobs_max) / self.allowed
        self.low: _Solution | None = None
        self.high: _Solution | None = None
        self.kept: _Solution | None = None
        self.bound = -math.inf
        self.solves = 0
        self.side = False
        self.last = self._solve(min(self.most, self._first()))

    def step(self) -> bool:
        """Tries another rule; false when there is none to try."""
        if self.solves >= SOLVES_MAX:
            return False
        if self.low is not None and self.high is not None:
            return self._between(self.low, self.high)
        last = self.last
        if self.high is None:
            if last.multiplier >= self.most:
                return False
            self._solve(min(self.most, last.multiplier * min(max(1.1 * last.miss / self.allowed, 1.5), 100.0)))
            return True
        if last.multiplier <= 0.0:
            return False
        lower = last.multiplier * min(max(0.9 * last.miss / self.allowed, 0.01), 0.7)
        self._solve(lower if lower > 1e-6 * self._first() else 0.0)
        return True

    def _first(self) -> float:
        """Return an empirical first guess: the last late job costs a server for one or two intervals."""
        problem = self.recursion.problem
        return max(1.5 * float(np.abs(problem.price).mean()), 1e-6 * self.recursion.scale) / self.allowed

    def _solve(self, multiplier: float) -> _Solution:
        new = self.recursion.solve(np.full(self.recursion.problem.intervals, multiplier))
        self.bound = max(self.bound, new.dual(self.allowed))
        if new.miss > self.allowed:
            self.low = new
        else:
            self.high = new
        self._take(new)
        return new

    def _take(self, new: _Solution) -> None:
        self.solves += 1
        self.last = new
        if new.miss <= self.allowed and (self.kept is None or new.cost < self.kept.cost):
            self.kept = new

    def _between(self, low: _Solution, high: _Solution) -> bool:
        crossing = (high.cost - low.cost) / (low.miss - high.miss)
        ceiling = low.cost + crossing * (low.miss - self.allowed)
        if self._close():
            return False
        if ceiling - self.bound <= 0.01 * self.gap:
            self._mix(low, high)
            return False
        same = self.side
        self.side = self.last is high
        multiplier = crossing
        if (self.solves < HALVINGS or same == self.side) and self.solves % 2 and low.multiplier > 0.0:
            multiplier = math.sqrt(low.multiplier * high.multiplier)
        if not low.multiplier < multiplier < high.multiplier:
            multiplier = 0.5 * (low.multiplier + high.multiplier)
        self._solve(multiplier)
        return True

    def _close(self) -> bool:
        return self.kept is not None and self.kept.cost - self.bound <= self.gap

    def _mix(self, low: _Solution, high: _Solution) -> None:
        """Rules that follow `high` first and `low` from some decision point on: where both cost the same for the
        multiplier between them, so does every mixture, and one that misses nearly as often as allowed is cheapest."""
        first, last = 1, self.recursion.problem.intervals
        while last - first > 1 and not self._close():
            middle = (first + last) // 2
            kept = self._mixture(high.multiplier, middle, low.multiplier)
            first, last = (first, middle) if kept else (middle, last)
        least, most = 0.5 * low.multiplier, low.multiplier
        # a rule without chance jumps over what is allowed in one state: the rest of it goes to the later points
        for _ in range(HALVINGS):
            if self._close():
                return
            between = 0.5 * (least + most)
            kept = self._mixture(high.multiplier, last, between)
            least, most = (least, between) if kept else (between, most)

    def _mixture(self, first: float, point: int, rest: float) -> bool:
        """Tries the multiplier `first` before the decision point and `rest` from there on: is the promise kept?"""
        multipliers = np.full(self.recursion.problem.intervals, rest)
        multipliers[:point] = first
        new = self.recursion.solve(multipliers)
        self._take(new)
        return new.miss <= self.allowed


@dataclass(frozen=True, slots=True)
class _Choice:
    """For every size in force and number of jobs: the row of the chosen size, its total and the expectations."""

    row: Ints
    total: Floats
    parts: Floats


class _Recursion:
    """The dynamic program: expectations of (server cost, miss[, late jobs]) as float64[K, P, N + 1] backwards in s."""

    def __init__(self, problem: DeadlineProblem) -> None:
        self.problem = problem
        self.sizes = all_sizes(problem)
        self.jobs_max = max(count_bound(float(problem.arrivals[:, 0].sum()), UNREACHED), problem.slots, 1)
        self.chain = Chain(problem, self.jobs_max)
        self.scale = float(np.abs(problem.price).sum()) * problem.servers_max or 1.0
        self.exact = problem.deploy == 0.0 or self.sizes.size * (self.sizes.size - 1) <= 2 * PAIRS_MAX
        self._late = problem.penalty > 0.0

    def solve(self, multipliers: Floats) -> _Solution:
        """Return the best rule when each decision point s weighs a miss with multipliers[s] (0 or above),
        float64[d]."""
        problem = self.problem
        jobs = np.arange(self.jobs_max + 1, dtype=np.float64)
        end = [np.zeros_like(jobs), (jobs > 0.0).astype(np.float64), jobs]
        parts = np.repeat(np.array(end[: 2 + self._late])[:, None, :], self.sizes.size, axis=1)
        chosen = np.empty((problem.intervals, self.sizes.size, jobs.size), dtype=np.uint16)
        chosen[0] = self.sizes[:, None]
        for interval in range(problem.intervals - 1, 0, -1):
            weights = np.array([1.0, multipliers[interval], problem.penalty][: 2 + self._late])
            best = self._decide(interval, parts, weights)
            chosen[interval] = self.sizes[best.row]
            parts = best.parts
        chosen.setflags(write=False)
        start = self._back(0, parts[:, :1], self.sizes[:1])[:, 0, 0]
        server_cost = float(start[0]) + float(problem.price[0]) * problem.servers_min
        late = float(start[2]) if self._late else 0.0
        miss = max(float(start[1]), 0.0)
        cost = server_cost + problem.penalty * late
        return _Solution(float(multipliers[-1]), chosen, server_cost, late, cost, miss)

    def _back(self, interval: int, parts: Floats, sizes: Ints, begin: float = 0.0, end: float = 1.0) -> Floats:
        rows = self.chain.backward(
            interval, parts.reshape(-1, parts.shape[-1]), np.tile(sizes, parts.shape[0]), begin, end
        )
        return rows.reshape(parts.shape)

    def _decide(self, interval: int, parts: Floats, weights: Floats) -> _Choice:
        deploy = self.problem.deploy
        served = self._back(interval, parts, self.sizes, deploy, 1.0) if deploy < 1.0 else parts
        after = self._back(interval, served, self.sizes, 0.0, deploy) if deploy > 0.0 else served
        after = after.copy()
        price = float(self.problem.price[interval]) * self.sizes[:, None]
        after[0] += price
        best = self._kept_or_removed(interval, after, weights)
        if deploy <= 0.0:
            self._added(best, after, weights)
        elif not self.exact:
            self._nearly_deployed(best, after, served, weights)
        else:
            served = served.copy()
            served[0] += price
            self._deployed(interval, best, served, weights)
        return self._unless_equal(best, after, weights)

    def _kept_or_removed(self, interval: int, after: Floats, weights: Floats) -> _Choice:
        """Return the best size of those up to the one in force: removal costs are proportional, so a running minimum
        suffices."""
        removal = float(self.problem.removal_price[interval])
        total = np.tensordot(weights, after, axes=1)
        lowest = total[0] - removal * self.sizes[0]
        row = np.zeros(total.shape, dtype=np.int64)
        for i in range(1, self.sizes.size):
            here = total[i] - removal * self.sizes[i]
            row[i] = np.where(here <= lowest, i, row[i - 1])
            lowest = np.minimum(lowest, here)
        parts = np.take_along_axis(after, row[None], axis=1)
        removed = removal * (self.sizes[:, None] - self.sizes[row])
        parts[0] += removed
        return _Choice(row, np.take_along_axis(total, row, axis=0) + removed, parts)

    def _added(self, best: _Choice, after: Floats, weights: Floats) -> None:
        """Puts a larger size in where it is better, when added servers serve at once."""
        total = np.tensordot(weights, after, axes=1)
        row = np.full(total.shape[1], self.sizes.size - 1)
        for i in range(self.sizes.size - 2, -1, -1):
            here = total[i + 1]
            row = np.where(here <= np.take_along_axis(total, row[None], axis=0)[0], i + 1, row)
            found = np.take_along_axis(total, row[None], axis=0)[0]
            self._put(best, i, row, found, np.take_along_axis(after, row[None, None], axis=1)[:, 0])

    def _deployed(self, interval: int, best: _Choice, served: Floats, weights: Floats) -> None:
        """Puts a larger size in where it is better, when only the size in force serves in the time to deploy."""
        for i in range(self.sizes.size - 1):
            larger = served[:, i + 1 :]
            before = np.full(larger.shape[1], self.sizes[i])
            parts = self._back(interval, larger, before, 0.0, self.problem.deploy)
            total = np.tensordot(weights, parts, axes=1)
            row = total.argmin(axis=0)
            found = np.take_along_axis(total, row[None], axis=0)[0]
            self._put(best, i, row + i + 1, found, np.take_along_axis(parts, row[None, None], axis=1)[:, 0])

    def _nearly_deployed(self, best: _Choice, after: Floats, served: Floats, weights: Floats) -> None:
        """Add the sizes above the one in force as in `_deployed`, to first order in the departures that the added
        servers would have had in the time to deploy: the value of each departure is averaged over the beginning and the
        end of that time."""
        middle = 0.5 * (after + served)
        worth = np.diff(middle, axis=2, prepend=middle[:, :, :1])
        total, rise = np.tensordot(weights, after, axes=1), np.tensordot(weights, worth, axes=1)
        busy = np.minimum(np.arange(total.shape[1]), self.problem.slots * self.sizes[:, None])
        lost = busy * (self.problem.deploy / self.problem.service)
        total += lost * rise
        column = np.arange(total.shape[1])
        for i in range(self.sizes.size - 1):
            row = (total[i + 1 :] - lost[i] * rise[i + 1 :]).argmin(axis=0) + i + 1
            parts = after[:, row, column] + (lost[row, column] - lost[i]) * worth[:, row, column]
            self._put(best, i, row, weights @ parts, parts)

    @staticmethod
    def _put(best: _Choice, i: int, row: Ints, total: Floats, parts: Floats) -> None:
        better = total < best.total[i]
        best.row[i, better] = row[better]
        best.total[i, better] = total[better]
        best.parts[:, i, better] = parts[:, better]

    def _unless_equal(self, best: _Choice, after: Floats, weights: Floats) -> _Choice:
        """Return the size in force unless another is better by more than `TIE`."""
        total = np.tensordot(weights, after, axes=1)
        equal = total <= best.total + TIE * self.scale
        row = np.where(equal, np.arange(self.sizes.size)[:, None], best.row)
        return _Choice(row, np.where(equal, total, best.total), np.where(equal, after, best.parts))
