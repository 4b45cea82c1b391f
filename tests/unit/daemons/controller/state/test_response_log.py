"""Samples of response times are put together while the CPU stays the same."""

from __future__ import annotations

from daemons.controller.state.response_log import LEAST_S, MOST_S, ResponseLog, SteadyWindow
from shared.values.web_app import FlowSample


def second(served: int = 10) -> FlowSample:
    return FlowSample("browse", 1.0, offered=served, served=served, mean_s=0.1)


def windows(log: ResponseLog, begin: int, end: int) -> list[SteadyWindow]:
    return [window for at in range(begin + 1, end + 1) for window in log.answered(float(at), [second(at)])]


def served(window: SteadyWindow) -> list[int]:
    return [one.served for one in window.flows["browse"]]


def test_a_window_ends_after_its_greatest_length() -> None:
    log = ResponseLog()
    log.given(500.0, 0.0)
    first, other = windows(log, 0, 2 * round(MOST_S))
    assert (first.mhz, served(first)) == (500.0, [*range(1, 61)])
    assert served(other) == [*range(61, 121)]


def test_a_window_ends_where_the_cpu_changes() -> None:
    log = ResponseLog()
    log.given(500.0, 0.0)
    assert windows(log, 0, 20) == []
    log.given(505.0, 20.0)  # 1 %
    assert windows(log, 20, 30) == []
    log.given(600.0, 30.1)
    (window,) = windows(log, 30, 40)
    assert (window.mhz, served(window)) == (500.0, [*range(1, 31)])
    assert [served(one) for one in log.close()] == [[*range(31, 41)]]


def test_a_sample_in_which_the_cpu_changed_is_in_no_window() -> None:
    log = ResponseLog()
    log.given(500.0, 0.0)
    windows(log, 0, 10)
    log.given(600.0, 10.5)
    assert [served(one) for one in windows(log, 10, 20)] == [[*range(1, 11)]]
    assert [served(one) for one in log.close()] == [[*range(12, 21)]]


def test_a_short_window_is_none() -> None:
    log = ResponseLog()
    log.given(500.0, 0.0)
    windows(log, 0, round(LEAST_S) - 1)
    assert log.close() == []
    assert log.close() == []


def test_nothing_is_kept_without_samples_or_cpu() -> None:
    log = ResponseLog()
    assert windows(log, 0, 100) == []
    log.given(500.0, 100.0)
    assert log.answered(101.0, []) == []
    assert log.flows == {}
