"""RabbitMQ behind the port does what every bus must, and what is its own: losses, alarms, encryption, garbage."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pika  # type: ignore[import-untyped]
import pytest

from shared.base.errors import BusUnavailable, InvalidValue, PermanentError
from shared.bus.rabbitmq.bus import RabbitConnection, connect
from shared.config.broker_url import Tls
from shared.ports.bus import Confirm, Lost
from shared.protocol.shares import AGENT
from shared.protocol.topology import (
    ACTIONS,
    BODY_BYTES_MAX,
    CONTROLLER,
    CONTROLLER_QUEUE,
    DEAD_BODY_BYTES_MAX,
    REPORTS,
    RESULTS,
    report_key,
    report_queue,
)
from sim_backend.conformance.bus_checks import CHECKS
from sim_backend.conformance.bus_harness import BusHarness, Listener
from sim_backend.conformance.rabbit_harness import RabbitHarness
from tests.integration.private_broker import PrivateBroker, under_test
from tests.ports import free_ports

GARBAGE_BYTES = 10 * 1024 * 1024


@pytest.fixture
def harness(broker: PrivateBroker) -> Iterator[RabbitHarness]:
    """A vhost of its own."""
    made = RabbitHarness(under_test(broker))
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_rabbitmq_bus(check: Callable[[BusHarness], None], harness: RabbitHarness) -> None:
    """Every check of the suite holds."""
    check(harness)


# --- garbage -----------------------------------------------------------------------------------------------------


def test_ten_mib_of_garbage_go_to_the_dead_letters(harness: RabbitHarness) -> None:
    """With their reason, cut; what lies before and behind is delivered, also on the next connection."""
    controller = _controller(harness)
    agent = harness.connect("agent.n1")
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"before", 1)
    Listener(harness, agent).confirms(1)
    _publish_raw(harness, RESULTS, CONTROLLER_QUEUE, b"\xc1" * GARBAGE_BYTES)
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"behind")

    assert controller.bodies(2) == [b"before", b"behind"]

    harness.settle(1.0)
    (dead,) = harness.dead_letters()
    assert dead.reason == f"{GARBAGE_BYTES} bytes, expected at most {AGENT.body_bytes_max} of agent.n1"
    assert (dead.queue, dead.routing_key, dead.sender) == (CONTROLLER_QUEUE, CONTROLLER_QUEUE, "agent.n1")
    assert (dead.size_bytes, dead.body) == (GARBAGE_BYTES, b"\xc1" * DEAD_BODY_BYTES_MAX)
    harness.kill(controller.bus)
    _controller(harness).deliveries(0)


def test_garbage_among_the_reports_goes_to_the_dead_letters(harness: RabbitHarness) -> None:
    """So it does where nothing is acknowledged."""
    controller = harness.connect("controller.a")
    controller.declare(report_queue("a"))
    controller.consume(report_queue("a").name, 1, acknowledged=False)
    _publish_raw(harness, REPORTS, report_key("n1"), b"\xc1" * GARBAGE_BYTES)
    harness.connect("agent.n2").publish(REPORTS, report_key("n2"), b"report")

    (delivery,) = Listener(harness, controller).deliveries(1)

    assert delivery.body == b"report"
    harness.settle(1.0)
    assert [letter.size_bytes for letter in harness.dead_letters()] == [GARBAGE_BYTES]


# --- losses ------------------------------------------------------------------------------------------------------


def test_what_was_published_before_close_arrives(harness: RabbitHarness) -> None:
    """A farewell sends what was on its way; acknowledgements, too."""
    controller = _controller(harness, prefetch=1000)
    agent = harness.connect("agent.n1")
    for i in range(500):
        agent.publish(RESULTS, CONTROLLER_QUEUE, b"%d" % i)
    agent.close()

    assert controller.bodies(500) == [b"%d" % i for i in range(500)]
    controller.bus.close()
    _controller(harness).deliveries(0)


def test_a_connection_that_the_broker_ends_is_lost(harness: RabbitHarness, broker: PrivateBroker) -> None:
    """The loss comes once, after what came before it; then every call says so."""
    controller = _controller(harness)
    harness.connect("agent.n1").publish(RESULTS, CONTROLLER_QUEUE, b"0")
    harness.settle(0.5)
    broker.ctl("close_all_connections", "--vhost", harness.vhost, "maintenance")
    harness.settle(0.5)

    events = controller.bus.poll(5.0)

    assert [type(event).__name__ for event in events] == ["Delivery", "Lost"]
    assert isinstance(events[-1], Lost)
    assert "maintenance" in events[-1].reason
    with pytest.raises(BusUnavailable):
        controller.bus.poll()
    (again,) = _controller(harness).deliveries(1)
    assert again.redelivered


@pytest.mark.full
def test_connections_that_were_lost_leave_nothing_behind(harness: RabbitHarness, broker: PrivateBroker) -> None:
    """Without the garbage collector, too, which a process with few new objects seldom needs."""
    _lose_a_connection(harness, broker)  # what is made once is made
    gc.collect()
    gc.disable()
    try:
        before = _objects()
        for _ in range(3):
            _lose_a_connection(harness, broker)
        left = _objects() - before
    finally:
        gc.enable()

    assert left < 50


def _objects() -> int:
    return len(gc.get_objects())


def _lose_a_connection(harness: RabbitHarness, broker: PrivateBroker) -> None:
    bus = connect(harness.url("controller.a"))
    bus.declare(CONTROLLER)
    bus.consume(CONTROLLER_QUEUE, 100)
    with pytest.raises(PermanentError):
        bus.consume("nowhere", 1)
    broker.ctl("close_all_connections", "--vhost", harness.vhost, "maintenance")
    while not any(isinstance(event, Lost) for event in bus.poll(5.0)):
        pass


def test_a_queue_that_is_deleted_is_a_loss(harness: RabbitHarness) -> None:
    """A consumer of a queue that is gone would wait for ever."""
    controller = _controller(harness)

    harness.api.remove_queue(harness.vhost, CONTROLLER_QUEUE)

    controller.lost()
    assert "is gone" in str(controller.events)


def test_heartbeats_are_served_while_the_user_is_busy(harness: RabbitHarness) -> None:
    """A computation of many heartbeats that never polls loses nothing."""
    bus = connect(harness.url("controller.a"), heartbeat_s=1)
    end_s = time.monotonic() + 4.0
    while time.monotonic() < end_s:
        sum(range(1000))

    bus.publish(ACTIONS, "nobody", b"", 1)

    assert list(bus.poll(5.0)) == [Confirm(1, True)]
    bus.close()


def test_a_silent_broker_is_noticed(harness: RabbitHarness, broker: PrivateBroker) -> None:
    """Without a sign of life the connection is lost, and a new one gets no answer."""
    bus = connect(harness.url("controller.a"), heartbeat_s=1)
    os.killpg(broker.server_pid, signal.SIGSTOP)
    try:
        events = bus.poll(25.0)
        with pytest.raises(BusUnavailable):
            connect(harness.url("controller.a"), answer_s=0.5)
    finally:
        os.killpg(broker.server_pid, signal.SIGCONT)
    assert [type(event) for event in events] == [Lost]


# --- waiting -----------------------------------------------------------------------------------------------------


def test_poll_waits_and_is_woken(harness: RabbitHarness) -> None:
    """It returns as soon as something comes, and empty when nothing does."""
    controller = _controller(harness)
    agent = harness.connect("agent.n1")
    began_s = time.monotonic()
    assert not controller.bus.poll(0.3)
    assert time.monotonic() - began_s >= 0.3
    later = threading.Timer(0.3, agent.publish, (RESULTS, CONTROLLER_QUEUE, b"late"))
    later.start()

    (delivery,) = controller.bus.poll(30.0)

    assert getattr(delivery, "body", None) == b"late"
    assert time.monotonic() - began_s < 10.0
    later.join()


def test_close_ends_a_poll_of_another_thread(harness: RabbitHarness) -> None:
    """Who waits in `poll` is not left there."""
    bus = harness.connect("controller.a")
    seen: list[object] = []
    waiting = threading.Thread(target=lambda: seen.extend(bus.poll(60.0)), daemon=True)
    waiting.start()
    harness.settle(0.2)

    bus.close()

    waiting.join(5.0)
    assert not waiting.is_alive()
    assert seen == []


def test_a_blocked_broker(harness: RabbitHarness, broker: PrivateBroker) -> None:
    """What has no id is dropped, what has one waits, beyond a limit it is refused; then all goes on."""
    controller = _controller(harness)
    agent = _connection(harness, "agent.n1")
    broker.ctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        agent.publish(RESULTS, CONTROLLER_QUEUE, b"0", 1)
        assert agent.poll(10.0) == []  # woken by the news
        assert "memory" in agent.blocked
        agent.publish(REPORTS, report_key("n1"), b"dropped")
        agent.publish(RESULTS, CONTROLLER_QUEUE, b"1", 2)
        hoard = _connection(harness, "controller.b")
        for i in range(20):
            hoard.publish(RESULTS, CONTROLLER_QUEUE, bytes(BODY_BYTES_MAX), i)
        refused = hoard.poll(5.0)
        hoard.kill()
    finally:
        broker.ctl("set_vm_memory_high_watermark", "absolute", "2GB")
    assert refused == [Confirm(i, False) for i in range(17, 20)]
    assert agent.dropped == 1
    confirms = Listener(harness, agent).confirms(2)
    assert confirms == [Confirm(1, True), Confirm(2, True)]
    assert agent.blocked == ""
    assert controller.bodies(2) == [b"0", b"1"]


# --- connecting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (lambda url, _: url.replace("secret", "guess"), "wrong user or password"),
        (lambda url, _: url.replace("controller.a", "stranger"), "wrong user or password"),
        (lambda url, _: url + "-not-there", "vhost"),
        (lambda url, broker: url.replace(str(broker.amqp), str(free_ports(1)[0])), "is the broker running"),
        (lambda url, broker: url.replace(str(broker.amqp), str(broker.management)), "is this a broker's port"),
        (lambda url, _: url.replace("127.0.0.1", "nowhere.invalid"), "check the host"),
    ],
)
def test_no_connection_says_what_to_do(
    change: Callable[[str, PrivateBroker], str], advice: str, harness: RabbitHarness, broker: PrivateBroker
) -> None:
    """And never shows the password."""
    url = change(harness.url("controller.a"), broker)

    with pytest.raises(BusUnavailable, match=advice) as refusal:
        connect(url, answer_s=3.0)

    assert "secret" not in str(refusal.value)
    assert "guess" not in str(refusal.value)


def test_tls(harness: RabbitHarness, broker: PrivateBroker) -> None:
    """The broker's certificate must be of the authority and for the name."""
    url = harness.url("controller.a").replace("amqp:", "amqps:").replace(str(broker.amqp), str(broker.amqps))
    bus = connect(url, Tls(str(broker.ca_file), server_name="localhost"))
    bus.publish(ACTIONS, "nobody", bytes(1_000_000), 1)
    assert list(bus.poll(5.0)) == [Confirm(1, True)]
    bus.close()

    for tls in (None, Tls(str(broker.folder / "other.pem")), Tls(str(broker.ca_file), server_name="example.org")):
        with pytest.raises(BusUnavailable, match="no trusted TLS connection"):
            connect(url, tls)
    with pytest.raises(InvalidValue, match="PEM"):
        connect(url, Tls(str(broker.folder / "rabbitmq.conf")))
    with pytest.raises(BusUnavailable):
        connect(harness.url("controller.a").replace("amqp:", "amqps:"), answer_s=3.0)


def _connection(harness: RabbitHarness, user: str) -> RabbitConnection:
    bus = harness.connect(user)
    assert isinstance(bus, RabbitConnection)
    return bus


def _controller(harness: RabbitHarness, prefetch: int = 100) -> Listener:
    bus = harness.connect("controller.a")
    bus.declare(CONTROLLER)
    bus.consume(CONTROLLER_QUEUE, prefetch)
    return Listener(harness, bus)


def _publish_raw(harness: RabbitHarness, exchange: str, key: str, body: bytes) -> None:
    """As a hostile agent would: without our checks."""
    with pika.BlockingConnection(pika.URLParameters(harness.url("agent.n1"))) as raw:
        channel = raw.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, body, pika.BasicProperties(user_id="agent.n1"))
