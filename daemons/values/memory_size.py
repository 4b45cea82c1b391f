"""Amounts of memory as people write them."""

from __future__ import annotations

import math
import re

from shared.base.errors import InvalidValue

_MIB = {"mib": 1, "gib": 1 << 10, "tib": 1 << 20}
_WRITTEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([kmgt]ib)", re.ASCII | re.IGNORECASE)
EXPECTED = "a whole number of MiB, such as 32GiB, 1.5GiB or 512MiB"


def memory_mib(field: str, text: str) -> int:
    """Return the MiB (1 or more) of `32GiB`, `512 MiB` or `0.5TiB`. Raises `InvalidValue` for anything else, amounts
    that are no whole MiB included."""
    found = _WRITTEN.fullmatch(text.strip())
    factor = _MIB.get(found[2].lower(), 0) if found else 0
    mib = float(found[1]) * factor if found else 0.0
    if mib < 1.0 or not math.isclose(mib, round(mib), rel_tol=0.0, abs_tol=1e-9):
        raise InvalidValue(field, text[:40], EXPECTED)
    return round(mib)
