"""Every message of the bus. A message is a frozen value; `codec.py` turns it into bytes and back.

`KIND` and `VERSION` of each class go into the envelope. A field may be added with a default under the same version
(an older reader ignores nothing: it refuses what it does not know, so a new field also raises VERSION); the codec
accepts every version from `OLDEST` to `VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from shared.protocol.account_messages import Assess as Assess
from shared.protocol.account_messages import OnBehalf as OnBehalf
from shared.protocol.account_messages import RejectPlan as RejectPlan
from shared.protocol.operator_messages import BUSY as BUSY
from shared.protocol.operator_messages import OPERATOR_MESSAGES
from shared.protocol.operator_messages import PAGED_QUERIES as PAGED_QUERIES
from shared.protocol.operator_messages import QUERIES as QUERIES
from shared.protocol.operator_messages import ActivateEnvironment as ActivateEnvironment
from shared.protocol.operator_messages import AddNode as AddNode
from shared.protocol.operator_messages import AdoptVm as AdoptVm
from shared.protocol.operator_messages import ApprovePlan as ApprovePlan
from shared.protocol.operator_messages import CancelJob as CancelJob
from shared.protocol.operator_messages import CheckReservation as CheckReservation
from shared.protocol.operator_messages import CheckRules as CheckRules
from shared.protocol.operator_messages import CheckVmFit as CheckVmFit
from shared.protocol.operator_messages import ConfirmGone as ConfirmGone
from shared.protocol.operator_messages import ConfirmOff as ConfirmOff
from shared.protocol.operator_messages import ConsentEnvironment as ConsentEnvironment
from shared.protocol.operator_messages import CreateEnvironment as CreateEnvironment
from shared.protocol.operator_messages import DeactivateEnvironment as DeactivateEnvironment
from shared.protocol.operator_messages import DestroyEnvironment as DestroyEnvironment
from shared.protocol.operator_messages import DrainNode as DrainNode
from shared.protocol.operator_messages import DropNotification as DropNotification
from shared.protocol.operator_messages import DryRun as DryRun
from shared.protocol.operator_messages import HoldJob as HoldJob
from shared.protocol.operator_messages import MoveVm as MoveVm
from shared.protocol.operator_messages import ProfileNode as ProfileNode
from shared.protocol.operator_messages import Query as Query
from shared.protocol.operator_messages import ReconcileVm as ReconcileVm
from shared.protocol.operator_messages import ReleaseVm as ReleaseVm
from shared.protocol.operator_messages import RemoveNode as RemoveNode
from shared.protocol.operator_messages import RemoveWeb as RemoveWeb
from shared.protocol.operator_messages import RepairNode as RepairNode
from shared.protocol.operator_messages import Request as Request
from shared.protocol.operator_messages import ReserveEnvironment as ReserveEnvironment
from shared.protocol.operator_messages import ResizeEnvironment as ResizeEnvironment
from shared.protocol.operator_messages import RetryNotification as RetryNotification
from shared.protocol.operator_messages import SetDeciding as SetDeciding
from shared.protocol.operator_messages import SubmitJob as SubmitJob
from shared.protocol.operator_messages import SubmitWeb as SubmitWeb
from shared.protocol.operator_messages import TryChannel as TryChannel
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.health import Health, Target
from shared.values.host_setup import Setup
from shared.values.lease import SeenLease
from shared.values.load_vector import StandardPace, StandardRun
from shared.values.migration_terms import MigrationFigures
from shared.values.nodes import Node, NodeSample, SetupStep, SleepMode
from shared.values.scalars import Number, Whole
from shared.values.texts import Label, Prose, Word
from shared.values.vms import VmStatus
from shared.values.web_app import FlowSample


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An action that an agent has accepted and not finished."""

    id: Word
    kind: ActionKind
    vm: Label
    to_node: Word = ""


# --- agent -> controller -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """A guest ended, vanished, came or went (`GuestChange`). `event` numbers the agent's events from 1 without gaps,
    for ever.

    `seq` is the agent's message sequence (see Report). `status` is the VM's last known status, with its counters.
    `detail` says for people how it ended, where it went or who did it, where that is known.
    """

    KIND: ClassVar[str] = "guest-event"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: int
    clock_s: float
    event: int
    change: GuestChange
    status: VmStatus
    detail: Prose = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A node's state at `clock_s` of the agent's clock.

    `seq` grows with every message of the agent, across its restarts: what carries a lower one than the controller has
    seen from the node says nothing new about its VMs. `vms` is complete. `events` are the guest events that no
    controller has acknowledged yet; a VM named there is over, not lost. `inventory` comes with the first report of an
    agent, after a hello and when it changed, else None. `term` is the highest the agent has seen. `health`: one row for
    each instance that it watches, `watch`: the number of the `Watch` that it goes by (0: none in this process).
    `leases`: those of other nodes that were not renewed as they should be.
    """

    KIND: ClassVar[str] = "report"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: Whole
    clock_s: Number
    term: Whole
    sample: NodeSample
    vms: tuple[VmStatus, ...]
    in_progress: tuple[UnderWay, ...] = ()
    events: tuple[GuestEvent, ...] = ()
    inventory: Node | None = None
    health: tuple[Health, ...] = ()
    watch: Whole = 0
    leases: tuple[SeenLease, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How an action ended. `status` is the VM on this node afterwards (None: not here), with its last counters;
    after a migration away or a suspend it carries the final counters. `detail` is for people. `definition`: of an
    adopted VM, in the answer to ADOPT, without our metadata, in pieces (none: there is none, or it is too long).
    `migrated`: how a migration went, also one that was aborted (None: it never began, or was not measured).
    """

    KIND: ClassVar[str] = "result"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: int
    clock_s: float
    term: int
    action: Word
    kind: ActionKind
    vm: Label
    outcome: Outcome
    status: VmStatus | None = None
    final: VmStatus | None = None
    detail: Prose = ""
    definition: tuple[Prose, ...] = ()
    migrated: MigrationFigures | None = None


@dataclass(frozen=True, slots=True)
class NoReading:
    """Takes the place of a report while the node's hypervisor cannot be read: its agent is there, `detail` is what the
    hypervisor says. `boot_id` ("": an older agent), `clock_s`: as in Report."""

    KIND: ClassVar[str] = "no-reading"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: str
    detail: str
    boot_id: Word = ""
    clock_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SleepAnswer:
    """Whether the host goes to sleep as it was asked to (`ok`), or why not. `seq`: see Report."""

    KIND: ClassVar[str] = "sleep-answer"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: int
    clock_s: float
    request: Word
    ok: bool
    detail: Prose = ""


@dataclass(frozen=True, slots=True)
class SetUpAnswer:
    """How a setup of the node went: `ok`, or `output` says why not; else it is what its command printed (at most 4
    KiB). `seq`: see Report."""

    KIND: ClassVar[str] = "set-up-answer"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: int
    clock_s: float
    request: Word
    ok: bool
    output: Prose = ""


@dataclass(frozen=True, slots=True)
class StandardJobEnded:
    """How a standard job went: what each copy did (`ok`), or `detail` says why not. `seq`: see Report."""

    KIND: ClassVar[str] = "standard-job-ended"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    boot_id: Word
    seq: int
    clock_s: float
    request: Word
    ok: bool
    paces: tuple[StandardPace, ...] = ()
    detail: Prose = ""


# --- web application -> controller -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebReport:
    """What the balancer of a web application, or the application itself, measured of its flows until `clock_s` of its
    own clock. `seq` grows with every report of one sender; what is not newer says nothing new."""

    KIND: ClassVar[str] = "web-report"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    app: Word
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


@dataclass(frozen=True, slots=True)
class GoToSleep:
    """Suspend or switch off the agent's own host. Refused for an older term, another boot, after `expires_at_s`
    (agent's clock) and while any VM is alive on it, ours or not."""

    KIND: ClassVar[str] = "go-to-sleep"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: Word
    term: int
    boot_id: Word
    expires_at_s: float
    mode: SleepMode


@dataclass(frozen=True, slots=True)
class SetUpNode:
    """Carry out a provisioning hook on the agent's own host: `step` of the reassignment of the node to or from
    `environment`. A repeated `request` gets the same answer. It is neither followed nor answered for an older term,
    another boot, after `expires_at_s` (agent's clock), and while another one is in progress: the controller requests it
    again. Refused while a managed VM is alive on the host, and for a command that the agent does not know."""

    KIND: ClassVar[str] = "set-up-node"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: Word
    term: int
    boot_id: Word
    expires_at_s: float
    environment: Word
    step: SetupStep
    setup: Setup


@dataclass(frozen=True, slots=True)
class Watch:
    """Check the health of these instances and no others, each by its probe, while its VM of that generation runs here.
    `number` grows with every one that a controller sends to a node. One of an older term, or with an older number of
    the same term, is not followed. Kept in the agent's memory alone: a restarted agent reports `watch` 0 and receives
    the list again."""

    KIND: ClassVar[str] = "watch"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    term: int
    number: int
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortAction:
    """Abort a migration that the agent has in hand; the answer to its order says what became of it. It is neither
    followed nor answered for an older term, another boot, or an action that is over or is no migration."""

    KIND: ClassVar[str] = "abort-action"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    node: Word
    term: int
    boot_id: Word
    action: Word


@dataclass(frozen=True, slots=True)
class RunStandardJob:
    """Run a calibration benchmark on the agent's own host, beside everything that runs there. One at a time. Refused
    while another one runs, for an older term, another boot, after `expires_at_s` (agent's clock), and if the agent's
    configuration does not allow it. It is not journaled: a run cut short by the agent's end is never answered."""

    KIND: ClassVar[str] = "run-standard-job"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    node: Word
    term: int
    boot_id: Word
    expires_at_s: float
    run: StandardRun


# --- controller -> itself ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """Published by each controller to the controllers' queue: who receives its own is the active consumer."""

    KIND: ClassVar[str] = "probe"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    controller: Word
    number: int


# --- controller -> operator and everyone -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to an operator's request: done, or the code and text of what refused it. `data`: a view that was asked
    for, as plain dictionaries, lists, numbers and strings."""

    KIND: ClassVar[str] = "reply"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    done: bool
    code: Word = ""
    detail: Prose = ""
    data: Any = None


@dataclass(frozen=True, slots=True)
class Happened:
    """Something happened: `what` is a stable code (`job-completed`), `subject` whom it concerns."""

    KIND: ClassVar[str] = "happened"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    at_s: float
    what: Word
    subject: str
    term: int = 0
    detail: Prose = ""


AgentMessage = Report | NoReading | Result | GuestEvent | SleepAnswer | SetUpAnswer | StandardJobEnded
AgentBound = Hello | Order | EventsSeen | GoToSleep | SetUpNode | Watch | RunStandardJob | AbortAction
Message = AgentMessage | WebReport | AgentBound | Probe | Request | OnBehalf | Reply | Happened

MESSAGES: tuple[type[Message], ...] = (
    Report,
    NoReading,
    Result,
    GuestEvent,
    SleepAnswer,
    SetUpAnswer,
    StandardJobEnded,
    Hello,
    Order,
    EventsSeen,
    GoToSleep,
    SetUpNode,
    Watch,
    RunStandardJob,
    AbortAction,
    Probe,
    WebReport,
    *OPERATOR_MESSAGES,
    Reply,
    Happened,
)
