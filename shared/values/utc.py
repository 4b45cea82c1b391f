"""Times in words, by arithmetic on seconds: for cores, which know no calendar of the machine."""

from __future__ import annotations

import re

EPOCH_S = 1e9  # seconds above that are a time, below a duration
LAST_S = 253_402_300_799.0  # the end of the year 9999
_DAY_S = 86_400
_UNITS_S = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_AGO = re.compile(r"-?(\d{1,6}(?:\.\d{1,3})?) ?([mhdw])")
_ERA_DAYS = 146_097  # 400 years
_SHIFT_DAYS = 719_468  # from 1 March of the year 0 to 1970


def utc_text(epoch_s: float) -> str:
    """A time in UTC, cut to the second: `2026-10-18T12:00:00Z`. epoch_s: seconds since 1970, 0 to `LAST_S`."""
    days, second = divmod(int(epoch_s), _DAY_S)
    era, day = divmod(days + _SHIFT_DAYS, _ERA_DAYS)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153  # from March
    day_of_month = day - (153 * month + 2) // 5 + 1
    year += 400 * era + (month > 9)
    month += 3 if month < 10 else -9
    hour, minute = divmod(second // 60, 60)
    return f"{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second % 60:02}Z"


def ago_s(text: str) -> float | None:
    """How many seconds ago `7d`, `-12h`, `1.5 h` or `2w` is; None for a text that does not say so."""
    found = _AGO.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS_S[found[2]]
