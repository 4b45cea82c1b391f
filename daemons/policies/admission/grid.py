"""One grid of slots for reservations whose calendars, slot lengths and time zones differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from daemons.models.assurance.calendar import DAY_S, instance_of, slot_of, slot_of_instance, slots_per_day
from shared.base.errors import InvalidValue
from shared.policy_api.admission import Grid, Standing
from shared.policy_api.snapshot import Bools, Ints
from shared.values.reservation import DAYS, SLOTS_MAX, Calendar

_MONDAY = 0
_SATURDAY = 5
_TICKS = 1_000  # per second: lengths and offsets are whole numbers of these


def common(standing: Sequence[Standing]) -> Grid:
    """Return the coarsest grid that suits all of them, in the clocks of the first. Raises `InvalidValue` if it would
    have more than SLOTS_MAX slots. O(reservations)."""
    kinds = {(one.reservation.calendar, one.reservation.slot_s, one.utc_offset_s) for one in standing}
    knowing = [one for one in standing if one.reservation.calendar is not Calendar.HOUR_OF_DAY]
    offset_s = (knowing or list(standing))[0].utc_offset_s
    slot_s = _shared_length(kinds, offset_s)
    calendar = _coarsest({(kind, apart) for kind, _, apart in kinds})
    count = round(DAY_S / slot_s) * DAYS[calendar]
    if count > SLOTS_MAX:
        raise InvalidValue("slot_s", slot_s, f"slots that give all reservations at most {SLOTS_MAX} slots together")
    return Grid(calendar, slot_s, offset_s)


def _shared_length(kinds: set[tuple[Calendar, float, float]], offset_s: float) -> float:
    lengths = {slot_s for _, slot_s, _ in kinds}
    shifts = {offset - offset_s for _, _, offset in kinds} - {0.0}
    if len(lengths) == 1 and not shifts:
        return lengths.pop()
    ticks = [round(length * _TICKS) for length in lengths | {abs(shift) for shift in shifts}]
    return math.gcd(round(DAY_S * _TICKS), *ticks) / _TICKS


def _coarsest(kinds: set[tuple[Calendar, float]]) -> Calendar:
    """Return the coarsest common calendar of calendars with the offsets of their clocks."""
    days = {(calendar, offset) for calendar, offset in kinds if calendar is not Calendar.HOUR_OF_DAY}
    if not days:
        return Calendar.HOUR_OF_DAY
    alike = len(days) == 1 and next(iter(days))[0] is Calendar.WORKDAYS
    return Calendar.WORKDAYS if alike else Calendar.HOUR_OF_WEEK


def rows(one: Standing, grid: Grid) -> Ints:
    """Return, for each slot of the grid, the slot of the reservation's own calendar, int64[slots of the grid]."""
    per_day = slots_per_day(grid.slot_s)
    count = per_day * DAYS[grid.calendar]
    local_s = np.arange(count) * grid.slot_s
    if grid.calendar is Calendar.WORKDAYS:
        local_s[per_day:] += (_SATURDAY - 1) * DAY_S
    shifted = local_s + (one.utc_offset_s - grid.utc_offset_s)
    return slot_of(
        np.mod(shifted, 7 * DAY_S, dtype=np.float64), one.reservation.calendar, one.reservation.slot_s, _MONDAY
    )


def occurring(grid: Grid, from_s: float, until_s: float) -> Bools:
    """Return the slots of the grid that the time from `from_s` until `until_s` (inf: without end) touches,
    bool[slots]."""
    per_day = slots_per_day(grid.slot_s)
    found = np.zeros(per_day * DAYS[grid.calendar], dtype=bool)
    if until_s - from_s >= 7 * DAY_S:
        found[:] = True
    elif until_s > from_s:
        first, last = instances(grid, from_s, until_s)
        found[slot_of_instance(np.arange(first, last), grid.calendar, grid.slot_s)] = True
    return found


def instances(grid: Grid, from_s: float, until_s: float) -> tuple[int, int]:
    """Return the first instance of a slot that a stretch touches, and the first after it."""
    first = int(instance_of(np.array(from_s + grid.utc_offset_s), grid.slot_s))
    return first, math.ceil((until_s + grid.utc_offset_s) / grid.slot_s)


def last_end_s(grid: Grid, wrong: Bools, from_s: float, until_s: float, most_s: float) -> float | None:
    """Return the time at which the last slot that is `wrong` and touches some time ends, at most `most_s`; None if
    there is none. O(slots of a week)."""
    if until_s == math.inf:
        return math.inf if wrong.any() else None
    first, last = instances(grid, from_s, until_s)
    numbers = np.arange(max(first, last - 7 * slots_per_day(grid.slot_s)), last)
    found = np.flatnonzero(wrong[slot_of_instance(numbers, grid.calendar, grid.slot_s)])
    if not len(found):
        return None
    return min(most_s, float(numbers[found[-1]] + 1) * grid.slot_s - grid.utc_offset_s)
