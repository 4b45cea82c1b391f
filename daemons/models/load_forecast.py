"""How much load to plan for: a decision must hold until the next one can correct it.

The load of the last while is taken as a straight line with deviations from it (exponentially weighted least squares,
the newest samples counting most; Brown, Smoothing, Forecasting and Prediction, 1963). Expected is what the line leads
to at the horizon, where it rises, or the load of now where that is far off the line. Planned is the quantile of what
the line and the deviations let expect there, and never less than what is measured now. While little is known the
deviations are taken to be `PRIOR_FRAC` of the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats

FREE_GAP, DEAR_GAP = 0.02, 0.10  # between these head-room shrinks from all that is wanted to the least
LEAST_QUANTILE = 0.8
STEP_SPREADS = 2.0  # so many deviations off the line, the load has changed for good
MEMORY_S = 1_200.0  # after so long a sample counts e times less
PRIOR_FRAC, PRIOR_SAMPLES = 0.05, 4.0


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """A load in MHz: `now_mhz` is measured, `ahead_mhz` is where the line of the last while leads, `spread_mhz` the
    standard deviation from it."""

    now_mhz: float
    ahead_mhz: float
    spread_mhz: float

    @property
    def expected_mhz(self) -> float:
        """The load that is most likely: what the line leads to, or that of now where it is off by more than the usual
        deviations and will last."""
        usual = abs(self.now_mhz - self.ahead_mhz) <= STEP_SPREADS * self.spread_mhz
        return self.ahead_mhz if usual else self.now_mhz

    def planned_mhz(self, quantile: float) -> float:
        """Return the load to plan for, at least that of now. quantile: 0.5 to below 1, else `InvalidValue`."""
        if not 0.5 <= quantile < 1.0:
            raise InvalidValue("quantile", quantile, "0.5 or above, below 1")
        return max(self.now_mhz, self.ahead_mhz + float(ndtri(quantile)) * self.spread_mhz)


def forecast_load(ages_s: ArrayLike, loads_mhz: ArrayLike, now_mhz: float, horizon_s: float) -> LoadForecast:
    """Return what load is to come within `horizon_s`. ages_s: how long ago each sample of `loads_mhz` ended, 0 for the
    newest. Without samples, that of now. O(samples)."""
    (found,) = forecast_loads(np.array([ages_s]), np.array([loads_mhz]), (now_mhz,), horizon_s)
    return found


def forecast_loads(
    ages_s: Floats, loads_mhz: Floats, now_mhz: Sequence[float], horizon_s: float
) -> tuple[LoadForecast, ...]:
    """Return `forecast_load` of many loads with equally many samples, float64[loads, samples]: each as if it were
    forecast alone, to the last bit. O(loads x samples)."""
    if not ages_s.shape[1]:
        return tuple(LoadForecast(now, now, 0.0) for now in now_mhz)
    weights = np.exp((ages_s.min(axis=1, keepdims=True) - ages_s) / MEMORY_S)  # the newest counts, however old it is
    total = weights.sum(axis=1)
    mean_age, mean = _dot(weights, ages_s) / total, _dot(weights, loads_mhz) / total
    apart = ages_s - mean_age[:, np.newaxis]
    spread_s2 = _dot(weights, apart**2) / total
    known = (spread_s2 > 1.0) & (ages_s.shape[1] > 3)  # samples of one moment are no line
    off = loads_mhz - mean[:, np.newaxis]
    slope = np.where(known, -_dot(weights, apart * off) / total / np.where(known, spread_s2, 1.0), 0.0)
    off = loads_mhz - (mean[:, np.newaxis] - slope[:, np.newaxis] * apart)
    many = total * total / _dot(weights, weights)
    prior = PRIOR_SAMPLES * (PRIOR_FRAC * mean) ** 2
    spread = np.sqrt((many * _dot(weights, off**2) / total + prior) / (many + PRIOR_SAMPLES))
    ahead = mean + slope * mean_age + np.maximum(0.0, slope) * horizon_s
    return tuple(map(LoadForecast, now_mhz, ahead.tolist(), spread.tolist()))


def _dot(one: Floats, other: Floats) -> Floats:
    """Return the dot product of each row."""
    product: Floats = np.matmul(one[:, np.newaxis, :], other[:, :, np.newaxis])
    return product[:, 0, 0]


def headroom_quantile(most: float, gap: float) -> float:
    """Return the quantile of the load to plan for: `most` (0.5 to below 1) while the jobs are hardly below what the
    application could have at best, `LEAST_QUANTILE` (or `most`) where they are so far below, by `gap` of utility, that
    more head-room takes more from them than it is worth."""
    dear = min(1.0, max(0.0, (gap - FREE_GAP) / (DEAR_GAP - FREE_GAP)))
    return most - dear * max(0.0, most - LEAST_QUANTILE)
