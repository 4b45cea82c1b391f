"""The workloads of the direct engine, the operations on them, and what is asked of its input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shared.base.errors import Infeasible, InvalidInput, Problem
from shared.policy_api.decision import ChangeKind, PlacementDecision
from shared.policy_api.snapshot import Floats, Ints, Snapshot, WorkloadState
from shared.values.actions import ActionKind
from shared.values.jobs import Job
from shared.values.nodes import Node
from sim_backend.replay.columns import Hold

NOWHERE: Ints = np.empty(0, dtype=np.int64)
NOTHING: Floats = np.empty(0)
FROM = {
    ChangeKind.START: WorkloadState.WAITING,
    ChangeKind.RESUME: WorkloadState.SUSPENDED,
    ChangeKind.SUSPEND: WorkloadState.RUNNING,
    ChangeKind.MIGRATE: WorkloadState.RUNNING,
    ChangeKind.RESIZE: WorkloadState.RUNNING,
    ChangeKind.STOP: WorkloadState.RUNNING,
}
MAKES_ROOM = frozenset({ActionKind.SUSPEND, ActionKind.STOP})
_FULL_SPEED = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Pass:
    """One scheduling pass: what the policy saw and decided, and what that comes to.

    jobs: in the system; placed: of those, running as wanted from now on. jobs_mhz, web_mhz: CPU given to jobs and, by
    name, to web applications. operations: changes by kind. moved_and_resumed: resumes away from the image. decide_s:
    how long deciding took.
    """

    seen: Snapshot
    decision: PlacementDecision
    jobs: int
    placed: int
    jobs_mhz: float
    web_mhz: Mapping[str, float]
    operations: Mapping[str, int]
    moved_and_resumed: int
    decide_s: float


@dataclass(slots=True, eq=False)
class Task:
    """A job or an instance of a web application in the engine. `nodes` and `cpu_mhz`: the capacity of its VMs, or the
    location of its images. `state` is the wanted state, and `wanted` its capacity in it. `fixed`: an operation on it
    waits or is in progress. `slow`: it runs with less CPU than it could use."""

    row: int
    job: Job
    vms: list[str]
    memory_mib: float
    state: WorkloadState = WorkloadState.WAITING
    fixed: bool = False
    slow: bool = False
    nodes: Ints = field(default_factory=lambda: NOWHERE)
    cpu_mhz: Floats = field(default_factory=lambda: NOTHING)
    wanted: Hold = (NOWHERE, NOTHING, 0.0)
    begin_s: float | None = None
    end_s: float | None = None

    def could_use_more(self, nodes: Sequence[Node]) -> bool:
        """Return whether an instance gets less CPU than it can use on its (wanted) node."""
        most_mhz = self.job.max_mhz * _FULL_SPEED
        at, cpu_mhz = self.wanted[0], self.wanted[1]
        if cpu_mhz.min() >= most_mhz:
            return False
        return any(
            mhz < self.job.speed_on_mhz(nodes[node]) * _FULL_SPEED
            for node, mhz in zip(at.tolist(), cpu_mhz.tolist(), strict=True)
        )


@dataclass(slots=True, eq=False)
class Operation:
    """An operation on a whole job, towards `nodes` and `cpu_mhz`; `then`: what follows at once when it has ended."""

    kind: ActionKind
    task: Task
    nodes: Ints
    cpu_mhz: Floats
    then: Operation | None = None

    def moved(self) -> Ints:
        """Return the instances that change their node."""
        return np.flatnonzero(self.nodes != self.task.nodes)

    def needs(self) -> Hold:
        """Return the capacity that must be free before the operation begins."""
        if self.kind in MAKES_ROOM:
            return NOWHERE, NOTHING, 0.0
        if self.kind is ActionKind.MIGRATE:
            moved = self.moved()
            return self.nodes[moved], self.cpu_mhz[moved], self.task.memory_mib
        return self.nodes, self.cpu_mhz, self.task.memory_mib


def check_input(jobs: Sequence[Job], nodes: Sequence[Node], apps: Sequence[str]) -> None:
    """Raise `InvalidInput` for two jobs, nodes or web applications of one name or no nodes, `Infeasible` for a job
    that the empty nodes could not hold."""
    named = ("job", [job.name for job in jobs]), ("node", [node.name for node in nodes]), ("web application", apps)
    for what, given in named:
        twice = [name for name, count in Counter(given).items() if count > 1]
        if twice:
            raise InvalidInput(*(Problem(f"{what} {name!r}", "named twice", "names that differ") for name in twice))
    if not nodes:
        raise InvalidInput(Problem("nodes", "there is none", "at least one"))
    slots: dict[Any, int] = {}
    for job in jobs:
        shape = job.memory_mib, job.max_mhz, job.vcpus, job.spread, job.required_labels
        if shape not in slots:
            slots[shape] = sum(_slots(job, node) for node in nodes)
        if slots[shape] < job.instances:
            raise Infeasible(f"job {job.name}: {job.instances} instances, but the empty nodes can hold {slots[shape]}")


def _slots(job: Job, node: Node) -> int:
    """Return the number of instances of a job that fit on an empty node."""
    if job.memory_mib > node.usable_mib or not set(job.required_labels) <= set(node.labels):
        return 0
    if job.spread:
        return 1
    by_memory = node.usable_mib // job.memory_mib if job.memory_mib else job.instances
    return min(by_memory, int(node.cpu_mhz / job.speed_on_mhz(node) * (1 + 1e-9)))
