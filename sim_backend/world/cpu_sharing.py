"""Processor sharing: weighted max-min with caps, the rule by which a host divides its CPU among guests.

Nobody gets more than its cap; what is left is divided in proportion to the weights among those below their caps
(water-filling). `shares` picks the faster of two forms that give the same result up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

FEW = 64  # above this many guests the numpy form is the faster one (measured)
HUGE = 1e100


def shares(weights: Sequence[float], caps: Sequence[float], capacity: float) -> list[float]:
    """Divide `capacity` (MHz); returns one share per guest, 0 <= share <= cap, their sum at most `capacity`.

    Caps and capacity that are NaN or negative count as 0; either may be infinite. Guests of infinite weight
    come first and guests of weight 0 (NaN, negative) last, each group dividing evenly what is left for it.
    """
    form = shares_few if len(caps) <= FEW else shares_many
    return form(weights, caps, capacity)


def shares_few(weights: Sequence[float], caps: Sequence[float], capacity: float) -> list[float]:
    """Compute `shares` in plain Python, O(n log n): the fast form for few guests."""
    return _by_group(weights, caps, capacity, _fill_few)


def shares_many(weights: Sequence[float], caps: Sequence[float], capacity: float) -> list[float]:
    """Compute `shares` in numpy, O(n log n): the fast form for many guests."""
    return _by_group(weights, caps, capacity, _fill_many)


_Fill = Callable[[list[float], list[float], float], list[float]]


def _by_group(weights: Sequence[float], caps: Sequence[float], capacity: float, fill: _Fill) -> list[float]:
    whole = capacity if capacity > 0 else 0.0
    limits = [min(cap, whole) if cap > 0 else 0.0 for cap in caps]
    if sum(limits) <= whole:
        return limits
    if whole > HUGE:  # sums and ratios would leave the range of a float
        parts = _by_group(weights, [limit / whole for limit in limits], 1.0, fill)
        return [min(limit, part * whole) for limit, part in zip(limits, parts, strict=True)]
    result, left = [0.0] * len(limits), whole
    groups: tuple[list[int], list[int], list[int]] = ([], [], [])
    for i, weight in enumerate(weights):
        groups[0 if weight == math.inf else 1 if weight > 0 else 2].append(i)
    for rank, group in enumerate(groups):
        if not group:
            continue
        own = [weights[i] if rank == 1 else 1.0 for i in group]
        given = fill(_bounded(own), [limits[i] for i in group], left)
        for i, share in zip(group, given, strict=True):
            result[i] = share
        left = max(0.0, left - sum(given))
    return result


def _bounded(weights: list[float]) -> list[float]:
    """Return the weights, scaled if their sum or ratios would exceed the range of a float."""
    highest = max(weights)
    if min(weights) > 1 / HUGE and highest < HUGE:
        return weights
    return [max(weight / highest, 1e-200) for weight in weights]


def _fill_few(weights: list[float], caps: list[float], capacity: float) -> list[float]:
    order = sorted(range(len(caps)), key=lambda i: caps[i] / weights[i])
    below = [0.0] * len(caps)  # the weight of those whose caps are reached no earlier
    total = 0.0
    for place in range(len(order) - 1, -1, -1):
        total += weights[order[place]]
        below[place] = total
    result, left = [0.0] * len(caps), capacity
    for place, i in enumerate(order):
        level = left / below[place]
        if caps[i] > weights[i] * level:
            for j in order[place:]:
                result[j] = min(caps[j], weights[j] * level)
            return result
        result[i] = min(caps[i], left)
        left = max(0.0, left - caps[i])
    return result


def _fill_many(weights: list[float], caps: list[float], capacity: float) -> list[float]:
    w, c = np.array(weights), np.array(caps)
    order = np.argsort(c / w, kind="stable")
    w_sorted, c_sorted = w[order], c[order]
    below = np.cumsum(w_sorted[::-1])[::-1]
    before = np.cumsum(np.concatenate(([0.0], c_sorted[:-1])))  # what those whose caps are reached earlier take
    levels = np.maximum(0.0, capacity - before) / below
    above = np.flatnonzero(c_sorted > w_sorted * levels)
    if not above.size:
        return caps
    level = float(levels[above[0]])
    filled: list[float] = np.minimum(c, w * level).tolist()
    return filled
