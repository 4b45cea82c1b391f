"""How sure an estimated probability is: Wilson's interval (Wilson, J. Am. Stat. Assoc. 22, 1927)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints


def wilson(frequency: Floats, observations: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Lower and upper bounds of probabilities that were seen with these frequencies (0..1) in so many observations;
    the arguments broadcast. Without observations: 0 and 1. Raises `InvalidValue` unless 0 < confidence < 1."""
    if not 0.0 < confidence < 1.0:
        raise InvalidValue("confidence", confidence, "above 0 and below 1")
    seen, count = np.broadcast_arrays(np.asarray(frequency, dtype=np.float64), np.asarray(observations, np.float64))
    if not ((seen >= 0.0) & (seen <= 1.0) & (count >= 0.0) & np.isfinite(count)).all():
        raise InvalidValue("frequency", "outside its range", "frequencies from 0 to 1, observations of 0 or above")
    z2 = float(ndtri(0.5 + confidence / 2.0)) ** 2
    middle = (count * seen + z2 / 2.0) / (count + z2)
    half = np.sqrt(z2 * (count * seen * (1.0 - seen) + z2 / 4.0)) / (count + z2)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def half_width(pmf: Floats, observations: Ints, confidence: float = 0.95) -> Floats:
    """Return the largest half-width of Wilson's intervals in each row: pmf float64[slots, n], observations
    int64[slots]."""
    low, high = wilson(pmf, np.asarray(observations, np.float64)[:, None], confidence)
    widest: Floats = ((high - low) / 2.0).max(axis=1)
    return widest
