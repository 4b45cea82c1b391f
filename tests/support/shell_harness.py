"""The real shells in real time in one process: a locked in-process broker and locked fake hypervisors."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.core.agent import Agent
from agents.core.settings import AgentSettings
from agents.disk_journal import DiskJournal
from agents.service.main import AgentShell, Host, StandardRunner
from agents.service.main import link_of as agent_link
from daemons.controller.core.controller import Controller
from daemons.decision import pipeline
from daemons.drivers.price_feed import PriceFeed
from daemons.service.main import ControllerShell, Decider
from daemons.service.main import link_of as controller_link
from daemons.values.records.cluster import Deleted
from daemons.values.settings import ControllerSettings
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable
from shared.ports.agent import SetupDriver
from shared.ports.bus import BusEvent, Delivery
from shared.ports.controller import PowerDriver
from shared.ports.effects import GuestChanged, Operated
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AddNode, Query, Request
from shared.protocol.permissions import grant_of
from shared.protocol.topology import QueueSpec
from shared.runtime import logs
from shared.runtime.shell import Shell
from shared.values.actions import Action
from shared.values.nodes import Node, NodeSample
from shared.values.operation_costs import COSTS
from shared.values.vms import VmStatus
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor
from sim_backend.fakes.store import MemoryStore
from sim_backend.world.world import World

WAIT_S = 20.0
FAST = ControllerSettings(
    report_s=0.2, reconcile_s=0.2, unreachable_after_s=2.0, probe_s=1.0, retry_s=0.2, decide_s=3600.0
)
AGENT = AgentSettings(report_s=0.2, publish_retry_s=0.5)


def wait_for(what: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Wait until `what()` is true; AssertionError when it takes too long."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + seconds
    while not what():
        assert clock.monotonic_s() < until_s, f"not within {seconds} s"
        clock.sleep(0.01)


class LockedBroker:
    """A `MemoryBroker` for many threads, in real time. `down` true: nobody can connect."""

    def __init__(self, clock: SystemClock) -> None:
        self.clock = clock
        self.down = False
        self.changed = threading.Condition(threading.RLock())
        self.broker = MemoryBroker(clock.now_s(), permissions=grant_of)

    def connect(self, user: str, allow_oversize: bool = False) -> LockedConnection:
        """A connection that any thread may use."""
        with self.changed:
            self.advance()
            if self.down:
                raise BusUnavailable("the broker is down")
            return LockedConnection(self, self.broker.connect(user, allow_oversize))

    def restart(self) -> None:
        """Every connection is lost."""
        with self.changed:
            self.advance()
            self.broker.restart()
            self.changed.notify_all()

    def advance(self) -> None:
        """Bring the broker to now."""
        self.broker.advance(self.clock.now_s())


class LockedConnection:
    """Implements `shared.ports.bus.Bus`; every call holds the broker's lock, `poll` waits for news."""

    def __init__(self, locked: LockedBroker, inner: MemoryConnection) -> None:
        self._locked, self._inner = locked, inner
        self.blocked = ""

    @property
    def user(self) -> str:
        return self._inner.user

    def declare(self, queue: QueueSpec) -> None:
        self._do(lambda: self._inner.declare(queue))

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        self._do(lambda: self._inner.publish(exchange, routing_key, body, publish_id, reply_to))

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        self._do(lambda: self._inner.consume(queue, prefetch, acknowledged))

    def acknowledge(self, tag: int) -> None:
        self._do(lambda: self._inner.acknowledge(tag))

    def dead_letter(self, tag: int, reason: str) -> None:
        self._do(lambda: self._inner.dead_letter(tag, reason))

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        clock, changed = self._locked.clock, self._locked.changed
        until_s = clock.monotonic_s() + timeout_s
        with changed:
            while True:
                self._locked.advance()
                events = self._inner.poll()
                if events or not changed.wait(max(0.0, until_s - clock.monotonic_s())):
                    return events

    def now_s(self) -> float:
        with self._locked.changed:
            self._locked.advance()
            return self._inner.now_s()

    def charge(self, sender: str, busy_s: float) -> None:
        self._inner.charge(sender, busy_s)

    def close(self) -> None:
        self._do(self._inner.close)

    def block(self, reason: str) -> None:
        """Say that the broker takes no messages for a while ("": it does)."""
        with self._locked.changed:
            self.blocked = reason
            self._locked.changed.notify_all()

    def _do(self, call: Callable[[], None]) -> None:
        with self._locked.changed:
            self._locked.advance()
            call()
            self._locked.changed.notify_all()


class LockedHypervisor:
    """One node's `FakeHypervisor` in real time; all nodes of a rig share one lock, since they share one world."""

    def __init__(self, inner: FakeHypervisor, clock: SystemClock, lock: threading.RLock) -> None:
        self.inner, self._clock, self._lock = inner, clock, lock

    def inventory(self) -> Node:
        with self._lock:
            return self.inner.inventory()

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        with self._lock:
            return self.inner.vms(self._now_s(now_s))

    def begin(self, action: Action, now_s: float) -> None:
        with self._lock:
            self.inner.begin(action, self._now_s(now_s))

    def abort(self, vm: str, now_s: float) -> None:
        with self._lock:
            self.inner.abort(vm, self._now_s(now_s))

    def forget(self, vm: str, now_s: float) -> None:
        with self._lock:
            self.inner.forget(vm, self._now_s(now_s))

    def poll(self, now_s: float) -> tuple[Operated | GuestChanged, ...]:
        with self._lock:
            return self.inner.poll(self._now_s(now_s))

    def next_due_s(self) -> float | None:
        with self._lock:
            return self.inner.next_due_s()

    def forget_answers(self) -> None:
        with self._lock:
            self.inner.forget_answers()

    def _now_s(self, given_s: float) -> float:
        """The world's time never goes back, whichever thread comes first."""
        return max(given_s, self._clock.now_s())


class StillSampler:
    """A node on which nothing moves."""

    def sample(self, now_s: float) -> NodeSample:
        del now_s
        return NodeSample()


class InlineDecider:
    """Decides in the thread that asks."""

    def warm(self) -> bool:
        return True

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        del limit_s
        return pipeline.run(request), ""

    def close(self) -> None:
        return


class Running:
    """A shell in a thread of its own."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.exit_status: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int | None:
        """Ask it to stop and wait for its end."""
        self.shell.stop()
        return self.join()

    def kill(self) -> None:
        """Carry out not one effect more, whatever was under way, as when the process is killed."""
        self.shell.exit_status = 137
        self.shell.stop()  # wakes the loop
        self.join()

    def join(self) -> int | None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.exit_status

    def _run(self) -> None:
        try:
            self.exit_status = self.shell.run()
        except BaseException as error:  # noqa: BLE001  for the test to look at
            self.error = error


class RealRig:
    """A cluster of real shells. What outlives processes: broker, store, journals, hypervisors. `bus`: another broker,
    with `connect`."""

    def __init__(self, folder: Path, nodes: int = 2, bus: Any = None) -> None:
        self.log = io.StringIO()
        logs.configure("info", stream=self.log)
        self.folder = folder
        self.clock = SystemClock()
        self.connections: list[LockedConnection] = []
        self.bus: Any = LockedBroker(self.clock) if bus is None else bus
        self.world = World()
        self.cluster = FakeCluster(self.world, COSTS["none"])
        self.store = MemoryStore(Deleted)
        self.nodes = [Node(f"n{i + 1}", 4, 1000.0, memory_mib=16_000) for i in range(nodes)]
        self.lock = threading.RLock()
        self.hypervisors: dict[str, LockedHypervisor] = {}
        self.journals: dict[str, DiskJournal] = {}
        self.hosts: dict[str, Host] = {}
        self.setups: dict[str, SetupDriver] = {}
        self.standards: dict[str, StandardRunner] = {}
        self.addresses: dict[str, str] = {}
        self.running: list[Running] = []
        self._requests = 0
        setup = self.bus.connect("controller.setup")
        setup.declare(topology.CONTROLLER)
        for node in self.nodes:
            self.cluster.add_node(node)
            self.hypervisors[node.name] = LockedHypervisor(self.cluster.hypervisor(node.name), self.clock, self.lock)
            setup.declare(topology.agent_queue(node.name))
        setup.close()
        self.operator: Any = self.bus.connect("operator.test")
        self.operator.declare(QueueSpec("reply.operator.test", (), durable=False, exclusive=True))
        self.operator.consume("reply.operator.test", 100)

    def agent(self, node: str, journal: Any = None) -> Running:
        """Start the agent of a node on what its journal holds."""
        hypervisor = self.hypervisors[node]
        hypervisor.forget_answers()
        if node in self.journals:
            self.journals[node].close()  # as the end of its process would have
        if journal is None:
            journal = self.journals[node] = DiskJournal(self.folder / f"{node}.journal")
        settings = replace(AGENT, address=self.addresses.get(node, ""))
        core = Agent(node, "boot-1", journal.records(), settings)
        link = agent_link(node, lambda: self._connect(topology.agent_user(node)))
        shell = AgentShell(
            node,
            core,
            link,
            hypervisor,
            StillSampler(),
            journal,
            seed=1,
            host=self.hosts.get(node),
            setups=self.setups.get(node),
            standard=self.standards.get(node),
            clock=self.clock,
        )
        return self._started(shell)

    def controller(
        self,
        name: str = "a",
        decider: Decider | None = None,
        settings: Any = FAST,
        feed: PriceFeed | None = None,
        power: PowerDriver | None = None,
    ) -> Running:
        """Start a controller on what the store holds."""
        link = controller_link(name, lambda: self._connect(topology.CONTROLLER_USER_PREFIX + name))
        core = Controller(name, settings)
        shell = ControllerShell(
            core, link, self.store, decider or InlineDecider(), power, seed=1, clock=self.clock, feed=feed
        )
        return self._started(shell)

    def start(self) -> None:
        """Start everything and add the nodes."""
        self.controller()
        for node in self.nodes:
            self.agent(node.name)
            assert self.ask(AddNode(f"add-{node.name}", node.name)).done

    def ask(self, request: Request) -> Reply:
        """Send a request, again after each second, until it is answered."""
        clock = SystemClock()
        end_s, next_s = clock.monotonic_s() + WAIT_S, 0.0
        exchange, key = topology.asked_at(self.operator.user, isinstance(request, Query))
        while (now_s := clock.monotonic_s()) < end_s:
            if now_s >= next_s:
                self.operator.publish(exchange, key, encode(request), None, "reply.operator.test")
                next_s = now_s + 1.0
            for event in self.operator.poll(max(0.0, next_s - now_s)):
                if isinstance(event, Delivery):
                    self.operator.acknowledge(event.tag)
                    reply = decode(event.body)
                    if isinstance(reply, Reply) and reply.request == request.request:
                        return reply
        raise AssertionError(f"no answer to {request}")

    def phase(self, job: str) -> str:
        """The stored phase of a job ("": there is none)."""
        record = self.store.get(("job", job))
        return "" if record is None else str(record.phase.value)

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """What was logged, or only the events of this name."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if event in ("", line["event"])]

    def end(self) -> None:
        """Stop everything that runs."""
        for running in self.running:
            running.shell.stop()
        for running in self.running:
            running.join()
        for journal in self.journals.values():
            journal.close()

    def connection(self, user: str) -> LockedConnection:
        """The newest connection of a user."""
        return next(one for one in reversed(self.connections) if one.user == user)

    def _connect(self, user: str) -> LockedConnection:
        connection: LockedConnection = self.bus.connect(user)
        self.connections.append(connection)
        return connection

    def _started(self, shell: Shell) -> Running:
        running = Running(shell)
        self.running.append(running)
        return running
