"""Every message of the bus. A message is a frozen value; `codec.py` turns it into bytes and back.

`KIND` and `VERSION` of each class go into the envelope. A field may be added with a default under the same version
(an older reader ignores nothing: it refuses what it does not know, so a new field also raises VERSION); the codec
accepts every version from `OLDEST` to `VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from shared.model import Action, ActionKind, GuestChange, Job, Node, NodeSample, Outcome, VmStatus
from shared.scalars import Number, Text, Whole
from shared.webapp import FlowSample, WebApp


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An action that an agent has accepted and not finished."""

    id: str
    kind: ActionKind
    vm: str
    to_node: str = ""


# --- agent -> controller -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """A guest ended, vanished or arrived. `event` numbers the agent's events from 1 without gaps, for ever.

    `seq` is the agent's message sequence (see Report). `status` is the VM's last known status, with its counters.
    """

    KIND: ClassVar[str] = "guest-event"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: str
    boot_id: str
    seq: int
    clock_s: float
    event: int
    change: GuestChange
    status: VmStatus


@dataclass(frozen=True, slots=True)
class Report:
    """A node's state at `clock_s` of the agent's clock.

    `seq` grows with every message of the agent, across its restarts: what carries a lower one than the controller has
    seen from the node says nothing new about its VMs. `vms` is complete. `events` are the guest events that no
    controller has acknowledged yet; a VM named there is over, not lost. `inventory` comes with the first report of an
    agent, after a hello and when it changed, else None. `term` is the highest the agent has seen.
    """

    KIND: ClassVar[str] = "report"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Text
    boot_id: Text
    seq: Whole
    clock_s: Number
    term: Whole
    sample: NodeSample
    vms: tuple[VmStatus, ...]
    under_way: tuple[UnderWay, ...] = ()
    events: tuple[GuestEvent, ...] = ()
    inventory: Node | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How an action ended. `status` is the VM on this node afterwards (None: not here), with its last counters;
    after a migration away or a suspend it carries the final counters. `detail` is for people.
    """

    KIND: ClassVar[str] = "result"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: str
    boot_id: str
    seq: int
    clock_s: float
    term: int
    action: str
    kind: ActionKind
    vm: str
    outcome: Outcome
    status: VmStatus | None = None
    final: VmStatus | None = None
    detail: str = ""


# --- web application -> controller -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebReport:
    """What the balancer of a web application, or the application itself, measured of its flows until `clock_s` of its
    own clock. `seq` grows with every report of one sender; what is not newer says nothing new."""

    KIND: ClassVar[str] = "web-report"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    app: str
    seq: int
    clock_s: float
    flows: tuple[FlowSample, ...]


# --- controller -> agent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A new leader introduces its term; the agent answers with a full report. `events_seen`: see Order."""

    KIND: ClassVar[str] = "hello"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    term: int
    events_seen: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """An action to carry out. `events_seen`: every guest event of this agent up to that number is in the store, so
    the agent may forget it."""

    KIND: ClassVar[str] = "order"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    action: Action
    events_seen: int = 0


@dataclass(frozen=True, slots=True)
class EventsSeen:
    """Acknowledges guest events when there is no order to carry the number."""

    KIND: ClassVar[str] = "events-seen"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    term: int
    events_seen: int


# --- controller -> itself ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """Published by each controller to the controllers' queue: who receives its own is the active consumer."""

    KIND: ClassVar[str] = "probe"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    controller: str
    number: int


# --- operator -> controller --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit a job. The same `request` id again is the same submission."""

    KIND: ClassVar[str] = "submit-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    job: Job


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Stop a job's VMs, discard its images and end it as cancelled."""

    KIND: ClassVar[str] = "cancel-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    job: str


@dataclass(frozen=True, slots=True)
class AddNode:
    """Let a node take part. Its facts come from its agent's inventory."""

    KIND: ClassVar[str] = "add-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    node: str


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Take an empty node out; refused while a VM is or may be on it."""

    KIND: ClassVar[str] = "remove-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    node: str


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Empty a node (`on`) or let it take VMs again (not `on`)."""

    KIND: ClassVar[str] = "drain-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    node: str
    on: bool


@dataclass(frozen=True, slots=True)
class ConfirmOff:
    """An operator's word that a silent node is off: its VMs are lost and may be restarted elsewhere."""

    KIND: ClassVar[str] = "confirm-off"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    node: str


@dataclass(frozen=True, slots=True)
class ApprovePlan:
    """Carry out the plan of the cycle decision that waits (automation level `confirm`)."""

    KIND: ClassVar[str] = "approve-plan"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    decision: int


@dataclass(frozen=True, slots=True)
class SetDeciding:
    """Stop (`on` false) or resume deciding; what was decided goes on converging. After a restore of the store the
    controller only observes: `on` lets it act again too."""

    KIND: ClassVar[str] = "set-deciding"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    on: bool


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Suspend a job's VMs to disk and keep them so (`on`), or let policies resume them (not `on`)."""

    KIND: ClassVar[str] = "hold-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    job: str
    on: bool


@dataclass(frozen=True, slots=True)
class MoveVm:
    """Migrate one VM to a node, keeping its CPU; refused where it does not fit or the node takes no VMs."""

    KIND: ClassVar[str] = "move-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    vm: str
    node: str


@dataclass(frozen=True, slots=True)
class AdoptVm:
    """Take over a running VM that is not ours as a job of one instance without declared work (best effort). It keeps
    its name; the job is complete when its guest ends, and is over when the VM is lost: it cannot be started anew."""

    KIND: ClassVar[str] = "adopt-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    node: str
    vm: str
    job: str


@dataclass(frozen=True, slots=True)
class ForgetVm:
    """Let go of a job's VMs without stopping them: they are counted from then on, never touched."""

    KIND: ClassVar[str] = "forget-vm"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    job: str


@dataclass(frozen=True, slots=True)
class SubmitWeb:
    """Submit a web application, or change the one of that name to what is given now. The same `request` id again is
    the same submission."""

    KIND: ClassVar[str] = "submit-web"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    app: WebApp


@dataclass(frozen=True, slots=True)
class RemoveWeb:
    """Stop every instance of a web application and forget it."""

    KIND: ClassVar[str] = "remove-web"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    app: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """Decide on the state as it is and answer with changes, refusals and plan; nothing is carried out or stored."""

    KIND: ClassVar[str] = "dry-run"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for a view: `what` is one of `QUERIES`, `subject` a name where the view is of one thing, `limit` the most
    rows (1 to 10,000). The answer is in `Reply.data`, plain data (docs/views.md has the keys)."""

    KIND: ClassVar[str] = "query"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    what: str
    subject: str = ""
    limit: int = 1000


QUERIES = (
    "status",
    "nodes",
    "node",
    "jobs",
    "job",
    "web-apps",
    "web-app",
    "vms",
    "plan",
    "plan-history",
    "doctor",
    "snapshot",
)


# --- controller -> operator and everyone -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to an operator's request: done, or the code and text of what refused it. `data`: a view that was asked
    for, as plain dictionaries, lists, numbers and strings."""

    KIND: ClassVar[str] = "reply"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: str
    done: bool
    code: str = ""
    detail: str = ""
    data: Any = None


@dataclass(frozen=True, slots=True)
class Happened:
    """Something happened: `what` is a stable code (`job-completed`), `subject` whom it concerns."""

    KIND: ClassVar[str] = "happened"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    at_s: float
    what: str
    subject: str
    term: int = 0
    detail: str = ""


AgentMessage = Report | Result | GuestEvent
AgentBound = Hello | Order | EventsSeen
Request = (
    SubmitJob
    | CancelJob
    | AddNode
    | RemoveNode
    | DrainNode
    | ConfirmOff
    | ApprovePlan
    | SetDeciding
    | HoldJob
    | MoveVm
    | AdoptVm
    | ForgetVm
    | SubmitWeb
    | RemoveWeb
    | DryRun
    | Query
)
Message = AgentMessage | WebReport | AgentBound | Probe | Request | Reply | Happened

MESSAGES: tuple[type[Message], ...] = (
    Report,
    Result,
    GuestEvent,
    Hello,
    Order,
    EventsSeen,
    Probe,
    SubmitJob,
    CancelJob,
    AddNode,
    RemoveNode,
    DrainNode,
    ConfirmOff,
    ApprovePlan,
    SetDeciding,
    HoldJob,
    MoveVm,
    AdoptVm,
    ForgetVm,
    WebReport,
    SubmitWeb,
    RemoveWeb,
    DryRun,
    Query,
    Reply,
    Happened,
)
