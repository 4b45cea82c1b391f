"""The utility of jobs: 1 at best, 0 if the goal is met exactly, negative if it is missed (apc.txt sections 3.2 and
4.1).

The utility of a completion time t is the relative margin (goal - t) / (goal - start), the paper's Eq. 2. Importance w >
0 divides a positive utility and multiplies a negative one: of two equal workloads, the more important one counts as the
one with the lower utility.

A best-effort job has no goal (goal_s inf or NaN): it cannot miss one, and its utility is always 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shared.policy_api.snapshot import Floats


def weighted(utility: ArrayLike, importance: ArrayLike) -> Floats:
    """Return the utility weighted by importance (> 0); importance 1 changes no bit."""
    value, times = np.asarray(utility, dtype=np.float64), np.asarray(importance, dtype=np.float64)
    counted: Floats = np.where(value > 0.0, value / times, value * times)
    return counted


def unweighted(utility: ArrayLike, importance: ArrayLike) -> Floats:
    """Return the inverse of `weighted`."""
    counted, times = np.asarray(utility, dtype=np.float64), np.asarray(importance, dtype=np.float64)
    value: Floats = np.where(counted > 0.0, counted * times, counted / times)
    return value


def utility_at(t_s: ArrayLike, start_s: ArrayLike, goal_s: ArrayLike, importance: ArrayLike = 1.0) -> Floats:
    """Utility of jobs that complete at `t_s`; absolute seconds, arrays that broadcast. 1 without a goal; -inf for a
    job with a goal that never completes (t_s = inf)."""
    goal, start = np.asarray(goal_s, dtype=np.float64), np.asarray(start_s, dtype=np.float64)
    aims = np.isfinite(goal)
    span = np.where(aims, goal - start, 1.0)
    margin = (np.where(aims, goal, 0.0) - np.asarray(t_s, dtype=np.float64)) / span
    return np.where(aims, weighted(np.where(aims, margin, 0.0), importance), 1.0)
