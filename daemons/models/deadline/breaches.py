"""The probability of breach by number of servers as a table, ready for any interval and number of jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.models.deadline.capacity import all_sizes, finish_probabilities
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

SIZES_MAX = 64
JOBS_MAX = 2048
ELEMENTS_MAX = 4_000_000
CERTAIN = 1e-6  # with a smaller probability of keeping the deadline it is as good as missed


@dataclass(frozen=True, slots=True)
class BreachTable:
    """Pr[a job is left at the deadline]. servers: int64[P], ascending. jobs: int64[d, G], ascending; breach:
    float32[d, P, G], from interval s on with servers[i] servers and jobs[s, j] jobs."""

    servers: Ints
    jobs: Ints
    breach: NDArray[np.float32]

    def at(self, interval: int, jobs: int, servers: Sequence[int]) -> Floats:
        """Return float64[n]: the value for each number of servers (outside the table: the nearest inside), by linear
        interpolation; it never rises with the number of servers."""
        grid = self.jobs[interval]
        right = min(int(np.searchsorted(grid, jobs)), len(grid) - 1)
        left = max(right - (grid[right] > jobs), 0)
        span = max(int(grid[right] - grid[left]), 1)
        part = min(max((jobs - int(grid[left])) / span, 0.0), 1.0)
        column = self.breach[interval, :, left] * (1.0 - part) + self.breach[interval, :, right] * part
        return np.interp(np.asarray(servers, dtype=np.float64), self.servers, column)


@dataclass(frozen=True, slots=True)
class BreachSpec:
    """The key of a table: the problem it belongs to, regardless of server prices."""

    problem: DeadlineProblem

    def digest(self) -> str:
        """Return an identifier of everything that the table depends on: 64 hexadecimal digits."""
        return hashlib.sha256(f"breach {self.problem.digest()}".encode()).hexdigest()

    def build(self) -> BreachTable:
        """Compute the table, exactly where it has an entry: for all sizes and numbers of jobs where there are few,
        else for some at even distances."""
        sizes = _some(all_sizes(self.problem), SIZES_MAX)
        intervals = self.problem.intervals
        count = min(JOBS_MAX, max(32, ELEMENTS_MAX // (intervals * sizes.size)))
        jobs = np.zeros((intervals, count), dtype=np.int64)
        breach = np.zeros((intervals, sizes.size, count), dtype=np.float32)
        for interval, finish in finish_probabilities(self.problem, sizes):
            if interval < intervals:
                jobs[interval], breach[interval] = _row(finish, count)
        for array in (jobs, breach):
            array.setflags(write=False)
        return BreachTable(sizes, jobs, breach)


def without_prices(problem: DeadlineProblem, least: int | None = None) -> DeadlineProblem:
    """Return the same problem with servers that cost nothing and deploy at once, from `least` servers on. The risk of a
    size that never changes does not depend on cost and deployment."""
    free = np.zeros(problem.intervals)
    servers_min = problem.servers_min if least is None else least
    most, slots = problem.servers_max, problem.slots
    confidence = problem.confidence
    return DeadlineProblem(
        problem.arrivals,
        problem.service,
        servers_min,
        servers_max=most,
        confidence=confidence,
        price=free,
        removal_price=free,
        slots=slots,
        phases=problem.phases,
    )


def _some(values: Ints, most: int) -> Ints:
    """Return at most `most` of the values, the first and the last among them."""
    if values.size <= most:
        return values
    return np.unique(values[np.linspace(0, values.size - 1, most).round().astype(np.int64)])


def _row(finish: Floats, count: int) -> tuple[Ints, NDArray[np.float32]]:
    """Numbers of jobs up to where even the most servers miss the deadline, and the probability that they do."""
    hopeless = np.flatnonzero(finish.max(axis=0) < CERTAIN)
    last = int(hopeless[0]) if hopeless.size else finish.shape[1] - 1
    some = _some(np.arange(last + 1), count)
    jobs = np.pad(some, (0, count - some.size), mode="edge")
    best = np.maximum.accumulate(finish[:, jobs], axis=0)
    return jobs, (1.0 - best).astype(np.float32)
