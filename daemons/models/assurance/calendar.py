"""Slots of a calendar: which instants are alike (section 3.1). Times are local seconds: zones are the caller's."""

from __future__ import annotations

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import DAYS, SLOTS_MAX, Calendar

DAY_S = 86_400.0
THURSDAY = 3  # the weekday of 1970-01-01, 0 Monday
_WORKDAYS = 5


def slots_per_day(slot_s: float) -> int:
    """Return the number of slots in a day. Raises `InvalidValue` unless it is a whole number."""
    if not (np.isfinite(slot_s) and 0.0 < slot_s <= DAY_S) or (DAY_S / slot_s) % 1.0 != 0.0:
        raise InvalidValue("slot_s", slot_s, "a whole number of slots in a day of 86,400 s")
    return int(DAY_S / slot_s)


def slot_count(calendar: Calendar, slot_s: float) -> int:
    """Return the number of slots of the calendar. Raises `InvalidValue` for a slot that does not divide a day, or for
    too many slots."""
    count = slots_per_day(slot_s) * DAYS[calendar]
    if count > SLOTS_MAX:
        raise InvalidValue("slot_s", slot_s, f"slots long enough that the calendar has at most {SLOTS_MAX} of them")
    return count


def instance_of(local_s: Floats, slot_s: float) -> Ints:
    """Return the number of the slot instance, counted from the midnight that is local second 0; int64 of the same
    shape.

    When a clock is set back, an hour occurs twice: both belong to one instance.
    """
    return np.floor_divide(np.asarray(local_s, dtype=np.float64), slot_s).astype(np.int64)


def slot_of_instance(instance: Ints, calendar: Calendar, slot_s: float, weekday: int = THURSDAY) -> Ints:
    """Return the slot, 0 .. slot_count - 1, of slot instances; `weekday`: of the day that begins at local second 0, 0
    Monday.

    Slot 0 begins at midnight (hour-of-day) or on Monday (hour-of-week); workdays: Monday to Friday, then the weekend.
    """
    per_day = slots_per_day(slot_s)
    day, within = np.divmod(np.asarray(instance, dtype=np.int64), per_day)
    if calendar is Calendar.HOUR_OF_DAY:
        return within
    of_week = (day + weekday) % 7
    if calendar is Calendar.HOUR_OF_WEEK:
        return of_week * per_day + within
    return np.where(of_week < _WORKDAYS, 0, per_day) + within


def slot_of(local_s: Floats, calendar: Calendar, slot_s: float, weekday: int = THURSDAY) -> Ints:
    """Return the slot of instants in local seconds since a local midnight (of 1970-01-01, unless `weekday` says
    otherwise)."""
    return slot_of_instance(instance_of(local_s, slot_s), calendar, slot_s, weekday)
