"""The true course of a live migration."""

from __future__ import annotations

import math

import pytest

from sim_backend.world.migrating import SWITCH_S, Course, GuestMemory, Phase

FAST = GuestMemory(400.0, 150.0, 200.0)


def test_disks_come_first_then_memory_then_a_moment_of_standing_still() -> None:
    course = Course(GuestMemory(100.0, 0.0), disk_mib=50.0)
    course.advance(0.5, 50.0)
    assert (course.phase, course.left_mib) == (Phase.DISKS, 25.0)
    course.advance(course.until_s(50.0), 50.0)
    assert (course.phase, course.left_mib, course.rounds) == (Phase.ROUNDS, 100.0, 1)
    course.advance(course.until_s(50.0), 50.0)
    assert course.stands_still
    course.advance(SWITCH_S / 2, 50.0)
    course.advance(course.until_s(50.0), 50.0)
    assert course.is_done
    assert course.time_s == pytest.approx(3.0 + SWITCH_S)
    assert course.downtime_s == pytest.approx(SWITCH_S)
    assert course.sent_mib == pytest.approx(150.0)


def test_a_guest_that_is_too_fast_never_ends() -> None:
    assert Course(FAST).run(100.0) == math.inf
    assert Course(FAST).run(100.0, most_s=10.0) == math.inf
    assert Course(FAST).run(0.0) == math.inf


def test_auto_converge_takes_more_and_more_until_it_ends() -> None:
    course = Course(FAST, auto_converge=True)
    assert math.isfinite(course.run(100.0))
    assert course.throttle_frac == pytest.approx(0.7)


def test_post_copy_fetches_what_is_missing_once() -> None:
    course = Course(FAST)
    took_s = course.run(100.0, post_copy_after_s=0.0)
    assert took_s == pytest.approx(4.0 + SWITCH_S + 2.0, rel=0.01)
    assert course.downtime_s == pytest.approx(SWITCH_S)
    assert course.switched


def test_a_switch_in_the_middle_of_a_round_sends_nothing_twice() -> None:
    course = Course(GuestMemory(400.0, 399.0))
    course.run(100.0, post_copy_after_s=5.0)
    assert course.sent_mib <= 400.0 + 100.0 + 400.0


def test_before_memory_is_sent_there_is_nothing_to_switch() -> None:
    course = Course(FAST, disk_mib=100.0)
    course.switch()
    assert (course.phase, course.switched) == (Phase.DISKS, False)


def test_a_guest_changes_no_more_than_its_working_set() -> None:
    assert FAST.changed_mib(1e9) == 200.0
    assert FAST.changed_mib(1.0) == pytest.approx(150.0)
    assert FAST.changed_mib(0.0) == 0.0
    assert GuestMemory(0.0, 5.0).changed_mib(1.0) == 0.0
    assert GuestMemory(10.0, 50.0).changed_mib(0.1) == 10.0
