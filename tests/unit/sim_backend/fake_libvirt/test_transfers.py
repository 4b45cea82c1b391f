"""Migrations of the stand-in share the hosts' links, and are told of as libvirt tells of them."""

from __future__ import annotations

import math

import pytest

from sim_backend.fake_libvirt.transfers import COMPLETED, Transfer, Transfers
from sim_backend.world.migrating import SWITCH_S, Course, GuestMemory


def begun(
    all_: Transfers, source: str, target: str, mib: float, most: float = math.inf, streams: int = 1, at_s: float = 0.0
) -> Transfer:
    course = Course(GuestMemory(mib, 0.0))
    one = Transfer(source, target, course, most_mib_per_s=most, streams=streams, total_mib=mib, all=all_)
    all_.begin(one, at_s)
    return one


def test_one_has_the_link_and_two_have_half_of_it() -> None:
    all_ = Transfers(100.0)
    one, other = begun(all_, "a", "b", 100.0), begun(all_, "a", "c", 200.0)
    assert not one.done(2.0)
    assert (one.done(2.1), other.course.is_done) == (True, False)
    assert other.course.sent_mib == pytest.approx(100.0 + SWITCH_S * 50.0 + (0.1 - SWITCH_S) * 100.0)
    assert other.done(3.5)


def test_a_receiving_link_is_shared_as_well() -> None:
    all_ = Transfers(100.0)
    one, other = begun(all_, "a", "c", 100.0), begun(all_, "b", "c", 100.0)
    assert not one.done(1.9)
    assert one.done(2.1)
    assert other.done(2.1)


def test_one_that_comes_later_takes_its_part_from_then_on() -> None:
    all_ = Transfers(100.0)
    one = begun(all_, "a", "b", 150.0)
    begun(all_, "a", "c", 500.0, at_s=1.0)
    assert one.course.sent_mib == pytest.approx(100.0)
    assert not one.done(1.9)
    assert one.done(2.1)


def test_limits_of_one_and_of_a_connection_are_kept_to() -> None:
    all_ = Transfers(100.0, stream_mib_per_s=20.0)
    slow = begun(all_, "a", "b", 100.0, most=10.0)
    wide = begun(all_, "c", "d", 100.0, streams=3)
    all_.advance_to(1.0)
    assert slow.course.sent_mib == pytest.approx(10.0)
    assert wide.course.sent_mib == pytest.approx(60.0)


def test_one_that_is_let_go_leaves_the_link_to_the_others() -> None:
    all_ = Transfers(100.0)
    one, other = begun(all_, "a", "b", 100.0), begun(all_, "a", "c", 100.0)
    all_.end(one, 1.0)
    assert other.done(1.6)
    assert one.course.sent_mib == pytest.approx(50.0)


def test_statistics_are_libvirt_s() -> None:
    all_ = Transfers(100.0)
    one = begun(all_, "a", "b", 100.0)
    all_.advance_to(0.25)
    found = one.stats()
    assert found["type"] == 2
    assert (found["time_elapsed"], found["memory_remaining"], found["data_processed"]) == (250, 75 << 20, 25 << 20)
    assert found["memory_iteration"] == 1
    assert "downtime" not in found
    all_.advance_to(5.0)
    done = one.stats(COMPLETED)
    assert (done["type"], done["memory_remaining"], done["downtime"]) == (3, 0, round(1e3 * SWITCH_S))
