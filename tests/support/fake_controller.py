"""A bus with a controller behind it that answers as a test says, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from click.testing import CliRunner, Result

from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig
from daemons.cli.main import main
from shared.base.clock import ManualClock
from shared.base.errors import BusUnavailable
from shared.ports.bus import BusEvent, Delivery
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request
from shared.protocol.topology import QueueSpec

URL = "amqp://operator.ann:x@localhost/"


class FakeController:
    """`answer`: the reply to a request (None: there is none). `asked`, `exchanges`: the ids of what was sent, and where
    to. A poll without news lasts; `lost`: none succeeds any more."""

    user = "operator.ann"

    def __init__(self, clock: ManualClock, answer: Callable[[Request], Reply | None]) -> None:
        self.clock, self._answer = clock, answer
        self.asked: list[str] = []
        self.exchanges: list[str] = []
        self.lost = False
        self._replies: list[Reply] = []

    def declare(self, queue: QueueSpec) -> None:
        assert queue.name.startswith("reply.operator.ann.")

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        del queue, prefetch, acknowledged

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        del routing_key, publish_id, reply_to
        request = decode(body)
        assert isinstance(request, Request)
        self.asked.append(request.request)
        self.exchanges.append(exchange)
        reply = self._answer(request)
        if reply is not None:
            self._replies.append(reply)

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        if self.lost:
            raise BusUnavailable("cut")
        if not self._replies:
            self.clock.sleep(timeout_s)
        found, self._replies = self._replies, []
        return [Delivery(0, "reply", "", sender="controller.a", body=encode(reply)) for reply in found]

    def acknowledge(self, tag: int) -> None:
        raise AssertionError(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        raise AssertionError((tag, reason))

    def now_s(self) -> float:
        return self.clock.now_s()

    def charge(self, sender: str, busy_s: float) -> None:
        raise AssertionError((sender, busy_s))

    def close(self) -> None:
        """Nothing to close."""


def access_to(bus: FakeController) -> Access:
    """How commands reach it; ids of requests are r1, r2 and so on."""
    ids = count(1)

    def connect(_bus: OperatorBus, _limit_s: float) -> FakeController:
        if bus.lost:
            raise BusUnavailable("cut")
        return bus

    return Access(connect, bus.clock, lambda: f"r{next(ids)}")


def line_to(bus: FakeController, said: list[str] | None = None) -> ControllerConnection:
    """A connection to it, with 10 s for an answer. `said`: gets what people are to know."""
    told = [] if said is None else said
    return ControllerConnection(access_to(bus), OperatorConfig(10.0, OperatorBus(URL)), told.append)


def trimtab(bus: FakeController, *words: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(
        main, [str(word) for word in words], obj=access_to(bus), env={"TRIMTAB_URL": URL, "HOME": "/none"}
    )
