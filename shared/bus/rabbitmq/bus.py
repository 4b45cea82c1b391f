"""RabbitMQ behind `shared.ports.bus.Bus`; the only file that imports pika.

A `RabbitConnection` has a thread of its own that owns pika's connection, so heartbeats continue even if its users
block. Publishes, acknowledgements and calls go to that thread through a queue; events come back through another. The
thread is woken once for many of them. Anything that ends a channel in use ends the connection, with `Lost`.

One channel publishes, in confirm mode, which preserves a publisher's order. Each consumer has a channel of its own.
Each declaration has a temporary one: a refusal affects nothing else.
"""

from __future__ import annotations

import itertools
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

import pika  # type: ignore[import-untyped]
from pika import data as fields
from pika import exceptions as faults
from pika.adapters.utils import connection_workflow as opening  # type: ignore[import-untyped]

from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable, InvalidValue, PermanentError
from shared.bus.inbox import Inbox, unfit
from shared.bus.rabbitmq.addresses import check_name, dead_headers, queue_arguments, tls_advice, tls_context
from shared.bus.rabbitmq.field_tables import read_short_string, read_table
from shared.bus.rabbitmq.parts import Errand, Step, UnacknowledgedDelivery, culprit, unhandled, words
from shared.config.broker_url import Address, Tls, parse_url
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.protocol.dead_letter import Burials, bury
from shared.protocol.permissions import Grant, grant_of
from shared.protocol.shares import share_of
from shared.protocol.topology import DEAD, DEAD_QUEUE, EXCHANGES, REPLIES, QueueSpec

CONTENT_TYPE = "application/msgpack"
HEARTBEAT_S = 10
ANSWER_S = 10.0  # how long the broker may take to answer a call
CLOSE_S = 3.0  # how long a farewell may take before the connection is cut
BURY_AGAIN_S = 1.0
UNCONFIRMED_BYTES_MAX = 64 * 1024 * 1024
PREFETCH_MAX = 65_535
ROUTES_MAX = 100_000

# pika raises on what a sender may choose, in the thread of the connection that receives it.
fields.decode_short_string, fields.decode_table = read_short_string, read_table

_TAGS: Iterator[int] = itertools.count(1)  # of all connections: a tag is unique within the process
_Job = Callable[[], object]


def connect(
    url: str,
    tls: Tls | None = None,
    heartbeat_s: int = HEARTBEAT_S,
    answer_s: float = ANSWER_S,
    grant: Callable[[str], Grant] | None = grant_of,
    opening_s: float | None = None,
) -> RabbitConnection:
    """Connect as the user of the URL (`amqp://` or, verified according to `tls`, `amqps://`).

    `heartbeat_s`: the longest time between two signs of life from each side; silence is noticed in `heartbeat_s` + 5 s
    to twice that. `answer_s`: how long the broker may take to answer a call. `grant`: what the user may publish; other
    publishes are refused here. None leaves the check to the broker, which then ends the connection. `opening_s`: how
    long it may take until the connection is open, at all addresses of the host together; twice `answer_s` if None.
    Raises InvalidValue for a URL or TLS files that cannot be used. Raises BusUnavailable, with advice, when no
    connection can be made.
    """
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # what pika logs comes as an error or as `Lost`
    address = parse_url(url)
    parameters = pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        heartbeat=heartbeat_s,
        connection_attempts=1,
        socket_timeout=answer_s,
        stack_timeout=answer_s,
        ssl_options=pika.SSLOptions(*tls_context(address, tls or Tls())) if address.encrypted else None,
        client_properties={"connection_name": address.user, "product": "trimtab"},
    )
    connection = RabbitConnection(address, parameters, answer_s, grant)
    connection.open(2 * answer_s if opening_s is None else opening_s)
    return connection


class RabbitConnection:
    """One user's connection; made by `connect`, implements `shared.ports.bus.Bus`.

    For any threads, `poll` and `dead_letter` for one at a time. Deliveries that are too long for their sender or have
    no user id go to the dead letters by themselves, those beyond its share are dropped (`shared.bus.inbox`); of dead
    letters so many of each sender are kept a minute, and none where the user may write none. While the broker blocks
    publishers (`blocked`) what has no publish id is dropped and the rest waits. With more than UNCONFIRMED_BYTES_MAX on
    the way what has no id is dropped and the rest answered with `Confirm(ok=False)`.
    """

    def __init__(
        self, address: Address, parameters: Any, answer_s: float, grant: Callable[[str], Grant] | None
    ) -> None:
        self.blocked = ""  # why the broker takes no messages; "": it does
        self.dropped = 0  # messages without an id that were not sent
        self._address = address
        self._answer_s = answer_s
        self._grant = None if grant is None else grant(address.user)
        self._buries = self._grant is None or self._grant.may_publish(DEAD, DEAD_QUEUE)
        self._permitted: set[tuple[str, str]] = set()
        self._plain = self._properties()
        self._body_bytes_max = share_of(address.user).body_bytes_max
        # between the threads
        self._clock = SystemClock()
        self._inbox = Inbox(self._clock.monotonic_s, lambda delivery: self.acknowledge(delivery.tag))
        self._held: dict[int, UnacknowledgedDelivery] = {}
        self._jobs: deque[_Job] = deque()
        self._woken = False
        self._lock = threading.Lock()
        self._unconfirmed_bytes = 0
        self._down = False  # closed or lost
        self._stopped = False  # the thread takes no more jobs
        # of the I/O thread
        self._parameters = parameters
        self._publisher: Any = None
        self._burials = Burials()
        self._published = 0
        self._unconfirmed: dict[int, tuple[int, Callable[[bool], None] | None]] = {}
        self._errands: set[Errand] = set()
        self._consumed: set[str] = set()
        self._opened: Future[None] = Future()
        self._closing = False
        self._pika: Any = None
        self._loop: Any = None
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq {address.user}", daemon=True)

    # --- Bus ---------------------------------------------------------------------------------------------------------

    @property
    def user(self) -> str:
        """The name the broker knows this connection by."""
        return self._address.user

    def open(self, limit_s: float) -> None:
        """Connect within so long; for `connect` only."""
        self._pika = pika.SelectConnection(
            self._parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_open_error,
            on_close_callback=self._on_close,
        )
        self._loop = self._pika.ioloop
        self._thread.start()
        try:
            failed = self._opened.exception(limit_s)
        except FutureTimeout:
            self.kill()
            raise BusUnavailable(_silence(self._address, limit_s)) from None
        if failed is not None:
            raise BusUnavailable(str(failed)) from None  # one whose traceback is not held by what it leads to

    def declare(self, queue: QueueSpec) -> None:
        """Make a queue and its bindings. PermanentError: not permitted, an unknown exchange, another shape than the
        queue has, or another connection's exclusive queue."""
        for exchange, _ in queue.bindings:
            if exchange not in EXCHANGES:
                raise PermanentError(f"queue {queue.name!r} cannot be bound to the unknown exchange {exchange!r}")
        check_name("queue name", queue.name)
        arguments = queue_arguments(queue)

        def make(channel: Any, done: Callable[..., None]) -> None:
            channel.queue_declare(
                queue.name, durable=queue.durable, exclusive=queue.exclusive, arguments=arguments, callback=done
            )

        def bind(exchange: str, key: str, channel: Any, done: Callable[..., None]) -> None:
            channel.queue_bind(queue.name, exchange, key, callback=done)

        def leave(channel: Any, done: Callable[..., None]) -> None:
            done()
            channel.close()

        self._run_errand(make, *(partial(bind, exchange, key) for exchange, key in queue.bindings), leave)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Send a body. PermanentError: too long for this user, not permitted, or an unknown exchange."""
        if self._down:
            raise self._gone()
        if len(body) > self._body_bytes_max:
            raise PermanentError(f"a body of {len(body)} bytes is above {self.user}'s limit of {self._body_bytes_max}")
        if (exchange, routing_key) not in self._permitted:
            self._check_route(exchange, routing_key)
        properties = self._properties(reply_to) if reply_to else self._plain
        on_answer = None if publish_id is None else partial(self._confirm, publish_id)
        if (publish_id is None and self.blocked) or self._unconfirmed_bytes > UNCONFIRMED_BYTES_MAX:
            if on_answer is None:
                self.dropped += 1
            else:
                on_answer(False)
            return
        self._count(len(body))
        self._post(partial(self._send, exchange, routing_key, body, properties, on_answer))

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Begin to receive. PermanentError: not permitted, no such queue, another connection's exclusive queue, or
        this connection receives from it already. InvalidValue: `prefetch` outside 1..65535 where it counts."""
        if acknowledged and not 1 <= prefetch <= PREFETCH_MAX:
            raise InvalidValue("prefetch", prefetch, f"1 to {PREFETCH_MAX}")
        if queue in self._consumed:
            raise PermanentError(f"the connection of {self.user!r} receives from {queue!r} already")
        check_name("queue name", queue)
        deliver = partial(self._on_delivery if acknowledged else self._on_loose_delivery, queue)

        def bound(channel: Any, done: Callable[..., None]) -> None:
            channel.basic_qos(prefetch_count=prefetch, callback=done)

        def begin(channel: Any, done: Callable[..., None]) -> None:
            channel.basic_consume(queue, deliver, auto_ack=not acknowledged, callback=done)

        def watch(channel: Any, done: Callable[..., None]) -> None:
            channel.add_on_close_callback(self._on_channel_close)
            channel.add_on_cancel_callback(lambda _: self._lose(f"queue {queue!r} is gone"))
            done()

        self._run_errand(*((bound,) if acknowledged else ()), begin, watch)
        self._consumed.add(queue)

    def acknowledge(self, tag: int) -> None:
        """Acknowledge a processed delivery. A tag of an earlier connection, or one that was acknowledged before, is
        ignored."""
        held = self._held.pop(tag, None)
        if held is not None and not self._down:
            self._post(held.acknowledge)

    def dead_letter(self, tag: int, reason: str) -> None:
        """Keep the delivery in the dead queue; it is acknowledged once the broker has confirmed that."""
        held = self._held.pop(tag, None)
        if self._down:
            return
        if held is not None:
            self._post(partial(self._begin_burial, held.delivery, reason, held.acknowledge))
            return
        delivery = self._inbox.find_passed(tag)
        if delivery is not None:
            self._post(partial(self._begin_burial, delivery, reason, None))

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Return the received events, waiting at most `timeout_s` for the first, or for a change of `blocked`. `Lost`
        comes last, once."""
        inbox = self._inbox
        if inbox and (events := inbox.take()):
            return events
        if self._down and not inbox:  # the news of a loss comes before the loss
            raise self._gone()
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
        self._down = True
        self._post(self._farewell)
        self._thread.join(CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End the connection as the death of the process would: what is on its way is lost."""
        self._down = True
        self._post(self._cut)
        self._thread.join(CLOSE_S)
        self._inbox.clear()

    # --- for any thread ----------------------------------------------------------------------------------------------

    def _post(self, job: _Job) -> None:
        """Queue a job for the I/O thread. If the thread is awake, it finds the job without a wake-up."""
        self._jobs.append(job)
        if not self._woken:
            with self._lock:
                if not self._stopped:
                    self._woken = True
                    self._loop.add_callback_threadsafe(self._work)

    def _run_errand(self, *steps: Step) -> None:
        if self._down:
            raise self._gone()
        errand = Errand(steps)
        self._post(partial(self._begin_errand, errand))
        try:
            errand.answer.result(self._answer_s)
        except FutureTimeout:
            raise BusUnavailable(f"{self._address} did not answer in {self._answer_s} s") from None
        finally:
            self._post(partial(self._errands.discard, errand))
            del errand  # whose answer may be the error that holds this frame

    def _check_route(self, exchange: str, routing_key: str) -> None:
        if exchange not in EXCHANGES and exchange != REPLIES:
            raise PermanentError(f"there is no exchange {exchange!r}")
        if self._grant is not None and not self._grant.may_publish(exchange, routing_key):
            raise PermanentError(f"{self.user!r} may not write {routing_key!r} to {exchange!r}")
        check_name("routing key", routing_key)
        if len(self._permitted) >= ROUTES_MAX:
            self._permitted.clear()
        self._permitted.add((exchange, routing_key))

    def _properties(self, reply_to: str = "", headers: dict[str, Any] | None = None) -> Any:
        check_name("reply queue", reply_to)
        return pika.BasicProperties(
            content_type=CONTENT_TYPE, user_id=self._address.user, reply_to=reply_to or None, headers=headers
        )

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self._unconfirmed_bytes += size_bytes

    def _confirm(self, publish_id: int, ok: bool) -> None:
        self._inbox.put(Confirm(publish_id, ok))

    def _gone(self) -> BusUnavailable:
        return BusUnavailable(f"the connection to {self._address} is closed")

    # --- in the I/O thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.start()
            self._lose("the connection has ended")
        except Exception as problem:  # noqa: BLE001  whatever breaks the thread is told to who polls
            self._lose(f"{type(problem).__name__}: {problem}")
            self._cut()
        finally:
            with self._lock:
                self._stopped = True
            for errand in (*self._errands,):
                errand.fail(self._gone())
            self._loop.close()
            self._let_go()

    def _let_go(self) -> None:
        """Hold nothing of pika and have it hold nothing of us. Else each connection that was lost would stay until the
        whole heap is looked through, which a process with few objects to spare seldom does."""
        self._jobs = deque(maxlen=0)  # what is posted from now on is not done
        self._inbox.detach()
        self._held.clear()
        self._errands.clear()
        self._unconfirmed.clear()
        self._pika.callbacks.clear()
        del self._loop._poller  # which holds the loop that holds it; closed it is of no use
        self._pika = self._loop = self._publisher = None

    def _work(self) -> None:
        self._woken = False
        jobs = self._jobs
        while jobs:
            jobs.popleft()()

    def _begin_errand(self, errand: Errand) -> None:
        if not self._pika.is_open:
            errand.fail(self._gone())
            return
        self._errands.add(errand)
        self._pika.channel(on_open_callback=errand.opened)

    def _send(
        self, exchange: str, routing_key: str, body: bytes, properties: Any, on_answer: Callable[[bool], None] | None
    ) -> None:
        if self._publisher.is_open:
            self._publisher.basic_publish(exchange, routing_key, body, properties)
            self._published += 1
            self._unconfirmed[self._published] = (len(body), on_answer)

    def _begin_burial(self, delivery: Delivery, reason: str, acknowledge: _Job | None) -> None:
        if self._buries and self._burials.allow(delivery.sender, self._clock.monotonic_s()):
            self._bury(delivery, reason, acknowledge)
        elif acknowledge is not None:
            acknowledge()

    def _bury(self, delivery: Delivery, reason: str, acknowledge: _Job | None) -> None:
        if self._unconfirmed_bytes > UNCONFIRMED_BYTES_MAX:
            if acknowledge is not None:
                self._loop.call_later(BURY_AGAIN_S, partial(self._bury, delivery, reason, acknowledge))
            return
        dead = bury(reason, delivery.queue, delivery.routing_key, delivery.sender, delivery.body)

        def answered(ok: bool) -> None:
            if acknowledge is None or not self._pika.is_open:
                return
            if ok:
                acknowledge()
            else:
                self._loop.call_later(BURY_AGAIN_S, partial(self._bury, delivery, reason, acknowledge))

        self._count(len(dead.body))
        self._send(DEAD, DEAD_QUEUE, dead.body, self._properties(headers=dead_headers(dead)), answered)

    def _on_confirm(self, frame: Any) -> None:
        last = frame.method.delivery_tag
        ok = isinstance(frame.method, pika.spec.Basic.Ack)
        if not frame.method.multiple:
            self._settle(last, ok)
            return
        for number in [*itertools.takewhile(lambda number: number <= last, self._unconfirmed)]:
            self._settle(number, ok)

    def _settle(self, number: int, ok: bool) -> None:
        size_bytes, on_answer = self._unconfirmed.pop(number)
        self._count(-size_bytes)
        if on_answer is not None:
            on_answer(ok)

    def _on_loose_delivery(self, queue: str, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        delivery = self._received(queue, method, properties, body)
        headers = properties.headers
        if wrong := (unhandled(headers) if headers else "") or unfit(delivery):
            self._begin_burial(delivery, wrong, None)
            self._inbox.put_discarded(queue, culprit(properties.headers) or delivery.sender, wrong)
            return
        self._inbox.put_delivery(delivery, loose=True)

    def _on_delivery(self, queue: str, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        delivery = self._received(queue, method, properties, body)
        held = UnacknowledgedDelivery(channel, method.delivery_tag, delivery)
        if wrong := unhandled(properties.headers) or unfit(delivery):
            self._begin_burial(delivery, wrong, held.acknowledge)
            self._inbox.put_discarded(queue, culprit(properties.headers) or delivery.sender, wrong)
            return
        self._held[delivery.tag] = held
        self._inbox.put_delivery(delivery, loose=False)

    def _received(self, queue: str, method: Any, properties: Any, body: bytes) -> Delivery:
        return Delivery(
            next(_TAGS),
            queue,
            method.routing_key,
            sender=properties.user_id or "",
            body=body,
            redelivered=method.redelivered,
            reply_to=properties.reply_to or "",
            arrived_s=self._clock.monotonic_s(),
        )

    # --- the life of the connection, in the I/O thread ---------------------------------------------------------------

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        connection.channel(on_open_callback=self._on_publisher_open)

    def _on_publisher_open(self, channel: Any) -> None:
        self._publisher = channel
        channel.add_on_close_callback(self._on_channel_close)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._opened.set_result(None))

    def _on_open_error(self, _connection: Any, problem: BaseException) -> None:
        if not self._opened.done():
            self._opened.set_exception(BusUnavailable(_advice(self._address, problem, self._answer_s)))
        self._down = True
        self._loop.stop()

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        self.blocked = frame.method.reason or "the broker is short of memory or disk"
        self._inbox.wake()

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked = ""
        self._inbox.wake()

    def _on_channel_close(self, _channel: Any, reason: BaseException) -> None:
        if not isinstance(reason, faults.ChannelClosedByClient):  # that is part of the farewell
            self._lose(words(reason))

    def _on_close(self, _connection: Any, reason: BaseException) -> None:
        self._lose(words(reason))
        self._loop.stop()

    def _lose(self, reason: str) -> None:
        """End a connection that is no longer usable; notify the poller once."""
        if not self._opened.done():
            self._opened.set_exception(BusUnavailable(f"{self._address}: {reason}"))
        if not self._down:
            self._inbox.put(Lost(reason))
            self._down = True
        self._held.clear()
        for errand in (*self._errands,):
            errand.fail(BusUnavailable(reason))
        self._inbox.wake()
        self._cut()

    def _farewell(self) -> None:
        if self._pika.is_open:
            self._pika.close()

    def _cut(self) -> None:
        if not (self._closing or self._pika.is_closed):
            self._closing = True
            self._pika._adapter_disconnect_stream()  # pika has no public way to end without a farewell


def _root(problem: BaseException) -> BaseException:
    """Return the error inside pika's wrappers of a failed connection."""
    while True:
        if isinstance(problem, opening.AMQPConnectionWorkflowFailed):
            problem = problem.exceptions[-1]
        elif isinstance(problem, opening.AMQPConnectorPhaseErrorBase):
            problem = problem.exception
        elif (
            isinstance(problem, faults.AMQPConnectionError) and problem.args and isinstance(problem.args[0], Exception)
        ):
            problem = problem.args[0]
        else:
            return problem


def _silence(address: Address, waited_s: float) -> str:
    return f"{address}: no answer within {waited_s:g} s: is this a broker's port, and is the broker well?"


def _advice(address: Address, problem: BaseException, answer_s: float) -> str:
    """Return why there is no connection and what to do about it; `answer_s`: how long pika waits."""
    root = _root(problem)
    if isinstance(root, opening.AMQPConnectorStackTimeout | faults.ConnectionOpenAborted | TimeoutError):
        return _silence(address, answer_s)
    if isinstance(root, faults.ProbableAuthenticationError | faults.AuthenticationError):
        return f"{address}: wrong user or password: see `bus.url`, or run `trimtab broker setup` again"
    if isinstance(root, faults.ProbableAccessDeniedError | faults.ConnectionClosedByBroker):
        return f"{address}: refused ({words(root)}): is there such a vhost, and may the user enter it?"
    if isinstance(root, ssl.SSLError):
        return f"{address}: no trusted TLS connection: {tls_advice(root)}"
    if isinstance(root, faults.IncompatibleProtocolError):
        return f"{address}: no AMQP is spoken there ({root}): does this port want TLS (amqps://)?"
    if isinstance(root, ConnectionRefusedError):
        return f"{address}: nobody listens there: is the broker running, and is this its port?"
    return f"{address}: no connection ({type(root).__name__}: {root}): check the host, the network and the broker"
