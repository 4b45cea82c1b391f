"""How guests that want all CPU share a host's."""

from __future__ import annotations

from collections.abc import Sequence


def shares(cores: float, wants: Sequence[tuple[int, float]]) -> list[float]:
    """Cores for each (weight, most): in proportion to the weights, what one cannot use goes to the others."""
    got = [0.0] * len(wants)
    open_ = set(range(len(wants)))
    left = cores
    while open_ and left > 1e-12:
        weight = sum(wants[i][0] for i in open_)
        full = {i for i in open_ if wants[i][1] <= left * wants[i][0] / weight}
        if not full:
            for i in open_:
                got[i] = left * wants[i][0] / weight
            break
        for i in full:
            got[i] = wants[i][1]
            left -= wants[i][1]
        open_ -= full
    return got
