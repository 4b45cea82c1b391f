"""Max-min fair division: everybody the same, and what one cannot use is the others'."""

from __future__ import annotations

from collections.abc import Sequence


def max_min(limits: Sequence[float], capacity: float) -> list[float]:
    """Divide a capacity (MHz) among takers, none above its limit (MHz); the shares in the order of the limits.

    O(n log n). Limits and capacity that are NaN or negative count as 0; either may be infinite.
    """
    bounds = [limit if limit > 0.0 else 0.0 for limit in limits]
    given = [0.0] * len(bounds)
    left = capacity if capacity > 0.0 else 0.0
    order = sorted(range(len(bounds)), key=bounds.__getitem__)
    for place, at in enumerate(order):
        share = left / (len(order) - place)
        if bounds[at] > share:
            for rest in order[place:]:
                given[rest] = share
            break
        given[at] = min(bounds[at], left)
        left = max(0.0, left - given[at]) if given[at] < float("inf") else left
    return given
