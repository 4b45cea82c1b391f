"""The hypothetical utility of jobs as apc.txt samples it (Eqs. 8 to 16): what the exact level is compared with.

`daemons.models.level` solves the same equation exactly and faster; nothing decides by this form. Eqs. 14 and 15 cannot
be applied as printed. Reading: app_ratio_m = growth of the sum / growth of the job's own cell, ratio_m = ratio_g *
app_ratio_m for all jobs of a segment with a constrained job, the result kept within the segment's cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats

LEVELS = (-np.inf, -50.0, -20.0, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class SampledUtility:
    """The matrices W (MHz) and V (utility), float64[levels, jobs], over rising target levels, the first -inf.

    a, b, r: work left (Mcycles), time to the goal and relative goal (s) of each job, as in `daemons.models.level`.
    """

    levels: Floats
    w: Floats
    v: Floats
    a: Floats
    b: Floats
    r: Floats

    def omegas(self, omega_g_mhz: float) -> Floats:
        """Speed of each job in MHz when all are given `omega_g_mhz` together, float64[jobs]."""
        sums = self.w.sum(axis=1)
        if omega_g_mhz <= 0.0 or omega_g_mhz >= sums[-1]:
            edge: Floats = self.w[0 if omega_g_mhz <= 0.0 else -1].copy()
            return edge
        k = int(np.searchsorted(sums, omega_g_mhz, side="right")) - 1
        constrained = bool((self.v[k + 1] < self.levels[k + 1]).any())
        return interpolate(self.w[k], self.w[k + 1], omega_g_mhz, constrained)

    def utilities(self, omega_g_mhz: float) -> Floats:
        """Utility of each job by Eq. 16, float64[jobs]; -inf at no speed."""
        omegas = self.omegas(omega_g_mhz)
        time_s = np.divide(self.a, omegas, out=np.full(len(omegas), np.inf), where=omegas > 0.0)
        utility: Floats = (self.b - time_s) / self.r
        return utility


def sample(a: Floats, b: Floats, r: Floats, tb: Floats, levels: tuple[float, ...] = LEVELS) -> SampledUtility:
    """Fill W and V (Eqs. 8 and 9) for jobs with a goal and work left; arguments as for `daemons.models.level`.

    Raises `InvalidValue` unless the levels rise from -inf.
    """
    targets = np.array(levels)
    rising = np.isfinite(targets[1:]).all() and (np.diff(targets[1:]) > 0.0).all()
    if len(targets) < 2 or targets[0] != -np.inf or not rising:
        raise InvalidValue("levels", levels, "rising levels, the first -inf")
    v = np.minimum(targets[:, np.newaxis], (b - tb) / r)
    w = a / np.maximum(b - r * v, tb)
    return SampledUtility(targets, w, v, a, b, r)


def interpolate(lower: Floats, upper: Floats, omega_g_mhz: float, constrained: bool) -> Floats:
    """Speeds between two rows of W that add up to about `omega_g_mhz` (Eqs. 13 to 15).

    By ratio_g alone if no job of the segment is constrained by its highest speed, else by the reading of Eq. 15. In the
    first segment, where the lower sum is 0 and nothing grows from there, by ratio_g too.
    """
    low, high = float(lower.sum()), float(upper.sum())
    ratio_g = (omega_g_mhz - low) / (high - low) if high > low else 0.0
    if not constrained or low <= 0.0:
        return lower + (upper - lower) * ratio_g
    # ratio_m (W' - W) is ratio_g (SW' - SW) / SW W for a cell that grows at all.
    grown = lower * (1.0 + ratio_g * (high - low) / low)
    return np.where(upper > lower, np.clip(grown, lower, upper), lower)
