"""Utility of jobs: 1 at best, 0 exactly on the goal, negative for a goal missed (apc.txt sections 3.2 and 4.1).

The *relative margin* of a completion time t is (goal - t) / (goal - start). A registered form maps it to a utility,
strictly increasing and 0 at 0; `relative` is the paper's Eq. 2, the margin itself. Importance w > 0 divides a positive
utility and multiplies a negative one, so that the more important of two equal workloads counts as the unhappier.

A best-effort job has no goal (goal_s inf or NaN): it cannot miss one, its utility is 1 whatever it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats

LINEAR_BELOW = -20.0  # exponential lateness goes on in a straight line from here: exp(20) stays invertible
Curve = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class UtilityForm:
    """A way to value the relative margin; all three take and give float64 arrays of any shape.

    utility: of a margin, strictly increasing, 0 at 0. margin: its inverse, inf from the supremum of the utilities on.
    margin_slope: d margin / d utility at a utility, 0 from the supremum on.
    """

    name: str
    utility: Curve
    margin: Curve
    margin_slope: Curve


def _saturating(margin: Floats) -> Floats:
    early = np.maximum(margin, 0.0)
    # 1 - 1 / (1 + x) is x / (1 + x) for an infinite x too, but loses digits near 0.
    return np.where(margin > 1.0, 1.0 - 1.0 / (1.0 + early), margin / (1.0 + np.minimum(early, 1.0)))


def _saturating_margin(utility: Floats) -> Floats:
    reached = utility < 1.0
    return np.where(reached, utility / np.where(reached, 1.0 - np.maximum(utility, 0.0), 1.0), np.inf)


def _saturating_slope(utility: Floats) -> Floats:
    reached = utility < 1.0
    return np.where(reached, np.where(reached, 1.0 - np.maximum(utility, 0.0), 1.0) ** -2.0, 0.0)


def _lateness(margin: Floats) -> Floats:
    bent = np.clip(margin, LINEAR_BELOW, 0.0)
    steep = np.exp(-LINEAR_BELOW) * np.minimum(margin - LINEAR_BELOW, 0.0)
    return np.where(margin < 0.0, -np.expm1(-bent) + steep, margin)


def _lateness_margin(utility: Floats) -> Floats:
    bent = np.clip(utility, _LATEST, 0.0)
    return np.where(
        utility < 0.0, -np.log1p(-bent) + np.minimum(utility - _LATEST, 0.0) / np.exp(-LINEAR_BELOW), utility
    )


def _lateness_slope(utility: Floats) -> Floats:
    return 1.0 / (1.0 - np.clip(utility, _LATEST, 0.0))


_LATEST = -float(np.expm1(-LINEAR_BELOW))


def _same(value: Floats) -> Floats:
    return value


RELATIVE = UtilityForm("relative", _same, _same, np.ones_like)
FORMS: Mapping[str, UtilityForm] = MappingProxyType(
    {
        form.name: form
        for form in (
            RELATIVE,
            # x / (1 + x) above the goal: being ever earlier is worth ever less, 1/2 at the desired start.
            UtilityForm("capped-relative", _saturating, _saturating_margin, _saturating_slope),
            # 1 - exp(-x) below the goal: each further delay hurts more than the one before.
            UtilityForm("exponential-lateness", _lateness, _lateness_margin, _lateness_slope),
        )
    }
)


def form_of(name: str) -> UtilityForm:
    """The registered form of that name; raises `InvalidValue` for another."""
    if name not in FORMS:
        raise InvalidValue("utility form", name, f"one of {', '.join(sorted(FORMS))}")
    return FORMS[name]


def weighted(utility: ArrayLike, importance: ArrayLike) -> Floats:
    """The utility as importance (> 0) makes it count; importance 1 changes no bit."""
    value, times = np.asarray(utility, dtype=np.float64), np.asarray(importance, dtype=np.float64)
    counted: Floats = np.where(value > 0.0, value / times, value * times)
    return counted


def unweighted(utility: ArrayLike, importance: ArrayLike) -> Floats:
    """The inverse of `weighted`."""
    counted, times = np.asarray(utility, dtype=np.float64), np.asarray(importance, dtype=np.float64)
    value: Floats = np.where(counted > 0.0, counted * times, counted / times)
    return value


def utility_at(
    t_s: ArrayLike, start_s: ArrayLike, goal_s: ArrayLike, importance: ArrayLike = 1.0, form: UtilityForm = RELATIVE
) -> Floats:
    """Utility of jobs that complete at `t_s`; absolute seconds, arrays that broadcast. 1 without a goal; -inf for a
    job with a goal that never completes (t_s = inf)."""
    goal, start = np.asarray(goal_s, dtype=np.float64), np.asarray(start_s, dtype=np.float64)
    aims = np.isfinite(goal)
    span = np.where(aims, goal - start, 1.0)
    margin = (np.where(aims, goal, 0.0) - np.asarray(t_s, dtype=np.float64)) / span
    return np.where(aims, weighted(form.utility(np.where(aims, margin, 0.0)), importance), 1.0)
