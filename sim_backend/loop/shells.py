"""Thin shells that run the real cores in virtual time: the in-process bus, fake hypervisors, memory stores.

A shell carries out its core's effects in order. It can be killed between any two of them, restarted from what its
journal or store holds, frozen and thawed. What it does not know (true work, scripted faults) never reaches the core.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from shared.base.errors import (
    BusUnavailable,
    CodecError,
    ContractViolation,
    StaleTerm,
    StoreUnavailable,
    TransientError,
)
from shared.ports import effects as fx
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.ports.controller import PowerDriver, Store
from shared.ports.core import Core
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.values.web_app import FlowSample
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.engine import Engine

ACTOR_PRIORITY = 9  # delayed answers come after everything scripted for the same instant
CONTROLLER_PREFETCH = 1000
EXIT_RESTART_S = 1.0  # how soon a supervisor starts a process anew that ended itself
RECONNECT_S = 1.0
ROUNDING_S = 1e-5  # by so little a clock may differ from what sums of floats say
RECONNECT_MAX_S = 16.0


class StartableCore(Core, Protocol):
    """A core that also says what to do first."""

    def start(self, now_s: float) -> list[fx.Effect]:
        """Return the effects of the core's start."""
        ...


class Shell(ABC):
    """What both shells share. `user` names its connection and owns its timers.

    Hooks, called just before the thing itself: `on_input(shell, input)`, `on_effect(shell, effect)`.
    `die_after_effects`, `freeze_after_effects`: the process dies or stands still after so many more (None: never);
    `freeze_before`: it stands still just before its next effect of that class. `clock_off_s`: by so much its machine's
    clock is ahead.
    """

    def __init__(self, user: str, engine: Engine, broker: MemoryBroker) -> None:
        self.user = user
        self.engine = engine
        self.broker = broker
        self.core: StartableCore | None = None
        self.connection: MemoryConnection | None = None
        self.die_after_effects: int | None = None
        self.freeze_after_effects: int | None = None
        self.freeze_before: type[fx.Effect] | None = None
        self.frozen = False
        self.clock_off_s = 0.0
        self.lives = 0
        self.on_input: Callable[[Any, fx.Input], None] | None = None
        self.on_effect: Callable[[Any, fx.Effect], None] | None = None
        self.on_freeze: Callable[[Any], None] | None = None
        self.on_death: Callable[[Any], None] | None = None
        self._latest_s = 0.0
        self._inbox: deque[fx.Input] = deque()
        self._held: list[Callable[[], None]] = []
        self._working = False
        self._reconnect_s = RECONNECT_S
        self._unacknowledged: frozenset[str] = frozenset()
        self._carry: dict[type, Callable[[Any], None]] = {
            fx.Publish: self._publish,
            fx.Acknowledge: self._acknowledge,
            fx.DeadLetter: self._dead_letter,
            fx.StartTimer: self._start_timer,
            fx.StopTimer: self._stop_timer,
        }

    def now_s(self) -> float:
        """Return the time of its clock, which never decreases within one life, as in
        `shared.base.clock.SystemClock`."""
        self._latest_s = max(self._latest_s, self.engine.clock_s + self.clock_off_s)
        return self._latest_s

    # --- life -----------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.core is not None

    def restart(self) -> None:
        """Begin a new life from what is durable; a process that runs is killed first."""
        self.kill()
        self.lives += 1
        core = self.core = self._new_core()
        self._reconnect_s = RECONNECT_S
        self._connect()
        self._latest_s = 0.0
        self._work(core.start(self.now_s()))

    def kill(self) -> None:
        """End the process here and now: nothing more is carried out, its connection breaks."""
        if self.core is None:
            return
        self.core = None
        self.die_after_effects = self.freeze_after_effects = self.freeze_before = None
        self.frozen = False
        self._inbox.clear()
        self._held.clear()
        self.engine.stop_timers(self.user)
        if self.connection is not None:
            self.connection.kill()
            self.connection = None
        if self.on_death is not None:
            self.on_death(self)

    def freeze(self) -> None:
        """Stop the process without its noticing: what comes waits until `thaw`."""
        self.freeze_after_effects = self.freeze_before = None
        self.frozen = self.alive
        if self.on_freeze is not None and self.frozen:
            self.on_freeze(self)

    def thaw(self) -> None:
        """Let a frozen process go on with what has come meanwhile, in its order."""
        self.frozen = False
        held, self._held = self._held, []
        for call in held:
            call()

    @abstractmethod
    def _new_core(self) -> StartableCore:
        """Return a new core that starts from the durable state."""

    @abstractmethod
    def _set_up(self, connection: MemoryConnection) -> None:
        """Declare and consume what the process needs."""

    # --- the bus --------------------------------------------------------------------------------------------------

    def handle_bus(self, connection: MemoryConnection, event: BusEvent) -> None:
        """Take one event of this process's connection; events of an earlier connection are ignored."""
        if self.frozen:
            self._held.append(partial(self.handle_bus, connection, event))
        elif connection is self.connection:
            self._handle_bus(connection, event)

    def _handle_bus(self, connection: MemoryConnection, event: BusEvent) -> None:
        if type(event) is Delivery:
            try:
                message = decode(event.body)
            except CodecError as error:
                connection.dead_letter(event.tag, str(error))
                return
            tag = None if event.queue in self._unacknowledged else event.tag
            self.feed(fx.Received(tag, event.sender, message, event.reply_to))
        elif type(event) is Confirm:
            self.feed(fx.Published(event.publish_id, event.ok))
        elif type(event) is Lost:
            self.connection = None
            self._retry_later()

    def _connect(self) -> bool:
        try:
            connection = self.broker.connect(self.user)
            self._set_up(connection)
        except BusUnavailable:
            self._retry_later()
            return False
        self.connection = connection
        return True

    def _retry_later(self) -> None:
        at_s = self.engine.now_s + self._reconnect_s
        self._reconnect_s = min(2 * self._reconnect_s, RECONNECT_MAX_S)
        self.engine.start_timer(self.user, "shell: reconnect", at_s, self._reconnect)

    def _reconnect(self) -> None:
        if self.frozen:
            self._held.append(self._reconnect)
        elif self._connect():
            self._reconnect_s = RECONNECT_S
            self.feed(fx.Reconnected())

    # --- inputs and effects ---------------------------------------------------------------------------------------

    def feed(self, event: fx.Input) -> None:
        """Give the core an input and carry out what it asks for; its inline answers follow in order."""
        if self.core is None:
            return
        if self.frozen:
            self._held.append(partial(self.feed, event))
            return
        self._inbox.append(event)
        if not self._working:
            self._work([])

    def _work(self, first: Sequence[fx.Effect]) -> None:
        self._working = True
        try:
            self._carry_out(first)
            while self._inbox and self.core is not None:
                if self.frozen:
                    self._hold_inbox()
                    return
                event = self._inbox.popleft()
                if self.on_input is not None:
                    self.on_input(self, event)
                self._carry_out(self.core.handle(event, self.now_s()))
        finally:
            self._working = False

    def _hold_inbox(self) -> None:
        for event in self._inbox:
            self._held.append(partial(self.feed, event))
        self._inbox.clear()

    def _is_scripted(self) -> bool:
        return (
            self.die_after_effects is not None
            or self.freeze_after_effects is not None
            or self.freeze_before is not None
        )

    def _is_cut(self, rest: Sequence[fx.Effect]) -> bool:
        """Return whether the script kills or freezes the process before the first effect of the rest."""
        if self.die_after_effects is not None:
            if self.die_after_effects <= 0:
                self.kill()
                return True
            self.die_after_effects -= 1
        if self._freezes_before(rest[0]):
            self._held.insert(0, partial(self._work, rest))
            self.freeze()
            return True
        return False

    def _freezes_before(self, effect: fx.Effect) -> bool:
        if self.freeze_before is not None and isinstance(effect, self.freeze_before):
            return True
        if self.freeze_after_effects is None:
            return False
        self.freeze_after_effects -= 1
        return self.freeze_after_effects < 0

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        carry = self._carry
        for done, effect in enumerate(effects):
            if self._is_scripted() and self._is_cut(effects[done:]):
                return
            if self.on_effect is not None:
                self.on_effect(self, effect)
            try:
                carry[type(effect)](effect)
            except KeyError:
                if type(effect) not in carry:
                    raise ContractViolation(f"{self.user} cannot carry out {effect!r}") from None
                raise
            if self.core is None:
                return

    def _answer(self, event: fx.Input, delay_s: float = 0.0) -> None:
        """Feed the answer to an effect, after a delay if one is scripted, unless the process has died since."""
        if delay_s <= 0.0:
            self.feed(event)
            return
        life = self.lives

        def deliver() -> None:
            if self.lives == life:
                self.feed(event)

        self.engine.at(self.engine.now_s + delay_s, ACTOR_PRIORITY, deliver)

    def _publish(self, effect: fx.Publish) -> None:
        if self.connection is None:
            return  # unanswered: Reconnected tells the core
        if effect.publish_id is None and self.broker.routes.get((self.user, effect.exchange, effect.routing_key)) == ():
            return  # nobody listens: not worth the encoding
        try:
            self.connection.publish(
                effect.exchange, effect.routing_key, encode(effect.message), effect.publish_id, self._reply_queue()
            )
        except BusUnavailable:
            return  # the Lost that follows makes the shell reconnect, and the core publish again

    def _reply_queue(self) -> str:
        return ""

    def _acknowledge(self, effect: fx.Acknowledge) -> None:
        if self.connection is not None:
            self.connection.acknowledge(effect.delivery)

    def _dead_letter(self, effect: fx.DeadLetter) -> None:
        if self.connection is not None:
            self.connection.dead_letter(effect.delivery, effect.reason)

    def _start_timer(self, effect: fx.StartTimer) -> None:
        name = effect.name
        at_s = effect.at_s
        if self._is_off():
            at_s += self.engine.now_s - self._latest_s
            while 0.0 < (early_s := effect.at_s - self._shown_s(at_s)) < ROUNDING_S:
                at_s += max(early_s, math.ulp(at_s))  # never before its clock shows that time
        self.engine.start_timer(self.user, name, at_s, lambda: self.feed(fx.TimerFired(name)))

    def _shown_s(self, at_s: float) -> float:
        return self.engine.epoch_s + at_s + self.clock_off_s

    def _is_off(self) -> bool:
        return self._latest_s != self.engine.now_s

    def _stop_timer(self, effect: fx.StopTimer) -> None:
        self.engine.stop_timer(self.user, effect.name)


class ControllerShell(Shell):
    """Runs a controller's core on a memory store.

    `compute` carries out a `Compute` (an exception in it ends the run: the simulator hides no crash); the next
    `failing_computations` of them are answered as timed out. `compute_delay_s`, `power_delay_s`: called before each.
    `scrape` returns the measurements of a web application at a URL since the last call, `read_prices` the price feed's
    answer at a time of the world's clocks. `balance` updates a load balancer, `measure` reads its measurements,
    `notify` sends a notification. `record` receives the inputs of decisions.

    A core that exits is restarted after a second while `supervised`.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        broker: MemoryBroker,
        store: Store,
        power: PowerDriver,
        make_core: Callable[[str], StartableCore],
        compute: Callable[[Any], Any],
    ) -> None:
        super().__init__(topology.CONTROLLER_USER_PREFIX + name, engine, broker)
        self.name = name
        self.store = store
        self.power = power
        self.failing_computations = 0
        self.supervised = True
        self.compute_delay_s: Callable[[], float] = _no_delay
        self.power_delay_s: Callable[[], float] = _no_delay
        self.scrape: Callable[[fx.Scrape, float], tuple[FlowSample, ...]] = _unmeasured
        self.read_prices: Callable[[float], fx.PricesRead] = _no_prices
        self.balance: Callable[[fx.Balance], fx.Balanced] = _unbalanced
        self.measure: Callable[[str, float], FlowSample | None] = _unasked
        self.notify: Callable[[fx.Notify], fx.Notified] = _arrived
        self.record: Callable[[fx.Record], None] = _unrecorded
        self.audit: Callable[[fx.Audited], None] = _unrecorded
        self._make_core = make_core
        self._compute_function = compute
        self._own_queues = (topology.report_queue(name), topology.question_queue(name))
        self._unacknowledged = frozenset(queue.name for queue in self._own_queues)
        self._carry |= {
            fx.Declare: self._declare,
            fx.Write: self._write,
            fx.TakeLead: self._take_lead,
            fx.Compute: self._compute,
            fx.Record: lambda effect: self.record(effect),
            fx.Audited: lambda effect: self.audit(effect),
            fx.Power: self._power,
            fx.Notify: lambda effect: self._answer(self.notify(effect)),
            fx.Scrape: self._scrape,
            fx.Balance: self._balance,
            fx.Measure: self._measure,
            fx.ReadPrices: lambda _: self._answer(self.read_prices(self.engine.clock_s)),
            fx.Exit: self._exit,
        }

    def _new_core(self) -> StartableCore:
        return self._make_core(self.name)

    def _set_up(self, connection: MemoryConnection) -> None:
        connection.declare(topology.CONTROLLER)
        connection.declare(topology.DEAD_LETTERS)
        for queue in self._own_queues:
            connection.declare(queue)
            connection.consume(queue.name, CONTROLLER_PREFETCH, acknowledged=False)
        connection.consume(topology.CONTROLLER_QUEUE, CONTROLLER_PREFETCH)

    def _declare(self, effect: fx.Declare) -> None:
        if self.connection is not None:
            self.connection.declare(effect.queue)

    def _write(self, effect: fx.Write) -> None:
        try:
            self.store.write(effect.term, effect.records)
        except StaleTerm as error:
            self._answer(fx.Written(effect.write_id, False, True, str(error)))
        except StoreUnavailable as error:
            self._answer(fx.Written(effect.write_id, False, False, str(error)))
        else:
            self._answer(fx.Written(effect.write_id, True))

    def _take_lead(self, effect: fx.TakeLead) -> None:
        try:
            taken = self.store.take_lead(effect.controller)
        except StoreUnavailable:
            taken = fx.LeadTaken(0)
        self._answer(taken)

    def _compute(self, effect: fx.Compute) -> None:
        if self.failing_computations > 0:
            self.failing_computations -= 1
            self._answer(fx.Computed(effect.compute_id, None, "out of time"), effect.limit_s)
            return
        outcome = self._compute_function(effect.request)
        self._answer(fx.Computed(effect.compute_id, outcome), self.compute_delay_s())

    def _scrape(self, effect: fx.Scrape) -> None:
        try:
            flows, error = self.scrape(effect, self.engine.now_s), ""
        except TransientError as problem:
            flows, error = (), str(problem)
        self._answer(fx.Scraped(effect.app, self.engine.clock_s, flows, error))

    def _balance(self, effect: fx.Balance) -> None:
        try:
            answer = self.balance(effect)
        except TransientError as problem:
            answer = fx.Balanced(effect.app, False, (), str(problem))
        self._answer(answer)

    def _measure(self, effect: fx.Measure) -> None:
        try:
            sample, error = self.measure(effect.app, self.engine.now_s), ""
        except TransientError as problem:
            sample, error = None, str(problem)
        self._answer(fx.Scraped(effect.app, self.engine.clock_s, () if sample is None else (sample,), error))

    def _exit(self, effect: fx.Exit) -> None:
        del effect
        self.kill()
        life = self.lives

        def supervise() -> None:
            if not self.alive and self.lives == life and self.supervised:
                self.restart()

        self.engine.at(self.engine.now_s + EXIT_RESTART_S, ACTOR_PRIORITY, supervise)

    def _power(self, effect: fx.Power) -> None:
        delay_s = self.power_delay_s()
        life = self.lives

        def act() -> None:
            answer = self.power.operate(effect.operation, effect.node, effect.mac_addresses)
            if self.lives == life:
                self.feed(fx.PowerDone(effect.node, effect.operation, answer.ok, answer.detail))

        if delay_s <= 0.0:
            act()
        else:
            self.engine.at(self.engine.now_s + delay_s, ACTOR_PRIORITY, act)


def _unrecorded(effect: fx.Record | fx.Audited) -> None:
    del effect


def _unmeasured(effect: fx.Scrape, now_s: float) -> tuple[FlowSample, ...]:
    del now_s
    raise TransientError(f"nothing answers at {effect.url}")


def _arrived(effect: fx.Notify) -> fx.Notified:
    """Return that the notification was delivered."""
    return fx.Notified(effect.channel, effect.message, True)


def _unbalanced(effect: fx.Balance) -> fx.Balanced:
    raise TransientError(f"there is no balancer for {effect.app}")


def _unasked(app: str, now_s: float) -> FlowSample | None:
    raise TransientError(f"there is no balancer to be asked about {app} at {now_s:g} s")


def _no_prices(now_s: float) -> fx.PricesRead:
    del now_s
    return fx.PricesRead(error="there is no feed of prices")


def _no_delay() -> float:
    return 0.0
