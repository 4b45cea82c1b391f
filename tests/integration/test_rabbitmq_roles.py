"""What owners and users of environments may not do is refused by the broker itself: connections here check nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shared.base.errors import BusUnavailable, PermanentError
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
    reply_queue,
    report_key,
    report_queue,
    web_key,
)
from sim_backend.conformance.bus_harness import Listener
from sim_backend.conformance.rabbit_harness import RabbitHarness
from tests.integration.private_broker import PrivateBroker, under_test

ASKERS = ("owner.kim", "user.joe")
LEE = reply_queue("owner.lee", "1")


@pytest.fixture(scope="module")
def harness(broker: PrivateBroker) -> Iterator[RabbitHarness]:
    """A vhost with all queues of a cluster, and connections that send what they are told to."""
    made = RabbitHarness(under_test(broker), grant=None)
    setup = made.connect("controller.a")
    for spec in (CONTROLLER, agent_queue("n1")):
        setup.declare(spec)
    yield made
    made.close()


@pytest.fixture
def everyone(harness: RabbitHarness) -> list[Listener]:
    """Whoever could receive what an owner or a user must not send: a controller, an agent, another owner."""
    controller, agent, lee = (harness.connect(user) for user in ("controller.a", "agent.n1", "owner.lee"))
    controller.declare(report_queue("a"))
    controller.consume(report_queue("a").name, 100, acknowledged=False)
    controller.consume(CONTROLLER_QUEUE, 100, acknowledged=False)
    agent.consume(agent_queue("n1").name, 100, acknowledged=False)
    lee.declare(LEE)
    lee.consume(LEE.name, 100, acknowledged=False)
    return [Listener(harness, bus) for bus in (controller, agent, lee)]


PUBLISHES = {
    "an order": (ACTIONS, "n1"),
    "a result": (RESULTS, CONTROLLER_QUEUE),
    "a node's report": (REPORTS, report_key("n1")),
    "an application's measurements": (REPORTS, web_key("shop")),
    "an event": (EVENTS, "vm"),
    "a dead letter": (DEAD, DEAD_QUEUE),
    "an answer to another owner": (REPLIES, LEE.name),
    "straight into the queue of an agent": (REPLIES, agent_queue("n1").name),
    "straight into the queue of controllers": (REPLIES, CONTROLLER_QUEUE),
}


@pytest.mark.parametrize("user", ASKERS)
def test_a_publish_that_is_not_permitted(user: str, harness: RabbitHarness, everyone: list[Listener]) -> None:
    """The broker ends the connection for each, says why, and nobody receives anything."""
    for what, (exchange, key) in PUBLISHES.items():
        bus = harness.connect(user)
        listener = Listener(harness, bus)

        bus.publish(exchange, key, b"forbidden")

        listener.lost()
        assert "ACCESS_REFUSED" in str(listener.events), what
        with pytest.raises(BusUnavailable):
            bus.publish(exchange, key, b"more")
    for each in everyone:
        each.deliveries(0)
    assert harness.dead_letters() == ()
    for each in everyone:
        each.bus.close()


CALLS: dict[str, Callable[[Bus], None]] = {
    "read requests": lambda bus: bus.consume(CONTROLLER_QUEUE, 1),
    "read orders": lambda bus: bus.consume(agent_queue("n1").name, 1),
    "read dead letters": lambda bus: bus.consume(DEAD_QUEUE, 1),
    "read another owner's answers": lambda bus: bus.consume(LEE.name, 1),
    "make another owner's queue of answers": lambda bus: bus.declare(reply_queue("owner.lee", "2")),
    "make one for a name like its own": lambda bus: bus.declare(reply_queue(bus.user + "a")),
    "make one for a user of two more words": lambda bus: bus.declare(reply_queue(bus.user + ".a", "1")),
    "listen to events": lambda bus: bus.declare(event_queue(bus.user)),
    "listen to events with the queue of answers": lambda bus: bus.declare(_bound(bus.user, EVENTS)),
    "listen to requests with it": lambda bus: bus.declare(_bound(bus.user, REQUESTS)),
    "listen to reports with it": lambda bus: bus.declare(_bound(bus.user, REPORTS)),
    "make any other queue": lambda bus: bus.declare(QueueSpec("mine", ())),
    "take the queue of requests": lambda bus: bus.declare(CONTROLLER),
}


def _refused(bus: Bus, call: Callable[[Bus], None]) -> bool:
    try:
        call(bus)
    except PermanentError as error:
        return "ACCESS_REFUSED" in str(error)
    return False


def _bound(user: str, exchange: str) -> QueueSpec:
    return replace(reply_queue(user, "spy"), bindings=((exchange, "#"),))


@pytest.mark.parametrize("user", ASKERS)
def test_a_call_that_is_not_permitted(user: str, harness: RabbitHarness) -> None:
    """Each is refused by name, and the connection goes on: a request and its answer still pass."""
    bus, lee = harness.connect(user), harness.connect("owner.lee")
    lee.declare(LEE)

    could = [what for what, call in CALLS.items() if not _refused(bus, call)]

    assert could == []

    own = reply_queue(user, "1")
    bus.declare(own)
    bus.consume(own.name, 1, acknowledged=False)
    controller = harness.connect("controller.a")
    controller.consume(CONTROLLER_QUEUE, 1, acknowledged=False)
    bus.publish(REQUESTS, CONTROLLER_QUEUE, b"request", reply_to=own.name)
    (request,) = Listener(harness, controller).deliveries(1)
    assert (request.body, request.sender, request.reply_to) == (b"request", user, own.name)
    controller.publish(REPLIES, request.reply_to, b"answer")
    (answer,) = Listener(harness, bus).deliveries(1)
    assert (answer.body, answer.sender) == (b"answer", "controller.a")
    for each in (bus, lee, controller):
        each.close()
