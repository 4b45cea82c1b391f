"""The jobs' common level, kept up to date while the search changes a few jobs at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from daemons.models.level import JobDemand
from daemons.policies.placement.apc.problem import Problem
from shared.policy_api.snapshot import Floats

EXACT_UP_TO = 300  # one Newton step is too coarse for so few jobs
_REFRESH = 32
_STEPS_MAX = 40
_CLOSE = 1e-13
_NOTHING = (0.0, 0.0, 0.0)
Change = tuple[int, float, float, float, float]


class Levels:
    """Work left and best time of the jobs in the equation, by slot; `level` is the solution for `given_mhz`.

    Up to EXACT_UP_TO jobs every level is solved exactly. With more, the sums at `base`, a level near by, are kept up
    to date job by job, one Newton step from there gives the level, and it is solved again now and then.
    """

    def __init__(self, problem: Problem) -> None:
        rows = [row for row, aims in enumerate(problem.aims) if aims]
        self.slot = {row: at for at, row in enumerate(rows)}
        self._rows = np.array(rows, dtype=np.int64)
        self._problem, self._end_s = problem, problem.now_s + problem.cycle_s
        end_s = self._end_s
        self.b: Floats = np.array([problem.goal_s[row] - end_s for row in rows])
        self.r: Floats = np.array([problem.r_s[row] for row in rows])
        self.weight: Floats = np.array([problem.weight[row] for row in rows])
        self.plain = bool((self.weight == 1.0).all())
        self.a: Floats = np.zeros(len(rows))
        self.tb: Floats = np.ones(len(rows))
        self.exact = len(rows) <= EXACT_UP_TO
        self.level, self.given_mhz = 1.0, 0.0
        self._base = self._need = self._active = self._slope = 0.0
        self._since = 0

    def set_all(self, a: Floats, tb: Floats) -> None:
        """Do `set` for all jobs, by row of the workloads."""
        self.a = a[self._rows]
        self.tb = np.where(self.a > 0.0, tb[self._rows], 1.0)

    def set(self, row: int, a: float, tb: float) -> None:
        """Set the job's work left in Mcycles, all instances, and best time; a = 0: it is not in the equation."""
        at = self.slot[row]
        self.a[at] = a
        self.tb[at] = tb if a > 0.0 else 1.0

    def solve(self, given_mhz: float) -> float:
        """Solve exactly and note the solution."""
        self.given_mhz, self._since = given_mhz, 0
        weight = None if self.plain else self.weight
        start = self.level if math.isfinite(self.level) else None
        self.level = JobDemand(self.a, self.b, self.r, self.tb, weight).solve(given_mhz, start).level
        self._base = self.level
        if math.isfinite(self.level):
            self._need, self._active, self._slope = self._sums(self.level)
        return self.level

    def _sums(self, level: float) -> tuple[float, float, float]:
        """Sum of the speeds needed at a level, the part of jobs below their highest speed, its derivative."""
        times = 1.0 if self.plain else (self.weight if level > 0.0 else 1.0 / self.weight)
        delay = self.b - self.r * (level * times)
        below = delay > self.tb
        omega = self.a / np.maximum(delay, self.tb)
        moving = omega * below
        slope = float((moving / np.where(below, delay, 1.0) * self.r * times).sum())
        return float(omega.sum()), float(moving.sum()), slope

    def _one(self, row: int, a: float, tb: float) -> tuple[float, float, float]:
        """Return the `_sums` of one job at the base."""
        if a <= 0.0:
            return _NOTHING
        problem = self._problem
        r = problem.r_s[row]
        if not self.plain:
            weight = problem.weight[row]
            r *= weight if self._base > 0.0 else 1.0 / weight
        delay = problem.goal_s[row] - self._end_s - r * self._base
        if delay <= tb:
            return a / tb, 0.0, 0.0
        omega = a / delay
        return omega, omega, omega * r / delay

    def _shifted(self, changed: Sequence[Change]) -> tuple[float, float, float]:
        """Return the sums at the base if these jobs had other (row, a, tb, a before, tb before)."""
        need, active, slope = self._need, self._active, self._slope
        for row, a, tb, a_was, tb_was in changed:
            was, now = self._one(row, a_was, tb_was), self._one(row, a, tb)
            need += now[0] - was[0]
            active += now[1] - was[1]
            slope += now[2] - was[2]
        return need, active, slope

    def trial(self, changed: Sequence[Change], given_mhz: float) -> float:
        """Return the level if these jobs had other (row, a, tb, a before, tb before); nothing is changed."""
        if self.exact or not math.isfinite(self._base):
            return self._exact_trial(changed, given_mhz)
        return self._step(*self._shifted(changed), given_mhz)

    def _step(self, need: float, active: float, slope: float, given_mhz: float) -> float:
        gap = given_mhz - need
        if slope <= 0.0:
            return self._base
        return self._base + gap / slope * (active / (active + gap) if active + gap > 0.0 else 1.0)

    def _exact_trial(self, changed: Sequence[Change], given_mhz: float) -> float:
        for row, a, tb, _, _ in changed:
            self.set(row, a, tb)
        level = self._solved(given_mhz)
        for row, _, _, a, tb in changed:
            self.set(row, a, tb)
        return level

    def _solved(self, given_mhz: float) -> float:
        """Newton from the last level; what does not converge at once is left to the bracketed solver."""
        level = self.level
        if math.isfinite(level) and given_mhz > 0.0:
            for _ in range(_STEPS_MAX):
                need, active, slope = self._sums(level)
                gap = given_mhz - need
                if slope <= 0.0 or active + gap <= 0.0:
                    break
                step = gap / slope * (active / (active + gap))
                level += step
                if abs(step) <= _CLOSE * (1.0 + abs(level)):
                    return level
        weight = None if self.plain else self.weight
        return JobDemand(self.a, self.b, self.r, self.tb, weight).solve(given_mhz).level

    def apply(self, changed: Sequence[Change], given_mhz: float, level: float) -> None:
        """Make a trial come true."""
        for row, a, tb, _, _ in changed:
            self.set(row, a, tb)
        if self.exact or not math.isfinite(self._base) or self._since >= _REFRESH:
            self.solve(given_mhz)
            return
        self._since += 1
        self._need, self._active, self._slope = self._shifted(changed)
        self.given_mhz, self.level = given_mhz, level
