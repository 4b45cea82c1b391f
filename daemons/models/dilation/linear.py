"""The linear sum model, to which the others are compared: all jobs share one resource (d-factor.txt, section 3.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.dilation.formula import Floats


def dilation(p: ArrayLike) -> Floats:
    """Return the slowdown of each of n jobs, float64[n]: n, regardless of their load (eq. 6)."""
    count = np.asarray(p, dtype=np.float64).shape[0]
    return np.full(count, float(count))


def total_s(neutral_s: ArrayLike, arrivals_s: ArrayLike | None = None) -> float:
    """Return the time at which the last job ends: without gaps, the first arrival plus the sum of the isolated run
    times (eq. 7); each gap without a job adds to it. 0 without jobs."""
    neutral = np.asarray(neutral_s, dtype=np.float64)
    arrivals = np.zeros_like(neutral) if arrivals_s is None else np.asarray(arrivals_s, dtype=np.float64)
    ended_s = 0.0
    for row in np.argsort(arrivals, kind="stable").tolist():
        ended_s = max(ended_s, float(arrivals[row])) + float(neutral[row])
    return ended_s
