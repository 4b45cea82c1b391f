"""The parameters of the policy, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shared.base.errors import InvalidInput, Problem

GUARDS = ("off", "on", "equal")


@dataclass(frozen=True, slots=True)
class Params:
    """heads: how many first jobs the add loop tries for a node (at least 1). tolerance: differences of utility
    up to it are none (0 or above). guard: a job may take the place of another only if it is the more urgent one: "on"
    always, "equal" between jobs of relative goals that differ by at most 1 %, "off" never looked at. changes_max: so
    many workloads may be suspended or moved in a decision (0: no limit). cool_down_s: what was changed so short a time
    ago is neither moved nor suspended. event_driven_start: idle room is filled between cycles too. passes: how often
    the nodes are gone through, at most (at least 1). preference_moves: so many workloads may be moved in a cycle for
    preferred rules alone (0: none)."""

    heads: int = 4
    tolerance: float = 0.01
    guard: str = "equal"
    changes_max: int = 0
    cool_down_s: float = 0.0
    event_driven_start: bool = True
    passes: int = 3
    preference_moves: int = 10


def _whole(least: int) -> tuple[str, Any]:
    return f"a whole number, {least} or above", (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= least
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


_RIGHT: dict[str, tuple[str, Any]] = {
    "heads": _whole(1),
    "tolerance": ("a finite number, 0 or above", _number),
    "guard": ("one of " + ", ".join(GUARDS), lambda v: isinstance(v, str) and v in GUARDS),
    "changes_max": _whole(0),
    "cool_down_s": ("a finite number, 0 or above", _number),
    "event_driven_start": ("true or false", lambda v: isinstance(v, bool)),
    "passes": _whole(1),
    "preference_moves": _whole(0),
}


def parsed(params: Mapping[str, Any], policy: str) -> Params:
    """Parse the parameters; raises `InvalidInput` naming every key that is unknown or unusable."""
    names = [field.name for field in fields(Params)]
    problems = []
    for key, value in params.items():
        where = f"policy {policy}: {key}"
        if key not in _RIGHT:
            problems.append(Problem(where, "there is no such parameter", ", ".join(names)))
        elif not _RIGHT[key][1](value):
            problems.append(Problem(where, f"{value!r} cannot be used", _RIGHT[key][0]))
    if problems:
        raise InvalidInput(*problems)
    return Params(**params)
