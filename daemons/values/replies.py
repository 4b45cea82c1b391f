"""Names that are not known, and those that may have been meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

NEAREST_MAX = 3
COMPARED_MAX = 2_000  # a comparison costs some 10 microseconds
LENGTH_OFF_MAX = 3
ALIKE_FRAC = 0.55  # more than half of the letters, in order
ALIKE_SHORT_FRAC = 0.5  # of names of two characters, such as n1 and n2


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Up to three known names like `name`, the nearest first."""
    alike = (known for known in names if abs(len(known) - len(name)) <= LENGTH_OFF_MAX)
    least_frac = ALIKE_SHORT_FRAC if len(name) <= 2 else ALIKE_FRAC
    return get_close_matches(name, list(islice(alike, COMPARED_MAX)), NEAREST_MAX, least_frac)


def unknown(what: str, name: str, names: Iterable[str], where: str = "") -> str:
    """Say that there is no such thing, here or `where`, and what there is that is alike."""
    found = nearest(name, names)
    meant = f"; nearest: {', '.join(repr(str(one)) for one in found)}" if found else ""
    return f"there is no {what} {name!r}{where}{meant}"
