"""How much load to plan for: a decision must hold until the next one can correct it.

The load of the last while is taken as a straight line with deviations from it (exponentially weighted least squares,
the newest samples counting most; Brown, Smoothing, Forecasting and Prediction, 1963). Planned is the quantile of what
the line and the deviations let expect at the horizon, and never less than what is measured now. While little is known
the deviations are taken to be `PRIOR_FRAC` of the load.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.base.errors import InvalidValue

FREE_GAP, DEAR_GAP = 0.02, 0.10  # between these head-room shrinks from all that is wanted to the least
LEAST_QUANTILE = 0.8
MEMORY_S = 1_200.0  # after so long a sample counts e times less
PRIOR_FRAC, PRIOR_SAMPLES = 0.05, 4.0


def planned_mhz(ages_s: ArrayLike, loads_mhz: ArrayLike, now_mhz: float, horizon_s: float, quantile: float) -> float:
    """Return the load in MHz to plan for over the next `horizon_s`, at least `now_mhz`, which is measured now.

    ages_s: how long ago each sample of `loads_mhz` ended, 0 for the newest. quantile: 0.5 to below 1. O(samples).
    """
    if not 0.5 <= quantile < 1.0:
        raise InvalidValue("quantile", quantile, "0.5 or above, below 1")
    ages, loads = np.asarray(ages_s, dtype=np.float64), np.asarray(loads_mhz, dtype=np.float64)
    if not len(loads):
        return now_mhz
    weights = np.exp((ages.min() - ages) / MEMORY_S)  # the newest counts, however old it is
    total = float(weights.sum())
    mean_age, mean = float(weights @ ages) / total, float(weights @ loads) / total
    apart = ages - mean_age
    spread_s2 = float(weights @ apart**2) / total
    known = len(loads) > 3 and spread_s2 > 1.0  # samples of one moment are no line
    slope = -float(weights @ (apart * (loads - mean))) / total / spread_s2 if known else 0.0
    line = mean - slope * apart
    many = total * total / float(weights @ weights)
    prior = PRIOR_SAMPLES * (PRIOR_FRAC * mean) ** 2
    spread = math.sqrt((many * float(weights @ (loads - line) ** 2) / total + prior) / (many + PRIOR_SAMPLES))
    ahead = mean + slope * mean_age + max(0.0, slope) * horizon_s
    return max(now_mhz, ahead + float(ndtri(quantile)) * spread)


def headroom_quantile(most: float, gap: float) -> float:
    """Return the quantile of the load to plan for: `most` (0.5 to below 1) while the jobs are hardly below what the
    application could have at best, `LEAST_QUANTILE` (or `most`) where they are so far below, by `gap` of utility, that
    more head-room takes more from them than it is worth."""
    dear = min(1.0, max(0.0, (gap - FREE_GAP) / (DEAR_GAP - FREE_GAP)))
    return most - dear * max(0.0, most - LEAST_QUANTILE)
