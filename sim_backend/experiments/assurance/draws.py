"""Demands drawn from observed ones (statistical-assurance.txt, sections 6.4.2 and 6.4.3): a uniform number indexes the
sorted observations of an application's slot, which is to index its probabilities. All arrays are [days, slots,
applications].
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from shared.policy_api.snapshot import Floats, Ints


def drawn(observed: Ints, days: int, rng: Generator, together: bool = False) -> Ints:
    """Demands of so many days: independent of one another, or all indexed by the same uniform number of each day and
    slot, as correlated as they can be."""
    known, slots, applications = observed.shape
    uniform = rng.random((days, slots, 1 if together else applications))
    index = np.broadcast_to((uniform * known).astype(np.int64), (days, slots, applications))
    return np.take_along_axis(np.sort(observed, axis=0), index, axis=0)


def resampled(observed: Ints, days: int, rng: Generator) -> Ints:
    """Return days in which each application and slot is resampled from the observed days, as another possible history
    of that length. The number of each value is binomial and the probabilities sum to 1 (section 6.4.3)."""
    index = rng.integers(len(observed), size=(days, *observed.shape[1:]))
    return np.take_along_axis(observed, index, axis=0)


def satisfied(demand: Ints, servers: int) -> Floats:
    """Return the fraction of each day's and slot's demand that `servers` servers satisfy [days, slots]: min(servers /
    demand, 1) (section 6.4.2); 1 where there is no demand."""
    total = demand.sum(axis=-1)
    part: Floats = np.minimum(servers / np.maximum(total, 1), 1.0)
    return part
