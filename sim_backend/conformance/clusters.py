"""Clusters as rows: snapshots built by hand or drawn from a seed, and what a decision makes of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shared.policy_api.decision import ChangeKind, PlacementDecision
from shared.policy_api.snapshot import (
    InstanceColumns,
    NodeColumns,
    PowerColumns,
    PriceView,
    Snapshot,
    StageColumns,
    WindowView,
    WorkloadColumns,
    WorkloadState,
)
from shared.values.jobs import Stage

_FLOATS = (
    *("submit_s", "desired_start_s", "goal_s", "not_before_s", "work_mcycles", "done_mcycles"),
    *("max_mhz", "min_mhz", "memory_mib", "importance", "changed_s"),
)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node; `other_mib` and `other_mhz` are held by VMs that are not in the snapshot."""

    name: str
    cores: int = 4
    core_mhz: float = 1000.0
    memory_mib: float = 8000.0
    other_mhz: float = 0.0
    other_mib: float = 0.0
    schedulable: bool = True
    draining: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A workload; `places` are node row and MHz of each instance (of each image if it is suspended). Without `stages`
    a job has one, of its work, speeds and memory. `app`: row of its web application, -1 for a job."""

    name: str
    state: WorkloadState = WorkloadState.WAITING
    memory_mib: float = 1000.0
    max_mhz: float = 1000.0
    min_mhz: float = 0.0
    vcpus: int = 1
    instances: int = 1
    spread: bool = False
    fixed: bool = False
    submit_s: float = 0.0
    desired_start_s: float = 0.0
    goal_s: float = math.inf
    not_before_s: float = 0.0
    work_mcycles: float = 1e6
    done_mcycles: float = 0.0
    importance: float = 1.0
    revision: int = 1
    required_labels: tuple[str, ...] = ()
    places: tuple[tuple[int, float], ...] = ()
    stages: tuple[Stage, ...] = ()
    app: int = -1
    changed_s: float = -math.inf
    queued: bool = False
    stays: bool = False


def _floats(values: Iterable[float]) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


def _bools(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.array(list(values), dtype=np.bool_)


def snapshot(
    nodes: Sequence[NodeRow], workloads: Sequence[WorkRow], now_s: float = 1000.0, vm_overhead_mib: float = 0.0
) -> Snapshot:
    """Return the snapshot of these rows. Free capacity follows from the running workloads. `cycle_s` is 900."""
    return Snapshot(
        now_s,
        900.0,
        _node_columns(nodes, workloads, vm_overhead_mib),
        workloads=_workload_columns(workloads),
        instances=InstanceColumns(
            _ints(node for row in workloads for node, _ in row.places),
            _floats(mhz for row in workloads for _, mhz in row.places),
        ),
        stages=_stage_columns(workloads),
        vm_overhead_mib=vm_overhead_mib,
    )


def _node_columns(nodes: Sequence[NodeRow], workloads: Sequence[WorkRow], vm_overhead_mib: float) -> NodeColumns:
    cpu_mhz = _floats(row.cores * row.core_mhz for row in nodes)
    memory_mib = _floats(row.memory_mib for row in nodes)
    free_mhz = cpu_mhz - _floats(row.other_mhz for row in nodes)
    free_mib = memory_mib - _floats(row.other_mib for row in nodes)
    for row in workloads:
        for node, mhz in row.places if row.state is WorkloadState.RUNNING else ():
            if node >= 0:
                free_mhz[node] -= mhz
                free_mib[node] -= row.memory_mib + vm_overhead_mib
    return NodeColumns(
        names=tuple(row.name for row in nodes),
        cores=_ints(row.cores for row in nodes),
        core_mhz=_floats(row.core_mhz for row in nodes),
        cpu_mhz=cpu_mhz,
        memory_mib=memory_mib,
        free_cpu_mhz=free_mhz,
        free_memory_mib=free_mib,
        schedulable=_bools(row.schedulable for row in nodes),
        draining=_bools(row.draining for row in nodes),
        labels=tuple(row.labels for row in nodes),
    )


def _stages(row: WorkRow) -> tuple[tuple[float, float, float, float], ...]:
    """Return the work, maximum and minimum speed, and memory of each stage."""
    if row.app >= 0:
        return ()
    if not row.stages:
        return ((row.work_mcycles, row.max_mhz, row.min_mhz, row.memory_mib),)
    return tuple((stage.work_mcycles, stage.max_mhz, stage.min_mhz, stage.memory_mib) for stage in row.stages)


def _stage_columns(rows: Sequence[WorkRow]) -> StageColumns:
    stages = [stage for row in rows for stage in _stages(row)]
    return StageColumns(*(_floats(stage[column] for stage in stages) for column in range(4)))


def _workload_columns(rows: Sequence[WorkRow]) -> WorkloadColumns:
    counts = [len(row.places) for row in rows]
    stages = [len(_stages(row)) for row in rows]
    return WorkloadColumns(
        names=tuple(row.name for row in rows),
        state=_ints(row.state.value for row in rows),
        revision=_ints(row.revision for row in rows),
        vcpus=_ints(row.vcpus for row in rows),
        instances=_ints(row.instances for row in rows),
        spread=_bools(row.spread for row in rows),
        fixed=_bools(row.fixed for row in rows),
        first_instance=_ints(sum(counts[:index]) for index in range(len(rows))),
        required_labels=tuple(row.required_labels for row in rows),
        app=_ints(row.app for row in rows),
        first_stage=_ints(sum(stages[:index]) for index in range(len(rows))),
        stages=_ints(stages),
        queued=_bools(row.queued for row in rows),
        stays=_bools(row.stays for row in rows),
        **{name: _floats(getattr(row, name) for row in rows) for name in _FLOATS},
    )


def rows_of(seen: Snapshot) -> tuple[list[NodeRow], list[WorkRow]]:
    """Return the rows that a snapshot shows: the inverse of `snapshot`, up to rounding."""
    work, at = seen.workloads, seen.instances
    workloads = []
    for index, name in enumerate(work.names):
        state, first = WorkloadState(work.state.item(index)), work.first_instance.item(index)
        count = 0 if state is WorkloadState.WAITING else work.instances.item(index)
        here = slice(first, first + count)
        row = WorkRow(
            name,
            state,
            vcpus=work.vcpus.item(index),
            instances=work.instances.item(index),
            spread=work.spread.item(index),
            fixed=work.fixed.item(index),
            revision=work.revision.item(index),
            required_labels=work.required_labels[index],
            places=tuple(zip(at.node[here].tolist(), at.cpu_mhz[here].tolist(), strict=True)),
            stages=_several_stages(seen, work.first_stage.item(index), work.stages.item(index)),
            app=work.app.item(index),
            queued=work.queued.item(index),
            stays=work.stays.item(index),
            **{field: getattr(work, field).item(index) for field in _FLOATS},
        )
        workloads.append(row)
    return _node_rows(seen, workloads), workloads


def _several_stages(seen: Snapshot, first: int, count: int) -> tuple[Stage, ...]:
    """Return the stages of a job; () for a job of one stage, which its row describes."""
    return tuple(_stage_of(seen, row) for row in range(first, first + count)) if count > 1 else ()


def _stage_of(seen: Snapshot, row: int) -> Stage:
    stages = seen.stages
    speeds = stages.max_mhz.item(row), stages.min_mhz.item(row)
    return Stage(stages.work_mcycles.item(row), *speeds, int(stages.memory_mib.item(row)))


def _node_rows(seen: Snapshot, workloads: Sequence[WorkRow]) -> list[NodeRow]:
    columns = seen.nodes
    other_mhz = columns.cpu_mhz - columns.free_cpu_mhz
    other_mib = columns.memory_mib - columns.free_memory_mib
    for row in workloads:
        for node, mhz in row.places if row.state is WorkloadState.RUNNING else ():
            if node >= 0:
                other_mhz[node] -= mhz
                other_mib[node] -= row.memory_mib + seen.vm_overhead_mib
    return [
        NodeRow(
            name,
            columns.cores.item(index),
            columns.core_mhz.item(index),
            memory_mib=columns.memory_mib.item(index),
            other_mhz=other_mhz.item(index),
            other_mib=other_mib.item(index),
            schedulable=columns.schedulable.item(index),
            draining=columns.draining.item(index),
            labels=columns.labels[index],
        )
        for index, name in enumerate(columns.names)
    ]


_AFTER = {ChangeKind.SUSPEND: WorkloadState.SUSPENDED, ChangeKind.STOP: WorkloadState.WAITING}


def after(seen: Snapshot, decision: PlacementDecision) -> Snapshot:
    """Return the same cluster at the same moment with every change made. A name refers to its first row."""
    nodes, workloads = rows_of(seen)
    node_of = {row.name: index for index, row in reversed(list(enumerate(nodes)))}
    work_of = {row.name: index for index, row in reversed(list(enumerate(workloads)))}
    for change in decision.changes:
        index = work_of[change.workload]
        state = _AFTER.get(change.kind, WorkloadState.RUNNING)
        places = tuple((node_of[given.node], given.cpu_mhz) for given in change.allotments)
        row = workloads[index]
        if state is WorkloadState.SUSPENDED:
            places = row.places  # where the images lie
        workloads[index] = replace(row, state=state, places=places, revision=row.revision + 1)
    return snapshot(nodes, workloads, seen.now_s, seen.vm_overhead_mib)


def random_cluster(rng: np.random.Generator, nodes: int | None = None, workloads: int | None = None) -> Snapshot:
    """Return a valid random cluster, in which everything that runs fits where it is. Unless given, it has 1 to 8 nodes
    and 0 to 16 workloads.

    Some nodes are draining or not schedulable; some have labels or unmanaged VMs. Workloads are in every state: some
    are gangs, some spread, fixed or with labels, some have goals in the past or none, some may not start yet. Numbers
    are round, so that equal sizes and exact fits are common.
    """
    count = int(rng.integers(1, 9)) if nodes is None else nodes
    rows = [_random_node(rng, index) for index in range(count)]
    free = [[row.cores * row.core_mhz - row.other_mhz, row.memory_mib - row.other_mib] for row in rows]
    overhead_mib = float(rng.choice([0.0, 100.0]))
    jobs: list[WorkRow] = []
    for index in range(int(rng.integers(0, 17)) if workloads is None else workloads):
        job = _random_job(rng, index)
        if rng.random() < 0.5:
            job = _settled(rng, job, rows, free, overhead_mib)
        jobs.append(job)
    return snapshot(rows, jobs, 1000.0, overhead_mib)


def _random_node(rng: np.random.Generator, index: int) -> NodeRow:
    fate = rng.random()
    other = rng.random() < 0.2
    return NodeRow(
        f"n{index}",
        cores=int(rng.integers(1, 9)),
        core_mhz=float(rng.choice([1000.0, 1500.0, 2600.0])),
        memory_mib=float(rng.integers(1, 9) * 1000),
        other_mhz=500.0 if other else 0.0,
        other_mib=500.0 if other else 0.0,
        schedulable=fate < 0.75,
        draining=bool(fate > 0.85),
        labels=("ssd",) if rng.random() < 0.5 else (),
    )


def _random_job(rng: np.random.Generator, index: int) -> WorkRow:
    max_mhz = float(rng.choice([500.0, 1000.0, 2600.0, 5200.0]))
    return WorkRow(
        f"j{index}",
        memory_mib=float(rng.choice([0.0, 500.0, 1000.0, 3000.0])),
        max_mhz=max_mhz,
        min_mhz=float(rng.choice([0.0, 0.0, 500.0])),
        vcpus=int(rng.integers(1, 5)),
        instances=int(rng.choice([1, 1, 1, 2, 3, 6])),
        spread=bool(rng.random() < 0.3),
        fixed=bool(rng.random() < 0.1),
        submit_s=float(rng.integers(0, 1000)),
        desired_start_s=2000.0 if rng.random() < 0.1 else 0.0,
        not_before_s=1500.0 if rng.random() < 0.1 else 0.0,
        goal_s=float(rng.choice([math.inf, 500.0, 4000.0, 5000.0, 9000.0])),
        revision=int(rng.integers(0, 9)),
        required_labels=("ssd",) if rng.random() < 0.2 else (),
        stays=index % 5 == 2,
    )


def _settled(
    rng: np.random.Generator, job: WorkRow, nodes: Sequence[NodeRow], free: list[list[float]], overhead_mib: float
) -> WorkRow:
    """Return the job running (at times suspended) on random nodes with capacity, or unchanged if there is none."""
    places: list[tuple[int, float]] = []
    trial = [list(pair) for pair in free]
    need_mib = job.memory_mib + overhead_mib
    for _ in range(job.instances):
        for node in rng.permutation(len(nodes)).tolist():
            row = nodes[node]
            mhz = min(job.max_mhz, job.vcpus * row.core_mhz, row.cores * row.core_mhz)
            apart = not job.spread or all(node != there for there, _ in places)
            fits = trial[node][0] >= mhz >= job.min_mhz and trial[node][1] >= need_mib
            if fits and apart and set(job.required_labels) <= set(row.labels):
                trial[node] = [trial[node][0] - mhz, trial[node][1] - need_mib]
                places.append((node, mhz))
                break
    if len(places) < job.instances:
        return job
    if rng.random() < 0.25:
        return replace(job, state=WorkloadState.SUSPENDED, places=tuple(places))
    free[:] = trial
    return replace(job, state=WorkloadState.RUNNING, places=tuple(places))


_PROFILES = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (2.0, 1.0, 3.0, 0.0, 0.0, 0.0), (0.5, 4.0, 4.0, 0.5, 0.0, 0.0))


def provisioned(rng: np.random.Generator, seen: Snapshot) -> Snapshot:
    """Return the cluster with power states, up to three deadline windows and, in most cases, prices. Nodes are in every
    state; some must stay on, some are of little or no use to a window. Windows are at any decision point or not open
    yet. There are few distinct problems, so that their tables are soon complete."""
    count = len(seen.nodes.names)
    usable = rng.random(count) < 0.8
    power = PowerColumns(
        wanted=rng.random(count) < 0.5,
        available=usable,
        must_stay=usable & (rng.random(count) < 0.15),
        on=rng.random(count) < 0.6,
        deploy_s=rng.choice([0.0, 25.0, 400.0], count),
        remove_s=np.full(count, 30.0),
        idle_w=np.full(count, 100.0),
        peak_w=np.where(rng.random(count) < 0.2, 350.0, 200.0),
        off_w=np.full(count, 5.0),
        types=("",) * count,
    )
    windows = tuple(_random_window(rng, index, count) for index in range(int(rng.integers(0, 4))))
    prices = None
    if rng.random() < 0.7:
        per_kwh = np.array([[0.3] * 8, [0.1, 0.1, 0.5, 0.5, 0.2, -0.05, 0.3, 0.3]][int(rng.integers(0, 2))])
        prices = PriceView(900.0, per_kwh, np.zeros(8), 6, "EUR")
    return replace(seen, power=power, windows=windows, prices=prices)


def _random_window(rng: np.random.Generator, index: int, nodes: int) -> WindowView:
    begun, alike = rng.random() < 0.8, rng.random() < 0.8
    arrivals = np.zeros((6, 2))
    arrivals[:, 0] = _PROFILES[int(rng.integers(0, len(_PROFILES)))]
    return WindowView(
        name=f"w{index}",
        interval_s=900.0,
        interval=int(rng.choice([0, 3, 6])) if begun else 0,
        intervals=6,
        opens_s=0.0 if begun else 1800.0,
        jobs=int(rng.integers(0, 12)) if begun else 0,
        arrivals=arrivals,
        service_s=600.0,
        slots=2,
        nodes=int(rng.integers(0, 4)),
        nodes_min=1,
        nodes_max=3,
        confidence=0.99,
        penalty=0.0,
        weight=float(rng.choice([1.0, 5.0])),
        rate=rng.choice([0.0, 1.0, 1.0] if alike else [0.0, 0.5, 1.0, 2.0], nodes),
        taken=rng.choice([0.0, 0.0, 0.0, 0.25, 1.0], nodes),
    )
