"""What a number or name of a message may be: the bounds, and the types by which the fast reader holds to them. Other
texts are in `shared.values.texts`.

`Whole` and `Number` are `int` and `float` to everyone else. `Number` is narrower than what the codec
takes: outside the whole numbers that a float holds exactly, and for NaN, the strict reader decides.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

from msgspec import Meta

from shared.base.errors import InvalidValue

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
TEXT_LENGTH_MAX: Final = 4096  # characters of one string
NAME_LENGTH_MAX: Final = 128
EXACT_MAX: Final = float(1 << 53)

Whole = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
Number = Annotated[float, Meta(ge=-EXACT_MAX, le=EXACT_MAX)]


def positive(field: str, value: float) -> None:
    """Raise `InvalidValue` unless `value` is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(field, value, "a finite number above 0")


def not_negative(field: str, value: float) -> None:
    """Raise `InvalidValue` unless `value` is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(field, value, "a finite number, 0 or above")


def whole(field: str, value: int, least: int, most: int) -> None:
    """Raise `InvalidValue` unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue(field, value, f"a whole number from {least} to {most}")


def check_name(field: str, name: str) -> None:
    """Raise `InvalidValue` unless `name` can be a routing-key word, a file name and an argument of a program: no dots,
    spaces or `#`, and no `-` at its beginning, by which it would be an option."""
    good = 0 < len(name) <= NAME_LENGTH_MAX and all(c.isalnum() or c in "-_" for c in name)
    if not good or not name.isascii() or name[0] == "-":
        raise InvalidValue(field, name, f"1 to {NAME_LENGTH_MAX} ASCII letters, digits, '-' or '_', the first no '-'")
