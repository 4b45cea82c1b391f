"""Numbers and times in words: the filters of the templates."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from typing import Any

from shared.values.utc import LAST_S, utc_text

UNKNOWN = "–"  # noqa: RUF001  # a dash, as readers expect it


def span(seconds: float | None) -> str:
    """A duration: "12 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole, sign = round(abs(seconds)), "-" if seconds <= -0.5 else ""
    for size, name, below, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{sign}{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{sign}{whole} s"


def ago(seconds: float | None) -> str:
    """An age: "just now", "3 min 20 s ago"."""
    if seconds is None:
        return UNKNOWN
    return "just now" if seconds < 2.0 else f"{span(seconds)} ago"


def moment(at_s: float | None) -> str:
    """A moment in UTC, to the second."""
    return UNKNOWN if at_s is None or not 0.0 <= at_s <= LAST_S else utc_text(at_s)


def number(value: float | None, digits: int = 2) -> str:
    """A number with at most so many digits after the point."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float | None) -> str:
    """A fraction as a percentage."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{100.0 * value:.0f} %"


def mib(value: float | None) -> str:
    """An amount of memory."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{number(value / 1024, 1)} GiB" if abs(value) >= 1024 else f"{number(value, 0)} MiB"


def plain(text: str) -> str:
    """A text that anybody may have made, without what changes how others are shown: control characters and those of
    format (Unicode Cc and Cf) are replaced."""
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cf") else char for char in text)


FILTERS: dict[str, Callable[..., Any]] = {
    "span": span,
    "ago": ago,
    "moment": moment,
    "number": number,
    "percent": percent,
    "mib": mib,
    "plain": plain,
}
