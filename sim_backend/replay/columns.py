"""What the direct engine shows to a policy: snapshots built from columns that are kept as things happen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from shared.policy_api.snapshot import (
    Floats,
    InstanceColumns,
    Ints,
    LoadingColumns,
    NodeColumns,
    WorkloadColumns,
    WorkloadState,
    stage_columns,
)
from shared.values.jobs import Job
from shared.values.load_vector import IO
from shared.values.nodes import Node

_FLOATS = (
    "submit_s",
    "desired_start_s",
    "goal_s",
    "not_before_s",
    "work_mcycles",
    "done_mcycles",
    "max_mhz",
    "min_mhz",
    "memory_mib",
    "importance",
    "changed_s",
)
_INTS = ("state", "revision", "vcpus", "instances", "app", "first_stage", "stages")
Hold = tuple[Ints, Floats, float]
"""What VMs hold: their node rows, the CPU of each in MHz, the memory of one in MiB."""

_DONE, _CHANGED = _FLOATS.index("done_mcycles"), _FLOATS.index("changed_s")
_STATE, _REVISION = _INTS.index("state"), _INTS.index("revision")


class NodeCapacity:
    """CPU (MHz) and memory (MiB) of every node, float64[n], and what is free of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self.cpu_mhz = np.array([node.cpu_mhz for node in nodes], dtype=np.float64)
        self.memory_mib = np.array([node.usable_mib for node in nodes], dtype=np.float64)
        self.free_mhz, self.free_mib = self.cpu_mhz.copy(), self.memory_mib.copy()
        self._slack_mhz = -1e-9 * self.cpu_mhz  # sums of CPU shares are rounded
        self._cores = np.array([node.cores for node in nodes], dtype=np.int64)
        self._core_mhz = np.array([node.core_mhz for node in nodes], dtype=np.float64)
        self._always, self._never = np.ones(len(nodes), dtype=np.bool_), np.zeros(len(nodes), dtype=np.bool_)
        self._names = tuple(node.name for node in nodes)
        self._labels = tuple(node.labels for node in nodes)

    def take(self, nodes: Ints, cpu_mhz: Floats, memory_mib: float) -> None:
        """Hold CPU and memory for one VM per entry of `nodes` (rows; a row may occur more than once)."""
        np.subtract.at(self.free_mhz, nodes, cpu_mhz)
        np.subtract.at(self.free_mib, nodes, memory_mib)

    def give(self, nodes: Ints, cpu_mhz: Floats, memory_mib: float) -> None:
        """Undo `take`."""
        np.add.at(self.free_mhz, nodes, cpu_mhz)
        np.add.at(self.free_mib, nodes, memory_mib)

    def try_take(self, nodes: Ints, cpu_mhz: Floats, memory_mib: float) -> bool:
        """Call `take` if everything fits, otherwise change nothing. Return whether it fits."""
        self.take(nodes, cpu_mhz, memory_mib)
        fits = bool((self.free_mib[nodes] >= 0.0).all() and (self.free_mhz[nodes] >= self._slack_mhz[nodes]).all())
        if not fits:
            self.give(nodes, cpu_mhz, memory_mib)
        return fits

    def columns(self) -> NodeColumns:
        """Return a copy for a snapshot, in which all nodes are schedulable."""
        return NodeColumns(
            names=self._names,
            cores=self._cores,
            core_mhz=self._core_mhz,
            cpu_mhz=self.cpu_mhz,
            memory_mib=self.memory_mib,
            free_cpu_mhz=self.free_mhz.copy(),
            free_memory_mib=self.free_mib.copy(),
            schedulable=self._always,
            draining=self._never,
            labels=self._labels,
        )


class Workloads:
    """What is declared and measured of every job, one row per job in order of submission; `live` holds the rows of
    the jobs that were submitted and are not over, ascending. `apps` names the web applications, in their order:
    a row is an instance of one where the job says so."""

    def __init__(self, jobs: Sequence[Job], apps: Sequence[str] = ()) -> None:
        self._floats = np.array(
            [
                [job.submit_s for job in jobs],
                [job.desired_start_s for job in jobs],
                [math.inf if job.goal_s is None else job.goal_s for job in jobs],
                [0.0] * len(jobs),
                [job.work_mcycles for job in jobs],
                [0.0] * len(jobs),
                [job.max_mhz for job in jobs],
                [job.min_mhz for job in jobs],
                [job.memory_mib for job in jobs],
                [job.importance for job in jobs],
                [-math.inf] * len(jobs),
            ],
            dtype=np.float64,
        )
        zeros, vcpus, instances = [0] * len(jobs), [job.vcpus for job in jobs], [job.instances for job in jobs]
        counts = [0 if job.app else len(job.stages) for job in jobs]
        first = [end - count for end, count in zip(accumulate(counts), counts, strict=True)]
        app = [apps.index(job.app) if job.app else -1 for job in jobs]
        self._ints = np.array([zeros, zeros, vcpus, instances, app, first, counts], dtype=np.int64)
        self.stages = stage_columns([stage for job in jobs if not job.app for stage in job.stages])
        self._spread = np.array([job.spread for job in jobs], dtype=np.bool_)
        self._fixed = np.zeros(len(jobs), dtype=np.bool_)
        self._names = [job.name for job in jobs]
        self._required_labels = [job.required_labels for job in jobs]
        self._io = np.array([job.resource_profile.part(IO) for job in jobs], dtype=np.float64)
        self._placed: dict[int, tuple[Ints, Floats]] = {}
        self.live: list[int] = []

    def arrive(self, row: int) -> None:
        """Add a submitted job, which waits."""
        self.live.append(row)

    def leave(self, row: int) -> None:
        """Remove a job that is over."""
        self.live.remove(row)
        self._placed.pop(row, None)

    def change(self, row: int, state: WorkloadState, nodes: Ints, cpu_mhz: Floats, now_s: float | None) -> None:
        """Change a job and increment its revision. Its instances are (or their images lie) on `nodes`.

        `now_s`: an operation on the job begins and the job is fixed until `release`; None if only its CPU changes.
        """
        self._ints[_STATE, row] = state
        self._ints[_REVISION, row] += 1
        self._placed[row] = (nodes, cpu_mhz)
        if now_s is not None:
            self._floats[_CHANGED, row] = now_s
            self._fixed[row] = True

    def release(self, row: int) -> None:
        """Release a job: no operation on it is in progress any more."""
        self._fixed[row] = False

    def revision(self, row: int) -> int:
        """Return the number of changes of the job."""
        return int(self._ints[_REVISION, row])

    def measure(self, row: int, done_mcycles: float) -> None:
        """Note the work done, per instance."""
        self._floats[_DONE, row] = done_mcycles

    def columns(self) -> tuple[WorkloadColumns, InstanceColumns]:
        """Copies of the live rows for a snapshot."""
        live = self.live
        rows = np.array(live, dtype=np.int64)
        floats, ints = self._floats.take(rows, axis=1), self._ints.take(rows, axis=1)
        counts = np.where(ints[_STATE] == WorkloadState.WAITING, 0, ints[_INTS.index("instances")])
        workloads = WorkloadColumns(
            names=tuple(map(self._names.__getitem__, live)),
            first_instance=counts.cumsum() - counts,
            spread=self._spread.take(rows),
            fixed=self._fixed.take(rows),
            required_labels=tuple(map(self._required_labels.__getitem__, live)),
            queued=np.zeros(len(live), dtype=np.bool_),
            stays=np.zeros(len(live), dtype=np.bool_),
            **dict(zip(_FLOATS, floats, strict=True)),
            **dict(zip(_INTS, ints, strict=True)),
        )
        return workloads, self._instances()

    def loading(self, nodes: int, model: str) -> LoadingColumns | None:
        """Return the declared disk use of the live rows, on identical nodes; None without a model."""
        if not model or not self._io.any():
            return None
        parts = self._io[np.array(self.live, dtype=np.int64)][None, :, None]
        return LoadingColumns((IO,), parts, np.zeros(nodes, dtype=np.int64), np.ones((1, 1)), model)

    def _instances(self) -> InstanceColumns:
        placed = [self._placed[row] for row in sorted(self._placed)]
        if not placed:
            return InstanceColumns(np.empty(0, dtype=np.int64), np.empty(0))
        return InstanceColumns(
            np.concatenate([nodes for nodes, _ in placed]), np.concatenate([cpu_mhz for _, cpu_mhz in placed])
        )
