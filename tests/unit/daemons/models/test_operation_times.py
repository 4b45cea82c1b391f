"""How long operations take: the prior at first, the measured median soon, outliers never."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.operation_times import SAMPLES_MAX, Measured, OperationLine, line_of, with_measured

PAPER = OperationLine(0.0, 0.0353)  # suspend
START = OperationLine(3.6, 0.0)


def _samples(*pairs: tuple[float, float]) -> tuple[Measured, ...]:
    found: tuple[Measured, ...] = ()
    for mib, seconds in pairs:
        found = with_measured(found, mib, seconds)
    return found


def test_without_measurements_and_after_one_the_prior_holds() -> None:
    assert line_of((), PAPER) == PAPER
    assert line_of(_samples((1000.0, 2.0)), START).seconds(1000.0) == pytest.approx(3.6)


@pytest.mark.parametrize("prior", [PAPER, START, OperationLine(0.0, 0.0132)])
@pytest.mark.parametrize("real_s", [0.2, 2.0, 40.0])
@pytest.mark.parametrize("mib", [64.0, 4320.0])
def test_after_ten_of_a_size_the_prediction_is_within_30_percent_of_their_median(
    prior: OperationLine, real_s: float, mib: float
) -> None:
    """Far below and far above the prior, with a spread of a tenth and two that waited for minutes."""
    rng = np.random.default_rng(1)
    times = [real_s * rng.normal(1.0, 0.1) for _ in range(8)] + [300.0, 600.0]
    found = line_of(_samples(*((mib, seconds) for seconds in times)), prior)
    assert found.seconds(mib) == pytest.approx(median(times), rel=0.3)


def test_a_line_is_found_where_sizes_differ() -> None:
    rng = np.random.default_rng(2)
    sizes = rng.uniform(500.0, 8000.0, SAMPLES_MAX)
    found = line_of(_samples(*((mib, (5.0 + 0.01 * mib) * rng.normal(1.0, 0.05)) for mib in sizes)), PAPER)
    for mib in (500.0, 2000.0, 8000.0):
        assert found.seconds(mib) == pytest.approx(5.0 + 0.01 * mib, rel=0.15)


def test_the_newest_count() -> None:
    found = _samples(*[(1000.0, 100.0)] * 100, *[(1000.0, 10.0)] * 30)
    assert len(found) == SAMPLES_MAX
    assert line_of(found, PAPER).seconds(1000.0) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("mib", "seconds"), [(1.0, 0.0), (1.0, -1.0), (1.0, math.nan), (math.nan, 1.0), (math.inf, 1.0), (1.0, 1e9)]
)
def test_what_says_nothing_is_left_out(mib: float, seconds: float) -> None:
    assert with_measured((), mib, seconds) == ()


@given(
    st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(1e-3, 2e4)), max_size=SAMPLES_MAX),
    st.floats(0.0, 100.0),
    st.floats(0.0, 1.0),
)
def test_predictions_are_finite_and_never_fall_with_memory(
    pairs: list[tuple[float, float]], fixed_s: float, s_per_mib: float
) -> None:
    found = line_of(_samples(*pairs), OperationLine(fixed_s, s_per_mib))
    assert 0.0 <= found.fixed_s < math.inf
    assert 0.0 <= found.s_per_mib < math.inf


@given(st.floats(10.0, 1e5), st.lists(st.floats(0.01, 1e4), min_size=10, max_size=30), st.floats(0.0, 50.0))
def test_one_size_is_answered_by_a_middle_one_of_what_was_measured(
    mib: float, times: list[float], prior_s: float
) -> None:
    """The median of the measured and twice the prior, found by sorting."""
    ranked = sorted([*times, prior_s, prior_s])
    naive = (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2.0
    found = line_of(_samples(*((mib, seconds) for seconds in times)), OperationLine(prior_s, 0.0))
    assert found.seconds(mib) == pytest.approx(naive, rel=1e-9)
