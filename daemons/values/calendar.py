"""Local times of day and what they mean in absolute seconds. Nothing else in the cores knows calendars or time zones.

A time of day that the clock leaves out, when it is put forward, is the moment at which it is put forward; one that
comes twice, when it is put back, is the first of the two. So later times of a day are never earlier moments.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.base.errors import InvalidValue

DAY_S = 86_400
SEARCH_DAYS = 15  # a window that does not open within two weeks, which have every weekday twice, never opens


@dataclass(frozen=True, slots=True)
class Period:
    """One job processing period in absolute seconds: jobs are submitted from `opens_s` until `submit_until_s`, and are
    to be done by `deadline_s`. weekday: of the local day on which it opens, 0 Monday .. 6."""

    opens_s: float
    submit_until_s: float
    deadline_s: float
    weekday: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of absolute time that belongs to one slot of local time."""

    from_s: float
    to_s: float
    slot: int


@dataclass(frozen=True, slots=True)
class DailyPeriods:
    """Periods that open on `days` of the week (0 Monday .. 6), at local times of day in seconds after midnight;
    `submit_until_s` and `deadline_s` count from the midnight before the opening, so they may lie beyond the day's end.
    """

    zone: str
    submit_from_s: int
    submit_until_s: int
    deadline_s: int
    days: tuple[int, ...]

    def at(self, now_s: float) -> Period | None:
        """Return the current period, else the next one; None when there is none within two weeks.

        A period without any time for submission, because the clock skips it, does not take place.
        """
        today = _local(now_s, self.zone).date()
        for ahead in range(-2, SEARCH_DAYS):
            day = today + timedelta(days=ahead)
            if day.weekday() in self.days:
                period = self._on(day)
                if period.deadline_s > now_s and period.submit_until_s > period.opens_s:
                    return period
        return None

    def _on(self, day: date) -> Period:
        return Period(
            moment(day, self.submit_from_s, self.zone),
            moment(day, self.submit_until_s, self.zone),
            moment(day, self.deadline_s, self.zone),
            day.weekday(),
        )

    def overlaps(self) -> bool:
        """Return whether one period may open before another's deadline, by the days of the week alone."""
        opening = sorted(day * DAY_S + self.submit_from_s for day in set(self.days))
        lasts_s = self.deadline_s - self.submit_from_s
        following = [*opening[1:], *(first + 7 * DAY_S for first in opening[:1])]
        return any(later - earlier < lasts_s for earlier, later in zip(opening, following, strict=True))

    def slots(self, period: Period, slot_s: float) -> tuple[Stretch, ...]:
        """Return the submission period, cut into slots of `slot_s` by local time since it opened: the same time of day
        is the same slot on every day. Slots that occur twice have two stretches, skipped ones none."""
        stretches = []
        at_s, opened_s = period.opens_s, _local_s(period.opens_s, self.zone)
        while at_s < period.submit_until_s:
            slot, into_s = divmod(max(0.0, _local_s(at_s, self.zone) - opened_s), slot_s)
            to_s = min(at_s + slot_s - into_s, period.submit_until_s)
            to_s = _before_change(at_s, to_s, self.zone)
            stretches.append(Stretch(at_s, to_s, int(slot)))
            at_s = to_s
        return tuple(stretches)


def check_zone(field: str, name: str) -> None:
    """Raise `InvalidValue` unless the time zone is known here."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidValue(field, name, "a time zone such as Europe/Berlin or UTC") from None


def seconds_of_day(text: str) -> int:
    """Convert `HH:MM` to seconds after midnight."""
    hours, minutes = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60


def weekly(zone: str, submit_from: str, submit_until: str, deadline: str, days: Collection[int]) -> DailyPeriods:
    """Periods by `HH:MM`; a time that is not after the one before it is meant on the next day."""
    from_s = seconds_of_day(submit_from)
    until_s = _after(seconds_of_day(submit_until), from_s)
    return DailyPeriods(zone, from_s, until_s, _after(seconds_of_day(deadline), until_s), tuple(sorted(days)))


def _after(time_s: int, before_s: int) -> int:
    time_s += before_s // DAY_S * DAY_S
    return time_s if time_s > before_s else time_s + DAY_S


def moment(day: date, time_s: int, zone: str) -> float:
    """Return the absolute seconds of a local time, `time_s` after the midnight of a day (more than a day: on a later
    one)."""
    days, rest_s = divmod(time_s, DAY_S)
    clock = datetime(day.year, day.month, day.day, tzinfo=_zone(zone)) + timedelta(days=days, seconds=rest_s)
    first_s = clock.timestamp()
    if _local(first_s, zone).replace(fold=0) == clock:
        return first_s
    return _change_s(clock.replace(fold=1).timestamp(), first_s, zone)  # the clock never shows it


def time_of_day_s(at_s: float, zone: str) -> float:
    """Return the seconds since local midnight by the clock."""
    return _local_s(at_s, zone) % DAY_S


def next_time_of_day_s(at_s: float, time_s: int, zone: str) -> float:
    """Return the first moment after `at_s` at which the local clock shows `time_s` seconds after midnight."""
    today = _local(at_s, zone).date()
    later = (moment(today + timedelta(days=ahead), time_s, zone) for ahead in range(3))
    return next(moment_s for moment_s in later if moment_s > at_s)


def clock_s(at_s: float, zone: str) -> float:
    """Return the local clock's time, in seconds since its midnight of 1970-01-01."""
    return _local_s(at_s, zone)


def local_text(at_s: float, zone: str) -> str:
    """Format a moment by the local clock with its offset: `2026-10-25 02:30 +0200`."""
    return _local(at_s, zone).strftime("%Y-%m-%d %H:%M %z")


def iso_text(at_s: float, zone: str) -> str:
    """Write a moment by the local clock in ISO 8601, cut to the second: `2026-10-25T02:30:00+02:00`, with `Z` for no
    offset. Raises `ValueError` or `OverflowError` before the year 1 or after 9999."""
    return _local(math.floor(at_s), zone).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _local(at_s: float, zone: str) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).astimezone(_zone(zone))


def _offset_s(at_s: float, zone: str) -> float:
    offset = _local(at_s, zone).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _local_s(at_s: float, zone: str) -> float:
    """Return the local clock's time, in seconds since its 1970."""
    return at_s + _offset_s(at_s, zone)


def _before_change(from_s: float, to_s: float, zone: str) -> float:
    """Return `to_s`, or the earlier moment at which the clock is changed."""
    unchanged = _offset_s(from_s, zone) == _offset_s(to_s - 1e-3, zone)
    return to_s if unchanged else _change_s(from_s, to_s, zone)


def _change_s(before_s: float, after_s: float, zone: str) -> float:
    """Return when the clock is changed between two moments, to the second."""
    offset_s = _offset_s(before_s, zone)
    while after_s - before_s > 0.5:
        middle_s = (before_s + after_s) / 2.0
        before_s, after_s = (middle_s, after_s) if _offset_s(middle_s, zone) == offset_s else (before_s, middle_s)
    return float(round(after_s))
