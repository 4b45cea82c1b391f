"""What the in-process bus offers beyond the port: steps, virtual time, inspection, a hostile publisher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.base.errors import BusUnavailable, ContractViolation, InvalidValue, PermanentError
from shared.ports.bus import Confirm, Delivery, Discarded, Lost
from shared.protocol.permissions import Grant, grant_of
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER,
    CONTROLLER_QUEUE,
    DEAD,
    DEAD_BODY_BYTES_MAX,
    DEAD_QUEUE,
    EVENTS,
    EXCHANGES,
    QUESTION_KEY,
    QUESTIONS,
    REPLIES,
    REPORTS,
    REQUESTS,
    RESULTS,
    QueueSpec,
    agent_queue,
    event_queue,
    reply_queue,
    report_queue,
)
from sim_backend.bus.memory import MemoryBroker

QUEUE = agent_queue("n1")


def drain(broker: MemoryBroker) -> list[tuple[str, object]]:
    """Every event that can be handed out now, as (user, body or event)."""
    handed: list[tuple[str, object]] = []
    while (one := broker.step(broker.now_s)) is not None:
        connection, event = one
        handed.append((connection.user, event.body if isinstance(event, Delivery) else event))
    return handed


def test_step_hands_out_one_event_in_turn() -> None:
    """Queues and connections with news take turns in the order in which they first had something."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    for node in ("n1", "n2"):
        controller.declare(agent_queue(node))
        broker.connect(f"agent.{node}").consume(agent_queue(node).name, 10)
    controller.publish(ACTIONS, "n2", b"0")
    controller.publish(ACTIONS, "n2", b"1", 1)
    controller.publish(ACTIONS, "n1", b"2", 2)
    assert drain(broker) == [
        ("agent.n2", b"0"),
        ("controller.a", Confirm(1, True)),
        ("agent.n1", b"2"),
        ("agent.n2", b"1"),
        ("controller.a", Confirm(2, True)),
    ]


def test_next_due_is_now_only_when_something_can_be_handed_out() -> None:
    """A message without a consumer, or whose consumer is full, is not due."""
    broker = MemoryBroker(start_s=7.0)
    assert broker.next_due_s() is None
    controller = broker.connect("controller.a")
    controller.declare(QUEUE)
    controller.publish(ACTIONS, "n1", b"0")
    controller.publish(ACTIONS, "n1", b"1")
    assert broker.next_due_s() is None
    agent = broker.connect("agent.n1")
    agent.consume(QUEUE.name, 1)
    assert broker.next_due_s() == 7.0
    handed = broker.step(8.0)
    assert handed is not None
    assert isinstance(handed[1], Delivery)
    assert broker.next_due_s() is None
    assert broker.step(8.0) is None
    agent.acknowledge(handed[1].tag)
    assert broker.next_due_s() == 8.0


def test_step_and_poll_share_what_there_is() -> None:
    """What `poll` took is not stepped, and the reverse."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.declare(QUEUE)
    agent = broker.connect("agent.n1")
    agent.consume(QUEUE.name, 10)
    for body in (b"0", b"1", b"2"):
        controller.publish(ACTIONS, "n1", body)
    assert broker.step(0.0) is not None
    assert [event.body for event in agent.poll() if isinstance(event, Delivery)] == [b"1", b"2"]
    assert broker.next_due_s() is None
    assert drain(broker) == []


def test_time_does_not_go_back() -> None:
    """An engine that steps into the past is wrong."""
    broker = MemoryBroker(start_s=5.0)
    with pytest.raises(ContractViolation):
        broker.advance(4.0)
    with pytest.raises(ContractViolation):
        broker.step(4.0)


def test_a_hostile_publisher_may_send_too_much() -> None:
    """10 MiB are handed to nobody, and the dead letter is cut."""
    broker = MemoryBroker()
    broker.connect("controller.a").declare(CONTROLLER)
    garbage = b"\x93" * (10 * 1024 * 1024)
    broker.connect("agent.n1", allow_oversize=True).publish(RESULTS, CONTROLLER_QUEUE, garbage)
    controller = broker.connect("controller.a")
    controller.consume(CONTROLLER_QUEUE, 10)
    (event,) = controller.poll()
    assert isinstance(event, Discarded)
    (dead,) = broker.dead_letters()
    assert (dead.reason, dead.sender, dead.size_bytes) == (event.reason, "agent.n1", len(garbage))
    assert len(dead.body) == DEAD_BODY_BYTES_MAX


def test_dead_letters_can_be_consumed_and_foreign_ones_are_listed() -> None:
    """The dead queue is a queue: whatever was put there is in the list until it is read."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.publish(DEAD, DEAD_QUEUE, b"by hand")
    assert [(dead.reason, dead.queue, dead.body) for dead in broker.dead_letters()] == [("", DEAD_QUEUE, b"by hand")]
    controller.consume(DEAD_QUEUE, 1)
    assert [event.body for event in controller.poll() if isinstance(event, Delivery)] == [b"by hand"]
    assert broker.dead_letters() == ()


def test_a_batch_of_reports_can_be_dead_lettered_to_the_first() -> None:
    """Every delivery of the last poll is still known, however many there were."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.declare(report_queue("a"))
    controller.consume(report_queue("a").name, 1, acknowledged=False)
    for i in range(1000):
        controller.publish(REPORTS, "report.n1", b"%d" % i)
    batch = [event for event in controller.poll() if isinstance(event, Delivery)]
    controller.dead_letter(batch[0].tag, "first")
    controller.dead_letter(batch[-1].tag, "last")
    assert [dead.body for dead in broker.dead_letters()] == [b"0", b"99"]
    controller.poll()
    controller.dead_letter(batch[1].tag, "late")
    assert len(broker.dead_letters()) == 2


def test_lost_comes_after_what_was_said_before() -> None:
    """A confirm that had come in is still handed out; then the loss; then nothing but BusUnavailable."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.declare(QUEUE)
    controller.publish(ACTIONS, "n1", b"0", 1)
    broker.restart()
    assert controller.poll() == [Confirm(1, True), Lost("the broker was restarted")]
    with pytest.raises(BusUnavailable):
        controller.poll()
    controller.acknowledge(1)
    controller.dead_letter(1, "ignored")
    controller.close()


def test_a_dead_process_is_told_nothing() -> None:
    """News of a killed connection is not handed out."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.publish(ACTIONS, "n1", b"0", 1)
    controller.kill()
    assert drain(broker) == []


def test_bindings_are_added() -> None:
    """Declaring a queue with a further binding keeps the old one."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    controller.declare(QUEUE)
    controller.publish(ACTIONS, "old", b"unroutable")
    controller.declare(QueueSpec(QUEUE.name, ((ACTIONS, "old"),)))
    controller.publish(ACTIONS, "old", b"0")
    controller.publish(ACTIONS, "n1", b"1")
    assert broker.depth(QUEUE.name) == 2


def test_bindings_go_with_their_queue() -> None:
    """A queue made again under an old name has only its own bindings."""
    broker = MemoryBroker()
    first, second = broker.connect("controller.a"), broker.connect("controller.b")
    bindings = ((ACTIONS, "n1"), (EVENTS, "#"))
    first.declare(QueueSpec("brief", bindings, durable=False, exclusive=True))
    first.close()
    second.declare(QueueSpec("brief", bindings[:0], durable=False, exclusive=True))
    second.publish(ACTIONS, "n1", b"lost")
    second.publish(EVENTS, "vm", b"lost")
    assert broker.depth("brief") == 0


def test_step_serves_the_active_consumer_alone() -> None:
    """A full active consumer of a single-active queue is waited for; without single-active others get their turns."""
    broker = MemoryBroker()
    controllers = [broker.connect(user) for user in ("controller.a", "controller.b")]
    for controller in controllers:
        for spec in (CONTROLLER, QUEUE):
            controller.declare(spec)
            controller.consume(spec.name, 2)
    for i in range(4):
        controllers[0].publish(RESULTS, CONTROLLER_QUEUE, b"%d" % i)
    assert drain(broker) == [("controller.a", b"0"), ("controller.a", b"1")]
    assert broker.next_due_s() is None
    for i in range(4):
        controllers[0].publish(ACTIONS, "n1", b"%d" % i)
    assert [user[-1] for user, _ in drain(broker)] == ["a", "b", "a", "b"]


def test_consume_is_checked() -> None:
    """A prefetch below 1 and a second subscription to one queue are refused."""
    broker = MemoryBroker()
    agent = broker.connect("agent.n1")
    agent.declare(QUEUE)
    with pytest.raises(InvalidValue):
        agent.consume(QUEUE.name, 0)
    agent.consume(QUEUE.name, 1)
    with pytest.raises(PermanentError):
        agent.consume(QUEUE.name, 1)


def test_a_forbidden_route_stays_forbidden() -> None:
    """What one user may send does not open the way for another."""
    broker = MemoryBroker(permissions=grant_of)
    controller, agent = broker.connect("controller.a"), broker.connect("agent.n1")
    controller.declare(QUEUE)
    for _ in range(2):
        controller.publish(ACTIONS, "n1", b"0")
        with pytest.raises(PermanentError):
            agent.publish(ACTIONS, "n1", b"0")
    assert broker.depth(QUEUE.name) == 2


def test_a_reply_queue_that_comes_and_goes_is_found_each_time() -> None:
    """Routes that were looked up are forgotten when queues change."""
    broker = MemoryBroker()
    controller = broker.connect("controller.a")
    for _ in range(2):
        controller.publish(REPLIES, "reply.operator.ann", b"lost")
        operator = broker.connect("operator.ann")
        operator.declare(QueueSpec("reply.operator.ann", (), durable=False, exclusive=True))
        operator.consume("reply.operator.ann", 1)
        controller.publish(REPLIES, "reply.operator.ann", b"found")
        assert [event.body for event in operator.poll() if isinstance(event, Delivery)] == [b"found"]
        operator.close()


@pytest.mark.parametrize(
    ("user", "exchange", "routing_key", "allowed"),
    [
        ("agent.n1", REPORTS, "report.n1", True),
        ("agent.n1", REPORTS, "report.n10", False),
        ("agent.n1", REPORTS, "xreport.n1", False),
        ("agent.n.1", REPORTS, "report.n.1", True),
        ("agent.n.1", REPORTS, "report.nx1", False),
        ("agent.n1", RESULTS, "anything", True),
        ("agent.n1", DEAD, DEAD_QUEUE, False),
        ("agent.n1", QUESTIONS, QUESTION_KEY, False),
        ("agent.n1", ACTIONS, "n1", False),
        ("agent.n1", REPLIES, "agent.n1", False),
        ("operator.ann", REQUESTS, CONTROLLER_QUEUE, True),
        ("operator.ann", DEAD, DEAD_QUEUE, False),
        ("operator.ann", QUESTIONS, QUESTION_KEY, True),
        ("portal.p1", QUESTIONS, QUESTION_KEY, True),
        ("operator.ann", RESULTS, CONTROLLER_QUEUE, False),
        ("owner.kim", REQUESTS, CONTROLLER_QUEUE, True),
        ("owner.kim", RESULTS, CONTROLLER_QUEUE, False),
        ("owner.kim", REPORTS, "report.n1", False),
        ("owner.kim", ACTIONS, "n1", False),
        ("owner.kim", EVENTS, "vm", False),
        ("owner.kim", DEAD, DEAD_QUEUE, False),
        ("owner.kim", REPLIES, "reply.owner.lee", False),
        ("owner.kim.a", REQUESTS, CONTROLLER_QUEUE, False),
        ("owner.", REQUESTS, CONTROLLER_QUEUE, False),
        ("user.joe", REQUESTS, CONTROLLER_QUEUE, True),
        ("user.joe", QUESTIONS, QUESTION_KEY, False),
        ("owner.kim", QUESTIONS, QUESTION_KEY, False),
        ("user.joe", RESULTS, CONTROLLER_QUEUE, False),
        ("user.joe", ACTIONS, "n1", False),
        ("controller.a", ACTIONS, "n1", True),
        ("controller.a", REPLIES, "reply.operator.ann", True),
        ("nobody", REQUESTS, CONTROLLER_QUEUE, False),
    ],
)
def test_who_may_publish(user: str, exchange: str, routing_key: str, allowed: bool) -> None:
    """The table of permissions, publishing."""
    assert grant_of(user).may_publish(exchange, routing_key) is allowed


@pytest.mark.parametrize(
    ("user", "queue", "allowed"),
    [
        ("agent.n1", "agent.n1", True),
        ("agent.n1", "agent.n11", False),
        ("agent.n.1", "agent.nx1", False),
        ("agent.n1", CONTROLLER_QUEUE, False),
        ("operator.ann", "reply.operator.ann", True),
        ("operator.ann", "reply.operator.ann.4711", True),
        ("operator.ann", "reply.operator.anna", False),
        ("operator.ann", CONTROLLER_QUEUE, False),
        ("owner.kim", "reply.owner.kim", True),
        ("owner.kim", "reply.owner.kim.4711", True),
        ("owner.kim", "reply.owner.kim.a.4711", False),
        ("owner.kim", "reply.owner.kima", False),
        ("owner.kim", "reply.owner.lee", False),
        ("owner.kim", "reply.user.kim", False),
        ("owner.kim", "events.owner.kim", False),
        ("owner.kim", CONTROLLER_QUEUE, False),
        ("owner.kim", "agent.n1", False),
        ("user.joe", "reply.user.joe.1", True),
        ("user.joe", "reply.owner.joe", False),
        ("controller.b", CONTROLLER_QUEUE, True),
        ("nobody", "nobody", False),
    ],
)
def test_who_may_consume(user: str, queue: str, allowed: bool) -> None:
    """The table of permissions, receiving."""
    assert grant_of(user).may_consume(queue) is allowed


def test_who_may_declare() -> None:
    """Agents make nothing; operators their own queues, bound to events alone, owners and users to nothing;
    controllers anything."""
    events = event_queue("operator.ann")
    spying = QueueSpec(events.name, ((REPORTS, "#"),), durable=False, exclusive=True)
    assert [grant_of(user).may_declare(events) for user in ("agent.n1", "operator.ann", "controller.a")] == [
        False,
        True,
        True,
    ]
    for user in ("owner.kim", "user.joe"):
        assert grant_of(user).may_declare(reply_queue(user, "1"))
        assert not grant_of(user).may_declare(event_queue(user))
        for source in EXCHANGES:
            assert not grant_of(user).may_declare(replace(reply_queue(user), bindings=((source, "#"),)))
    for user in ("operator.ann", "portal.p", "owner.kim", "user.joe"):  # what is published there nobody bounds
        assert not grant_of(user).may_publish(f"reply.{user}.1", "")
    assert not grant_of("operator.ann").may_declare(spying)
    assert not grant_of("operator.bob").may_declare(events)
    assert not grant_of("agent.n1").may_declare(QUEUE)
    assert Grant() == grant_of("nobody")
    assert EVENTS not in dict(grant_of("agent.n1").topic_writes)
