"""The ports: what a driver, bus, store or policy must do. Contracts are in the docstrings; `sim_backend.conformance`
runs them against every implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from shared.admission import Grid, Pool, SlotFigures, Standing, Verdict
from shared.agreement import Scheduling, Setup, WorkloadType
from shared.bus.topology import QueueSpec
from shared.coordination import Asked, GroupSizes, GroupView, InstancesView, ManagerView, Moment
from shared.effects import Balance, Balanced, GuestChanged, HostSetUp, Input, LeadTaken, Notify, Operated
from shared.effects import Effect as Effect
from shared.model import Action, Node, NodeSample, PowerOperation, SetupStep, VmStatus
from shared.webapp import Distribution, FlowSample


class Core(Protocol):
    """A state machine without I/O: same inputs, same effects. `now_s` never decreases."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        """Take one input and return what the shell must do, in order."""
        ...


class Clock(Protocol):
    """Where time comes from. Only `shared/clock.py` and virtual engines implement it."""

    def now_s(self) -> float:
        """Seconds since the epoch (real) or since the start of the world (virtual); never decreases."""
        ...


@runtime_checkable
class Hypervisor(Protocol):
    """One node's hypervisor.

    All operations are begun with `begin` and answered by an `Operated` from `poll`, one per `begin`, whose call_id is
    the action's id. A driver checks what only it can know (room, the VM's state) and is idempotent in this sense: an
    action that finds its post-condition met answers OK. Operations on different VMs run side by side; on one VM only
    one at a time (a second answers BUSY). A failed, aborted or refused operation leaves the VM as it was.
    Guest changes nobody asked for come from `poll` as `GuestChanged`; a driver that can tell what others did to a VM of
    ours says LEFT, STARTED or STOPPED, also of what it finds done when it begins anew; one that cannot, VANISHED.

    Virtual-time drivers use `now_s` and `next_due_s`; real ones work in threads of their own, call `wake` when `poll`
    has something and answer None from `next_due_s`.
    """

    def inventory(self) -> Node:
        """Capacity, labels and abilities of the node. What it lacks, it refuses: a driver that cannot SAVE freezes what
        is to be suspended, which keeps its memory. Raises TransientError when the hypervisor does not answer."""
        ...

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        """Every VM and every saved image on this node, ours or not, with `busy` set where an operation runs."""
        ...

    def begin(self, action: Action, now_s: float) -> None:
        """Begin an action; never blocks, never raises for anything the action says."""
        ...

    def abort(self, vm: str, now_s: float) -> None:
        """Give up the operation under way on `vm` (answer TIMED_OUT); nothing happens when there is none."""
        ...

    def forget(self, vm: str, now_s: float) -> None:
        """Remove the definition of an ENDED or CRASHED VM; anything else is left alone."""
        ...

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        """What has happened up to `now_s` and was not returned before, in the order in which it happened."""
        ...

    def next_due_s(self) -> float | None:
        """When `poll` will next have something, None if that is not known or nothing is under way."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """Reads the node's own counters."""

    def sample(self, now_s: float) -> NodeSample:
        """One reading; fractions cover the time since the previous call (0 at the first)."""
        ...


class Delivery(Struct, frozen=True, gc=False):
    """A message for a consumer. `tag` is for `acknowledge` and `dead_letter`; `sender` was checked by the broker.
    `arrived_s`: when it came, by the bus's own clock (`Bus.now_s`), however long it waited since."""

    tag: int
    queue: str
    routing_key: str
    sender: str
    body: bytes
    redelivered: bool = False
    reply_to: str = ""
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Confirm:
    """The broker's answer to a `publish` with an id: not `ok`, it may not have taken the message; send it again."""

    publish_id: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is gone; everything unacknowledged will be delivered again on the next one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """What came for a consumer is not handed out: it was too long, or its sender did not say who it is (`sender` ""),
    and went to the dead letters by itself; or it was beyond its sender's share, and is gone. `count`: of so many.
    `gone`: of what is beyond the share some that want an answer."""

    queue: str
    sender: str
    reason: str
    count: int = 1
    gone: tuple[Delivery, ...] = ()


BusEvent = Delivery | Confirm | Discarded | Lost


class Bus(Protocol):
    """One connection of one user to the broker.

    At least once: a delivery that is not acknowledged before the connection ends comes again, marked redelivered, at
    its old place in the queue. Order: messages of one publisher to one queue arrive in the order of publishing (faults
    aside). Tags are unique within a process. Once the connection has ended, `acknowledge` and `dead_letter` do nothing
    and every other call raises BusUnavailable. A queue's TTL and length drop the oldest unseen. Undeliverable or
    undecodable messages are republished to the dead queue by `dead_letter`, with reason and origin, body cut at 64 KiB.
    """

    @property
    def user(self) -> str:
        """The name the broker knows this connection by; it becomes `Delivery.sender`."""
        ...

    def declare(self, queue: QueueSpec) -> None:
        """Make a queue and its bindings; the same again is fine, another shape raises PermanentError."""
        ...

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Send a body, at most as long as the user's role may (`shared.bus.shares`). With an id a `Confirm` follows.
        Raises BusUnavailable when closed."""
        ...

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Begin to receive from a queue, at most `prefetch` unacknowledged at a time (no limit when the queue is
        not `acknowledged`; its deliveries can be dead-lettered until the next `poll`). Raises PermanentError when
        there is no such queue."""
        ...

    def acknowledge(self, tag: int) -> None:
        """The delivery is dealt with. A tag of an earlier connection is ignored."""
        ...

    def dead_letter(self, tag: int, reason: str) -> None:
        """Keep the delivery in the dead queue with the reason, where the user may write there, then acknowledge it."""
        ...

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """What has come in, waiting at most `timeout_s` for the first: a part, as `shared.bus.inbox` hands it out, so
        that no sender keeps the others waiting. What is too long for its sender or beyond its share comes as
        `Discarded` and not as a delivery."""
        ...

    def now_s(self) -> float:
        """The bus's own clock, in seconds, by which deliveries are stamped; it does not go back."""
        ...

    def charge(self, sender: str, busy_s: float) -> None:
        """Count work on a sender's deliveries towards its share; from any thread."""
        ...

    def close(self) -> None:
        """End the connection; its exclusive queues go, its unacknowledged deliveries return."""
        ...


class Journal(Protocol):
    """An agent's durable memory."""

    def append(self, record: Any) -> None:
        """Make a record durable before returning. Raises StoreUnavailable when the disk is full."""
        ...

    def records(self) -> tuple[Any, ...]:
        """Every record appended so far, oldest first (an implementation may compact to an equivalent list)."""
        ...


class Store(Protocol):
    """The controller's durable memory. Every write names the term of its writer."""

    def take_lead(self, controller: str) -> LeadTaken:
        """Raise the term by one for this controller and read everything, in one transaction."""
        ...

    def write(self, term: int, records: tuple[Any, ...]) -> None:
        """Store all records or none. Raises StaleTerm when the term was raised since, StoreUnavailable otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class PowerAnswer:
    """How a power operation went: `detail` says why not, or what the driver's command printed (at most 4 KiB)."""

    ok: bool
    detail: str = ""


class PowerDriver(Protocol):
    """Brings nodes into power and out of it, and proves them off."""

    @property
    def name(self) -> str:
        """The driver's registered name: durations are learnt by it."""
        ...

    @property
    def does(self) -> frozenset[PowerOperation]:
        """The operations that it can be asked for."""
        ...

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Carry out one operation, within a time limit of the driver's own; idempotent, also after a crash half-way.

        FENCE is ok only when the node is proven off; the others when they were done or are under way, so that the
        node's agent, or its silence, tells the rest. One at a time for each node. Raises TransientError when it could
        not even be tried, ContractViolation for an operation that it does not do.
        """
        ...


class SetupDriver(Protocol):
    """Carries out setup policies on the agent's own host."""

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Carry out one, within its time limit; idempotent, also after a crash half-way. Never raises for anything that
        the setup says: a command that the host does not know, fails or takes too long is an answer."""
        ...


class LoadBalancer(Protocol):
    """Spreads the requests to web applications over their instances."""

    @property
    def name(self) -> str:
        """The driver's registered name."""
        ...

    @property
    def measures(self) -> bool:
        """Whether it can say what requests have met with."""
        ...

    def set_backends(self, order: Balance) -> Balanced:
        """Serve an application by these instances and no others, from now on; the same again changes nothing. One that
        is drained gets no new requests and keeps those that it has. Raises TransientError when the balancer could not
        be reached: everything stays as it was."""
        ...

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """All requests to an application since the call before, as a flow named "" (None: there was none, or the
        counters began anew). Raises TransientError when the balancer could not be reached, ContractViolation where it
        does not measure."""
        ...


class NotifyChannel(Protocol):
    """A way to tell somebody. Made with the name of its keys in the configuration and a table of them; raises
    InvalidInput then for what is wrong with them. Used by one thread at a time."""

    def send(self, message: Notify) -> str:
        """Send a message within a time limit; returns what went wrong beside it ("": nothing). The same message may be
        given again after a failure. Raises TransientError when it may work later, PermanentError when it will not."""
        ...


@dataclass(frozen=True, slots=True)
class Needs:
    """What a policy demands of the data before it may act: the share of nodes reporting (0..1) and the age in
    seconds of the oldest report of an up node."""

    reporting_frac: float = 0.0
    report_age_s: float = float("inf")


class AnyPolicy(Protocol):
    """A pure decision of any role. One class per policy, without state of its own; found by name in its role's
    registry.

    `decide` never changes its arguments, uses no clock, I/O or global random state and returns the same for the same
    arguments. `state` is what it returned last time (None the first time) and must survive a round trip through
    msgpack.
    """

    @property
    def name(self) -> str:
        """The name in configuration and on the command line."""
        ...

    @property
    def needs(self) -> Needs:
        """Without these the loop keeps the last decision and says why."""
        ...

    @property
    def event_driven(self) -> bool:
        """Whether it also acts when a job arrives or ends, not only at each cycle; sizes change at cycles only."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...


class Policy(AnyPolicy, Protocol):
    """A policy that names every workload it does not serve in a refusal."""

    def decide(self, snapshot: Any, state: Any, params: Mapping[str, Any]) -> tuple[Any, Any]:
        """From a `Snapshot` to (`PlacementDecision`, new state)."""
        ...


class Shelf(Protocol):
    """Where provisioning policies find tables that take long to compute."""

    def __call__(self, spec: Any, /) -> Any:
        """The `SizeTable` of a `TableSpec` (daemons.models.deadline.rules), None while it is not there yet; that it
        was asked for is noted, so that it will be."""
        ...


class ProvisioningPolicy(AnyPolicy, Protocol):
    """A policy that decides how many nodes are in service, and which."""

    @property
    def covers_all(self) -> bool:
        """Whether its answer stands; else nodes are added for what is of no window's queue."""
        ...

    def decide(self, snapshot: Any, state: Any, params: Mapping[str, Any], shelf: Shelf) -> tuple[Any, Any]:
        """From a `Snapshot` to (`ProvisioningDecision`, new state). Pure but for what `shelf` remembers."""
        ...


class CoordinationPolicy(Protocol):
    """How many units each environment of a group has (phoenixcloud.txt section 5). Pure, without state, and cheap: it
    is asked in the controller itself, at every change of a web environment's demand. Found by name in its role's
    registry.
    """

    @property
    def name(self) -> str:
        """The name in agreements and scenarios: their `model`."""
        ...

    @property
    def asked_at_arrivals(self) -> bool:
        """Whether it is asked (DEMAND) when jobs have arrived, too."""
        ...

    def objection(self, lower: int, upper: int | None) -> str:
        """Why an agreement of this model cannot have these bounds ("": it can)."""
        ...

    def firm(self, lower: int, upper: int | None) -> int:
        """Up to how many units an environment with these bounds comes before others."""
        ...

    def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
        """The sizes that the parties of a group are to have from now on, as if the provider had no other group. It
        never names more units for a group than the upper bounds of its parties together."""
        ...


class AdmissionPolicy(Protocol):
    """Whether a reservation may stand beside those that do (statistical-assurance.txt, sections 3 to 5). Pure, without
    state; found by name in its role's registry.

    `memory` is what it returned last time, None at first and whenever that was dropped: with it the same answer comes
    sooner. It is not kept on disk. `standing` comes in the order in which they were admitted, so that what is known of
    the first ones serves for the next request; a reservation that is to be changed is not among them.
    """

    @property
    def name(self) -> str:
        """The name in configuration and on the command line."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...

    def admit(
        self,
        request: Standing,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        now_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[Verdict, Any]:
        """What becomes of a request, and the new memory. With what is admitted every promise that held in a slot holds
        there still; one unit more of a resource than is offered would break one. Time before `now_s` counts for
        nothing."""
        ...

    def figures(
        self,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        from_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[tuple[Grid, tuple[SlotFigures, ...]], Any]:
        """What the promises need in every slot and of every pool, as reservations and pools are at `from_s`, and what
        they leave for best effort; and the new memory."""
        ...


@runtime_checkable
class EnvironmentType(Protocol):
    """What a type of environment does its own way (phoenixcloud.txt section 4.3, figure 5): its manager, its scheduler
    and, for web applications, how instances are adjusted and requests distributed. Found by name among the entry points
    `trimtab.environments`, made without arguments. What all types have in common is none of its business.

    Pure, without state: the same answer for the same arguments, which it does not change; terms that it accepts are
    plain data that the bus can carry. It is asked in the controller itself, so it must be cheap: O(jobs that wait).
    What raises, or answers what cannot be, changes nothing and is told as the event `coordination-failed`.
    """

    @property
    def name(self) -> str:
        """The name in agreements: their `workload`."""
        ...

    @property
    def workload(self) -> WorkloadType:
        """What is submitted to it, jobs or web applications, and on which side of a pair it shares its units."""
        ...

    @property
    def scheduling(self) -> Scheduling:
        """The scheduler where the agreement names none."""
        ...

    @property
    def distribution(self) -> Distribution:
        """How requests are distributed where the application does not say."""
        ...

    @property
    def terms(self) -> Mapping[str, str]:
        """The keys that an agreement's table `[terms]` may have, and what each means: unit, default."""
        ...

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` with one problem for each term of an agreement that it does not know, cannot use, or
        misses."""
        ...

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """How many units its manager wants to have, 0 to `UNITS_MAX`: for jobs at its timer, for web applications
        whenever what their instances fill has changed; what it is granted is the business of its model and the
        provider. Where it owns more than that, it gives back idle units alone: of a batch environment never less than
        what is not idle."""
        ...

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """One instance of a web application more (1), one less (-1), or as many as there are (0): never away from
        what lies between `view.least` and `view.most`. Not asked where the use of CPU is not known."""
        ...


class Analyser(Protocol):
    """The objective analyser of a deadline window (batch-provisioning.txt section 3.2.3): metric in, probability of
    breach by number of servers out. Pure; found by name among the entry points `trimtab.analysers`."""

    @property
    def name(self) -> str:
        """The name in the configuration of windows."""
        ...

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for parameters that it does not know or cannot use; asked once, at start-up."""
        ...

    def breach(self, window: Any, servers: Sequence[int], params: Mapping[str, Any]) -> Sequence[float]:
        """Of a `WindowView`: the probability (0..1) that its objective is missed with each number of reference nodes
        from now on; never rises with their number."""
        ...
