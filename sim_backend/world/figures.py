"""The figures of a replay: how many jobs were completed, how long they took, how much of the cluster was held.

Both engines, the direct one and the closed loop, hand their truth to `figures`, so that their figures compare.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class JobRun:
    """What became of one submitted job.

    `begin_s`: when the start operation of its last attempt began (None: never); `end_s`: when its work was done (None:
    not within the window); `goal_s`: None for best effort; `desired_start_s`: None where it is the submission.
    """

    name: str
    submit_s: float
    begin_s: float | None = None
    end_s: float | None = None
    goal_s: float | None = None
    desired_start_s: float | None = None

    @property
    def distance_s(self) -> float | None:
        """How long before its goal it was completed, in seconds (negative: after it); None without goal or end."""
        return None if self.goal_s is None or self.end_s is None else self.goal_s - self.end_s

    @property
    def utility(self) -> float | None:
        """`distance_s` against the time from the desired start to the goal (apc.txt, Eq. 2)."""
        distance_s = self.distance_s
        if distance_s is None or self.goal_s is None:
            return None
        return distance_s / (self.goal_s - (self.submit_s if self.desired_start_s is None else self.desired_start_s))


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """The outcome of a replay. Means (seconds) are over completed jobs, None where there is none.

    execution = end - begin, wait = begin - submit, turnaround = end - submit. `peak_nodes`: most nodes holding a VM at
    a moment; `node_hours`: busy node-seconds inside the window / 3600; `utilisation`: that / (nodes x window), 0..1.
    `goals_met` of the `goals` jobs that have one were completed in time. `operations` counts what was done to jobs, by
    kind (one for a job of k instances). `runs` has one entry per submitted job and stays out of the JSON.
    """

    jobs_submitted: int
    jobs_completed: int
    mean_execution_s: float | None
    mean_turnaround_s: float | None
    mean_wait_s: float | None
    peak_nodes: int
    node_hours: float
    utilisation: float
    wall_s: float
    goals: int = 0
    goals_met: int = 0
    operations: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[JobRun, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--output json`."""
        names = (name for name in self.__slots__ if name not in ("operations", "runs"))
        return {name: getattr(self, name) for name in names} | {"operations": dict(self.operations)}


class BusyNodes:
    """Counts the nodes that hold at least one VM, and their node-seconds. Times must not decrease."""

    __slots__ = ("_held", "_node_s", "_since_s", "peak")

    def __init__(self, start_s: float = 0.0) -> None:
        self._held: dict[Hashable, int] = {}
        self._node_s = 0.0
        self._since_s = start_s
        self.peak = 0

    def hold(self, nodes: Iterable[Hashable], now_s: float) -> None:
        """Add a VM to each of `nodes` (one entry per VM)."""
        held = self._advance(now_s)
        for node in nodes:
            held[node] = held.get(node, 0) + 1
        if len(held) > self.peak:
            self.peak = len(held)

    def release(self, nodes: Iterable[Hashable], now_s: float) -> None:
        """Remove a VM from each of `nodes`. Raises KeyError when a node holds none."""
        held = self._advance(now_s)
        for node in nodes:
            left = held.pop(node) - 1
            if left:
                held[node] = left

    def node_s(self, until_s: float) -> float:
        """Busy node-seconds up to `until_s`, which is not before the last change."""
        return self._node_s + len(self._held) * (until_s - self._since_s)

    def _advance(self, now_s: float) -> dict[Hashable, int]:
        if now_s != self._since_s:
            self._node_s += len(self._held) * (now_s - self._since_s)
            self._since_s = now_s
        return self._held


def figures(
    runs: Sequence[JobRun],
    busy: BusyNodes,
    *,
    nodes: int,
    window_s: float,
    wall_s: float,
    operations: Mapping[str, int] | None = None,
) -> ReplayFigures:
    """Return the figures over [0, window_s] of a cluster of `nodes`. A run counts as completed when end_s <=
    window_s."""
    done = [
        (run.end_s - run.begin_s, run.end_s - run.submit_s, run.begin_s - run.submit_s)
        for run in runs
        if run.end_s is not None and run.begin_s is not None and run.end_s <= window_s
    ]
    node_s = busy.node_s(window_s)
    goals = [run for run in runs if run.goal_s is not None]
    return ReplayFigures(
        jobs_submitted=len(runs),
        jobs_completed=len(done),
        mean_execution_s=_mean([each[0] for each in done]),
        mean_turnaround_s=_mean([each[1] for each in done]),
        mean_wait_s=_mean([each[2] for each in done]),
        peak_nodes=busy.peak,
        node_hours=node_s / 3600,
        utilisation=node_s / (nodes * window_s) if nodes * window_s > 0 else 0.0,
        wall_s=wall_s,
        goals=len(goals),
        goals_met=sum(_in_time(run, window_s) for run in goals),
        operations=dict(operations or {}),
        runs=tuple(runs),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _in_time(run: JobRun, window_s: float) -> bool:
    return run.end_s is not None and run.goal_s is not None and run.end_s <= min(run.goal_s, window_s)
