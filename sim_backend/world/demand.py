"""What is asked of a simulated web application: requests per second as a function of time.

A `Demand` takes virtual seconds and returns a rate, 0 or above. The same arguments always give the same trace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from shared.base.errors import InvalidValue

DAY_S = 86_400.0
Demand = Callable[[float], float]


def constant(rate_per_s: float) -> Demand:
    """Return a demand with a constant rate."""
    rate = _rate("rate_per_s", rate_per_s)
    return lambda _now_s: rate


def daily(mean_per_s: float, swing_frac: float = 0.5, peak_s: float = DAY_S / 2, period_s: float = DAY_S) -> Demand:
    """Return a demand that varies as a sine by time of day around `mean_per_s`. At `peak_s` it is higher by the
    fraction `swing_frac` (0..1), and half a period away lower by the same."""
    mean, swing = _rate("mean_per_s", mean_per_s), swing_frac
    if not 0.0 <= swing <= 1.0:
        raise InvalidValue("swing_frac", swing, "0 to 1")
    return lambda now_s: mean * (1.0 + swing * math.cos(2 * math.pi * (now_s - peak_s) / period_s))


def steps(points: Sequence[tuple[float, float]]) -> Demand:
    """Return a demand as a step function of (start in s, rate): 0 before the first point. Raises InvalidValue unless
    times increase."""
    times = [from_s for from_s, _ in points]
    if not times or any(later <= earlier for earlier, later in pairwise(times)):
        raise InvalidValue("points", times[:8], "at least one, at times that increase")
    rates = [0.0, *(_rate("points", rate) for _, rate in points)]
    return lambda now_s: rates[bisect_right(times, now_s)]


def uneven(demand: Demand, seed: int, sigma: float, hold_s: float = 300.0) -> Demand:
    """Return a demand times a log-normal factor of mean 1 and log-deviation `sigma`, drawn from the seed every
    `hold_s`."""

    def rate_at(now_s: float) -> float:
        chance = Random(f"{seed}:{math.floor(now_s / hold_s)}")
        return demand(now_s) * math.exp(sigma * chance.gauss(0.0, 1.0) - sigma * sigma / 2)

    return rate_at


def _rate(field: str, rate: float) -> float:
    if not (math.isfinite(rate) and rate >= 0.0):
        raise InvalidValue(field, rate, "a finite number, 0 or above")
    return rate
