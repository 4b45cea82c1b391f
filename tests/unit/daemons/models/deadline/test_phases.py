"""Service times as phases in a row: their moments, what is fitted, and the phase of a job by its age."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.linalg import expm  # type: ignore[import-untyped]

from daemons.models.deadline.phases import PHASES_MAX, Phases, counts_by_phase, fitted, hyperexponential
from shared.base.errors import InvalidValue

AGES = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0])


@given(st.floats(1e-3, 1e6), st.floats(1.0 / math.sqrt(PHASES_MAX), 50.0))
def test_a_fit_has_the_mean_and_the_variation_wanted(mean: float, cv: float) -> None:
    found = fitted(mean, cv)
    assert found.mean == pytest.approx(mean, rel=1e-9)
    assert found.cv == pytest.approx(cv, rel=1e-5)


@pytest.mark.parametrize("cv", [1e-6, 0.1, 0.49])
def test_less_variation_than_the_phases_have_is_taken_for_theirs(cv: float) -> None:
    """It is on the safe side: the same mean, more spread."""
    found = fitted(3.0, cv)
    assert [found.mean, found.cv] == pytest.approx([3.0, 1.0 / math.sqrt(PHASES_MAX)])


def test_no_variation_beyond_an_exponential_is_one() -> None:
    assert fitted(2.0, 1.0) == Phases((0.5,))


@given(st.floats(0.01, 0.4), st.floats(2.0, 40.0))
def test_two_kinds_of_jobs_as_phases_in_a_row(share: float, long: float) -> None:
    """Survival is the mixture of both, exactly, where the long ones leave time to the others."""
    mean = 1.0
    if share * long >= 1.0:
        with pytest.raises(InvalidValue):
            hyperexponential(mean, share, long)
        return
    assume(share * long < 0.95)
    short = (mean - share * long) / (1.0 - share)
    found = hyperexponential(mean, share, long)
    times = np.array([0.0, 0.3, 1.0, 4.0, 20.0])
    wanted = share * np.exp(-times / long) + (1.0 - share) * np.exp(-times / short)
    assert found.survival(times) == pytest.approx(wanted, abs=1e-12)
    assert found.mean == pytest.approx(mean)


@pytest.mark.parametrize("phases", [Phases((2.0,)), fitted(1.0, 3.0), fitted(1.0, 0.6), fitted(1.0, 0.5)])
def test_the_phase_by_age_is_that_of_those_not_done(phases: Phases) -> None:
    """By the definition, one age at a time."""
    for age, found in zip(AGES, phases.phase_by_age(AGES), strict=True):
        there = expm(age * phases.generator())[0]
        if there.sum() > 1e-200 and age <= 60.0 / min(phases.rates):
            assert found == pytest.approx(there / there.sum(), abs=1e-9)
        assert found.sum() == pytest.approx(1.0)


def test_old_jobs_are_long_ones() -> None:
    """The older, the surer; an age beyond all measure is in the last phase."""
    late = hyperexponential(1.0, 0.1, 6.0).phase_by_age(np.array([0.0, 0.5, 1.0, 2.0, 5.0, 1e9]))[:, 1]
    assert late[0] == 0.0
    assert (np.diff(late) > 0.0).all()
    assert late[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("cv", [3.0, 0.7, 0.55])
def test_counts_by_phase_are_those_of_independent_jobs(cv: float) -> None:
    """Against every combination of phases, with the number that counts as the most."""
    phases, ages, most = fitted(1.0, cv), [0.1, 0.5, 2.0, 4.0], 3
    chances = phases.phase_by_age(np.array(ages))
    wanted = np.zeros((most + 1,) * (phases.count - 1))
    for each in itertools.product(range(phases.count), repeat=len(ages)):
        place = tuple(min(each.count(phase), most) for phase in range(1, phases.count))
        wanted[place] += math.prod(chances[job, phase] for job, phase in enumerate(each))
    assert counts_by_phase(phases, ages, most) == pytest.approx(wanted, abs=1e-12)


def test_counts_without_any_job() -> None:
    assert counts_by_phase(fitted(1.0, 3.0), [], 2).tolist() == [1.0, 0.0, 0.0]
    assert counts_by_phase(Phases((1.0,)), [1.0, 2.0], 2).shape == ()


@pytest.mark.parametrize(
    ("rates", "goes"),
    [
        ((), ()),
        ((0.0,), ()),
        ((math.nan,), ()),
        ((math.inf,), ()),
        ((1.0,), (0.5,)),
        ((1.0, 1.0), (1.1,)),
        ((1.0,) * 5, (1.0,) * 4),
    ],
)
def test_what_are_no_phases_is_refused(rates: tuple[float, ...], goes: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValue):
        Phases(rates, goes)


@pytest.mark.parametrize(("mean", "cv"), [(0.0, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan)])
def test_what_cannot_be_fitted_is_refused(mean: float, cv: float) -> None:
    with pytest.raises(InvalidValue):
        fitted(mean, cv)


def test_longer_jobs_have_slower_phases() -> None:
    found = fitted(2.0, 3.0).scaled(1.5)
    assert [found.mean, found.cv] == pytest.approx([3.0, 3.0])
