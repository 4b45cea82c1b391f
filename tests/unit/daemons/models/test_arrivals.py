"""Estimates of arrivals and of work: shrunk where little is known, right where much is, with bands that hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.arrivals import (
    CountedDays,
    WorkEstimate,
    count_band,
    joined_work,
    left_work_band,
    most_likely_at_most,
    profile_of,
    type_speeds,
    work_of,
)

SLOTS = 8


def days(counts: np.ndarray, weekdays: np.ndarray | None = None, exposure: np.ndarray | None = None) -> CountedDays:
    """History of as many days as there are rows, the last of them yesterday."""
    number = len(counts)
    return CountedDays(
        counts.astype(np.float64),
        np.ones_like(counts, dtype=np.float64) if exposure is None else exposure,
        np.arange(number) % 7 if weekdays is None else weekdays,
        np.arange(number, 0.0, -1.0),
    )


def test_without_history_what_is_declared_is_expected() -> None:
    """Given no day at all, then every slot has the declared number, or none where nothing is declared."""
    empty = days(np.empty((0, SLOTS)))

    assert profile_of(empty, 0, 3.0).rates == pytest.approx(np.full(SLOTS, 3.0))
    assert profile_of(empty, 0, 0.0).rates == pytest.approx(np.zeros(SLOTS))


def test_a_day_moves_the_forecast_part_of_the_way() -> None:
    """Given one day with twice the declared number, then the forecast is between the two."""
    profile = profile_of(days(np.full((1, SLOTS), 6)), 0, 3.0)

    assert (profile.rates > 3.0).all()
    assert (profile.rates < 6.0).all()


def test_long_history_is_followed() -> None:
    """Given ten weeks of busy Saturdays, then their profile and that of a Monday come within a tenth of the truth."""
    rng = np.random.default_rng(7)
    shape = 40.0 * np.sin(np.linspace(0.2, 3.0, SLOTS))
    weekdays = np.arange(70) % 7
    rate = shape * np.where(weekdays == 5, 2.0, 1.0)[:, None]
    history = days(rng.poisson(rate), weekdays)

    saturday, monday = profile_of(history, 5, 1.0), profile_of(history, 0, 1.0)

    assert saturday.rates.sum() == pytest.approx(2.0 * shape.sum(), rel=0.1)
    assert monday.rates.sum() == pytest.approx(shape.sum(), rel=0.1)
    assert saturday.spread < 0.05


def test_days_that_differ_widen_the_spread() -> None:
    """Given days of wildly different numbers, then the spread is near their relative variance, and far above that of
    days that differ by chance alone."""
    rng = np.random.default_rng(3)
    busy = rng.gamma(2.0, 0.5, 200)[:, None]
    varied = profile_of(days(rng.poisson(50.0 * busy * np.ones((200, SLOTS)))), 0, 0.0)
    even = profile_of(days(rng.poisson(50.0 * np.ones((200, SLOTS)))), 0, 0.0)

    assert 0.25 < varied.spread < 0.75
    assert even.spread < 0.01


def test_a_slot_that_came_twice_counts_by_its_exposure() -> None:
    """Given a slot with twice the jobs since it came twice, then it is expected to be like the others."""
    counts, exposure = np.full((28, SLOTS), 10.0), np.ones((28, SLOTS))
    counts[:, 3], exposure[:, 3] = 20.0, 2.0

    rates = profile_of(days(counts, exposure=exposure), 0, 0.0).rates

    assert rates[3] == pytest.approx(rates[0], rel=0.02)


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.5])
def test_bands_are_quantiles(spread: float) -> None:
    """Given means from 0 to 1,000, then the band ends where the exact distributions of scipy.stats say."""
    means = np.array([0.0, 0.3, 4.0, 55.0, 1000.0])

    low, high = count_band(means, np.full(5, spread), 0.99)

    if spread:
        exact = stats.nbinom(1.0 / spread, (1.0 / spread) / (1.0 / spread + means[1:]))
    else:
        exact = stats.poisson(means[1:])
    assert low[1:].tolist() == exact.ppf(0.005).tolist()
    assert high[1:].tolist() == exact.ppf(0.995).tolist()
    assert (low[0], high[0]) == (0.0, 0.0)


def test_what_was_expected_at_most() -> None:
    """Given a count, then its Poisson mean is below the bound with the stated probability, at the edge."""
    bound = most_likely_at_most(7.0)

    assert stats.poisson.cdf(7, bound) == pytest.approx(0.025, abs=1e-9)


def test_work_without_jobs_is_as_declared() -> None:
    """Given nothing, then the declared work stands; jobs that have got more than that raise it before one is done."""
    assert work_of((), (), 100.0).mean == 100.0
    assert work_of((), (400.0, 350.0), 100.0).mean > 200.0
    assert work_of((), (), 0.0).mean == 0.0


def test_running_jobs_count_with_what_they_have_got() -> None:
    """Given exponential work cut off at random, then Kaplan-Meier finds mean and variation; the mean of the completed
    ones alone is far too short."""
    rng = np.random.default_rng(5)
    work, cut = rng.exponential(100.0, 4000), rng.uniform(0.0, 200.0, 4000)
    done, running = work[work <= cut], cut[work > cut]

    found = work_of(done.tolist(), running.tolist(), 0.0)

    assert found.mean == pytest.approx(100.0, rel=0.06)
    assert found.cv == pytest.approx(1.0, rel=0.1)
    assert done.mean() < 60.0
    low, high = found.band()
    assert low < 100.0 < high


def test_work_that_does_not_vary_is_known_well() -> None:
    """Given equal jobs, then mean and error are near the truth though five declared ones count."""
    found = work_of([50.0] * 200, (), 50.0)

    assert found.mean == pytest.approx(50.0)
    assert found.error < 0.02
    assert found.cv < 0.2


def test_longer_jobs_leave_the_band() -> None:
    """Given a good forecast, then jobs of its own length stay in its band, half as much again leaves it, and so few
    that it may be chance do not."""
    forecast = WorkEstimate(100.0, 0.05, 1.0, 400)

    assert not left_work_band(WorkEstimate(110.0, 0.1, 1.0, 100), forecast)
    assert left_work_band(WorkEstimate(150.0, 0.1, 1.0, 100), forecast)
    assert left_work_band(WorkEstimate(60.0, 0.1, 1.0, 100), forecast)
    assert not left_work_band(WorkEstimate(400.0, 0.5, 1.0, 3), forecast)


def test_types_of_nodes_are_compared_by_jobs_of_a_class() -> None:
    """Given jobs of two classes that need twice the cycles on one type of node, then that type is slower, each class
    being compared with itself; few jobs say little."""
    work = [100.0] * 100 + [200.0] * 100 + [1000.0] * 100 + [2000.0] * 100
    types = (["fast"] * 100 + ["slow"] * 100) * 2
    classes = ["short"] * 200 + ["long"] * 200

    speeds = type_speeds(work, types, classes)

    assert speeds["fast"] / speeds["slow"] == pytest.approx(2.0, rel=0.06)
    few = type_speeds([100.0, 200.0], ["fast", "slow"], ["short", "short"])
    assert few["fast"] / few["slow"] < 1.1
    assert type_speeds([100.0], [""], ["short"]) == {}


def test_a_few_long_jobs_do_not_outweigh_what_was_known() -> None:
    """Given a forecast that rests on 100 jobs, when 20 jobs of a period are five times as long, then two thirds more
    are likely; when there are 2,000 of them, nearly all of it. One that rests on nothing counts as five jobs."""
    forecast = WorkEstimate(600.0, 0.1, 1.0, 0)
    likely = joined_work(forecast, WorkEstimate(3_000.0, 0.2, 1.0, 20))
    assert likely.mean == pytest.approx(1_000.0)
    assert likely.error == pytest.approx(1.0 / math.sqrt(120.0))
    assert joined_work(forecast, WorkEstimate(3_000.0, 0.2, 1.0, 2_000)).mean == pytest.approx(2_886.0, rel=1e-3)
    assert joined_work(WorkEstimate(600.0, 2.0, 1.0, 0), WorkEstimate(1_200.0, 1.0, 1.0, 5)).mean == pytest.approx(
        900.0
    )
