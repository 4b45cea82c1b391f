"""A harness for one controller core: carries out its effects by hand, so that a test reads as a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from daemons.controller.core.controller import Controller
from daemons.controller.core.wiring import MakeFeature
from daemons.decision.admitting import compute
from daemons.decision.tables.memory import MemoryTables
from daemons.values.records.cluster import Deleted
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.policy_api.policies import TableCache
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import GuestEvent, Happened, Hello, Message, Order, Reply, Report, Result, Watch
from shared.protocol.operator_messages import AddNode, Request
from shared.values.actions import COMING, Action, ActionKind, GuestChange, Outcome
from shared.values.jobs import Job, Stage
from shared.values.nodes import Ability, Node, NodeSample
from shared.values.vms import VmState, VmStatus
from sim_backend.fakes.store import MemoryStore

OPERATOR = "operator.test"
ON_A_VM = frozenset({ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.SET_CPU, ActionKind.MIGRATE})


def job(name: str = "j", *, work: float = 1e6, instances: int = 1, memory_mib: int = 1000, **fields: Any) -> Job:
    """A job that can use 1,000 MHz."""
    return Job(name, (Stage(work, 1000.0, memory_mib=memory_mib),), instances=instances, **fields)


class ControllerHarness:
    """Runs a controller to the end of each instant; keeps what it sent. It places first-fit unless told otherwise.

    `boots`, `seqs` and `vms` are what the nodes' agents would say; a test changes them and calls `report`.
    """

    def __init__(
        self,
        nodes: Iterable[str] = ("n1", "n2"),
        store: MemoryStore | None = None,
        plug_ins: Sequence[MakeFeature] = (),
        **settings: Any,
    ) -> None:
        self.store = store or MemoryStore(Deleted)
        settings.setdefault("placement", PolicyChoice("first-fit"))
        self.controller = Controller("a", ControllerSettings(**settings), plug_ins)
        self.now_s = 0.0
        self.orders: list[Action] = []
        self.hellos: list[tuple[str, Hello]] = []
        self.watches: list[tuple[str, Watch]] = []
        self.replies: list[Reply] = []
        self.events: list[Happened] = []
        self.acknowledged: list[int] = []
        self.dead: list[tuple[int, str]] = []
        self.exits: list[str] = []
        self.powers: list[fx.Power] = []
        self.balances: list[fx.Balance] = []
        self.timers: dict[str, float] = {}
        self.store_fails: tuple[bool, str] | None = None
        self.compute = True
        self.table_cache: TableCache = MemoryTables()
        self.computations: list[fx.Compute] = []
        self.nodes = {name: Node(name, 4, 1000.0, memory_mib=4000, abilities=tuple(Ability)) for name in nodes}
        self.boots = dict.fromkeys(self.nodes, "boot-1")
        self.seqs = dict.fromkeys(self.nodes, 0)
        self.vms: dict[str, dict[str, VmStatus]] = {name: {} for name in self.nodes}
        self._delivery = 0
        self._requests = 0

    # --- time and effects -------------------------------------------------------------------------------------------

    def lead(self) -> ControllerHarness:
        """Become leader over the nodes, each of which has reported in this term."""
        self.carry(self.controller.start(self.now_s))
        for name in self.nodes:
            self.ask(AddNode(f"add-{name}", name))
        for name in self.nodes:
            self.report(name)
        return self

    def feed(self, event: fx.Input) -> None:
        """Give the controller an input and let the instant end."""
        self.carry(self.controller.handle(event, self.now_s))
        self.settle()

    def settle(self) -> None:
        """Fire every timer that is due now, until none is."""
        while due := [name for name, at_s in self.timers.items() if at_s <= self.now_s and name != "probe"]:
            del self.timers[due[0]]
            self.carry(self.controller.handle(fx.TimerFired(due[0]), self.now_s))

    def wait(self, seconds: float, reporting: Iterable[str] = ()) -> None:
        """Let time pass in steps of 5 s; the nodes named go on reporting."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(self.now_s + 5.0, end_s)
            for name in reporting:
                self.report(name)
            self.settle()

    def carry(self, effects: list[fx.Effect]) -> None:
        """Carry effects out in order, answers included."""
        for effect in effects:
            match effect:
                case fx.Publish():
                    self._publish(effect)
                case fx.StartTimer():
                    self.timers[effect.name] = effect.at_s
                case fx.TakeLead():
                    self.carry(self.controller.handle(self.store.take_lead("a"), self.now_s))
                case fx.Write():
                    self._write(effect)
                case fx.Compute():
                    self.computations.append(effect)
                    if self.compute:
                        self.answer(effect)
                case fx.Acknowledge():
                    self.acknowledged.append(effect.delivery)
                case fx.DeadLetter():
                    self.dead.append((effect.delivery, effect.reason))
                case fx.Power():
                    self.powers.append(effect)
                case fx.Balance():
                    self.balances.append(effect)
                case fx.Exit():
                    self.exits.append(effect.reason)

    def answer(self, effect: fx.Compute) -> None:
        """Give a computation its result."""
        computed = fx.Computed(effect.compute_id, compute(effect.request, self.table_cache))
        self.carry(self.controller.handle(computed, self.now_s))

    def _write(self, effect: fx.Write) -> None:
        if self.store_fails is not None:
            stale, detail = self.store_fails
            written = fx.Written(effect.write_id, False, stale, detail)
        else:
            self.store.write(effect.term, effect.records)
            written = fx.Written(effect.write_id, True)
        self.carry(self.controller.handle(written, self.now_s))

    def _publish(self, effect: fx.Publish) -> None:
        message = effect.message
        match message:
            case Order():
                self.orders.append(message.action)
            case Hello():
                self.hellos.append((effect.routing_key, message))
            case Watch():
                self.watches.append((effect.routing_key, message))
            case Reply():
                self.replies.append(message)
            case Happened():
                self.events.append(message)
            case _ if effect.exchange == topology.REQUESTS:
                self.feed(fx.Received(self.delivery(), topology.CONTROLLER_USER_PREFIX + "a", message))

    def delivery(self) -> int:
        """A fresh delivery number."""
        self._delivery += 1
        return self._delivery

    # --- what others say --------------------------------------------------------------------------------------------

    def say(self, message: Message, sender: str) -> int:
        """Deliver a message on the controllers' queue."""
        number = self.delivery()
        self.feed(fx.Received(number, sender, message, f"reply.{sender}"))
        return number

    def ask(self, request: Request) -> Reply:
        """An operator's request and its answer."""
        self.say(request, OPERATOR)
        return self.replies[-1]

    def next_seq(self, node: str) -> int:
        """The next number of a node's agent."""
        self.seqs[node] += 1
        return self.seqs[node]

    def report(self, node: str, **fields: Any) -> None:
        """A node's report as things stand."""
        given: dict[str, Any] = {
            "node": node,
            "boot_id": self.boots[node],
            "seq": self.next_seq(node),
            "clock_s": self.now_s,
            "term": self.controller.unit_of_work.term,
            "sample": NodeSample(),
            "vms": tuple(self.vms[node].values()),
            "inventory": self.nodes[node],
        }
        report = Report(**(given | fields))
        self.feed(fx.Received(None, topology.agent_user(node), report))

    def result(self, action: Action, outcome: Outcome = Outcome.OK, **fields: Any) -> int:
        """How a node's agent answers an action; the state of `vms` follows an OK. What is to be done to a VM that has
        ended meanwhile is not."""
        if outcome is Outcome.OK and action.kind in ON_A_VM and action.vm not in self.vms[action.node]:
            outcome = Outcome.NO_SUCH_VM
        if outcome is Outcome.OK:
            self._do(action)
        given: dict[str, Any] = {
            "node": action.node,
            "boot_id": self.boots[action.node],
            "seq": self.next_seq(action.node),
            "clock_s": self.now_s,
            "term": action.term,
            "action": action.id,
            "kind": action.kind,
            "vm": action.vm,
            "outcome": outcome,
            "status": self._ours(action.node, action.vm),
        }
        return self.say(Result(**(given | fields)), topology.agent_user(action.node))

    def _ours(self, node: str, vm: str) -> VmStatus | None:
        status = self.vms[node].get(vm)
        return status if status is not None and status.managed else None

    def _do(self, action: Action) -> None:
        here = self.vms[action.node]
        if action.kind is ActionKind.ADOPT and action.spec is not None:
            spec = action.spec
            own: dict[str, Any] = {"generation": action.generation or spec.generation, "attempt": spec.attempt}
            if not here[action.vm].managed and spec.cpu_mhz:
                own["cpu_mhz"] = spec.cpu_mhz
            own |= {"failover": spec.failover, "stays_off": spec.stays_off}
            self.change(action.node, action.vm, managed=True, adopted=True, **own)
        elif action.kind is ActionKind.RELEASE:
            self.change(action.node, action.vm, managed=False, generation=0, attempt=0, adopted=False)
        elif action.kind is ActionKind.START and action.expects and action.spec is not None:
            started: dict[str, Any] = {"generation": action.generation, "attempt": action.spec.attempt}
            started["stays_off"] = action.spec.stays_off
            self.change(action.node, action.vm, state=VmState.RUNNING, cpu_mhz=action.spec.cpu_mhz, **started)
        elif action.spec is not None:
            state = VmState.PAUSED if action.paused else VmState.RUNNING
            spec = action.spec
            here[action.vm] = VmStatus(
                spec.vm,
                state,
                spec.generation,
                attempt=spec.attempt,
                memory_mib=spec.memory_mib,
                vcpus=spec.vcpus,
                cpu_mhz=spec.cpu_mhz,
                adopted=bool(spec.definition),
                failover=spec.failover,
                autostart=spec.autostart,
                stays_off=spec.stays_off,
            )
        elif action.kind is ActionKind.STOP and action.vm in here and here[action.vm].adopted:
            self.change(action.node, action.vm, state=VmState.ENDED)
        elif action.kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE, ActionKind.UNDEFINE):
            here.pop(action.vm, None)
        elif action.kind is ActionKind.MIGRATE:
            self.vms[action.to_node][action.vm] = here.pop(action.vm)
        else:
            states = {ActionKind.PAUSE: VmState.PAUSED, ActionKind.SUSPEND: VmState.SUSPENDED}
            self.change(action.node, action.vm, state=states.get(action.kind, VmState.RUNNING))
            if action.kind is ActionKind.SET_CPU:
                self.change(action.node, action.vm, cpu_mhz=action.cpu_mhz)

    def change(self, node: str, vm: str, **fields: Any) -> None:
        """Change what a node would report of a VM."""
        self.vms[node][vm] = structs.replace(self.vms[node][vm], **fields)

    def guest(self, node: str, vm: str, change: GuestChange, event: int = 1, detail: str = "") -> int:
        """A guest event; the VM is gone from its node unless it has just come there, or was adopted and is shut off."""
        status = self.vms[node][vm]
        if status.adopted and change is not GuestChange.LEFT:
            ended = VmState.ENDED if change is GuestChange.ENDED else VmState.CRASHED
            self.change(node, vm, state=VmState.RUNNING if change in COMING else ended)
            status = self.vms[node][vm]
        elif change not in COMING:
            del self.vms[node][vm]
        seq = self.next_seq(node)
        message = GuestEvent(
            node, self.boots[node], seq, clock_s=self.now_s, event=event, change=change, status=status, detail=detail
        )
        return self.say(message, topology.agent_user(node))

    def take_orders(self) -> list[Action]:
        """The orders since the last call."""
        orders, self.orders = self.orders, []
        return orders

    def obey(self) -> list[Action]:
        """Have every open order done, and the ones that follow from it, until none is left."""
        done: list[Action] = []
        while orders := self.take_orders():
            for action in orders:
                self.result(action)
            done += orders
        return done

    def happenings(self, what: str) -> list[Happened]:
        """The events of one kind."""
        return [event for event in self.events if event.what == what]
