"""One interval of the chain of jobs, exactly: what arrives and leaves within it, by uniformisation.

Jobs arrive at a polynomial rate and leave at min(jobs, slots x servers) / service. The uniformised chain is a power
series in time whose coefficients follow a recursion, also when the rate of arrivals changes; no matrix is made. Where
the servers stay busy for sure, arrivals and departures are two independent Poisson counts: there the kernel is a
convolution, for which the Fourier transform is known in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import leg2poly
from numpy.typing import NDArray
from scipy import fft  # type: ignore[import-untyped]  # scipy has no types of its own
from scipy.special import comb  # type: ignore[import-untyped]

from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

Complexes = NDArray[np.complex128]

NEGLECTED = 1e-16
"""Probability that is left out at each place where a series or a range of jobs is cut."""
PIECE_EVENTS = 250.0  # events of the uniformised chain in one piece: e**-250 is far from underflow
PIECE_EXCESS = 3.0  # of the rate's polynomial with absolute coefficients over the rate: exp(3) of digits lost at most
BLOCK_ELEMENTS = 8_192  # of a block of rows: its last coefficients stay in the cache
KEPT_FACTORS = 1 << 22
FAR_ELEMENTS = 1 << 18
_CHERNOFF = np.concatenate([1.0 + np.geomspace(1e-4, 1.0, 160), np.geomspace(2.0, 1e12, 160)[1:]])
_LOG_CHERNOFF = np.log(_CHERNOFF)


@lru_cache(maxsize=1 << 16)
def count_bound(mean: float, neglected: float = NEGLECTED) -> int:
    """Return a count that a Poisson variable of this mean exceeds with a probability of at most `neglected`
    (Chernoff)."""
    if mean <= 0.0:
        return 0
    return math.ceil(float(np.min((mean * (_CHERNOFF - 1.0) - math.log(neglected)) / _LOG_CHERNOFF)))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an interval. rate: coefficients of the arrival rate in r = 0..1 over this part, ascending; share: of
    the interval; events: departures of the uniformised chain; terms: of the series, the rest can be neglected."""

    rate: Floats
    share: float
    events: float
    terms: int

    @property
    def weight(self) -> float:
        """What the sum of the series is multiplied with."""
        return math.exp(-self.events - float((self.rate / np.arange(1, self.rate.size + 1)).sum()))


def _terms(rate: Floats, events: float) -> tuple[float, int]:
    """Excess of the absolute polynomial over the rate, and terms so that the rest is below `NEGLECTED` (Chernoff)."""
    sizes = np.arange(1, rate.size + 1)
    parts = np.abs(rate) / sizes
    excess = float((parts - rate / sizes).sum())
    powers = np.minimum(_CHERNOFF[:, None] ** np.minimum(sizes, 24), 1e300) - 1.0
    exponent = powers @ parts + events * (_CHERNOFF - 1.0) + excess - math.log(NEGLECTED)
    return excess, math.ceil(float(np.min(exponent / _LOG_CHERNOFF)))


class Uniformised:
    """What the chains of one problem have in common: its intervals in pieces."""

    def __init__(self, problem: DeadlineProblem) -> None:
        self.problem = problem
        self._spans: dict[tuple[int, int, float, float, bool], list[Piece]] = {}
        order = problem.arrivals.shape[1]
        powers = np.array([np.pad(leg2poly(row[: i + 1]), (0, order - 1 - i)) for i, row in enumerate(np.eye(order))])
        self._powers = problem.arrivals @ powers

    def arrivals(self, interval: int, begin: float = 0.0, end: float = 1.0) -> float:
        """Expected number of arrivals from the moment `begin` to the moment `end` of the interval."""
        if begin == 0.0 and end == 1.0:
            return float(self.problem.arrivals[interval, 0])
        rate = self._rate(interval, begin, end - begin)
        return max(0.0, float((rate / np.arange(1, rate.size + 1)).sum()))

    def _rate(self, interval: int, begin: float, step: float) -> Floats:
        return abs(step) * _inserted(self._powers[interval], 2.0 * begin - 1.0, 2.0 * step)

    def _events(self, servers: int, begin: float, end: float) -> float:
        return self.problem.slots * servers * (end - begin) / self.problem.service

    def _pieces(self, interval: int, servers: int, begin: float, end: float, back: bool) -> list[Piece]:
        """Return the span in pieces, in the order of time; `back`: in reverse, from the end to the beginning."""
        key = (interval, servers, begin, end, back)
        if key not in self._spans:
            events = self._events(servers, begin, end)
            count = max(1, math.ceil((events + self.arrivals(interval, begin, end)) / PIECE_EVENTS))
            first, span = (end, begin - end) if back else (begin, end - begin)
            pieces = self._split(interval, first, span, events, count)
            while max(_terms(piece.rate, piece.events)[0] for piece in pieces) > PIECE_EXCESS:
                count *= 2
                pieces = self._split(interval, first, span, events, count)
            self._spans[key] = pieces
        return self._spans[key]

    def _split(self, interval: int, first: float, span: float, events: float, count: int) -> list[Piece]:
        step = span / count
        pieces = []
        for place in range(count):
            rate = self._rate(interval, first + step * place, step)
            rest = np.cumsum(np.abs(rate[::-1]))[::-1]
            rate = rate[: max(1, int((rest > NEGLECTED).sum()))]
            pieces.append(Piece(rate, abs(step), events / count, _terms(rate, events / count)[1]))
        return pieces


class Chain(Uniformised):
    """The jobs 0..jobs_max in the system, interval by interval.

    Values above jobs_max are taken to continue in a straight line; probability that moves above it is kept at jobs_max.
    """

    def __init__(self, problem: DeadlineProblem, jobs_max: int) -> None:
        super().__init__(problem)
        self.jobs_max = jobs_max
        self._factors: dict[tuple[bytes, int, float], Complexes] = {}

    def backward(self, interval: int, values: Floats, servers: Ints, begin: float = 0.0, end: float = 1.0) -> Floats:
        """Expected values at the moment `begin` of the interval of `values` at its moment `end`.

        values: float64[R, jobs_max + 1]; servers: int[R], one number for each row. Returns the same shape.
        """
        up = count_bound(self.arrivals(interval, begin, end))
        slope = values[:, -1:] - values[:, -2:-1] if self.jobs_max else np.zeros((values.shape[0], 1))
        wide = np.concatenate([values, values[:, -1:] + slope * np.arange(1, up + 1)], axis=1)
        result = self._far_backward(interval, wide, servers, begin, end)
        for rows, reach in self._blocks(servers, begin, end, up):
            inner = wide[rows, : min(reach, self.jobs_max) + up + 1]
            if np.ptp(inner, axis=1).max() <= 0.0:
                near = inner
            else:
                near = self._series(interval, inner, servers[rows], begin, end, back=True)
            kept = min(reach, self.jobs_max) + 1
            result[rows, :kept] = near[:, :kept]
        return result

    def forward(self, interval: int, mass: Floats, servers: Ints, begin: float = 0.0, end: float = 1.0) -> Floats:
        """Move the probability `mass` from the moment `begin` of the interval to its moment `end`.

        mass: float64[R, jobs_max + 1]; servers: int[R], one number for each row. Returns the same shape.
        """
        up = count_bound(self.arrivals(interval, begin, end))
        wide = np.zeros((mass.shape[0], self.jobs_max + up + 1))
        far = np.array(mass, dtype=np.float64)
        for rows, reach in self._blocks(servers, begin, end, up):
            kept = min(reach, self.jobs_max) + 1
            near = rows[mass[rows, :kept].any(axis=1)]
            if near.size:
                inner = np.pad(mass[near, :kept], ((0, 0), (0, up)))
                wide[near, : kept + up] += self._series(interval, inner, servers[near], begin, end, back=False)
            far[rows, :kept] = 0.0
        self._far_forward(interval, far, wide, servers, begin, end)
        result = wide[:, : self.jobs_max + 1]
        result[:, -1] += wide[:, self.jobs_max + 1 :].sum(axis=1)
        return result

    def _blocks(self, servers: Ints, begin: float, end: float, up: int) -> Iterator[tuple[Ints, int]]:
        """Yield rows of similar sizes, with the number of jobs from which on their servers stay busy throughout."""
        order = np.argsort(servers, kind="stable")
        first = 0
        while first < order.size:
            last = first + 1
            least = int(servers[order[first]])
            while last < order.size:
                most = int(servers[order[last]])
                width = min(self._reach(most, begin, end), self.jobs_max) + up + 1
                if 4 * most > 5 * least + 16 or width * (last - first + 1) > BLOCK_ELEMENTS:
                    break
                last += 1
            rows = order[first:last]
            yield rows, self._reach(int(servers[rows[-1]]), begin, end)
            first = last

    def _reach(self, servers: int, begin: float, end: float) -> int:
        return self.problem.slots * servers + count_bound(self._events(servers, begin, end))

    def _series(self, interval: int, start: Floats, servers: Ints, begin: float, end: float, back: bool) -> Floats:
        jobs = np.arange(start.shape[1])
        busy = np.minimum(jobs, self.problem.slots * servers[:, None]) / self.problem.service
        for piece in self._pieces(interval, int(servers.max()), begin, end, back):
            start = _sum_of_series(start, busy * piece.share, piece, back)
        return start

    def _departing(self, servers: Ints, length: int, share: float) -> Complexes:
        """Transform of the departures of each row: kept, since it is the same in every interval."""
        key = (servers.tobytes(), length, share)
        if key not in self._factors:
            turn = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
            rate = self.problem.slots * share / self.problem.service
            if servers.size * turn.size + sum(factor.size for factor in self._factors.values()) > KEPT_FACTORS:
                self._factors.clear()
            sizes, places = np.unique(servers, return_inverse=True)
            self._factors[key] = np.exp(rate * sizes[:, None] * (turn - 1.0))[places]
        return self._factors[key]

    def _far(self, interval: int, rows: Floats, servers: Ints, begin: float, end: float, back: bool) -> Floats:
        """Return the rows moved by the net count, on a circle long enough to separate mass that moved below the first
        column."""
        down = count_bound(self._events(int(servers.max()), begin, end))
        up = count_bound(self.arrivals(interval, begin, end))
        length = fft.next_fast_len(rows.shape[1] + up + down, real=True)
        length += length % 2
        turn = np.exp(2j * np.pi * np.arange(length // 2 + 1) / length)
        come = np.exp(self.arrivals(interval, begin, end) * (turn - 1.0))
        moved = fft.rfft(rows, length, axis=1)
        departing = self._departing(servers, length, end - begin)
        if back:
            moved *= departing
            moved *= come
        else:
            moved *= departing.conj()
            moved *= come.conj()
        return np.asarray(fft.irfft(moved, length, axis=1), dtype=np.float64)

    def _far_backward(self, interval: int, wide: Floats, servers: Ints, begin: float, end: float) -> Floats:
        result = np.empty((wide.shape[0], self.jobs_max + 1))
        if self._reach(int(servers.min()), begin, end) >= self.jobs_max:
            return result
        step = max(1, FAR_ELEMENTS // wide.shape[1])
        for first in range(0, wide.shape[0], step):
            part = slice(first, first + step)
            far = self._far(interval, wide[part], servers[part], begin, end, back=True)
            result[part] = far[:, : self.jobs_max + 1]
        return result

    def _far_forward(self, interval: int, far: Floats, wide: Floats, servers: Ints, begin: float, end: float) -> None:
        """Add to `wide` where the probability `far` goes, from jobs with which the servers stay busy."""
        filled = np.flatnonzero(far.any(axis=1))
        step = max(1, FAR_ELEMENTS // wide.shape[1])
        up = wide.shape[1] - far.shape[1]
        for first in range(0, filled.size, step):
            rows = filled[first : first + step]
            columns = np.flatnonzero(far[rows].any(axis=0))
            low, high = int(columns[0]), int(columns[-1]) + 1
            moved = self._far(interval, far[rows, low:high], servers[rows], begin, end, back=False)
            # rounding of the transform, not probability
            moved[moved < 1e-3 * NEGLECTED * far[rows].sum(axis=1, keepdims=True)] = 0.0
            down = min(low, moved.shape[1] - (high - low + up))
            wide[rows, low : high + up] += moved[:, : high - low + up]
            if down:
                wide[rows, low - down : low] += moved[:, -down:]


def _inserted(power: Floats, offset: float, slope: float) -> Floats:
    """Coefficients (ascending) in r of the polynomial at offset + slope r."""
    ranks = np.arange(power.size)
    away = ranks - ranks[:, None]
    lifted = np.where(away >= 0, comb(ranks, ranks[:, None]) * offset ** np.maximum(away, 0), 0.0)
    return np.asarray((lifted @ power) * slope**ranks, dtype=np.float64)


def _sum_of_series(start: Floats, leave: Floats, piece: Piece, back: bool) -> Floats:
    """Return the coefficients w of the uniformised chain's power series, (k + 1) w[k+1] = M w[k] + U (sum_i rate[i]
    w[k-i]) with the departures M and the arrivals U, summed at the end of the piece."""
    order = piece.rate.size
    stay = piece.events - leave
    ring = np.zeros((order + 1, *start.shape))
    flat = ring.reshape(order + 1, -1)
    ring[0] = start * piece.weight
    total: Floats = ring[0].copy()
    moved = np.empty_like(total)
    coming = np.empty(total.size)
    arrived = coming.reshape(total.shape)
    coefficients = np.zeros(order + 1)
    lags = np.arange(order)
    for k in range(piece.terms):
        now, new = ring[k % (order + 1)], ring[(k + 1) % (order + 1)]
        coefficients[(k + 1) % (order + 1)] = 0.0
        coefficients[(k - lags) % (order + 1)] = piece.rate
        np.dot(coefficients, flat, out=coming)
        np.multiply(stay, now, out=new)
        if back:
            np.multiply(leave[:, 1:], now[:, :-1], out=moved[:, 1:])
            new[:, 1:] += moved[:, 1:]
            new[:, :-1] += arrived[:, 1:]
        else:
            np.multiply(leave[:, 1:], now[:, 1:], out=moved[:, 1:])
            new[:, :-1] += moved[:, 1:]
            new[:, 1:] += arrived[:, :-1]
        new[:, -1] += arrived[:, -1]
        new *= 1.0 / (k + 1)
        total += new
    return total
