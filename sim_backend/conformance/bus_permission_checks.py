"""What each kind of user may do on a bus, checked from outside: one of the checks of `bus_checks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shared.base.errors import PermanentError
from shared.ports.bus import Bus
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER,
    CONTROLLER_QUEUE,
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
)
from sim_backend.conformance.bus_harness import BusHarness, Listener, expect_refusal

_NOT_FOR_ASKERS: tuple[Callable[[Bus], None], ...] = (
    lambda bus: bus.publish(RESULTS, CONTROLLER_QUEUE, b""),
    lambda bus: bus.publish(ACTIONS, "n1", b""),
    lambda bus: bus.publish(REPORTS, report_key("n1"), b""),
    lambda bus: bus.publish(EVENTS, "vm", b""),
    lambda bus: bus.publish(REPLIES, agent_queue("n2").name, b""),
    lambda bus: bus.consume(CONTROLLER_QUEUE, 1),
    lambda bus: bus.consume(agent_queue("n2").name, 1),
    lambda bus: bus.declare(event_queue(bus.user)),
    lambda bus: bus.declare(reply_queue("owner.lee")),
    lambda bus: bus.declare(replace(reply_queue(bus.user), bindings=((EVENTS, "#"),))),
)


def check_permissions(harness: BusHarness) -> None:
    """Check the permissions of each kind of user. An agent publishes its own reports and results and reads its own
    queue. An operator sends requests and reads its answers and events. Owners and users of environments send requests
    and read only their answers."""
    if not harness.enforces_permissions:
        return
    controller = harness.connect("controller.a")
    for spec in (agent_queue("n1"), agent_queue("n2"), CONTROLLER):
        controller.declare(spec)
    refused: tuple[tuple[str, Callable[[Bus], None]], ...] = (
        ("agent.n1", lambda bus: bus.publish(REPORTS, report_key("n2"), b"")),
        ("agent.n1", lambda bus: bus.publish(ACTIONS, "n1", b"")),
        ("agent.n1", lambda bus: bus.publish(REQUESTS, CONTROLLER_QUEUE, b"")),
        ("agent.n1", lambda bus: bus.publish(EVENTS, "vm", b"")),
        ("agent.n1", lambda bus: bus.publish(REPLIES, agent_queue("n2").name, b"")),
        ("agent.n1", lambda bus: bus.consume(agent_queue("n2").name, 1)),
        ("agent.n1", lambda bus: bus.consume(CONTROLLER_QUEUE, 1)),
        ("agent.n1", lambda bus: bus.declare(QueueSpec("mine", ()))),
        ("operator.ann", lambda bus: bus.publish(RESULTS, CONTROLLER_QUEUE, b"")),
        ("operator.ann", lambda bus: bus.publish(ACTIONS, "n1", b"")),
        ("operator.ann", lambda bus: bus.consume(CONTROLLER_QUEUE, 1)),
        ("operator.ann", lambda bus: bus.declare(reply_queue("operator.bob"))),
        *((user, call) for user in ("owner.kim", "user.joe") for call in _NOT_FOR_ASKERS),
    )
    for user, call in refused:
        bus = harness.connect(user)
        expect_refusal(f"what {user} may not", PermanentError, partial(call, bus))
    agent, operator = harness.connect("agent.n1"), harness.connect("operator.ann")
    agent.publish(REPORTS, report_key("n1"), b"")
    agent.publish(RESULTS, CONTROLLER_QUEUE, b"")
    agent.consume(agent_queue("n1").name, 1)
    operator.publish(REQUESTS, CONTROLLER_QUEUE, b"")
    operator.declare(event_queue("operator.ann"))
    operator.consume(event_queue("operator.ann").name, 1)
    for user in ("owner.kim", "user.joe"):
        asker = harness.connect(user)
        asker.declare(reply_queue(user, "1"))
        asker.consume(reply_queue(user, "1").name, 1)
        asker.publish(REQUESTS, CONTROLLER_QUEUE, b"", reply_to=reply_queue(user, "1").name)
    other = harness.connect("controller.b")
    other.consume(CONTROLLER_QUEUE, 100)
    Listener(harness, other).bodies(4)
