"""Copies what the controller knows and wants into the read-only columns that policies see.

Room in a snapshot is room in the desired state: what is wanted on a node counts, what is being taken away does not.
O(nodes + active jobs + their instances) for each snapshot; columns that rarely change are kept between snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from daemons.controller.contract.feature import SnapshotPart
from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.state.capabilities import (
    HOME,
    apart,
    homes,
    keeps_memory,
    keeps_of,
    labels_at_home,
    lacking,
    stays_on_draining,
    wanted_frozen_mib,
)
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.job_lengths import LeftWork
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import migration_columns
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy, is_unknown
from daemons.controller.state.usage import fair_needs, needed_mhz, unmanaged_mhz
from daemons.controller.state.vm_terms import is_kept, is_off_limits, is_out_of_budget
from daemons.models.stages import stage_work_left
from daemons.values.settings import ControllerSettings
from shared.policy_api.snapshot import (
    Bools,
    EnvironmentColumns,
    Floats,
    InstanceColumns,
    NodeColumns,
    Snapshot,
    WebColumns,
    WorkloadColumns,
    WorkloadState,
    stage_columns,
)
from shared.values.jobs import Constraint, ConstraintKind, Job, JobPhase, Stage
from shared.values.migration import ties
from shared.values.nodes import Node, NodeCondition, NodeService
from shared.values.vms import VmState

STATES = {
    JobPhase.WAITING: WorkloadState.WAITING,
    JobPhase.RUNNING: WorkloadState.RUNNING,
    JobPhase.SUSPENDED: WorkloadState.SUSPENDED,
}

# n VMs of m nodes of the CPU c need m c / 2 in all, and at most c / 2 each: were one without a node, every node would
# have less than that left, so that the others needed more than m c / 2.
DRAINED_FRAC = 0.5
DRAINED_CYCLES = 2  # for memory or rules may leave less than that


class SnapshotBuilder:
    """Builds snapshots of one cluster, with the parts of its features; remembers the columns of node facts. Jobs that
    wait for others are not shown."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings, features: FeatureSet) -> None:
        self.cluster, self.settings, self._features = cluster, settings, features
        self._facts: tuple[Node, ...] | None = None
        self._static: tuple[np.ndarray, ...] = ()

    def build(
        self,
        now_s: float,
        at_cycle: bool = True,
        distrusted: frozenset[str] = frozenset(),
        waiting: Collection[JobEntry] = (),
        spare: bool = True,
    ) -> Snapshot:
        """Return the desired cluster at `now_s`. `at_cycle`: for a cycle's decision. distrusted: workloads that get no
        more than they have, and stay where they are. waiting: adopted VMs without a node, beside all workloads. spare:
        without the free memory that is kept for failovers."""
        nodes = [node for node in self.cluster.nodes.values() if node.inventory is not None]
        rows = {node.name: row for row, node in enumerate(nodes)}
        jobs = self._jobs(waiting)
        part = self._features.columns(nodes, jobs, now_s, at_cycle)
        columns = dict(part.columns)
        apps = {app: row for row, app in enumerate(columns["web"].names)} if "web" in columns else {}
        if distrusted:
            part, columns = self._as_they_are(jobs, part, columns, distrusted)
        left = self.cluster.lengths.left(jobs)
        bound = lacking(self.cluster)
        frozen = {entry.job.name: homes(self.cluster, entry) for entry in jobs} if bound else {}
        in_service = [node for node in nodes if node.service is NodeService.IN_SERVICE]
        up = [node for node in in_service if node.condition is NodeCondition.UP]
        return Snapshot(
            now_s,
            self.settings.decide_s,
            self._nodes(nodes, columns.get("environments"), frozen, spare),
            workloads=self._workloads(jobs, apps, part, now_s, frozen, left),
            instances=self._instances(jobs, rows),
            stages=stage_columns([stage for entry in jobs if not entry.job.app for stage in _stages(entry, left)]),
            reporting_frac=len(up) / len(in_service) if in_service else 1.0,
            oldest_report_s=max((now_s - node.seen_s for node in up), default=0.0),
            vm_overhead_mib=self.cluster.vm_overhead_mib,
            constraints=(
                *columns.pop("constraints", ()),
                *(keeps_of(self.cluster, jobs) if bound else ()),
                *self._out_of_budget(jobs, now_s),
            ),
            costs=columns.pop("costs", self.settings.operation_costs),
            at_cycle=at_cycle,
            migration=migration_columns(nodes, jobs, now_s),
            **columns,
        )

    @staticmethod
    def _as_they_are(
        jobs: list[JobEntry], part: SnapshotPart, columns: dict[str, Any], distrusted: frozenset[str]
    ) -> tuple[SnapshotPart, dict[str, Any]]:
        """Return the columns with nothing to gain for some workloads. Running ones keep their nodes. Idle ones are left
        to the decisions between cycles, which take capacity from nothing. Applications request no more CPU."""
        own = [entry for entry in jobs if (entry.job.app or entry.job.name) in distrusted]
        idle = {entry.job.name for entry in own if entry.phase is not JobPhase.RUNNING}
        keeps = [Constraint(ConstraintKind.KEEP, (name,)) for name in sorted(distrusted - idle)]
        columns["constraints"] = (*columns.get("constraints", ()), *keeps)
        if "web" in columns:
            web: WebColumns = columns["web"]
            held = np.zeros(len(web.names))
            for entry in own:
                if entry.job.app in web.names and entry.phase is JobPhase.RUNNING:
                    held[web.names.index(entry.job.app)] += sum(one.cpu_mhz for one in entry.allotments)
            capped = np.array([name in distrusted for name in web.names], dtype=np.bool_) & (held > 0.0)
            columns["web"] = replace(web, max_mhz=np.where(capped, np.minimum(web.max_mhz, held), web.max_mhz))
        return replace(part, fixed={*part.fixed, *idle}), columns

    def _nodes(
        self,
        nodes: list[NodeEntry],
        environments: EnvironmentColumns | None,
        frozen: Mapping[str, tuple[str, ...]],
        spare: bool,
    ) -> NodeColumns:
        facts = tuple(node.inventory for node in nodes if node.inventory is not None)
        if facts != self._facts:
            self._facts = facts
            self._static = (
                np.array([fact.cores for fact in facts], dtype=np.int64),
                np.array([fact.core_mhz for fact in facts], dtype=np.float64),
                np.array([fact.cpu_mhz for fact in facts], dtype=np.float64),
                np.array([fact.usable_mib for fact in facts], dtype=np.float64),
            )
        cores, core_mhz, cpu_mhz, memory_mib = self._static
        held_mhz = np.array([node.wanted_mhz + unmanaged_mhz(node) for node in nodes], dtype=np.float64)
        held = [node.wanted_mib + node.unmanaged_mib + wanted_frozen_mib(self.cluster, node) for node in nodes]
        held_mib = np.array(held, dtype=np.float64)
        kept_mib = np.array([node.spare_mib for node in nodes], dtype=np.float64)
        if spare and kept_mib.any():
            memory_mib = memory_mib - np.minimum(kept_mib, np.maximum(0.0, memory_mib - held_mib))
        draining = np.array([node.service is NodeService.DRAINING for node in nodes], dtype=np.bool_)
        return NodeColumns(
            tuple(fact.name for fact in facts),
            cores,
            core_mhz,
            cpu_mhz=cpu_mhz,
            memory_mib=memory_mib,
            free_cpu_mhz=cpu_mhz - held_mhz,
            free_memory_mib=memory_mib - held_mib,
            schedulable=np.array([node.schedulable for node in nodes], dtype=np.bool_),
            draining=draining if environments is None else draining | environments.leaving,
            labels=labels_at_home(facts, frozen),
        )

    def drained_min_mhz(self, node: str, now_s: float) -> Floats:
        """Return the least speeds that the workloads of a snapshot would need (MHz) if an operator drained a node."""
        return np.array(self._least_mhz(self._jobs(), now_s, node), dtype=np.float64)

    def _jobs(self, waiting: Collection[JobEntry] = ()) -> list[JobEntry]:
        return sorted(
            (j for j in self.cluster.active.values() if (j.phase in STATES and not j.awaits) or j in waiting),
            key=lambda j: j.order,
        )

    def _workloads(
        self,
        jobs: list[JobEntry],
        apps: Mapping[str, int],
        part: SnapshotPart,
        now_s: float,
        frozen: Mapping[str, tuple[str, ...]],
        left: Mapping[str, LeftWork],
    ) -> WorkloadColumns:
        specs = [entry.job for entry in jobs]
        names = tuple(job.name for job in specs)
        counts = [len(entry.allotments) or _image_rows(entry) for entry in jobs]
        first = np.zeros(len(jobs), dtype=np.int64)
        if jobs:
            first[1:] = np.cumsum(counts[:-1])
        stages = np.array([_stage_count(job) for job in specs], dtype=np.int64)

        def floats(values: list[float]) -> np.ndarray:
            return np.array(values, dtype=np.float64)

        def ints(values: list[int]) -> np.ndarray:
            return np.array(values, dtype=np.int64)

        return WorkloadColumns(
            names,
            ints([STATES.get(entry.phase, WorkloadState.WAITING) for entry in jobs]),
            ints([entry.revision for entry in jobs]),
            submit_s=floats([job.submit_s for job in specs]),
            desired_start_s=floats([job.desired_start_s for job in specs]),
            goal_s=floats([math.inf if job.goal_s is None else job.goal_s for job in specs]),
            not_before_s=floats([entry.not_before_s for entry in jobs]),
            work_mcycles=floats([_work_mcycles(entry, left) for entry in jobs]),
            done_mcycles=floats([entry.done_mcycles for entry in jobs]),
            max_mhz=floats([job.max_mhz for job in specs]),
            min_mhz=floats(self._least_mhz(jobs, now_s)),
            memory_mib=floats([self._takes_mib(entry, frozen) for entry in jobs]),
            vcpus=ints([job.vcpus for job in specs]),
            instances=ints([job.instances for job in specs]),
            importance=floats([job.importance for job in specs]),
            spread=np.array([job.spread or apart(frozen.get(job.name, ())) for job in specs], dtype=np.bool_),
            fixed=np.array([name in part.fixed for name in names], dtype=np.bool_) | self.are_fixed(jobs, now_s),
            first_instance=first,
            required_labels=tuple(
                (*job.required_labels, HOME + job.name) if frozen.get(job.name) else job.required_labels
                for job in specs
            ),
            app=ints([apps.get(job.app, -1) if job.app else -1 for job in specs]),
            changed_s=floats([entry.changed_s for entry in jobs]),
            first_stage=stages.cumsum() - stages,
            stages=stages,
            queued=np.array([name in part.queued for name in names], dtype=np.bool_),
            stays=np.array([is_kept(entry) for entry in jobs], dtype=np.bool_),
        )

    def _least_mhz(self, jobs: list[JobEntry], now_s: float, drained: str = "") -> list[float]:
        """Return the least speeds that jobs need. An adopted VM, which has no goal and declares nothing, needs what it
        uses, but at most what its node has for such VMs.

        While an operator drains a node, all have to do with half of an equal part of the CPU of the other nodes: so
        much fits on them, whatever the sizes (see `DRAINED_FRAC`). What is left there after `DRAINED_CYCLES` moves to
        however little CPU; the VMs of other nodes then need half of what they did. VMs that cannot move do not hold a
        drain up. `drained`: a node that an operator drains from now on.
        """
        least = {entry.job.name: entry.job.min_mhz for entry in jobs}
        needs: dict[str, dict[str, float]] = {}
        begun_s: dict[str, float] = {}  # of the drains that VMs hold up
        for entry in jobs:
            if not (entry.adopted and entry.phase is JobPhase.RUNNING and entry.allotments):
                continue
            node = self.cluster.nodes.get(entry.allotments[0].node)
            if node is None or node.inventory is None:
                continue
            need_mhz = min(needed_mhz(node, entry.adopted), entry.job.speed_on_mhz(node.inventory))
            needs.setdefault(node.name, {})[entry.job.name] = need_mhz
            if (node.held or node.name == drained) and not (is_off_limits(entry) or ties(entry.instances[0].needs)):
                begun_s[node.name] = node.since_s if node.held else now_s
        nodes = self.cluster.nodes
        if begun_s and now_s < max(begun_s.values()) + DRAINED_CYCLES * self.settings.decide_s:
            together = {vm: mhz for of_node in needs.values() for vm, mhz in of_node.items()}
            room_mhz = math.fsum(
                self._room_mhz(node) for name, node in nodes.items() if node.schedulable and name != drained
            )
            least |= {vm: DRAINED_FRAC * mhz for vm, mhz in fair_needs(together, room_mhz).items()}
        else:
            kept_frac = DRAINED_FRAC if begun_s else 1.0
            for name in needs.keys() - begun_s.keys():
                fair = fair_needs(needs[name], self._room_mhz(nodes[name]))
                least |= {vm: kept_frac * mhz for vm, mhz in fair.items()}
        return [least[entry.job.name] for entry in jobs]

    @staticmethod
    def _room_mhz(node: NodeEntry) -> float:
        """Return the CPU that a node has for adopted VMs."""
        if node.inventory is None:
            return 0.0
        others_mhz = math.fsum(
            max(instance.job.job.min_mhz, 1.0) for instance in node.claimed.values() if not instance.job.adopted
        )
        return node.inventory.cpu_mhz - unmanaged_mhz(node) - others_mhz

    def _out_of_budget(self, jobs: Sequence[JobEntry], now_s: float) -> list[Constraint]:
        """Return what keeps VMs where they are: decisions have moved them as often as their terms allow, for which an
        operator's drain counts for more, or their migrations do not converge."""
        drained = {name for name, node in self.cluster.nodes.items() if node.held}
        spent = [entry for entry in jobs if entry.adopted and is_out_of_budget(entry, now_s)]
        return [
            Constraint(ConstraintKind.KEEP, (entry.job.name,))
            for entry in spent
            if not any(allotment.node in drained for allotment in entry.allotments)
        ] + [
            Constraint(ConstraintKind.KEEP, (entry.job.name,))
            for entry in jobs
            if any(now_s < instance.move_at_s for instance in entry.instances)
        ]

    def _takes_mib(self, entry: JobEntry, frozen: Mapping[str, tuple[str, ...]]) -> float:
        """Return the most ordinary memory that an instance takes of a node, without overhead and hugepages, in MiB."""
        if self._has_memory(entry, frozen):
            return 0.0
        if not any(one.pages.total_mib for one in entry.instances):
            return entry.job.memory_mib
        return max(one.memory_mib for one in entry.instances) - self.cluster.vm_overhead_mib

    def _has_memory(self, entry: JobEntry, frozen: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether its memory counts as held by its nodes under any decision, and cannot be reclaimed."""
        return bool(frozen) and (bool(frozen.get(entry.job.name)) or keeps_memory(self.cluster, entry))

    def is_fixed(self, entry: JobEntry, now_s: float) -> bool:
        """Return whether a decision now could only do harm: an operation is in progress, unknown or just failed, an
        operator holds the job, or it was changed externally."""
        if entry.held or entry.left_alone(now_s) or is_off_limits(entry):
            return True
        if entry.phase is JobPhase.WAITING:
            return not entry.clear or any(is_unknown(self.cluster, one) for one in entry.instances)
        if entry.phase is JobPhase.RUNNING and stays_on_draining(self.cluster, entry):
            return True
        if now_s < entry.not_before_s or (entry.phase is JobPhase.RUNNING and not entry.released):
            return True
        for instance in entry.instances:
            if is_busy(self.cluster, instance) or is_unknown(self.cluster, instance):
                return True
            if entry.phase is JobPhase.SUSPENDED and instance.may_run_on:
                return True
        return False

    def are_fixed(self, entries: Sequence[JobEntry], now_s: float) -> Bools:
        """Return `is_fixed` of many, bool[entries]; only those are looked at closely of which it can be true. O(nodes +
        all VMs + instances of the entries)."""
        suspects, running = self._disturbed(), JobPhase.RUNNING
        suspects |= {
            entry
            for entry in entries
            if entry.phase is not running
            or not entry.released
            or entry.held
            or (entry.terms is not None and is_off_limits(entry))
            or entry.reconciliation_paused is not None
            or now_s < entry.not_before_s
        }
        draining = {name for name, node in self.cluster.nodes.items() if node.service is NodeService.DRAINING}
        if draining:
            suspects.update(e for e in entries if any(allotment.node in draining for allotment in e.allotments))
        if not suspects:
            return np.zeros(len(entries), dtype=np.bool_)
        fixed = {entry for entry in suspects.intersection(entries) if self.is_fixed(entry, now_s)}
        return np.array([entry in fixed for entry in entries], dtype=np.bool_)

    def _disturbed(self) -> set[JobEntry]:
        """Return the jobs of VMs with an operation in progress, and of VMs that are awaited or may be where they were
        not seen."""
        cluster, up = self.cluster, NodeCondition.UP
        nodes, instances = cluster.nodes.values(), cluster.instances
        found = [*cluster.actions.values(), *cluster.missing.values(), *cluster.left.values()]
        busy = [status.vm for status in chain.from_iterable([node.vms.values() for node in nodes]) if status.busy]
        busy += chain.from_iterable([node.in_progress for node in nodes])
        found += [instances[vm] for vm in busy if vm in instances]
        for node in [node for node in nodes if node.condition is not up or not node.claimed.keys() <= node.vms.keys()]:
            found += [one for vm, one in node.claimed.items() if node.condition is not up or vm not in node.vms]
        if cluster.nodes_not_reported:
            found += [one for one in instances.values() if one.sought]
        return {one.job for one in found}

    def _instances(self, jobs: list[JobEntry], rows: dict[str, int]) -> InstanceColumns:
        where: list[int] = []
        cpu_mhz: list[float] = []
        for entry in jobs:
            if entry.allotments:
                where += [rows.get(allotment.node, -1) for allotment in entry.allotments]
                cpu_mhz += [allotment.cpu_mhz for allotment in entry.allotments]
            elif _image_rows(entry):
                where += [self._image_row(instance.copies, instance.vm, rows) for instance in entry.instances]
                cpu_mhz += [0.0] * len(entry.instances)
        return InstanceColumns(np.array(where, dtype=np.int64), np.array(cpu_mhz, dtype=np.float64))

    def _image_row(self, copies: set[str], vm: str, rows: dict[str, int]) -> int:
        for name in sorted(copies):
            if self.cluster.nodes[name].vms[vm].state is VmState.SUSPENDED:
                return rows.get(name, -1)
        return -1


def _work_mcycles(entry: JobEntry, left: Mapping[str, LeftWork]) -> float:
    """Return the work that a job declared; where its remaining work is estimated, what it has done plus what is
    expected."""
    found = left.get(entry.job.name)
    return entry.job.work_mcycles if found is None else entry.done_mcycles + found.mean_mcycles


def _stages(entry: JobEntry, left: Mapping[str, LeftWork]) -> Sequence[Stage]:
    """Return its stages, with the remaining work scaled like that of the job. Work beyond all stages runs like the last
    one with work."""
    stages, found = entry.job.stages, left.get(entry.job.name)
    if found is None:
        return stages
    works = stage_work_left([stage.work_mcycles for stage in stages], entry.done_mcycles, found.mean_mcycles)
    return [replace(stage, work_mcycles=work) for stage, work in zip(stages, works, strict=True)]


def _stage_count(job: Job) -> int:
    """Return the number of stages; an instance of a web application has no work that could be divided into stages."""
    return 0 if job.app else len(job.stages)


def _image_rows(entry: JobEntry) -> int:
    return len(entry.instances) if entry.phase is JobPhase.SUSPENDED else 0
