"""Windows by local time, on days on which the clock is changed and on others."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime

import pytest

from daemons.values.calendar import DailyPeriods, check_zone, local_text, moment, time_of_day_s, weekly
from shared.base.errors import InvalidValue

EVERY_DAY = range(7)
BERLIN = "Europe/Berlin"
HOUR_S = 3600.0


def at(text: str) -> float:
    """Seconds since the epoch of a moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def hours(from_s: float, to_s: float) -> float:
    """The time between two moments."""
    return (to_s - from_s) / HOUR_S


def day(submit_from: str = "08:00", submit_until: str = "18:00", deadline: str = "22:00") -> DailyPeriods:
    """A window of every day in Berlin."""
    return weekly(BERLIN, submit_from, submit_until, deadline, EVERY_DAY)


def test_a_period_is_open_until_its_deadline() -> None:
    """Given a moment before, within and after a period, then that period or the next is told, in absolute seconds."""
    before = day().at(at("2026-07-01T03:00"))
    within = day().at(at("2026-07-01T19:59"))
    after = day().at(at("2026-07-01T20:00"))

    assert before == within
    assert before is not None
    assert after is not None
    assert (before.opens_s, before.submit_until_s, before.deadline_s) == (
        at("2026-07-01T06:00"),
        at("2026-07-01T16:00"),
        at("2026-07-01T20:00"),
    )
    assert before.weekday == 2
    assert after.opens_s == at("2026-07-02T06:00")


def test_times_that_are_not_later_are_meant_on_the_next_day() -> None:
    """Given submission from evening until morning and a deadline at noon, then it ends on the next day."""
    night = weekly("UTC", "20:00", "06:00", "12:00", EVERY_DAY)

    period = night.at(at("2026-07-02T05:00"))

    assert period is not None
    assert period.opens_s == at("2026-07-01T20:00")
    assert period.submit_until_s == at("2026-07-02T06:00")
    assert period.deadline_s == at("2026-07-02T12:00")


def test_a_whole_day_ends_when_it_begins() -> None:
    """Given equal times, then a window lasts from a day to the next."""
    whole = weekly("UTC", "00:00", "12:00", "00:00", EVERY_DAY)

    period = whole.at(at("2026-07-01T23:59"))

    assert period is not None
    assert hours(period.opens_s, period.deadline_s) == 24.0
    assert not whole.overlaps()


@pytest.mark.parametrize(("date_text", "length_h"), [("2026-03-29", 23.0), ("2026-10-25", 25.0), ("2026-07-01", 24.0)])
def test_days_have_as_many_hours_as_the_clock_gives_them(date_text: str, length_h: float) -> None:
    """Given a window of a whole local day, then it is an hour shorter or longer when the clock is changed."""
    whole = weekly(BERLIN, "00:00", "12:00", "00:00", EVERY_DAY)

    period = whole.at(at(f"{date_text}T10:00"))

    assert period is not None
    assert hours(period.opens_s, period.deadline_s) == length_h


def test_a_time_left_out_is_the_moment_of_the_change() -> None:
    """Given 02:30 on the day on which 02:00 becomes 03:00, then it is 01:00 UTC, as every time in that hour."""
    spring = date(2026, 3, 29)

    moments = [moment(spring, minutes * 60, BERLIN) for minutes in (119, 120, 150, 180, 181)]

    change_s = at("2026-03-29T01:00")
    assert moments == [change_s - 60, change_s, change_s, change_s, change_s + 60]


def test_a_time_that_comes_twice_is_the_first() -> None:
    """Given 02:30 on the day on which 03:00 becomes 02:00, then it is the one in summer time."""
    assert moment(date(2026, 10, 25), 150 * 60, BERLIN) == at("2026-10-25T00:30")
    assert moment(date(2026, 10, 25), 180 * 60, BERLIN) == at("2026-10-25T02:00")


def test_a_period_that_the_clock_leaves_out_does_not_take_place() -> None:
    """Given submission between 02:10 and 02:50 only, then there is none in the night that has no such time."""
    short = day("02:10", "02:50", "06:00")

    period = short.at(at("2026-03-28T12:00"))

    assert period is not None
    assert period.opens_s == at("2026-03-30T00:10")


def test_only_the_days_named_open() -> None:
    """Given Mondays and Fridays, asked on a Friday evening, then Monday is next."""
    some = weekly(BERLIN, "08:00", "10:00", "12:00", (0, 4))

    period = some.at(at("2026-07-03T12:00"))

    assert period is not None
    assert (period.weekday, period.opens_s) == (0, at("2026-07-06T06:00"))


@pytest.mark.parametrize(
    ("times", "days", "overlaps"),
    [
        (("08:00", "18:00", "08:00"), EVERY_DAY, False),
        (("08:00", "18:00", "09:00"), EVERY_DAY, True),
        (("08:00", "18:00", "09:00"), (0, 2, 4), False),
        (("18:00", "08:00", "20:00"), (5, 6), True),
        (("18:00", "08:00", "07:00"), (0, 6), True),
    ],
)
def test_overlapping_periods_are_found(times: tuple[str, str, str], days: tuple[int, ...], overlaps: bool) -> None:
    """Given a window that opens again before its deadline, also from Sunday to Monday, then it is said."""
    assert weekly("UTC", *times, days).overlaps() is overlaps


def test_slots_are_those_of_the_local_clock() -> None:
    """Given the day with 25 hours, then the slots of the hour that comes twice have two stretches, the others one, and
    the same time of day has the same number as on any other day."""
    window = weekly(BERLIN, "00:00", "12:00", "20:00", EVERY_DAY)
    autumn, summer = window.at(at("2026-10-25T08:00")), window.at(at("2026-07-01T08:00"))
    assert autumn is not None
    assert summer is not None

    stretches = window.slots(autumn, 1800.0)
    usual = window.slots(summer, 1800.0)

    lengths = [sum(s.to_s - s.from_s for s in stretches if s.slot == slot) for slot in range(24)]
    assert lengths == [1800.0] * 4 + [3600.0] * 2 + [1800.0] * 18
    assert [stretch.slot for stretch in usual] == list(range(24))
    assert stretches[-1].to_s == autumn.submit_until_s
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(stretches))


def test_slots_that_are_left_out_have_no_stretch() -> None:
    """Given the day with 23 hours, then the slots of the hour that is left out are missing."""
    window = weekly(BERLIN, "00:00", "12:00", "20:00", EVERY_DAY)
    spring = window.at(at("2026-03-29T08:00"))
    assert spring is not None

    slots = [stretch.slot for stretch in window.slots(spring, 1800.0)]

    assert slots == [0, 1, 2, 3, *range(6, 24)]


def test_the_clock_is_local() -> None:
    """Given a moment that is already tomorrow in Tokyo, then its clock says so."""
    moment_s = at("2026-07-01T20:15")

    assert time_of_day_s(moment_s, "Asia/Tokyo") == 5.25 * HOUR_S
    assert local_text(moment_s, BERLIN) == "2026-07-01 22:15 +0200"


def test_a_zone_that_is_not_known_is_refused() -> None:
    """Given a zone of another planet, then the key and what would be right are named."""
    with pytest.raises(InvalidValue, match="timezone = 'Mars/Base'"):
        check_zone("timezone", "Mars/Base")
