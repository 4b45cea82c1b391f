"""What a number or text of a message may be: the bounds, and the types by which the fast reader holds to them.

`Whole`, `Number` and `Text` are `int`, `float` and `str` to everyone else. `Number` is narrower than what the codec
takes: outside the whole numbers that a float holds exactly, and for NaN, the strict reader decides.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
TEXT_LENGTH_MAX: Final = 4096  # characters of one string
EXACT_MAX: Final = float(1 << 53)

Whole = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
Number = Annotated[float, Meta(ge=-EXACT_MAX, le=EXACT_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
