"""A deliberately plain first-fit replay: no policy, snapshot, world or node, only a count of free nodes.

It is what a replay could cost at the least in Python, and an independent check of the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from shared.values.replay_job import ReplayJob


@dataclass(frozen=True, slots=True)
class PlainFigures:
    """The same figures as a replay's, over jobs that ended by the end of the window."""

    submitted: int
    completed: int
    mean_execution_s: float | None
    mean_turnaround_s: float | None


def plain_replay(jobs: Iterable[ReplayJob], nodes: int, window_s: float = math.inf) -> PlainFigures:
    """First fit in arrival order, ties by job number: at each instant completions, then arrivals, then one pass in
    which every waiting job that fits is started."""
    arrivals = sorted(((job.submit_s, job.number, job.run_s, job.nodes) for job in jobs), reverse=True)
    submitted, free = len(arrivals), nodes
    waiting: list[tuple[float, int, float, int]] = []
    running: list[tuple[float, int, int, float, float]] = []  # end, number, size, submit, begin
    executions: list[float] = []
    turnarounds: list[float] = []
    while running or arrivals:
        now_s = min(running[0][0] if running else math.inf, arrivals[-1][0] if arrivals else math.inf)
        if now_s > window_s:
            break
        while running and running[0][0] <= now_s:
            end_s, _, size, submit_s, begin_s = heappop(running)
            free += size
            executions.append(end_s - begin_s)
            turnarounds.append(end_s - submit_s)
        while arrivals and arrivals[-1][0] <= now_s:
            waiting.append(arrivals.pop())
        left = []
        for job in waiting:
            submit_s, number, run_s, size = job
            if size <= free:
                free -= size
                heappush(running, (now_s + run_s, number, size, submit_s, now_s))
            else:
                left.append(job)
        waiting = left
    return PlainFigures(submitted, len(executions), _mean(executions), _mean(turnarounds))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
