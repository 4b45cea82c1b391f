"""What the controller knows and wants of one job, VM or node: the rows of `daemons.state`."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from daemons.records import DECLARED, InstanceRecord, JobRecord, NodeRecord
from shared.messages import Report, UnderWay
from shared.model import (
    ActionKind,
    Allotment,
    Handover,
    Job,
    JobPhase,
    Node,
    NodeCondition,
    NodeService,
    VmStatus,
)

OVER = frozenset({JobPhase.COMPLETED, JobPhase.CANCELLED, JobPhase.FORGOTTEN})
WANTED = frozenset({JobPhase.RUNNING, JobPhase.SUSPENDED})
SKEW_READINGS = 8


@dataclass(slots=True)
class InFlight:
    """An action sent (or about to be) and not yet answered."""

    id: str
    kind: ActionKind
    node: str
    to_node: str
    boot_id: str
    expires_at_s: float


@dataclass(slots=True, eq=False)
class Instance:
    """One VM of a job. `copies`: nodes whose last word lists the VM in any state.

    `sought`: a store said that it was brought to life but not where it is, so that its image lies on a node that has
    not spoken yet, or it is lost.
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
        )


@dataclass(slots=True, eq=False)
class JobEntry:
    """A job's desired state and life, or those of one instance of a web application.

    `revision` counts every change that a decision in the making cannot know. `held`, `adopted`, `profile`,
    `measured_*`, `awaits`, `ran_*` and `runs_since_s`: see JobRecord. `reading`: when it was last looked how fast it
    is, and its work done then.
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
        )

    @property
    def clear(self) -> bool:
        """No VM or image of it is or may be anywhere, and nothing is under way."""
        return not any(i.may_run_on or i.copies or i.in_flight for i in self.instances)


@dataclass(slots=True, eq=False)
class NodeEntry:
    """What is known and wanted of a node. `vms` is its last word, corrected by later results and events; `last` is its
    last report of this boot, `before` an earlier one that its use of CPU is told from. `back_s`: when it reported
    although it was taken for off.

    `wanted`: in service by the last decision that was carried out; `held`: an operator keeps it out. `service` is how
    far it is, since `since_s`; `detail` says why it failed. `sleeping`: it was asked to go to sleep, and may be asleep.
    `linked`: whoever else schedules on it may use it. `woken_s`: when it was last seen to wake (0: never). `changes`
    counts what a decision in the making cannot know of it. `cpu_sum`: its load (0..1), summed over
    so many reports since its energy was last counted.

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
    cpu_sum: float = 0.0  # beside what every report writes too: it costs no more memory to touch
    cpu_readings: int = 0
    last: Report | None = None
    before: Report | None = None
    back_s: float | None = None
    echoed: bool = False
    skews_s: deque[float] = field(default_factory=lambda: deque(maxlen=SKEW_READINGS))
    skewed: bool = False
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
        """Orders may be sent to it: up, and its clock is near enough."""
        return self.condition is NodeCondition.UP and not self.skewed

    @property
    def schedulable(self) -> bool:
        """New VMs may be placed on it."""
        return self.usable and self.service is NodeService.IN_SERVICE and self.inventory is not None and self.in_hand

    @property
    def in_hand(self) -> bool:
        """It serves who is to have it."""
        return self.handover is Handover.SETTLED and self.given == self.environment

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
        return usable - self.committed_mib - self.unmanaged_mib

    def room_mhz(self) -> float:
        """CPU that no VM has been allotted."""
        return (self.inventory.cpu_mhz if self.inventory else 0.0) - self.committed_mhz
