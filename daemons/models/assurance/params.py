"""What the parameters of admission policies may be: the prices of the classes of service."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from shared.base.errors import InvalidInput, Problem
from shared.policy_api.admission import ClassPrice
from shared.values.reservation import ServiceClass

KNOWN = ("best_effort", "guaranteed", "predictable")
_NUMBER = "a finite number, 0 or above"
_PAIRS = "a list of [theta, price], theta above 0 and below 1"


@dataclass(frozen=True, slots=True)
class Params:
    """Prices per unit-hour used, in any currency: for class guaranteed, for class predictable by theta, and for best
    effort. They do not rise with falling service probability."""

    guaranteed: float = 1.0
    predictable: tuple[tuple[float, float], ...] = ((0.999, 0.8), (0.99, 0.6), (0.9, 0.4))
    best_effort: float = 0.2

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """Raises `InvalidInput` naming every parameter that is not known or cannot be used."""
        problems = [
            Problem(f"admission policy: {key}", "there is no such parameter", ", ".join(KNOWN))
            for key in params
            if key not in KNOWN
        ]
        for key in ("guaranteed", "best_effort"):
            if key in params and not _price(params[key]):
                problems.append(Problem(f"admission policy: {key}", f"{params[key]!r} cannot be used", _NUMBER))
        problems += _pair_problems(params.get("predictable", ()))
        if problems:
            raise InvalidInput(*problems)
        given = dict(params)
        if "predictable" in given:
            pairs = sorted(((float(theta), float(price)) for theta, price in given["predictable"]), reverse=True)
            given["predictable"] = tuple(pairs)
        made = cls(**given)
        falling = [made.guaranteed, *(price for _, price in made.predictable), made.best_effort]
        if any(after > before for before, after in pairwise(falling)):
            shown = ", ".join(f"{price:g}" for price in falling)
            raise InvalidInput(
                Problem("admission policy: prices", f"{shown} by falling assurance", "prices that do not rise")
            )
        return made

    def prices(self) -> tuple[ClassPrice, ...]:
        """Return the prices by falling service probability."""
        return (
            ClassPrice(ServiceClass.GUARANTEED, self.guaranteed),
            *(ClassPrice(ServiceClass.PREDICTABLE, price, theta) for theta, price in self.predictable),
            ClassPrice(ServiceClass.BEST_EFFORT, self.best_effort),
        )


def _price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0.0


def _pair_problems(pairs: Any) -> list[Problem]:
    where = "admission policy: predictable"
    if not isinstance(pairs, list | tuple) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs):
        return [Problem(where, f"{pairs!r} cannot be used", _PAIRS)]
    found = []
    for theta, price in pairs:
        if not _price(theta) or not 0.0 < theta < 1.0:
            hint = "above 0 and below 1; 1 is class guaranteed"
            found.append(Problem(f"{where}: theta", f"{theta!r} cannot be promised", hint))
        if not _price(price):
            found.append(Problem(f"{where}: price", f"{price!r} cannot be used", _NUMBER))
    thetas = [theta for theta, _ in pairs]
    if not found and len(set(thetas)) < len(thetas):
        found.append(Problem(where, f"{pairs!r} cannot be used", "each theta once"))
    return found
