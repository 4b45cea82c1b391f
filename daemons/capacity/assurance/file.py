"""Reads a trace of demand: a CSV file in the long form, one row per time and application, plain or gzip."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.coordination.demand import PROBLEMS_MAX, csv_lines, number_in
from shared.base.errors import InvalidInput, Problem
from shared.values.reservation import DEMAND_MAX

TIME_MAX_S = 1e11
SERVERS = "servers"
CPUS, UTILISATION = "cpus", "utilisation_percent"
NAME_LENGTH_MAX = 128
PERCENT_MAX = 10_000.0  # CPUs that run above their base clock use more than 100 %
_RESOURCE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EXPECTED = f"a CSV file with columns time, application, and {SERVERS} or {CPUS} and {UTILISATION}"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Samples in the file's order. local_s: float64[n], seconds since a local midnight, since that of 1970-01-01 where
    `dated`; application: int64[n], indices into `applications`, which are in the order of the file; columns: float64[n]
    of each column of values."""

    local_s: Floats
    application: Ints
    applications: tuple[str, ...]
    columns: dict[str, Floats]
    dated: bool


class _Problems:
    """What is wrong with the file; raised when there is much of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Problem] = []

    def add(self, line: int | None, what: str, expected: str = "") -> None:
        where = str(self._path) if line is None else f"{self._path}:{line}"
        self._found.append(Problem(where, what, expected))
        if len(self._found) == PROBLEMS_MAX:
            self.done()

    def done(self) -> None:
        """Raise `InvalidInput` if there are problems."""
        if self._found:
            raise InvalidInput(*self._found)


def read_trace(path: Path, zone: tzinfo | None = None) -> Trace:
    """Return the samples of a file. zone: the local time to which ISO times with an offset are converted; as written if
    None.

    Raises `InvalidInput` with one `Problem` for each broken line (at most 20): lines that cannot be read, demands that
    are negative, not finite or too large, and a second value of an application for one time.
    """
    problems = _Problems(path)
    lines, cells = _table(path, problems)
    times = cells.pop("time")
    dated = math.isnan(number_in(times[0]))
    absolute, local = _iso(times, lines, zone, problems) if dated else _seconds(times, lines, problems)
    names = [name.strip() for name in cells.pop("application")]
    for line, name in zip(lines, names, strict=True):
        if not 0 < len(name) <= NAME_LENGTH_MAX:
            problems.add(line, f"the application is {name[:40]!a}", f"a name of 1 to {NAME_LENGTH_MAX} characters")
    columns = {name: _column(name, texts, lines, problems) for name, texts in cells.items()}
    problems.done()
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    application = np.array([index[name] for name in names], dtype=np.int64)
    _once(absolute, application, lines, names, problems)
    problems.done()
    return Trace(local, application, tuple(index), columns, dated)


def _table(path: Path, problems: _Problems) -> tuple[list[int], dict[str, list[str]]]:
    """Line numbers and columns."""
    reader = csv.reader(csv_lines(path, _EXPECTED))
    lines: list[int] = []
    columns: list[list[str]] = []
    try:
        heading = [word.strip() for word in next(reader, [])]
        _check_heading(heading, problems)
        columns = [[] for _ in heading]
        for row in reader:
            if len(row) == len(heading):
                lines.append(reader.line_num)
                for column, cell in zip(columns, row, strict=True):
                    column.append(cell)
            elif any(map(str.strip, row)):
                problems.add(reader.line_num, f"{len(row)} columns", f"{len(heading)}, as in the first line")
    except csv.Error as error:
        problems.add(reader.line_num, str(error), _EXPECTED)
    if not lines:
        problems.done()
        problems.add(None, "there is no row in this file", _EXPECTED)
        problems.done()
    return lines, dict(zip(heading, columns, strict=True))


def _check_heading(heading: list[str], problems: _Problems) -> None:
    shown = f"columns {', '.join(heading[:8])[:60]!a}"
    counted, used = SERVERS in heading, CPUS in heading and UTILISATION in heading
    if not {"time", "application"} <= set(heading) or not counted ^ used or len(set(heading)) < len(heading):
        problems.add(1, shown, _EXPECTED)
    others = [name for name in heading if not _RESOURCE.fullmatch(name)]
    if others:
        problems.add(1, f"a column {others[0][:40]!a}", "names of small letters, digits and _, such as memory_gib")
    problems.done()


def _numbers(texts: Sequence[str]) -> Floats:
    """NaN for what is no number."""
    return np.array([number_in(text) for text in texts])


def _seconds(times: Sequence[str], lines: Sequence[int], problems: _Problems) -> tuple[Floats, Floats]:
    found = _numbers(times)
    for at in np.flatnonzero(~(np.abs(found) <= TIME_MAX_S))[:PROBLEMS_MAX]:
        expected = f"seconds, at most {TIME_MAX_S:g} from 0, as in the rows before"
        problems.add(lines[at], f"the time is {times[at][:40]!a}", expected)
    return found, found


def _iso(times: Sequence[str], lines: Sequence[int], zone: tzinfo | None, problems: _Problems) -> tuple[Floats, Floats]:
    """Absolute and local seconds; a time without an offset is local, and absolute as if it were UTC."""
    known: dict[str, tuple[float, float, bool]] = {}
    found = np.zeros((len(times), 2))
    offset = None
    for at, text in enumerate(times):
        moment = known.get(text)
        if moment is None:
            try:
                moment = known[text] = _moment(text.strip(), zone)
            except (ValueError, OverflowError):
                problems.add(lines[at], f"the time is {text[:40]!a}", "ISO 8601 in every row, or seconds in every row")
                continue
            offset = moment[2] if offset is None else offset
        if moment[2] is not offset:
            problems.add(lines[at], f"the time is {text[:40]!a}", "an offset in every time, or in none")
        found[at] = moment[:2]
    return found[:, 0], found[:, 1]


def _moment(text: str, zone: tzinfo | None) -> tuple[float, float, bool]:
    """Absolute and local seconds, and whether an offset is given."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        seconds = time.replace(tzinfo=UTC).timestamp()
        return seconds, seconds, False
    local = time if zone is None else time.astimezone(zone)
    return time.timestamp(), local.replace(tzinfo=UTC).timestamp(), True


def _column(name: str, texts: Sequence[str], lines: Sequence[int], problems: _Problems) -> Floats:
    """Values of one column: whole numbers, but for utilisation and further resources."""
    most = PERCENT_MAX if name == UTILISATION else float(DEMAND_MAX)
    whole = name in (SERVERS, CPUS)
    found = _numbers(texts)
    good = (found >= 0.0) & (found <= most)
    if whole:
        good &= found == np.floor(found)
    words = f"{'a whole number' if whole else 'a number'} from 0 to {most:g}"
    for at in np.flatnonzero(~good)[:PROBLEMS_MAX]:
        problems.add(lines[at], f"{name} is {texts[at][:40]!a}", words)
    return found


def _once(
    absolute_s: Floats, application: Ints, lines: Sequence[int], names: Sequence[str], problems: _Problems
) -> None:
    """Check that no application has two values for one time."""
    order = np.lexsort((absolute_s, application))
    same = (np.diff(absolute_s[order]) == 0.0) & (np.diff(application[order]) == 0)
    if not same.any():
        return
    for (first, second), equal in zip(pairwise(order.tolist()), same.tolist(), strict=True):
        if equal:
            what = f"a second value of {names[second][:40]} for the time in line {lines[first]}"
            problems.add(lines[second], what, "one value for each time and application")
