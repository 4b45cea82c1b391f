"""What a history says of service times: its distribution, what is left by age, and what cannot be avoided."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.arrivals import work_of
from daemons.models.deadline.service_times import JOBS_LEAST, ServiceTimes, service_times, unavoidable

POSITIVE = st.floats(0.01, 1e6)


def known(done: list[float], running: list[float] | None = None) -> ServiceTimes:
    found = service_times(done, running or [])
    assert found is not None
    return found


def exponential(count: int, mean: float = 3.0, seed: int = 1) -> list[float]:
    return [float(each) for each in np.random.default_rng(seed).exponential(mean, count)]


def two_kinds(count: int = 600, seed: int = 2) -> list[float]:
    rng = np.random.default_rng(seed)
    runs = np.where(rng.random(count) < 0.1, rng.exponential(40.0, count), rng.exponential(1.0, count))
    return [float(run) for run in runs]


def test_nothing_is_known_of_nothing() -> None:
    assert service_times([], [5.0]) is None


@given(st.lists(POSITIVE, min_size=1, max_size=60), st.lists(POSITIVE, max_size=20))
def test_survival_is_a_probability_that_falls(done: list[float], running: list[float]) -> None:
    found = known(done, running)
    times = np.sort(np.concatenate((np.array([0.0, 1e9]), np.array(done), np.linspace(0.0, 2e6, 50))))
    left = found.survival(times)
    assert ((left >= 0.0) & (left <= 1.0)).all()
    assert (np.diff(left) <= 1e-12).all()
    assert math.isfinite(found.mean)
    assert found.mean > 0.0
    ages = np.array([0.0, 0.5, 10.0, 1e5, 1e9])
    rest = found.residual(ages, np.full(5, 3.0))
    assert ((rest >= 0.0) & (rest <= 1.0)).all()


def test_below_the_tail_survival_is_that_of_kaplan_and_meier() -> None:
    """Jobs that are not done count as long as they have run; by hand."""
    done = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0]
    found = known(done, [1.5])
    assert found.survival(np.array([0.9, 1.0, 1.9, 2.0])) == pytest.approx([1.0, 13 / 14, 13 / 14, 13 / 14 * 11 / 12])


def test_the_mean_is_near_that_of_the_forecast() -> None:
    """The tail is told larger by its standard error, the rest is the same estimate."""
    done = two_kinds()
    plain = work_of(done, [], 0.0)
    assert plain.mean < known(done).mean < 1.25 * plain.mean
    assert plain.mean == pytest.approx(float(np.mean(done)), rel=1e-9)


def test_a_job_of_an_age_takes_what_those_took_that_were_so_old() -> None:
    found, done = known(two_kinds()), np.array(two_kinds())
    old = done[done > 2.0]
    assert found.residual(np.array([2.0]), np.array([1.0]))[0] == pytest.approx(float((old > 3.0).mean()), abs=0.02)
    assert found.residual(np.array([0.0]), np.array([1.0]))[0] == pytest.approx(float((done > 1.0).mean()), abs=1e-9)


def test_beyond_what_was_seen_nothing_is_forgotten() -> None:
    """In the tail the age says no more, and an age beyond all numbers is no trouble."""
    found = known(two_kinds())
    rest = found.residual(np.array([500.0, 1e6, 1e300]), np.full(3, found.tail))
    assert rest == pytest.approx([math.exp(-1.0)] * 3)


@pytest.mark.parametrize("seed", range(20))
def test_an_exponential_is_taken_for_one(seed: int) -> None:
    assert known(exponential(400, seed=seed)).is_exponential


def test_what_is_no_exponential_is_told_apart() -> None:
    assert not known(two_kinds()).is_exponential
    assert not known([5.0] * 200).is_exponential


def test_of_few_jobs_nothing_is_concluded() -> None:
    assert known(two_kinds(JOBS_LEAST - 1)).is_exponential


def test_phases_have_the_long_jobs_that_were_seen() -> None:
    """Where an exponential of the same mean would all but rule them out."""
    found, done = known(two_kinds()), np.array(two_kinds())
    phases = found.phases()
    assert phases.mean == pytest.approx(found.mean)
    for time in (40.0, 80.0):
        seen = float((done > time).mean())
        assert phases.survival(np.array([time]))[0] == pytest.approx(seen, abs=0.02)
        assert seen > 5.0 * math.exp(-time / found.mean)


def test_phases_of_what_varies_less() -> None:
    found = known([4.0, 5.0, 6.0] * 40).phases()
    assert found.count > 2
    assert found.mean == pytest.approx(5.0, rel=0.05)


def naive_unavoidable(
    times: ServiceTimes, ages: list[float], waiting: int, left: float, arrivals: list[float], draws: int = 40_000
) -> float:
    """By drawing: every job begins at once. Intervals of 1."""
    rng = np.random.default_rng(9)

    def drawn(count: int, age: float) -> np.ndarray:
        grid = np.concatenate((np.linspace(0.0, 60.0, 4_000), np.geomspace(61.0, 5_000.0, 2_000)))
        rest = times.residual(np.full(grid.size, age), grid)
        return np.interp(rng.random(count), rest[::-1], grid[::-1])

    missed = np.zeros(draws, dtype=bool)
    for age in ages:
        missed |= drawn(draws, age) > left
    for _ in range(waiting):
        missed |= drawn(draws, 0.0) > left
    for interval, mean in enumerate(arrivals):
        rest = left - (len(arrivals) - (len(arrivals) - interval))
        for _ in range(8):
            comes = rng.random(draws) < mean / 8.0
            missed |= comes & (drawn(draws, 0.0) > rest - rng.random(draws))
    return float(missed.mean())


def test_what_no_number_of_nodes_can_keep() -> None:
    """Against draws of the same distribution."""
    times = known(two_kinds())
    ages, arrivals = [0.5, 3.0, 30.0], [0.3, 0.2, 0.1, 0.0, 0.0]
    found = unavoidable(times, np.array(ages), 3, 5.0, np.array(arrivals), np.ones(5))
    assert found == pytest.approx(naive_unavoidable(times, ages, 3, 5.0, arrivals), abs=0.02)


def test_an_old_job_is_a_danger_and_a_young_one_is_not() -> None:
    times = known(two_kinds())
    nothing = np.zeros(0)
    risks = [unavoidable(times, np.array([age]), 0, 10.0, nothing, nothing) for age in (0.1, 2.0, 20.0)]
    assert risks == sorted(risks)
    assert risks[0] < 0.15 < 0.6 < risks[2]


def test_at_the_deadline_what_is_left_is_missed() -> None:
    times, nothing = known(two_kinds()), np.zeros(0)
    assert unavoidable(times, np.array([1.0]), 0, 0.0, nothing, nothing) == 1.0
    assert unavoidable(times, nothing, 2, 0.0, nothing, nothing) == 1.0
    assert unavoidable(times, nothing, 0, 0.0, nothing, nothing) == 0.0
    assert unavoidable(times, nothing, 0, 9.0, nothing, nothing) == 0.0


def test_many_jobs_are_no_trouble() -> None:
    times = known(two_kinds())
    found = unavoidable(times, np.full(5_000, 1.0), 5_000, 1e4, np.full(96, 50.0), np.full(96, 100.0))
    assert 0.0 < found < 1.0
