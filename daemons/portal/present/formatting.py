"""Numbers and times in words: the filters of the templates."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

from daemons.values.text_format import duration_text, is_known, memory_text, number_text, percent_text, time_text

UNKNOWN = "–"  # noqa: RUF001  # a dash, as readers expect it


span = partial(duration_text, unknown=UNKNOWN)
moment = partial(time_text, unknown=UNKNOWN)
percent = partial(percent_text, unknown=UNKNOWN)


def ago(seconds: float | None) -> str:
    """Write an age, in seconds, as "just now" or "3 min 20 s ago"."""
    if not is_known(seconds):
        return UNKNOWN
    return "just now" if seconds < 2.0 else f"{span(float(round(seconds)))} ago"


def plain(text: str) -> str:
    """Replace characters in a user's text that change how others are shown: control and format characters (Unicode Cc
    and Cf)."""
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cf") else char for char in text)


FILTERS: dict[str, Callable[..., Any]] = {
    "span": span,
    "ago": ago,
    "moment": moment,
    "number": partial(number_text, unknown=UNKNOWN),
    "percent": percent,
    "mib": partial(memory_text, unknown=UNKNOWN),
    "plain": plain,
}
