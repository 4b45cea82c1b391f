"""Jobs: what a user asks for, its stages, rules and goal, checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.load_vector import Loading
from shared.values.nodes import Node
from shared.values.scalars import (
    TEXT_LENGTH_MAX,
    check_name,
    not_negative,
    positive,
    whole,
)
from shared.values.texts import Prose, check_label, check_line, check_prose

INSTANCES_MAX = 65_536
STAGES_MAX = 1_000
ARGUMENTS_MAX = 100
ARGUMENT_LENGTH_MAX = TEXT_LENGTH_MAX
INSTANCE_SEPARATOR = "#"


def check_arguments(arguments: tuple[str, ...]) -> None:
    """Raise `InvalidValue` unless these can be given to a program."""
    if len(arguments) > ARGUMENTS_MAX:
        raise InvalidValue("arguments", len(arguments), f"at most {ARGUMENTS_MAX}")
    for one in arguments:
        check_prose("arguments", one)


def instance_name(workload: str, index: int) -> str:
    """Return the VM name of instance `index` (from 0) of a workload."""
    return f"{workload}{INSTANCE_SEPARATOR}{index}"


def workload_of(vm: str) -> tuple[str, int]:
    """Return the workload and index that `instance_name` made `vm` from; `InvalidValue` for any other name."""
    workload, separator, index = vm.rpartition(INSTANCE_SEPARATOR)
    if not separator or not index.isdigit():
        raise InvalidValue("vm", vm, f"workload{INSTANCE_SEPARATOR}index")
    return workload, int(index)


# --- workloads -------------------------------------------------------------------------------------------------


class ConstraintKind(StrEnum):
    """What a constraint demands of its members."""

    PIN = "pin"  # only on `nodes`
    FORBID = "forbid"  # never on `nodes`
    TOGETHER = "together"  # all that run on one node
    APART = "apart"  # no two on one node
    KEEP = "keep"  # never moved to another node once placed


@dataclass(frozen=True, slots=True)
class Constraint:
    """A demand on where workloads run. `members` are names of jobs and web applications; for one member APART and
    TOGETHER are about its own instances."""

    kind: ConstraintKind
    members: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a workload may run. `node_affinity`: only on these nodes (empty: any). `node_anti_affinity`: never on
    these. `affinity`, `anti_affinity`: names of groups whose workloads share a node, or never do ("": none).
    `no_migration`: not moved once it runs."""

    node_affinity: tuple[str, ...] = ()
    node_anti_affinity: tuple[str, ...] = ()
    affinity: str = ""
    anti_affinity: str = ""
    no_migration: bool = False

    def __post_init__(self) -> None:
        for key, texts in (("node_affinity", self.node_affinity), ("node_anti_affinity", self.node_anti_affinity)):
            for text in texts:
                check_label(key, text)
        for key in ("affinity", "anti_affinity"):
            check_label(key, getattr(self, key))
        both = sorted({*self.node_affinity} & {*self.node_anti_affinity})
        if both:
            raise InvalidValue("node_anti_affinity", both[0], "no node that `node_affinity` names too")
        if self.affinity and self.affinity == self.anti_affinity:
            raise InvalidValue("anti_affinity", self.anti_affinity, "another group than `affinity`")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job: work per instance in Mcycles, speed limits in MHz, memory in MiB (apc.txt section 4.1)."""

    work_mcycles: float
    max_mhz: float
    min_mhz: float = 0.0
    memory_mib: int = 0

    def __post_init__(self) -> None:
        not_negative("work_mcycles", self.work_mcycles)
        positive("max_mhz", self.max_mhz)
        not_negative("min_mhz", self.min_mhz)
        if self.min_mhz > self.max_mhz:
            raise InvalidValue("min_mhz", self.min_mhz, f"at most max_mhz = {self.max_mhz}")
        whole("memory_mib", self.memory_mib, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class Job:
    """A long-running job of `instances` VMs, one entity: it runs when all of them run, at the slowest one's speed.

    `stages` hold the declared profile per instance. `goal_s` is the absolute time by which it should be complete (None:
    best effort), `desired_start_s` the earliest start. `spread` puts every instance on a node of its own.
    `checkpoint_mcycles` is how much work the guest does between saves of its own progress (0: it never saves).
    `required_labels` are labels that its nodes must have. `job_class` names jobs that are alike ("": none); a job of a
    class may be submitted without stages, and gets them from what was measured of jobs of its class when it is
    accepted. `app`: the web application of which this is one instance, named so that it is its VM's name ("": a job).
    `queue`: the deadline window whose deadline is its own too ("": none); such a job has no goal of its own.
    `depends_on`: jobs that must be completed before it is started. `environment`: the batch environment that it is
    submitted to ("": none); it runs on the units of that and nowhere else. arguments: what its template's program is
    given, where the nodes run programs instead of VMs. resource_profile: how it loads a node's resources, as far as its
    owner knows (empty: it is learnt).
    """

    name: str
    stages: tuple[Stage, ...]
    submit_s: float = 0.0
    desired_start_s: float = 0.0
    goal_s: float | None = None
    instances: int = 1
    vcpus: int = 1
    importance: float = 1.0
    spread: bool = False
    checkpoint_mcycles: float = 0.0
    required_labels: tuple[str, ...] = ()
    template: str = ""
    job_class: str = ""
    app: str = ""
    rules: Rules = field(default_factory=Rules)
    queue: str = ""
    depends_on: tuple[str, ...] = ()
    environment: str = ""
    arguments: tuple[Prose, ...] = ()
    resource_profile: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        check_name("name", workload_of(self.name)[0] if self.app else self.name)
        check_arguments(self.arguments)
        check_line("template", self.template)
        for need in self.required_labels:
            check_label("required_labels", need)
        if not self.stages and not self.job_class:
            raise InvalidValue("stages", 0, f"1 to {STAGES_MAX} stages, or the class of a job whose stages are known")
        if len(self.stages) > STAGES_MAX:
            raise InvalidValue("stages", len(self.stages), f"1 to {STAGES_MAX} stages")
        if self.job_class:
            check_name("job_class", self.job_class)
        not_negative("submit_s", self.submit_s)
        not_negative("desired_start_s", self.desired_start_s)
        if self.goal_s is not None:
            not_negative("goal_s", self.goal_s)
            if self.goal_s <= self.desired_start_s:
                raise InvalidValue("goal_s", self.goal_s, f"after desired_start_s = {self.desired_start_s}")
        self._check_queue()
        whole("instances", self.instances, 1, INSTANCES_MAX)
        whole("vcpus", self.vcpus, 1, 4096)
        positive("importance", self.importance)
        not_negative("checkpoint_mcycles", self.checkpoint_mcycles)

    def _check_queue(self) -> None:
        if self.environment:
            check_name("environment", self.environment)
        if self.queue:
            if self.environment:
                raise InvalidValue(
                    "queue", self.queue, f"none: its nodes are those of environment {self.environment!r}"
                )
            check_name("queue", self.queue)
            if self.goal_s is not None:
                raise InvalidValue("goal_s", self.goal_s, f"none: the deadline is that of queue {self.queue!r}")
        for name in self.depends_on:
            check_name("depends_on", name)
        if self.name in self.depends_on or len(set(self.depends_on)) < len(self.depends_on):
            raise InvalidValue("depends_on", self.depends_on, "other jobs, each once")

    @property
    def work_mcycles(self) -> float:
        """Declared work of one instance over all stages."""
        return math.fsum(stage.work_mcycles for stage in self.stages)

    @property
    def max_mhz(self) -> float:
        """The highest speed that any stage can use, per instance."""
        return max(stage.max_mhz for stage in self.stages)

    @property
    def min_mhz(self) -> float:
        """The lowest speed that keeps every stage going, per instance."""
        return max(stage.min_mhz for stage in self.stages)

    @property
    def memory_mib(self) -> int:
        """Memory of one instance's VM: that of its largest stage."""
        return max(stage.memory_mib for stage in self.stages)

    def speed_on_mhz(self, node: Node) -> float:
        """Return the most CPU that one instance can use on `node`: never more than vcpus x core_mhz (architecture,
        CPU)."""
        return min(self.max_mhz, self.vcpus * node.core_mhz, node.cpu_mhz)


class JobPhase(StrEnum):
    """The life of a job as the controller wants it; what is observed may lag behind."""

    WAITING = "waiting"  # no VM wanted
    RUNNING = "running"  # wanted on the nodes of its allotments
    SUSPENDED = "suspended"  # wanted as saved images
    SHUT_OFF = "shut-off"  # an adopted VM that does not run: its owner's to start, nothing is wanted of it
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FORGOTTEN = "forgotten"  # let go: its VMs, if there are any, run on and are not ours


@dataclass(frozen=True, slots=True)
class Allotment:
    """Where one instance is to run and how much CPU it is given."""

    node: str
    cpu_mhz: float
