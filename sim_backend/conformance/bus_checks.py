"""What every `shared.ports.bus.Bus` must do, checked from outside: run each of `CHECKS` on a `BusHarness` of its own.

Each check wants a broker without queues but the dead queue, without messages, and with the users `controller.a`,
`controller.b`, `agent.n1`, `agent.n2`, `operator.ann`, `owner.kim`, `owner.lee` and `user.joe` of the permission table.
A check that fails raises `ContractViolation`. A refused call is made on a connection of its own, since a broker may end
it for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

from shared.base.errors import BusUnavailable, PermanentError
from shared.ports.bus import Bus, Delivery, Discarded
from shared.protocol.shares import share_of
from shared.protocol.topology import (
    ACTIONS,
    BODY_BYTES_MAX,
    CONTROLLER,
    CONTROLLER_QUEUE,
    DEAD_BODY_BYTES_MAX,
    EVENTS,
    REPLIES,
    REPORTS,
    REQUESTS,
    RESULTS,
    QueueSpec,
    agent_queue,
    report_key,
    report_queue,
)
from sim_backend.conformance.bus_harness import LOOK_S, BusHarness, Listener, expect, expect_refusal
from sim_backend.conformance.bus_permission_checks import check_permissions

QUEUE = agent_queue("n1")
REPLY_QUEUE = QueueSpec("reply.operator.ann", (), durable=False, exclusive=True)


def check_order_of_one_publisher(harness: BusHarness) -> None:
    """Check that one publisher's messages to one queue arrive in the order of publishing."""
    publisher, agent = _actions(harness)
    bodies = [b"%d" % i for i in range(60)]
    _send(publisher, *bodies)
    expect("order", agent.bodies(60), bodies)


def check_order_of_each_publisher(harness: BusHarness) -> None:
    """Check that the order of each of two publishers is kept."""
    publisher, agent = _actions(harness)
    other = harness.connect("controller.b")
    for i in range(20):
        _send(publisher, b"a%02d" % i)
        _send(other, b"b%02d" % i)
    bodies = agent.bodies(40)
    for first in (b"a", b"b"):
        expect("order", [body for body in bodies if body[:1] == first], [first + b"%02d" % i for i in range(20)])


def check_body_arrives_as_sent(harness: BusHarness) -> None:
    """Check that an empty body, a body with all byte values and a body of the maximum size arrive unchanged."""
    publisher, agent = _actions(harness)
    bodies = [b"", bytes(range(256)), b"\xff" * BODY_BYTES_MAX]
    _send(publisher, *bodies)
    for got, sent in zip(agent.bodies(3), bodies, strict=True):
        expect(f"whether a body of {len(sent)} bytes arrived as sent", got == sent, True)


def check_unacknowledged_comes_again_after_kill(harness: BusHarness) -> None:
    """Check that messages held by a consumer that dies are redelivered with the mark, in their order and before
    messages that it had not received."""
    publisher, agent = _actions(harness, prefetch=3)
    _send(publisher, b"0", b"1", b"2", b"3", b"4")
    first = agent.deliveries(3)
    expect("redelivered at first", [delivery.redelivered for delivery in first], [False] * 3)
    agent.bus.acknowledge(first[0].tag)
    agent.deliveries(1)
    harness.kill(agent.bus)
    again = _listen(harness, "agent.n1", QUEUE.name).deliveries(4)
    expect("what came again", [delivery.body for delivery in again], [b"1", b"2", b"3", b"4"])
    expect("redelivered", [delivery.redelivered for delivery in again], [True, True, True, False])


def check_unacknowledged_comes_again_after_close(harness: BusHarness) -> None:
    """Check that unacknowledged messages are also redelivered after a clean close."""
    publisher, agent = _actions(harness)
    _send(publisher, b"0")
    agent.deliveries(1)
    agent.bus.close()
    (again,) = _listen(harness, "agent.n1", QUEUE.name).deliveries(1)
    expect("body and mark", (again.body, again.redelivered), (b"0", True))


def check_acknowledged_is_gone(harness: BusHarness) -> None:
    """Check that an acknowledged message is not redelivered once the broker has received the acknowledgement, which it
    does not confirm."""
    publisher, agent = _actions(harness)
    _send(publisher, b"0", b"1")
    agent.bodies(2)
    harness.settle(0.5)
    harness.kill(agent.bus)
    _listen(harness, "agent.n1", QUEUE.name).deliveries(0)


def check_stale_tag_is_ignored(harness: BusHarness) -> None:
    """Check that a tag of an earlier connection acknowledges nothing on the next one."""
    publisher, agent = _actions(harness)
    _send(publisher, b"0")
    (stale,) = agent.deliveries(1)
    harness.kill(agent.bus)
    second = _listen(harness, "agent.n1", QUEUE.name)
    second.deliveries(1)
    second.bus.acknowledge(stale.tag)
    second.bus.dead_letter(stale.tag, "stale")
    harness.kill(second.bus)
    _listen(harness, "agent.n1", QUEUE.name).deliveries(1)
    expect("dead letters", harness.dead_letters(), ())


def check_prefetch_bounds_what_is_held(harness: BusHarness) -> None:
    """Check that a consumer never holds more than `prefetch` deliveries, and that each acknowledgement makes room for
    one."""
    publisher, agent = _actions(harness, prefetch=2)
    _send(publisher, b"0", b"1", b"2", b"3", b"4")
    held = agent.deliveries(2)
    agent.bus.acknowledge(held[1].tag)
    (third,) = agent.deliveries(1)
    expect("third", third.body, b"2")
    agent.bus.acknowledge(held[0].tag)
    agent.bus.acknowledge(third.tag)
    expect("the rest", agent.bodies(2), [b"3", b"4"])


def check_no_bound_without_acknowledgement(harness: BusHarness) -> None:
    """Check that a consumer without acknowledgements gets every message, and that none is redelivered."""
    publisher, _ = _actions(harness, consume=False)
    agent = _listen(harness, "agent.n1", QUEUE.name, prefetch=1, acknowledged=False)
    _send(publisher, b"0", b"1", b"2")
    agent.deliveries(3)
    harness.kill(agent.bus)
    _listen(harness, "agent.n1", QUEUE.name).deliveries(0)


def check_consumers_share_a_queue(harness: BusHarness) -> None:
    """Check that with two consumers on a queue, each message reaches exactly one."""
    publisher, _ = _actions(harness, consume=False)
    first = _listen(harness, "controller.a", QUEUE.name, prefetch=2)
    second = _listen(harness, "controller.b", QUEUE.name, prefetch=2)
    _send(publisher, b"0", b"1", b"2", b"3")
    bodies = [delivery.body for delivery in chain(first.deliveries(2), second.deliveries(2))]
    expect("what both got", sorted(bodies), [b"0", b"1", b"2", b"3"])


def check_ttl_drops_what_is_old(harness: BusHarness) -> None:
    """Check that messages older than the queue's TTL are dropped and younger ones are delivered."""
    spec = QueueSpec("brief", ((ACTIONS, "n1"),), durable=False, ttl_s=1.0, exclusive=True)
    owner = _owner(harness, spec)
    _send(owner.bus, b"old")
    harness.settle(1.5)
    _send(owner.bus, b"new")
    owner.bus.consume(spec.name, prefetch=10)
    expect("what outlived the TTL", owner.bodies(1), [b"new"])


def check_length_drops_the_oldest(harness: BusHarness) -> None:
    """Check that a full queue drops its oldest messages to make room for new ones."""
    spec = QueueSpec("short", ((ACTIONS, "n1"),), durable=False, length_max=3, exclusive=True)
    owner = _owner(harness, spec)
    _send(owner.bus, b"0", b"1", b"2", b"3", b"4")
    harness.settle(0.5)
    owner.bus.consume(spec.name, prefetch=10)
    expect("what was kept", owner.bodies(3), [b"2", b"3", b"4"])


def check_single_active_consumer(harness: BusHarness) -> None:
    """Check that only the first consumer gets messages, even when its prefetch is exhausted, and that the next takes
    over everything when the first disconnects."""
    first = _owner(harness, CONTROLLER)
    first.bus.consume(CONTROLLER_QUEUE, prefetch=2)
    first.deliveries(0)
    second = _listen(harness, "controller.b", CONTROLLER_QUEUE)
    agent = harness.connect("agent.n1")
    for body in (b"0", b"1", b"2", b"3"):
        agent.publish(RESULTS, CONTROLLER_QUEUE, body)
    got = first.deliveries(2)
    expect("what the active one got", [delivery.body for delivery in got], [b"0", b"1"])
    second.deliveries(0)
    first.bus.acknowledge(got[0].tag)
    first.deliveries(1)
    harness.kill(first.bus)
    expect("what the next one got", second.bodies(3), [b"1", b"2", b"3"])


def check_exclusive_queue_goes_with_its_connection(harness: BusHarness) -> None:
    """Check that no other connection may use an exclusive queue, and that the queue and its messages disappear with its
    connection."""
    spec = report_queue("a")
    owner = _owner(harness, spec)
    for name, call in _uses_of(spec):
        other = harness.connect("controller.b")
        expect_refusal(f"{name} of another's exclusive queue", PermanentError, partial(call, other))
    harness.connect("agent.n1").publish(REPORTS, report_key("n1"), b"report")
    harness.kill(owner.bus)
    harness.settle(0.5)
    gone = harness.connect("controller.b")
    expect_refusal("consume of a queue that is gone", PermanentError, lambda: gone.consume(spec.name, 1))
    heir = _owner(harness, spec, "controller.b")
    heir.bus.consume(spec.name, 1, acknowledged=False)
    heir.deliveries(0)


def check_declare_again(harness: BusHarness) -> None:
    """Declaring a queue again changes nothing; another shape is refused."""
    publisher, agent = _actions(harness, consume=False)
    _send(publisher, b"0")
    publisher.declare(QUEUE)
    harness.connect("controller.b").declare(QUEUE)
    agent.bus.consume(QUEUE.name, 10)
    expect("what the queue kept", agent.bodies(1), [b"0"])
    for shape in (replace(QUEUE, ttl_s=5.0), replace(QUEUE, length_max=5), replace(QUEUE, single_active=True)):
        other = harness.connect("controller.b")
        expect_refusal(f"declare as {shape}", PermanentError, partial(other.declare, shape))


def check_unknown_names_are_refused(harness: BusHarness) -> None:
    """Check that an unknown queue cannot be consumed and that a queue cannot be bound to an unknown exchange."""
    for call in (
        lambda bus: bus.consume("nobody", 1),
        lambda bus: bus.declare(QueueSpec("lost", (("trimtab.nowhere", "key"),))),
    ):
        bus = harness.connect("controller.a")
        expect_refusal("use of an unknown name", PermanentError, partial(call, bus))


def check_confirms(harness: BusHarness) -> None:
    """Check that each publish with an id is confirmed once, after which the message is in its queue, and that one
    without an id is not confirmed."""
    publisher, agent = _actions(harness)
    asker = Listener(harness, publisher)
    for i in range(1, 6):
        publisher.publish(ACTIONS, "n1", b"%d" % i, publish_id=i * 10)
        publisher.publish(ACTIONS, "n1", b"unasked")
    confirms = sorted((confirm.publish_id, confirm.ok) for confirm in asker.confirms(5))
    expect("confirms", confirms, [(i * 10, True) for i in range(1, 6)])
    agent.bodies(10)


def check_unroutable_is_confirmed(harness: BusHarness) -> None:
    """Check that a message without a bound queue is confirmed and dropped."""
    publisher, agent = _actions(harness)
    publisher.publish(ACTIONS, "nobody", b"lost", publish_id=1)
    publisher.publish(REPLIES, "nobody", b"lost", publish_id=2)
    confirms = sorted((confirm.publish_id, confirm.ok) for confirm in Listener(harness, publisher).confirms(2))
    expect("confirms", confirms, [(1, True), (2, True)])
    agent.deliveries(0)


def check_direct_routing(harness: BusHarness) -> None:
    """Check that a direct exchange requires the exact key, and that a queue may be bound to two exchanges."""
    publisher, first = _actions(harness)
    publisher.declare(agent_queue("n2"))
    publisher.declare(CONTROLLER)
    second = _listen(harness, "agent.n2", agent_queue("n2").name)
    for key in ("n1", "n2", "n", "#", "*", "n1.n2"):
        publisher.publish(ACTIONS, key, key.encode())
    publisher.publish(RESULTS, CONTROLLER_QUEUE, b"result")
    publisher.publish(REQUESTS, CONTROLLER_QUEUE, b"request")
    expect("to n1", first.bodies(1), [b"n1"])
    expect("to n2", second.bodies(1), [b"n2"])
    both = _listen(harness, "controller.b", CONTROLLER_QUEUE)
    expect("to the controller", sorted(both.bodies(2)), [b"request", b"result"])


def check_topic_routing(harness: BusHarness) -> None:
    """Check that `*` matches one word and `#` any number of words, and that a message that matches twice is delivered
    once."""
    keys = ("vm", "vm.started", "vm.started.late", "node.started", "job.vm.started")
    wanted = {
        "exact": (("vm.started",), ["vm.started"]),
        "star": (("*.started",), ["vm.started", "node.started"]),
        "tail": (("vm.#",), ["vm", "vm.started", "vm.started.late"]),
        "head": (("#.started",), ["vm.started", "node.started", "job.vm.started"]),
        "twice": (("vm.*", "#.started"), ["vm.started", "node.started", "job.vm.started"]),
    }
    bus = harness.connect("controller.a")
    for name, (patterns, _) in wanted.items():
        bus.declare(QueueSpec(name, tuple((EVENTS, pattern) for pattern in patterns), durable=False, exclusive=True))
    for key in keys:
        bus.publish(EVENTS, key, key.encode())
    harness.settle(0.2)
    for name in wanted:
        bus.consume(name, 10)
    total = sum(len(expected) for _, expected in wanted.values())
    got = Listener(harness, bus).deliveries(total)
    for name, (_, expected) in wanted.items():
        expect(name, [delivery.routing_key for delivery in got if delivery.queue == name], expected)


def check_reports_reach_every_controller(harness: BusHarness) -> None:
    """Check that each controller's own queue gets every report."""
    controllers = [_owner(harness, report_queue(name), f"controller.{name}") for name in ("a", "b")]
    for controller, name in zip(controllers, ("a", "b"), strict=True):
        controller.bus.consume(report_queue(name).name, 1, acknowledged=False)
    for node in ("n1", "n2"):
        harness.connect(f"agent.{node}").publish(REPORTS, report_key(node), node.encode())
    for controller in controllers:
        expect("reports", sorted(delivery.body for delivery in controller.deliveries(2)), [b"n1", b"n2"])


def check_delivery_names_its_sender(harness: BusHarness) -> None:
    """Check that a delivery names its sender, its routing key and its queue."""
    controller = _owner(harness, CONTROLLER)
    controller.bus.consume(CONTROLLER_QUEUE, 10)
    for user in ("agent.n1", "agent.n2"):
        harness.connect(user).publish(RESULTS, CONTROLLER_QUEUE, user.encode())
    for delivery in controller.deliveries(2):
        named = (delivery.sender.encode(), delivery.routing_key, delivery.queue, delivery.reply_to)
        expect("sender, key, queue, reply-to", named, (delivery.body, CONTROLLER_QUEUE, CONTROLLER_QUEUE, ""))


def check_reply_by_default_exchange(harness: BusHarness) -> None:
    """Check that a request names its sender's reply queue, and that an answer reaches the sender under that name."""
    controller = _owner(harness, CONTROLLER)
    controller.bus.consume(CONTROLLER_QUEUE, 10)
    operator = _owner(harness, REPLY_QUEUE, "operator.ann")
    operator.bus.consume(REPLY_QUEUE.name, 1, acknowledged=False)
    operator.bus.publish(REQUESTS, CONTROLLER_QUEUE, b"ask", reply_to=REPLY_QUEUE.name)
    (request,) = controller.deliveries(1)
    expect("reply_to", request.reply_to, REPLY_QUEUE.name)
    controller.bus.publish(REPLIES, request.reply_to, b"answer")
    (answer,) = operator.deliveries(1)
    expect("answer", (answer.body, answer.sender), (b"answer", "controller.a"))


def check_dead_letter(harness: BusHarness) -> None:
    """Check that a dead letter is kept with its reason, origin and truncated body, and is not redelivered."""
    publisher, _ = _actions(harness, consume=False)
    reader = _listen(harness, "controller.b", QUEUE.name)
    bodies = (b"short", b"x" * (DEAD_BODY_BYTES_MAX + 1))
    _send(publisher, *bodies)
    for delivery in reader.deliveries(2):
        reader.bus.dead_letter(delivery.tag, f"refused {len(delivery.body)}")
    harness.settle(0.5)
    harness.kill(reader.bus)
    _listen(harness, "agent.n1", QUEUE.name).deliveries(0)
    dead = harness.dead_letters()
    expect("number of dead letters", len(dead), 2)
    for letter, body in zip(dead, bodies, strict=True):
        origin = (letter.reason, letter.queue, letter.routing_key, letter.sender)
        expect("origin", origin, (f"refused {len(body)}", QUEUE.name, "n1", "controller.a"))
        expect("size", letter.size_bytes, len(body))
        expect("whether the body is kept up to the limit", letter.body == body[:DEAD_BODY_BYTES_MAX], True)


def check_dead_letter_makes_room(harness: BusHarness) -> None:
    """Check that a dead letter counts as acknowledged, also for an agent, whose dead letters are not kept."""
    publisher, agent = _actions(harness, prefetch=1)
    _send(publisher, b"0", b"1")
    (first,) = agent.deliveries(1)
    agent.bus.dead_letter(first.tag, "undecodable")
    expect("the next", agent.bodies(1), [b"1"])
    expect("dead letters", harness.dead_letters(), ())


def check_dead_letter_without_acknowledgement(harness: BusHarness) -> None:
    """Check that a delivery that needs no acknowledgement can be kept as a dead letter too."""
    controller = harness.connect("controller.a")
    controller.declare(report_queue("a"))
    controller.consume(report_queue("a").name, 1, acknowledged=False)
    harness.connect("agent.n1").publish(REPORTS, report_key("n1"), b"garbage")
    for _ in range(100):
        for event in controller.poll():
            if isinstance(event, Delivery):
                controller.dead_letter(event.tag, "undecodable")
        harness.settle(0.05)
        if harness.dead_letters():
            break
    found = [(letter.reason, letter.queue, letter.body) for letter in harness.dead_letters()]
    expect("dead letters", found, [("undecodable", report_queue("a").name, b"garbage")])


def check_oversize_is_refused(harness: BusHarness) -> None:
    """Check that a body above the size limit of the publisher's role is refused, and that the publisher can still
    publish afterwards."""
    publisher, agent = _actions(harness)
    body = b"x" * (BODY_BYTES_MAX + 1)
    expect_refusal("publish of too much", PermanentError, lambda: publisher.publish(ACTIONS, "n1", body, 1))
    user, body = harness.connect("user.joe"), b"x" * (share_of("user.joe").body_bytes_max + 1)
    expect_refusal("too much of a user", PermanentError, lambda: user.publish(REQUESTS, CONTROLLER_QUEUE, body))
    _send(publisher, b"after")
    expect("what came", agent.bodies(1), [b"after"])


def check_arrival_is_stamped(harness: BusHarness) -> None:
    """Check that a delivery carries its arrival time, even when it is polled late."""
    controller = _owner(harness, report_queue("a"))
    controller.bus.consume(report_queue("a").name, 1, acknowledged=False)
    begun_s = controller.bus.now_s()
    harness.connect("agent.n1").publish(REPORTS, report_key("n1"), b"report")
    harness.settle(2.0)
    (delivery,) = controller.deliveries(1)
    late = delivery.arrived_s > begun_s + 1.0
    expect("whether it came at once", (delivery.arrived_s >= begun_s, late), (True, False))


def check_senders_are_served_in_turn(harness: BusHarness) -> None:
    """Check that a sender with few messages does not wait behind one with many, and that each sender's order is
    kept."""
    controller = _owner(harness, CONTROLLER)
    controller.bus.consume(CONTROLLER_QUEUE, 1000)
    many, few = harness.connect("agent.n1"), harness.connect("agent.n2")
    for number in range(300):
        many.publish(RESULTS, CONTROLLER_QUEUE, b"%03d" % number)
    few.publish(RESULTS, CONTROLLER_QUEUE, b"one")
    harness.settle(1.0)
    first = [event.sender for event in controller.bus.poll() if isinstance(event, Delivery)]
    expect("whether the other is among the first", "agent.n2" in first[:4], True)
    rest = controller.deliveries(301 - len(first))
    bodies = [delivery.body for delivery in rest if delivery.sender == "agent.n1"]
    expect("order", bodies, [b"%03d" % number for number in range(300 - len(bodies), 300)])


def check_nobody_takes_more_than_its_share(harness: BusHarness) -> None:
    """Check that messages beyond a sender's share are dropped and reported with the sender's name, while other senders
    are served."""
    controller = _owner(harness, CONTROLLER)
    controller.bus.consume(CONTROLLER_QUEUE, 1000)
    user, operator = harness.connect("user.joe"), harness.connect("operator.ann")
    for _ in range(3_000):
        user.publish(REQUESTS, CONTROLLER_QUEUE, b"query")
    harness.settle(1.0)
    operator.publish(REQUESTS, CONTROLLER_QUEUE, b"status")
    served: Counter[str] = Counter()
    told: set[str] = set()
    for _ in range(60):
        for event in controller.bus.poll():
            if isinstance(event, Delivery):
                served[event.sender] += 1
                controller.bus.acknowledge(event.tag)
            elif isinstance(event, Discarded):
                told.add(event.sender)
        harness.settle(LOOK_S)
    expect("who was heard, and who has sent too much", (served["operator.ann"], told), (1, {"user.joe"}))
    expect("whether the user was heard within its share", 1 <= served["user.joe"] <= 1_000, True)


def check_closed_connection_refuses(harness: BusHarness) -> None:
    """Check that after `close` every sending or receiving call raises BusUnavailable, and that a second `close` does
    nothing."""
    bus, _ = _actions(harness, consume=False)
    bus.close()
    bus.close()
    for what, call in (
        ("publish", lambda: bus.publish(ACTIONS, "n1", b"")),
        ("declare", lambda: bus.declare(QUEUE)),
        ("consume", lambda: bus.consume(QUEUE.name, 1)),
        ("poll", lambda: bus.poll()),
    ):
        expect_refusal(f"{what} after close", BusUnavailable, call)


def check_end_is_quiet_for_others(harness: BusHarness) -> None:
    """Check that the end of a connection does not affect others, even of the same user."""
    publisher, agent = _actions(harness)
    other = _listen(harness, "agent.n1", QUEUE.name)
    harness.kill(other.bus)
    _send(publisher, b"0")
    expect("what came", agent.bodies(1), [b"0"])


def check_restart_keeps_what_is_durable(harness: BusHarness) -> None:
    """Check that a restart drops connections and transient queues, but keeps durable queues, bindings and confirmed
    messages."""
    if not harness.supports_restart:
        return
    publisher, agent = _actions(harness, prefetch=1)
    fleeting = QueueSpec("fleeting", (), durable=False)
    publisher.declare(fleeting)
    for i in range(3):
        publisher.publish(ACTIONS, "n1", b"%d" % i, publish_id=i)
    Listener(harness, publisher).confirms(3)
    agent.deliveries(1)
    harness.restart_broker()
    agent.lost()
    expect_refusal("publish after a loss", BusUnavailable, lambda: agent.bus.publish(RESULTS, CONTROLLER_QUEUE, b""))
    gone = harness.connect("controller.b")
    expect_refusal("consume of a transient queue", PermanentError, lambda: gone.consume(fleeting.name, 1))
    _send(harness.connect("controller.a"), b"3")
    again = _listen(harness, "agent.n1", QUEUE.name)
    expect("what survived", again.bodies(4), [b"0", b"1", b"2", b"3"])


CHECKS: tuple[Callable[[BusHarness], None], ...] = (
    *(
        check
        for name, check in sorted(globals().items())
        if name.startswith("check_") and check is not check_permissions
    ),
    check_permissions,
)


def _send(bus: Bus, *bodies: bytes) -> None:
    for body in bodies:
        bus.publish(ACTIONS, "n1", body)


def _listen(harness: BusHarness, user: str, queue: str, prefetch: int = 100, acknowledged: bool = True) -> Listener:
    bus = harness.connect(user)
    bus.consume(queue, prefetch, acknowledged)
    return Listener(harness, bus)


def _owner(harness: BusHarness, spec: QueueSpec, user: str = "controller.a") -> Listener:
    """Return the connection of a user that has declared a queue."""
    bus = harness.connect(user)
    bus.declare(spec)
    return Listener(harness, bus)


def _actions(harness: BusHarness, prefetch: int = 100, consume: bool = True) -> tuple[Bus, Listener]:
    """Return a controller and an agent with its action queue."""
    publisher = harness.connect("controller.a")
    publisher.declare(QUEUE)
    agent = harness.connect("agent.n1")
    if consume:
        agent.consume(QUEUE.name, prefetch)
    return publisher, Listener(harness, agent)


def _uses_of(spec: QueueSpec) -> tuple[tuple[str, Callable[[Bus], None]], ...]:
    return (("declare", lambda bus: bus.declare(spec)), ("consume", lambda bus: bus.consume(spec.name, 1)))
