"""A command that is told that its account is busy asks again until its time limit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig, Refused
from shared.base.clock import ManualClock
from shared.ports.bus import BusEvent, Delivery
from shared.protocol.codec import decode, encode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import AddNode, Query, Request
from shared.protocol.topology import QueueSpec


class Controller:
    """A bus with a controller behind it that is busy so many times; a poll without news lasts."""

    user = "operator.ann"

    def __init__(self, clock: ManualClock, busy: int) -> None:
        self._clock, self._busy = clock, busy
        self.published: list[str] = []
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
        self.published.append(exchange)
        if len(self.published) <= self._busy:
            self._replies.append(Reply(request.request, False, "busy", "beyond its share"))
        else:
            self._replies.append(Reply(request.request, True, data={"was": "done"}))

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        if not self._replies:
            self._clock.sleep(timeout_s)
        found, self._replies = self._replies, []
        return [Delivery(0, "reply", "", sender="controller.a", body=encode(reply)) for reply in found]

    def acknowledge(self, tag: int) -> None:
        raise AssertionError(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        raise AssertionError((tag, reason))

    def now_s(self) -> float:
        return self._clock.now_s()

    def charge(self, sender: str, busy_s: float) -> None:
        raise AssertionError((sender, busy_s))

    def close(self) -> None:
        """Nothing to close."""


def line_of(clock: ManualClock, bus: Controller, said: list[str]) -> ControllerConnection:
    access = Access(lambda *_: bus, clock, lambda: "r1")
    return ControllerConnection(
        access, OperatorConfig(10.0, OperatorBus("amqp://operator.ann:x@localhost/")), said.append
    )


def test_it_asks_again_and_says_so_once() -> None:
    clock, said = ManualClock(100.0), list[str]()
    bus = Controller(clock, busy=2)

    with line_of(clock, bus, said) as line:
        assert line.ask(Query("r1", "status")) == {"was": "done"}

    assert clock.now_s() == 105.0
    assert bus.published == ["trimtab.questions", "trimtab.requests", "trimtab.requests"]
    assert said == ["busy: beyond its share; asking again for 10 s"]


def test_who_is_still_busy_at_the_end_is_refused_with_that() -> None:
    clock = ManualClock(100.0)

    with line_of(clock, Controller(clock, busy=99), []) as line, pytest.raises(Refused, match="busy: beyond") as caught:
        line.ask(AddNode("r1", "n1"))

    assert (caught.value.code, clock.now_s()) == ("busy", 110.0)
