"""Service times of any variance as phases in a row (a Coxian distribution), and the phase a job is in by its age.

A job begins in the first phase. At the end of a phase it goes on to the next one or is done. Every coefficient of
variation from 1 / sqrt(K) on has such a distribution with K phases; one phase is the exponential. Sources: R. Marie,
Calculating equilibrium probabilities for lambda(n)/Ck/1/N queues (1980); H. C. Tijms, Stochastic Models (1994),
section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.base.errors import InvalidValue

Floats = NDArray[np.float64]

PHASES_MAX = 4
SETTLED = 60.0
"""Of the slowest phase's mean: from such an age on the phase a job is in does not change its probability."""
APART = 1e-9  # two rates that differ by less are one


@dataclass(frozen=True, slots=True)
class Phases:
    """rates: of each phase's end (> 0, in 1 / the unit of time), goes: probability (0..1) that the next phase follows,
    one fewer than rates. Raises `InvalidValue`."""

    rates: tuple[float, ...]
    goes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.rates) <= PHASES_MAX or len(self.goes) != len(self.rates) - 1:
            raise InvalidValue("phases", (len(self.rates), len(self.goes)), f"1 to {PHASES_MAX} rates, one go fewer")
        for rate in self.rates:
            if not (math.isfinite(rate) and rate > 0.0):
                raise InvalidValue("rates", rate, "finite numbers above 0")
        for go in self.goes:
            if not 0.0 <= go <= 1.0:
                raise InvalidValue("goes", go, "probabilities from 0 to 1")

    @property
    def count(self) -> int:
        """K, the number of phases."""
        return len(self.rates)

    @property
    def mean(self) -> float:
        """The mean service time."""
        return float((self._reached() / np.array(self.rates)).sum())

    @property
    def cv(self) -> float:
        """The coefficient of variation of the service time."""
        left = -np.linalg.inv(self.generator())
        second = 2.0 * float((left @ left).sum(axis=1)[0])
        return math.sqrt(max(0.0, second - self.mean**2)) / self.mean

    def _reached(self) -> Floats:
        return np.concatenate(([1.0], np.cumprod(self.goes)))

    def generator(self) -> Floats:
        """Return float64[K, K]: the generator of the phases while the job is not done."""
        rates = np.array(self.rates)
        return np.diag(-rates) + np.diag(rates[:-1] * np.array(self.goes), 1)

    def scaled(self, factor: float) -> Phases:
        """Return the same phases for jobs that take `factor` (> 0) times as long."""
        return Phases(tuple(rate / factor for rate in self.rates), self.goes)

    def alive(self, ages: Floats) -> Floats:
        """Return float64[n, K]: the probability of each phase at each age (>= 0). O(n K^3)."""
        ages = np.minimum(np.asarray(ages, dtype=np.float64), SETTLED / min(self.rates))
        if not ages.size:
            return np.empty((0, self.count))
        return np.asarray(expm(ages[:, None, None] * self.generator())[:, 0], dtype=np.float64)

    def survival(self, times: Floats) -> Floats:
        """Return float64[n]: the probability to take longer than each time (>= 0; times beyond `SETTLED` means count as
        `SETTLED` means)."""
        return np.asarray(self.alive(times).sum(axis=1))

    def phase_by_age(self, ages: Floats) -> Floats:
        """Return float64[n, K]: the probability of each phase given that the job is not done at its age."""
        found = np.maximum(self.alive(ages), 0.0)
        total = found.sum(axis=1, keepdims=True)
        last = np.eye(self.count)[-1]
        return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), last)


def fitted(mean: float, cv: float) -> Phases:
    """Phases with that mean and coefficient of variation (both > 0): exact from cv = 1 / sqrt(`PHASES_MAX`) on, with
    that variance for less, which is on the safe side. Raises `InvalidValue`."""
    for name, value in (("mean", mean), ("cv", cv)):
        if not (math.isfinite(value) and value > 0.0):
            raise InvalidValue(name, value, "a finite number above 0")
    square = max(cv**2, 1.0 / PHASES_MAX)
    if abs(square - 1.0) < APART:
        return Phases((1.0 / mean,))
    if square > 1.0:
        return Phases((2.0 / mean, 1.0 / (mean * square)), (0.5 / square,))
    return _erlang_mixture(mean, square)


def _erlang_mixture(mean: float, square: float) -> Phases:
    """K or K - 1 phases of the same rate (Tijms): 1 / K <= square <= 1 / (K - 1)."""
    count = max(2, math.ceil(1.0 / square - APART))
    stops = (count * square - math.sqrt(max(0.0, count * (1.0 + square) - count**2 * square))) / (1.0 + square)
    stops = min(max(stops, 0.0), 1.0)
    rate = (count - stops) / mean
    return Phases((rate,) * count, (1.0,) * (count - 2) + (1.0 - stops,))


def hyperexponential(mean: float, long_share: float, long_mean: float) -> Phases:
    """Return two kinds of jobs as phases in a row: the share `long_share` (0..1) has mean `long_mean`, and the others a
    mean such that all together have `mean`. Raises `InvalidValue` if the long ones are not the longer ones."""
    if not 0.0 < long_share < 1.0 or not long_mean > mean > long_share * long_mean:
        raise InvalidValue("long_mean", long_mean, "above the mean, long ones for less than all of it")
    short = (1.0 - long_share) / (mean - long_share * long_mean)
    long = 1.0 / long_mean
    return Phases((short, long), (long_share * (1.0 - long / short),))


def counts_by_phase(phases: Phases, ages: Sequence[float] | Floats, most: int) -> Floats:
    """Return float64[most + 1, ..]: the probability of the numbers of begun jobs in the second, third, .. phase; more
    than `most` count as `most`. O(n most^(K - 1))."""
    found = phases.phase_by_age(np.asarray(ages, dtype=np.float64))
    shape = (most + 1,) * (phases.count - 1)
    weights = np.zeros(shape)
    weights[(0,) * len(shape)] = 1.0
    for chances in found:
        fresh = chances[0] * weights
        for axis in range(len(shape)):
            fresh += chances[axis + 1] * _one_more(weights, axis)
        weights = fresh
    return weights


def _one_more(weights: Floats, axis: int) -> Floats:
    moved = np.zeros_like(weights)
    first, rest = [slice(None)] * weights.ndim, [slice(None)] * weights.ndim
    first[axis], rest[axis] = slice(0, -1), slice(1, None)
    moved[tuple(rest)] = weights[tuple(first)]
    rest[axis] = first[axis] = slice(-1, None)
    moved[tuple(rest)] += weights[tuple(first)]
    return moved
