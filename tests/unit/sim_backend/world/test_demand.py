"""What is asked of simulated web applications."""

from __future__ import annotations

import pytest

from shared.base.errors import InvalidValue
from sim_backend.world.demand import DAY_S, constant, daily, steps, uneven


def test_forms() -> None:
    assert constant(7.0)(123.0) == 7.0
    curve = daily(100.0, 0.4, peak_s=14 * 3600.0)
    assert curve(14 * 3600.0) == pytest.approx(140.0)
    assert curve(2 * 3600.0) == pytest.approx(60.0)
    assert curve(2 * 3600.0 + 3 * DAY_S) == pytest.approx(60.0)
    stairs = steps([(10.0, 3.0), (20.0, 5.0)])
    assert [stairs(t) for t in (0.0, 9.9, 10.0, 19.9, 20.0, 1e9)] == [0.0, 0.0, 3.0, 3.0, 5.0, 5.0]


def test_unevenness_is_the_seeds_and_keeps_the_mean() -> None:
    trace = uneven(constant(10.0), seed=3, sigma=0.3)
    rates = [trace(300.0 * k) for k in range(4_000)]

    assert rates == [uneven(constant(10.0), 3, 0.3)(300.0 * k + 299.0) for k in range(4_000)]
    assert rates[:9] != [uneven(constant(10.0), 4, 0.3)(300.0 * k) for k in range(9)]
    assert sum(rates) / len(rates) == pytest.approx(10.0, rel=0.03)
    assert min(rates) < 7.0 < 13.0 < max(rates)


@pytest.mark.parametrize(
    "make",
    [
        lambda: constant(-1.0),
        lambda: constant(float("nan")),
        lambda: daily(1.0, 1.5),
        lambda: steps([]),
        lambda: steps([(1.0, 1.0), (1.0, 2.0)]),
        lambda: steps([(0.0, float("inf"))]),
    ],
)
def test_what_is_no_demand(make: object) -> None:
    with pytest.raises(InvalidValue):
        make()  # type: ignore[operator]
