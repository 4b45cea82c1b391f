"""What the controller knows and wants of one job, VM or node: the rows of `daemons.controller.state.cluster`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from daemons.values.records.cluster import DECLARED, HandsOff, InstanceRecord, JobRecord, NodeRecord
from shared.protocol.messages import Report, UnderWay
from shared.values.actions import ActionKind
from shared.values.jobs import Allotment, Job, JobPhase
from shared.values.nodes import Handover, Node, NodeCondition, NodeService
from shared.values.vms import VmState, VmStatus

OVER = frozenset({JobPhase.COMPLETED, JobPhase.CANCELLED, JobPhase.FORGOTTEN})
WANTED = frozenset({JobPhase.RUNNING, JobPhase.SUSPENDED})
SKEW_READINGS = 8
FAILURE_MAX = 500
EVENTS_ABOVE_MAX = 4096  # guest events of a node that are kept above a gap


@dataclass(slots=True)
class InFlight:
    """An action sent (or about to be) and not yet answered."""

    id: str
    kind: ActionKind
    node: str
    to_node: str
    boot_id: str
    expires_at_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed last on a VM: the kind of the action and its outcome, or "guest" and "crashed"; on which node, when
    that was heard, and the hypervisor's words, cut at `FAILURE_MAX` characters."""

    kind: str
    node: str
    at_s: float
    outcome: str
    detail: str


@dataclass(slots=True, eq=False)
class Instance:
    """One VM of a job. `copies`: nodes whose last word lists the VM in any state.

    `sought`: a store said that it was brought to life but not where it is, so that its image lies on a node that has
    not spoken yet, or it is lost. `left`, `address*`, `disks`: see InstanceRecord. `awaited`: nodes whose word on it is
    awaited since `missed_s`, when it was not where it was any more, and nobody said why.

    `places`: where it may be seen by our own doing; `home`: where it was seen last. `beat`, `weighed`: its state and
    MHz as they were seen last, or as our last order left them (None: what is seen next will be right). `said`: what was
    told of its last move that we had not ordered; `by_other`: it was brought to life by somebody else. `failed`: what
    failed last, as far as this controller knows. `shunned`: nodes that a migration to has failed, each until when
    decisions look for another.
    """

    vm: str
    job: JobEntry
    memory_mib: float
    cpu_mhz: float = 0.0
    may_run_on: set[str] = field(default_factory=set)
    copies: set[str] = field(default_factory=set)
    generation: int = 0
    issued_attempt: int = 0
    ended: bool = False
    done_mcycles: float = 0.0
    counter_node: str = ""
    counter_generation: int = -1
    counter_s: float = 0.0
    in_flight: InFlight | None = None
    arriving_until_s: float = 0.0
    retry_at_s: float = 0.0
    failures: int = 0
    sought: bool = False
    left: str = ""
    address: str = ""
    address_generation: int = -1
    disks: int = 0
    awaited: set[str] = field(default_factory=set)
    missed_s: float = 0.0
    places: set[str] = field(default_factory=set)
    home: str = ""
    beat: VmState | None = None
    weighed: float | None = None
    said: str = ""
    by_other: bool = False
    failed: Failure | None = None
    shunned: dict[str, float] = field(default_factory=dict)

    def record(self) -> InstanceRecord:
        """The part that must outlive the controller."""
        return InstanceRecord(
            tuple(sorted(self.may_run_on)),
            self.generation,
            self.issued_attempt,
            self.ended,
            self.cpu_mhz,
            self.done_mcycles,
            self.counter_node,
            self.counter_generation,
            self.counter_s,
            self.left,
            self.address,
            self.address_generation,
            self.disks,
        )


@dataclass(slots=True, eq=False)
class JobEntry:
    """A job's desired state and life, or those of one instance of a web application.

    `revision` counts every change that a decision in the making cannot know. `held`, `adopted`, `profile`,
    `measured_*`, `awaits`, `ran_*`, `runs_since_s`, `hands_off` and `definition*`: see JobRecord. `reweights`: how many
    weights that others have set were put right since `reweighted_s`. `reading`: when it was last looked how fast it
    is, and its work done then. `crashed`: the last attempt that a guest ended by crashing; `crashes`: how many have in
    a row, each soon after its start.
    """

    job: Job
    request: str
    order: int
    accepted_s: float
    revision: int = 1
    phase: JobPhase = JobPhase.WAITING
    attempt: int = 0
    released: bool = False
    allotments: tuple[Allotment, ...] = ()
    instances: list[Instance] = field(default_factory=list)
    not_before_s: float = 0.0
    failures: int = 0
    resuming: bool = False
    begun_s: float | None = None
    wanted_s: float = 0.0
    wanted_rank: int = 0
    progress_s: float = 0.0
    stalled: bool = False
    finished_s: float = 0.0
    held: bool = False
    adopted: str = ""
    changed_s: float = -math.inf
    profile: str = DECLARED
    measured_mcycles: float = 0.0
    measured_mhz: float = 0.0
    reading: tuple[float, float] | None = None
    awaits: tuple[str, ...] = ()
    ran_mcycles: float = 0.0
    runs_since_s: float | None = None
    ran_on: str | None = None
    user: str = ""
    crashed: int = 0
    crashes: int = 0
    hands_off: HandsOff | None = None
    definition: tuple[str, ...] = ()
    definition_digest: str = ""
    reweights: int = 0
    reweighted_s: float = -math.inf

    def left_alone(self, now_s: float) -> bool:
        """Whether nothing is to be done to it after what somebody else did."""
        return self.hands_off is not None and now_s < self.hands_off.until_s

    @property
    def over(self) -> bool:
        """Nothing is wanted of it any more."""
        return self.phase in OVER

    @property
    def done_mcycles(self) -> float:
        """Work done per instance: that of the slowest one."""
        return min((instance.done_mcycles for instance in self.instances), default=0.0)

    def record(self) -> JobRecord:
        """The job as the store keeps it."""
        instances = () if self.over and self.clear else tuple(instance.record() for instance in self.instances)
        return JobRecord(
            self.job,
            self.request,
            self.order,
            self.revision,
            self.phase,
            self.attempt,
            self.released,
            self.resuming,
            self.allotments,
            self.not_before_s,
            self.failures,
            self.accepted_s,
            self.finished_s,
            instances,
            self.held,
            self.adopted,
            self.profile,
            self.measured_mcycles,
            self.measured_mhz,
            self.awaits,
            self.ran_mcycles,
            self.runs_since_s,
            self.ran_on,
            self.user,
            self.hands_off,
            self.definition,
            self.definition_digest,
        )

    @property
    def clear(self) -> bool:
        """No VM or image of it is or may be anywhere, and nothing is under way."""
        return not any(i.may_run_on or i.copies or i.in_flight for i in self.instances)


@dataclass(slots=True, eq=False)
class NodeEntry:
    """What is known and wanted of a node. `vms` is its last word, corrected by later results and events; `last` is its
    last report of this boot, `before` an earlier one that its use of CPU is told from. `back_s`: when it reported
    although it was taken for off. `trouble`: when its agent last said that it cannot read the hypervisor, and what that
    says; None since the last report.

    `wanted`: in service by the last decision that was carried out; `held`: an operator keeps it out. `service` is how
    far it is, since `since_s`; `detail` says why it failed. `sleeping`: it was asked to go to sleep, and may be asleep.
    `linked`: whoever else schedules on it may use it. `woken_s`: when it was last seen to wake (0: never). `changes`
    counts what a decision in the making cannot know of it. `cpu_sum`: its load (0..1), summed over
    so many reports since its energy was last counted. `watch`: the number of the list of instances to watch that it was
    sent last (0: none by this leader).

    `environment`: whose workloads may run on it ("": those of no environment); `given`: which environment is to have
    it; `handover`: how far it is from the one to the other; `setup_request`: the setup that its agent was asked for
    last.
    """

    name: str
    service: NodeService = NodeService.IN_SERVICE
    condition: NodeCondition = NodeCondition.UNKNOWN
    inventory: Node | None = None
    boot_id: str = ""
    off_boot_id: str = ""
    report_seq: int = 0
    vm_seq: dict[str, int] = field(default_factory=dict)
    seen_s: float = 0.0
    watch: int = 0
    cpu_sum: float = 0.0  # beside what every report writes too: it costs no more memory to touch
    cpu_readings: int = 0
    last: Report | None = None
    before: Report | None = None
    trouble: tuple[float, str] | None = None
    back_s: float | None = None
    echoed: bool = False
    skews_s: deque[float] = field(default_factory=lambda: deque(maxlen=SKEW_READINGS))
    skewed: bool = False
    term_ahead: int = 0
    vms: dict[str, VmStatus] = field(default_factory=dict)
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    claimed: dict[str, Instance] = field(default_factory=dict)
    flights: dict[str, Instance] = field(default_factory=dict)
    unmanaged_mib: float = 0.0
    committed_mib: float = 0.0
    committed_mhz: float = 0.0
    wanted_mib: float = 0.0
    wanted_mhz: float = 0.0
    actions: int = 0
    migrations: int = 0
    events_seen: int = 0
    events_above: set[int] = field(default_factory=set)
    hello_s: float = -1.0
    hello_wait_s: float = 0.0
    silent_s: float | None = None
    off_s: float = 0.0
    fencing: bool = False
    wanted: bool = True
    held: bool = False
    since_s: float = 0.0
    detail: str = ""
    sleeping: bool = False
    linked: bool = True
    woken_s: float = 0.0
    changes: int = 0
    environment: str = ""
    given: str = ""
    handover: Handover = Handover.SETTLED
    setup_request: str = ""

    @property
    def asleep(self) -> bool:
        """Silent by our will: asleep, on the way there or not back yet. It holds no VM."""
        return self.sleeping or self.service in (NodeService.OFF, NodeService.WAKING)

    @property
    def usable(self) -> bool:
        """Orders may be sent to it: up, its clock is near enough, and it takes them."""
        return self.condition is NodeCondition.UP and not (self.skewed or self.term_ahead)

    @property
    def schedulable(self) -> bool:
        """New VMs may be placed on it."""
        return self.usable and self.service is NodeService.IN_SERVICE and self.inventory is not None and self.in_hand

    @property
    def in_hand(self) -> bool:
        """It serves who is to have it."""
        return self.handover is Handover.SETTLED and self.given == self.environment

    def takes_event(self, number: int) -> bool:
        """Whether a guest event is new, and not one too many above a gap: an honest agent's next report closes it."""
        if number <= self.events_seen or number in self.events_above:
            return False
        return len(self.events_above) < EVENTS_ABOVE_MAX or number == self.events_seen + 1

    def skip_events(self, first: int) -> bool:
        """An agent tells all guest events that were not said to be stored, the lowest of them `first`: an earlier
        leader has stored those before it, though this store, restored from a backup, does not know. Whether that is
        news."""
        if first <= self.events_seen + 1:
            return False
        self.events_seen = first - 1
        self.events_above = {number for number in self.events_above if number >= first}
        return True

    def record(self) -> NodeRecord:
        """The node as the store keeps it."""
        return NodeRecord(
            self.name,
            self.service,
            self.events_seen,
            self.boot_id,
            self.off_boot_id,
            self.inventory,
            self.wanted,
            self.held,
            self.since_s,
            self.detail,
            self.sleeping,
            self.linked,
            self.woken_s,
            self.environment,
            self.given,
            self.handover,
            self.setup_request,
        )

    def room_mib(self) -> float:
        """Memory that no VM holds or may hold."""
        usable = self.inventory.usable_mib if self.inventory else 0
        return usable - self.committed_mib - self.unmanaged_mib - self.frozen_mib()

    def frozen_mib(self) -> float:
        """Memory that suspended VMs hold where they cannot be saved to disk. One that is on its way back is counted by
        what it is promised."""
        if self.inventory is None or not self.inventory.freezes:
            return 0.0
        frozen = [status for vm, status in self.vms.items() if vm not in self.claimed]
        return float(sum(status.memory_mib for status in frozen if status.state is VmState.SUSPENDED))

    def room_mhz(self) -> float:
        """CPU that no VM has been allotted."""
        return (self.inventory.cpu_mhz if self.inventory else 0.0) - self.committed_mhz
