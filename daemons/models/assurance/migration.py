"""The migration rule (section 6.3): servers are asked for one slot earlier and given back one slot later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Demand = NDArray[np.int32]


def with_migration(demand: Demand) -> Demand:
    """The largest of each slot instance's demand and its two neighbours': int32[..., instances] in, the same out.

    The instances are one series, whose first and last have one neighbour; a negative demand stands for an instance that
    was not observed: it stays so and does not count as a neighbour."""
    found = demand.copy()
    np.maximum(found[..., 1:], demand[..., :-1], out=found[..., 1:])
    np.maximum(found[..., :-1], demand[..., 1:], out=found[..., :-1])
    return np.where(demand < 0, demand, found)
