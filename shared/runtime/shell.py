"""Runs a core for real: one thread that takes inputs from a queue, with timers, the bus, signals and the supervisor.

What takes time is done in lanes (`shared.runtime.lanes`) and by the pump (`shared.runtime.connection_thread`); all of
them `post` inputs. A shell behaves as its twin in virtual time does: effects in order, what has come in before timers
that are due.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from random import Random
from typing import Any, Protocol, cast

from structlog.typing import FilteringBoundLogger

from shared.base.clock import SystemClock, perf_s
from shared.base.errors import BusUnavailable, ContractViolation, PermanentError
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.ports.core import Core
from shared.protocol.codec import encode
from shared.protocol.topology import QueueSpec
from shared.runtime import trace
from shared.runtime.connection_thread import (
    CHARGED_S,
    Batch,
    Blocked,
    Buried,
    Connected,
    ConnectionSpec,
    Disconnected,
    Failed,
    News,
    Pump,
    Unblocked,
)
from shared.runtime.lanes import Lane
from shared.runtime.logs import get_logger
from shared.runtime.meter import Meter
from shared.runtime.systemd_notify import Notifier
from shared.runtime.timers import Timers

DONE = 0
BEGIN_ANEW = 75  # EX_TEMPFAIL: the supervisor is to start the process again
FIRST_CONNECTION_S = 5.0  # how long the core's beginning waits for the broker
IDLE_WAIT_S = 60.0
STATUS_S = 5.0  # how often the supervisor hears how things stand, when anything happens at all
BURIED_TOLD = 100  # so many deliveries that are no messages are all logged, then fewer and fewer
REFUSED_TOLD = 10  # so many attempts to connect in a row, likewise
CLOSE_S = 5.0  # how long the threads get to finish at the end


class StartableCore(Core, Protocol):
    """A core that also says what to do first."""

    def start(self, now_s: float) -> list[fx.Effect]:
        """Return the effects of the start."""
        ...


class Times(Protocol):
    """A clock with a second hand that nobody sets."""

    def now_s(self) -> float:
        """Return the seconds since the epoch; never decreases."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment."""
        ...


class _Asked:
    """Something asked of the shell from outside: by a signal, or by the code that holds it."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act


class Shell:
    """The common part of the shells of agent and controller.

    `run` is called once, in the thread that becomes the core's; `post`, `ask`, `stop` and `reload` from any. `status`
    describes the state in one line, for the supervisor. `on_reload` is called in the core's thread on SIGHUP. `meter`
    receives reports about the traffic. `seed` is for the back-off after a lost connection; every line of the log
    carries `context`.
    """

    def __init__(
        self,
        name: str,
        core: StartableCore,
        link: ConnectionSpec,
        seed: int,
        clock: Times | None = None,
        notifier: Notifier | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.core = core
        self.clock: Times = SystemClock() if clock is None else clock
        self.notifier = Notifier({}) if notifier is None else notifier
        self._context = context or {}
        self.log = self._new_log()
        self.on_reload: Callable[[], None] | None = None
        self.meter = Meter()
        self.exit_status: int | None = None
        self._queue: SimpleQueue[News | _Asked] = SimpleQueue()
        self._timers = Timers()
        self._bus: Bus | None = None
        self._begun = False
        self._blocked = False
        self._held: list[int] = []
        self._undeclared: dict[str, QueueSpec] = {}
        self._buried_count = self._refused_count = self._dead_count = 0
        self._repeats = trace.Repeats()
        self._lanes: list[Lane] = []
        self._watchdog_s = self._status_s = 0.0
        self._pump = Pump(link, self.post, Random(seed), self.clock.now_s)
        self._carry: dict[type, Callable[[Any], object]] = {
            fx.Publish: self._publish,
            fx.Acknowledge: self._acknowledge,
            fx.DeadLetter: self._dead_letter,
            fx.StartTimer: self._start_timer,
            fx.StopTimer: lambda effect: self._timers.stop(effect.name),
            fx.Exit: lambda effect: self.end(BEGIN_ANEW, effect.reason),
        }
        self._take: dict[type, Callable[[Any], None]] = {
            Batch: self._take_batch,
            Connected: self._connected,
            Disconnected: self._disconnected,
            Blocked: self._block,
            Unblocked: self._unblock,
            Buried: self._buried,
            Failed: self._failed,
            _Asked: lambda asked: asked.act(),
        }

    @property
    def held(self) -> int:
        """How many messages that must arrive wait for a broker that takes none."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How much waits for the core's thread, in batches or one by one."""
        return self._queue.qsize()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the broker."""
        return self._bus is not None

    @property
    def is_blocked(self) -> bool:
        """Whether the broker takes no messages for the moment."""
        return self._blocked

    # --- from outside -----------------------------------------------------------------------------------------------

    def post(self, news: News) -> None:
        """Hand something in; from any thread, and from a signal's handler."""
        self._queue.put(news)

    def ask(self, act: Callable[[], None]) -> None:
        """Have something called in the core's thread, after what has come in before; never if the shell ends first."""
        self._queue.put(_Asked(act))

    def stop(self) -> None:
        """Take no more inputs, finish what is being written, and let `run` return 0."""
        self.ask(lambda: self.end(DONE, "asked to stop"))

    def reload(self) -> None:
        """Have `on_reload` called."""
        self.ask(self._reload)

    def heed_signals(self) -> None:
        """SIGTERM and SIGINT stop the shell, SIGHUP reloads. Only in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGHUP, lambda *_: self.reload())

    def status(self) -> str:
        """Return the state in one line."""
        return "connected" if self._bus is not None else "waiting for the broker"

    def lane(
        self,
        name: str,
        due_s: Callable[[], float | None] | None = None,
        when_due: Callable[[], None] | None = None,
    ) -> Lane:
        """Return a lane whose failure ends the process; it is closed when `run` ends."""
        made = Lane(name, lambda error: self.post(Failed(name, error)), due_s, when_due)
        self._lanes.append(made)
        return made

    def end_lane(self, lane: Lane) -> None:
        """Have a lane end when it has done what was given to it; nobody gives it anything more."""
        self._lanes.remove(lane)
        lane.end()

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until stopped; returns the exit status: 0 asked to stop, 75 to be started again.

        Raises what the core or a thread raised: a defect ends the process, it does not go on half-dead.
        """
        self._pump.start()
        try:
            self._await_broker()
            self._begun = True
            self._carry_out(self.core.start(self.clock.now_s()))
            self.notifier.ready()
            while self.exit_status is None:
                self._turn()
        finally:
            self._close()
        return self.exit_status

    def end(self, exit_status: int, reason: str) -> None:
        """Carry nothing more out; `run` returns `exit_status`."""
        if self.exit_status is None:
            self.exit_status = exit_status
            self.log.info("ending", reason=reason, exit_status=exit_status)

    def _await_broker(self) -> None:
        """Give the connection a moment, so that what the core says first is heard."""
        try:
            first = self._queue.get(timeout=FIRST_CONNECTION_S)
        except Empty:
            return
        self._take_news(first)

    def _turn(self) -> None:
        """Wait for something, take everything that has come in, then fire one timer that is due."""
        self._tend()
        self._wait()
        for _ in range(self._queue.qsize()):
            if self.exit_status is not None:
                return
            self._take_news(self._queue.get_nowait())
        if self.exit_status is None:
            self._fire()

    def _fire(self) -> None:
        due_s, now_s = self._timers.next_due_s(), self.clock.monotonic_s()
        due = self._timers.take(now_s)
        if due is not None and due_s is not None:
            self.meter.late(now_s - due_s)
            self._feed(fx.TimerFired(due))

    def _wait(self) -> None:
        due_s = self._timers.next_due_s()
        now_s = self.clock.monotonic_s()
        wait_s = IDLE_WAIT_S if due_s is None else min(IDLE_WAIT_S, due_s - now_s)
        if self.notifier.watchdog_s is not None:
            wait_s = min(wait_s, self._watchdog_s - now_s)
        if wait_s <= 0.0:
            return
        try:
            news = self._queue.get(timeout=wait_s)
        except Empty:
            return
        self._take_news(news)

    def _tend(self) -> None:
        """Notify the supervisor that the loop is alive."""
        now_s = self.clock.monotonic_s()
        if now_s >= self._status_s:
            self._status_s = now_s + STATUS_S
            self.notifier.status(self.status())
        period_s = self.notifier.watchdog_s
        if period_s is not None and now_s >= self._watchdog_s:
            self._watchdog_s = now_s + period_s
            self.notifier.watchdog()

    def _close(self) -> None:
        self.notifier.stopping()
        self._pump.stop()
        if self._bus is not None:
            self._bus.close()  # first: what is not acknowledged goes to another process at once
        until_s = self.clock.monotonic_s() + CLOSE_S
        late = [lane.name for lane in self._lanes if not lane.close(max(0.0, until_s - self.clock.monotonic_s()))]
        if late:
            self.log.warning("threads left behind", threads=late)

    # --- inputs and effects -----------------------------------------------------------------------------------------

    def _take_news(self, news: News | _Asked) -> None:
        take = self._take.get(type(news))
        if take is not None:
            take(news)
        else:
            self._feed(cast(fx.Input, news))  # everything that is not in the table is one

    def _take_batch(self, batch: Batch) -> None:
        begun_s = perf_s()
        for event in batch.inputs:
            if self.exit_status is not None:
                return
            self._feed(event)
            done_s = perf_s()
            if done_s - begun_s >= CHARGED_S and type(event) is fx.Received:
                self._pump.charge(event.sender, done_s - begun_s)
            begun_s = done_s
        self._pump.taken()

    def _feed(self, event: fx.Input) -> None:
        now_s = self.clock.now_s()
        self._note(event, now_s)
        line = trace.of_input(event)
        if line is not None:
            self._tell(line)
        self.meter.input(event)
        effects = self.core.handle(event, now_s)
        if effects:  # a report, the most frequent input, has none
            self._carry_out(effects)

    def _note(self, event: fx.Input, now_s: float) -> None:
        """Handle an input before the core gets it; the base shell does nothing."""

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            if self.exit_status is not None:
                return
            carry = self._carry.get(type(effect))
            if carry is None:
                raise ContractViolation(f"{self.name} cannot carry out {effect!r}")
            line = trace.of_effect(effect)
            if line is not None:
                self._tell(line)
            self.meter.effect(effect)
            carry(effect)

    def _tell(self, line: trace.LogLine) -> None:
        level = self._repeats.level(line, self.clock.monotonic_s()) if line.subject else line.level
        getattr(self.log, level)(line.event, **line.fields)

    def _start_timer(self, effect: fx.StartTimer) -> None:
        # On the monotonic clock: setting the machine's clock neither stops the reports nor fires everything at once.
        self._timers.start(effect.name, self.clock.monotonic_s() + effect.at_s - self.clock.now_s())

    def _reload(self) -> None:
        if self.on_reload is not None:
            self.on_reload()
        self.log = self._new_log()  # an earlier logger keeps the level that it began with

    def _new_log(self) -> FilteringBoundLogger:
        return get_logger(self.name).bind(**self._context)

    def _failed(self, failed: Failed) -> None:
        self.log.error("a thread has died", thread=failed.where)
        raise failed.error

    # --- the bus ----------------------------------------------------------------------------------------------------

    def _connected(self, connected: Connected) -> None:
        self._bus = connected.bus
        self._blocked, self._held, self._refused_count = False, [], 0
        self.meter.connected()
        self.log.info("connected", user=connected.bus.user)
        for queue in list(self._undeclared.values()):
            self._declare(fx.Declare(queue))
        if self._begun:
            self._feed(fx.Reconnected())

    def _disconnected(self, disconnected: Disconnected) -> None:
        """Logged more and more rarely: a broker may be away for days."""
        self._bus = None
        self._refused_count += 1
        if trace.is_told(self._refused_count, REFUSED_TOLD):
            self.log.warning("not connected", reason=disconnected.reason, retry_s=round(disconnected.retry_s, 1))

    def _buried(self, buried: Buried) -> None:
        """Log undecodable deliveries at a decreasing rate: their sender may never stop."""
        before, self._buried_count = self._buried_count, self._buried_count + buried.count
        self.meter.buried(buried.count)
        if self._buried_count <= BURIED_TOLD or self._buried_count.bit_length() > before.bit_length():
            told = {"queue": buried.queue, "sender": buried.sender, "reason": buried.reason}
            self.log.warning("undecodable delivery", count=self._buried_count, **told)

    def _block(self, blocked: Blocked) -> None:
        if not self._blocked:
            self._blocked = True
            self.log.error("the broker takes no messages: reports are dropped, orders wait", reason=blocked.reason)

    def _unblock(self, _unblocked: Unblocked) -> None:
        """Report held publishes as refused: the core resends those that still make sense."""
        if self._blocked:
            self._blocked = False
            self.log.info("the broker takes messages again", held=len(self._held))
        held, self._held = self._held, []
        for publish_id in held:
            self._feed(fx.Published(publish_id, False))

    def _publish(self, effect: fx.Publish) -> bool:
        """Hand a message to the broker; false when it is not sent, or not now."""
        sent = self._hand_over(effect)
        self.meter.sent(effect.message.KIND, sent)
        return sent

    def _hand_over(self, effect: fx.Publish) -> bool:
        if self._bus is None:
            return False  # unanswered: Reconnected tells the core
        if self._blocked:
            if effect.publish_id is not None:
                self._held.append(effect.publish_id)
            return False
        try:
            body = effect.body or encode(effect.message)
            self._bus.publish(effect.exchange, effect.routing_key, body, effect.publish_id)
        except BusUnavailable:
            return False  # the pump notices too and connects anew, and the core publishes again
        except PermanentError as error:
            self.log.error("message not sent", kind=effect.message.KIND, error=str(error))
            return False
        line = trace.of_sent(effect.message)
        if line is not None:
            self._tell(line)
        return True

    def _acknowledge(self, effect: fx.Acknowledge) -> None:
        if self._bus is not None:
            self._bus.acknowledge(effect.delivery)

    def _dead_letter(self, effect: fx.DeadLetter) -> None:
        """Log refused deliveries at a decreasing rate: their sender may never stop."""
        self._dead_count += 1
        if trace.is_told(self._dead_count, BURIED_TOLD):
            self.log.warning("refused delivery", count=self._dead_count, reason=effect.reason)
        if self._bus is not None:
            self._bus.dead_letter(effect.delivery, effect.reason)

    def _declare(self, effect: fx.Declare) -> None:
        """Make a queue now, or as soon as there is a connection."""
        queue = effect.queue
        self._undeclared[queue.name] = queue
        if self._bus is None:
            return
        try:
            self._bus.declare(queue)
        except BusUnavailable:
            return
        except PermanentError as error:
            self.log.error("queue not declared", queue=queue.name, error=str(error))
        del self._undeclared[queue.name]
