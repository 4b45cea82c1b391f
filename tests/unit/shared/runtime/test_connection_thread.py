"""The pump: batches in order, no more of them than are wanted, and dead letters for what is no message."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from random import Random
from typing import cast

import pytest

from shared.ports import effects as fx
from shared.ports.bus import Bus, BusEvent, Confirm, Delivery, Discarded, Lost
from shared.protocol.codec import encode
from shared.protocol.messages import Hello
from shared.runtime.connection_thread import (
    BATCH_MAX,
    BATCHES_MAX,
    Batch,
    Buried,
    Connected,
    ConnectionSpec,
    Disconnected,
    News,
    Pump,
)

WAIT_S = 10.0
NOW_S = 1_000.0


class ScriptedBus:
    """Hands out what it was given, one list for each poll; then nothing more comes."""

    def __init__(self, *polls: Sequence[BusEvent]) -> None:
        self.buried: list[tuple[int, str]] = []
        self._polls = [*polls]

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        if self._polls:
            return self._polls.pop(0)
        threading.Event().wait(min(timeout_s, 0.01))
        return []

    def dead_letter(self, tag: int, reason: str) -> None:
        self.buried.append((tag, reason))

    def now_s(self) -> float:
        return 100.0

    def charge(self, sender: str, busy_s: float) -> None:
        pass

    def close(self) -> None:
        pass


class Pumped:
    """A pump on a scripted bus, and what it posts."""

    def __init__(self, *polls: Sequence[BusEvent], unacknowledged: frozenset[str] = frozenset()) -> None:
        self.bus = ScriptedBus(*polls)
        self.posted: SimpleQueue[News] = SimpleQueue()
        link = ConnectionSpec(lambda: cast(Bus, self.bus), lambda _bus: None, unacknowledged)
        self.pump = Pump(link, self.posted.put, Random(1), lambda: NOW_S)

    def __enter__(self) -> Pumped:
        self.pump.start()
        assert isinstance(self.next(), Connected)
        return self

    def __exit__(self, *_: object) -> None:
        self.pump.stop()

    def next(self) -> News:
        return self.posted.get(timeout=WAIT_S)

    def batch(self) -> list[fx.Input]:
        got = self.next()
        assert isinstance(got, Batch)
        return [*got.inputs]


def received(tag: int | None, sent: int) -> fx.Received:
    """A delivery that came 5 s ago."""
    return fx.Received(tag, "controller.c", Hello(sent), arrived_s=NOW_S - 5.0)


def delivery(tag: int, body: bytes = b"", queue: str = "agent.n1") -> Delivery:
    return Delivery(tag, queue, "key", sender="controller.c", body=body or encode(Hello(tag)), arrived_s=95.0)


def test_no_more_batches_wait_than_are_wanted() -> None:
    """Given more than enough deliveries, when nobody takes any, then two batches come; each one taken makes room for
    one more, and nothing is left out."""
    count = BATCH_MAX * (BATCHES_MAX + 2) + 1
    with Pumped([delivery(tag) for tag in range(1, count + 1)]) as pumped:
        found: list[fx.Input] = []
        for _ in range(BATCHES_MAX):
            found += pumped.batch()
        with pytest.raises(Empty):
            pumped.posted.get(timeout=0.1)
        for _ in range(3):
            pumped.pump.taken()
            found += pumped.batch()
    assert found == [received(tag, tag) for tag in range(1, count + 1)]


def test_what_comes_together_is_one_batch_in_its_order() -> None:
    with Pumped([delivery(1), Confirm(7, True), delivery(2, queue="loose")], unacknowledged=frozenset({"loose"})) as it:
        first, second, third = it.batch()
    assert first == received(1, 1)
    assert second == fx.Published(7, True)
    assert third == received(None, 2)


def test_what_is_no_message_is_buried_and_the_rest_goes_on() -> None:
    with Pumped([delivery(1), delivery(2, b"\xc1"), delivery(3)]) as pumped:
        assert [event.delivery for event in pumped.batch() if isinstance(event, fx.Received)] == [1, 3]
        buried = pumped.next()
    assert isinstance(buried, Buried)
    assert buried.reason.startswith("undecodable body")
    assert pumped.bus.buried == [(2, buried.reason)]


def test_what_the_bus_buried_itself_is_told_too() -> None:
    with Pumped([Discarded("controller", "", "no user id"), delivery(1)]) as pumped:
        assert [event.delivery for event in pumped.batch() if isinstance(event, fx.Received)] == [1]
        assert pumped.next() == Buried("controller", "", "no user id")
    assert pumped.bus.buried == []


def test_what_came_before_a_loss_is_handed_on_before_it() -> None:
    with Pumped([delivery(1), Lost("gone")]) as pumped:
        assert pumped.batch() == [received(1, 1)]
        lost = pumped.next()
    assert isinstance(lost, Disconnected)
    assert lost.reason == "gone"
