"""Spans of time as they are written into forms and addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from shared.base.errors import InvalidInput, Problem
from shared.values.utc import LAST_S, ago_s, utc_text

EXPECTED = "a time such as 2026-11-01 08:00 (UTC), or an age such as 7d, 12h, 30m, 2w"
ECHO = 60


@dataclass(frozen=True, slots=True)
class Span:
    """From `from_s` to `to_s` (UTC epoch seconds), and the words in which that was asked for."""

    from_s: float
    to_s: float
    from_text: str
    to_text: str

    @property
    def query(self) -> str:
        """The end of an address that asks for the same moments."""
        return urlencode({"from": f"{self.from_s:.0f}", "to": f"{self.to_s:.0f}"})


def moment_of(where: str, text: str, now_s: float) -> float:
    """UTC epoch seconds of a time that somebody wrote; without an offset it is UTC. Raises `InvalidInput`."""
    ago = ago_s(text)
    if text in ("", "now"):
        return now_s
    if ago is not None:
        return now_s - ago
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00")) if not _is_number(text) else None
        at_s = float(text) if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(Problem(where, f"is {text[:ECHO]!r}", EXPECTED)) from error
    if not 0.0 <= at_s <= LAST_S:
        raise InvalidInput(Problem(where, f"is {text[:ECHO]!r}", EXPECTED))
    return at_s


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def span_of(fields: Mapping[str, str], now_s: float, default: str = "7d", grain_s: float = 60.0) -> Span:
    """Return the span between `from` and `to`; by default the last `default`. A span that ends now is rounded to whole
    `grain_s`, so many readers request the same one. Raises `InvalidInput` with everything that is wrong."""
    from_text, to_text = fields.get("from", "").strip() or default, fields.get("to", "").strip() or "now"
    now_s = math.floor(now_s / grain_s) * grain_s
    ends: list[float] = []
    problems: list[Problem] = []
    for where, text in (("from", from_text), ("to", to_text)):
        try:
            ends.append(moment_of(where, text, now_s))
        except InvalidInput as error:
            problems += error.problems
    if not problems and not ends[0] < ends[1]:
        problems.append(Problem("to", f"is {utc_text(ends[1])}", f"later than from, {utc_text(ends[0])}"))
    if problems:
        raise InvalidInput(*problems)
    return Span(ends[0], ends[1], from_text, to_text)
