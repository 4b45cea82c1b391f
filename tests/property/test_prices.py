"""Prices against a naive reading of them, second by second."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.prices import DAY_S, PriceSeries, completed, joined

PRICES = st.one_of(st.floats(-2.0, 2.0), st.just(math.nan))


@st.composite
def series(draw: st.DrawFn) -> PriceSeries:
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=12))
    edges = draw(st.integers(-50, 50)) + np.concatenate([[0], np.cumsum(lengths)]).astype(float)
    prices = draw(st.lists(PRICES, min_size=len(lengths), max_size=len(lengths)))
    return PriceSeries(edges[:-1], np.array(prices), float(edges[-1]))


def at(prices: PriceSeries, second: int) -> float:
    """The price of a second, looked up one by one."""
    found = math.nan
    if second < prices.until_s:
        for begin, price in zip(prices.starts_s, prices.per_kwh, strict=True):
            if begin <= second:
                found = float(price)
    return found


@given(series(), st.integers(-60, 200), st.integers(1, 60))
def test_an_integral_is_the_sum_over_every_second(prices: PriceSeries, begin: int, length: int) -> None:
    expected = sum(at(prices, second) for second in range(begin, begin + length))
    (found,) = prices.integrals(np.array([float(begin)]), np.array([float(begin + length)]))
    assert math.isnan(found) == math.isnan(expected)
    if not math.isnan(expected):
        assert math.isclose(found, expected, abs_tol=1e-9)


@pytest.mark.full
@given(series(), series())
def test_joined_prices_are_the_newer_and_elsewhere_the_older(older: PriceSeries, newer: PriceSeries) -> None:
    both = joined(older, newer)
    for second in range(-60, 320):
        inside = newer.from_s <= second < newer.until_s
        np.testing.assert_equal(at(both, second), at(newer if inside else older, second))


@given(series(), st.integers(-60, 300), st.integers(1, 50))
def test_a_part_of_a_series_has_its_prices(prices: PriceSeries, begin: int, length: int) -> None:
    part = prices.between(begin, begin + length)
    for second in range(begin - 2, begin + length + 2):
        expected = at(prices, second) if begin <= second < begin + length else math.nan
        np.testing.assert_equal(math.nan if part is None else at(part, second), expected)


@given(series(), st.integers(-60, 300), st.integers(1, 50))
def test_completed_prices_are_known_ones_and_never_lack(prices: PriceSeries, begin: int, length: int) -> None:
    whole = completed(prices, begin, begin + length, lambda at_s, days: at_s - days * DAY_S, 0.5)
    assert (whole.from_s, whole.until_s) == (begin, begin + length)
    assert np.isfinite(whole.per_kwh).all()
    for second in range(begin, begin + length):
        if not math.isnan(at(prices, second)):
            assert at(whole, second) == at(prices, second)


@given(series(), st.integers(-60, 300))
def test_prices_are_known_until_the_first_that_is_not(prices: PriceSeries, begin: int) -> None:
    until = begin
    while not math.isnan(at(prices, until)):
        until += 1
    assert prices.known_until(begin) == until
