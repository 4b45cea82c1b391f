"""Whether a sum of demands looks normal: the test of Jarque and Bera (Economics Letters 6, 1980)."""

from __future__ import annotations

import numpy as np

from shared.policy_api.snapshot import Floats

OBSERVATIONS_MIN = 8  # with fewer, nothing can be said
LEVEL = 0.05


def jarque_bera(sums: Floats) -> tuple[float, float]:
    """Return the statistic and its p-value by chi-squared of 2 degrees of freedom; (NaN, NaN) for fewer than 8
    observations, or if all are the same."""
    sums = np.asarray(sums, dtype=np.float64)
    if sums.size < OBSERVATIONS_MIN:
        return np.nan, np.nan
    apart = sums - sums.mean()
    variance = float((apart**2).mean())
    if variance == 0.0 or np.ptp(sums) == 0.0:
        return np.nan, np.nan
    skewness, kurtosis = float((apart**3).mean()) / variance**1.5, float((apart**4).mean()) / variance**2
    statistic = sums.size / 6.0 * (skewness**2 + (kurtosis - 3.0) ** 2 / 4.0)
    return statistic, float(np.exp(-statistic / 2.0))
