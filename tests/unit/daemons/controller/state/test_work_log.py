"""What instances have worked beside what was answered meanwhile."""

from __future__ import annotations

import pytest

from daemons.controller.state.work_log import WorkLog


def test_counters_that_are_read_at_other_times_are_brought_to_those_of_the_requests() -> None:
    """CPU is read at 10, 70, 130 s, requests are counted at 60 and 120 s; the instance works 5 Mcycles a second until
    70 s and 8 from then on."""
    log = WorkLog()
    for at_s, done in ((10.0, 0.0), (70.0, 300.0), (130.0, 780.0)):
        log.worked("a", 1, at_s, done)
    log.answered(10.0, 60.0, {"browse": 25}, 1)
    log.answered(60.0, 120.0, {"browse": 45}, 1)
    (window,) = log.windows(["a"])  # the first is too short, and is put to the second
    assert window.seconds == 110.0
    assert window.used_mcycles == pytest.approx(5.0 * 60.0 + 8.0 * 50.0)
    assert [(one.flow, one.served) for one in window.served] == [("browse", 70)]


@pytest.mark.parametrize("lag_s", [0.0, 0.3, 0.6, 0.9])
def test_no_work_is_lost_where_counters_are_read_shortly_before_each_sample(lag_s: float) -> None:
    """Given an instance of 5 Mcycles a second, whose counter is read a moment before each sample of a second, then
    windows have all of its work but that of the last moment."""
    log, windows = WorkLog(), []
    log.worked("a", 1, 0.0 - lag_s, 0.0)
    for second in range(1, 601):
        log.worked("a", 1, second - lag_s, 5.0 * second)
        log.answered(second - 1.0, float(second), {"browse": 10}, 1)
        windows += log.windows(["a"])
    assert sum(window.seconds for window in windows) == pytest.approx(600.0)
    assert sum(window.used_mcycles for window in windows) == pytest.approx(3_000.0, abs=5.0)


def test_work_between_samples_that_do_not_follow_each_other_is_in_no_window() -> None:
    log = WorkLog()
    for at_s in (0.0, 60.0, 120.0, 180.0):
        log.worked("a", 1, at_s, 5.0 * at_s)
    log.answered(0.0, 60.0, {"browse": 10}, 1)
    log.answered(120.0, 180.0, {"browse": 10}, 1)
    assert [window.used_mcycles for window in log.windows(["a"])] == [300.0, 300.0]


@pytest.mark.parametrize(
    ("read_s", "served", "seconds"), [(1.0, 100, 20.0), (1.0, 10, 60.0), (5.0, 100, 60.0), (1.0, 40, 25.0)]
)
def test_a_window_is_shorter_where_counters_are_read_often_and_much_is_answered(
    read_s: float, served: int, seconds: float
) -> None:
    """Given two instances read every `read_s`, and so many answers each second, then the window ends after 20 readings
    and 1,000 answers, or after 60 s; its work is that of its time."""
    log, windows = WorkLog(), []
    for second in range(71):
        if second % read_s == 0.0:
            log.worked("a", 1, float(second), 5.0 * second)
            log.worked("b", 1, float(second), 3.0 * second)
        if second:
            log.answered(second - 1.0, float(second), {"browse": served // 2, "buy": served - served // 2}, 2)
            windows += log.windows(["a", "b"])
    assert windows[0].seconds == pytest.approx(seconds)
    assert windows[0].used_mcycles == pytest.approx(8.0 * seconds)
    assert sum(flow.served for flow in windows[0].served) == served * round(seconds)


def test_a_window_waits_until_every_instance_has_been_heard_of_since() -> None:
    log = WorkLog()
    for vm in ("a", "b"):
        log.worked(vm, 1, 0.0, 0.0)
    log.answered(0.0, 60.0, {"browse": 10}, 2)
    log.worked("a", 1, 65.0, 65.0)
    assert log.windows(["a", "b"]) == []
    log.worked("b", 1, 65.0, 130.0)
    (window,) = log.windows(["a", "b"])
    assert window.used_mcycles == pytest.approx(60.0 + 120.0)
    assert window.instances == 2


def test_one_that_is_gone_is_not_waited_for_and_its_work_counts() -> None:
    log = WorkLog()
    for vm in ("a", "b"):
        log.worked(vm, 1, 0.0, 0.0)
    log.worked("b", 1, 30.0, 90.0)
    log.answered(0.0, 60.0, {"browse": 10}, 1)
    log.worked("a", 1, 60.0, 60.0)
    (window,) = log.windows(["a"])
    assert window.used_mcycles == pytest.approx(60.0 + 90.0)


def test_a_restarted_instance_counts_from_nothing() -> None:
    """The work of an instance that was lost and started again is not taken from what was done before."""
    log = WorkLog()
    log.worked("a", 1, 0.0, 5_000.0)
    log.worked("a", 2, 60.0, 700.0)
    log.answered(0.0, 60.0, {"browse": 10}, 1)
    (window,) = log.windows(["a"])
    assert window.used_mcycles == 700.0


def test_nothing_is_closed_before_an_instance_is_known() -> None:
    log = WorkLog()
    log.answered(0.0, 60.0, {"browse": 10}, 0)
    assert log.windows([]) == []
    assert log.windows(["a"]) == []


def test_what_waits_is_bounded() -> None:
    """Given a node that is silent for hours, then memory does not grow, and the newest samples are kept."""
    log = WorkLog()
    log.worked("a", 1, 0.0, 0.0)
    for number in range(10_000):
        log.answered(60.0 * number, 60.0 * (number + 1), {"browse": 1}, 1)
        assert log.windows(["a"]) == []
    log.worked("a", 1, 600_000.0, 1.0)
    assert 0 < len(log.windows(["a"])) <= 32
