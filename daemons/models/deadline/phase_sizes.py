"""Sizes of the least expected cost where service has phases, by dynamic programming over size, phases and jobs.

As `costs` and `optimal` have it for exponential service (batch-provisioning.txt section 4.3), with the phases of begun
jobs in the state. Added servers are taken to serve at once; what that risks is the business of `risks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.models.deadline.phase_chain import STATES_MAX, PhaseChain, phase_states
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from daemons.models.deadline.risks import events_of, jobs_max_of, some_sizes

METHODS = ("cost-aware", "optimal")
SOLVES_MAX = 9
WORK_MAX = 1e10  # states x sizes x events of all solutions together: below a minute
SPENT = 0.25  # of what the promise allows to be missed: so much may `cost-aware` risk by one decision beyond the least
STEEP = 4.0  # factor between multipliers while the promise is not kept, or kept by far
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class PhaseSizeTable:
    """servers: int64[P], the sizes, ascending. sizes: uint16[d, P, J.., N + 1], the place of the size chosen at
    decision point s with servers[p] servers, the numbers of begun jobs in the later phases, and n jobs; more than N
    jobs are decided on as N. value_at_0: expected cost and penalty from time 0 on with the least size and no job."""

    servers: Ints
    sizes: NDArray[np.uint16]
    value_at_0: float

    def size(self, interval: int, servers: int, jobs: int, begun: Floats) -> int:
        """The size at decision point `interval`: the mean of what is chosen in each state that is possible, rounded.
        begun: probability of the numbers of begun jobs by phase, float64[J..]; sizes between those of the table count
        as the next larger one."""
        row = min(int(np.searchsorted(self.servers, servers)), self.servers.size - 1)
        places = self.sizes[interval, row, ..., min(jobs, self.sizes.shape[-1] - 1)]
        mean = float((begun * self.servers[places]).sum())
        return round(mean)


def can_be_sized(problem: DeadlineProblem) -> bool:
    """Whether the table of a problem with phases is computed within bounds of memory and time."""
    if problem.phases is None:
        return False
    return phase_states(problem, jobs_max_of(problem)) <= STATES_MAX and _work(problem) <= WORK_MAX


def _work(problem: DeadlineProblem) -> float:
    states = phase_states(problem, jobs_max_of(problem))
    return 2.0 * states * some_sizes(problem).size * problem.intervals * events_of(problem)


def phase_table(method: str, problem: DeadlineProblem) -> PhaseSizeTable:
    """The sizes of `cost-aware` or `optimal` of a problem with phases. O(d P S events) for S states, a few times.

    `cost-aware`: the least expected server cost and penalty with sizes that risk no more than the promise allows, or
    little more than the largest. `optimal`: the least for a multiplier on missing the deadline, the smallest one of at
    most `SOLVES_MAX` with which the promise is kept; where not even all servers keep it, with which it is missed no
    more often than by them and as often as is allowed besides.
    """
    run = _Sizes(problem)
    if method == "cost-aware":
        return run.solve(0.0, barred=True)[0]
    allowed = 1.0 - problem.confidence
    least = run.least_miss()
    wanted = allowed if least < allowed else least + allowed
    multiplier = 1.5 * max(float(np.abs(problem.price).mean()), 1e-9) / allowed
    best: tuple[PhaseSizeTable, float] | None = None
    low, high = 0.0, np.inf
    for _ in range(max(1, min(SOLVES_MAX, int(WORK_MAX / _work(problem))))):
        table, miss = run.solve(multiplier)
        if miss <= wanted:
            high, best = multiplier, (table, miss)
            if miss >= 0.7 * wanted:
                break
        else:
            low = multiplier
            best = best or (table, miss)
        multiplier = _next(low, high)
    assert best is not None
    return best[0]


def _next(low: float, high: float) -> float:
    if not np.isfinite(high):
        return low * STEEP
    return high / STEEP if low <= 0.0 else float(np.sqrt(low * high))


class _Sizes:
    """The dynamic program of one problem."""

    def __init__(self, problem: DeadlineProblem) -> None:
        self.problem = problem
        self.servers = some_sizes(problem)
        self.chain = PhaseChain(problem, jobs_max_of(problem))
        self.scale = float(np.abs(problem.price).sum()) * problem.servers_max or 1.0

    def least_miss(self) -> float:
        """The probability of breach with all servers from time 0 on."""
        late = (self.chain.jobs > 0.0).astype(np.float64)[None]
        for interval in range(self.problem.intervals - 1, -1, -1):
            late = self.chain.backward(interval, late, self.servers[-1:])
        return float(late[0, 0])

    def solve(self, multiplier: float, barred: bool = False) -> tuple[PhaseSizeTable, float]:
        """The table for a multiplier on missing the deadline, and the probability of that (with `barred`: with all
        servers from the first decision on, by which sizes are barred that risk too much)."""
        problem, chain, count = self.problem, self.chain, self.servers.size
        late = (chain.jobs > 0.0).astype(np.float64)
        values = np.tile(problem.penalty * chain.jobs + multiplier * late, (count, 1))
        missed = np.tile(late, (count, 1))
        chosen = np.empty((problem.intervals, count, late.size), dtype=np.uint16)
        chosen[0] = np.arange(count)[:, None]
        price = self.servers[:, None]
        for interval in range(problem.intervals - 1, 0, -1):
            rows = chain.backward(interval, np.concatenate((values, missed)), np.tile(self.servers, 2))
            costs, risks = rows[:count] + problem.price[interval] * price, rows[count:]
            if barred:
                allowed = np.maximum(1.0 - problem.confidence, risks[-1] + SPENT * (1.0 - problem.confidence))
                costs = np.where(risks <= allowed + TIE, costs, np.inf)
            chosen[interval], values = self._least(costs, float(problem.removal_price[interval]))
            places = chosen[interval].astype(np.int64)
            missed = np.tile(risks[-1], (count, 1)) if barred else np.take_along_axis(risks, places, axis=0)
        first = chain.backward(0, np.stack((values[0], missed[0])), self.servers[[0, 0]])[:, 0]
        chosen.setflags(write=False)
        sizes = chosen.reshape(problem.intervals, count, *chain.axes, -1)
        value = float(first[0]) + float(problem.price[0]) * float(self.servers[0]) - multiplier * float(first[1])
        return PhaseSizeTable(self.servers, sizes, value), float(first[1])

    def _least(self, costs: Floats, removal: float) -> tuple[Ints, Floats]:
        """The place of the cheapest size for each size in force and state, and what it costs; no change where that is
        as cheap but for `TIE`."""
        chosen, values = np.empty(costs.shape, dtype=np.int64), np.empty_like(costs)
        for row in range(self.servers.size):
            removed = removal * np.maximum(self.servers[row] - self.servers, 0)[:, None]
            total = costs + removed
            place = total.argmin(axis=0)
            least = np.take_along_axis(total, place[None], axis=0)[0]
            stays = total[row] <= least + TIE * self.scale
            chosen[row] = np.where(stays, row, place)
            values[row] = np.where(stays, total[row], least)
        return chosen, values
