"""Whether what a command prints is what a page says, but for what no two runs have in common.

In the page `...` stands for anything within a line, and a line of only `...` for any lines. Beyond that these are all
the same: times, durations, percentages, numbers with decimals, ids of 12 and more hexadecimal digits, and how wide a
column or a rule is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

ANY = "..."
_SHAPES = (
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?(?: [+-]\d{4})?)?"), "TIME"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "ID"),
    (re.compile(r"(?<![\w.])-?\d[\d,]*\.\d+(?![\w.])"), "N"),
    (re.compile(r"(?<![\w.])(?:\d[\d,]*(?:\.\d+)?|N) ?(?:ms|s|min|h|d)\b(?: \d+ ?(?:s|min|h)\b)*"), "DURATION"),
    (re.compile(r"(?<![\w.])(?:\d[\d,]*|N) ?%"), "PERCENT"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"\s+"), " "),
)
_BELONGS_ABOVE = re.compile(r"─+$| {8,}\S")


@cache
def shape(line: str) -> str:
    """Return a line without what differs between runs."""
    for pattern, to in _SHAPES:
        line = pattern.sub(to, line)
    return line.strip()


def line_matches(expected: str, printed: str) -> bool:
    """Whether one line is as expected."""
    parts = (re.escape(part) for part in shape(expected).split(ANY))
    return re.fullmatch(".*".join(parts), shape(printed)) is not None


def trimmed(lines: Sequence[str]) -> tuple[str, ...]:
    """Return lines without empty ones at both ends and without blanks at their ends."""
    bare = [line.rstrip() for line in lines]
    while bare and not bare[-1]:
        bare.pop()
    while bare and not bare[0]:
        bare.pop(0)
    return tuple(bare)


def matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether what was printed is as expected."""
    wanted, got = trimmed(expected), trimmed(printed)
    # reached: after how many printed lines the expected ones so far can end
    reached = {0}
    for line in wanted:
        if line.strip() == ANY:
            reached = set(range(min(reached), len(got) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(got) and line_matches(line, got[at])}
    return len(got) in reached


def abridged(printed: Sequence[str], show: str) -> tuple[str, ...]:
    """Return the lines that match a pattern ("": all), with the rule below and what is wrapped from them, and `...` in
    the place of others."""
    found: list[str] = []
    for line in trimmed(printed):
        belongs = found and found[-1] != ANY and _BELONGS_ABOVE.match(line)
        shown = line if belongs or re.search(show, line) else ANY
        if shown != ANY or found[-1:] != [ANY]:
            found.append(shown)
    return tuple(found)


def rewritten(expected: Sequence[str], printed: Sequence[str], show: str = "") -> tuple[str, ...]:
    """Return the text of a page for what was printed: as it is when it matches; else what was printed, `abridged`, with
    those lines of the text that have `...` in the place of lines that they match."""
    if matches(expected, printed) and trimmed(expected) != (ANY,):
        return trimmed(expected)
    patterns = [line for line in expected if ANY in line and line.strip() != ANY]
    return tuple(next((line for line in patterns if line_matches(line, got)), got) for got in abridged(printed, show))
