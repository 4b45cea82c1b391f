"""The read-only columns that policies see (numpy). Built by measure and by the direct engine, never changed.

One row per node and one per workload that is not over; instances of placed workloads are kept as ragged rows:
instance `i` of workload `w` is row `first_instance[w] + i` of the instance columns; its stages begin at row
`first_stage[w]` of the stage columns. A web application has a row in `web` and one workload row for each instance that
it may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.values.jobs import Constraint, Stage
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import ModelForm

T = TypeVar("T")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class WorkloadState(IntEnum):
    """State of a workload in a snapshot; starting counts as RUNNING, suspending as SUSPENDED."""

    WAITING = 0
    RUNNING = 1
    SUSPENDED = 2


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """One row per node, in the order of `names`.

    cpu_mhz, core_mhz (MHz), memory_mib: capacity that VMs may use, float64[n]. free_cpu_mhz, free_memory_mib: capacity
    less the desired allotments there and what unmanaged VMs hold, float64[n]; may be negative. schedulable: in service,
    up and neither draining nor skewed. draining: being evacuated. labels: tuple of n tuples.
    """

    names: tuple[str, ...]
    cores: Ints
    core_mhz: Floats
    cpu_mhz: Floats
    memory_mib: Floats
    free_cpu_mhz: Floats
    free_memory_mib: Floats
    schedulable: Bools
    draining: Bools
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class WorkloadColumns:
    """One row per workload that is not over, in order of submission (ties by name).

    state: `WorkloadState`. submit_s, desired_start_s, goal_s (inf: none), not_before_s (back-off): absolute seconds.
    work_mcycles, done_mcycles: per instance, declared and measured. max_mhz, min_mhz, memory_mib, vcpus: per instance.
    instances: k. spread: one instance per node. fixed: must not be changed now (an instance is unknown or an operation
    on it is in progress). importance: > 0. revision: copied into a `Change`. required_labels: tuple of tuples. app: row
    in the web columns for an instance of a web application, -1 for a job. Such an instance has no work, goal or stages,
    and no two of one application share a node. changed_s: when it was last started, resumed, moved or suspended (-inf:
    never). stages: their number, 0 for an instance of a web application. queued: in the queue of an open deadline
    window, whose nodes it uses. stays: once it runs it is never suspended for others; it can be migrated live.
    """

    names: tuple[str, ...]
    state: Ints
    revision: Ints
    submit_s: Floats
    desired_start_s: Floats
    goal_s: Floats
    not_before_s: Floats
    work_mcycles: Floats
    done_mcycles: Floats
    max_mhz: Floats
    min_mhz: Floats
    memory_mib: Floats
    vcpus: Ints
    instances: Ints
    importance: Floats
    spread: Bools
    fixed: Bools
    first_instance: Ints
    required_labels: tuple[tuple[str, ...], ...]
    app: Ints
    changed_s: Floats
    first_stage: Ints
    stages: Ints
    queued: Bools
    stays: Bools


@dataclass(frozen=True, slots=True)
class InstanceColumns:
    """Ragged rows for the instances of every workload: node (row in nodes, -1: nowhere) and cpu_mhz allotted now.

    For a suspended workload `node` is where its image lies, `ELSEWHERE` where that is in reach on a node that is not
    shown. Waiting workloads have no rows.
    """

    node: Ints
    cpu_mhz: Floats


@dataclass(frozen=True, slots=True)
class StageColumns:
    """Ragged rows for the stages of every job, in their order: work per instance in Mcycles, the most and the least
    speed in MHz, memory in MiB (apc.txt section 4.1)."""

    work_mcycles: Floats
    max_mhz: Floats
    min_mhz: Floats
    memory_mib: Floats


def stage_columns(stages: Sequence[Stage]) -> StageColumns:
    """Return one row per stage, in the order given."""
    names = ("work_mcycles", "max_mhz", "min_mhz", "memory_mib")
    return StageColumns(*(np.fromiter(map(attrgetter(name), stages), np.float64, len(stages)) for name in names))


@dataclass(frozen=True, slots=True)
class WebColumns:
    """One row per web application. min_instances, max_instances: how many of its workload rows run at least and at
    most. max_mhz: above so much CPU for all instances nothing is gained (inf: none stated). importance: > 0."""

    names: tuple[str, ...]
    min_instances: Ints
    max_instances: Ints
    max_mhz: Floats
    importance: Floats


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """One row per flow of a web application, `app` being that application's row.

    goal: on the response time in seconds (its mean if `percentile` is 0, else that percentile, 0..1), or on the
    throughput in requests/s if `throughput`. model: the registered response-time model. t_min_s, c_mhz_s, load_mhz (CPU
    that the demand to plan for uses), rate_per_s (arrivals), work_mcycles (of one request): inputs of the model.
    expected_mhz: the expected load, without headroom (0: `load_mhz`); predictions use it. response_factor: measured
    factor by which the part of the response time that CPU shortens exceeds the model's (> 0; 1: not measured).
    """

    names: tuple[str, ...]
    app: Ints
    goal: Floats
    percentile: Floats
    throughput: Bools
    model: tuple[ModelForm, ...]
    t_min_s: Floats
    c_mhz_s: Floats
    load_mhz: Floats
    rate_per_s: Floats
    work_mcycles: Floats
    response_factor: Floats
    expected_mhz: Floats


@dataclass(frozen=True, slots=True)
class PowerColumns:
    """One row per node, in the order of the node columns.

    wanted: in service by the last decision. available: could be in service within a cycle (up or asleep; not failed,
    not excluded by an operator, not unexpectedly unreachable). must_stay: never taken out of service. on: not asleep
    and not waking. deploy_s: expected time until it serves if it were wanted now (0: in service); remove_s: until it is
    out of service and asleep. idle_w, peak_w, off_w: power drawn without load, at full CPU, asleep. types: the node
    types ("": none).
    """

    wanted: Bools
    available: Bools
    must_stay: Bools
    on: Bools
    deploy_s: Floats
    remove_s: Floats
    idle_w: Floats
    peak_w: Floats
    off_w: Floats
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WindowView:
    """A deadline window at a decision point (batch-provisioning.txt section 4.1).

    interval: index s of the decision point in its period of `intervals`, counted back from the deadline so that the
    remaining time is never overestimated; 0 if it is not open yet. opens_s: seconds until it opens (0: it is open).
    interval_s: their length. jobs: n, in its queue now and not blocked. arrivals: float64[intervals, k], expected ones
    as in `daemons.models.deadline.problem`, including the release of blocked jobs. service_s: mean service time of a
    job on a slot of the reference node; slots: how many it executes at a time. nodes: reference nodes that serve it
    now. rate: float64[nodes of the cluster], the number of reference nodes that each node is worth for its jobs (0: it
    cannot hold them). taken: float64[nodes of the cluster], the share (0..1) of each rate held by workloads outside the
    queues of open windows; `nodes` excludes it. deploy_s, remove_s: of its nodes, learnt. analyser: the analyser that
    computes its probability of breach. phase_rates, phase_goes: of the service time in 1/s if it is not exponential, as
    in `daemons.models.deadline.phases` (empty: exponential). begun_s: float64[b], service received by each job that was
    begun and is not done. unavoidable: probability (0..1) that run times alone, on any number of nodes, miss the
    deadline.
    """

    name: str
    interval_s: float
    interval: int
    intervals: int
    opens_s: float
    jobs: int
    arrivals: Floats
    service_s: float
    slots: int
    nodes: int
    nodes_min: int
    nodes_max: int
    confidence: float
    penalty: float
    weight: float
    rate: Floats
    taken: Floats
    deploy_s: float = 0.0
    remove_s: float = 0.0
    analyser: str = "batch-deadline"
    phase_rates: Floats = field(default_factory=lambda: np.zeros(0))
    phase_goes: Floats = field(default_factory=lambda: np.zeros(0))
    begun_s: Floats = field(default_factory=lambda: np.zeros(0))
    unavoidable: float = 0.0


@dataclass(frozen=True, slots=True)
class PriceView:
    """What nodes cost in the intervals that begin now. per_kwh: float64[h], price of energy in `currency`; may be
    negative. added: float64[h], what taking one node for an interval costs besides. known: how many of the intervals
    have known prices; the rest is a forecast."""

    interval_s: float
    per_kwh: Floats
    added: Floats
    known: int
    currency: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentColumns:
    """Which workloads may run on which nodes. `names`: of the running environments. `node`: int64[nodes], the row in
    `names` of the environment whose workloads may be placed on a node; `POOL` for a node without an environment,
    `NOBODY` for a node in reassignment. A node that is being taken from an environment is draining. `workload`:
    int64[workloads], the row of its environment, POOL for none, NOBODY if its environment is not running. `quota`:
    int64[names], the number of VMs that an environment with allocation unit `vm` may run at a time, on nodes without an
    environment (-1: allocation unit `node`). `leaving`: bool[nodes], given to another: draining, and workloads without
    a place elsewhere are preempted at once."""

    names: tuple[str, ...]
    node: Ints
    workload: Ints
    quota: Ints
    leaving: Bools


@dataclass(frozen=True, slots=True)
class LoadingColumns:
    """How workloads load the resources of nodes (d-factor.txt, 3.2).

    resources: their names, those that CPU allotments share out ("cpu") not among them. parts: float64[node types,
    workloads, resources], of each instance, on a node of each type; 0 where nothing is known. node_type: int64[nodes],
    which row of `parts` is about a node. servers: float64[node types, resources], how many requests such a node serves
    at a time at full speed, 1 or above. model: "formula", "product-form" or "auto".
    """

    resources: tuple[str, ...]
    parts: Floats
    node_type: Ints
    servers: Floats
    model: str = "auto"


@dataclass(frozen=True, slots=True)
class MigrationColumns:
    """Where running workloads can be migrated alive. fits: bool[sets, nodes]; of: int64[workloads], which set of nodes
    is a workload's, those that it is on among them (-1: every node will do)."""

    fits: Bools
    of: Ints

    def nodes_of(self, row: int) -> Bools | None:
        """Return the nodes that workload `row` can be migrated to, bool[nodes] (None: all)."""
        at = self.of.item(row)
        return None if at < 0 else self.fits[at]


POOL, NOBODY = -1, -2
ELSEWHERE = -2  # a node that is not shown
_NO_FLOATS: Floats = np.empty(0)
_NO_INTS: Ints = np.empty(0, dtype=np.int64)
NO_WEB = WebColumns((), _NO_INTS, _NO_INTS, _NO_FLOATS, _NO_FLOATS)
NO_FLOWS = FlowColumns(
    (),
    _NO_INTS,
    _NO_FLOATS,
    percentile=_NO_FLOATS,
    throughput=np.empty(0, dtype=np.bool_),
    model=(),
    t_min_s=_NO_FLOATS,
    c_mhz_s=_NO_FLOATS,
    load_mhz=_NO_FLOATS,
    rate_per_s=_NO_FLOATS,
    work_mcycles=_NO_FLOATS,
    response_factor=_NO_FLOATS,
    expected_mhz=_NO_FLOATS,
)
Columns = (
    NodeColumns
    | WorkloadColumns
    | InstanceColumns
    | StageColumns
    | WebColumns
    | FlowColumns
    | PowerColumns
    | WindowView
    | PriceView
    | EnvironmentColumns
    | LoadingColumns
    | MigrationColumns
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a policy sees. `now_s` absolute; `reporting_frac` share of nodes in service that are up (0..1);
    `oldest_report_s` age of the oldest report of an up node. `at_cycle`: a cycle's decision; else something happened
    between cycles. `costs`: what operations on VMs take. `power` (None: all nodes are up and may serve), `windows`
    (open ones and those that open next) and `prices` (None: every node costs the same at any time) are for
    provisioning. `environments` (None: there are none) parts it; a placement policy sees one part of it, where this is
    None again. `loading`: None where sharing is not to count, or slows nothing down as far as is known. `migration`:
    None where what runs can be migrated to every node, as far as is known. Every array is read-only: writing raises
    ValueError.
    """

    now_s: float
    cycle_s: float
    nodes: NodeColumns
    workloads: WorkloadColumns
    instances: InstanceColumns
    stages: StageColumns
    reporting_frac: float = 1.0
    oldest_report_s: float = 0.0
    vm_overhead_mib: float = 0.0
    web: WebColumns = NO_WEB
    flows: FlowColumns = NO_FLOWS
    constraints: tuple[Constraint, ...] = ()
    costs: OperationCosts = COSTS["none"]
    at_cycle: bool = True
    power: PowerColumns | None = None
    windows: tuple[WindowView, ...] = ()
    prices: PriceView | None = None
    environments: EnvironmentColumns | None = None
    loading: LoadingColumns | None = None
    migration: MigrationColumns | None = None

    def __post_init__(self) -> None:
        for columns in (self.nodes, self.workloads, self.instances, self.stages, self.web, self.flows):
            freeze(columns)
        for part in (self.power, self.prices, self.environments, self.loading, self.migration, *self.windows):
            if part is not None:
                freeze(part)


def freeze(columns: Columns) -> None:
    """Make every array of the columns read-only, in place."""
    for name in _COLUMNS[type(columns)]:
        value = getattr(columns, name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


_COLUMNS = {
    kind: tuple(column.name for column in fields(kind))
    for kind in (
        NodeColumns,
        WorkloadColumns,
        InstanceColumns,
        StageColumns,
        WebColumns,
        FlowColumns,
        PowerColumns,
        WindowView,
        PriceView,
        EnvironmentColumns,
        LoadingColumns,
        MigrationColumns,
    )
}


def take_rows(columns: T, rows: Ints) -> T:
    """Return those rows of each column, in their order; int64[n]. O(columns x rows)."""
    made: dict[str, Any] = {}
    listed: list[int] | None = None
    for each in fields(columns):  # type: ignore[arg-type]
        value = getattr(columns, each.name)
        if isinstance(value, np.ndarray):
            made[each.name] = value[rows]
        else:
            listed = rows.tolist() if listed is None else listed
            made[each.name] = tuple(map(value.__getitem__, listed))
    return type(columns)(**made)
