"""Files of energy prices, read and checked."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_lines
from shared.ports.effects import PricesRead

BYTES_MAX = 64 << 20
PROBLEMS_MAX = 20
PERIOD_MAX_S = 86_400.0
LOOK_ROWS = 24  # so many rows say how long periods are
PRICE_MAX = 1e9
TIME_MAX_S = 1e11
EXPECTED_TIME = "ISO 8601 (2026-10-25T02:00, with an offset or by the clock) or seconds since 1970"


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    text: str
    at_s: float
    price: float


def read_prices(path: Path, column: str, timezone: str, factor: float = 1.0) -> PricesRead:
    """Read every price of a file. An hour that the clock repeats appears twice, in order; a skipped one does not
    appear. Periods are equally long, or become shorter once and stay so (hours, then quarters of an hour).

    Raises `InvalidInput`, with the line and the expected form, for a file that cannot be read, an unknown column or
    time zone, invalid times or prices, times that do not rise, and gaps.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        what = Problem("prices.timezone", f"is {timezone[:60]!r}", "a time zone such as Europe/Brussels")
        raise InvalidInput(what) from error
    rows = _rows(path, column, zone)
    if len(rows) < 2:
        raise InvalidInput(Problem(str(path), f"has {len(rows)} prices", "two at least"))
    period_s = _check_periods(path, rows)
    return PricesRead(
        tuple(row.at_s for row in rows), tuple(row.price * factor for row in rows), rows[-1].at_s + period_s
    )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that are not empty, with their numbers."""
    reader = csv.reader(read_lines(path, "a CSV file, plain or gzip", BYTES_MAX))
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InvalidInput(Problem(f"{path}:{reader.line_num}", str(error), "a CSV file")) from error


def _rows(path: Path, column: str, zone: ZoneInfo) -> list[_Row]:
    lines = _lines(path)
    title_line, titles = next(lines, (1, []))
    titles = [title.strip() for title in titles]
    if column not in titles[1:]:
        known = f"one of {', '.join(titles[1:])}" if titles[1:] else "a first line with titles of columns"
        raise InvalidInput(Problem(f"{path}:{title_line}", f"has no column {column[:60]!r}", known))
    place = titles.index(column, 1)
    rows: list[_Row] = []
    problems: list[Problem] = []
    for line, cells in lines:
        before_s = rows[-1].at_s if rows else -math.inf
        try:
            row = _row(line, cells, place, zone, before_s)
            if row.at_s <= before_s:
                what = "stands twice" if row.at_s == before_s else "goes back"
                raise _Wrong(f"the time {row.text} {what}", "times that rise")
            rows.append(row)
        except _Wrong as wrong:
            problems.append(Problem(f"{path}:{line}", wrong.what, wrong.expected))
            if len(problems) >= PROBLEMS_MAX:
                break
    if problems:
        raise InvalidInput(*problems)
    return rows


class _Wrong(Exception):
    """What is wrong with one line, and what was expected."""

    def __init__(self, what: str, expected: str) -> None:
        super().__init__(what)
        self.what, self.expected = what, expected


def _row(line: int, cells: Sequence[str], place: int, zone: ZoneInfo, before_s: float) -> _Row:
    text = cells[0].strip()
    at_s = _moment(text, zone, before_s)
    shown = cells[place].strip() if place < len(cells) else ""
    try:
        price = float(shown)
    except ValueError:
        price = math.nan
    if not abs(price) <= PRICE_MAX:
        raise _Wrong(f"no price at {text}: {shown[:20]!r}", "a number")
    return _Row(line, text, at_s, price)


def _moment(text: str, zone: ZoneInfo, before_s: float) -> float:
    """Absolute seconds; of an hour that comes twice the second one if the first is not after `before_s`."""
    try:
        at_s = float(text)
    except ValueError:
        at_s = _clock(text, zone, before_s)
    if not abs(at_s) < TIME_MAX_S:
        raise _Wrong(f"{text[:40]!r} is no time", EXPECTED_TIME)
    return at_s


def _clock(text: str, zone: ZoneInfo, before_s: float) -> float:
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is not None:
            return when.timestamp()
        local = when.replace(tzinfo=zone)
        at_s = local.timestamp()
        later_s = local.replace(fold=1).timestamp()
    except (ValueError, OverflowError) as error:
        raise _Wrong(f"{text[:40]!r} is no time", EXPECTED_TIME) from error
    if later_s < at_s:  # the clock is put forward over it
        expected = "a time that it shows; for market time without clock changes a time zone such as Etc/GMT-1"
        raise _Wrong(f"the clock of {zone.key} never shows {text}", expected)
    return later_s if at_s <= before_s else at_s


def _check_periods(path: Path, rows: Sequence[_Row]) -> float:
    """Return the length of the last period; raises `InvalidInput` for gaps."""
    steps = [after.at_s - before.at_s for before, after in pairwise(rows)]
    period_s = _common(steps[:LOOK_ROWS])
    problems = []
    for index, step_s in enumerate(steps):
        if step_s == period_s:
            continue
        if step_s < period_s and _common(steps[index : index + LOOK_ROWS]) == step_s:
            period_s = step_s
            continue
        before, row = rows[index], rows[index + 1]
        what = f"{step_s:g} s from {before.text} to {row.text}"
        problems.append(Problem(f"{path}:{row.line}", what, f"a price every {period_s:g} s"))
    if problems:
        raise InvalidInput(*problems[:PROBLEMS_MAX])
    if period_s > PERIOD_MAX_S:
        what = f"a price every {period_s:g} s"
        raise InvalidInput(Problem(f"{path}:{rows[1].line}", what, f"one every {PERIOD_MAX_S:g} s at least"))
    return period_s


def _common(steps_s: Sequence[float]) -> float:
    return Counter(steps_s).most_common(1)[0][0]
