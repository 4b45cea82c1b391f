"""A stand-in for the people and programs that send requests: it repeats each until it is answered."""

from __future__ import annotations

from collections.abc import Callable

from shared.base.errors import BusUnavailable
from shared.ports.bus import BusEvent, Delivery, Lost
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request
from shared.protocol.topology import QueueSpec
from sim_backend.bus.memory import MemoryBroker, MemoryConnection
from sim_backend.engine import Engine

RETRY_S = 10.0
RECONNECT_S = 2.0
PREFETCH = 1000


class OperatorClient:
    """One operator's connection. `replies` holds the first answer to each of the `answered` requests, by its id.

    `on_reply(request, reply)` is called once per request.
    """

    def __init__(self, user: str, engine: Engine, broker: MemoryBroker) -> None:
        self.user = user
        self.replies: dict[str, Reply] = {}
        self.pending: dict[str, Request] = {}
        self.answered: dict[str, Request] = {}
        self.on_reply: Callable[[Request, Reply], None] | None = None
        self._engine = engine
        self._broker = broker
        self._queue = f"reply.{user}"
        self._connection: MemoryConnection | None = None
        self._connect()

    def send(self, request: Request) -> None:
        """Send a request now and again every `RETRY_S` until it is answered."""
        self.pending[request.request] = request
        self._send(request)

    def handle_bus(self, connection: MemoryConnection, event: BusEvent) -> None:
        """Take one event of this client's connection."""
        if connection is not self._connection:
            return
        if type(event) is Delivery:
            message = decode(event.body)
            if isinstance(message, Reply):
                self._take(message)
            connection.acknowledge(event.tag)
        elif type(event) is Lost:
            self._connection = None
            self._connect_later()

    def _take(self, reply: Reply) -> None:
        request = self.pending.pop(reply.request, None)
        if request is None:
            return
        self.replies[reply.request] = reply
        self.answered[reply.request] = request
        self._engine.stop_timer(self.user, reply.request)
        if self.on_reply is not None:
            self.on_reply(request, reply)

    def _send(self, request: Request) -> None:
        if request.request not in self.pending:
            return
        if self._connection is not None:
            try:
                self._connection.publish(
                    topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(request), None, self._queue
                )
            except BusUnavailable:
                self._connection = None
                self._connect_later()
        at_s = self._engine.now_s + RETRY_S
        self._engine.start_timer(self.user, request.request, at_s, lambda: self._send(request))

    def _connect(self) -> None:
        try:
            connection = self._broker.connect(self.user)
            connection.declare(QueueSpec(self._queue, (), durable=False, exclusive=True))
            connection.consume(self._queue, PREFETCH)
        except BusUnavailable:
            self._connect_later()
        else:
            self._connection = connection

    def _connect_later(self) -> None:
        at_s = self._engine.now_s + RECONNECT_S
        self._engine.start_timer(self.user, "client: reconnect", at_s, self._connect)
