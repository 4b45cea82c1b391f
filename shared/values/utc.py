"""Times in words, computed from seconds alone: for cores, which read no clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime

EPOCH_S = 1e9  # seconds above that are a time, below a duration
LAST_S = 253_402_300_799.0  # the end of the year 9999
_UNITS_S = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_AGO = re.compile(r"-?(\d{1,6}(?:\.\d{1,3})?) ?([mhdw])")


def utc_text(epoch_s: float) -> str:
    """Return a time in UTC, cut to the second: `2026-10-18T12:00:00Z`. epoch_s: seconds since 1970, 0 to `LAST_S`."""
    return datetime.fromtimestamp(int(epoch_s), UTC).isoformat().replace("+00:00", "Z")


def ago_s(text: str) -> float | None:
    """Return how many seconds ago `7d`, `-12h`, `1.5 h` or `2w` is; None for any other text."""
    found = _AGO.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]
