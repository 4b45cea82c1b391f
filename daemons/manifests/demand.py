"""A CSV file of measured demand for an agreement's reservation: `time,servers`, or `time,application,servers` where the
demands of several applications at one time are added up. Time: ISO 8601, or seconds from a midnight."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from daemons.models.assurance.build import profile_of, series
from daemons.models.assurance.profile import to_demand
from daemons.values.calendar import clock_s
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.base.read_file import read_lines
from shared.values.reservation import DEMAND_MAX, Calendar, SlotDemand

FILE_BYTES_MAX = 64 << 20
PROBLEMS_MAX = 20
TIME_MAX_S = 1e11
COLUMNS = ("time", "application", "servers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # of the local clock


def demand_of(path: Path, calendar: Calendar, slot_s: float, zone: str) -> tuple[SlotDemand, ...]:
    """Return the demand in every slot of the calendar, the largest of each slot instance. Times without an offset are
    local ones of `zone`. Raises `InvalidInput` with file and line for invalid data: negative demand, a repeated time,
    slots without an observation."""
    found = _added(path, calendar, zone)
    local_s = np.array(sorted(found), dtype=np.float64)
    units = np.array([found[at] for at in local_s.tolist()], dtype=np.int64)
    try:
        observed = series(local_s, np.zeros(len(units), dtype=np.int64), units, 1, calendar, slot_s)
        profile, _ = profile_of(observed.demand[0], observed.slot, observed.slots)
    except InvalidValue as problem:
        raise InvalidInput(Problem(f"{path}: {problem.field}", f"is {problem.got!r}", problem.expected)) from problem
    empty = np.flatnonzero(profile.observations == 0)
    if empty.size:
        names = ", ".join(map(str, empty[:5].tolist())) + (", ..." if empty.size > 5 else "")
        what = f"has no demand in {empty.size} of {profile.slots} slots: {names}"
        raise InvalidInput(Problem(f"{path}", what, "at least one observation of every slot"))
    return to_demand(profile).slots


def _added(path: Path, calendar: Calendar, zone: str) -> dict[float, int]:
    """Return the demand of all applications by local time."""
    found: dict[float, int] = {}
    seen: set[tuple[float, str]] = set()
    problems: list[Problem] = []
    for line, row in _rows(path):
        try:
            at = _time(row["time"], calendar, zone)
            units = _units(row["servers"])
            key = (at, row.get("application") or "")
            if key in seen:
                raise InvalidValue("time", row["time"], "each time once" + (" for an application" if key[1] else ""))
        except InvalidValue as problem:
            problems.append(Problem(f"{path}:{line}: {problem.field}", f"is {problem.got!r}", problem.expected))
            if len(problems) == PROBLEMS_MAX:
                break
            continue
        seen.add(key)
        found[at] = found.get(at, 0) + units
    if problems:
        raise InvalidInput(*problems)
    if not found:
        raise InvalidInput(Problem(f"{path}", "has no demand", "rows below the titles time,servers"))
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        rows = csv.reader(read_lines(path, "a CSV file", FILE_BYTES_MAX))
        titles = [title.strip() for title in next(rows, [])]
        if not {"time", "servers"} <= {*titles} <= {*COLUMNS} or len({*titles}) < len(titles):
            raise InvalidInput(Problem(f"{path}:1", f"has the titles {','.join(titles)[:60]}", ",".join(COLUMNS)))
        for row in rows:
            if len(row) == len(titles):
                yield rows.line_num, {title: cell.strip() for title, cell in zip(titles, row, strict=True)}
            elif row:
                where = f"{path}:{rows.line_num}"
                raise InvalidInput(Problem(where, f"has {len(row)} columns", f"{len(titles)}, as titles"))
    except csv.Error as problem:
        raise InvalidInput(Problem(f"{path}", f"cannot be read: {problem}", "a CSV file")) from problem


def _units(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= DEMAND_MAX):
        raise InvalidValue("servers", text, f"a whole number from 0 to {DEMAND_MAX}")
    return int(text)


def _time(text: str, calendar: Calendar, zone: str) -> float:
    """Return the seconds by the local clock."""
    try:
        at = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return _moment(text, zone)
    if not 0.0 <= at <= TIME_MAX_S:
        raise InvalidValue("time", text[:60], f"seconds from a midnight, 0 to {TIME_MAX_S:g}")
    if calendar is not Calendar.HOUR_OF_DAY:
        raise InvalidValue("time", text, f"ISO 8601: calendar {calendar.value} must know the day")
    return at


def _moment(text: str, zone: str) -> float:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            return (at.replace(tzinfo=UTC) - _EPOCH).total_seconds()
        return clock_s(at.timestamp(), zone)
    except (ValueError, OverflowError, OSError) as problem:
        raise InvalidValue("time", text, "ISO 8601, or seconds from a midnight") from problem
