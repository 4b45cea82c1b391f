"""How far each application's demand varies with the others', learnt by admission (section 3.2: "gradually used to
replace the pessimistic bound").

The coupling of an application is the sum of its covariances with all others by the sum of the largest covariances that
their distributions allow (comonotone): 0 independent, 1 the worst case. While little is known its upper bound counts,
Wilson's, which is 1 without observations; of two applications the one with the larger bound decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from daemons.models.assurance.intervals import wilson
from shared.policy_api.snapshot import Floats, Ints

LEVELS = 16  # bounds are rounded up to so many steps, so that a day more seldom changes them


def measured(demand: Ints, slots: Ints) -> Floats:
    """Return the coupling of each application, 0..1, float64[applications]: the largest over the slots. demand: whole
    numbers [applications, instances], all observed; slots: the slot of each instance, [instances]. 0 if an application,
    or the sum of all others, never varies."""
    found = np.zeros(demand.shape[0])
    for slot in np.unique(slots):
        apart = demand[:, slots == slot].astype(np.float64)
        apart -= apart.mean(axis=1, keepdims=True)
        ranked = np.sort(apart, axis=1)
        own = (apart**2).sum(axis=1)
        together = apart @ apart.sum(axis=0) - own
        most = ranked @ ranked.sum(axis=0) - own
        varies = most > 1e-12 * max(1.0, float(own.sum()))
        found = np.maximum(found, np.divide(together, most, out=np.zeros_like(most), where=varies))
    return np.clip(found, 0.0, 1.0)


@lru_cache(maxsize=4_096)
def upper(coupling: float, observations: int) -> float:
    """Return the assumed coupling for one that was measured on `observations` instances of a slot: Wilson's upper bound
    at 95 %, in steps of 1 / `LEVELS`."""
    bound = float(wilson(np.array(coupling), np.array(observations))[1])
    return min(1.0, math.ceil(bound * LEVELS - 1e-9) / LEVELS)


def pair_couplings(couplings: Sequence[float], shared_variance: Sequence[Floats]) -> Floats:
    """Return the variance that pairs add to a sum, float64[slots]. couplings: bounds, rising; shared_variance: for each
    bound, the variance that pairs within it and those before it would add in the worst case, float64[slots]."""
    total, before = np.zeros_like(shared_variance[0]), np.zeros_like(shared_variance[0])
    for coupling, upto in zip(couplings, shared_variance, strict=True):
        total += coupling * (upto - before)
        before = upto
    return total
