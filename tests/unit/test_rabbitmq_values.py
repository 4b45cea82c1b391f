"""The parts of the RabbitMQ bus that need no broker: addresses, queues, dead letters, what waits for `poll`."""

from __future__ import annotations

import threading

import pytest

from shared.bus.dead import bury
from shared.bus.rabbitmq_parts import LOOSE_MAX, Inbox, unfit
from shared.bus.rabbitmq_values import Address, check_name, dead_headers, dead_message, parse_url, queue_arguments
from shared.bus.topology import (
    BODY_BYTES_MAX,
    CONTROLLER,
    DEAD_BODY_BYTES_MAX,
    DEAD_LETTERS,
    QueueSpec,
    agent_queue,
    report_queue,
)
from shared.errors import InvalidValue, PermanentError
from shared.ports import Confirm, Delivery, Lost


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://agent.n1:pw@host", Address("host", 5672, "/", "agent.n1", "pw")),
        ("amqps://agent.n1:pw@host/", Address("host", 5671, "/", "agent.n1", "pw", True)),
        ("amqp://u:p%2Fw%40@[::1]:99/a%2Fb", Address("::1", 99, "a/b", "u", "p/w@")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    """Percent-encoded, with the ports and the vhost that AMQP takes for granted."""
    assert parse_url(url) == address
    assert "pw" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "url", ["", "http://u:pw@h", "amqp://h", "amqp://u@h", "amqp://u:pw@", "amqp://u:pw@h:x", "amqp://u:pw@h:99999"]
)
def test_urls_that_are_none(url: str) -> None:
    """The error shows the form and never the password."""
    with pytest.raises(InvalidValue, match="USER:PASSWORD") as refusal:
        parse_url(url)
    assert ":pw@" not in str(refusal.value)


def test_shapes_of_queues() -> None:
    """Durable ones are quorum queues; a bound drops the head."""
    quorum = {"x-queue-type": "quorum"}
    assert queue_arguments(agent_queue("n1")) == quorum
    assert queue_arguments(CONTROLLER) == quorum | {"x-single-active-consumer": True}
    assert queue_arguments(DEAD_LETTERS) == quorum | {"x-max-length": 10_000, "x-overflow": "drop-head"}
    bounds = {"x-message-ttl": 15_000, "x-max-length": 10_000, "x-overflow": "drop-head"}
    assert queue_arguments(report_queue("a")) == bounds
    with pytest.raises(PermanentError, match="durable and exclusive"):
        queue_arguments(QueueSpec("q", (), durable=True, exclusive=True))


def test_dead_letters_are_read_as_they_were_written() -> None:
    """With a reason that is cut; what was never a dead letter of ours has none."""
    dead = bury("r" * 2000, "controller", "key", "agent.n1", bytes(DEAD_BODY_BYTES_MAX + 1))

    read = dead_message(dead_headers(dead), "dead", "controller.a", dead.body)

    assert (read.queue, read.routing_key, read.sender) == ("controller", "key", "agent.n1")
    assert (read.reason, read.size_bytes) == ("r" * 1024, DEAD_BODY_BYTES_MAX + 1)
    assert dead_message({}, "dead", "agent.n1", b"x") == bury("", "", "dead", "agent.n1", b"x")


def test_names_that_are_too_long() -> None:
    """255 bytes, not characters."""
    check_name("key", "é" * 127)
    with pytest.raises(PermanentError, match="255"):
        check_name("key", "é" * 128)


def _delivery(tag: int, body: bytes = b"", sender: str = "agent.n1") -> Delivery:
    return Delivery(tag, "queue", "key", sender, body)


def test_what_is_not_fit_to_be_handed_out() -> None:
    """Too large, or from nobody."""
    assert unfit(_delivery(1)) == ""
    assert unfit(_delivery(1, sender="")) == "no user id"
    assert unfit(_delivery(1, bytes(BODY_BYTES_MAX))) == ""
    assert unfit(_delivery(1, bytes(BODY_BYTES_MAX + 1))).startswith(f"{BODY_BYTES_MAX + 1} bytes")


def test_the_newest_reports_stay_and_nothing_else_is_lost() -> None:
    """Of what nobody polls; the end comes last, and what was just taken can be found again."""
    inbox = Inbox()
    inbox.put(Confirm(1, True))
    for tag in range(2, LOOSE_MAX + 5):
        inbox.put_loose(_delivery(tag))
    inbox.put(Lost("gone"))

    events = inbox.take()

    assert len(events) == LOOSE_MAX + 2
    assert events[0] == _delivery(5)
    assert events[-2:] == [Confirm(1, True), Lost("gone")]
    assert inbox.find_passed(5) == _delivery(5)
    assert inbox.find_passed(LOOSE_MAX + 4) == _delivery(LOOSE_MAX + 4)
    assert inbox.find_passed(4) is None
    assert inbox.find_passed(LOOSE_MAX + 5) is None
    assert not inbox.take()
    assert inbox.find_passed(5) is None


def test_a_wait_ends_with_what_comes() -> None:
    """Also when it comes from another thread; it does not begin when there is something or no more will come."""
    inbox = Inbox()
    later = threading.Timer(0.05, inbox.put, (Confirm(1, True),))
    later.start()

    inbox.wait(30.0, unless=lambda: False)

    assert inbox.take() == [Confirm(1, True)]
    inbox.wait(30.0, unless=lambda: True)
    inbox.put(Confirm(2, True))
    inbox.wait(30.0, unless=lambda: False)
    later.join()
