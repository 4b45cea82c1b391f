"""The controller client over a bus: answers, refusals, silence, a connection that is lost and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemons.access.delegation import asked_by
from daemons.portal.client.amqp_client import AmqpClient
from daemons.portal.client.controller_client import Refused, Unreachable
from shared.base.clock import SystemClock
from shared.base.errors import BusUnavailable
from shared.ports.bus import BusEvent, Delivery, Lost
from shared.ports.effects import Received
from shared.protocol.account_messages import WHY_LENGTH_MAX, OnBehalf
from shared.protocol.codec import decode, encode
from shared.protocol.columns import IN_COLUMNS, folded
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import DrainNode, Query
from shared.protocol.topology import BODY_BYTES_MAX, QueueSpec
from shared.runtime.connection_thread import Connected, Disconnected

USER = "portal.p"


class Answering:
    """A bus with a controller behind it that answers by `answer`; None: not at all."""

    user = USER

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.heard: list[OnBehalf] = []
        self.declared: list[QueueSpec] = []
        self.consumed: list[str] = []
        self._inbox: SimpleQueue[BusEvent] = SimpleQueue()
        self.sender = "controller.a"

    def declare(self, queue: QueueSpec) -> None:
        self.declared.append(queue)

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        del prefetch, acknowledged
        self.consumed.append(queue)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        assert (exchange, routing_key) in (("trimtab.requests", "controller"), ("trimtab.questions", "question"))
        assert publish_id is None
        message = decode(body)
        assert isinstance(message, OnBehalf)
        self.heard.append(message)
        inner = asked_by(Received(None, USER, message, reply_to), message).message
        reply = self._answer(message, inner)
        if reply is not None:
            self._inbox.put(Delivery(0, reply_to, "", sender=self.sender, body=encode(reply)))

    def acknowledge(self, tag: int) -> None:
        raise AssertionError(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        raise AssertionError((tag, reason))

    def lose(self) -> None:
        self._inbox.put(Lost("pulled"))

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        try:
            return [self._inbox.get(timeout=min(timeout_s, 0.02))]
        except Empty:
            return []

    def now_s(self) -> float:
        return 0.0

    def charge(self, sender: str, busy_s: float) -> None:
        del sender, busy_s

    def close(self) -> None:
        """Nothing to close."""


def good(message: OnBehalf, inner: Any) -> Reply:
    return Reply(message.request, True, data={"asked": inner.KIND, "account": message.account, "why": message.why})


def client_of(*buses: Answering | Exception) -> AmqpClient:
    made = list(buses)

    def connect() -> Answering:
        bus = made.pop(0) if len(made) > 1 else made[0]
        if isinstance(bus, Exception):
            raise bus
        return bus

    return AmqpClient(connect, USER, SystemClock(), 1, answer_s=0.6)


def test_requests_are_asked_on_behalf_of_accounts() -> None:
    bus = Answering(good)

    async def story() -> tuple[Any, Any]:
        controller_client = client_of(bus)
        controller_client.start()
        try:
            view = await controller_client.view("operator.jane", "nodes")
            done = await controller_client.ask(
                "owner.acme", DrainNode(controller_client.new_id(), "n1", True), "because"
            )
        finally:
            controller_client.close()
        return view, done

    view, done = asyncio.run(story())
    assert view == {"asked": Query.KIND, "account": "operator.jane", "why": ""}
    assert done == {"asked": DrainNode.KIND, "account": "owner.acme", "why": "because"}
    assert bus.consumed == [bus.declared[0].name]
    assert bus.declared[0].name.startswith(f"reply.{USER}.")
    assert bus.declared[0].exclusive


NODES = [{"name": f"n{number}", "up": True} for number in range(20)]


@pytest.mark.parametrize("is_whole", [True, False])
def test_long_lists_come_as_columns(is_whole: bool) -> None:
    def answer(message: OnBehalf, inner: Any) -> Reply:
        assert inner.columns
        data = folded({"total": 20, "nodes": NODES})
        if not is_whole:
            data[IN_COLUMNS]["nodes"]["names"].pop()
        return Reply(message.request, True, data=data)

    async def story() -> dict[str, Any]:
        controller_client = client_of(Answering(answer))
        controller_client.start()
        try:
            return await controller_client.view("operator.jane", "nodes")
        finally:
            controller_client.close()

    if is_whole:
        assert asyncio.run(story()) == {"total": 20, "nodes": NODES}
    else:
        with pytest.raises(Refused, match="columns"):
            asyncio.run(story())


def test_a_refusal_is_passed_on() -> None:
    async def story() -> None:
        controller_client = client_of(
            Answering(lambda message, _: Reply(message.request, False, "unknown-node", "no n9"))
        )
        controller_client.start()
        try:
            with pytest.raises(Refused, match="no n9") as caught:
                await controller_client.ask("operator.jane", DrainNode("x", "n9", True))
        finally:
            controller_client.close()
        assert caught.value.code == "unknown-node"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("node", "why", "code"),
    [("n1", "w" * (WHY_LENGTH_MAX + 1), "invalid-value"), ("n" * (BODY_BYTES_MAX + 1), "", "undecodable")],
    ids=["reason", "size"],
)
def test_what_cannot_be_sent_is_refused(node: str, why: str, code: str) -> None:
    """Without any connection."""
    with pytest.raises(Refused) as caught:
        asyncio.run(client_of(BusUnavailable("away")).ask("operator.jane", DrainNode("x", node, True), why))

    assert caught.value.code == code


def test_nobody_else_answers_for_the_controller() -> None:
    """And what is not answered is sent again, with the same id, then told."""
    bus = Answering(good)
    bus.sender = "operator.mallory"

    async def story() -> None:
        controller_client = client_of(bus)
        controller_client.start()
        try:
            with pytest.raises(Unreachable, match="no controller"):
                await controller_client.ask("operator.jane", DrainNode("x", "n1", True))
        finally:
            controller_client.close()

    asyncio.run(story())
    assert len(bus.heard) == 3
    assert {each.request for each in bus.heard} == {"x"}


def test_a_connection_that_is_lost_is_made_again() -> None:
    silent, answering = Answering(lambda *_: None), Answering(good)

    async def story() -> Any:
        controller_client = client_of(silent, answering)
        controller_client._answer_s = 8.0
        controller_client.start()
        try:
            task = asyncio.create_task(controller_client.view("operator.jane", "nodes"))
            while not silent.heard:
                await asyncio.sleep(0.01)
            silent.lose()
            return await task
        finally:
            controller_client.close()

    assert asyncio.run(story())["asked"] == Query.KIND


def test_a_broker_that_is_away_is_told_at_once() -> None:
    async def story() -> None:
        controller_client = client_of(BusUnavailable("refused"))
        controller_client.start()
        try:
            with pytest.raises(Unreachable, match="broker"):
                await controller_client.view("operator.jane", "nodes")
            before_s = SystemClock().monotonic_s()
            with pytest.raises(Unreachable, match="refused"):
                await controller_client.view("operator.jane", "nodes")
            assert SystemClock().monotonic_s() - before_s < 0.3
        finally:
            controller_client.close()

    asyncio.run(story())


def test_a_broker_that_is_away_for_a_day_fills_no_log() -> None:
    """Given an attempt every 30 s, then ten are logged and few later; of the next loss, too."""
    controller_client, bus = client_of(BusUnavailable("refused")), Answering(good)

    def said(times: int) -> int:
        with capture_logs() as logged:
            for _ in range(times):
                controller_client._take(Disconnected("refused", 30.0))
        return len(logged)

    assert said(2_880) == 10 + 8  # 16, 32, ... 2,048
    controller_client._take(Connected(bus))
    assert said(3) == 3
