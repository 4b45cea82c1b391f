"""Levels and completions by the other way round: what the models are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.level import JobDemand, Level
from daemons.models.utility import unweighted
from shared.policy_api.snapshot import Floats


def level_of(
    a: Floats,
    b: Floats,
    r: Floats,
    tb: Floats,
    omega_g_mhz: float,
    start: float | None = None,
    importance: Floats | None = None,
) -> Level:
    """The common level of jobs that are given `omega_g_mhz` together; arguments as for `JobDemand` and its `solve`."""
    return JobDemand(a, b, r, tb, importance).solve(omega_g_mhz, start)


def completion_at(utility: ArrayLike, start_s: ArrayLike, goal_s: ArrayLike, importance: ArrayLike = 1.0) -> Floats:
    """The completion (absolute seconds) that gives the utility: the inverse of `utility_at`. inf without a goal."""
    goal, start = np.asarray(goal_s, dtype=np.float64), np.asarray(start_s, dtype=np.float64)
    aims = np.isfinite(goal)
    span = np.where(aims, goal - start, 1.0)
    return np.where(aims, goal - unweighted(utility, importance) * span, np.inf)
