"""Reads a series of how many nodes a web side needs: a CSV file with the columns t_s and vms, plain or gzip."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from daemons.capacity.coordination.values import WebDemand
from shared.base.errors import InvalidInput, Problem
from shared.base.read_file import read_lines

FILE_BYTES_MAX = 64 << 20
PROBLEMS_MAX = 20
DAY_S = 86_400.0
VMS_MAX = 1e6
_EXPECTED = "a CSV file with columns t_s and vms, plain or gzip"
_ROUNDING = 1e-9  # that a product may be above a whole number without counting as more


def read_steps(path: Path, scale: float, period_s: float | None = None) -> WebDemand:
    """Return the step function in a file, times `scale` and rounded up. period_s: the period after which it repeats; if
    None, the smallest number of whole days that covers all its times. Raises `InvalidInput` with one `Problem` for each
    broken line (at most 20), or for a file that cannot be read or is empty."""
    problems: list[Problem] = []
    times_s: list[float] = []
    nodes: list[int] = []
    for found in _rows(path):
        if isinstance(found, Problem):
            problems.append(found)
            if len(problems) == PROBLEMS_MAX:
                break
            continue
        line, at_s, vms = found
        if times_s and at_s <= times_s[-1]:
            problems.append(Problem(f"{path}:{line}", f"t_s {at_s:g} after {times_s[-1]:g}", "times that increase"))
            if len(problems) == PROBLEMS_MAX:
                break
        times_s.append(at_s)
        nodes.append(math.ceil(vms * scale - _ROUNDING))
    if not problems and not times_s:
        problems.append(Problem(str(path), "there is no row in this file", _EXPECTED))
    if not problems and period_s is not None and times_s[-1] >= period_s:
        problems.append(Problem(str(path), f"goes on until {times_s[-1]:g} s", f"times below period_s = {period_s:g}"))
    if problems:
        raise InvalidInput(*problems)
    return WebDemand(times_s, nodes, period_s or DAY_S * (times_s[-1] // DAY_S + 1))


def _rows(path: Path) -> Iterator[tuple[int, float, float] | Problem]:
    """Line, time and value of each row, or what is wrong with it."""
    rows = csv.reader(csv_lines(path))
    try:
        heading = [word.strip() for word in next(rows, [])]
        if "t_s" not in heading or "vms" not in heading:
            yield Problem(f"{path}:1", f"columns {', '.join(heading[:8])[:60]!a}", "t_s and vms")
            return
        time_at, vms_at = heading.index("t_s"), heading.index("vms")
        for row in rows:
            if row:
                yield _row(path, rows.line_num, row, time_at, vms_at)
    except csv.Error as error:
        yield Problem(f"{path}:{rows.line_num}", str(error), _EXPECTED)


def _row(path: Path, line: int, row: list[str], time_at: int, vms_at: int) -> tuple[int, float, float] | Problem:
    if len(row) <= max(time_at, vms_at):
        return Problem(f"{path}:{line}", f"{len(row)} columns", "t_s and vms in every row")
    at_s, vms = number_in(row[time_at]), number_in(row[vms_at])
    if not 0.0 <= at_s <= 1e10:
        return Problem(f"{path}:{line}", f"t_s is {row[time_at][:40]!a}", "seconds, 0 or above")
    if not 0.0 <= vms <= VMS_MAX:
        return Problem(f"{path}:{line}", f"vms is {row[vms_at][:40]!a}", f"a number from 0 to {VMS_MAX:g}")
    return line, at_s, vms


def number_in(text: str) -> float:
    """NaN for what is none."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def csv_lines(path: Path, expected: str = _EXPECTED) -> Iterator[str]:
    """Yield the lines of a CSV file, decompressed if necessary. Raises `InvalidInput` that names what was
    `expected`."""
    return read_lines(path, expected, FILE_BYTES_MAX)
