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
MULTIPLIERS = 5
WORK_MAX = 1e10  # states x sizes x events of a solution: some seconds
FINE_WORK = 1e8  # of all solutions together, up to which multipliers are looked at more closely
SPENT = 0.25  # of what the promise allows to be missed: so much may `cost-aware` risk by one decision beyond the least
STEEP = 4.0  # factor between multipliers
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class PhaseSizeTable:
    """servers: int64[P], the sizes, ascending. sizes: uint16[d, P, J.., N + 1], the place of the size chosen at
    decision point s with servers[p] servers, the numbers of begun jobs in the later phases, and n jobs; more than N
    jobs are decided on as N. value_at_0: expected cost and penalty from the first interval on
    with the least size and no job."""

    servers: Ints
    sizes: NDArray[np.uint16]
    value_at_0: float

    def size(self, interval: int, servers: int, jobs: int, begun: Floats) -> int:
        """Return the size at decision point `interval`: the mean of the sizes chosen in each possible state, rounded.
        begun: probability of the numbers of begun jobs by phase, float64[J..]; sizes between those of the table count
        as the next larger one."""
        row = min(int(np.searchsorted(self.servers, servers)), self.servers.size - 1)
        places = self.sizes[interval, row, ..., min(jobs, self.sizes.shape[-1] - 1)]
        mean = float((begun * self.servers[places]).sum())
        return round(mean)


def can_be_sized(problem: DeadlineProblem) -> bool:
    """Return whether the table of a problem with phases can be computed within the bounds of memory and time."""
    if problem.phases is None:
        return False
    return phase_states(problem, jobs_max_of(problem)) <= STATES_MAX and _work(problem) <= WORK_MAX


def _work(problem: DeadlineProblem) -> float:
    states = phase_states(problem, jobs_max_of(problem))
    return 2.0 * states * some_sizes(problem).size * problem.intervals * events_of(problem)


def phase_table(method: str, problem: DeadlineProblem, begin: int = 0) -> PhaseSizeTable:
    """Return the sizes of `cost-aware` or `optimal` of a problem with phases, from the interval `begin` on. O(d P S
    events) for S states, a few times.

    `cost-aware`: the least expected server cost and penalty with sizes whose risk is within the allowed probability, or
    little above that of the largest size. `optimal`: the least for a multiplier on missing the deadline. It is the
    smallest of `MULTIPLIERS` a factor `STEEP` apart that meets the confidence, refined by as many between it and the
    one below if the problem is small enough. If not even all servers meet the confidence, the allowed probability is
    theirs plus the usual one. From a later `begin` on, the confidence applies to the least number of servers and no
    job.
    """
    run = _Sizes(problem, begin)
    if method == "cost-aware":
        return run.solve(np.zeros(1), barred=True)[0][0]
    allowed = 1.0 - problem.confidence
    least = run.least_miss()
    wanted = allowed if least < allowed else least + allowed
    middle = 1.5 * max(float(np.abs(problem.price).mean()), 1e-9) / allowed
    tried = np.array([middle * STEEP ** (place - MULTIPLIERS // 2) for place in range(MULTIPLIERS)])
    best, bracket = _smallest(*run.solve(tried), tried, wanted)
    if MULTIPLIERS * _work(problem) <= FINE_WORK:
        finer = np.asarray(np.geomspace(*bracket, MULTIPLIERS + 1)[1:], dtype=np.float64)
        best, _ = _smallest(*run.solve(finer), finer, wanted)
    return best


def _smallest(
    tables: list[PhaseSizeTable], misses: Floats, tried: Floats, wanted: float
) -> tuple[PhaseSizeTable, tuple[float, float]]:
    """Return the table of the smallest multiplier whose miss probability is at most `wanted`, or of the largest
    multiplier if there is none, and the two multipliers between which that changes."""
    kept = np.flatnonzero(misses <= wanted + TIE)
    place = int(kept[0]) if kept.size else len(tried) - 1
    return tables[place], (float(tried[place]) / STEEP, float(tried[place]))


class _Sizes:
    """The dynamic program of one problem, back to the interval `begin`."""

    def __init__(self, problem: DeadlineProblem, begin: int) -> None:
        self.problem, self.begin = problem, begin
        self.servers = some_sizes(problem)
        self.chain = PhaseChain(problem, jobs_max_of(problem))
        self.scale = float(np.abs(problem.price).sum()) * problem.servers_max or 1.0

    def least_miss(self) -> float:
        """Return the probability of breach with all servers from `begin` on."""
        late = (self.chain.jobs > 0.0).astype(np.float64)[None]
        for interval in range(self.problem.intervals - 1, self.begin - 1, -1):
            late = self.chain.backward(interval, late, self.servers[-1:])
        return float(late[0, 0])

    def solve(self, multipliers: Floats, barred: bool = False) -> tuple[list[PhaseSizeTable], Floats]:
        """Return, for each multiplier on missing the deadline, the table and the miss probability (with `barred`: that
        with all servers from the first decision on, by which sizes with too much risk are barred)."""
        problem, chain, count, many = self.problem, self.chain, self.servers.size, multipliers.size
        late = (chain.jobs > 0.0).astype(np.float64)
        values = np.repeat(problem.penalty * chain.jobs + multipliers[:, None] * late, count, axis=0)
        missed = np.tile(late, (many * count, 1))
        chosen = np.zeros((many, problem.intervals, count, late.size), dtype=np.uint16)
        chosen[:, 0] = np.arange(count)[:, None]
        price, sizes = np.tile(self.servers, many)[:, None], np.tile(self.servers, 2 * many)
        for interval in range(problem.intervals - 1, max(self.begin, 1) - 1, -1):
            rows = chain.backward(interval, np.concatenate((values, missed)), sizes)
            costs, risks = rows[: many * count] + problem.price[interval] * price, rows[many * count :]
            if barred:
                allowed = np.maximum(1.0 - problem.confidence, risks[-1] + SPENT * (1.0 - problem.confidence))
                costs = np.where(risks <= allowed + TIE, costs, np.inf)
            for each in range(many):
                mine = slice(each * count, (each + 1) * count)
                chosen[each, interval], values[mine] = self._least(costs[mine], float(problem.removal_price[interval]))
                places = chosen[each, interval].astype(np.int64)
                missed[mine] = risks[-1] if barred else np.take_along_axis(risks[mine], places, axis=0)
        first, value = missed[::count, 0], values[::count, 0]
        if self.begin == 0:
            first_rows = np.concatenate((values[::count], missed[::count]))
            moved = chain.backward(0, first_rows, np.full(2 * many, self.servers[0]))[:, 0]
            first, value = moved[many:], moved[:many] + float(problem.price[0]) * float(self.servers[0])
        chosen.setflags(write=False)
        shaped = chosen.reshape(many, problem.intervals, count, *chain.axes, -1)
        costs_at_0 = (value - multipliers * first).tolist()
        return [PhaseSizeTable(self.servers, shaped[each], costs_at_0[each]) for each in range(many)], first

    def _least(self, costs: Floats, removal: float) -> tuple[Ints, Floats]:
        """Return the index of the cheapest size for each size in force and state, and its cost; no change if that is as
        cheap within `TIE`."""
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
