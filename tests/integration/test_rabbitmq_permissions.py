"""What users may not do is refused by the broker itself: connections here check nothing before they send."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pika  # type: ignore[import-untyped]
import pytest

from shared.base.errors import BusUnavailable, PermanentError
from shared.bus.rabbitmq.bus import connect
from shared.ports.bus import Bus
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER,
    CONTROLLER_QUEUE,
    DEAD,
    DEAD_QUEUE,
    EVENTS,
    REPLIES,
    REPORTS,
    REQUESTS,
    RESULTS,
    QueueSpec,
    agent_queue,
    event_queue,
    report_key,
    report_queue,
    web_key,
)
from sim_backend.conformance.bus_harness import Listener
from sim_backend.conformance.rabbit_harness import RabbitHarness
from tests.integration.private_broker import PrivateBroker, under_test

REPLY = QueueSpec("reply.operator.ann", (), durable=False, exclusive=True)


@pytest.fixture
def harness(broker: PrivateBroker) -> Iterator[RabbitHarness]:
    """A vhost with the queues of two nodes and the controllers, and connections that send what they are told to."""
    made = RabbitHarness(under_test(broker), grant=None)
    setup = made.connect("controller.a")
    for spec in (CONTROLLER, agent_queue("n1"), agent_queue("n2")):
        setup.declare(spec)
    yield made
    made.close()


@pytest.fixture
def controller(harness: RabbitHarness) -> Listener:
    """A controller that receives everything that controllers receive."""
    bus = harness.connect("controller.a")
    bus.declare(report_queue("a"))
    bus.consume(report_queue("a").name, 100, acknowledged=False)
    bus.consume(CONTROLLER_QUEUE, 100)
    return Listener(harness, bus)


PUBLISHES = {
    "agent: an operator's request": ("agent.n1", REQUESTS, CONTROLLER_QUEUE),
    "agent: an order": ("agent.n1", ACTIONS, "n1"),
    "agent: another's report": ("agent.n1", REPORTS, report_key("n2")),
    "agent: all reports": ("agent.n1", REPORTS, "report.#"),
    "agent: a key that begins like its own": ("agent.n1", REPORTS, report_key("n11")),
    "agent: an event": ("agent.n1", EVENTS, "vm"),
    "agent: straight into a queue": ("agent.n1", REPLIES, CONTROLLER_QUEUE),
    "web: another's measurements": ("web.shop", REPORTS, web_key("shop2")),
    "web: a node's report": ("web.shop", REPORTS, report_key("n1")),
    "web: a result": ("web.shop", RESULTS, CONTROLLER_QUEUE),
    "web: an operator's request": ("web.shop", REQUESTS, CONTROLLER_QUEUE),
    "operator: a result": ("operator.ann", RESULTS, CONTROLLER_QUEUE),
    "operator: a report": ("operator.ann", REPORTS, report_key("n1")),
    "operator: an order": ("operator.ann", ACTIONS, "n1"),
    "operator: an event": ("operator.ann", EVENTS, "vm"),
    "operator: straight into a queue": ("operator.ann", REPLIES, agent_queue("n1").name),
}


@pytest.mark.parametrize("case", PUBLISHES)
def test_a_publish_that_is_not_permitted(case: str, harness: RabbitHarness, controller: Listener) -> None:
    """The broker ends the connection for it, says why, and nobody receives anything."""
    user, exchange, key = PUBLISHES[case]
    bus = harness.connect(user)
    listener = Listener(harness, bus)

    bus.publish(exchange, key, b"forbidden")

    listener.lost()
    assert "ACCESS_REFUSED" in str(listener.events)
    with pytest.raises(BusUnavailable):
        bus.publish(exchange, key, b"more")
    controller.deliveries(0)
    assert _depth(harness, agent_queue("n1").name) == 0


CALLS: dict[str, tuple[str, Callable[[Bus], None]]] = {
    "agent: read another's orders": ("agent.n1", lambda bus: bus.consume(agent_queue("n2").name, 1)),
    "agent: read requests": ("agent.n1", lambda bus: bus.consume(CONTROLLER_QUEUE, 1)),
    "agent: read dead letters": ("agent.n1", lambda bus: bus.consume(DEAD_QUEUE, 1)),
    "agent: make a queue": ("agent.n1", lambda bus: bus.declare(QueueSpec("mine", ()))),
    "agent: make its own queue": ("agent.n1", lambda bus: bus.declare(agent_queue("n1"))),
    "web: read requests": ("web.shop", lambda bus: bus.consume(CONTROLLER_QUEUE, 1)),
    "web: make a queue": ("web.shop", lambda bus: bus.declare(QueueSpec("mine", ()))),
    "operator: read requests": ("operator.ann", lambda bus: bus.consume(CONTROLLER_QUEUE, 1)),
    "operator: read orders": ("operator.ann", lambda bus: bus.consume(agent_queue("n1").name, 1)),
    "operator: another's reply queue": ("operator.ann", lambda bus: bus.declare(_reply_queue("operator.bob"))),
    "operator: a name like its own": (
        "operator.ann",
        lambda bus: bus.declare(_reply_queue("operator.anna")),
    ),
    "operator: listen to reports": (
        "operator.ann",
        lambda bus: bus.declare(QueueSpec("events.operator.ann", ((REPORTS, "#"),), durable=False, exclusive=True)),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_is_not_permitted(case: str, harness: RabbitHarness) -> None:
    """It is refused by name, and the connection goes on."""
    user, call = CALLS[case]
    bus = harness.connect(user)

    with pytest.raises(PermanentError, match="ACCESS_REFUSED"):
        call(bus)

    works: dict[str, Callable[[], None]] = {
        "agent.n1": lambda: bus.consume(agent_queue("n1").name, 1),
        "operator.ann": lambda: bus.declare(REPLY),
        "web.shop": lambda: bus.publish(REPORTS, web_key("shop"), b"measured"),
    }
    works[user]()


def test_what_is_permitted_works(harness: RabbitHarness, controller: Listener) -> None:
    """The same connections that are refused the rest may do their work."""
    agent, operator, web = (harness.connect(user) for user in ("agent.n1", "operator.ann", "web.shop"))

    agent.publish(REPORTS, report_key("n1"), b"report")
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"result")
    agent.consume(agent_queue("n1").name, 1)
    operator.declare(REPLY)
    operator.declare(event_queue("operator.ann"))
    operator.consume(REPLY.name, 1)
    operator.publish(REQUESTS, CONTROLLER_QUEUE, b"request", reply_to=REPLY.name)
    web.publish(REPORTS, web_key("shop"), b"measured")

    got = {(delivery.body, delivery.sender) for delivery in controller.deliveries(4)}
    assert got == {
        (b"report", "agent.n1"),
        (b"result", "agent.n1"),
        (b"request", "operator.ann"),
        (b"measured", "web.shop"),
    }


def test_a_forged_sender_is_refused(harness: RabbitHarness, controller: Listener) -> None:
    """A message that names another user ends the channel and reaches nobody."""
    with pika.BlockingConnection(pika.URLParameters(harness.url("agent.n1"))) as raw:
        channel = raw.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user_id"):
            channel.basic_publish(RESULTS, CONTROLLER_QUEUE, b"forged", pika.BasicProperties(user_id="agent.n2"))

    controller.deliveries(0)


def test_a_message_without_a_sender_is_nobodys(harness: RabbitHarness, controller: Listener) -> None:
    """The broker lets it pass, the receiver's connection keeps it as a dead letter and goes on."""
    with pika.BlockingConnection(pika.URLParameters(harness.url("agent.n1"))) as raw:
        raw.channel().basic_publish(RESULTS, CONTROLLER_QUEUE, b"anonymous")
        raw.channel().basic_publish(REPORTS, report_key("n1"), b"nameless")
    harness.connect("agent.n1").publish(RESULTS, CONTROLLER_QUEUE, b"mine")

    (delivery,) = controller.deliveries(1)

    assert (delivery.body, delivery.sender) == (b"mine", "agent.n1")
    dead = harness.dead_letters()
    assert sorted((letter.body, letter.reason, letter.sender) for letter in dead) == [
        (b"anonymous", "no user id", ""),
        (b"nameless", "no user id", ""),
    ]


@pytest.mark.parametrize("user", ["agent.n1", "operator.ann"])
def test_only_controllers_write_dead_letters(user: str, harness: RabbitHarness) -> None:
    """Else one account could push out what others have left there."""
    bus = harness.connect(user)
    listener = Listener(harness, bus)

    bus.publish(DEAD, DEAD_QUEUE, b"x")

    listener.lost()
    assert "ACCESS_REFUSED" in str(listener.events)
    assert harness.dead_letters() == ()
    bus.close()


def test_a_password_is_needed(harness: RabbitHarness) -> None:
    """A name alone opens nothing."""
    with pytest.raises(BusUnavailable, match="password"):
        connect(harness.url("agent.n1").replace(":secret@", ":guess@"))


def _reply_queue(user: str) -> QueueSpec:
    return QueueSpec(f"reply.{user}", (), durable=False, exclusive=True)


def _depth(harness: RabbitHarness, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(harness.url("controller.b"))) as raw:
        count: int = raw.channel().queue_declare(queue, passive=True).method.message_count
    return count
