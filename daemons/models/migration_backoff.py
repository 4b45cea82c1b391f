"""When a migration that did not converge is tried again: after ever longer times, and sooner for a calmer guest."""

from __future__ import annotations

import math

FIRST_S = 900.0
MOST_S = 86_400.0
CALMER = 0.5  # so much of the dirty rate at the last try lets it be tried at once


def retry_after_s(failures: int, first_s: float = FIRST_S, most_s: float = MOST_S) -> float:
    """Return how long after the last of so many failures in a row a migration is tried again: `first_s`, then twice as
    long each time, at most `most_s`; 0 without a failure. NaN and negative times count as 0."""
    if failures <= 0:
        return 0.0
    first, most = max(0.0, first_s) if first_s == first_s else 0.0, max(0.0, most_s) if most_s == most_s else 0.0
    return min(most, first * 2.0 ** min(failures - 1, 1_000)) if first > 0.0 else 0.0


def is_calmer(dirty_mib_per_s: float, at_failure_mib_per_s: float) -> bool:
    """Return whether a guest changes memory so much slower than when its migration failed that waiting is pointless.
    False while either rate is not known (negative or NaN)."""
    known = dirty_mib_per_s >= 0.0 and at_failure_mib_per_s > 0.0 and math.isfinite(at_failure_mib_per_s)
    return known and dirty_mib_per_s <= CALMER * at_failure_mib_per_s
