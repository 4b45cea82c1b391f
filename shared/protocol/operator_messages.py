"""What operators ask of a controller, as messages of the bus; `shared/protocol/messages.py` has the others and the
rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from shared.protocol.account_messages import WHY_LENGTH_MAX as WHY_LENGTH_MAX
from shared.protocol.account_messages import Assess as Assess
from shared.protocol.account_messages import OnBehalf as OnBehalf
from shared.protocol.account_messages import RejectPlan as RejectPlan
from shared.values.agreement import Agreement, AssuranceTerms
from shared.values.jobs import Job, Rules
from shared.values.load_vector import StandardRun
from shared.values.new_vm import COPIES_MAX, NewVm
from shared.values.scalars import whole
from shared.values.texts import Label, Word
from shared.values.vm_terms import TermChanges, VmTerms
from shared.values.web_app import WebApp


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit a job. The same `request` id again is the same submission."""

    KIND: ClassVar[str] = "submit-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: Job


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Stop a job's VMs, discard its images and end it as cancelled."""

    KIND: ClassVar[str] = "cancel-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: str


@dataclass(frozen=True, slots=True)
class AddNode:
    """Let a node take part. Its facts come from its agent's inventory."""

    KIND: ClassVar[str] = "add-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Take an empty node out; refused while a VM is or may be on it."""

    KIND: ClassVar[str] = "remove-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Empty a node (`on`) or let it take VMs again (not `on`)."""

    KIND: ClassVar[str] = "drain-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str
    on: bool


@dataclass(frozen=True, slots=True)
class RepairNode:
    """An operator's word that a node that failed to come into service may be tried again."""

    KIND: ClassVar[str] = "repair-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str


@dataclass(frozen=True, slots=True)
class ConfirmOff:
    """An operator's confirmation that an unreachable node is off: its VMs are lost and may be restarted elsewhere."""

    KIND: ClassVar[str] = "confirm-off"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str


@dataclass(frozen=True, slots=True)
class ApprovePlan:
    """Carry out the plan of the cycle decision that waits (automation level `confirm`)."""

    KIND: ClassVar[str] = "approve-plan"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    decision: int


@dataclass(frozen=True, slots=True)
class StopPlan:
    """Stop what decisions have in progress: nothing new begins, operations that run end. `abort`: migrations that run
    are aborted."""

    KIND: ClassVar[str] = "stop-plan"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    abort: bool = False


@dataclass(frozen=True, slots=True)
class DecideNow:
    """Make a cycle's decision now, at whatever automation level; it is recorded, held or carried out by that."""

    KIND: ClassVar[str] = "decide-now"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word


@dataclass(frozen=True, slots=True)
class SetDeciding:
    """Stop (`on` false) or resume deciding; what was decided goes on converging. After a restore of the store the
    controller only observes: `on` lets it act again too."""

    KIND: ClassVar[str] = "set-deciding"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    on: bool


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Suspend a job's VMs to disk and keep them so (`on`), or let policies resume them (not `on`)."""

    KIND: ClassVar[str] = "hold-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: str
    on: bool


@dataclass(frozen=True, slots=True)
class ConfirmGone:
    """An operator's confirmation that a missing VM runs nowhere: its job may restart."""

    KIND: ClassVar[str] = "confirm-gone"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    vm: Label


@dataclass(frozen=True, slots=True)
class ReconcileVm:
    """End the hold on the workload of a VM that somebody else has meddled with."""

    KIND: ClassVar[str] = "reconcile-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    vm: Label


@dataclass(frozen=True, slots=True)
class MoveVm:
    """Migrate one VM to a node, keeping its CPU; refused where it does not fit or the node takes no VMs."""

    KIND: ClassVar[str] = "move-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    vm: Label
    node: str


@dataclass(frozen=True, slots=True)
class AdoptVm:
    """Adopt an unmanaged VM, running or shut off, under the job name `job`. Nothing of it changes but our metadata.
    `check`: only say whether it could be. `checked`: as of `SetJob`."""

    KIND: ClassVar[str] = "adopt-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str
    vm: Label
    job: str
    importance: float = 1.0
    rules: Rules = field(default_factory=Rules)
    terms: VmTerms = field(default_factory=VmTerms)
    check: bool = False
    checked: bool = False


@dataclass(frozen=True, slots=True)
class SetJob:
    """Change what an operator wants of a job or an adopted VM; None leaves a value as it is. `best_effort` removes the
    goal. `terms`: of an adopted VM alone, which is meant by its own name too. `checked`: `CheckRules` found that its
    rules hold together with those of the requests that go with it, so that contradictions are not looked for."""

    KIND: ClassVar[str] = "set-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: str
    importance: float | None = None
    goal_s: float | None = None
    best_effort: bool = False
    rules: Rules | None = None
    terms: TermChanges | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class SetWeb:
    """Change importance, rules or goals of a web application; None leaves a value as it is. `goals`: by flow."""

    KIND: ClassVar[str] = "set-web"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    app: str
    importance: float | None = None
    rules: Rules | None = None
    goals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PowerVm:
    """Start an adopted VM that is shut off (`on`), or shut its guest down (not `on`)."""

    KIND: ClassVar[str] = "power-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: str
    on: bool


@dataclass(frozen=True, slots=True)
class ReleaseVm:
    """Release a job's VMs without stopping them: they are counted from then on, never changed."""

    KIND: ClassVar[str] = "release-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    job: str


@dataclass(frozen=True, slots=True)
class SubmitWeb:
    """Submit a web application, or change the one of that name to what is given now. The same `request` id again is
    the same submission."""

    KIND: ClassVar[str] = "submit-web"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    app: WebApp


@dataclass(frozen=True, slots=True)
class RemoveWeb:
    """Stop every instance of a web application and forget it."""

    KIND: ClassVar[str] = "remove-web"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    app: str


@dataclass(frozen=True, slots=True)
class CreateEnvironment:
    """Create an environment by its agreement. The same `request` id again is the same creation."""

    KIND: ClassVar[str] = "create-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class ActivateEnvironment:
    """Allot an environment its lower bound and let it serve."""

    KIND: ClassVar[str] = "activate-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str


@dataclass(frozen=True, slots=True)
class DeactivateEnvironment:
    """Suspend an environment's jobs, stop its web instances and give its units back; its workloads wait for it."""

    KIND: ClassVar[str] = "deactivate-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str


@dataclass(frozen=True, slots=True)
class DestroyEnvironment:
    """End an environment with all its workloads and give its units back."""

    KIND: ClassVar[str] = "destroy-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str


@dataclass(frozen=True, slots=True)
class ResizeEnvironment:
    """Change an environment's bounds to these; `upper` None: undefined."""

    KIND: ClassVar[str] = "resize-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str
    lower: int
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class ConsentEnvironment:
    """Consent that an environment is coordinated with `partner` (`on`), or withdraw that with notice (not `on`)."""

    KIND: ClassVar[str] = "consent-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str
    partner: str
    on: bool


@dataclass(frozen=True, slots=True)
class ProfileNode:
    """Run a calibration benchmark on a node that has no managed VM, to learn the node's speed. With `job`, run it
    beside the only job there, to learn how that job loads the node. The result is in the view `profiles`."""

    KIND: ClassVar[str] = "profile-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: str
    run: StandardRun
    job: str = ""


@dataclass(frozen=True, slots=True)
class RetryNotification:
    """Have a notification that waits, or was given up, tried now as if for the first time, with all of its message."""

    KIND: ClassVar[str] = "retry-notification"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    notification: str


@dataclass(frozen=True, slots=True)
class DropNotification:
    """Try a notification that waits, or was given up, no more, with all of its message."""

    KIND: ClassVar[str] = "drop-notification"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    notification: str


@dataclass(frozen=True, slots=True)
class TryChannel:
    """Send a message over a channel of notifications, once; what became of it is in the view `notifications`, under the
    id `test-` and the request's."""

    KIND: ClassVar[str] = "try-channel"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    channel: str


@dataclass(frozen=True, slots=True)
class ReserveEnvironment:
    """Change what is reserved for an environment; None: nothing but its bounds. Where admission is configured, only
    what is admitted takes the place of what was reserved before."""

    KIND: ClassVar[str] = "reserve-environment"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    environment: str
    assurance: AssuranceTerms | None = None


@dataclass(frozen=True, slots=True)
class CheckReservation:
    """Ask whether an environment with this agreement would be admitted; nothing is changed. If one of that name exists,
    ask whether its reservation could change to this one. assure: the part (0..1) of its demand that the owner wants
    served, to get the cheapest split among the classes of service (0: not asked). The answer is in `Reply.data`."""

    KIND: ClassVar[str] = "check-reservation"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    agreement: Agreement
    assure: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckVmFit:
    """Ask where `count` such VMs (1 to 500) would go, and what would have to move for them; nothing is carried out or
    stored. The answer is in `Reply.data`."""

    KIND: ClassVar[str] = "check-vm-fit"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    vm: NewVm
    count: int = 1

    def __post_init__(self) -> None:
        whole("count", self.count, 1, COPIES_MAX)


@dataclass(frozen=True, slots=True)
class SharedRules:
    """Rules, and the names of workloads that are to have them."""

    rules: Rules
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckRules:
    """Ask whether workloads can have these rules, all at once: jobs, adopted VMs by either name, and VMs that are to be
    adopted, by the names that they are to get. Nothing is changed. The answer is in `Reply.data`."""

    KIND: ClassVar[str] = "check-rules"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    rules: tuple[SharedRules, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """Decide on the state as it is and answer with changes, refusals and plan; nothing is carried out or stored."""

    KIND: ClassVar[str] = "dry-run"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for a view: `what` is one of `QUERIES`, `subject` a name where the view is of one thing, `limit` the most
    rows (1 to 10,000). The answer is in `Reply.data`, plain data (docs/reference/views.md has the keys); `columns`:
    with its long lists of records as `shared.protocol.columns` folds them. `after`: of a view in pages, the `next` of
    the page before ("": the first)."""

    KIND: ClassVar[str] = "query"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    what: str
    subject: str = ""
    limit: int = 1000
    columns: bool = False
    after: str = ""


BUSY = "busy"  # the code of a reply that says: ask again, later
QUERIES = (
    "status",
    "nodes",
    "node",
    "jobs",
    "job",
    "web-apps",
    "web-app",
    "environments",
    "environment",
    "vms",
    "vm",
    "definition",
    "plan",
    "plan-history",
    "forecast",
    "assurance",
    "costs",
    "profiles",
    "operations",
    "doctor",
    "snapshot",
    "notifications",
)
PAGED_QUERIES = ("nodes", "jobs", "vms")  # those whose list may be too long for one message

Change = (
    SubmitJob
    | CancelJob
    | AddNode
    | RemoveNode
    | DrainNode
    | RepairNode
    | ConfirmOff
    | ApprovePlan
    | RejectPlan
    | SetDeciding
    | StopPlan
    | DecideNow
    | HoldJob
    | ConfirmGone
    | ReconcileVm
    | MoveVm
    | AdoptVm
    | ReleaseVm
    | SetJob
    | PowerVm
    | SubmitWeb
    | SetWeb
    | RemoveWeb
    | CreateEnvironment
    | ActivateEnvironment
    | DeactivateEnvironment
    | DestroyEnvironment
    | ResizeEnvironment
    | ConsentEnvironment
    | ReserveEnvironment
    | ProfileNode
    | RetryNotification
    | DropNotification
    | TryChannel
)
Request = Change | CheckReservation | CheckVmFit | CheckRules | DryRun | Assess | Query

OPERATOR_MESSAGES: tuple[type[Any], ...] = (*get_args(Request), OnBehalf)
