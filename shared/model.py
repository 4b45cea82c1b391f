"""Frozen values that the whole system speaks in.

Units are in the names: `_s` seconds, `_mhz` MHz, `_mcycles` Mcycles (one Mcycle is one second at 1 MHz), `_mib` MiB.
Values that a user writes (nodes, jobs) check themselves when made and raise `InvalidValue`; values that only
Trimtab writes (status, actions, results) are checked by the codec when they cross the bus.
No numpy here: agents import this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from shared.errors import InvalidValue
from shared.scalars import Number, Text, Whole

NAME_LENGTH_MAX = 128
INSTANCES_MAX = 65_536
STAGES_MAX = 1_000
FLOWS_MAX = 100
INSTANCE_SEPARATOR = "#"


def _positive(field: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(field, value, "a finite number above 0")


def not_negative(field: str, value: float) -> None:
    """Raise `InvalidValue` unless `value` is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(field, value, "a finite number, 0 or above")


def _whole(field: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue(field, value, f"a whole number from {least} to {most}")


def check_name(field: str, name: str) -> None:
    """Raise `InvalidValue` unless `name` can be a routing-key word and a file name: no dots, spaces or `#`."""
    good = 0 < len(name) <= NAME_LENGTH_MAX and all(c.isalnum() or c in "-_" for c in name)
    if not good or not name.isascii():
        raise InvalidValue(field, name, f"1 to {NAME_LENGTH_MAX} ASCII letters, digits, '-' or '_'")


def instance_name(workload: str, index: int) -> str:
    """The VM name of instance `index` (from 0) of a workload."""
    return f"{workload}{INSTANCE_SEPARATOR}{index}"


def workload_of(vm: str) -> tuple[str, int]:
    """The workload and index that `instance_name` made `vm` from; `InvalidValue` for any other name."""
    workload, separator, index = vm.rpartition(INSTANCE_SEPARATOR)
    if not separator or not index.isdigit():
        raise InvalidValue("vm", vm, f"workload{INSTANCE_SEPARATOR}index")
    return workload, int(index)


# --- nodes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A host as its agent's inventory describes it.

    `core_mhz` is the base clock times the node type's factor; `memory_mib` is all memory, `reserve_mib` the part kept
    for the host itself. `labels` are what the node has, matched against what a workload needs.
    """

    name: str
    cores: int
    core_mhz: float
    memory_mib: int
    reserve_mib: int = 0
    labels: tuple[str, ...] = ()
    cpu_model: str = ""

    def __post_init__(self) -> None:
        check_name("name", self.name)
        _whole("cores", self.cores, 1, 65_536)
        _positive("core_mhz", self.core_mhz)
        _whole("memory_mib", self.memory_mib, 0, 1 << 40)
        _whole("reserve_mib", self.reserve_mib, 0, self.memory_mib)

    @property
    def cpu_mhz(self) -> float:
        """All CPU of the node in MHz."""
        return self.cores * self.core_mhz

    @property
    def usable_mib(self) -> int:
        """Memory that VMs may take, in MiB."""
        return self.memory_mib - self.reserve_mib


class NodeCondition(StrEnum):
    """What the controller knows of a node."""

    UNKNOWN = "unknown"  # this term's echo has not come yet, or the node fell silent: nothing on it may be assumed
    UP = "up"  # echoed this term and reports in time
    OFF = "off"  # proven off: fenced, or an operator said so


class NodeService(StrEnum):
    """What the controller wants of a node."""

    IN_SERVICE = "in-service"
    DRAINING = "draining"
    STANDBY = "standby"


class NodeSample(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One reading of a node: fractions are 0..1 over the last period, `_bytes` and `_busy_s` cumulative."""

    cpu_frac: Number = 0.0
    iowait_frac: Number = 0.0
    load_1min: Number = 0.0
    memory_used_mib: Number = 0.0
    swap_used_mib: Number = 0.0
    disk_busy_s: Number = 0.0
    disk_read_bytes: Whole = 0
    disk_write_bytes: Whole = 0
    net_rx_bytes: Whole = 0
    net_tx_bytes: Whole = 0
    disk_free_mib: Number = 0.0


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
    """Where a workload may run. `pin`: only on these nodes (empty: any). `forbid`: never on these. `together`, `apart`:
    names of groups whose workloads share a node, or never do ("": none). `keep`: not moved once it runs."""

    pin: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    together: str = ""
    apart: str = ""
    keep: bool = False

    def __post_init__(self) -> None:
        both = sorted({*self.pin} & {*self.forbid})
        if both:
            raise InvalidValue("forbid", both[0], "no node that `pin` names too")
        if self.together and self.together == self.apart:
            raise InvalidValue("apart", self.apart, "another group than `together`")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job: work per instance in Mcycles, speed limits in MHz, memory in MiB (apc.txt section 4.1)."""

    work_mcycles: float
    max_mhz: float
    min_mhz: float = 0.0
    memory_mib: int = 0

    def __post_init__(self) -> None:
        not_negative("work_mcycles", self.work_mcycles)
        _positive("max_mhz", self.max_mhz)
        not_negative("min_mhz", self.min_mhz)
        if self.min_mhz > self.max_mhz:
            raise InvalidValue("min_mhz", self.min_mhz, f"at most max_mhz = {self.max_mhz}")
        _whole("memory_mib", self.memory_mib, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class Job:
    """A long-running job of `instances` VMs, one entity: it runs when all of them run, at the slowest one's speed.

    `stages` hold the declared profile per instance. `goal_s` is the absolute time by which it should be complete
    (None: best effort), `desired_start_s` the earliest start. `separate` puts every instance on a node of its own.
    `checkpoint_mcycles` is how much work the guest does between saves of its own progress (0: it never saves).
    `needs` are labels that its nodes must have. `job_class` names jobs that are alike ("": none); a job of a class may
    be submitted without stages, and gets them from what was measured of jobs of its class when it is accepted.
    `app`: the web application of which this is one instance, named so that it is its VM's name ("": a job).
    """

    name: str
    stages: tuple[Stage, ...]
    submit_s: float = 0.0
    desired_start_s: float = 0.0
    goal_s: float | None = None
    instances: int = 1
    vcpus: int = 1
    importance: float = 1.0
    separate: bool = False
    checkpoint_mcycles: float = 0.0
    needs: tuple[str, ...] = ()
    template: str = ""
    job_class: str = ""
    app: str = ""
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        check_name("name", workload_of(self.name)[0] if self.app else self.name)
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
        _whole("instances", self.instances, 1, INSTANCES_MAX)
        _whole("vcpus", self.vcpus, 1, 4096)
        _positive("importance", self.importance)
        not_negative("checkpoint_mcycles", self.checkpoint_mcycles)

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
        """The most CPU one instance can use on `node`: never more than vcpus x core_mhz (architecture, CPU)."""
        return min(self.max_mhz, self.vcpus * node.core_mhz, node.cpu_mhz)


class ModelForm(StrEnum):
    """Registered forms of the response time of a web application against its CPU (docs/models.md)."""

    SHIFTED_HYPERBOLA = "shifted-hyperbola"  # t_min + c / (w - load)
    PROCESSOR_SHARING = "processor-sharing"  # t_min + d / (w - rate d)
    MULTI_SERVER = "multi-server"  # as many servers as vCPUs


@dataclass(frozen=True, slots=True)
class Flow:
    """A kind of request of a web application and its goal; exactly one of the three goals is given.

    mean_s: the mean response time. percentile and percentile_s: the share of requests (between 0 and 1) that is to be
    answered within so long. throughput_per_s: requests answered a second. work_mcycles: CPU work of one request (None:
    the work profiler estimates it). t_min_s: the part of the response time that more CPU does not shorten.
    """

    name: str
    mean_s: float | None = None
    percentile: float = 0.0
    percentile_s: float | None = None
    throughput_per_s: float | None = None
    work_mcycles: float | None = None
    t_min_s: float = 0.0
    model: ModelForm = ModelForm.PROCESSOR_SHARING

    def __post_init__(self) -> None:
        check_name("name", self.name)
        goals = {
            "mean_s": self.mean_s,
            "percentile_s": self.percentile_s,
            "throughput_per_s": self.throughput_per_s,
        }
        given = {key: value for key, value in goals.items() if value is not None}
        if len(given) != 1:
            raise InvalidValue("goals", len(given), "exactly one of mean_s, percentile_s and throughput_per_s")
        for key, value in given.items():
            _positive(key, value)
        if (self.percentile_s is None) != (self.percentile == 0.0) or not 0.0 <= self.percentile < 1.0:
            raise InvalidValue("percentile", self.percentile, "above 0 and below 1 beside percentile_s, else nothing")
        if self.work_mcycles is not None:
            _positive("work_mcycles", self.work_mcycles)
        not_negative("t_min_s", self.t_min_s)


@dataclass(frozen=True, slots=True)
class FlowSample:
    """What was measured of a flow over `window_s` seconds: requests that arrived, were answered, were rejected, and are
    queued before the instances at its end; of those answered the mean response time (0 when there is none) and the
    one that `percentile` of the flow names (0: not measured)."""

    flow: str
    window_s: float
    offered: int = 0
    served: int = 0
    rejected: int = 0
    queued: int = 0
    mean_s: float = 0.0
    percentile_s: float = 0.0

    def __post_init__(self) -> None:
        _positive("window_s", self.window_s)
        for key in ("offered", "served", "rejected", "queued"):
            _whole(key, getattr(self, key), 0, 1 << 62)
        not_negative("mean_s", self.mean_s)
        not_negative("percentile_s", self.percentile_s)


@dataclass(frozen=True, slots=True)
class WebApp:
    """A web application of `min_instances` to `max_instances` equal VMs, at most one on a node, behind a balancer.

    memory_mib, vcpus, max_mhz: of one instance. metrics_url: where its measurements are scraped ("": they are pushed).
    The rest as for a Job.
    """

    name: str
    flows: tuple[Flow, ...]
    memory_mib: int
    max_mhz: float
    min_instances: int = 1
    max_instances: int = 1
    vcpus: int = 1
    importance: float = 1.0
    needs: tuple[str, ...] = ()
    template: str = ""
    metrics_url: str = ""
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        check_name("name", self.name)
        _whole("flows", len(self.flows), 1, FLOWS_MAX)
        if len({flow.name for flow in self.flows}) < len(self.flows):
            raise InvalidValue("flows", [flow.name for flow in self.flows], "names that differ")
        _whole("memory_mib", self.memory_mib, 0, 1 << 40)
        _positive("max_mhz", self.max_mhz)
        _whole("max_instances", self.max_instances, 1, INSTANCES_MAX)
        _whole("min_instances", self.min_instances, 0, self.max_instances)
        _whole("vcpus", self.vcpus, 1, 4096)
        _positive("importance", self.importance)

    def seat(self, index: int, submit_s: float) -> Job:
        """Instance `index` as a workload of its own: without work and goal, it runs until it is stopped."""
        return Job(
            instance_name(self.name, index),
            (Stage(0.0, self.max_mhz, 0.0, self.memory_mib),),
            submit_s,
            vcpus=self.vcpus,
            importance=self.importance,
            needs=self.needs,
            template=self.template,
            app=self.name,
            rules=self.rules,
        )


class JobPhase(StrEnum):
    """The life of a job as the controller wants it; what is observed may lag behind."""

    WAITING = "waiting"  # no VM wanted
    RUNNING = "running"  # wanted on the nodes of its allotments
    SUSPENDED = "suspended"  # wanted as saved images
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FORGOTTEN = "forgotten"  # let go: its VMs, if there are any, run on and are not ours


@dataclass(frozen=True, slots=True)
class Allotment:
    """Where one instance is to run and how much CPU it is given."""

    node: str
    cpu_mhz: float


# --- VMs and actions -------------------------------------------------------------------------------------------


class VmState(StrEnum):
    """State of a VM as its hypervisor knows it. Only RUNNING, PAUSED and INCOMING hold memory."""

    RUNNING = "running"
    PAUSED = "paused"
    INCOMING = "incoming"  # the receiving end of a migration or resume under way: not executing
    SUSPENDED = "suspended"  # saved to disk
    ENDED = "ended"  # the guest shut itself down: its work is done
    CRASHED = "crashed"  # stopped without the guest's or our will


LIVE_STATES = frozenset({VmState.RUNNING, VmState.PAUSED})


@dataclass(frozen=True, slots=True)
class VmSpec:
    """All a hypervisor needs to bring a VM to life, and the metadata it keeps with it.

    `generation` counts how often the VM was brought to life (start, resume); `attempt` how often its job began anew.
    `cpu_mhz` sets the weight; `cap_mhz` is a stated maximum (None: work-conserving up to vcpus x core_mhz).
    """

    vm: str
    generation: int
    attempt: int
    memory_mib: int
    vcpus: int
    cpu_mhz: float
    cap_mhz: float | None = None
    template: str = ""


class VmStatus(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One VM on one node as reported. Counters are cumulative since this VM came to life on this node.

    `busy` names the operation under way on it ("" when none). `managed` is false for VMs that are not ours.
    """

    vm: Text
    state: VmState
    generation: Whole = 0
    attempt: Whole = 0
    memory_mib: Whole = 0
    vcpus: Whole = 1
    cpu_mhz: Number = 0.0
    cpu_time_s: Number = 0.0
    disk_read_bytes: Whole = 0
    disk_write_bytes: Whole = 0
    net_rx_bytes: Whole = 0
    net_tx_bytes: Whole = 0
    busy: Text = ""
    managed: bool = True


class ActionKind(StrEnum):
    """What an agent can be asked to do to a VM."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"  # to disk
    RESUME = "resume"  # from a saved image, also one that another node holds
    MIGRATE = "migrate"  # live, to `to_node`
    SET_CPU = "set-cpu"
    DISCARD_IMAGE = "discard-image"
    ADOPT = "adopt"  # write our metadata onto a running VM that is not ours
    RELEASE = "release"  # remove our metadata from a VM; it runs on


@dataclass(frozen=True, slots=True)
class Action:
    """One operation on one VM, addressed to the node that carries it out.

    `expects` is the generation that the VM (or its image) must have now, 0 for START; `generation` the one that it has
    afterwards. The agent refuses an action of a term older than the highest it has seen, of another boot of its host,
    or whose `expires_at_s` (agent's clock) has passed before it was begun. `spec` goes with START, RESUME and ADOPT,
    `from_node` with RESUME (who holds the image), `to_node` with MIGRATE, `cpu_mhz`/`cap_mhz` with SET_CPU;
    `paused` leaves a started or resumed VM paused (gangs).
    ADOPT takes the generation and attempt of `spec` and changes nothing else of the VM.
    """

    id: str
    kind: ActionKind
    node: str
    vm: str
    term: int
    boot_id: str
    expires_at_s: float
    expects: int = 0
    generation: int = 0
    spec: VmSpec | None = None
    from_node: str = ""
    to_node: str = ""
    cpu_mhz: float = 0.0
    cap_mhz: float | None = None
    paused: bool = False


class Outcome(StrEnum):
    """How an action ended. Everything but OK leaves the VM as it was, or gone where the status says so."""

    OK = "ok"
    OLDER_TERM = "older-term"
    OTHER_BOOT = "other-boot"
    EXPIRED = "expired"
    WRONG_GENERATION = "wrong-generation"
    BUSY = "busy"  # another action on the same VM is under way
    NO_SUCH_VM = "no-such-vm"
    ALREADY_THERE = "already-there"
    NO_ROOM = "no-room"
    REFUSED = "refused"  # the hypervisor said no
    FAILED = "failed"  # begun, and failed half-way; rolled back
    TIMED_OUT = "timed-out"  # begun, aborted after the time limit; rolled back
    INTERRUPTED = "interrupted"  # the agent died before it was begun


class GuestChange(StrEnum):
    """What a guest did without being asked."""

    ENDED = "ended"
    VANISHED = "vanished"
    ARRIVED = "arrived"  # came in by migration


# --- decisions and plans ---------------------------------------------------------------------------------------


class ChangeKind(StrEnum):
    """What a decision wants done to a workload."""

    START = "start"
    RESUME = "resume"
    SUSPEND = "suspend"
    MIGRATE = "migrate"
    RESIZE = "resize"
    STOP = "stop"  # an instance of a web application: not wanted any more, until it is started again


class ReasonCode(StrEnum):
    """Why a policy wants a change, or does not make one. Rendered with the numbers that go with it."""

    ARRIVAL_ORDER = "arrival-order"
    EARLIER_GOAL = "earlier-goal"  # its goal comes first
    LATER_GOAL = "later-goal"  # gives way to an earlier goal
    DRAIN = "drain"  # its node is being emptied
    KEEP = "keep"  # nothing better
    NO_MEMORY = "no-memory"  # no eligible node has the memory free
    NO_CPU = "no-cpu"  # no eligible node has the CPU free
    TOO_FEW_NODES = "too-few-nodes"  # fewer eligible nodes than instances that must be separate
    FITS_NO_NODE = "fits-no-node"  # larger than any node, even empty
    NO_NODES = "no-nodes"  # none in service and known
    LABELS = "labels"  # no node has the labels it needs
    NOT_YET = "not-yet"  # before its desired start, or its back-off after a failure
    UNKNOWN_NODE = "unknown-node"  # an instance is on a node that is silent
    BAD_PROFILE = "bad-profile"  # a number in its profile is not finite or out of range
    STALE = "stale"  # the workload changed after the snapshot
    HELD = "held"  # automation level advise or confirm, or deciding is paused
    OPERATOR = "operator"  # an operator asked for it
    HIGHER_UTILITY = "higher-utility"  # the smallest utilities grow
    GIVES_WAY = "gives-way"  # its place serves a workload that is worse off
    LOAD = "load"  # a web application's demand asks for more, or less
    IDLE_ROOM = "idle-room"  # there is room that nobody uses
    NO_GAIN = "no-gain"  # what it would displace is not better off by the tolerance
    GUARD = "guard"  # it would displace a job that is no less urgent
    MOVES_LIMIT = "moves-limit"  # as many changes as a cycle may make
    COOL_DOWN = "cool-down"  # moved a short while ago
    CONSTRAINT = "constraint"  # pin, forbid, keep, together or apart leaves no node
    CONTRADICTION = "contradiction"  # its constraints cannot all hold
    NO_DEMAND = "no-demand"  # more instances would not raise its utility
    DUPLICATE = "duplicate"  # its name is taken by another workload


@dataclass(frozen=True, slots=True)
class Reason:
    """A code and the numbers behind it: ("needed_mib", 4320.0), ("largest_free_mib", 3040.0)."""

    code: ReasonCode
    numbers: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return self.code.value + "".join(f" {name}={value:g}" for name, value in self.numbers)


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a decision makes to one workload, of the revision that the snapshot showed.

    `allotments` has one entry per instance for START, RESUME, MIGRATE and RESIZE, none for SUSPEND and STOP.
    """

    workload: str
    revision: int
    kind: ChangeKind
    allotments: tuple[Allotment, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that was asked for or possible and is not made, and why."""

    workload: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Step:
    """One VM's operation in a plan. `wave` counts from 0: steps of a wave may run together, waves run in order.

    `group` is the workload: steps of one wave and group that start VMs are all done or none.
    """

    kind: ActionKind
    workload: str
    vm: str
    node: str
    to_node: str = ""
    memory_mib: int = 0
    cpu_mhz: float = 0.0
    wave: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in an order in which every intermediate state is feasible, and what cannot be done at all."""

    steps: tuple[Step, ...]
    blocked: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a policy predicts for workloads and web applications by name, one entry each in every sequence.

    now: the utility if nothing is changed, predicted: under the decision, best: what is reachable at full speed from
    now on; all at the end of the cycle (apc.txt section 4.4). level: the jobs' common level (None: there are no jobs).
    """

    names: Sequence[str] = ()
    now: Sequence[float] = ()
    predicted: Sequence[float] = ()
    best: Sequence[float] = ()
    level: float | None = None


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """What a placement policy wants changed, and why everything else that could be wished for is not.

    `changes` and `refusals` are sequences that may build their items when read. A workload in neither is kept as it is.
    `evaluations` counts the placements tried, `predicted_utility` is the smallest predicted one (None: not computed),
    `outlook` the prediction for each workload (None: not computed).
    """

    changes: Sequence[Change] = ()
    refusals: Sequence[Refusal] = ()
    evaluations: int = 0
    predicted_utility: float | None = None
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """The names of the nodes that are to be in service until the next decision, and why."""

    in_service: tuple[str, ...]
    reason: Reason
    predicted_cost: float | None = None
