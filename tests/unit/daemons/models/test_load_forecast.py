"""How much load is planned for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from daemons.models.load_forecast import LEAST_QUANTILE, PRIOR_FRAC, forecast_load, headroom_quantile
from shared.base.errors import InvalidValue


def planned_mhz(
    ages_s: Sequence[float], loads_mhz: Sequence[float], now_mhz: float, horizon_s: float, quantile: float
) -> float:
    return forecast_load(ages_s, loads_mhz, now_mhz, horizon_s).planned_mhz(quantile)


def test_without_samples_it_is_what_is_measured() -> None:
    assert planned_mhz((), (), 70.0, 60.0, 0.95) == 70.0


def test_one_sample_is_planned_for_with_the_usual_spread() -> None:
    assert planned_mhz((0.0,), (100.0,), 100.0, 60.0, 0.5) == pytest.approx(100.0)
    planned = planned_mhz((0.0,), (100.0,), 100.0, 60.0, 0.975)
    assert 100.0 < planned <= 100.0 * (1.0 + 1.96 * PRIOR_FRAC)


def test_a_steady_load_needs_little() -> None:
    ages = [60.0 * row for row in range(60)]
    assert 100.0 < planned_mhz(ages, [100.0] * 60, 100.0, 60.0, 0.95) < 103.0


def test_what_rises_is_planned_for_ahead_and_what_falls_is_not() -> None:
    ages = [60.0 * row for row in range(60)]
    rising = [100.0 - age / 60.0 for age in ages]
    falling = [100.0 + age / 60.0 for age in ages]
    assert planned_mhz(ages, rising, 100.0, 600.0, 0.5) == pytest.approx(110.0, rel=1e-6)
    assert planned_mhz(ages, falling, 100.0, 600.0, 0.5) == pytest.approx(100.0, rel=1e-6)


def test_it_is_never_less_than_what_is_measured_now() -> None:
    ages = [60.0 * row for row in range(60)]
    assert planned_mhz(ages, [100.0] * 60, 150.0, 60.0, 0.95) == 150.0


@pytest.mark.parametrize(("quantile", "exceeded"), [(0.5, 0.5), (0.9, 0.1), (0.975, 0.025)])
def test_the_quantile_is_exceeded_as_often_as_it_says(quantile: float, exceeded: float) -> None:
    """A load with independent deviations of 8 %, 2,000 times."""
    rng = Random(1)
    ages = [60.0 * row for row in range(60)]
    over = 0
    for _ in range(2_000):
        loads = [100.0 * math.exp(rng.gauss(0.0, 0.08)) for _ in ages]
        over += 100.0 * math.exp(rng.gauss(0.0, 0.08)) > planned_mhz(ages, loads, 0.0, 60.0, quantile)
    assert over / 2_000 == pytest.approx(exceeded, abs=0.02)


@pytest.mark.parametrize("quantile", [math.nan, 0.4, 1.0])
def test_a_quantile_that_is_none_is_refused(quantile: float) -> None:
    with pytest.raises(InvalidValue):
        planned_mhz((), (), 0.0, 60.0, quantile)


def test_samples_of_one_moment_are_no_line() -> None:
    """Seed 72: several windows that a controller was told at once."""
    assert planned_mhz([0.0] * 5, [100.0, 101.0, 99.0, 100.0, 100.0], 100.0, 60.0, 0.5) == pytest.approx(
        100.0, rel=0.01
    )
    assert math.isfinite(planned_mhz([30.0] * 6, [0.0] * 6, 0.0, 60.0, 0.9))


def test_what_was_measured_long_ago_is_still_a_load() -> None:
    """A month without measurements, in which every weight by age alone is 0."""
    month_s = 30.0 * 86_400.0
    planned = planned_mhz([month_s, month_s + 60.0], [100.0, 110.0], 0.0, 60.0, 0.5)
    assert planned == pytest.approx(105.0, rel=0.01)


def test_headroom_shrinks_the_further_the_jobs_are_behind() -> None:
    planned = [headroom_quantile(0.9, gap) for gap in (-1.0, 0.0, 0.05, 0.08, 0.5, math.inf)]

    assert planned[:2] == [0.9, 0.9]
    assert planned[-2:] == [LEAST_QUANTILE, LEAST_QUANTILE]
    assert 0.9 > planned[2] > planned[3] > LEAST_QUANTILE


def test_headroom_below_the_least_stays_as_configured() -> None:
    assert headroom_quantile(0.6, 0.5) == 0.6


def test_expected_is_the_line_and_after_a_step_the_load_of_now() -> None:
    """Deviations of 5 % are noise, half as much again is a step, up or down."""
    ages = [60.0 * row for row in range(60)]
    loads = [100.0 + 5.0 * (-1.0) ** row for row in range(60)]
    expected = [forecast_load(ages, loads, now_mhz, 60.0).expected_mhz for now_mhz in (95.0, 105.0, 150.0, 50.0)]
    assert expected == pytest.approx([100.0, 100.0, 150.0, 50.0], rel=0.01)
