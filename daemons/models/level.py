"""The hypothetical utility of jobs, exactly: one level that all of them reach with the CPU given to all of them.

A job with work left a (Mcycles, all instances), time to its goal b, relative goal r and best remaining time tb (s)
needs the average speed omega(u) = a / max(b - r x(u), tb) for the utility u, where x is the relative margin: u, but for
importance (apc.txt Eq. 7; tb bounds the speed by the job's highest). The level u solves sum omega(u) = omega_g, and the
utility of a job is min(u, its highest). The paper samples this function because it takes solving for costly; a Newton
step on 1 / sum, which is nearly straight, within a bracket needs a handful of evaluations.

Jobs without a goal (b or r infinite or NaN) take no part in the level; they share what the others cannot use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daemons.models.utility import weighted
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats

NOTHING_WANTED = 1.0  # the level when no job with a goal has work left
STEPS_MAX = 400
_STEPS_QUICK = 20  # after so many steps every other one halves the bracket
_CLOSE = 4e-13  # a step so small, against 1 + |level|, is the last
_SAME = 2e-15  # a sum so near to what is given, relative, cannot be told from it
_Number = Floats | float


@dataclass(frozen=True, slots=True)
class Level:
    """The solution for one amount of CPU. steps: evaluations of the sum that it took."""

    demand: JobDemand
    omega_g_mhz: float
    level: float
    steps: int

    def utilities(self) -> Floats:
        """Utility of every job: the level or its highest, 1 without a goal, its highest where no work is left."""
        return self.demand.utilities(self.level)

    def omegas(self) -> Floats:
        """Return the CPU of every job in MHz. The other jobs share the CPU that jobs with goals leave, the same part of
        their highest speeds to each."""
        return self.demand.shares(self.level, self.omega_g_mhz)


class JobDemand:
    """The demand of jobs for CPU as a function of the level; built once, evaluated for many levels.

    Parameters
    ----------
    a, b, r, tb : float64[n]
        Work left in Mcycles (finite, >= 0; all k instances of a job counted), goal - now in s (negative: past), goal -
        desired start in s (> 0), best remaining time in s (> 0 where a > 0). Never changed, and not copied if every job
        has a goal and work left; a caller that changes them afterwards must build a new object.
    importance : float64[n], > 0, optional

    `best` is the highest utility of all jobs with a goal and work left (1 if there is none), `full_mhz` the speed that
    they can use together. Raises `InvalidValue` for numbers outside the ranges. Not thread-safe.
    """

    def __init__(
        self,
        a: Floats,
        b: Floats,
        r: Floats,
        tb: Floats,
        importance: Floats | None = None,
    ) -> None:
        self._given = (a, b, r, tb)
        self._given_importance = importance
        wanting = np.isfinite(b + r)
        wanting &= a > 0.0
        self._rows = rows = None if wanting.all() else np.flatnonzero(wanting)
        self._a, self._b, self._r, self._tb = (a, b, r, tb) if rows is None else (a[rows], b[rows], r[rows], tb[rows])
        self._weights = importance if rows is None or importance is None else importance[rows]
        self._check()
        self._delay, self._omega, self._active = (np.empty(len(self._a)) for _ in range(3))
        self._highest = self._b - self._tb
        self._highest /= self._r
        if self._weights is not None:
            self._highest = weighted(self._highest, self._weights)
        self.best = float(self._highest.max()) if len(self._a) else NOTHING_WANTED
        self.full_mhz = float(np.divide(self._a, self._tb, out=self._omega).sum())

    def __len__(self) -> int:
        return len(self._given[0])

    def sum_and_slope(self, level: float) -> tuple[float, float]:
        """Speed that all jobs with goals need together for a level, in MHz, and its derivative by the level.

        Where a job reaches its highest utility the derivative is that from above.
        """
        total, _, slope = self._sums(level)
        return total, slope

    def solve(self, omega_g_mhz: float, start: float | None = None) -> Level:
        """Find the level at which the jobs need just `omega_g_mhz`, to about 1e-13 against 1 + |level|.

        Returns -inf for no CPU at all, `best` if there is as much as all can use, 1 if no job with a goal has work
        left. `start`: a level near by, such as the last one. Raises `InvalidValue` for NaN.
        """
        if math.isnan(omega_g_mhz):
            raise InvalidValue("omega_g_mhz", omega_g_mhz, "a number")
        if len(self._a) == 0 or omega_g_mhz >= self.full_mhz:
            return Level(self, omega_g_mhz, self.best, 0)
        work = float(self._a.sum())
        if omega_g_mhz <= 0.0 or math.isinf(work / omega_g_mhz):
            return Level(self, omega_g_mhz, -math.inf, 0)
        begin, low, high = self._bracket(work, omega_g_mhz)
        if start is not None:
            begin = start
        level, steps = self._find(omega_g_mhz, min(max(begin, low), high), low, high)
        return Level(self, omega_g_mhz, min(level, self.best), steps)

    def omegas(self, level: float) -> Floats:
        """Speed that every job needs for a level in MHz, float64[n]; 0 without a goal or work left."""
        self._speeds(level)
        return self._spread(self._omega, np.zeros(len(self)))

    def utilities(self, level: float) -> Floats:
        """Utility of every job at a level, float64[n]; see `Level.utilities`."""
        return self._spread(np.minimum(level, self._highest), self._resting())

    def shares(self, level: float, omega_g_mhz: float) -> Floats:
        """Speed of every job in MHz when there are `omega_g_mhz`, float64[n]; see `Level.omegas`."""
        omegas = self.omegas(level)
        if self._rows is None:
            return omegas
        a, b, r, tb = self._given
        free = np.flatnonzero((a > 0.0) & ~(np.isfinite(b) & np.isfinite(r)))
        most = a[free] / tb[free]
        wanted, left = float(most.sum()), omega_g_mhz - float(omegas.sum())
        if wanted > 0.0 and left > 0.0:
            omegas[free] = most * min(1.0, left / wanted)
        return omegas

    def _check(self) -> None:
        if len(self._a):
            _within("a", self._a, self._a.max() < np.inf, "finite work, 0 or above")
            _within("r", self._r, self._r.min() > 0.0, "above 0")
            _within("tb", self._tb, self._tb.min() > 0.0, "above 0 where work is left")
        if self._rows is not None:
            a, b, r, tb = self._given
            _within("a", a, bool(((a >= 0.0) & (a < np.inf)).all()), "finite work, 0 or above")
            _within("r", r, bool(((r > 0.0) | ~np.isfinite(b + r)).all()), "above 0")
            _within("tb", tb, bool(((tb > 0.0) | (a == 0.0)).all()), "above 0 where work is left")
        weights = self._given_importance
        if weights is not None and len(weights):
            _within("importance", weights, weights.min() > 0.0 and weights.max() < np.inf, "finite, above 0")

    def _bracket(self, work: float, omega_g_mhz: float) -> tuple[float, float, float]:
        """Return a first guess, and two points with the solution between them.

        If every job had the mean time work / omega_g left, they would need omega_g together: the lowest margin that
        this means for any job is low enough for all. The guess treats all jobs as one with mean goals.
        """
        mean_s = work / omega_g_mhz
        margins = np.subtract(self._b, mean_s, out=self._omega)
        spans = float(self._a @ self._r)
        guess = float(self._a @ margins) / spans if spans > 0.0 else 0.0
        margins /= self._r
        low = margins if self._weights is None else weighted(margins, self._weights)
        return guess, float(low.min()), self.best

    def _find(self, omega_g_mhz: float, at: float, low: float, high: float) -> tuple[float, int]:
        """Return the level where the sum is `omega_g_mhz`, and the number of steps taken."""
        for steps in range(1, STEPS_MAX + 1):
            total, active, slope = self._sums(at)
            gap = omega_g_mhz - total
            if abs(gap) <= _SAME * omega_g_mhz:
                return at, steps
            low, high = (at, high) if gap > 0.0 else (low, at)
            step = math.inf
            if slope > 0.0:
                # Newton on 1 / (sum of the jobs below their highest speed); on that sum if the others take all.
                step = gap / slope * (active / (active + gap) if active + gap > 0.0 else 1.0)
            aim = at + step
            if abs(step) <= _CLOSE * (1.0 + abs(at)):
                return min(max(aim, low), high), steps
            if not low < aim < high or (steps > _STEPS_QUICK and steps % 2):
                aim = _between(low, high)
                if not low < aim < high:
                    return aim, steps
            at = aim
        return at, STEPS_MAX

    def _speeds(self, at: float) -> _Number:
        """Set the delays, the speeds, and which jobs are below their highest; return the derivative of the margin."""
        margin, steepness = self._margin(at)
        delay = self._delay
        np.multiply(self._r, margin, out=delay)
        np.subtract(self._b, delay, out=delay)
        np.greater(delay, self._tb, out=self._active)
        np.maximum(delay, self._tb, out=delay)
        np.divide(self._a, delay, out=self._omega)
        return steepness

    def _sums(self, at: float) -> tuple[float, float, float]:
        """Sum of the speeds, the part of jobs below their highest speed, and its derivative by `at`."""
        steepness = self._speeds(at)
        delay, omega, active = self._delay, self._omega, self._active
        total = float(omega.sum())
        active *= omega
        moving = float(active.sum())
        active /= delay
        if self._weights is not None:
            active *= steepness
        return total, moving, float(active @ self._r)

    def _margin(self, at: float) -> tuple[_Number, _Number]:
        """Margin of the jobs at a level, and its derivative: one number without importance."""
        if self._weights is None:
            return at, 1.0
        times = self._weights if at > 0.0 else 1.0 / self._weights
        return at * times, times

    def _resting(self) -> Floats:
        """Utility of jobs that take no part: 1 without a goal, that of ending as soon as can be with no work left."""
        utility = np.ones(len(self))
        if self._rows is None:
            return utility
        a, b, r, tb = self._given
        ended = np.flatnonzero((a == 0.0) & np.isfinite(b) & np.isfinite(r))
        margin = (b[ended] - tb[ended]) / r[ended]
        weights = 1.0 if self._given_importance is None else self._given_importance[ended]
        utility[ended] = weighted(margin, weights)
        return utility

    def _spread(self, values: Floats, others: Floats) -> Floats:
        """Insert the values of the jobs that take part among those of the others."""
        others[slice(None) if self._rows is None else self._rows] = values
        return others


def _within(field: str, values: Floats, holds: bool | np.bool_, expected: str) -> None:
    if not holds:
        raise InvalidValue(field, values.min(), expected)


def _between(low: float, high: float) -> float:
    """Return the middle; of a very wide bracket, a point near its upper end, where most levels are."""
    width, scale = high - low, 1.0 + abs(high)
    return high - math.sqrt(width) * math.sqrt(scale) if width > 1e3 * scale else low + 0.5 * width
