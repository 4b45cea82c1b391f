"""The cheapest rule that keeps the promise: the thesis's five prices against their known lower bounds."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.optimal import optimal
from daemons.models.deadline.problem import DeadlineProblem, arrivals_from_rate
from daemons.models.deadline.shapes import shape_prices

DEADLINE, SUBMISSION_END, INTERVAL_S = 92, 64, 900.0


def thesis(shape: str, servers_max: int = 5, penalty: float = 0.0, deploy: float = 25.0 / 900.0) -> DeadlineProblem:
    """Section 5.1 with r2 = 30 s and prices between 1.5 and 0.5 (ratio 3); more arrivals for more servers."""

    def rate(moment: np.ndarray) -> np.ndarray:
        x = moment * INTERVAL_S
        return servers_max / 5.0 * INTERVAL_S / (480.0 * (2.0 - 1.04167e-4 * x + 1.80845e-9 * x * x))

    price, removal, _ = shape_prices(shape, 3.0, DEADLINE, 30.0 / INTERVAL_S)
    arrivals = arrivals_from_rate(rate, DEADLINE, SUBMISSION_END)
    return DeadlineProblem(
        arrivals, 1200.0 / INTERVAL_S, 1, servers_max, 0.9999, price, removal, deploy=deploy, penalty=penalty
    )


@pytest.mark.parametrize(
    ("shape", "bound"),
    [
        ("uniform", 208.095),
        ("increasing", 195.202),
        ("decreasing", 192.114),
        ("quadratic-1", 168.890),
        ("quadratic-2", 216.984),
    ],
)
def test_known_lower_bounds_and_a_rule_within_a_ten_thousandth_of_them(shape: str, bound: float) -> None:
    problem = thesis(shape)
    result = optimal(problem)
    assert result.keeps
    assert result.lower_bound == pytest.approx(bound, abs=2e-3)
    assert result.lower_bound <= result.expected_server_cost <= result.lower_bound * (1.0 + 2e-4)
    found = evaluate(problem, result.table)
    assert found.miss_probability <= 1e-4
    assert found.miss_probability == pytest.approx(result.miss_probability, rel=1e-8)
    assert found.expected_server_cost == pytest.approx(result.expected_server_cost, rel=1e-10)
