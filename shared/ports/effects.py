"""What the cores take in and what they ask for: the whole vocabulary between a state machine and its shell.

`core.handle(input, now_s)` returns a list of effects. The shell carries them out **in order**; if the process dies
between two of them the later ones have not happened. Effects that take time (`Publish` with an id, `Write`,
`TakeLead`, `Compute`, `Operate`, `Observe`, `Power`, `SetUpHost`, `Balance`, `Measure`, `ProbeInstance`, `RunStandard`,
`ReadPrices`, `Scrape`, `Notify`) come back as the input named in their docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from shared.ports.audit import Audited as Audited
from shared.ports.notices import Notice as Notice
from shared.ports.notices import Notified as Notified
from shared.ports.notices import Notify as Notify
from shared.protocol.messages import Message
from shared.protocol.topology import QueueSpec
from shared.values.actions import Action, GuestChange, Outcome
from shared.values.health import Probe, Target
from shared.values.host_setup import Setup
from shared.values.lease import SeenLease
from shared.values.load_vector import StandardPace, StandardRun
from shared.values.migration_terms import MigrationFigures
from shared.values.nodes import Node, NodeSample, PowerOperation, SetupStep, SleepMode
from shared.values.vms import VmStatus
from shared.values.web_app import FlowSample, Limits, Serving

# --- inputs ------------------------------------------------------------------------------------------------------


class Received(Struct, frozen=True, gc=False):
    """A decoded message. `delivery` is None for queues that need no acknowledgement (reports, replies).
    `sender` is the broker-checked user; `reply_to` the asker's queue ("" when no answer is wanted).
    `via`: the broker-checked user where `sender` is the account on whose behalf it asks, with the reason `why`.
    `arrived_s`: when it came to this process (None: now)."""

    delivery: int | None
    sender: str
    message: Message
    reply_to: str = ""
    via: str = ""
    why: str = ""
    arrived_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What a user of the broker sent is no message ("": it did not say who it is), or more than its share; `count`: of
    so many. `queue`: where from. `unanswered`: requests among these by id, each with the queue for its answer."""

    sender: str
    reason: str
    count: int = 1
    queue: str = ""
    unanswered: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """Answer to a `Publish` with an id: `ok` when the broker has taken responsibility for the message."""

    publish_id: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The bus connection was lost and is up again: unacknowledged deliveries will come once more with new ids,
    unanswered publishes are unknown."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer set with `StartTimer` is due."""

    name: str


@dataclass(frozen=True, slots=True)
class Operated:
    """Answer to `Operate`. `status`: the VM on this node now (None: not here); `final`: its last counters where it
    left or stopped executing; `definition`: that of an adopted VM, without our metadata, in the answer to ADOPT;
    `migrated`: how a migration went."""

    call_id: str
    outcome: Outcome
    status: VmStatus | None = None
    final: VmStatus | None = None
    detail: str = ""
    definition: str = ""
    migrated: MigrationFigures | None = None


@dataclass(frozen=True, slots=True)
class GuestChanged:
    """The hypervisor saw a guest end, vanish, arrive or leave, or somebody else start or stop it. `status` is its last
    status, with counters (of one that left, as it was here); `detail` how it ended, where it went, or who did it, as
    far as that is known."""

    change: GuestChange
    status: VmStatus
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """Answer to `Observe`: the node's own sample, every VM, and its capacity. `leases`: see `Report`."""

    sample: NodeSample
    vms: tuple[VmStatus, ...]
    inventory: Node
    leases: tuple[SeenLease, ...] = ()


@dataclass(frozen=True, slots=True)
class Unobserved:
    """The hypervisor could not be read and says why in `detail`; what was asked for with `Observe` is owed still."""

    detail: str


@dataclass(frozen=True, slots=True)
class Computed:
    """Answer to `Compute`: `outcome` is what the computation returned, None when it failed or ran out of time."""

    compute_id: int
    outcome: Any
    error: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """Answer to `Write`. Not `ok`: nothing was written; `stale` when another controller has raised the term."""

    write_id: int
    ok: bool
    stale: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LeadTaken:
    """Answer to `TakeLead`: the term now ours and everything in the store, read in the same transaction.
    `term` 0: the store could not be reached; try again."""

    term: int
    image: Any = None


@dataclass(frozen=True, slots=True)
class PowerDone:
    """Answer to `Power`: for FENCE, `ok` means the node is proven off; for the others that it was done or begun.
    `detail`: why not, or what the driver's command printed."""

    node: str
    operation: PowerOperation
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SleepEnded:
    """Answer to `SleepHost`, where the process lives to hear it: the host has slept and is awake again (`ok`), or did
    not go to sleep in time, and why."""

    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StandardRan:
    """Answer to `RunStandard`: what each copy did (`ok`), or why it could not be run."""

    request: str
    ok: bool
    paces: tuple[StandardPace, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HostSetUp:
    """Answer to `SetUpHost`: `ok`, and what the command printed, or why it failed (at most 4 KiB)."""

    request: str
    ok: bool
    output: str = ""


@dataclass(frozen=True, slots=True)
class Balanced:
    """Answer to `Balance`: the balancer serves these instances and no others (`ok`), or why not. `drained`: of those
    that were to be drained, the ones that have no request left."""

    app: str
    ok: bool
    drained: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """Answer to `ProbeInstance`: whether it serves, and why not; `ok` with a detail: why that cannot be found out."""

    vm: str
    generation: int
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scraped:
    """Answer to `Scrape` and `Measure`: what the counters say of the time since the reading before (no flows: there is
    none, or no more than one). `error`: why there is no reading ("": there is)."""

    app: str
    at_s: float
    flows: tuple[FlowSample, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class PricesRead:
    """Answer to `ReadPrices`: the begin of each period in seconds since the epoch, rising, and its price per kWh.
    `until_s`: the end of the last one. `error`: why there is none ("": there is)."""

    starts_s: tuple[float, ...] = ()
    per_kwh: tuple[float, ...] = ()
    until_s: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Retention has deleted from the store the jobs that were over before `before_s` and are nowhere any more, and the
    environments that were destroyed before then."""

    before_s: float


Input = (
    Received
    | Unreadable
    | Published
    | Reconnected
    | TimerFired
    | Operated
    | GuestChanged
    | Observed
    | Unobserved
    | Computed
    | Written
    | LeadTaken
    | PowerDone
    | SleepEnded
    | HostSetUp
    | Balanced
    | Probed
    | StandardRan
    | Scraped
    | PricesRead
    | Notified
    | Pruned
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a message. With a `publish_id` it is confirmed and comes back as `Published`; without, it may be lost.
    Agents and controllers use ids that grow within the life of the process. `body`: the message as it is sent, where
    somebody has made that already."""

    exchange: str
    routing_key: str
    message: Message
    publish_id: int | None = None
    body: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge a processed delivery: its data is stored elsewhere."""

    delivery: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The delivery cannot be handled: keep it in the dead-letter queue with the reason and acknowledge it."""

    delivery: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Fire `name` at `at_s`, replacing an earlier setting of the same name. Timers due at one instant fire after
    everything else that happens at that instant, in the order of their setting."""

    name: str
    at_s: float


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Forget the timer."""

    name: str


@dataclass(frozen=True, slots=True)
class Operate:
    """Ask the hypervisor to carry out an action. Comes back as `Operated` with `call_id` = the action's id."""

    action: Action


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort the operation in progress on a VM; its `Operated` comes with TIMED_OUT."""

    vm: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove an ENDED or CRASHED VM's definition from the hypervisor. Forgetting what is not there is fine."""

    vm: str


@dataclass(frozen=True, slots=True)
class Observe:
    """Read the sampler and the hypervisor. Comes back as `Observed`."""


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Append a record to the agent's journal; durable before the next effect is begun."""

    record: Any


@dataclass(frozen=True, slots=True)
class Write:
    """Store records on condition that the store's term is still `term`. Comes back as `Written`."""

    write_id: int
    term: int
    records: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TakeLead:
    """Raise the term in the store and read everything, in one transaction. Comes back as `LeadTaken`."""

    controller: str


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a pure computation within `limit_s`. Comes back as `Computed`."""

    compute_id: int
    request: Any
    limit_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """Keep what a decision was computed from beside the history: its `request`, and `notes`, plain data about what came
    of it. `number`, `at_s`, `term`: the decision's."""

    number: int
    at_s: float
    term: int
    request: Any
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Power:
    """Ask the power driver for an operation on a node. Comes back as `PowerDone`. `mac_addresses`: the node's."""

    node: str
    operation: PowerOperation
    mac_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SleepHost:
    """The agent's own host goes to sleep or is switched off. Comes back as `SleepEnded` in a process that lives on."""

    mode: SleepMode


@dataclass(frozen=True, slots=True)
class SetUpHost:
    """Carry out a setup policy on the agent's own host. Comes back as `HostSetUp`."""

    request: str
    environment: str
    step: SetupStep
    setup: Setup


@dataclass(frozen=True, slots=True)
class Backend:
    """One instance of a web application before a load balancer: its VM, the node it is on, whether it is to take no new
    requests any more (`drain`), the address at which it answers ("": not known), and its weight among the others."""

    vm: str
    node: str
    drain: bool = False
    address: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Balance:
    """Have the load balancer of a web application serve these instances and no others. Comes back as `Balanced`.
    serving: how requests reach it, None: the balancer knows, or, without instances, the application is gone. limits:
    for what `serving` leaves open. probe: how its instances are watched, where the balancer can do the same (None: it
    watches them in its own way)."""

    app: str
    backends: tuple[Backend, ...]
    serving: Serving | None = None
    limits: Limits = field(default_factory=Limits)
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the load balancer of a web application what its requests have met with since it was asked before. Comes back
    as `Scraped`, with one flow named "" for all of them."""

    app: str


@dataclass(frozen=True, slots=True)
class ProbeInstance:
    """Probe once whether an instance on the agent's own host serves. `address`: where the instance answers. Comes back
    as `Probed`."""

    target: Target
    address: str


@dataclass(frozen=True, slots=True)
class RunStandard:
    """Run a calibration benchmark on the agent's own host, in processes of its own. Comes back as `StandardRan` soon
    after `run.run_s`, in every case."""

    request: str
    run: StandardRun


@dataclass(frozen=True, slots=True)
class ReadPrices:
    """Read the price series that is configured. Comes back as `PricesRead`."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Read the counters of a web application. Comes back as `Scraped`, within a time limit. `percentiles`: for which
    share of requests (0..1) the response time is wanted, by flow."""

    app: str
    url: str
    percentiles: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process at once (another controller is the leader). Its unacknowledged deliveries go back to the broker,
    and its supervisor restarts it as a standby."""

    reason: str


@dataclass(frozen=True, slots=True)
class Declare:
    """Make a queue (a node that is added gets its own). Declaring what is there already is fine."""

    queue: QueueSpec


Effect = (
    Publish
    | Audited
    | Declare
    | Exit
    | Acknowledge
    | DeadLetter
    | StartTimer
    | StopTimer
    | Operate
    | Abort
    | Forget
    | Observe
    | WriteJournal
    | Write
    | TakeLead
    | Compute
    | Record
    | Power
    | SleepHost
    | SetUpHost
    | Balance
    | Measure
    | ProbeInstance
    | RunStandard
    | ReadPrices
    | Scrape
    | Notify
)
