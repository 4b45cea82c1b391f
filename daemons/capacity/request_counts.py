"""How many instances a web service needs for the requests that were counted, as the World Cup trace of
phoenixcloud.txt (section 6.4, figure 9) became a demand: by the mean load of each hour, or by the rule that adjusts
instances, stepped on the load of each minute.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from daemons.capacity.coordination.demand import PROBLEMS_MAX, csv_lines
from shared.base.errors import InvalidInput, Problem
from shared.values.agreement import WebTerms

MINUTE_S = 60.0
MINUTES_MAX = 10_000_000
COUNT_MAX = 1e12
_EXPECTED = "a CSV file with times in its first column (ISO 8601 or t_s, whole minutes) and a column requests"
_ROUNDING = 1e-9  # that a quotient may be above a whole number without counting as more
Steps = list[tuple[float, int]]
Rule = Callable[[int, float, WebTerms], int]
"""+1, 0 or -1 instance, of how many there are, the mean part of their CPU that they use, and the terms."""


def read_requests(path: Path, start: datetime | None = None, window_s: float | None = None) -> list[float]:
    """Requests in each minute, from `start` (the first row's time where None) for `window_s` (to the last row where
    None); minutes without a row had none. Raises `InvalidInput` with one `Problem` a broken line (at most 20)."""
    problems: list[Problem] = []
    begin_s = None if start is None else start.timestamp()
    found: dict[int, float] = {}
    last = -math.inf
    for row in _rows(path):
        if isinstance(row, Problem):
            problems.append(row)
        elif row[1] <= last:
            problems.append(Problem(f"{path}:{row[0]}", "is not later than the row before", "times that increase"))
        else:
            line, last, count = row
            begin_s = last if begin_s is None else begin_s
            minute = (last - begin_s) / MINUTE_S
            if minute != int(minute) or abs(minute) > MINUTES_MAX:
                problems.append(Problem(f"{path}:{line}", "is not at a whole minute", "whole minutes from the start"))
            elif minute >= 0 and (window_s is None or minute * MINUTE_S < window_s):
                found[int(minute)] = count
        if len(problems) == PROBLEMS_MAX:
            break
    if not problems and not any(found.values()):
        problems.append(Problem(str(path), "there is no request in this file and time", _EXPECTED))
    if problems:
        raise InvalidInput(*problems)
    length = max(found) + 1 if window_s is None else math.ceil(window_s / MINUTE_S)
    return [found.get(minute, 0.0) for minute in range(length)]


def _rows(path: Path) -> Iterator[tuple[int, float, float] | Problem]:
    """Line, time in s and count of each row, or what is wrong with it."""
    rows = csv.reader(csv_lines(path, _EXPECTED))
    try:
        heading = [word.strip() for word in next(rows, [])]
        if len(heading) < 2 or "requests" not in heading[1:]:
            yield Problem(f"{path}:1", f"columns {', '.join(heading[:8])[:60]!a}", _EXPECTED)
            return
        at = heading.index("requests")
        for row in rows:
            if row:
                yield _row(f"{path}:{rows.line_num}", rows.line_num, row, at)
    except csv.Error as error:
        yield Problem(f"{path}:{rows.line_num}", str(error), _EXPECTED)


def _row(where: str, line: int, row: list[str], at: int) -> tuple[int, float, float] | Problem:
    if len(row) <= at:
        return Problem(where, f"{len(row)} columns", "a time and requests in every row")
    at_s, count = _time_s(row[0].strip()), _number(row[at])
    if not abs(at_s) <= 1e11:
        return Problem(where, f"the time is {row[0][:40]!a}", "ISO 8601 or seconds")
    if not 0.0 <= count <= COUNT_MAX:
        return Problem(where, f"requests is {row[at][:40]!a}", f"a number from 0 to {COUNT_MAX:g}")
    return line, at_s, count


def _number(text: str) -> float:
    """NaN for what is none."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def _time_s(text: str) -> float:
    """Parse a time into seconds; one without an offset counts as UTC. NaN if it is not a time."""
    if not math.isnan(number := _number(text)):
        return number
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def by_hour(requests: Sequence[float], peak: int) -> Steps:
    """Return the times and numbers of instances by the mean load of each hour; `peak` in the busiest. The capacity of
    one instance is the one with which `peak` are at 80 % there, and at least one is kept."""
    hours = [requests[at : at + 60] for at in range(0, len(requests), 60)]
    loads = [math.fsum(hour) / len(hour) for hour in hours]
    each = max(loads) / peak
    counts = [max(1, math.ceil(load / each - _ROUNDING)) for load in loads]
    return [(3_600.0 * hour, count) for hour, count in enumerate(counts) if hour == 0 or count != counts[hour - 1]]


def by_minute(requests: Sequence[float], peak: int, rule: Rule, terms: WebTerms | None = None, first: int = 2) -> Steps:
    """Return the same by the load of each minute and a rule. Every `terms.over_s` seconds the rule gets the utilisation
    since its last call. It changes one instance a step from `first` on; in the busiest minute `peak` instances are at
    `terms.add_above`."""
    terms = terms or WebTerms()
    each = max(requests) / peak
    count, made = first, [(0.0, first)]
    steps = math.floor(len(requests) * MINUTE_S / terms.over_s)
    for step in range(1, steps):
        load = requests[math.ceil(step * terms.over_s / MINUTE_S) - 1]
        change = rule(count, terms.add_above * load / (each * count), terms)
        count += change
        if change:
            made.append((step * terms.over_s, count))
    return made
