"""What the parameters of provisioning policies may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from shared.base.errors import InvalidInput, Problem

Check = tuple[Callable[[Any], bool], str]


def share(value: Any) -> bool:
    """Return whether it is a number from 0 to 1."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return good and math.isfinite(value) and 0.0 <= value <= 1.0


def count(value: Any) -> bool:
    """Return whether it is None or a whole number, 0 or above."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


TOLERANCE: Check = (share, "a number from 0 to 1")
COUNT: Check = (count, "a whole number, 0 or above")
SWITCH: Check = (lambda value: isinstance(value, bool), "true or false")


def check(policy: str, params: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Raise `InvalidInput` naming every parameter that is not `known` or that its check refuses."""
    problems = []
    for key, value in params.items():
        where = f"policy {policy}: {key}"
        if key not in known:
            problems.append(Problem(where, "there is no such parameter", ", ".join(sorted(known)) or "none"))
        elif not known[key][0](value):
            problems.append(Problem(where, f"{value!r} cannot be used", known[key][1]))
    if problems:
        raise InvalidInput(*problems)
