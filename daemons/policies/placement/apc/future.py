"""What becomes of a job by the end of the cycle under a placement (apc.txt section 4.4.2): one job, and all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.models.stages import outlook
from daemons.models.utility import utility_at
from daemons.policies.placement.apc.problem import Problem
from shared.policy_api.snapshot import Bools, Floats

Place = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Future:
    """A job under a placement: where (None: it does not run), MHz per instance, seconds without progress; then at the
    end of the cycle work left of all instances and best time, and the utility that it can still reach. `open`: it is
    in the equation, so that it has at most the level; else it has just that utility. `slow`: how many times as long as
    alone it takes there."""

    place: Place | None
    mhz: float
    delay_s: float
    a: float
    tb: float
    top: float
    open: bool
    slow: float = 1.0

    def utility(self, level: float) -> float:
        """Under a common level."""
        return min(level, self.top) if self.open else self.top


def future_of(problem: Problem, row: int, place: Place | None, mhz: float, delay_s: float, slow: float = 1.0) -> Future:
    """Return the state of a job at the end of the cycle (apc.txt section 4.4.2), with the slowdown factor `slow`
    against running alone."""
    if not problem.aims[row]:
        return Future(place, mhz, delay_s, a=0.0, tb=0.0, top=1.0, open=False, slow=slow)
    run_s = (problem.cycle_s - delay_s) / slow
    if place is None or run_s <= 0.0 or mhz <= 0.0:
        k_left = problem.k[row] * problem.left[row]
        if place is not None and k_left <= 0.0:
            return Future(
                place,
                mhz,
                delay_s,
                a=0.0,
                tb=0.0,
                top=_ending(problem, row, problem.now_s + delay_s),
                open=False,
                slow=slow,
            )
        return Future(
            place, mhz, delay_s, a=k_left, tb=problem.best_s[row], top=problem.idle[row], open=k_left > 0.0, slow=slow
        )
    stages = problem.stages[row]
    if stages is not None:
        left, ran_s, best_s = _through(stages, mhz, run_s)
    else:
        full = problem.full_mhz[row]
        speed = min(mhz, full)
        left, ran_s = problem.left[row] - speed * run_s, run_s
        if left <= 0.0:
            left, ran_s = 0.0, problem.left[row] / speed
        best_s = left / full if left > 0.0 else 0.0
    if left <= 0.0:
        end_s = problem.now_s + delay_s + ran_s * slow
        return Future(place, mhz, delay_s, a=0.0, tb=0.0, top=_ending(problem, row, end_s), open=False, slow=slow)
    top = _ending(problem, row, problem.now_s + problem.cycle_s + best_s)
    return Future(place, mhz, delay_s, a=problem.k[row] * left, tb=best_s, top=top, open=True, slow=slow)


def _ending(problem: Problem, row: int, end_s: float) -> float:
    utility, weight = (problem.goal_s[row] - end_s) / problem.r_s[row], problem.weight[row]
    return utility if weight == 1.0 else (utility / weight if utility > 0.0 else utility * weight)


def _through(stages: Sequence[tuple[float, float]], mhz: float, run_s: float) -> tuple[float, float, float]:
    """Return the work left, seconds run and best time after running for `run_s` through stages of (work, full
    speed)."""
    left, best_s, to_go_s = 0.0, 0.0, run_s
    for work, full in stages:
        speed = min(mhz, full)
        if work <= speed * to_go_s:
            to_go_s -= work / speed
            continue
        rest = work - speed * to_go_s
        to_go_s = 0.0
        left += rest
        best_s += rest / full
    return left, run_s - to_go_s, best_s


@dataclass(slots=True, eq=False)
class FutureColumns:
    """Futures of all workloads, one array entry by row; see `Future`."""

    placed: Bools
    mhz: Floats
    delay_s: Floats
    a: Floats
    tb: Floats
    top: Floats
    open: Bools
    slow: Floats

    def utilities(self, level: float) -> Floats:
        """Under a common level, float64[w]."""
        return np.where(self.open, np.minimum(level, self.top), self.top)

    def future(self, row: int, place: Place | None) -> Future:
        """Return one row as a value."""
        return Future(
            place,
            self.mhz.item(row),
            self.delay_s.item(row),
            a=self.a.item(row),
            tb=self.tb.item(row),
            top=self.top.item(row),
            open=self.open.item(row),
            slow=self.slow.item(row),
        )

    def note(self, row: int, job: Future) -> None:
        """Overwrite one row."""
        self.placed[row], self.mhz[row], self.delay_s[row] = job.place is not None, job.mhz, job.delay_s
        self.a[row], self.tb[row], self.top[row], self.open[row] = job.a, job.tb, job.top, job.open
        self.slow[row] = job.slow


def columns_of(problem: Problem, placed: Bools, mhz: Floats, delay_s: Floats, slow: Floats) -> FutureColumns:
    """Return `future_of` for all workloads; `placed`, `mhz` (per instance), `delay_s` and `slow` by row."""
    work, rows, count = problem.snapshot.workloads, problem.profiled, len(placed)
    columns = problem.columns
    a, tb, top, is_open = np.zeros(count), np.zeros(count), np.ones(count), np.zeros(count, dtype=np.bool_)
    if not rows.size:
        return FutureColumns(placed, mhz, delay_s, a=a, tb=tb, top=top, open=is_open, slow=slow)
    here = placed[rows]
    for_s = np.where(here, np.clip(problem.cycle_s - delay_s[rows], 0.0, None), 0.0) / slow[rows]
    after = outlook(problem.profile, for_s, np.where(here, mhz[rows], 0.0))
    ended = here & (after.left_mcycles <= 0.0)
    end_s = np.where(ended, delay_s[rows] + after.ran_s * slow[rows], problem.cycle_s + after.best_s)
    top[rows] = utility_at(
        problem.now_s + end_s, work.desired_start_s[rows], columns.goal_s[rows], work.importance[rows]
    )
    a[rows] = np.where(ended, 0.0, after.left_mcycles * work.instances[rows])
    tb[rows] = after.best_s
    is_open[rows] = columns.aims[rows] & (a[rows] > 0.0)
    a[~is_open] = 0.0
    return FutureColumns(placed, mhz, delay_s, a=a, tb=tb, top=top, open=is_open, slow=slow)
