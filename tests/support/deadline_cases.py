"""The period of batch-provisioning.txt chapter 5, for the tests of the deadline models."""

from __future__ import annotations

from typing import Any

import numpy as np

from daemons.models.deadline.problem import DeadlineProblem, Floats, arrivals_from_rate
from daemons.models.deadline.shapes import shape_prices

INTERVALS, SUBMISSION_END, INTERVAL_S = 92, 64, 900.0


def thesis_rate(moments: Floats, mean_s: float = 480.0) -> Floats:
    """Arrivals per interval at moments in intervals: equation 5.1."""
    x = INTERVAL_S * moments
    return np.asarray(INTERVAL_S / (mean_s * (2.0 - 1.04167e-4 * x + 1.80845e-9 * x**2)), dtype=np.float64)


def thesis_problem(shape: str = "uniform", servers_max: int = 5, **changes: Any) -> DeadlineProblem:
    """The experiments of chapter 5; with more servers, as many more arrivals as in table 5.1."""
    mean_s = 480.0 * 5 / servers_max
    price, removal_price, price_max = shape_prices(shape, 3.0, INTERVALS, 30.0 / INTERVAL_S)
    given: dict[str, Any] = {
        "arrivals": arrivals_from_rate(lambda moments: thesis_rate(moments, mean_s), INTERVALS, SUBMISSION_END),
        "service": 1200.0 / INTERVAL_S,
        "servers_min": 1,
        "servers_max": servers_max,
        "confidence": 0.9999,
        "price": price,
        "removal_price": removal_price,
        "deploy": 25.0 / INTERVAL_S,
        "penalty": 1200.0 / INTERVAL_S * price_max,
    }
    return DeadlineProblem(**{**given, **changes})
