"""What both types say of numbers in the table `[terms]` of an agreement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.base.errors import InvalidInput, Problem


@dataclass(frozen=True, slots=True)
class Number:
    """A term: its default, what it means in words, between what it may be, and whether it is a whole number."""

    default: float
    meaning: str
    least: float
    most: float
    whole: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value will do."""
        kinds = int if self.whole else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and self.least <= value <= self.most

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:g} to {self.most:g}"


def meanings(known: Mapping[str, Number]) -> dict[str, str]:
    """Each term in words."""
    return {key: f"{number.meaning}; {number.default:g}" for key, number in known.items()}


def check(name: str, known: Mapping[str, Number], terms: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` with one problem for each term that is not known or will not do."""
    problems = []
    for key, value in terms.items():
        where = f"type {name}: {key}"
        if key not in known:
            problems.append(Problem(where, "there is no such term", ", ".join(known)))
        elif not known[key].fits(value):
            problems.append(Problem(where, f"is {value!r}", str(known[key])))
    if problems:
        raise InvalidInput(*problems)


def value_of(known: Mapping[str, Number], terms: Mapping[str, Any], key: str) -> float:
    """A term, or its default."""
    value = float(terms.get(key, known[key].default))
    return value if math.isfinite(value) else known[key].default
