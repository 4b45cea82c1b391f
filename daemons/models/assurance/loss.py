"""From the distribution of a sum Y to the assurance theta(Gamma) = E[min(Gamma / Y, 1)] (eq. 7) and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints

SLACK = 1e-12  # of theta, for rounding: a Gamma whose theta misses what is wanted by less than this is enough


def theta_of(pmf: Floats, gamma: float | Floats) -> Floats:
    """Return float64[slots] from pmf float64[slots, units + 1] and gamma >= 0, a number or one for each slot; whole or
    fractional.

    A sum of 0 is served in full. Raises `InvalidValue` for a gamma that is negative or NaN; infinity serves all.
    """
    units = np.asarray(gamma, dtype=np.float64)
    if not (units >= 0.0).all():
        raise InvalidValue("gamma", "outside its range", "numbers, 0 or above")
    values = np.arange(1.0, pmf.shape[-1])
    if units.ndim == 0:
        lost = pmf[:, 1:] @ np.maximum(1.0 - units / values, 0.0)
    else:
        lost = np.zeros(pmf.shape[0])
        for at, (row, own) in enumerate(zip(pmf, units, strict=True)):
            first = int(min(max(np.floor(own), 0.0), row.size - 1))  # only sums above it lose
            lost[at] = row[first + 1 :] @ (1.0 - own / values[first:])
    return np.clip(1.0 - lost, 0.0, 1.0)


def gamma_of(pmf: Floats, theta: float, peaks: Ints) -> Ints:
    """Return the least whole gamma of each slot with at least this service probability (0 < theta <= 1), int64[slots];
    1: the peak."""
    return theta_at_least(theta, peaks, lambda units: theta_of(pmf, units.astype(np.float64)))


def theta_at_least(theta: float, peaks: Ints, assured: Callable[[Ints], Floats]) -> Ints:
    """Find the least units by bisection between 0 and the peaks, which serve everything; `assured` must not decrease
    with the units."""
    if not 0.0 < theta <= 1.0:
        raise InvalidValue("theta", theta, "above 0, at most 1")
    enough = np.array(peaks, dtype=np.int64)
    if theta == 1.0:
        return enough
    short = np.full_like(enough, -1)  # not enough by convention
    while (enough - short > 1).any():
        middle = np.maximum((enough + short) // 2, 0)
        serves = (assured(middle) >= theta - SLACK) & (enough - short > 1)
        fails = ~serves & (enough - short > 1)
        enough, short = np.where(serves, middle, enough), np.where(fails, middle, short)
    return enough
