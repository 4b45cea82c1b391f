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

    PIN = "pin"  # only on `nodes`, or nodes with `labels`
    FORBID = "forbid"  # never on `nodes`, or nodes with `labels`
    TOGETHER = "together"  # all that run in one domain: on one node, in one rack, ...
    APART = "apart"  # no two in one domain
    KEEP = "keep"  # never moved to another node once placed


@dataclass(frozen=True, slots=True)
class Constraint:
    """A demand on where workloads run, or a preference if it has a `weight`.

    members: names of jobs, VMs and web applications. nodes: of PIN and FORBID. labels: of PIN and FORBID; a node that
    has all of them (PIN) or one of them (FORBID) counts as one of `nodes`. scope: of TOGETHER and APART; "" for the
    node, else the key of a label (`rack` for `rack=r1`), whose values are then shared or kept apart: a node without
    that label is a domain of its own. about: of TOGETHER and APART; the workloads that members are kept together with,
    or apart from (empty: one another). For one member without `about`, APART and TOGETHER are about its own instances.
    weight: 0: required; 1 to 100: preferred, the members' own loss where it does not hold.
    """

    kind: ConstraintKind
    members: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    scope: str = ""
    labels: tuple[str, ...] = ()
    weight: int = 0
    about: tuple[str, ...] = ()


NODE_SCOPE = "node"
WEIGHT_MAX = 100
PREFERENCES_MAX = 32
RULE_NAMES_MAX = 100


class PreferenceKind(StrEnum):
    """What a preference is about."""

    NODE_AFFINITY = "node-affinity"
    NODE_ANTI_AFFINITY = "node-anti-affinity"
    LABEL_AFFINITY = "label-affinity"
    LABEL_ANTI_AFFINITY = "label-anti-affinity"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"


_LIMITED = ("label_affinity", "label_anti_affinity", "vm_affinity", "vm_anti_affinity")
_WITH_SCOPE = frozenset({PreferenceKind.AFFINITY, PreferenceKind.ANTI_AFFINITY})
_OPPOSITE = {
    PreferenceKind.NODE_AFFINITY: PreferenceKind.NODE_ANTI_AFFINITY,
    PreferenceKind.LABEL_AFFINITY: PreferenceKind.LABEL_ANTI_AFFINITY,
    PreferenceKind.AFFINITY: PreferenceKind.ANTI_AFFINITY,
}


def check_scope(field_name: str, scope: str) -> None:
    """Raise `InvalidValue` unless this is "node" or the key of a label: no space and no "=" in it."""
    check_label(field_name, scope)
    if not scope or "=" in scope or " " in scope:
        raise InvalidValue(field_name, scope, '"node", or the key of a label such as "rack"')


@dataclass(frozen=True, slots=True)
class Preference:
    """Where a workload would rather run. target: the name of a node, a label, or the name of a workload or group, as
    the kind says. scope: as of `Rules`, for AFFINITY and ANTI_AFFINITY. weight: 1 to 100, against other preferences of
    the same workload."""

    kind: PreferenceKind
    target: str
    scope: str = NODE_SCOPE
    weight: int = 10

    def __post_init__(self) -> None:
        check_label("preferred.target", self.target)
        if not self.target:
            raise InvalidValue("preferred.target", self.target, "the name of a node, label, workload or group")
        check_scope("preferred.scope", self.scope)
        if self.scope != NODE_SCOPE and self.kind not in _WITH_SCOPE:
            raise InvalidValue("preferred.scope", self.scope, f"none beside {self.kind}: only affinity has a scope")
        whole("preferred.weight", self.weight, 1, WEIGHT_MAX)


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a workload may run, and where it would rather run.

    node_affinity: only on these nodes (empty: any). node_anti_affinity: never on these. affinity, anti_affinity: names
    of groups whose workloads share a node, or never do ("": none). no_migration: not moved once it runs.
    label_affinity: labels that its nodes must all have. label_anti_affinity: labels that its nodes must not have.
    affinity_scope, anti_affinity_scope: what is shared: "node", or the key of a label such as "rack" or "zone"; a node
    without the label is a domain of its own.
    vm_affinity, vm_anti_affinity: names of workloads that it shares a node with, or never does; in the same scopes.
    preferred: rules that are kept where it costs nothing. Raises `InvalidValue` for rules that cannot all hold on any
    cluster.
    """

    node_affinity: tuple[str, ...] = ()
    node_anti_affinity: tuple[str, ...] = ()
    affinity: str = ""
    anti_affinity: str = ""
    no_migration: bool = False
    label_anti_affinity: tuple[str, ...] = ()
    affinity_scope: str = NODE_SCOPE
    anti_affinity_scope: str = NODE_SCOPE
    vm_affinity: tuple[str, ...] = ()
    vm_anti_affinity: tuple[str, ...] = ()
    preferred: tuple[Preference, ...] = ()
    label_affinity: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("node_affinity", "node_anti_affinity", *_LIMITED):
            for text in getattr(self, key):
                check_label(key, text)
        for key in _LIMITED:
            whole(key, len(getattr(self, key)), 0, RULE_NAMES_MAX)
        for key in ("affinity", "anti_affinity"):
            check_label(key, getattr(self, key))
        for key in ("affinity_scope", "anti_affinity_scope"):
            check_scope(key, getattr(self, key))
        whole("preferred", len(self.preferred), 0, PREFERENCES_MAX)
        self._check_required()
        self._check_preferred()

    @property
    def divisible(self) -> bool:
        """Whether workloads may share a domain of `affinity_scope` and yet none of `anti_affinity_scope`."""
        return self.affinity_scope not in (NODE_SCOPE, self.anti_affinity_scope)

    def _check_required(self) -> None:
        both = sorted({*self.node_affinity} & {*self.node_anti_affinity})
        if both:
            raise InvalidValue("node_anti_affinity", both[0], "no node that `node_affinity` names too")
        labels = sorted({*self.label_affinity} & {*self.label_anti_affinity})
        if labels:
            raise InvalidValue("label_anti_affinity", labels[0], "no label that `label_affinity` names too")
        if self.divisible:
            return
        if self.affinity and self.affinity == self.anti_affinity:
            raise InvalidValue("anti_affinity", self.anti_affinity, "another group than `affinity`")
        named = sorted({*self.vm_affinity} & {*self.vm_anti_affinity})
        if named:
            raise InvalidValue("vm_anti_affinity", named[0], "no workload that `vm_affinity` names too")

    def _check_preferred(self) -> None:
        about = [(one.kind, one.target, one.scope) for one in self.preferred]
        if len(set(about)) < len(about):
            twice = next(one for one in about if about.count(one) > 1)
            raise InvalidValue("preferred", f"{twice[0]} {twice[1]}", "each preference once")
        for one in self.preferred:
            opposite = _OPPOSITE.get(one.kind)
            if opposite is not None and (opposite, one.target, one.scope) in about:
                raise InvalidValue("preferred", f"{opposite} {one.target}", f"not both this and {one.kind} to it")
            for kind, key, refused in (
                (PreferenceKind.NODE_AFFINITY, "node_anti_affinity", self.node_anti_affinity),
                (PreferenceKind.LABEL_AFFINITY, "label_anti_affinity", self.label_anti_affinity),
            ):
                if one.kind is kind and one.target in refused:
                    raise InvalidValue("preferred", f"{kind} {one.target}", f"nothing that `{key}` rules out")


def check_labels(required_labels: tuple[str, ...], rules: Rules) -> None:
    """Raise `InvalidValue` for a label in a form that none has, or one that is both required and ruled out."""
    for need in required_labels:
        check_label("required_labels", need)
    both = sorted({*required_labels} & {*rules.label_anti_affinity})
    if both:
        raise InvalidValue("rules.label_anti_affinity", both[0], "no label that `required_labels` names too")


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
        check_labels(self.required_labels, self.rules)
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
