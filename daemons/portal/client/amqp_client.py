"""The portal's controller client over RabbitMQ: one connection, one thread that holds it, each request on behalf of an
account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import uuid4

from daemons.portal.client.controller_client import Refused, Unreachable, body_of
from shared.base.errors import BusUnavailable, CodecError, PermanentError
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.ports.core import Clock
from shared.protocol import topology
from shared.protocol.columns import unfolded
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Query, Request
from shared.runtime.connection_thread import (
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
from shared.runtime.logs import get_logger
from shared.runtime.shell import REFUSED_TOLD
from shared.runtime.trace import is_told

PREFETCH = 1000
ANSWER_S = 8.0
SENDS = 3  # how often a request is sent before its time is over
WAITING_MAX = 500
NO_CONNECTION = "the broker cannot be reached"
NO_ANSWER = "no controller answers"


class AmqpClient:
    """Implements `daemons.portal.client.controller_client.ControllerClient` for the event loop in which `start` is
    called. A lost connection is reopened automatically; waiting requests are then sent again."""

    def __init__(
        self, connect: Callable[[], Bus], user: str, clock: Clock, seed: int, answer_s: float = ANSWER_S
    ) -> None:
        self.own = user
        self._clock, self._answer_s = clock, answer_s
        self._queue = topology.reply_queue(user, uuid4().hex)
        self._pump = Pump(
            ConnectionSpec(connect, self._set_up, frozenset({self._queue.name})), self._heard, Random(seed)
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bus: Bus | None = None
        self._down: tuple[float, str] | None = None  # since when, and why
        self._refused_count = 0
        self._silent_s: float | None = None
        self._waiting: dict[str, tuple[bytes, asyncio.Future[Reply]]] = {}
        self.on_defect: Callable[[BaseException], None] | None = None

    def start(self) -> None:
        """Connect, now and whenever the connection is lost."""
        self._loop = asyncio.get_running_loop()
        self._down = (self._clock.now_s(), "not connected yet")
        self._pump.start()

    def close(self) -> None:
        """Give the connection up."""
        self._pump.stop()
        if self._bus is not None:
            self._bus.close()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the broker."""
        return self._down is None

    def now_s(self) -> float:
        """UTC epoch seconds."""
        return self._clock.now_s()

    def new_id(self) -> str:
        """Return an id for a new request."""
        return uuid4().hex

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        """See `ControllerClient.view`."""
        data = await self._answer(account, Query(self.new_id(), what, subject, limit, columns=True), "")
        if not isinstance(data, dict):
            return {what: data}
        try:
            return unfolded(data)
        except CodecError as error:
            raise Refused(error.code, str(error)) from error

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        """See `ControllerClient.ask`."""
        return await self._answer(account, request, why)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _answer(self, account: str, request: Request, why: str) -> Any:
        body = body_of(account, request, why)
        if self._down is not None and self._clock.now_s() - self._down[0] >= self._answer_s:
            raise Unreachable(self._down[0], f"{NO_CONNECTION} ({self._down[1]})")
        if len(self._waiting) >= WAITING_MAX:
            raise Unreachable(self._since_s(), "too many unanswered requests")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.request] = (body, future)
        try:
            reply = await self._wait(request, body, future)
        finally:
            self._waiting.pop(request.request, None)
        if not reply.done:
            raise Refused(reply.code, reply.detail)
        return reply.data

    async def _wait(self, request: Request, body: bytes, future: asyncio.Future[Reply]) -> Reply:
        for number in range(SENDS):
            self._send(body, number == 0 and isinstance(request, Query))
            done, _pending = await asyncio.wait([future], timeout=self._answer_s / SENDS)
            if done:
                self._silent_s = None
                return future.result()
        if self._down is None and self._silent_s is None:
            self._silent_s = self._clock.now_s() - self._answer_s
        raise Unreachable(self._since_s(), NO_ANSWER if self._down is None else f"{NO_CONNECTION} ({self._down[1]})")

    def _since_s(self) -> float:
        if self._down is not None:
            return self._down[0]
        return self._clock.now_s() if self._silent_s is None else self._silent_s

    def _send(self, body: bytes, only_asks: bool = False) -> None:
        """Send, as far as there is a connection: what is not sent now is sent at the next turn. `only_asks`: the short
        way, where no controller may listen."""
        if self._bus is None:
            return
        try:
            exchange, key = topology.asked_at(self._bus.user, only_asks)
            self._bus.publish(exchange, key, body, None, self._queue.name)
        except BusUnavailable:
            self._bus = None  # the pump connects again
        except PermanentError as error:
            raise Refused(error.code, str(error)) from error

    # --- the pump's thread ------------------------------------------------------------------------------------------

    def _set_up(self, bus: Bus) -> None:
        bus.declare(self._queue)
        bus.consume(self._queue.name, PREFETCH, acknowledged=False)

    def _heard(self, news: News) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, news)

    # --- the event loop ---------------------------------------------------------------------------------------------

    def _take(self, news: News) -> None:
        match news:
            case Batch():
                for each in news.inputs:
                    self._take_reply(each)
                self._pump.taken()
            case Connected():
                self._bus, self._down, self._refused_count = news.bus, None, 0
                get_logger("portal").info("connected to the broker")
                for body, _ in self._waiting.values():
                    self._send(body)
            case Disconnected():
                self._disconnected(news)
            case Blocked() | Buried():
                get_logger("portal").warning("the bus", reason=news.reason)
            case Failed():
                get_logger("portal").error("defect", where=news.where, exc_info=news.error)
                if self.on_defect is not None:
                    self.on_defect(news.error)
            case Unblocked() | _:
                return

    def _disconnected(self, news: Disconnected) -> None:
        """Logged more and more rarely: a broker may be away for days."""
        self._bus = None
        self._down = (self._clock.now_s() if self._down is None else self._down[0], news.reason)
        self._refused_count += 1
        if is_told(self._refused_count, REFUSED_TOLD):
            get_logger("portal").warning("no connection to the broker", reason=news.reason, retry_s=news.retry_s)

    def _take_reply(self, event: fx.Input) -> None:
        if not isinstance(event, fx.Received) or not event.sender.startswith(topology.CONTROLLER_USER_PREFIX):
            return
        if isinstance(event.message, Reply) and event.message.request in self._waiting:
            _, future = self._waiting[event.message.request]
            if not future.done():
                future.set_result(event.message)
