"""What migrations took against what was forecast, so that the next forecast is better.

For each VM, and each class of migrations, the logarithm of measured over forecast is averaged with exponential weights,
the newest counting most, of durations and of downtimes. One that is far off what is usual counts as the edge of it only
(Huber, Robust Estimation of a Location Parameter, 1964): a migration that met a broken link must not spoil the next
forecasts. A VM's own average counts against that of its class like its number of measurements against `PRIOR`, and so
does the class against no correction at all.
"""

from __future__ import annotations

import math

from msgspec import Struct

FACTOR_MAX = 8.0  # and 1 / 8: what is further off was something else
NEWEST = 0.3  # the weight of a new measurement, once there are enough
SPREAD_PRIOR = 0.2  # of the logarithm
USUAL = 2.0  # spreads
PRIOR = 1.0  # measurements
FEWEST_S = 0.05  # shorter durations say nothing of a ratio
DOWNTIME_FEWEST_S = 0.001  # nor do shorter downtimes: libvirt tells whole milliseconds


class LearnedRatio(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The logarithm of measured over forecast: average, spread around it, and of how many."""

    log_ratio: float = 0.0
    spread: float = SPREAD_PRIOR
    count: int = 0

    def with_measured(self, log_ratio: float) -> LearnedRatio:
        """Return it with one more."""
        if self.count == 0:
            return LearnedRatio(log_ratio, SPREAD_PRIOR, 1)
        most = USUAL * self.spread
        off = min(most, max(-most, log_ratio - self.log_ratio))
        weight = max(NEWEST, 1.0 / (self.count + 1))
        spread = math.sqrt((1.0 - weight) * self.spread**2 + weight * off**2 * (1.0 + 1.0 / USUAL**2))
        return LearnedRatio(self.log_ratio + weight * off, max(spread, SPREAD_PRIOR / 4.0), self.count + 1)


NOTHING = LearnedRatio()


def factor(own: LearnedRatio, of_class: LearnedRatio = NOTHING) -> float:
    """Return what to multiply a forecast of a VM with, from 1 / `FACTOR_MAX` to `FACTOR_MAX`; 1 while nothing is known
    of it and its class."""
    base = of_class.log_ratio * of_class.count / (of_class.count + PRIOR)
    mixed = (own.log_ratio * own.count + base * PRIOR) / (own.count + PRIOR)
    return math.exp(min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), mixed)))


def log_ratio(forecast_s: float, measured_s: float, fewest_s: float = FEWEST_S) -> float | None:
    """Return the logarithm of measured over forecast, within `FACTOR_MAX`. `forecast_s` is the uncorrected forecast.
    None for figures that say nothing: not finite, or below `fewest_s`."""
    if not (fewest_s <= forecast_s < math.inf and fewest_s <= measured_s < math.inf):
        return None
    return min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), math.log(measured_s / forecast_s)))
