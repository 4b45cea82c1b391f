"""Approximate mean value analysis of the network of `product_form` (Bard 1979, Schweitzer 1979), for any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.dilation.formula import Floats, Servers, waiting

ROUNDS_MAX = 500
NEAR = 1e-10


def dilation(p: ArrayLike, servers: Servers = None) -> Floats:
    """Dilation of each of the jobs that share a node, float64[n].

    A job finds at each resource what the others have there in its presence (exactly: in its absence), so it is found
    by repetition, some thirty rounds of n x m each. Nearer to the exact network than the formula from about five jobs
    on (docs/explanation/interference.md), but not exact for two."""
    loads = np.asarray(p, dtype=np.float64)
    times = np.ones_like(loads)  # that a slice spends at each resource
    found = np.ones(loads.shape[0])
    for _ in range(ROUNDS_MAX):
        present = loads * times / found[:, None]
        times = 1.0 + waiting(np.maximum(present.sum(axis=0) - present, 0.0), servers)
        last, found = found, 1.0 + np.einsum("ji,ji->j", loads, times - 1.0)
        if np.all(np.abs(found - last) <= NEAR * found):
            break
    return found
