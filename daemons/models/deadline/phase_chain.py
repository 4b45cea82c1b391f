"""One interval of the chain of jobs whose service has phases, exactly: by uniformisation, as in `kernels`.

A state is the number of jobs and, of those that were begun, how many are in the second, third, .. phase. Jobs in later
phases are served first; one that is set aside in its first phase is as one that was not begun.
"""

from __future__ import annotations

import numpy as np

from daemons.models.deadline.kernels import Piece, Uniformised, count_bound
from daemons.models.deadline.phases import Phases
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

STATES_MAX = 60_000
NEGLECTED_ARRIVALS = 1e-12


def phase_states(problem: DeadlineProblem, jobs_max: int) -> int:
    """How many states the chain of a problem with up to `jobs_max` jobs has."""
    phases = problem.phases
    return (jobs_max + 1) * (1 if phases is None else (problem.slots * problem.servers_max + 1) ** (phases.count - 1))


class PhaseChain(Uniformised):
    """States in rows: the last axis is the number of jobs 0..jobs_max, those before it the numbers of jobs in the
    second, third, .. phase, 0 to slots x servers_max each; `jobs`: the number of jobs of each state, float64[S].

    A step takes O(S R events) for R rows of S states.
    """

    def __init__(self, problem: DeadlineProblem, jobs_max: int) -> None:
        super().__init__(problem)
        self.jobs_max = jobs_max
        assert problem.phases is not None
        self.phases: Phases = problem.phases
        most = problem.slots * problem.servers_max
        self.axes = (most + 1,) * (self.phases.count - 1)
        self.states = int(np.prod(self.axes, dtype=np.int64)) * (jobs_max + 1)
        self._rates: dict[tuple[int, int], tuple[list[Floats], list[Floats]]] = {}

    @property
    def jobs(self) -> Floats:
        """float64[S]: the number of jobs of each state."""
        return np.tile(np.arange(self.jobs_max + 1.0), self.states // (self.jobs_max + 1))

    def backward(self, interval: int, values: Floats, servers: Ints, begin: float = 0.0, end: float = 1.0) -> Floats:
        """Expected values at the moment `begin` of the interval of `values` at its moment `end`.

        values: float64[R, S]; servers: int[R], one number for each row. Returns the same shape.
        """
        up = count_bound(self.arrivals(interval, begin, end), NEGLECTED_ARRIVALS)
        rows = np.asarray(values, dtype=np.float64).reshape(-1, *self.axes, self.jobs_max + 1)
        slope = rows[..., -1:] - rows[..., -2:-1]
        wide = np.concatenate([rows, rows[..., -1:] + slope * np.arange(1, up + 1)], axis=-1)
        result = np.empty_like(rows)
        for size in np.unique(servers).tolist():
            mine = np.flatnonzero(servers == size)
            found = wide[mine]
            if np.ptp(found) > 0.0:
                leaves, goes = self._departures(size, wide.shape[-1])
                for piece in self._pieces(interval, size, begin, end, True):
                    found = _series(found, leaves, goes, piece)
            result[mine] = found[..., : self.jobs_max + 1]
        return result.reshape(np.shape(values))

    def _events(self, servers: int, begin: float, end: float) -> float:
        return self.problem.slots * servers * (end - begin) * max(self.phases.rates)

    def _departures(self, servers: int, jobs: int) -> tuple[list[Floats], list[Floats]]:
        """For each phase the rate at which jobs leave from it, and that at which they go on, by state; per interval."""
        key = (servers, jobs)
        if key not in self._rates:
            grid = np.indices((*self.axes, jobs), dtype=np.float64)
            begun = grid[:-1].sum(axis=0) if self.axes else np.zeros(jobs)
            left = np.full(grid.shape[1:], float(self.problem.slots * servers))
            left[begun > grid[-1]] = 0.0  # no such state
            leaves: list[Floats] = []
            goes: list[Floats] = []
            for phase in reversed(range(self.phases.count)):
                there = grid[phase - 1] if phase else grid[-1] - begun
                served = np.clip(np.minimum(there, left), 0.0, None)
                left = left - served
                go = self.phases.goes[phase] if phase < self.phases.count - 1 else 0.0
                ends = served * self.phases.rates[phase]
                leaves.insert(0, ends * (1.0 - go))
                goes.insert(0, ends * go)
            self._rates[key] = (leaves, goes)
        return self._rates[key]


def _series(start: Floats, leaves: list[Floats], goes: list[Floats], piece: Piece) -> Floats:
    """The power series of the uniformised chain at the end of the piece, as `kernels` has it for one phase."""
    order = piece.rate.size
    leaving = [each * piece.share for each in leaves]
    going = [each * piece.share for each in goes]
    stay = piece.events - sum(leaving) - sum(going)
    ring = [start * piece.weight]
    total = ring[0].copy()
    moved = np.empty_like(total)
    for k in range(piece.terms):
        now = ring[-1]
        new = stay * now
        for phase, leave in enumerate(leaving):
            _add_left(new, now, leave, phase, moved)
        for phase, go in enumerate(going[:-1]):
            _add_gone(new, now, go, phase)
        arrived = piece.rate[0] * now
        for lag in range(1, min(order, len(ring))):
            arrived = arrived + piece.rate[lag] * ring[-1 - lag]
        new[..., :-1] += arrived[..., 1:]
        new[..., -1] += arrived[..., -1]
        new *= 1.0 / (k + 1)
        total += new
        ring = [*ring[max(0, len(ring) - order + 1) :], new] if order > 1 else [new]
    return total


def _add_left(new: Floats, now: Floats, leave: Floats, phase: int, moved: Floats) -> None:
    """A job fewer, and where it was not in the first phase, one fewer in that."""
    if phase == 0:
        np.multiply(leave[..., 1:], now[..., :-1], out=moved[..., 1:])
        new[..., 1:] += moved[..., 1:]
        return
    ahead = (slice(None),) * phase
    rest = (slice(None),) * (now.ndim - phase - 2)
    to = (*ahead, slice(1, None), *rest, slice(1, None))
    source = (*ahead, slice(0, -1), *rest, slice(0, -1))
    new[to] += leave[to[1:]] * now[source]


def _add_gone(new: Floats, now: Floats, go: Floats, phase: int) -> None:
    """One more in the next phase, and one fewer in this one where it is not the first."""
    if phase == 0:
        new[:, :-1] += go[:-1] * now[:, 1:]
        return
    ahead = (slice(None),) * phase
    to = (*ahead, slice(1, None), slice(0, -1))
    source = (*ahead, slice(0, -1), slice(1, None))
    new[to] += go[to[1:]] * now[source]
