"""A CSV file of prices becomes the price of every interval of a period, or every problem that it has with it."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from shared.errors import InvalidInput, Problem

BYTES_MAX = 64 << 20
STEP_MAX_S = 86_400
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which prices: a column of a file (plain or gzip) whose first column has times, ISO 8601, of the clock in
    `time_zone` where they have no offset; `intervals` intervals of interval_s seconds from `start` on that clock."""

    file: Path
    column: str
    time_zone: str
    start: datetime.datetime
    interval_s: float
    intervals: int


def parse_start(text: object) -> datetime.datetime | None:
    """A time in ISO 8601; None where it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def mean_prices(wanted: Wanted, scenario: str) -> NDArray[np.float64]:
    """float64[intervals], the mean price within each interval; each price holds from its time to the next one.
    Raises `InvalidInput`, where `scenario` names the file that asks for them."""
    zone = _zone(wanted.time_zone, scenario)
    times, prices = _rows(wanted, zone)
    begin_s = _instants([wanted.start], zone)[0]
    step_s = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    _check(wanted, times, prices, begin_s, step_s)
    edges = begin_s + wanted.interval_s * np.arange(wanted.intervals + 1)
    summed = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(prices), prices, 0.0) * step_s)])
    ends = np.append(times, times[-1] + step_s)
    found: NDArray[np.float64] = np.diff(np.interp(edges, ends, summed)) / wanted.interval_s
    return found


def _zone(name: str, scenario: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        what = Problem(f"{scenario}: price.time_zone", f"is {name[:60]!r}", "a time zone such as Europe/Brussels")
        raise InvalidInput(what) from error


def _text(file: Path) -> str:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "cannot be read"
        raise InvalidInput(Problem(str(file), reason, "a CSV file, plain or gzip")) from error
    if len(content) > BYTES_MAX:
        raise InvalidInput(Problem(str(file), "too large", f"at most {BYTES_MAX} bytes"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(Problem(str(file), "not UTF-8", "text in UTF-8")) from error


def _rows(wanted: Wanted, zone: ZoneInfo) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times (s) and prices of a file; a price that is left out or no number is NaN."""
    lines = list(csv.reader(io.StringIO(_text(wanted.file))))
    header = lines[0] if lines else []
    if wanted.column not in header[1:]:
        known = ", ".join(header[1:]) or "a first line with names of columns"
        raise InvalidInput(Problem(str(wanted.file), f"no column {wanted.column[:60]!r}", known))
    at = header.index(wanted.column, 1)
    times: list[datetime.datetime] = []
    prices: list[float] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines[1:], 2):
        when = parse_start(line[0]) if line else None
        if when is None:
            problems.append(Problem(f"{wanted.file}:{number}", "no time in the first column", "ISO 8601"))
            continue
        times.append(when)
        prices.append(_price(line[at] if at < len(line) else ""))
    if problems or not times:
        nothing = Problem(str(wanted.file), "holds no price", "a time and a price in each line")
        raise InvalidInput(*(problems[:PROBLEMS_MAX] or [nothing]))
    instants = np.array(_instants(times, zone))
    if (np.diff(instants) <= 0.0).any():
        row = int(np.flatnonzero(np.diff(instants) <= 0.0)[0]) + 3
        raise InvalidInput(Problem(f"{wanted.file}:{row}", "the time goes back", "times that increase"))
    return instants, np.array(prices)


def _price(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _instants(times: Sequence[datetime.datetime], zone: ZoneInfo) -> list[float]:
    """Seconds since 1970; a local time that comes twice in turn is the second one the second time."""
    found: list[float] = []
    for when in times:
        local = when if when.tzinfo else when.replace(tzinfo=zone)
        instant = local.timestamp()
        if found and instant <= found[-1] and not when.tzinfo:
            instant = local.replace(fold=1).timestamp()
        found.append(instant)
    return found


def _check(
    wanted: Wanted, times: NDArray[np.float64], prices: NDArray[np.float64], begin_s: float, step_s: float
) -> None:
    """Raise `InvalidInput` for every gap within the period."""
    problems = []
    end_s = begin_s + wanted.interval_s * wanted.intervals
    zone = ZoneInfo(wanted.time_zone)

    def at(instant_s: float) -> str:
        return datetime.datetime.fromtimestamp(instant_s, zone).isoformat(timespec="minutes")

    if not 0.0 < step_s <= STEP_MAX_S or begin_s < times[0] or end_s > times[-1] + step_s:
        span = f"{at(times[0])} to {at(times[-1] + step_s)}"
        what = f"has prices from {span} only"
        problems.append(Problem(str(wanted.file), what, f"prices from {at(begin_s)} to {at(end_s)}"))
    for before_s, after_s in pairwise(times.tolist()):
        if after_s - before_s != step_s and before_s < end_s and after_s > begin_s:
            what = f"a gap between {at(before_s)} and {at(after_s)}"
            problems.append(Problem(str(wanted.file), what, f"a price every {step_s:g} s"))
    used = (times < end_s) & (times + step_s > begin_s)
    for index in np.flatnonzero(used & ~np.isfinite(prices)).tolist():
        problems.append(Problem(f"{wanted.file}:{index + 2}", f"no price at {at(times[index])}", "a number"))
    if problems:
        raise InvalidInput(*problems[:PROBLEMS_MAX])
