"""Turns a checked file for `trimtab sim place` into the columns that a policy sees."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daemons.capacity.place.fields import RUNNING, SUSPENDED, WAITING, Node
from daemons.capacity.place.file import Place, PlaceFile, WholeApp, WholeJob, WholeStage
from daemons.models.max_min import max_min
from shared.policy_api.snapshot import (
    FlowColumns,
    InstanceColumns,
    LoadingColumns,
    NodeColumns,
    Snapshot,
    StageColumns,
    WebColumns,
    WorkloadColumns,
    WorkloadState,
)
from shared.values.jobs import instance_name

STATES = {WAITING: WorkloadState.WAITING, RUNNING: WorkloadState.RUNNING, SUSPENDED: WorkloadState.SUSPENDED}


@dataclass(frozen=True, slots=True)
class _Workload:
    """A job, or an instance that a web application may have. whole_stage: the profile of one without stages."""

    name: str
    state: str
    held: Sequence[Place]
    submit_s: float
    desired_start_s: float
    vcpus: int
    importance: float
    required_labels: tuple[str, ...]
    goal_s: float = math.inf
    done_mcycles: float = 0.0
    instances: int = 1
    spread: bool = False
    app: int = -1
    stages: tuple[WholeStage, ...] = ()
    whole_stage: WholeStage | None = None
    loading: Mapping[str, float] = field(default_factory=dict)

    def of(self, chosen: Callable[[Iterable[float]], float], key: str) -> float:
        """Return the combined value of its stages."""
        stages = self.stages if self.whole_stage is None else (self.whole_stage,)
        return float(chosen([getattr(stage, key) for stage in stages]))


def snapshot_of(file: PlaceFile) -> Snapshot:
    """Return the snapshot: jobs in order of submission (ties: as in the file), then one row for each instance that a
    web application may have, running ones first."""
    workloads = _workloads(file)
    nodes = {node.name: index for index, node in enumerate(file.nodes)}
    held = _allotted(file, workloads)
    rows = [(nodes.get(node, -1), mhz) for row, pairs in zip(workloads, held, strict=True) for node, mhz in pairs]
    return Snapshot(
        file.now_s,
        file.cycle_s,
        _nodes(file, workloads, held),
        workloads=_columns(workloads),
        instances=InstanceColumns(_ints([node for node, _ in rows]), _floats([mhz for _, mhz in rows])),
        stages=_stages(workloads),
        vm_overhead_mib=file.vm_overhead_mib,
        web=_web(file),
        flows=_flows(file),
        constraints=file.constraints,
        costs=file.costs,
        loading=_loading(file, workloads),
    )


def _loading(file: PlaceFile, workloads: Sequence[_Workload]) -> LoadingColumns | None:
    """Return the loadings of the jobs, on nodes of as many types as there are different servers; None if nothing is
    shared."""
    resources = tuple(dict.fromkeys(name for job in file.jobs for name in job.loading))
    if file.interference == "off" or not resources:
        return None
    kinds: dict[tuple[int, ...], int] = {}
    servers = [tuple(node.servers.get(name, 1) for name in resources) for node in file.nodes]
    node_type = [kinds.setdefault(each, len(kinds)) for each in servers]
    parts = [[row.loading.get(name, 0.0) for name in resources] for row in workloads]
    table = np.array([parts] * len(kinds), dtype=np.float64).reshape(len(kinds), len(workloads), len(resources))
    return LoadingColumns(
        resources, table, _ints(node_type), _floats([list(kind) for kind in kinds]), file.interference
    )


def _floats(values: list[Any]) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def _ints(values: list[Any]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def _workloads(file: PlaceFile) -> list[_Workload]:
    """Return a row for each job and for each possible instance of a web application."""
    cores = max((node.cores or 1 for node in file.nodes), default=1)
    jobs = sorted((_of_job(job, file.now_s, cores) for job in file.jobs), key=lambda row: row.submit_s)
    return jobs + [replica for app, row in enumerate(file.web_apps) for replica in _replicas(file, app, row, cores)]


def _of_job(job: WholeJob, now_s: float, cores: int) -> _Workload:
    keys = job.keys
    return _Workload(
        keys.name,
        keys.state,
        job.held,
        submit_s=min(job.desired_start_s, now_s) if keys.submit_s is None else keys.submit_s,
        desired_start_s=job.desired_start_s,
        vcpus=keys.vcpus or cores,
        importance=keys.importance,
        required_labels=keys.needs,
        goal_s=math.inf if keys.goal_s is None else keys.goal_s,
        done_mcycles=keys.done_mcycles,
        instances=keys.instances,
        spread=keys.separate,
        stages=job.stages,
        loading=job.loading,
    )


def _replicas(file: PlaceFile, number: int, app: WholeApp, cores: int) -> list[_Workload]:
    keys = app.keys
    largest_mhz = max((node.cpu_mhz for node in file.nodes), default=0.0)
    whole_stage = WholeStage(0.0, keys.max_mhz or max(largest_mhz, 1.0), 0.0, keys.memory_mib)
    return [
        _Workload(
            instance_name(keys.name, index),
            RUNNING if index < len(app.held) else WAITING,
            app.held[index : index + 1],
            submit_s=file.now_s,
            desired_start_s=file.now_s,
            vcpus=keys.vcpus or cores,
            importance=keys.importance,
            required_labels=keys.needs,
            app=number,
            whole_stage=whole_stage,
        )
        for index in range(keys.max_instances)
    ]


def _columns(rows: Sequence[_Workload]) -> WorkloadColumns:
    held = _ints([len(row.held) for row in rows])
    stages = _ints([len(row.stages) for row in rows])
    count = len(rows)
    return WorkloadColumns(
        names=tuple(row.name for row in rows),
        state=_ints([STATES[row.state] for row in rows]),
        revision=np.zeros(count, dtype=np.int64),
        submit_s=_floats([row.submit_s for row in rows]),
        desired_start_s=_floats([row.desired_start_s for row in rows]),
        goal_s=_floats([row.goal_s for row in rows]),
        not_before_s=np.zeros(count),
        work_mcycles=_floats([row.of(math.fsum, "work_mcycles") for row in rows]),
        done_mcycles=_floats([row.done_mcycles for row in rows]),
        max_mhz=_floats([row.of(max, "max_mhz") for row in rows]),
        min_mhz=_floats([row.of(max, "min_mhz") for row in rows]),
        memory_mib=_floats([row.of(max, "memory_mib") for row in rows]),
        vcpus=_ints([row.vcpus for row in rows]),
        instances=_ints([row.instances for row in rows]),
        importance=_floats([row.importance for row in rows]),
        spread=np.array([row.spread for row in rows], dtype=np.bool_),
        fixed=np.zeros(count, dtype=np.bool_),
        first_instance=held.cumsum() - held,
        required_labels=tuple(row.required_labels for row in rows),
        app=_ints([row.app for row in rows]),
        changed_s=np.full(count, -np.inf),
        first_stage=stages.cumsum() - stages,
        stages=stages,
        queued=np.zeros(count, dtype=np.bool_),
        stays=np.zeros(count, dtype=np.bool_),
    )


def _stages(rows: Sequence[_Workload]) -> StageColumns:
    every = [stage for row in rows for stage in row.stages]
    return StageColumns(
        _floats([stage.work_mcycles for stage in every]),
        _floats([stage.max_mhz for stage in every]),
        _floats([stage.min_mhz for stage in every]),
        _floats([stage.memory_mib for stage in every]),
    )


def _core_mhz(node: Node) -> float:
    return float(node.core_mhz or node.cpu_mhz / (node.cores or 1))


def _nodes(file: PlaceFile, workloads: Sequence[_Workload], held: list[list[tuple[str, float]]]) -> NodeColumns:
    nodes = file.nodes
    cpu_mhz, memory_mib = _floats([row.cpu_mhz for row in nodes]), _floats([row.memory_mib for row in nodes])
    core_mhz = _floats([_core_mhz(row) for row in nodes])
    free_mhz, free_mib = cpu_mhz.copy(), memory_mib.copy()
    index = {row.name: at for at, row in enumerate(nodes)}
    for row, pairs in zip(workloads, held, strict=True):
        for node, mhz in pairs if row.state == RUNNING else ():
            free_mhz[index[node]] -= mhz
            free_mib[index[node]] -= row.of(max, "memory_mib") + file.vm_overhead_mib
    draining = np.array([row.draining for row in nodes], dtype=np.bool_)
    return NodeColumns(
        tuple(row.name for row in nodes),
        _ints([row.cores or max(1, round(row.cpu_mhz / _core_mhz(row))) if row.cpu_mhz else 1 for row in nodes]),
        core_mhz,
        cpu_mhz=cpu_mhz,
        memory_mib=memory_mib,
        free_cpu_mhz=free_mhz,
        free_memory_mib=free_mib,
        schedulable=~draining,
        draining=draining,
        labels=tuple(row.labels for row in nodes),
    )


def _allotted(file: PlaceFile, workloads: Sequence[_Workload]) -> list[list[tuple[str, float]]]:
    """Node and MHz of every instance. Where the file does not say how much CPU an instance has, those on a node share
    what the others leave, as a host shares it: evenly, none above its limit."""
    made: list[list[tuple[str, float]]] = []
    open_by_node: defaultdict[str, list[tuple[int, int, float]]] = defaultdict(list)
    left_mhz = {row.name: row.cpu_mhz for row in file.nodes}
    core_mhz = {row.name: _core_mhz(row) for row in file.nodes}
    for at, row in enumerate(workloads):
        made.append([(node, mhz or 0.0) for node, mhz in row.held])
        for index, (node, mhz) in enumerate(row.held if row.state == RUNNING else ()):
            if mhz is None:
                limit_mhz = min(row.of(max, "max_mhz"), row.vcpus * core_mhz[node])
                open_by_node[node].append((at, index, limit_mhz))
            else:
                left_mhz[node] -= mhz
    for node, entries in open_by_node.items():
        given = max_min([limit for _, _, limit in entries], left_mhz[node])
        for (at, index, _), mhz in zip(entries, given, strict=True):
            made[at][index] = (node, mhz)
    return made


def _web(file: PlaceFile) -> WebColumns:
    apps = file.web_apps
    return WebColumns(
        tuple(app.keys.name for app in apps),
        _ints([app.keys.min_instances for app in apps]),
        _ints([app.keys.max_instances for app in apps]),
        _floats([math.inf if app.total_max_mhz is None else app.total_max_mhz for app in apps]),
        _floats([app.keys.importance for app in apps]),
    )


def _flows(file: PlaceFile) -> FlowColumns:
    every = [(app, flow) for app, row in enumerate(file.web_apps) for flow in row.flows]
    flows = [flow for _, flow in every]
    return FlowColumns(
        tuple(flow.name for flow in flows),
        _ints([app for app, _ in every]),
        _floats([flow.goal for flow in flows]),
        percentile=_floats([flow.percentile for flow in flows]),
        throughput=np.array([flow.throughput for flow in flows], dtype=np.bool_),
        model=tuple(flow.model for flow in flows),
        t_min_s=_floats([flow.t_min_s for flow in flows]),
        c_mhz_s=_floats([flow.c_mhz_s for flow in flows]),
        load_mhz=_floats([flow.load_mhz for flow in flows]),
        rate_per_s=_floats([flow.rate_per_s for flow in flows]),
        work_mcycles=_floats([flow.work_mcycles for flow in flows]),
        response_factor=np.ones(len(flows)),
        expected_mhz=np.zeros(len(flows)),
    )
