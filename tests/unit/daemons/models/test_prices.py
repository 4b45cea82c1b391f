"""Prices as steps of time: forecasts, shapes of the day, and what cannot be one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemons.models.prices import DAY_S, DAY_STEPS, DAYS_MEANT, PriceSeries, completed, day_prices, joined
from shared.base.errors import InvalidValue

HOUR_S = 3600.0


def earlier(at_s: float, days: int) -> float:
    """By a clock that is never changed."""
    return at_s - days * DAY_S


def hours(prices: list[float], from_s: float = 0.0) -> PriceSeries:
    starts = from_s + HOUR_S * np.arange(len(prices), dtype=np.float64)
    return PriceSeries(starts, np.array(prices), from_s + HOUR_S * len(prices))


def hour_of(series: PriceSeries, hour: int) -> float:
    (found,) = series.means(np.array([hour * HOUR_S]), np.array([(hour + 1) * HOUR_S]))
    return float(found)


def test_an_integral_over_parts_of_steps() -> None:
    series = hours([1.0, -2.0, 4.0])
    begins, ends = np.array([0.0, 1800.0, 5400.0]), np.array([10_800.0, 5400.0, 5400.0])
    assert series.integrals(begins, ends).tolist() == [10_800.0, 1800.0 - 3600.0, 0.0]
    assert series.means(begins[:2], ends[:2]).tolist() == [1.0, -0.5]


def test_what_is_not_known_is_not_a_number() -> None:
    series = joined(hours([1.0, 1.0]), hours([3.0], 3 * HOUR_S))
    assert series.edges_s.tolist() == [0.0, 3600.0, 7200.0, 10_800.0, 14_400.0]
    begins, ends = np.array([-1.0, 0.0, 0.0, 10_800.0, 10_800.0]), np.array([1.0, 7200.0, 7201.0, 14_400.0, 14_401.0])
    assert np.isnan(series.integrals(begins, ends)).tolist() == [True, False, True, False, True]


def test_a_forecast_is_the_mean_of_the_same_hour_of_a_week_before() -> None:
    """Given ten days of which each hour costs the day's number and a tenth of the hour, when the next two days are
    asked for, then every hour is as the last seven known days had it."""
    series = hours([day + hour / 10 for day in range(10) for hour in range(24)])
    whole = completed(series, 9 * DAY_S, 12 * DAY_S, earlier, math.nan)
    assert hour_of(whole, 9 * 24 + 5) == 9.5
    for hour in range(24):
        assert hour_of(whole, 10 * 24 + hour) == pytest.approx(np.mean(range(3, 10)) + hour / 10)
        assert hour_of(whole, 11 * 24 + hour) == pytest.approx(np.mean(range(3, 10)) + hour / 10)
    assert DAYS_MEANT == 7


def test_a_forecast_begins_in_the_middle_of_a_day() -> None:
    """Given prices until noon, then the afternoon is that of the day before and the morning that of today."""
    series = hours([float(hour) for hour in range(24)] + [100.0 + hour for hour in range(12)])
    whole = completed(series, DAY_S, 3 * DAY_S, earlier, math.nan)
    assert [hour_of(whole, 24 + hour) for hour in (11, 12, 23)] == [111.0, 12.0, 23.0]
    assert [hour_of(whole, 48 + hour) for hour in (0, 12)] == [pytest.approx(50.0), 12.0]


def test_a_forecast_for_a_gap_and_for_quarters_of_an_hour() -> None:
    quarters = PriceSeries(900.0 * np.arange(96.0), np.arange(96.0), DAY_S)
    gapped = joined(quarters, hours([500.0], DAY_S + HOUR_S))
    whole = completed(gapped, DAY_S, DAY_S + 3 * HOUR_S, earlier, math.nan)
    assert whole.per_kwh[:9].tolist() == [0.0, 1.0, 2.0, 3.0, 500.0, 8.0, 9.0, 10.0, 11.0]


def test_a_forecast_long_after_and_before_what_is_known() -> None:
    """Given a clock that jumps by a year, then the days known last are taken, and before all prices their mean."""
    series = hours([float(hour) for _ in range(3) for hour in range(24)])
    late = completed(series, 400 * DAY_S, 401 * DAY_S, earlier, math.nan)
    assert [hour_of(late, 400 * 24 + hour) for hour in range(24)] == pytest.approx(list(range(24)))
    early = completed(series, -400 * DAY_S, -399 * DAY_S, earlier, math.nan)
    assert hour_of(early, -400 * 24) == pytest.approx(11.5)
    unknown = PriceSeries(np.array([0.0]), np.array([math.nan]), 10.0)
    assert completed(unknown, 0.0, 10.0, earlier, 0.25).per_kwh.tolist() == [0.25]
    assert completed(None, 0.0, 10.0, earlier, 0.25).per_kwh.tolist() == [0.25]


def test_a_forecast_follows_the_clock_of_the_day_before() -> None:
    """Given a clock put back by an hour at midnight, then what it showed is asked for, not what was 24 hours before."""

    def summer_before(at_s: float, days: int) -> float:
        return at_s - days * DAY_S - HOUR_S

    series = hours([float(hour) for hour in range(24)])
    whole = completed(series, DAY_S + HOUR_S, DAY_S + 2 * HOUR_S, summer_before, math.nan)
    assert whole.per_kwh.tolist() == [0.0]


@pytest.mark.parametrize(
    ("shape", "first", "middle", "last"),
    [
        ("uniform", 0.3, 0.3, 0.3),
        ("increasing", 0.15, 0.3, 0.45),
        ("decreasing", 0.45, 0.3, 0.15),
        ("quadratic-1", 0.54, 0.18, 0.54),
        ("quadratic-2", 0.9 / 7, 2.7 / 7, 0.9 / 7),
    ],
)
def test_shapes_of_the_day(shape: str, first: float, middle: float, last: float) -> None:
    """The figures are those of the thesis's functions at ratio 3, of the mean 1, times 0.30."""
    prices = day_prices(shape, 0.30, 3.0)
    assert prices.mean() == pytest.approx(0.30, abs=1e-15)
    found = (prices[0], prices[DAY_STEPS // 2], prices[-1])
    assert found == pytest.approx((first, middle, last), rel=0.02)


@pytest.mark.parametrize(
    ("starts", "prices", "until"),
    [
        ([], [], 1.0),
        ([0.0, 1.0], [1.0], 2.0),
        ([0.0, 0.0], [1.0, 1.0], 2.0),
        ([0.0, 1.0], [1.0, 1.0], 1.0),
        ([0.0, math.inf], [1.0, 1.0], math.inf),
        ([0.0], [math.inf], 1.0),
    ],
)
def test_what_is_no_series(starts: list[float], prices: list[float], until: float) -> None:
    with pytest.raises(InvalidValue):
        PriceSeries(np.array(starts), np.array(prices), until)


def test_a_span_that_ends_before_it_begins() -> None:
    with pytest.raises(InvalidValue):
        completed(None, 5.0, 5.0, earlier, 0.0)
