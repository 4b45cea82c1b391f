"""One interval of the chain of jobs whose service has phases, exactly: by uniformisation, as in `kernels`.

A state is the number of jobs and, of those that were begun, how many are in the second, third, .. phase. Jobs in later
phases are served first; one that is set aside in its first phase is as one that was not begun. Where there are so many
jobs that the servers stay busy for sure, phases do not depend on their number: there the kernel is a convolution over
the number of jobs, in Fourier space one small matrix of phases for each frequency.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft  # type: ignore[import-untyped]  # scipy has no types of its own
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from daemons.models.deadline.kernels import Piece, Uniformised, count_bound
from daemons.models.deadline.phases import Phases
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

STATES_MAX = 60_000
NEGLECTED_ARRIVALS = 1e-12
FAR_ELEMENTS = 1 << 19  # of the matrices of one size: more take longer than the series
KEPT_ELEMENTS = 1 << 23  # of all of them
NEAR_ONLY = 1.5  # times as many jobs as are near: the transform is worth its while from here on
TAYLOR_TERMS = 15  # of exp(x) for x <= 0.5: the rest is below 1e-16

Complexes = NDArray[np.complex128]


def phase_states(problem: DeadlineProblem, jobs_max: int) -> int:
    """Return the number of states that the chain of a problem with up to `jobs_max` jobs has."""
    phases = problem.phases
    return (jobs_max + 1) * (1 if phases is None else (problem.slots * problem.servers_max + 1) ** (phases.count - 1))


class PhaseChain(Uniformised):
    """States in rows: the last axis is the number of jobs 0..jobs_max, those before it the numbers of jobs in the
    second, third, .. phase, 0 to slots x servers_max each; `jobs`: the number of jobs of each state, float64[S].

    A step takes O(J R (n events + N (J + log N))) for R rows, J numbers of begun jobs, N jobs, and n jobs with which
    servers may become idle; O(S R events) for S states where there are many begun jobs.
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
        self._steps: dict[tuple[int, int, float, float], Any] = {}
        self._busy: dict[tuple[int, int, float], Complexes] = {}

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
                found = self._moved(interval, found, size, begin, end, up)
            result[mine] = found[..., : self.jobs_max + 1]
        return result.reshape(np.shape(values))

    def _moved(self, interval: int, wide: Floats, servers: int, begin: float, end: float, up: int) -> Floats:
        """Do the work of `backward` for one number of servers; rows are as wide as `wide`, and their last `up` columns
        have no meaning."""
        reach = self.problem.slots * servers + count_bound(self._events(servers, begin, end))
        length = fft.next_fast_len(wide.shape[-1], real=True)
        length += length % 2
        phases = int(np.prod(self.axes, dtype=np.int64))
        if reach * NEAR_ONLY > self.jobs_max or (length // 2 + 1) * phases**2 > FAR_ELEMENTS:
            return self.by_series(interval, wide, servers, begin, end)
        far = self._far(interval, wide, servers, begin, end, length)
        far[..., :reach] = self.by_series(interval, wide[..., : reach + up], servers, begin, end)[..., :reach]
        return far

    def by_series(self, interval: int, found: Floats, servers: int, begin: float, end: float) -> Floats:
        """Expected values at `begin` of the values `found` at `end`, float64[R, J.., M] for 0..M - 1 jobs, for one
        number of servers, by the power series of the uniformised chain; with more jobs values are as with M - 1."""
        if np.ptp(found) <= 0.0:
            return found
        rows, jobs = found.shape[0], found.shape[-1]
        states = np.ascontiguousarray(found.reshape(rows, -1).T)
        for piece in self._pieces(interval, servers, begin, end, True):
            states = _series(states, self._stepping(servers, jobs, piece), piece, jobs)
        return states.T.reshape(found.shape)

    def _stepping(self, servers: int, jobs: int, piece: Piece) -> Any:
        """Return the uniformised chain without arrivals, as a sparse matrix of S rows. It is cached, since most
        intervals use it."""
        key = (servers, jobs, piece.share, piece.events)
        if key not in self._steps:
            if sum(each.nnz for each in self._steps.values()) > KEPT_ELEMENTS:
                self._steps.clear()
            leaves, goes = self._departures(servers, jobs)
            self._steps[key] = _sparse(self.axes, jobs, leaves, goes, piece)
        return self._steps[key]

    def _far(self, interval: int, wide: Floats, servers: int, begin: float, end: float, length: int) -> Floats:
        """Return the rows moved on a circle by arrivals and departures of servers that are all busy. Values that move
        below 0 jobs come out at the other end, and do not reach the distant numbers of jobs."""
        turn = np.exp(2j * np.pi * np.arange(length // 2 + 1) / length)
        key = (servers, length, end - begin)
        if key not in self._busy:
            if sum(each.size for each in self._busy.values()) > KEPT_ELEMENTS:
                self._busy.clear()
            self._busy[key] = _exponentials(*self._always_busy(servers), turn.conj(), end - begin)
        come = np.exp(self.arrivals(interval, begin, end) * (turn - 1.0))
        rows = fft.rfft(wide.reshape(wide.shape[0], -1, wide.shape[-1]), length, axis=-1) * come
        moved = np.matmul(self._busy[key], rows.transpose(2, 1, 0)).transpose(2, 1, 0)
        found = fft.irfft(moved, length, axis=-1)[..., : wide.shape[-1]]
        return np.array(found, dtype=np.float64).reshape(wide.shape)

    def _always_busy(self, servers: int) -> tuple[Floats, Floats]:
        """Return float64[J, J] each, per interval: the generator of the numbers of begun jobs by phase, and its part
        for departing jobs, when no server is ever idle."""
        enough = sum(self.axes) + self.problem.slots * servers
        leaves, goes = (
            [each[..., -1].reshape(-1) for each in rates] for rates in self._departures(servers, enough + 1)
        )
        states = int(np.prod(self.axes, dtype=np.int64))
        steps = _strides(self.axes, 1)
        leaving, staying = np.zeros((states, states)), np.zeros((states, states))
        for phase, step in enumerate(steps):
            rows = np.flatnonzero(leaves[phase])
            leaving[rows, rows - step] += leaves[phase][rows]
            rows = np.flatnonzero(goes[phase])
            if rows.size:
                staying[rows, rows + steps[phase + 1] - step] += goes[phase][rows]
        generator = staying - np.diag(sum(leaves) + sum(goes))
        return generator, leaving

    def _events(self, servers: int, begin: float, end: float) -> float:
        return self.problem.slots * servers * (end - begin) * max(self.phases.rates)

    def _departures(self, servers: int, jobs: int) -> tuple[list[Floats], list[Floats]]:
        """Return, for each phase, the rate at which jobs leave from it, and the rate at which they go on, by state; per
        interval."""
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


def _exponentials(generator: Floats, leaving: Floats, turn: Complexes, span: float) -> Complexes:
    """Return complex128[F, J, J]: exp((generator + turn leaving) span) for each turn on the unit circle, by Taylor's
    series of a part and squaring. Entries of the sum and a multiple of 1 are at most those of a stochastic matrix, so
    rounding errors grow no faster than the number of parts."""
    rate = float(-np.diag(generator).min()) * span
    doublings = max(0, math.ceil(math.log2(max(rate, 1e-9))) + 1)
    part = span / 2**doublings
    whole = np.eye(len(generator))
    step = (generator * part + rate / 2**doublings * whole)[None] + turn[:, None, None] * (leaving * part)
    term = np.broadcast_to(whole, step.shape).astype(np.complex128)
    total = term.copy()
    for order in range(1, TAYLOR_TERMS + 1):
        term = np.matmul(term, step) / order
        total += term
    total *= math.exp(-rate / 2**doublings)
    for _ in range(doublings):
        total = np.matmul(total, total)
    return total


def _sparse(axes: tuple[int, ...], jobs: int, leaves: list[Floats], goes: list[Floats], piece: Piece) -> Any:
    """Return the matrix that moves values one event back: a job fewer, and one fewer in its phase unless that is the
    first; one more in the next phase, and one fewer in this one unless it is the first; or no change."""
    steps = _strides(axes, jobs)
    stay: Floats = piece.events - piece.share * np.sum([*leaves, *goes], axis=0)
    bands = {0: stay.reshape(-1)}
    for phase, step in enumerate(steps):
        bands[-1 - step] = piece.share * leaves[phase].reshape(-1)
        if phase + 1 < len(steps):
            bands[steps[phase + 1] - step] = piece.share * goes[phase].reshape(-1)
    places = np.arange(stay.size)
    kept = [(places[band != 0.0], offset, band[band != 0.0]) for offset, band in bands.items()]
    entries = np.concatenate([band for _, _, band in kept])
    rows = np.concatenate([row for row, _, _ in kept])
    columns = np.concatenate([row + offset for row, offset, _ in kept])
    return csr_array((entries, (rows, columns)), shape=(stay.size, stay.size))


def _strides(axes: tuple[int, ...], jobs: int) -> list[int]:
    """Return, for each phase, the distance between states that differ by one job in it; no entry for the first."""
    return [0, *(jobs * int(np.prod(axes[place + 1 :], dtype=np.int64)) for place in range(len(axes)))]


def _series(start: Floats, step: Any, piece: Piece, jobs: int) -> Floats:
    """Return the power series of the uniformised chain at the end of the piece; start: float64[S, R]."""
    order = piece.rate.size
    ring = [start * piece.weight]
    total = ring[0].copy()
    for k in range(piece.terms):
        new = step @ ring[-1]
        arrived = piece.rate[0] * ring[-1]
        for lag in range(1, min(order, len(ring))):
            arrived += piece.rate[lag] * ring[-1 - lag]
        to, source = new.reshape(-1, jobs, new.shape[-1]), arrived.reshape(-1, jobs, new.shape[-1])
        to[:, :-1] += source[:, 1:]
        to[:, -1] += source[:, -1]
        new *= 1.0 / (k + 1)
        total += new
        ring = [*ring[max(0, len(ring) - order + 1) :], new] if order > 1 else [new]
    return total
