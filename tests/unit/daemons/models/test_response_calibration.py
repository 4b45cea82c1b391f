"""The factor between measured and predicted response times: it follows, slowly, and within bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.response import Hyperbola
from daemons.models.response_calibration import BOUND, ResponseFactor, observed
from daemons.models.web_utility import FlowUtility, flow_utility

FLOW = flow_utility(Hyperbola(20.0, 1_000.0), 0.2, 0.03)
MHZ = 1_500.0


def after(count: int, times: float, flow: FlowUtility = FLOW, mhz: float = MHZ, answered: int = 500) -> ResponseFactor:
    """Windows of 20 s in which requests take so many times as long as the model says."""
    t_min_s = float(flow.t_min_s)
    response_s = t_min_s + times * (float(flow.response_s(mhz)) - t_min_s)
    factor = ResponseFactor()
    for _ in range(count):
        factor = observed(factor, flow, mhz, response_s, 20.0, answered)
    return factor


def test_a_model_that_is_right_is_left_alone() -> None:
    factor = after(100, 1.0)
    assert factor.value == pytest.approx(1.0)
    assert not factor.is_wrong


def test_one_window_changes_little_and_ten_minutes_correct_it() -> None:
    assert after(1, 1.5).value < 1.07
    assert after(30, 1.5).value == pytest.approx(1.5, rel=0.05)
    assert not after(100, 1.5).is_wrong


@pytest.mark.parametrize(("times", "bound"), [(2.0, 2.0), (50.0, 2.0), (0.5, 0.5), (0.0, 0.5)])
def test_it_stays_within_its_bounds_and_says_when_it_reaches_them(times: float, bound: float) -> None:
    factor = after(200, times)
    assert factor.value == pytest.approx(bound, rel=1e-3)
    assert factor.is_wrong


def test_what_is_small_against_the_goal_is_not_worth_an_alarm() -> None:
    """A network that takes 2 ms, beside work of 0.5 ms and a goal of 200 ms."""
    small = flow_utility(Hyperbola(0.25, 1_000.0), 0.2)
    factor = after(100, 5.0, small)
    assert factor.value == pytest.approx(2.0)
    assert not factor.is_wrong


def test_a_percentile_is_compared_with_that_of_the_model() -> None:
    assert after(100, 1.4, flow_utility(Hyperbola(20.0, 1_000.0), 0.6, 0.05, 0.95)).value == pytest.approx(
        1.4, rel=0.01
    )


@pytest.mark.parametrize(("mhz", "answered"), [(1_010.0, 500), (900.0, 500), (MHZ, 0)])
def test_windows_without_spare_cpu_or_answers_say_nothing(mhz: float, answered: int) -> None:
    assert observed(ResponseFactor(), FLOW, mhz, 5.0, 20.0, answered) == ResponseFactor()


def test_few_answers_count_less() -> None:
    assert 1.0 < after(30, 1.5, answered=5).value < after(30, 1.5).value


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1e9), st.floats(0.0, 1e6), st.floats(1e-3, 1e9), st.integers(0, 10**12)), max_size=20
    )
)
def test_whatever_is_measured_it_is_finite_and_bounded(windows: list[tuple[float, float, float, int]]) -> None:
    factor = ResponseFactor()
    for response_s, mhz, window_s, answered in windows:
        factor = observed(factor, FLOW, mhz, response_s, window_s, answered)
        assert math.isfinite(factor.log_sum)
        assert 1.0 / BOUND - 1e-9 <= factor.value <= BOUND + 1e-9


def test_a_factor_stretches_what_cpu_shortens_and_nothing_else() -> None:
    twice = flow_utility(Hyperbola(20.0, 1_000.0), 0.2, 0.03, factor=2.0)
    assert float(twice.response_s(MHZ)) - 0.03 == pytest.approx(2.0 * (float(FLOW.response_s(MHZ)) - 0.03))
    assert float(twice.mhz(twice.utility(MHZ))) == pytest.approx(MHZ)
