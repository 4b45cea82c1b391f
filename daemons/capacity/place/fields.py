"""What a file for `trimtab sim place` may hold; docs/snapshot.schema.json is made of it.

A class is an object of the file. What must hold between them is checked by `file`. After a change here run
`python -m tests.support.snapshot_schema`, and explain new keys in the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from shared.config.records import Form, Items, OneOf, Range
from shared.values.jobs import INSTANCES_MAX, NODE_SCOPE, STAGES_MAX, WEIGHT_MAX, ConstraintKind
from shared.values.operation_costs import COSTS
from shared.values.scalars import NAME_LENGTH_MAX
from shared.values.web_app import ModelForm

AMOUNT_MAX = 1e15
SECONDS_MAX = 1e12
SPEED_MIN = 0.001
REPLICAS_MAX = 10_000
SERVERS_MAX = 1024
WAITING, RUNNING, SUSPENDED = "waiting", "running", "suspended"
SCOPE = Form(r"[^\s=-][^\s=]{0,127}", '"node", or the key of a label such as "rack"', printable=True)
LABEL = Form(r"\S{1,128}", "1 to 128 printable characters without spaces", printable=True)

Name = Annotated[
    str, Form(rf"[A-Za-z0-9_-]{{1,{NAME_LENGTH_MAX}}}", f"1 to {NAME_LENGTH_MAX} ASCII letters, digits, '-' or '_'")
]
Names = Annotated[tuple[Name, ...], Items(distinct=True)]
Labels = Annotated[tuple[Annotated[str, LABEL], ...], Items(distinct=True)]
Time = Annotated[float, Range(-SECONDS_MAX, SECONDS_MAX)]
Duration = Annotated[float, Range(0.0, SECONDS_MAX)]
Amount = Annotated[float, Range(0.0, AMOUNT_MAX)]
Speed = Annotated[float, Range(SPEED_MIN, AMOUNT_MAX)]
Part = Annotated[float, Range(0.0, 1.0)]
Vcpus = Annotated[int, Range(1, 4096)]
Importance = Annotated[float, Range(0.001, 1e6)]


@dataclass(frozen=True, slots=True)
class Costs:
    """What operations on VMs take."""

    start_s: Duration
    suspend_s_per_mib: Duration
    resume_s_per_mib: Duration
    migrate_s_per_mib: Duration


@dataclass(frozen=True, slots=True)
class Limits:
    """What one decision may do. changes_max: on running workloads, None: no limit."""

    changes_max: Annotated[int, Range(1, INSTANCES_MAX)] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A host. servers: how many requests a resource serves at a time, 1 of those that are not named."""

    name: Name
    cpu_mhz: Amount
    memory_mib: Amount
    cores: Annotated[int, Range(1, 65_536)] | None = None
    core_mhz: Speed | None = None
    labels: Labels = ()
    draining: bool = False
    servers: Mapping[str, Annotated[int, Range(1, SERVERS_MAX)]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a job; what is None is as the job says."""

    work_mcycles: Amount
    max_mhz: Speed | None = None
    min_mhz: Amount | None = None
    memory_mib: Amount | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A batch job: one stage, or several."""

    name: Name
    state: Annotated[str, OneOf((WAITING, RUNNING, SUSPENDED))] = WAITING
    node: Name | None = None
    image_node: Name | None = None
    work_mcycles: Amount | None = None
    done_mcycles: Amount = 0.0
    max_mhz: Speed | None = None
    min_mhz: Amount = 0.0
    memory_mib: Amount | None = None
    stages: Annotated[tuple[Stage, ...], Items(1, STAGES_MAX)] | None = None
    submit_s: Time | None = None
    desired_start_s: Time | None = None
    goal_s: Time | None = None
    vcpus: Vcpus | None = None
    instances: Annotated[int, Range(1, INSTANCES_MAX)] = 1
    separate: bool = False
    importance: Importance = 1.0
    needs: Labels = ()
    loading: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalRelative:
    """The response time against its goal, as t_min + c_mhz / (w - load_mhz) for w MHz."""

    t_min: Amount = 0.0
    c_mhz: Speed
    load_mhz: Amount = 0.0
    max_mhz: Speed | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A kind of request with its goal."""

    name: Name
    mean_s: Annotated[float, Range(1e-9, SECONDS_MAX)] | None = None
    percentile: Annotated[float, Range(1e-9, 1.0 - 1e-9)] | None = None
    percentile_s: Annotated[float, Range(1e-9, SECONDS_MAX)] | None = None
    throughput_per_s: Annotated[float, Range(1e-9, AMOUNT_MAX)] | None = None
    model: ModelForm = ModelForm.PROCESSOR_SHARING
    t_min_s: Duration = 0.0
    c_mhz_s: Annotated[float, Range(1e-9, AMOUNT_MAX)] | None = None
    load_mhz: Amount | None = None
    rate_per_s: Amount | None = None
    work_mcycles: Annotated[float, Range(1e-9, AMOUNT_MAX)] | None = None


@dataclass(frozen=True, slots=True)
class WebApp:
    """A web application with one goal, relative, or with flows."""

    name: Name
    memory_mib: Amount
    min_instances: Annotated[int, Range(0, REPLICAS_MAX)] = 1
    max_instances: Annotated[int, Range(1, REPLICAS_MAX)] = 1
    placed_on: Names | None = None
    goal_relative: GoalRelative | None = None
    flows: Annotated[tuple[Flow, ...], Items(1)] | None = None
    max_mhz: Speed | None = None
    total_max_mhz: Speed | None = None
    vcpus: Vcpus | None = None
    importance: Importance = 1.0
    needs: Labels = ()


@dataclass(frozen=True, slots=True)
class Restriction:
    """Where workloads may run, or would rather run. scope: "node" or the key of a label; weight: 0: required."""

    kind: ConstraintKind
    members: Annotated[tuple[Name, ...], Items(1, distinct=True)]
    nodes: Names = ()
    scope: Annotated[str, SCOPE] = NODE_SCOPE
    labels: Labels = ()
    weight: Annotated[int, Range(0, WEIGHT_MAX)] = 0
    about: Names = ()


@dataclass(frozen=True, slots=True)
class Held:
    """The CPU that a VM has on a node."""

    node: Name
    cpu_mhz: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The whole file. interference: by which model jobs slow each other down, "off": not at all."""

    now_s: Time = 0.0
    cycle_s: Annotated[float, Range(0.001, SECONDS_MAX)] = 600.0
    operation_costs: Annotated[str, OneOf(tuple(COSTS))] | Costs = "none"
    vm_overhead_mib: Amount = 0.0
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...] = ()
    web_apps: tuple[WebApp, ...] = ()
    constraints: tuple[Restriction, ...] = ()
    placement: Mapping[str, Held] = field(default_factory=dict)
    limits: Limits = Limits()
    interference: Annotated[str, OneOf(("off", "formula", "product-form", "auto"))] = "auto"
