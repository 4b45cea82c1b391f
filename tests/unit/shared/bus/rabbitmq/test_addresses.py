"""The parts of the RabbitMQ bus that need no broker: addresses, queues, dead letters, what waits for `poll`."""

from __future__ import annotations

import pytest

from shared.base.errors import InvalidValue, PermanentError
from shared.bus.rabbitmq.addresses import check_name, dead_headers, dead_message, queue_arguments
from shared.config.broker_url import Address, parse_url
from shared.protocol.dead_letter import bury
from shared.protocol.topology import CONTROLLER, DEAD_BODY_BYTES_MAX, DEAD_LETTERS, QueueSpec, agent_queue, report_queue


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
