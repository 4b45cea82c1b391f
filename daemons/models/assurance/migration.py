"""The migration rule (section 6.3): servers are asked for one slot earlier and given back one slot later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Demand = NDArray[np.int32]


def with_migration(demand: Demand) -> Demand:
    """Return the largest demand of each slot instance and its two neighbours: int32[..., instances] in, the same shape
    out.

    The instances are one series: the first and the last have one neighbour. A negative demand marks an instance that
    was not observed: it stays negative and does not count as a neighbour.
    """
    found = demand.copy()
    np.maximum(found[..., 1:], demand[..., :-1], out=found[..., 1:])
    np.maximum(found[..., :-1], demand[..., 1:], out=found[..., :-1])
    return np.where(demand < 0, demand, found)
