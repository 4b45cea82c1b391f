"""The probability of breach for service with phases, as a table: with a size that never changes, and with a size until
the next decision and all servers from then on.

The second limits the risk of a rule that has other goals. If all servers were used from now on, the probability of
breach would be a martingale; a decision adds to it the risk of its size beyond that of the largest one. The deadline
target is therefore met by decisions that never add more, over a period, than it leaves at the beginning, regardless of
their other goals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daemons.models.deadline.capacity import SURE, all_sizes
from daemons.models.deadline.phase_chain import STATES_MAX, PhaseChain, phase_states
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

SIZES_MAX = 8
ELEMENTS_MAX = 8_000_000
CERTAIN = 1e-6  # with a smaller probability of keeping the deadline it is as good as missed
WORK_MAX = 4e10  # states x sizes x events that a table may take to compute: about two minutes
SLACK = 1.25
NEGLECTED = 1e-9  # probabilities of numbers of begun jobs
LEAST_JOBS = 32
MANY = 3.0  # times as many jobs as are expected


@dataclass(frozen=True, slots=True)
class RiskTable:
    """Pr[a job is left at the deadline], float32[d, P, J.., G], from interval s on with servers[i] servers, the numbers
    of begun jobs in the later phases, and jobs[s, g] jobs. stay: the size is never changed; once: it serves in interval
    s, and until added servers are deployed in the next one, and all servers from then on."""

    servers: Ints
    jobs: Ints
    stay: NDArray[np.float32]
    once: NDArray[np.float32]

    def breach(self, interval: int, jobs: float, begun: Floats, servers: Sequence[int]) -> Floats:
        """Return float64[n]: the probability for each number of servers that never changes. begun: probability of the
        numbers of begun jobs by phase, float64[J..]; sizes and jobs between those of the table: linear interpolation;
        more jobs: 1."""
        return self._mean(self.stay, interval, jobs, begun, servers)

    def risk(self, interval: int, jobs: float, begun: Floats, servers: Sequence[int]) -> Floats:
        """Return float64[n]: the probability for each number of servers until the next decision, and all from then
        on."""
        return self._mean(self.once, interval, jobs, begun, servers)

    def breach_of_others(self, interval: int, jobs: float, begun: Floats, servers: Sequence[int], slots: int) -> Floats:
        """Return `breach` of the jobs in the first of two phases, float64[n]; those in the second keep a slot each. If
        jobs are more variable than an exponential, these are the long ones, which are late or in time with any number
        of servers. O(J n)."""
        return self._of_others(self.stay, interval, jobs, begun, servers, slots)

    def risk_of_others(self, interval: int, jobs: float, begun: Floats, servers: Sequence[int], slots: int) -> Floats:
        """Return `risk` of the same jobs, float64[n]."""
        return self._of_others(self.once, interval, jobs, begun, servers, slots)

    def _of_others(
        self, table: NDArray[np.float32], interval: int, jobs: float, begun: Floats, servers: Sequence[int], slots: int
    ) -> Floats:
        given, first = np.asarray(servers, dtype=np.float64), np.zeros_like(begun)
        first[0] = 1.0
        found = np.zeros(given.size)
        for long, weight in enumerate(begun.tolist()):
            if weight <= NEGLECTED:
                continue
            left, others = given - long / slots, max(jobs - long, 0.0)
            short = (left <= 0.0) & (others > 0.0)
            found += weight * np.where(short, 1.0, self._mean(table, interval, others, first, left))
        return found

    def _mean(
        self, table: NDArray[np.float32], interval: int, jobs: float, begun: Floats, servers: ArrayLike
    ) -> Floats:
        grid = self.jobs[interval]
        right = min(int(np.searchsorted(grid, jobs)), len(grid) - 1)
        left = max(right - (grid[right] > jobs), 0)
        span = max(int(grid[right] - grid[left]), 1)
        part = min(max((jobs - int(grid[left])) / span, 0.0), 1.0)
        flat = table[interval].reshape(self.servers.size, -1, len(grid))
        means = begun.ravel() @ (flat[:, :, left] * (1.0 - part) + flat[:, :, right] * part).T
        if jobs > grid[-1]:
            means = np.ones_like(means)
        best = np.minimum.accumulate(np.clip(means, 0.0, 1.0))
        return np.interp(np.asarray(servers, dtype=np.float64), self.servers, best)


@dataclass(frozen=True, slots=True)
class RiskSpec:
    """The key of a table: the problem with phases it belongs to, regardless of server prices, from the interval `begin`
    on; earlier intervals are not computed."""

    problem: DeadlineProblem
    begin: int = 0

    def digest(self) -> str:
        """Return an identifier of everything that the table depends on: 64 hexadecimal digits."""
        return hashlib.sha256(f"risk {self.begin} {self.problem.digest()}".encode()).hexdigest()

    def build(self) -> RiskTable:
        """Compute the table, exact where it has an entry. O(d P S events) for S states."""
        problem, sizes = self.problem, some_sizes(self.problem)
        chain = PhaseChain(problem, jobs_max_of(problem))
        count = _grid(problem, chain, sizes.size)
        shape = (problem.intervals, sizes.size, *chain.axes, count)
        jobs = np.zeros((problem.intervals, count), dtype=np.int64)
        stay, once = np.ones(shape, dtype=np.float32), np.ones(shape, dtype=np.float32)
        for interval, kept, first in risk_steps(problem, chain, sizes, self.begin):
            jobs[interval] = places = _places(kept[-1].reshape(*chain.axes, -1), count)
            stay[interval] = 1.0 - kept.reshape(sizes.size, *chain.axes, -1)[..., places]
            once[interval] = 1.0 - first.reshape(sizes.size, *chain.axes, -1)[..., places]
        for array in (jobs, stay, once):
            array.setflags(write=False)
        return RiskTable(sizes, jobs, stay, once)


def risk_steps(
    problem: DeadlineProblem, chain: PhaseChain, sizes: Ints, begin: int = 0
) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield, for s = d - 1, .., begin: s, and the probability that no job is left at the deadline by size and state,
    float64[P, S] each: with the size never changed, and with it in interval s alone and all servers from then on."""
    done = (chain.jobs == 0.0).astype(np.float64)
    kept, most = np.tile(done, (sizes.size, 1)), sizes[-1:]
    best, later = done[None], np.tile(done, (sizes.size, 1))
    for interval in range(problem.intervals - 1, begin - 1, -1):
        both = _sure(chain.backward(interval, np.concatenate((kept, later)), np.tile(sizes, 2)))
        kept, first = both[: sizes.size], both[sizes.size :]
        yield interval, kept, first
        if problem.deploy > 0.0:
            served = chain.backward(interval, best, most, problem.deploy, 1.0)
            later = chain.backward(interval, np.tile(served, (sizes.size, 1)), sizes, 0.0, problem.deploy)
            best = later[-1:]
        else:
            best = chain.backward(interval, best, most)
            later = np.tile(best, (sizes.size, 1))


def some_sizes(problem: DeadlineProblem) -> Ints:
    """Return at most `SIZES_MAX` of the problem's sizes, closer together for small sizes."""
    sizes = all_sizes(problem)
    if sizes.size <= SIZES_MAX:
        return sizes
    return np.unique(np.geomspace(sizes[0], sizes[-1], SIZES_MAX).round().astype(np.int64))


def jobs_max_of(problem: DeadlineProblem) -> int:
    """Return the number of jobs beyond which a deadline is practically missed: a quarter more than all servers finish
    on average, or far more than are expected."""
    busiest = problem.slots * problem.servers_max * problem.intervals / problem.service
    coming = float(problem.arrivals[:, 0].sum())
    return max(LEAST_JOBS, math.ceil(min(SLACK * busiest, MANY * coming + 150.0)))


def can_be_built(problem: DeadlineProblem) -> bool:
    """Return whether the table of a problem with phases can be computed within the bounds of memory and time."""
    if problem.phases is None:
        return False
    states = phase_states(problem, jobs_max_of(problem))
    work = 2.0 * states * some_sizes(problem).size * problem.intervals * events_of(problem)
    return states <= STATES_MAX and work <= WORK_MAX


def events_of(problem: DeadlineProblem) -> float:
    """About how many terms the series of an interval has with all servers; the problem has phases."""
    assert problem.phases is not None
    events = problem.slots * problem.servers_max * max(problem.phases.rates) + float(problem.arrivals[:, 0].max())
    return 30.0 + events + 8.0 * math.sqrt(events)


def _sure(kept: Floats) -> Floats:
    kept = np.clip(kept, 0.0, 1.0)
    kept[kept > 1.0 - SURE] = 1.0
    kept[kept < SURE] = 0.0
    return kept


def _grid(problem: DeadlineProblem, chain: PhaseChain, sizes: int) -> int:
    each = problem.intervals * sizes * (chain.states // (chain.jobs_max + 1))
    return min(chain.jobs_max + 1, max(LEAST_JOBS, ELEMENTS_MAX // each))


def _places(kept: Floats, count: int) -> Ints:
    """Numbers of jobs up to where even all servers miss the deadline, as many as `count`, ascending."""
    best = kept.reshape(-1, kept.shape[-1]).max(axis=0)
    hopeless = np.flatnonzero(best < CERTAIN)
    last = int(hopeless[0]) if hopeless.size else best.size - 1
    some = np.arange(last + 1)
    if some.size > count:
        some = np.unique(np.linspace(0, last, count).round().astype(np.int64))
    return np.pad(some, (0, count - some.size), mode="edge")
