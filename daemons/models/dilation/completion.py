"""The end times of jobs that arrive and leave on one node: rates are constant between events (d-factor.txt, sections
3.3 and 6).

An event is an arrival, the end of a stage or the end of a job. At each event, the jobs present get new slowdowns. The
next to end is the one with the least remaining isolated time x slowdown, regardless of its original size. Jobs that
have ended slow no others down.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.dilation import formula
from daemons.models.dilation.choice import Rates
from daemons.models.dilation.formula import Floats

NEAR = 1e-12  # of a stage's time alone: what is left of it then is rounding


@dataclass(frozen=True, slots=True)
class Stage:
    """Work with one loading vector. neutral_s: its time alone, above 0."""

    neutral_s: float
    loading: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A job, or an instance of one: its stages one after the other (at least one), from its arrival on."""

    arrival_s: float
    stages: tuple[Stage, ...]


def composed(
    p: ArrayLike, neutral_s: ArrayLike, arrivals_s: ArrayLike | None = None, rates: Rates = formula.dilation
) -> Floats:
    """Return the end time of each job, float64[n], in seconds of the arrivals' clock. p: float64[n, m]; neutral_s:
    isolated run times, float64[n]; arrivals_s: float64[n], all at 0 if None; rates: slowdowns of the jobs present,
    called at most 2 n times."""
    loads = np.asarray(p, dtype=np.float64)
    neutral = np.asarray(neutral_s, dtype=np.float64).tolist()
    arrivals = np.zeros(len(neutral)) if arrivals_s is None else np.asarray(arrivals_s, dtype=np.float64)
    stages = [(Stage(alone_s, tuple(row)),) for alone_s, row in zip(neutral, loads.tolist(), strict=True)]
    return composed_stages([Work(*each) for each in zip(arrivals.tolist(), stages, strict=True)], rates)


def composed_stages(works: Sequence[Work], rates: Rates = formula.dilation) -> Floats:
    """Return the same for jobs of several stages, float64[n]."""
    run = NodeRun(rates)
    for row in sorted(range(len(works)), key=lambda row: works[row].arrival_s):
        run.add(works[row], row)
    run.until()
    return np.array([run.ends_s[row] for row in range(len(works))])


def composed_nodes(works: Sequence[Work], nodes: Sequence[int], rates: Rates = formula.dilation) -> Floats:
    """Return the same with work i on node nodes[i]: jobs on other nodes do not slow it down."""
    ends_s = np.zeros(len(works))
    for node in sorted(set(nodes)):
        there = [row for row, at in enumerate(nodes) if at == node]
        ends_s[there] = composed_stages([works[row] for row in there], rates)
    return ends_s


def slowest(ends_s: ArrayLike, jobs: Sequence[int]) -> Floats:
    """Return the end time of each job from those of its instances: `ends_s`, which belong to the jobs numbered in
    `jobs` (0, 1, ..., without gaps). A job ends with its last instance (section 4.2)."""
    found = np.full(max(jobs, default=-1) + 1, -math.inf)
    np.maximum.at(found, np.asarray(jobs, dtype=np.int64), np.asarray(ends_s, dtype=np.float64))
    return found


class NodeRun:
    """One node through time, which may be stopped, looked at and given more work. `rates` is asked once for each event.
    `ends_s`: when each job ended, by the number that it was added with."""

    def __init__(self, rates: Rates = formula.dilation) -> None:
        self.ends_s: dict[int, float] = {}
        self.now_s = -math.inf
        self._rates = rates
        self._coming: deque[tuple[int, Work]] = deque()
        self._here: list[_Running] = []

    def add(self, work: Work, number: int) -> None:
        """Add a job that arrives no earlier than those added before it and than the time reached."""
        self._coming.append((number, work))

    def until(self, limit_s: float = math.inf) -> None:
        """Go on to a time; without one, until all have ended. Who arrives at that very time is there."""
        while self._coming_by(limit_s) or (self._here and self.now_s < limit_s):
            self._pass(self._coming[0][1].arrival_s if self._coming_by(limit_s) else limit_s)

    def _coming_by(self, limit_s: float) -> bool:
        return bool(self._coming) and self._coming[0][1].arrival_s <= limit_s

    @property
    def numbers(self) -> tuple[int, ...]:
        """Who is there."""
        return tuple(each.number for each in self._here)

    def present(self) -> tuple[Work, ...]:
        """Return the remaining work of the jobs present, as work that arrives now."""
        return tuple(Work(self.now_s, each.left) for each in self._here)

    def _pass(self, limit_s: float) -> None:
        """Advance to the next event, or to `limit_s` if that comes first."""
        if self._here and self.now_s < limit_s:
            slowed = self._rates(np.array([each.stage.loading for each in self._here])).tolist()
            passed_s = min(each.left_s * by for each, by in zip(self._here, slowed, strict=True))
            ends = self.now_s + passed_s <= limit_s
            passed_s = passed_s if ends else limit_s - self.now_s
            self.now_s = self.now_s + passed_s if ends else limit_s
            for each, by in zip(self._here, slowed, strict=True):
                each.go_on(passed_s / by)
            self.ends_s.update((each.number, self.now_s) for each in self._here if each.over)
            self._here = [each for each in self._here if not each.over]
        elif not self._here:
            self.now_s = limit_s
        while self._coming_by(self.now_s):
            self._here.append(_Running(*self._coming.popleft()))


class _Running:
    """A job that is there: which stage it is in, and how long that still takes alone."""

    def __init__(self, number: int, work: Work) -> None:
        self.number, self._stages, self._at = number, work.stages, 0
        self.left_s = work.stages[0].neutral_s

    @property
    def over(self) -> bool:
        return self._at == len(self._stages)

    @property
    def stage(self) -> Stage:
        return self._stages[self._at]

    @property
    def left(self) -> tuple[Stage, ...]:
        return Stage(self.left_s, self.stage.loading), *self._stages[self._at + 1 :]

    def go_on(self, alone_s: float) -> None:
        """Do so much of the stage, and enter the next one when it is over."""
        self.left_s -= alone_s
        if self.left_s <= NEAR * self.stage.neutral_s:
            self._at += 1
            self.left_s = 0.0 if self.over else self.stage.neutral_s
