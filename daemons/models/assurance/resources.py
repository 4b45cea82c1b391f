"""Several resources at once (section 3.1: one sequence of distributions for each): which of them binds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shared.base.errors import InvalidValue


def binding(needed: Mapping[str, float], there: Mapping[str, float]) -> tuple[str, float]:
    """Return the resource with the largest needed part of its available amount, and that part; the first of equals.

    If nothing of a resource is available, the part is infinite, unless nothing is needed. Raises `InvalidValue` if no
    resource is given, an amount is negative or not finite, or the available amount of a resource is missing.
    """
    parts: dict[str, float] = {}
    for name, amount in needed.items():
        if name not in there:
            raise InvalidValue("there", sorted(there), f"an amount of {name}")
        has = there[name]
        if not (math.isfinite(amount) and math.isfinite(has) and amount >= 0.0 and has >= 0.0):
            raise InvalidValue(name, (amount, has), "finite amounts, 0 or above")
        parts[name] = amount / has if has > 0.0 else (0.0 if amount == 0.0 else math.inf)
    if not parts:
        raise InvalidValue("needed", 0, "at least one resource")
    most = max(parts, key=lambda name: parts[name])
    return most, parts[most]
