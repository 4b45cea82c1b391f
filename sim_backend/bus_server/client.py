"""A connection to a bus server: what `trimtab.buses` has for the scheme `unix`.

Light, since agents load it: it knows the frames and nothing of the broker behind them.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, CodecError, InvalidInput, InvalidValue, PermanentError, Problem
from shared.bus.buses import ANSWER_S
from shared.bus.inbox import Inbox, unfit
from shared.config.broker_url import Tls, parse_url
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.protocol.dead_letter import Burials, bury
from shared.protocol.permissions import grant_of
from shared.protocol.shares import share_of
from shared.protocol.topology import DEAD, DEAD_QUEUE, EXCHANGES, REPLIES, QueueSpec
from sim_backend.bus_server.wire import (
    SERVER_DECODER,
    Acknowledge,
    Answered,
    Bury,
    Confirmed,
    Consume,
    Declare,
    Delivered,
    Ended,
    Frames,
    FromClient,
    FromServer,
    Hello,
    Publish,
    to_frame,
)

CLOSE_S = 3.0  # how long the server may take to see the end of a connection
RECEIVE_BYTES = 256 << 10
ROUTES_MAX = 100_000
_TAGS: Iterator[int] = itertools.count(1)  # of all connections: a tag is unique within the process


def connect(
    url: str, tls: Tls | None = None, *, answer_s: float = ANSWER_S, opening_s: float | None = None
) -> SocketConnection:
    """Open a connection as the user of `unix://USER@/PATH`; see `shared.bus.buses.ConnectBus`. Raises InvalidValue for
    a URL that is none, InvalidInput for TLS, which no socket has, BusUnavailable when no server listens."""
    address = parse_url(url)
    if tls not in (None, Tls()):
        raise InvalidInput(Problem("bus.tls", "is given, but bus.url is a socket", "amqps://..."))
    connection = SocketConnection(address.user, address.socket, answer_s)
    connection.open(2 * answer_s if opening_s is None else opening_s)
    return connection


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("answered", "error", "refused")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.error = ""  # why there is no answer
        self.refused = ""


class SocketConnection:
    """One user's connection; made by `connect`, implements `shared.ports.bus.Bus`.

    For any threads, `poll` and `dead_letter` for one at a time. A thread of its own reads what the server sends. What
    is too long for its sender goes to the dead letters, what is beyond its sender's share is dropped
    (`shared.bus.inbox`).
    """

    def __init__(self, user: str, path: str, answer_s: float) -> None:
        self._user, self._path, self._answer_s = user, path, answer_s
        self._grant = grant_of(user)
        self._permitted: set[tuple[str, str]] = set()
        self._body_bytes_max = share_of(user).body_bytes_max
        self._clock = SystemClock()
        self._inbox = Inbox(self._clock.monotonic_s, lambda delivery: self.acknowledge(delivery.tag))
        self._burials = Burials()
        self._held: dict[int, tuple[int, Delivery]] = {}  # by our tag: the server's, and what it is of
        self._consumed: set[str] = set()
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count(1)
        self._down = ""  # why the connection is of no more use
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._frames: Frames[FromServer] = Frames(SERVER_DECODER)
        self._reader = threading.Thread(target=self._read, name=f"bus {user}", daemon=True)

    # --- Bus ---------------------------------------------------------------------------------------------------------

    @property
    def user(self) -> str:
        """The name the server knows this connection by."""
        return self._user

    def open(self, limit_s: float) -> None:
        """Connect within so many seconds; for `connect` only."""
        self._limit_sending(limit_s)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            why = f"no bus server listens at {self._path}: {error.strerror or error}"
            raise BusUnavailable(f"{why}. Is the demo running? trimtab demo status") from error
        call = self._calls[0] = _Call()
        self._reader.start()
        try:
            self._send(Hello(self._user))
            self._await(0, call, limit_s)
        except (BusUnavailable, PermanentError) as error:
            self.kill()
            raise BusUnavailable(str(error)) from None
        self._limit_sending(self._answer_s)

    def declare(self, queue: QueueSpec) -> None:
        """Make a queue and its bindings. PermanentError: not permitted, an unknown exchange, another shape than the
        queue has, or another connection's exclusive queue."""
        number, call = self._new_call()
        self._send(Declare(number, queue))
        self._await(number, call, self._answer_s)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Send a body. PermanentError: too long for this user, not permitted, or an unknown exchange."""
        if self._down:
            raise BusUnavailable(self._down)
        if len(body) > self._body_bytes_max:
            raise PermanentError(f"a body of {len(body)} bytes is above {self.user}'s limit of {self._body_bytes_max}")
        if (exchange, routing_key) not in self._permitted:
            self._check_route(exchange, routing_key)
        self._send(Publish(exchange, routing_key, body, publish_id, reply_to))

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Begin to receive. PermanentError: not permitted, no such queue, another connection's exclusive queue, or
        this connection receives from it already. InvalidValue: `prefetch` below 1 where it counts."""
        if acknowledged and prefetch < 1:
            raise InvalidValue("prefetch", prefetch, "1 or more")
        if queue in self._consumed:
            raise PermanentError(f"the connection of {self.user!r} receives from {queue!r} already")
        number, call = self._new_call()
        self._send(Consume(number, queue, prefetch, acknowledged))
        self._await(number, call, self._answer_s)
        self._consumed.add(queue)

    def acknowledge(self, tag: int) -> None:
        """Acknowledge a delivery. A tag of an earlier connection, or one that was acknowledged before, is ignored."""
        held = self._held.pop(tag, None)
        if held is not None:
            self._send_if_there(Acknowledge(held[0]))

    def dead_letter(self, tag: int, reason: str) -> None:
        """Keep the delivery in the dead queue, then acknowledge it."""
        server_tag, delivery = self._held.pop(tag, (None, None))
        delivery = delivery or self._inbox.find_passed(tag)
        if delivery is not None:
            self._bury(server_tag, delivery, reason)

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Return the events received, waiting at most `timeout_s` for the first. `Lost` comes last, once."""
        inbox = self._inbox
        if inbox and (events := inbox.take()):
            return events
        if self._down and not inbox:  # the news of a loss comes before the loss
            raise BusUnavailable(self._down)
        inbox.wait(timeout_s)
        return inbox.take()

    def now_s(self) -> float:
        """See `shared.ports.bus.Bus`."""
        return self._clock.monotonic_s()

    def charge(self, sender: str, busy_s: float) -> None:
        """See `shared.ports.bus.Bus`."""
        self._inbox.charge(sender, busy_s)

    def close(self) -> None:
        """End the connection; what was published before is sent. Ending it twice is fine."""
        self._end(socket.SHUT_WR)  # the server reads all, then closes its side
        self.kill()

    def kill(self) -> None:
        """End the connection as the death of the process would."""
        self._end(socket.SHUT_RDWR)
        self._socket.close()
        self._inbox.clear()

    # --- out ---------------------------------------------------------------------------------------------------------

    def _end(self, how: int) -> None:
        self._down = self._down or f"the connection of {self._user!r} is closed"
        with suppress(OSError):  # it had ended already
            self._socket.shutdown(how)
        if self._reader.ident is not None and threading.current_thread() is not self._reader:
            self._reader.join(CLOSE_S)

    def _check_route(self, exchange: str, routing_key: str) -> None:
        if exchange not in EXCHANGES and exchange != REPLIES:
            raise PermanentError(f"there is no exchange {exchange!r}")
        if not self._grant.may_publish(exchange, routing_key):
            raise PermanentError(f"{self.user!r} may not write {routing_key!r} to {exchange!r}")
        if len(self._permitted) >= ROUTES_MAX:
            self._permitted.clear()
        self._permitted.add((exchange, routing_key))

    def _new_call(self) -> tuple[int, _Call]:
        if self._down:
            raise BusUnavailable(self._down)
        number, call = next(self._numbers), _Call()
        self._calls[number] = call
        return number, call

    def _await(self, number: int, call: _Call, limit_s: float) -> None:
        """Wait for the answer. Raises PermanentError when the call is refused, BusUnavailable when there is none."""
        answered = call.answered.wait(limit_s)
        self._calls.pop(number, None)
        if not answered:
            raise BusUnavailable(f"the bus server at {self._path} did not answer in {limit_s:g} s")
        if call.error:
            raise BusUnavailable(call.error)
        if call.refused:
            raise PermanentError(call.refused)

    def _send(self, value: FromClient) -> None:
        frame = to_frame(value)
        with self._lock:
            try:
                self._socket.sendall(frame)
            except OSError as error:
                self._lose(f"the bus server at {self._path} is gone: {error.strerror or error}")
                raise BusUnavailable(self._down) from error

    def _send_if_there(self, value: FromClient) -> None:
        if not self._down:
            with suppress(BusUnavailable):  # who polls is given `Lost`
                self._send(value)

    def _limit_sending(self, seconds: float) -> None:
        """Let a write to a server that does not read fail after so long. A timeout of the socket would limit reads."""
        whole, part = divmod(seconds, 1.0)
        self._socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(whole), int(part * 1_000_000))
        )

    # --- in: the reader's thread -------------------------------------------------------------------------------------

    def _read(self) -> None:
        reason = f"the bus server at {self._path} has closed the connection"
        try:
            while data := self._socket.recv(RECEIVE_BYTES):
                for value in self._frames.feed(data):
                    if isinstance(value, Ended):
                        reason = value.reason
                    else:
                        self._take(value)
        except (OSError, CodecError) as error:
            reason = f"the bus server at {self._path} is gone: {error}"
        self._lose(reason)
        with self._lock:
            self._socket.close()

    def _take(self, value: Answered | Delivered | Confirmed) -> None:
        match value:
            case Delivered():
                self._deliver(value)
            case Confirmed():
                self._inbox.put(Confirm(value.publish_id, value.ok))
            case Answered():
                call = self._calls.get(value.call)
                if call is not None:
                    call.refused = value.error
                    call.answered.set()

    def _deliver(self, value: Delivered) -> None:
        delivery = Delivery(
            next(_TAGS),
            value.queue,
            value.routing_key,
            sender=value.sender,
            body=value.body,
            redelivered=value.redelivered,
            reply_to=value.reply_to,
            arrived_s=self._clock.monotonic_s(),
        )
        server_tag = None if value.loose else value.tag
        if wrong := unfit(delivery):
            self._bury(server_tag, delivery, wrong)
            self._inbox.put_discarded(delivery.queue, delivery.sender, wrong)
            return
        if server_tag is not None:
            self._held[delivery.tag] = (server_tag, delivery)
        self._inbox.put_delivery(delivery, loose=value.loose)

    def _bury(self, server_tag: int | None, delivery: Delivery, reason: str) -> None:
        dead = None
        if self._grant.may_publish(DEAD, DEAD_QUEUE) and self._burials.allow(
            delivery.sender, self._clock.monotonic_s()
        ):
            dead = bury(reason, delivery.queue, delivery.routing_key, delivery.sender, delivery.body)
        if dead is not None or server_tag is not None:
            self._send_if_there(Bury(dead, server_tag))

    def _lose(self, reason: str) -> None:
        """Mark the connection as lost: `poll` returns `Lost`, once, and calls that wait for an answer get the
        reason."""
        if not self._down:
            self._down = reason
            self._inbox.put(Lost(reason))
        self._held.clear()
        for call in tuple(self._calls.values()):
            if not call.answered.is_set():
                call.error = reason
                call.answered.set()
        self._inbox.wake()
