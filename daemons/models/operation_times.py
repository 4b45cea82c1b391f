"""How long an operation on a VM takes against its memory: seconds = fixed + per MiB, from what was measured and a
prior.

Robust, since a few operations wait for minutes: the slope is the median of the slopes between pairs of measurements
(Theil 1950, Sen 1968), the fixed part the median of what is left. Where the sizes measured say nothing of the slope it
is the prior's, or less where even the whole of that is more than what was measured. The prior counts like
`PRIOR_WEIGHT` measurements at the median size: it holds alone at first, and can shift the median of ten by one rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

PRIOR_WEIGHT = 2
SAMPLES_MAX = 40  # the newest: storage and networks change
APART = 1.5  # sizes whose extremes differ less say nothing of the slope
SLOPED_FROM = 6  # fewer measurements neither
SECONDS_MAX = 6 * 3600.0  # longer ones were something else
FIXED_S_MAX, S_PER_MIB_MAX = SECONDS_MAX, 10.0


class Measured(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One operation that was done: the VM's memory in MiB, and seconds from its order to its answer."""

    memory_mib: float
    seconds: float


@dataclass(frozen=True, slots=True)
class OperationLine:
    """Seconds = fixed_s + s_per_mib x MiB, both at least 0."""

    fixed_s: float
    s_per_mib: float

    def seconds(self, memory_mib: float) -> float:
        """Return the duration for a VM of `memory_mib`."""
        return self.fixed_s + self.s_per_mib * memory_mib


def with_measured(samples: tuple[Measured, ...], memory_mib: float, seconds: float) -> tuple[Measured, ...]:
    """Return the newest samples with one more; unchanged for figures that say nothing (not finite, not above 0 s, more
    than `SECONDS_MAX`)."""
    if not (0.0 < seconds <= SECONDS_MAX and 0.0 <= memory_mib < math.inf):
        return samples
    return (*samples, Measured(memory_mib, seconds))[-SAMPLES_MAX:]


def line_of(samples: Sequence[Measured], prior: OperationLine) -> OperationLine:
    """Return the line to use for estimates. O(n^2) for n samples, at most `SAMPLES_MAX`."""
    if not samples:
        return prior
    mib = np.array([one.memory_mib for one in samples])
    seconds = np.array([one.seconds for one in samples])
    centre = float(np.median(mib))
    sizes = np.append(mib, [centre] * PRIOR_WEIGHT)
    times = np.append(seconds, [prior.seconds(centre)] * PRIOR_WEIGHT)
    slope = min(_slope(mib, seconds, prior.s_per_mib), S_PER_MIB_MAX)
    fixed_s = float(np.median(times - slope * sizes))
    if fixed_s < 0.0:  # through the origin then
        slope, fixed_s = float(np.median(times / np.maximum(sizes, 1.0))), 0.0
    return OperationLine(min(fixed_s, FIXED_S_MAX), min(max(slope, 0.0), S_PER_MIB_MAX))


def _slope(mib: np.ndarray, seconds: np.ndarray, prior_s_per_mib: float) -> float:
    if len(mib) >= SLOPED_FROM and mib.max() >= APART * max(float(mib.min()), 1.0):
        first, second = np.triu_indices(len(mib), 1)
        apart = mib[second] - mib[first]
        differ = np.abs(apart) > 1e-9 * mib.max()
        return max(0.0, float(np.median((seconds[second] - seconds[first])[differ] / apart[differ])))
    return min(prior_s_per_mib, float(np.median(seconds / np.maximum(mib, 1.0))))
