"""The job profiler: quantiles by hand, newer jobs first, and when there is too little to say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daemons.models.job_profiler import (
    FinishedJob,
    JobProfileStatus,
    ProfileParams,
    Quantity,
    profile_of,
    weighted_quantile,
)
from shared.base.errors import InvalidValue

EVEN = ProfileParams(half_life=math.inf)


def _jobs(*works: float) -> list[FinishedJob]:
    return [FinishedJob(work, 1000.0 + k, 512.0 + k) for k, work in enumerate(works)]


def test_quantiles_by_hand() -> None:
    found = profile_of(_jobs(10.0, 50.0, 30.0, 20.0, 40.0), EVEN)

    assert found.standing is JobProfileStatus.ESTIMATED
    assert found.work_mcycles.value == 30.0
    assert found.max_mhz.value == 1004.0  # nine tenths of five jobs are all five
    assert found.memory_mib.value == 516.0
    assert (found.jobs, found.effective) == (5, 5.0)


def test_the_weighted_quantile_is_the_least_value_with_enough_weight() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])

    assert [weighted_quantile(values, weights, q) for q in (0.0, 0.5, 0.51, 0.75, 0.76, 1.0)] == [1, 1, 2, 2, 3, 3]
    # Seven weights of 0.1 of twelve add up to a rounding less than 7 / 12 of all.
    assert weighted_quantile(np.arange(12.0), np.full(12, 0.1), 7 / 12) == 6.0


@pytest.mark.parametrize("count", range(5))
def test_fewer_than_the_least_count_are_not_enough(count: int) -> None:
    found = profile_of(_jobs(*[10.0] * count))

    assert (found.standing, found.jobs) == (JobProfileStatus.NOT_ENOUGH, count)
    assert math.isnan(found.work_mcycles.value)
    assert profile_of(_jobs(*[10.0] * 5)).standing is JobProfileStatus.ESTIMATED


def test_a_few_wild_jobs_do_not_move_the_median() -> None:
    calm = profile_of(_jobs(*[100.0] * 20))
    wild = profile_of(_jobs(*[100.0] * 15, 1e12, 1e12, 0.0, 100.0, 100.0))

    assert wild.work_mcycles.value == calm.work_mcycles.value == 100.0
    assert calm.work_mcycles.half_width_frac == 0.0


def test_newer_jobs_weigh_more() -> None:
    jobs = _jobs(*[100.0] * 60, *[300.0] * 40)

    assert profile_of(jobs, EVEN).work_mcycles.value == 100.0
    assert profile_of(jobs, ProfileParams(half_life=20.0)).work_mcycles.value == 300.0
    assert profile_of(jobs, ProfileParams(half_life=20.0)).effective < 100.0


def test_the_interval_holds_the_median_about_as_often_as_it_says() -> None:
    """Of 300 samples of 40 log-normal jobs at most 7 % miss the true median."""
    rng = np.random.default_rng(5)
    misses = 0
    for _ in range(300):
        work = profile_of(_jobs(*rng.lognormal(3.0, 1.0, 40)), EVEN).work_mcycles
        misses += not work.low <= math.exp(3.0) <= work.high

    assert 1 <= misses <= 21


def test_the_interval_narrows_with_more_jobs() -> None:
    rng = np.random.default_rng(6)
    few, many = (profile_of(_jobs(*rng.lognormal(3.0, 0.5, n)), EVEN) for n in (8, 150))

    assert many.work_mcycles.half_width_frac < 0.5 * few.work_mcycles.half_width_frac


def test_a_single_job_and_jobs_without_work() -> None:
    alone = profile_of(_jobs(70.0), ProfileParams(jobs_min=1))
    empty = profile_of(_jobs(*[0.0] * 6, 10.0, 10.0), EVEN)

    assert alone.work_mcycles == Quantity(70.0, 70.0, 70.0)
    assert empty.work_mcycles.half_width_frac == math.inf


def test_figures_out_of_range_are_refused() -> None:
    for figures in ((-1.0, 1.0, 1.0), (1.0, math.nan, 1.0), (1.0, 1.0, math.inf)):
        with pytest.raises(InvalidValue):
            FinishedJob(*figures)
    for wrong in ({"work_quantile": 1.1}, {"speed_quantile": math.nan}, {"half_life": 0.0}, {"jobs_min": 0}):
        with pytest.raises(InvalidValue):
            ProfileParams(**wrong)
