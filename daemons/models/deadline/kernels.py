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

import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial.legendre import leg2poly
from numpy.typing import NDArray
from scipy import fft  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints

Complexes = NDArray[np.complex128]

NEGLECTED = 1e-16
"""Probability that is left out at each place where a series or a range of jobs is cut."""
PIECE_EVENTS = 250.0  # events of the uniformised chain in one piece: e**-250 is far from underflow
PIECE_EXCESS = 3.0  # of the rate's polynomial with absolute coefficients over the rate: exp(3) of digits lost at most
BLOCK_ELEMENTS = 8_192  # of a block of rows: its last coefficients stay in the cache
KEPT_FACTORS = 1 << 23
_CHERNOFF = np.concatenate([1.0 + np.geomspace(1e-4, 1.0, 160), np.geomspace(2.0, 1e12, 160)[1:]])
_LOG_CHERNOFF = np.log(_CHERNOFF)


def count_bound(mean: float, neglected: float = NEGLECTED) -> int:
    """A count that a Poisson variable of this mean exceeds with a probability of at most `neglected` (Chernoff)."""
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


class Chain:
    """The jobs 0..jobs_max in the system, interval by interval.

    Values above jobs_max are taken to continue in a straight line; probability that moves above it is kept at jobs_max.
    """

    def __init__(self, problem: DeadlineProblem, jobs_max: int) -> None:
        self.problem = problem
        self.jobs_max = jobs_max
        self._factors: dict[tuple[bytes, int, float], Complexes] = {}
        self._powers: dict[int, Floats] = {}

    def error_bound(self, interval: int, servers: int, begin: float = 0.0, end: float = 1.0) -> float:
        """Largest error of `backward`, as a share of the largest absolute value, and of `forward`, of the mass, by what
        is cut and by rounding (jobs far below jobs_max; the Fourier part adds rounding of the same order)."""
        pieces = self._pieces(interval, servers, begin, end)
        eps = float(np.finfo(np.float64).eps)
        series = sum(NEGLECTED + math.exp(_terms(piece.rate, piece.events)[0]) * piece.terms * eps for piece in pieces)
        return 3.0 * NEGLECTED + series

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
        """Where the probability `mass` at the moment `begin` of the interval is at its moment `end`.

        mass: float64[R, jobs_max + 1]; servers: int[R], one number for each row. Returns the same shape.
        """
        up = count_bound(self.arrivals(interval, begin, end))
        wide = np.zeros((mass.shape[0], self.jobs_max + up + 1))
        for rows, reach in self._blocks(servers, begin, end, up):
            kept = min(reach, self.jobs_max) + 1
            inner = np.zeros((rows.size, kept + up))
            inner[:, :kept] = mass[rows, :kept]
            if inner.any():
                wide[rows, : kept + up] += self._series(interval, inner, servers[rows], begin, end, back=False)
            far = mass[rows].copy()
            far[:, :kept] = 0.0
            if far.any():
                wide[rows] += self._far_forward(interval, far, servers[rows], begin, end, wide.shape[1])
        result = wide[:, : self.jobs_max + 1]
        result[:, -1] += wide[:, self.jobs_max + 1 :].sum(axis=1)
        return result

    def arrivals(self, interval: int, begin: float = 0.0, end: float = 1.0) -> float:
        """Expected number of arrivals from the moment `begin` to the moment `end` of the interval."""
        if begin == 0.0 and end == 1.0:
            return float(self.problem.arrivals[interval, 0])
        power = self._power(interval).integ()
        return max(0.0, float(power(2.0 * end - 1.0) - power(2.0 * begin - 1.0)) / 2.0)

    def _power(self, interval: int) -> Polynomial:
        if interval not in self._powers:
            self._powers[interval] = np.asarray(leg2poly(self.problem.arrivals[interval]), dtype=np.float64)
        return Polynomial(self._powers[interval])

    def _events(self, servers: int, begin: float, end: float) -> float:
        return self.problem.slots * servers * (end - begin) / self.problem.service

    def _pieces(self, interval: int, servers: int, begin: float, end: float) -> list[Piece]:
        """The span in pieces, in the order of time."""
        power = self._power(interval)
        events = self._events(servers, begin, end)
        count = max(1, math.ceil((events + self.arrivals(interval, begin, end)) / PIECE_EVENTS))
        while True:
            step = (end - begin) / count
            pieces = [self._piece(power, begin + step * i, step, events / count) for i in range(count)]
            excesses = [_terms(piece.rate, piece.events)[0] for piece in pieces]
            if max(excesses) <= PIECE_EXCESS:
                return pieces
            count *= 2

    def _piece(self, power: Polynomial, begin: float, step: float, events: float) -> Piece:
        rate = step * _inserted(power, 2.0 * begin - 1.0, 2.0 * step)
        rest = np.cumsum(np.abs(rate[::-1]))[::-1]
        rate = rate[: max(1, int((rest > NEGLECTED).sum()))]
        return Piece(rate, step, events, _terms(rate, events)[1])

    def _blocks(self, servers: Ints, begin: float, end: float, up: int) -> Iterator[tuple[Ints, int]]:
        """Rows of similar sizes, and how many jobs from which on their servers stay busy all the time."""
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
        pieces = self._pieces(interval, int(servers.max()), begin, end)
        jobs = np.arange(start.shape[1])
        busy = np.minimum(jobs, self.problem.slots * servers[:, None]) / self.problem.service
        for piece in reversed(pieces) if back else pieces:
            rate = _inserted(Polynomial(piece.rate), 1.0, -1.0) if back else piece.rate
            leave = busy * piece.share
            start = _sum_of_series(start, rate, leave, piece.events - leave, piece, back)
        return start

    def _far_factor(self, servers: Ints, length: int, share: float) -> Complexes:
        """Transform of the departures: kept, since it is the same in every interval."""
        key = (servers.tobytes(), length, share)
        if key not in self._factors:
            turn = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
            rate = self.problem.slots * share / self.problem.service
            if sum(factor.size for factor in self._factors.values()) > KEPT_FACTORS:
                self._factors.clear()
            self._factors[key] = np.exp(rate * servers[:, None] * (turn - 1.0))
        return self._factors[key]

    def _far(self, interval: int, rows: Floats, servers: Ints, begin: float, end: float, back: bool) -> Floats:
        down = count_bound(self._events(int(servers.max()), begin, end))
        up = count_bound(self.arrivals(interval, begin, end))
        length = fft.next_fast_len(rows.shape[1] + up + down, real=True)
        length += length % 2
        turn = np.exp(2j * np.pi * np.arange(length // 2 + 1) / length)
        come = np.exp(self.arrivals(interval, begin, end) * (turn - 1.0))
        factor = self._far_factor(servers, length, end - begin) * come
        moved = fft.rfft(rows, length, axis=1) * (factor if back else factor.conj())
        return np.asarray(fft.irfft(moved, length, axis=1), dtype=np.float64)

    def _far_backward(self, interval: int, wide: Floats, servers: Ints, begin: float, end: float) -> Floats:
        result = np.empty((wide.shape[0], self.jobs_max + 1))
        step = max(1, (1 << 20) // wide.shape[1])
        if self._reach(int(servers.min()), begin, end) >= self.jobs_max:
            return result
        for first in range(0, wide.shape[0], step):
            part = slice(first, first + step)
            far = self._far(interval, wide[part], servers[part], begin, end, back=True)
            result[part] = far[:, : self.jobs_max + 1]
        return result

    def _far_forward(self, interval: int, far: Floats, servers: Ints, begin: float, end: float, width: int) -> Floats:
        moved = self._far(interval, far, servers, begin, end, back=False)[:, :width]
        # rounding of the transform, not probability
        moved[moved < 1e-3 * NEGLECTED * far.sum(axis=1, keepdims=True)] = 0.0
        return moved


def _inserted(power: Polynomial, offset: float, slope: float) -> Floats:
    """Coefficients of the polynomial at offset + slope r."""
    inserted = power(Polynomial([offset, slope]))
    return np.atleast_1d(np.asarray(getattr(inserted, "coef", inserted), dtype=np.float64))


def _sum_of_series(start: Floats, rate: Floats, leave: Floats, stay: Floats, piece: Piece, back: bool) -> Floats:
    """The coefficients w of the uniformised chain's power series, (k + 1) w[k+1] = M w[k] + U (sum_i rate[i] w[k-i])
    with the departures M and the arrivals U, summed at the end of the piece."""
    order = rate.size
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
        coefficients[(k - lags) % (order + 1)] = rate
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
