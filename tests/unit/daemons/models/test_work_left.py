"""Work left of jobs beyond what they declared: against sampling, at the ends, and what a history of ratios comes to."""

from __future__ import annotations

import math
from statistics import fmean, pvariance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.work_left import (
    COUNT_MAX,
    FIRST_STEP,
    NO_HISTORY,
    RatioHistory,
    is_off,
    mean_left,
    with_ended,
    work_left,
)


def _history(*ratios: float) -> RatioHistory:
    found = NO_HISTORY
    for ratio in ratios:
        found = with_ended(found, 1000.0, 1000.0 * ratio)
    return found


def _left(history: RatioHistory, done: float, declared: float = 1000.0) -> tuple[float, float, float]:
    found = work_left([declared], [done], history.count, history.mean, history.variance)
    return found.mean.item(), found.low.item(), found.high.item()


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20))
def test_a_history_is_mean_and_variance_of_the_logarithms(ratios: list[float]) -> None:
    logs = [math.log(ratio) for ratio in ratios]
    found = _history(*ratios)
    assert found.count == len(ratios)
    assert found.mean == pytest.approx(fmean(logs), abs=1e-9)
    assert found.variance == pytest.approx(pvariance(logs), abs=1e-9)


def test_older_jobs_count_less_and_less() -> None:
    found = _history(*[1.0] * 500, *[2.0] * 100)
    assert found.count == COUNT_MAX
    assert math.exp(found.mean) > 1.8


@pytest.mark.parametrize(("declared", "work"), [(0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1.0, math.nan), (-1.0, 2.0)])
def test_amounts_that_say_nothing_are_left_out(declared: float, work: float) -> None:
    assert with_ended(NO_HISTORY, declared, work) == NO_HISTORY


def test_without_history_work_left_grows_with_the_excess() -> None:
    for excess in (0.0, 0.1, 1.0, 10.0):
        mean, low, high = _left(NO_HISTORY, 1000.0 * (1.0 + excess))
        scale = 1000.0 * (excess + FIRST_STEP)
        assert mean == pytest.approx(scale)
        assert low == pytest.approx(scale * (0.9**-0.5 - 1.0))
        assert high == pytest.approx(scale * (0.1**-0.5 - 1.0))


def test_a_class_that_takes_twice_what_it_declares_says_so() -> None:
    history = _history(*np.random.default_rng(1).lognormal(math.log(2.0), 0.1, 40).tolist())
    mean, low, high = _left(history, 1000.0)
    assert mean == pytest.approx(1000.0, rel=0.1)
    assert 500.0 < low < mean < high < 1500.0
    later, *_ = _left(history, 1900.0)
    assert 50.0 < later < 400.0


def test_who_is_far_beyond_what_its_class_took_is_not_about_to_end() -> None:
    """All forty ended within 2 % of what they declared; this one is at twice that."""
    history = _history(*np.random.default_rng(2).normal(1.0, 0.01, 40).tolist())
    assert _left(history, 1005.0)[0] < 60.0
    assert _left(history, 2000.0)[0] > 500.0


@pytest.mark.parametrize(
    ("count", "mean", "variance", "reached"), [(0, 0.0, 0.0, 1.3), (10, 0.2, 0.09, 1.1), (30, 0.5, 0.04, 2.0)]
)
def test_mean_and_quantiles_are_those_of_samples(count: int, mean: float, variance: float, reached: float) -> None:
    """Jobs drawn from both laws that come so far."""
    rng = np.random.default_rng(3)
    total = count + 1.0
    middle = count * mean / total
    spread = math.sqrt((0.0625 + count * variance + count * mean**2 / total) / total)
    own = rng.random(2_000_000) < count / total
    ratio = np.where(
        own, rng.lognormal(middle, spread, own.size), 1.0 + FIRST_STEP * (rng.random(own.size) ** -0.5 - 1.0)
    )
    left = ratio[ratio > reached] - reached
    found = work_left([1.0], [reached], count, mean, variance)
    assert found.low.item() == pytest.approx(float(np.quantile(left, 0.1)), rel=0.03)
    assert found.high.item() == pytest.approx(float(np.quantile(left, 0.9)), rel=0.03)
    if count:
        assert found.mean.item() == pytest.approx(float(left.mean()), rel=0.1)


@given(
    st.floats(1e-3, 1e12), st.floats(1.0, 1e6), st.integers(0, COUNT_MAX), st.floats(-7.0, 7.0), st.floats(0.0, 50.0)
)
def test_the_interval_is_finite_ordered_and_above_nothing(
    declared: float, reached: float, count: int, mean: float, variance: float
) -> None:
    found = work_left([declared], [declared * reached], count, mean, variance)
    assert 0.0 <= found.low.item() <= found.high.item() < math.inf
    assert 0.0 < found.mean.item() < math.inf


def test_many_at_once_are_as_one_by_one_and_none_is_none() -> None:
    rng = np.random.default_rng(4)
    columns = (
        rng.uniform(1, 9, 50),
        rng.uniform(9, 90, 50),
        rng.integers(0, 50, 50),
        rng.normal(0, 1, 50),
        rng.random(50),
    )
    found = work_left(*columns)
    for at, row in enumerate(zip(*columns, strict=True)):
        one = work_left(*([value] for value in row))
        assert (one.mean.item(), one.low.item(), one.high.item()) == (found.mean[at], found.low[at], found.high[at])
    assert work_left([], [], [], [], []).mean.size == 0


def test_within_what_was_declared_a_group_says_how_much_is_left() -> None:
    """Forty jobs took half of what they declared; a job of theirs at a quarter has about as much before it."""
    history = _history(*np.random.default_rng(5).lognormal(math.log(0.5), 0.05, 40).tolist())
    mean, low, high = _left(history, 250.0)
    assert mean == pytest.approx(265.0, rel=0.1)
    assert low < mean < high
    assert _left(history, 0.0)[0] == pytest.approx(515.0, rel=0.05)
    far, *_ = _left(history, 900.0)
    assert far == pytest.approx(1000.0 * (0.1 + FIRST_STEP), rel=0.1)


@given(st.floats(0.0, 3.0), st.integers(0, COUNT_MAX), st.floats(-3.0, 3.0), st.floats(0.0, 4.0))
def test_the_mean_alone_is_the_mean(reached: float, count: int, mean: float, variance: float) -> None:
    found = mean_left([10.0], [10.0 * reached], count, mean, variance)
    assert found.tolist() == work_left([10.0], [10.0 * reached], count, mean, variance).mean.tolist()
    assert 0.0 < found.item() < math.inf


@pytest.mark.parametrize(
    ("ratios", "off"),
    [
        ([], False),
        ([0.5], False),
        ([0.77] * 10, True),
        ([1.3] * 10, True),
        ([1.0] * 50, False),
        ([1.03] * 50, False),  # little matters not
        ([0.3, 3.0] * 10, False),
    ],
)
def test_what_was_declared_stands_until_it_is_excluded(ratios: list[float], off: bool) -> None:
    assert is_off(_history(*ratios)) is off
