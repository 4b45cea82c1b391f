"""Prices over a job processing period (batch-provisioning.txt section 5.3), of mean 1, integrated exactly."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Polynomial

from daemons.models.deadline.problem import INTERVALS_MAX, Floats
from shared.base.errors import InvalidValue
from shared.values.scalars import not_negative, whole

SHAPES = ("uniform", "increasing", "decreasing", "quadratic-1", "quadratic-2")


def shape_price(shape: str, ratio: float, intervals: int) -> Polynomial:
    """Return the price of a server for one interval at a moment t (in intervals) of 0..intervals: mean 1 over the
    period, `ratio` (>= 1) between the highest and the lowest. Quadratic prices turn in the middle: quadratic-1 is low
    there, quadratic-2 high. Raises `InvalidValue`."""
    whole("intervals", intervals, 2, INTERVALS_MAX)
    if not (np.isfinite(ratio) and ratio >= 1.0):
        raise InvalidValue("ratio", ratio, "a finite number, 1 or above")
    if shape not in SHAPES:
        raise InvalidValue("shape", shape, ", ".join(SHAPES))
    lowest, highest = 2.0 / (1.0 + ratio), 2.0 * ratio / (1.0 + ratio)
    middle = (highest - lowest) / 2.0
    bowl, hill = 3.0 / (2.0 + ratio), 3.0 * ratio / (1.0 + 2.0 * ratio)
    by_v = {
        "uniform": [1.0],
        "increasing": [1.0, middle],
        "decreasing": [1.0, -middle],
        "quadratic-1": [bowl, 0.0, bowl * (ratio - 1.0)],
        "quadratic-2": [hill, 0.0, hill / ratio - hill],
    }[shape]
    return Polynomial(by_v)(Polynomial([-1.0, 2.0 / intervals]))


def integrals(price: Polynomial, begins: Floats, ends: Floats) -> Floats:
    """Return the cost of a server from each of `begins` to the matching one of `ends` (in intervals)."""
    whole_price = price.integ()
    return np.asarray(whole_price(ends) - whole_price(begins), dtype=np.float64)


def shape_prices(shape: str, ratio: float, intervals: int, remove: float) -> tuple[Floats, Floats, float]:
    """Return `price` and `removal_price` (float64[d] each) of a `DeadlineProblem`, and the highest price of the period.

    remove: time (in intervals, >= 0) for which a removed server is still charged, never past the deadline. Raises
    `InvalidValue`.
    """
    not_negative("remove", remove)
    price = shape_price(shape, ratio, intervals)
    begins = np.arange(intervals, dtype=np.float64)
    removed = integrals(price, begins, np.minimum(begins + remove, float(intervals)))
    turns = np.array([0.0, intervals / 2.0, float(intervals)])
    return integrals(price, begins, begins + 1.0), removed, float(price(turns).max())
