"""Frozen values that the whole system speaks in.

Units are in the names: `_s` seconds, `_mhz` MHz, `_mcycles` Mcycles (one Mcycle is one second at 1 MHz), `_mib` MiB.
Values that a user writes (nodes, jobs) check themselves when made and raise `InvalidValue`; values that only
Trimtab writes (status, actions, results) are checked by the codec when they cross the bus.
No numpy here: agents import this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from shared.errors import InvalidValue
from shared.loading import Loading
from shared.scalars import NAME_LENGTH_MAX as NAME_LENGTH_MAX
from shared.scalars import TEXT_LENGTH_MAX, Number, Whole
from shared.scalars import check_name as check_name
from shared.scalars import not_negative as not_negative
from shared.scalars import positive as positive
from shared.scalars import whole as whole
from shared.texts import Label, Prose, Word, check_label, check_line, check_mac, check_prose

INSTANCES_MAX = 65_536
STAGES_MAX = 1_000
ARGUMENTS_MAX = 100
ARGUMENT_LENGTH_MAX = TEXT_LENGTH_MAX
ADDRESSES_MAX = 64  # of network cards of one node
INSTANCE_SEPARATOR = "#"


def check_arguments(arguments: tuple[str, ...]) -> None:
    """Raise `InvalidValue` unless these can be given to a program."""
    if len(arguments) > ARGUMENTS_MAX:
        raise InvalidValue("arguments", len(arguments), f"at most {ARGUMENTS_MAX}")
    for one in arguments:
        check_prose("arguments", one)


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


class Ability(StrEnum):
    """What a node's hypervisor can do besides starting, pausing and stopping; see `Node.abilities`."""

    SAVE = "save"  # SUSPEND writes to disk: it frees the memory, and other nodes can RESUME what lies there
    MIGRATE = "migrate"


@dataclass(frozen=True, slots=True)
class Node:
    """A host as its agent's inventory describes it.

    `core_mhz` is the base clock times the node type's factor; `memory_mib` is all memory, `reserve_mib` the part kept
    for the host itself. `labels` are what the node has, matched against what a workload needs. `node_type` names nodes
    that are alike ("": none); `mac_addresses` are those of its network interfaces, by which it may be woken. `os_type`,
    `os_version`: of the system that it runs, such as "debian" and "12" ("": not known). Where SAVE is not among its
    `abilities`, a suspended VM is frozen: it keeps its memory, and can be resumed on this node alone. `migration_has`:
    what it has that live migrations may need, see `shared.fit`. `templates`: the names of those that VMs can be made
    from there, or of the programs (None: its driver does not tell).
    """

    name: str
    cores: int
    core_mhz: float
    memory_mib: int
    reserve_mib: int = 0
    labels: tuple[str, ...] = ()
    cpu_model: str = ""
    node_type: str = ""
    mac_addresses: tuple[str, ...] = ()
    os_type: str = ""
    os_version: str = ""
    abilities: tuple[Ability, ...] = tuple(Ability)
    migration_has: tuple[str, ...] = ()
    templates: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        whole("cores", self.cores, 1, 65_536)
        positive("core_mhz", self.core_mhz)
        whole("memory_mib", self.memory_mib, 0, 1 << 40)
        whole("reserve_mib", self.reserve_mib, 0, self.memory_mib)
        whole("mac_addresses", len(self.mac_addresses), 0, ADDRESSES_MAX)
        for address in self.mac_addresses:
            check_mac("mac_addresses", address)
        for key in ("cpu_model", "node_type", "os_type", "os_version"):
            check_label(key, getattr(self, key))
        for key in ("labels", "migration_has"):
            for text in getattr(self, key):
                check_label(key, text)

    @property
    def cpu_mhz(self) -> float:
        """All CPU of the node in MHz."""
        return self.cores * self.core_mhz

    @property
    def usable_mib(self) -> int:
        """Memory that VMs may take, in MiB."""
        return self.memory_mib - self.reserve_mib

    @property
    def freezes(self) -> bool:
        """Whether what is suspended on it keeps its memory and cannot be resumed elsewhere."""
        return Ability.SAVE not in self.abilities


class NodeCondition(StrEnum):
    """What the controller knows of a node."""

    UNKNOWN = "unknown"  # this term's echo has not come yet, or the node fell silent: nothing on it may be assumed
    UP = "up"  # echoed this term and reports in time
    OFF = "off"  # proven off: fenced, or an operator said so


class NodeService(StrEnum):
    """Where a node is on its way into service and out of it."""

    IN_SERVICE = "in-service"
    DRAINING = "draining"  # being emptied
    STANDBY = "standby"  # empty and up, takes no VMs
    OFF = "off"  # asleep or switched off, as it should be
    WAKING = "waking"  # asked to come up and not back yet
    FAILED = "failed"  # did not come back in time: out until an operator has repaired it


class Handover(StrEnum):
    """How far a node is on its way from one environment to the next."""

    SETTLED = "settled"  # it serves who has it
    EMPTYING = "emptying"  # what runs on it leaves
    RELEASING = "releasing"  # the setup policy of who had it is carried out
    ACQUIRING = "acquiring"  # the setup policy of who gets it is carried out
    FAILED = "failed"  # a setup policy failed for good: nobody gets it until an operator has repaired it


class SetupStep(StrEnum):
    """On which side of a change of hands a setup policy is carried out."""

    RELEASE = "release"
    ACQUIRE = "acquire"


class PowerOperation(StrEnum):
    """What a power driver can be asked to do to a node."""

    WAKE = "wake"
    SLEEP = "sleep"  # put to sleep or switch off an empty node, gently
    FENCE = "fence"  # cut its power, and prove that it is off
    LINK = "link"  # tell whoever else schedules on the nodes that this one may be used
    DELINK = "delink"  # or may not be used any more


class SleepMode(StrEnum):
    """How a node goes out of power through its agent."""

    SUSPEND = "suspend"  # to RAM
    OFF = "off"


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
        for key, texts in (("pin", self.pin), ("forbid", self.forbid)):
            for text in texts:
                check_label(key, text)
        for key in ("together", "apart"):
            check_label(key, getattr(self, key))
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
        positive("max_mhz", self.max_mhz)
        not_negative("min_mhz", self.min_mhz)
        if self.min_mhz > self.max_mhz:
            raise InvalidValue("min_mhz", self.min_mhz, f"at most max_mhz = {self.max_mhz}")
        whole("memory_mib", self.memory_mib, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class Job:
    """A long-running job of `instances` VMs, one entity: it runs when all of them run, at the slowest one's speed.

    `stages` hold the declared profile per instance. `goal_s` is the absolute time by which it should be complete
    (None: best effort), `desired_start_s` the earliest start. `separate` puts every instance on a node of its own.
    `checkpoint_mcycles` is how much work the guest does between saves of its own progress (0: it never saves).
    `needs` are labels that its nodes must have. `job_class` names jobs that are alike ("": none); a job of a class may
    be submitted without stages, and gets them from what was measured of jobs of its class when it is accepted.
    `app`: the web application of which this is one instance, named so that it is its VM's name ("": a job).
    `queue`: the deadline window whose deadline is its own too ("": none); such a job has no goal of its own. `after`:
    jobs that must be completed before it is started. `environment`: the batch environment that it is submitted to ("":
    none); it runs on the units of that and nowhere else. arguments: what its template's program is given, where the
    nodes run programs instead of VMs. loading: how it loads a node's resources, as far as its owner knows (empty: it is
    learnt).
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
    queue: str = ""
    after: tuple[str, ...] = ()
    environment: str = ""
    arguments: tuple[Prose, ...] = ()
    loading: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        check_name("name", workload_of(self.name)[0] if self.app else self.name)
        check_arguments(self.arguments)
        check_line("template", self.template)
        for need in self.needs:
            check_label("needs", need)
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
        for name in self.after:
            check_name("after", name)
        if self.name in self.after or len(set(self.after)) < len(self.after):
            raise InvalidValue("after", self.after, "other jobs, each once")

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


# --- VMs and actions -------------------------------------------------------------------------------------------


class VmState(StrEnum):
    """State of a VM as its hypervisor knows it. Only RUNNING, PAUSED and INCOMING hold memory."""

    RUNNING = "running"
    PAUSED = "paused"
    INCOMING = "incoming"  # the receiving end of a migration or resume under way: not executing
    SUSPENDED = "suspended"  # saved to disk, or frozen: see Ability
    ENDED = "ended"  # the guest shut itself down: its work is done
    CRASHED = "crashed"  # stopped without the guest's or our will


LIVE_STATES = frozenset({VmState.RUNNING, VmState.PAUSED})
HOLDING_STATES = LIVE_STATES | {VmState.INCOMING}  # those that hold memory


@dataclass(frozen=True, slots=True)
class VmSpec:
    """All a hypervisor needs to bring a VM to life, and the metadata it keeps with it.

    `generation` counts how often the VM was brought to life (start, resume); `attempt` how often its job began anew.
    `cpu_mhz` sets the weight; `cap_mhz` is a stated maximum (None: work-conserving up to vcpus x core_mhz).
    `arguments`: see Job.
    """

    vm: Label
    generation: int
    attempt: int
    memory_mib: int
    vcpus: int
    cpu_mhz: float
    cap_mhz: float | None = None
    template: str = ""
    arguments: tuple[Prose, ...] = ()


class VmStatus(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One VM on one node as reported. Counters are cumulative since this VM came to life on this node.

    `busy` names the operation under way on it ("" when none). `managed` is false for VMs that are not ours. `address`:
    where its guest can be reached by IP ("": not known). `disk_time_s`: for how long its disk requests have kept it
    waiting (0 where the hypervisor does not tell). `migration_needs`: see `shared.fit`. `adopted`: its definition was
    there before it was ours and is never removed. `definition`: digest of that definition without our metadata ("": not
    known). `disks`: generation of its local disks, see Action (0: it has none, or they are not counted).
    """

    vm: Label
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
    busy: Word = ""
    managed: bool = True
    address: Word = ""
    disk_time_s: Number = 0.0
    migration_needs: tuple[Label, ...] = ()
    adopted: bool = False
    definition: Word = ""
    disks: Whole = 0


class ActionKind(StrEnum):
    """What an agent can be asked to do to a VM."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"  # to disk, or frozen: see Ability
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
    `paused` leaves a started or resumed VM paused (gangs). ADOPT takes no more of `spec` than generation and attempt.
    `disks` is the newest generation of the VM's local disks that the controller knows (0: none, nothing is compared).
    It grows whenever local disks are made, or copied to another node: what an agent finds must not be older, or the
    answer is STALE_DISK.
    """

    id: Word
    kind: ActionKind
    node: Word
    vm: Label
    term: int
    boot_id: Word
    expires_at_s: float
    expects: int = 0
    generation: int = 0
    spec: VmSpec | None = None
    from_node: Word = ""
    to_node: Word = ""
    cpu_mhz: float = 0.0
    cap_mhz: float | None = None
    paused: bool = False
    disks: int = 0


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
    UNFIT = "migration-fit"  # the node lacks what the VM needs, such as a pool for one of its disks
    STALE_DISK = "stale-disk"  # a disk is not the one that the VM ran with last
    FAILED = "failed"  # begun, and failed half-way; rolled back
    TIMED_OUT = "timed-out"  # begun, aborted after the time limit; rolled back
    INTERRUPTED = "interrupted"  # the agent died before it was begun


class GuestChange(StrEnum):
    """What a guest did, or what others did to it, without being asked by us."""

    ENDED = "ended"
    VANISHED = "vanished"
    ARRIVED = "arrived"  # came in by migration
    LEFT = "left"  # left this node by a migration that this agent did not carry out
    STARTED = "started"  # somebody else brought it to life
    STOPPED = "stopped"  # somebody else stopped it, or saved it where we cannot resume it from


COMING = frozenset({GuestChange.ARRIVED, GuestChange.STARTED})
