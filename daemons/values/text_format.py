"""Numbers, shares, memory, durations and times in words, the same for every reader. Pure.

What is not known or not finite is `unknown`, a dash."""

from __future__ import annotations

import math
from typing import TypeGuard

from daemons.values.calendar import iso_text

DASH = "-"
PLAIN_MAX = 1e15  # from here on floats do not hold every tenth, and a number has a power of ten
MINUTES_FROM_S = 120.0
_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def number_text(value: float | None, digits: int = 2, unknown: str = DASH) -> str:
    """Write a number with commas and at most `digits` digits after the point: `1,234.5`, `3`, `1e+300`."""
    if not is_known(value):
        return unknown
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= PLAIN_MAX:
        return f"{value:.4g}"
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def significant_text(value: float | None, digits: int = 4, unknown: str = DASH) -> str:
    """Write a number with commas and at most `digits` significant digits, but all those before the point: `12,346`,
    `0.1235`, `1e-09`."""
    if is_known(value) and 0.0 < abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    if not is_known(value) or value == 0:
        return number_text(value, 0, unknown)
    return number_text(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))), unknown)


def percent_text(part: float | None, digits: int = 1, unknown: str = DASH) -> str:
    """Write a part of 1 as a percentage: `12.3 %`."""
    return f"{number_text(100.0 * part, digits)} %" if is_known(part) and is_known(100.0 * part) else unknown


def memory_text(mib: float | None, unknown: str = DASH) -> str:
    """Write an amount of memory in whole MiB, as files and reasons have it: `16,000 MiB`."""
    return f"{number_text(mib, 0)} MiB" if is_known(mib) else unknown


def duration_text(seconds: float | None, unknown: str = DASH, minutes_from_s: float = MINUTES_FROM_S) -> str:
    """Write a duration in the two largest units that it has: `3 min 20 s`, `2 h`, `4 d 3 h`; one below
    `minutes_from_s` with three significant digits: `12.5 s`."""
    if not is_known(seconds):
        return unknown
    sign, rest = ("-" if seconds < 0 else ""), abs(seconds)
    if rest < minutes_from_s:
        return f"{sign}{rest:.3g} s"
    if rest >= PLAIN_MAX:
        return f"{sign}{rest:.4g} s"
    whole = round(rest)
    size_s, unit, part_s, part = next(span for span in _SPANS if whole >= span[0])
    below = whole % size_s // part_s
    return f"{sign}{whole // size_s} {unit}" + (f" {below} {part}" if below else "")


def time_text(at_s: float | None, zone: str = "UTC", unknown: str = DASH) -> str:
    """Write a time, given in seconds since 1970 and cut to the second, in ISO 8601: `2026-10-18T12:00:00Z`, in other
    zones with their offset; one that no calendar has as its seconds, `1e+15 s`."""
    if not is_known(at_s):
        return unknown
    try:
        return iso_text(at_s, zone)
    except (OverflowError, ValueError):  # before the year 1 or after 9999
        return f"{at_s:g} s"


def is_known(value: float | None) -> TypeGuard[float]:
    """Return whether there is a finite value that floats can hold."""
    try:
        return value is not None and math.isfinite(value)
    except OverflowError:
        return False
