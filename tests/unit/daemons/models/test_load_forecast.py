"""How much load is planned for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.load_forecast import (
    LEAST_QUANTILE,
    MEMORY_S,
    PRIOR_FRAC,
    PRIOR_SAMPLES,
    LoadForecast,
    forecast_load,
    forecast_loads,
    headroom_quantile,
)
from shared.base.errors import InvalidValue
from tests.extent import examples


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


def plainly(ages_s: Sequence[float], loads_mhz: Sequence[float], now_mhz: float, horizon_s: float) -> LoadForecast:
    """The same by loops."""
    weights = [math.exp((min(ages_s) - age) / MEMORY_S) for age in ages_s]
    total = sum(weights)
    mean_age = sum(weight * age for weight, age in zip(weights, ages_s, strict=True)) / total
    mean = sum(weight * load for weight, load in zip(weights, loads_mhz, strict=True)) / total
    rows = [*zip(weights, ages_s, loads_mhz, strict=True)]
    spread_s2 = sum(weight * (age - mean_age) ** 2 for weight, age, _ in rows) / total
    slope = 0.0
    if len(rows) > 3 and spread_s2 > 1.0:
        slope = -sum(weight * (age - mean_age) * (load - mean) for weight, age, load in rows) / total / spread_s2
    error = sum(weight * (load - mean + slope * (age - mean_age)) ** 2 for weight, age, load in rows) / total
    many = total**2 / sum(weight**2 for weight in weights)
    prior = PRIOR_SAMPLES * (PRIOR_FRAC * mean) ** 2
    spread = math.sqrt((many * error + prior) / (many + PRIOR_SAMPLES))
    return LoadForecast(now_mhz, mean + slope * mean_age + max(0.0, slope) * horizon_s, spread)


@settings(max_examples=examples(100))
@given(apps=st.integers(1, 5), samples=st.integers(1, 64), seed=st.integers(0, 2**32 - 1))
def test_many_loads_at_once_are_what_each_is_alone_and_by_loops(apps: int, samples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ages = np.cumsum(rng.choice([0.0, 20.0, 60.0, 4_000.0], (apps, samples)), axis=1)[:, ::-1].copy()
    loads = rng.choice([0.0, 1.0, 1e4], (apps, 1)) * rng.uniform(0.5, 2.0, (apps, samples))
    now_mhz = loads[:, -1].tolist()

    found = forecast_loads(ages, loads, now_mhz, 900.0)

    alone = [forecast_load(*each, 900.0) for each in zip(ages, loads, now_mhz, strict=True)]
    assert [*found] == alone
    for one, each in zip(found, zip(ages.tolist(), loads.tolist(), now_mhz, strict=True), strict=True):
        other = plainly(*each, 900.0)
        assert (one.ahead_mhz, one.spread_mhz) == pytest.approx((other.ahead_mhz, other.spread_mhz), rel=1e-6, abs=1e-9)


def test_no_loads_and_loads_without_samples() -> None:
    assert forecast_loads(np.zeros((0, 3)), np.zeros((0, 3)), (), 60.0) == ()
    assert forecast_loads(np.zeros((2, 0)), np.zeros((2, 0)), (1.0, 2.0), 60.0) == (
        LoadForecast(1.0, 1.0, 0.0),
        LoadForecast(2.0, 2.0, 0.0),
    )
