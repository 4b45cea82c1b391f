"""The thread that holds a process's connection to the broker and turns what comes into inputs of a core."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from shared.base.clock import SystemClock, perf_s
from shared.base.errors import CodecError, TrimtabError
from shared.ports import effects as fx
from shared.ports.bus import Bus, BusEvent, Confirm, Delivery, Discarded, Lost
from shared.protocol.account_messages import OnBehalf
from shared.protocol.codec import decode
from shared.protocol.messages import Message
from shared.protocol.operator_messages import Request

POLL_S = 1.0
BACKOFF_S = 0.5
BACKOFF_MAX_S = 30.0
BATCH_MAX = 100  # inputs handed over at once
CHARGED_S = 0.001  # less work on a message than that is not worth counting: messages are counted too
CHARGED_BYTES = 4 << 10  # shorter bodies take less to read
BATCHES_MAX = 2  # not yet taken; beyond them what comes waits as bytes, in the connection and at the broker


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """How to reach the broker: `connect` gives a connection, `set_up` declares and consumes on it. Deliveries of
    `unacknowledged` queues carry no tag."""

    connect: Callable[[], Bus]
    set_up: Callable[[Bus], None]
    unacknowledged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker takes no messages for the moment (its disk or memory is short), though the connection stands."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker takes messages again."""


@runtime_checkable
class CanBlock(Protocol):
    """A bus whose broker may take no messages for a while."""

    @property
    def blocked(self) -> str:
        """Why the broker takes none now ("": it does)."""
        ...


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a connection, set up."""

    bus: Bus


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, or could not be made; the next attempt comes in `retry_s`."""

    reason: str
    retry_s: float


@dataclass(frozen=True, slots=True)
class Buried:
    """A delivery was no message, nobody's, or beyond its sender's share; `count`: so many were. `unanswered`: requests
    among these, and where their answers belong."""

    queue: str
    sender: str
    reason: str
    count: int = 1
    unanswered: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A thread of the shell has died of an error that is nobody's to handle."""

    where: str
    error: BaseException


class Batch:
    """Inputs in the order in which they came. Who has taken them says so to the pump."""

    __slots__ = ("inputs",)

    def __init__(self, inputs: Sequence[fx.Input]) -> None:
        self.inputs = inputs


News = fx.Input | Batch | Connected | Disconnected | Blocked | Unblocked | Buried | Failed


def backoff_s(attempt: int, rng: random.Random) -> float:
    """Return the wait before connection attempt `attempt` (from 0): 0.5 s to 30 s, increasing with each attempt. It
    differs between processes that were disconnected at the same moment."""
    most_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(attempt + 1, 16))
    return rng.uniform(BACKOFF_S, most_s)


class Pump:
    """Connects, polls, and connects again until `stop`.

    Everything goes to `post`, called from the pump's thread in the order in which it happened; the first thing is
    `Connected` or `Disconnected`. While BATCHES_MAX batches are not `taken` nothing more comes.
    """

    def __init__(
        self,
        link: ConnectionSpec,
        post: Callable[[News], None],
        rng: random.Random,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._link = link
        self._now_s = SystemClock().now_s if now_s is None else now_s
        self._bus: Bus | None = None
        self._post = post
        self._room = threading.Semaphore(BATCHES_MAX)
        self._rng = rng
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more from the broker. Does not wait and leaves the connection open."""
        self._ending.set()

    def taken(self) -> None:
        """Note that a batch has been processed. May be called from any thread."""
        self._room.release()

    def charge(self, sender: str, busy_s: float) -> None:
        """Charge a sender for the time spent on its message. May be called from any thread."""
        bus = self._bus
        if bus is not None and busy_s >= CHARGED_S:
            bus.charge(sender, busy_s)

    def _run(self) -> None:
        attempt = 0
        try:
            while not self._ending.is_set():
                bus, reason = self._connect()
                if bus is not None:
                    attempt = 0
                    self._bus = bus
                    self._post(Connected(bus))
                    reason = self._poll(bus)
                if self._ending.is_set():
                    return
                wait_s = backoff_s(attempt, self._rng)
                attempt += 1
                self._post(Disconnected(reason, wait_s))
                self._ending.wait(wait_s)
        except BaseException as error:  # noqa: BLE001  handed on: the core's thread raises it
            self._post(Failed("bus", error))

    def _connect(self) -> tuple[Bus | None, str]:
        """Return a connection that is set up, or why there is none. A missing queue may be created later."""
        bus: Bus | None = None
        try:
            bus = self._link.connect()
            self._link.set_up(bus)
        except TrimtabError as error:
            if bus is not None:
                bus.close()
            return None, f"{error.code}: {error}"
        return bus, ""

    def _poll(self, bus: Bus) -> str:
        """Hand on what comes until the connection is lost; returns why it was."""
        blocked = ""
        blocking = bus if isinstance(bus, CanBlock) else None  # asked once: the test costs as much as ten reports
        while not self._ending.is_set():
            if blocking is not None and blocking.blocked != blocked:
                blocked = blocking.blocked
                self._post(Blocked(blocked) if blocked else Unblocked())
            try:
                events = bus.poll(POLL_S)
            except TrimtabError as error:
                return f"{error.code}: {error}"
            lost = events[-1] if events else None  # it comes last
            for at in range(0, len(events), BATCH_MAX):
                self._hand_on(bus, events[at : at + BATCH_MAX])
            if type(lost) is Lost:
                return lost.reason
        return ""

    def _hand_on(self, bus: Bus, events: Sequence[BusEvent]) -> None:
        while not self._room.acquire(timeout=POLL_S):
            if self._ending.is_set():
                return
        buried: list[Buried] = []
        behind_s = self._now_s() - bus.now_s()  # from the bus's clock to that of the core
        inputs = [made for event in events if (made := self._input(bus, event, behind_s, buried)) is not None]
        self._post(Batch(inputs))
        for one in buried:
            self._post(one)

    def _decode_charged(self, delivery: Delivery) -> Message:
        begun_s = perf_s()
        try:
            return decode(delivery.body)
        finally:
            self.charge(delivery.sender, perf_s() - begun_s)

    def _requests(self, gone: Iterable[Delivery]) -> Iterator[tuple[str, str]]:
        """Yield the ids of the requests among discarded deliveries, and where their answers belong."""
        for delivery in gone:
            try:
                message = self._decode_charged(delivery)
            except CodecError:
                continue
            if isinstance(message, Request | OnBehalf):
                yield message.request, delivery.reply_to

    def _input(self, bus: Bus, event: BusEvent, behind_s: float, buried: list[Buried]) -> fx.Input | None:
        if type(event) is Delivery:
            try:
                message = decode(event.body) if len(event.body) < CHARGED_BYTES else self._decode_charged(event)
            except CodecError as error:
                bus.dead_letter(event.tag, str(error))
                buried.append(Buried(event.queue, event.sender, str(error)))
                return None
            tag = None if event.queue in self._link.unacknowledged else event.tag
            arrived_s = event.arrived_s + behind_s
            return fx.Received(tag, event.sender, message, event.reply_to, "", "", arrived_s)
        if type(event) is Discarded:
            requests = tuple(self._requests(event.gone))
            buried.append(Buried(event.queue, event.sender, event.reason, event.count, requests))
            return None
        return fx.Published(event.publish_id, event.ok) if type(event) is Confirm else None
