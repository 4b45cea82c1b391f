"""What the controller keeps in the store: everything a successor needs to go on, one record per key.

Written before the actions that depend on it are sent (architecture, rule 3 and rule 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from daemons.models.loading_history import LoadingHistory, PaceSample
from daemons.models.migration_history import NOTHING, LearnedRatio
from daemons.models.operation_times import Measured
from daemons.models.work_left import RatioHistory
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.records.notifications import NotificationRecord
from shared.policy_api.decision import Change, Plan, Reason, Refusal, Slowed, WindowSize
from shared.values.actions import ActionKind, GuestChange
from shared.values.agreement import Agreement, EnvironmentState
from shared.values.jobs import Allotment, Job, JobPhase
from shared.values.nodes import Handover, Node, NodeService
from shared.values.vm_terms import VmTerms
from shared.values.web_app import WebApp

DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class FailoverFacts:
    """What a failover of an adopted VM depends on, as its node reported it last. `node`: that node. `guarded`: its host
    does not start it by itself; `autostart`, `host_files`: see `shared.values.vms.VmStatus`; `needs`: what a start
    needs of a node."""

    guarded: bool = False
    autostart: bool = False
    host_files: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    node: str = ""


@dataclass(frozen=True, slots=True)
class VmMigrations:
    """What the migrations of a VM have taught. `ratio`, `downtime`: of measured to forecast duration and downtime.
    `failures`: how many in a row did not converge; `dirty_mib_per_s`: the guest's dirty rate then; `until_s`: until
    when none is tried again."""

    ratio: LearnedRatio = NOTHING
    failures: int = 0
    dirty_mib_per_s: float = 0.0
    until_s: float = 0.0
    downtime: LearnedRatio = NOTHING


@dataclass(frozen=True, slots=True)
class NodeMigrations:
    """What migrations have taught of a node. `ratio`, `downtime`: of measured to forecast duration and downtime of
    those to it; `mib_per_s`: the best rate of those to it and from it (0: not known), `stream_mib_per_s`: of those over
    one connection."""

    ratio: LearnedRatio = NOTHING
    mib_per_s: float = 0.0
    downtime: LearnedRatio = NOTHING
    stream_mib_per_s: float = 0.0


NO_MIGRATIONS, NO_RATES = VmMigrations(), NodeMigrations()


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One instance: where its VM is or may be, what was issued, and the work counted so far.

    `counter_*` name the last reading that is part of `done_mcycles`: the VM's CPU seconds on that node and generation.
    `left`: somebody else took it away, and it has not been seen since; what is known of that ("": it is not so).
    `address`: of an instance of a web application, where it was last reached, in the life `address_generation`.
    `disks`: the newest generation of its local disks that was seen (0: it has none), see
    `shared.values.actions.Action`. Of an adopted VM: `failover` (None: nothing was reported); `exit`, how it stopped
    last (None: with its host, or not known); `host_restarted`, its host has failed or restarted since it was seen live,
    or since its start was wanted. `migration_facts`: see VmMigrations. `settles`: its migration was stopped when it had
    been ordered; it is wanted where it is seen next.
    """

    may_run_on: tuple[str, ...]
    generation: int
    issued_attempt: int
    ended: bool
    cpu_mhz: float
    done_mcycles: float
    counter_node: str
    counter_generation: int
    counter_s: float
    left: str = ""
    address: str = ""
    address_generation: int = -1
    disks: int = 0
    failover: FailoverFacts | None = None
    migration_facts: VmMigrations = NO_MIGRATIONS
    exit: GuestChange | None = None
    host_restarted: bool = False
    settles: bool = False


@dataclass(frozen=True, slots=True)
class ReconciliationPause:
    """What somebody else did to a VM of a job (`what`: the event), at `at_s`. Until `until_s` the job is left alone;
    `count`: which time it is, a hold after the other."""

    what: str
    vm: str
    detail: str
    at_s: float
    until_s: float
    count: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and its desired state. `instances` is empty once the job is over. `held`: an operator keeps it from
    running. `adopted`: the name of the VM that was not started by us ("" for every other job). `profile`: where its
    stages come from, in words. `measured_mcycles`: the work of one instance when it was complete; `measured_mhz`: the
    highest speed of one that was seen (0: not measured). `awaits`: of the jobs that it is `after`, those that are not
    completed. Of a job of a queue: `ran_mcycles`, the seconds that it ran times the speed that it can have there, up to
    `runs_since_s`, from when on it runs (None: it does not); `ran_on`, the type of its nodes (None: it has not run; "":
    none, or several). `user`: the broker user that submitted it ("": not known). `reconciliation_paused`: what somebody
    else did to it last (None: nothing). Of an adopted VM: `definition`, its domain XML without our metadata in pieces,
    and `definition_digest`, which names it ("": not known); `taken`, whether its adoption has completed; `terms`, what
    its operator wants; `lost_with_host`, whether it stopped with its host and is started again when that returns;
    `moves_s`, when decisions moved it within the last day, and `pauses`, when migrations paused it and for how long;
    `failover_to`, the node on which it is to be defined anew since its own is off ("": none); `left_on`, the nodes that
    may have a definition from before a failover; `left_digests`, those of these definitions by node."""

    job: Job
    request: str
    order: int
    revision: int
    phase: JobPhase
    attempt: int
    released: bool
    resuming: bool
    allotments: tuple[Allotment, ...]
    not_before_s: float
    failures: int
    accepted_s: float
    finished_s: float
    instances: tuple[InstanceRecord, ...]
    held: bool = False
    adopted: str = ""
    profile: str = DECLARED
    measured_mcycles: float = 0.0
    measured_mhz: float = 0.0
    awaits: tuple[str, ...] = ()
    ran_mcycles: float = 0.0
    runs_since_s: float | None = None
    ran_on: str | None = None
    user: str = ""
    reconciliation_paused: ReconciliationPause | None = None
    definition: tuple[str, ...] = ()
    definition_digest: str = ""
    taken: bool = False
    terms: VmTerms | None = None
    lost_with_host: bool = False
    moves_s: tuple[float, ...] = ()
    pauses: tuple[tuple[float, float], ...] = ()
    failover_to: str = ""
    left_on: tuple[str, ...] = ()
    left_digests: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("job", self.job.name)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node that takes part. `events_seen`: every guest event up to that number is in the store.
    `off_boot_id`: the boot that was proven off, whose late messages mean nothing ("" while it is not off). `wanted`,
    `held`, `since_s`, `detail`, `sleeping`, `linked`, `woken_s`, `environment`, `given`, `handover`, `setup_request`:
    see NodeEntry. `migration_facts`: see NodeMigrations."""

    name: str
    service: NodeService
    events_seen: int
    boot_id: str
    off_boot_id: str
    inventory: Node | None
    wanted: bool = True
    held: bool = False
    since_s: float = 0.0
    detail: str = ""
    sleeping: bool = False
    linked: bool = True
    woken_s: float = 0.0
    environment: str = ""
    given: str = ""
    handover: Handover = Handover.SETTLED
    setup_request: str = ""
    migration_facts: NodeMigrations = NO_RATES

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("node", self.name)


@dataclass(frozen=True, slots=True)
class DurationRecord:
    """How long it took to bring nodes of a power driver and node type into service (`what`: "deploy") or out of it
    ("remove"): the mean of `count` times in seconds and their standard deviation; older ones count less and less."""

    driver: str
    node_type: str
    what: str
    count: int
    mean_s: float
    deviation_s: float

    @property
    def name(self) -> str:
        """What it is of."""
        return f"{self.driver}/{self.node_type}/{self.what}"

    @property
    def key(self) -> tuple[str, str]:
        """Kind, and what it is of."""
        return ("duration", self.name)


class FlowWork(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Requests of a flow that were answered within a window."""

    flow: str
    served: int


class WorkWindow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the work profiler learns from: CPU work that the instances of a web application did in `seconds`, in
    Mcycles, how many there were at its end, and the requests that they answered meanwhile."""

    seconds: float
    used_mcycles: float
    instances: int
    served: tuple[FlowWork, ...]


class FlowFactor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How the response times of a flow compare with its model, see `daemons.models.response_calibration`."""

    flow: str
    log_sum: float
    gap_sum: float
    weight_s: float


@dataclass(frozen=True, slots=True)
class WebRecord:
    """A web application. Its instances are jobs of their own. `removed`: it is deleted when the last of them is gone.
    `wanted_instances`: the desired number until the next cycle (None: placement alone decides). `replaced_s`: when
    unhealthy instances were replaced within the last hour; `least`: see WebHealth. `factors`: as of the last write, one
    for each flow that was measured."""

    app: WebApp
    request: str
    order: int
    accepted_s: float
    removed: bool = False
    windows: tuple[WorkWindow, ...] = ()
    wanted_instances: int | None = None
    replaced_s: tuple[float, ...] = ()
    least: int = 0
    factors: tuple[FlowFactor, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("web", self.app.name)


class Gain(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a decision predicted for one workload, see `Outlook`, and what was measured when that time had come
    (None: not measured)."""

    workload: str
    now: float
    predicted: float
    best: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A decision's changes of the nodes in service: names `added` and `removed`; `dropped` are those that had changed
    since. `held`: the automation level holds it back. The rest is as the policy returned it."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    held: bool
    reason: Reason
    policy: str = ""
    dropped: tuple[str, ...] = ()
    in_service: int = 0
    windows: tuple[WindowSize, ...] = ()
    refused: tuple[tuple[int, float], ...] = ()
    predicted_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """An account's word on a decision that waits, and why."""

    account: str
    at_s: float
    why: str = ""


REDISTRIBUTION = "redistribution"  # the policy of decisions between cycles (docs/explanation/web.md)
PLAN_STOP = "plan-stop"  # the policy of a record of what an operator has stopped
NO_POLICY = frozenset({REDISTRIBUTION, PLAN_STOP})  # records of decisions that no policy's run has made


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision as taken: changes, refusals, and what was dropped because its workload had changed since.

    `held` are the changes that the automation level holds back, and `plan` is what carrying them out would take.
    `gains` and `level` are what the policy predicted; `measured_s`: when it was measured what came of it (None: not
    yet, or not at all). `provisioning`: what it says of nodes (None: nothing). `slowed`: whom sharing slows under it.
    `asks`: it was to wait for approval; `approvals`: who has approved it; `approved_s`: since when by enough (None: it
    is not); `rejected`: who has rejected it (None: nobody).
    """

    number: int
    at_s: float
    term: int
    policy: str
    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    dropped: tuple[Refusal, ...]
    held: tuple[Change, ...]
    plan: Plan
    gains: Sequence[Gain] = ()
    level: float | None = None
    measured_s: float | None = None
    provisioning: Provisioned | None = None
    slowed: Sequence[Slowed] = ()
    asks: bool = False
    approvals: tuple[Approval, ...] = ()
    approved_s: float | None = None
    rejected: Approval | None = None

    @property
    def is_stop(self) -> bool:
        """Whether it records what an operator has stopped, and not a decision."""
        return self.policy == PLAN_STOP

    @property
    def is_open(self) -> bool:
        """Whether it was to wait for approval and nobody has settled it."""
        return self.asks and self.approved_s is None and self.rejected is None

    @property
    def key(self) -> tuple[str, str]:
        """Kind and number."""
        return ("decision", f"{self.number:012d}")


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """Switches and counters that outlive a controller. `acting` false: it only observes until an operator says
    otherwise (after a restore)."""

    deciding: bool
    decisions: int
    submissions: int
    acting: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """There is one."""
        return ("control", "")


class CountedDay(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Jobs that came in during one period of a deadline window, by slots of its submission period.

    weekday: 0 Monday .. 6. starts_s: local time of day at which slot 0 begins, in seconds. slot_s: length of a slot.
    exposure: how often a slot came by (2 where the clock went back, 0 where nobody looked).
    """

    opens_s: float
    weekday: int
    starts_s: float
    slot_s: float
    counts: tuple[int, ...]
    exposure: tuple[float, ...]


class ServedJob(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A completed job of a window's queue. mcycles: the seconds that it ran times the speed that it can have there;
    node_type "": none, or several."""

    finished_s: float
    mcycles: float
    node_type: str
    job_class: str


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """A deadline window's forecast, frozen for a period, and the data for the next one.

    opens_s, submit_until_s, deadline_s: the period. rates: jobs expected during each slot of its submission period;
    spread: relative variance of their sum. mcycles, mcycles_error, mcycles_cv: of a job of the queue, with the relative
    standard error of the mean. releases: expected releases of blocked jobs in each interval of the period.
    arrivals_factor, service_factor: by how much the forecast was raised since it was made. from_s: start of the
    comparison with it; since_s: start of the job count. arrivals_margin, service_margin: remembered for later periods
    (1: none). danger_s: when the deadline was last reported to be at risk (None: it is not). missed: jobs of the last
    ended period that were not done by its deadline; missed_s: that deadline (0: none). days, served: history, oldest
    first.
    """

    name: str
    opens_s: float = 0.0
    submit_until_s: float = 0.0
    deadline_s: float = 0.0
    rates: tuple[float, ...] = ()
    spread: float = 0.0
    mcycles: float = 0.0
    mcycles_error: float = 0.0
    mcycles_cv: float = 1.0
    releases: tuple[float, ...] = ()
    arrivals_factor: float = 1.0
    service_factor: float = 1.0
    from_s: float = 0.0
    since_s: float = 0.0
    danger_s: float | None = None
    arrivals_margin: float = 1.0
    service_margin: float = 1.0
    missed: int = 0
    missed_s: float = 0.0
    days: tuple[CountedDay, ...] = ()
    served: tuple[ServedJob, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("window", self.name)


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What a cycle cost: the `span_s` seconds from `at_s` on. All but the currency may be summed over cycles.

    kwh, cost: energy of all nodes and its price in `currency`; static_kwh, static_cost: with the same load and every
    node on. in_service_node_s, node_s: seconds of nodes in service, and of all nodes. node_starts: nodes that came into
    service. misses, penalty: jobs of windows that were not done by their deadline, and what that costs.
    """

    at_s: float
    span_s: float
    currency: str = ""
    kwh: float = 0.0
    cost: float = 0.0
    static_kwh: float = 0.0
    static_cost: float = 0.0
    in_service_node_s: float = 0.0
    node_s: float = 0.0
    node_starts: int = 0
    misses: int = 0
    penalty: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Kind and begin."""
        return ("cost", repr(self.at_s))


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """An environment. `wanted`: the state that it is on its way to. `consents`: names of environments that its owner
    lets it be coordinated with; `declined`: those that it does not any more; `offered`: the web environment that it
    could be coordinated with; `partner`: the one that it is coordinated with ("": none), until `parts_s` (None: no end
    in sight). `size`: units that it is to have. `started_s`: when its timers began (negative: they do not run).
    `provisioned_s`, `managed_s`: when they last fired. `ended_s`: when it was destroyed (0: it is not). The rest counts
    what happened to it: `adjustments` of its size, jobs `killed` and `suspended` for others, the node-hours of work
    that was lost so, and the setups that were carried out for it."""

    agreement: Agreement
    request: str
    order: int
    created_s: float
    state: EnvironmentState
    wanted: EnvironmentState
    detail: str = ""
    consents: tuple[str, ...] = ()
    partner: str = ""
    parts_s: float | None = None
    size: int = 0
    started_s: float = 0.0
    provisioned_s: float = 0.0
    managed_s: float = 0.0
    adjustments: int = 0
    killed: int = 0
    suspended: int = 0
    lost_node_hours: float = 0.0
    setups: int = 0
    offered: str = ""
    ended_s: float = 0.0
    declined: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("environment", self.agreement.name)


@dataclass(frozen=True, slots=True)
class LoadingRecord:
    """What was measured of how jobs of a class load nodes of a type ("": of none). used_s: when a job of the class was
    last seen on such a node."""

    job_class: str
    node_type: str
    history: LoadingHistory
    used_s: float = 0.0

    @property
    def name(self) -> str:
        """What it is of."""
        return f"{self.job_class}/{self.node_type}"

    @property
    def key(self) -> tuple[str, str]:
        """Kind, and what it is of."""
        return ("loading", self.name)


@dataclass(frozen=True, slots=True)
class PaceRecord:
    """How fast standard jobs ran on nodes of a type ("": of none), oldest first."""

    node_type: str
    paces: tuple[PaceSample, ...]

    @property
    def name(self) -> str:
        """The node type."""
        return self.node_type

    @property
    def key(self) -> tuple[str, str]:
        """Kind and node type."""
        return ("pace", self.name)


@dataclass(frozen=True, slots=True)
class WorkRatioRecord:
    """What the ended jobs of a group (a class, or of an account those without one) took of what they declared, see
    `RatioHistory`; ended_s: when the last one did."""

    group: str
    history: RatioHistory
    ended_s: float = 0.0

    @property
    def name(self) -> str:
        """The group."""
        return self.group

    @property
    def key(self) -> tuple[str, str]:
        """Kind and group."""
        return ("work-ratio", self.name)


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """How long operations of a kind took, the newest last."""

    kind: ActionKind
    measured: tuple[Measured, ...]

    @property
    def name(self) -> str:
        """The kind."""
        return self.kind.value

    @property
    def key(self) -> tuple[str, str]:
        """Kind of record, and of operation."""
        return ("operation", self.name)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Removes the record of a key."""

    key: tuple[str, str]


Record = (
    JobRecord
    | NodeRecord
    | WebRecord
    | WindowRecord
    | DurationRecord
    | CostRecord
    | EnvironmentRecord
    | LoadingRecord
    | PaceRecord
    | WorkRatioRecord
    | OperationRecord
    | AssuranceRecord
    | DecisionRecord
    | ControlRecord
    | NotificationRecord
    | Deleted
)
