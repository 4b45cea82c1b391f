"""An agent's credentials in wrong hands, and brokers that are none of ours, against a real broker with TLS."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

import pika  # type: ignore[import-untyped]
import pytest

from daemons.cli.connection import Access, ControllerConnection, OperatorBus, OperatorConfig
from daemons.controller.core.controller import Controller
from daemons.service.main import ControllerShell, link_of
from daemons.values.records.cluster import Deleted
from daemons.values.settings import ControllerSettings
from shared.base.errors import BusUnavailable, PermanentError
from shared.bus.rabbitmq.bus import RabbitConnection, connect
from shared.config.broker_url import Tls
from shared.protocol.codec import encode
from shared.protocol.messages import Message, Report, Result
from shared.protocol.operator_messages import AddNode, Query
from shared.protocol.topology import (
    ACTIONS,
    CONTROLLER,
    CONTROLLER_QUEUE,
    DEAD_LETTERS,
    REPORTS,
    REQUESTS,
    RESULTS,
    agent_queue,
    report_key,
)
from shared.runtime import logs
from shared.values.actions import ActionKind, Outcome
from shared.values.nodes import NodeSample
from sim_backend.conformance.bus_harness import Listener
from sim_backend.conformance.rabbit_harness import PASSWORD, RabbitHarness
from sim_backend.fakes.store import MemoryStore
from tests.integration.private_broker import EXPIRED, PrivateBroker, under_test
from tests.support.shell_harness import InlineDecider, Running, wait_for

THIEF = "agent.n1"
FAST = ControllerSettings(probe_s=0.5, decide_s=3_600.0, unreachable_after_s=3_600.0)
_REQUESTS = itertools.count(1)


class Town:
    """A controller of nodes n1 and n2 on the real broker, everybody with TLS; nobody checks before sending."""

    def __init__(self, harness: RabbitHarness, broker: PrivateBroker) -> None:
        self.harness, self._broker = harness, broker
        self._tls = Tls(str(broker.ca_file))
        setup = harness.connect("controller.b")
        for spec in (CONTROLLER, DEAD_LETTERS, agent_queue("n1"), agent_queue("n2")):
            setup.declare(spec)
        setup.close()
        logs.configure("info", stream=io.StringIO())
        self.core = Controller("a", FAST)
        link = link_of("a", lambda: self.connect("controller.a"))
        self.running = Running(ControllerShell(self.core, link, MemoryStore(Deleted), InlineDecider(), seed=1))

    def connect(self, user: str) -> RabbitConnection:
        """With the user's own password."""
        return connect(self._broker.tls_url(user, PASSWORD, self.harness.vhost), self._tls, grant=None)

    def thief(self) -> Listener:
        """Somebody with the credentials of n1's agent."""
        return Listener(self.harness, self.connect(THIEF))

    def ask(self, kind: type[Any], *values: object) -> Any:
        """An operator's request, answered."""
        config = OperatorConfig(20.0, OperatorBus("amqps://x"))
        with ControllerConnection(Access(lambda *_: self.connect("operator.ann")), config) as line:
            return line.ask(kind(f"r{next(_REQUESTS)}", *values))

    def alarms(self) -> dict[str, str]:
        """The detail of each alarm about an account."""
        rows = self.ask(Query, "status")["alarms"]
        return {row["subject"]: row["detail"] for row in rows if row["what"] == "message-refused"}

    def nodes(self) -> list[Any]:
        """What nodes look like to an operator, ages apart."""
        return [{**row, "report_age_s": row["report_age_s"] is not None} for row in self.ask(Query, "nodes")["nodes"]]


@pytest.fixture(scope="module")
def town(broker: PrivateBroker) -> Iterator[Town]:
    harness = RabbitHarness(under_test(broker), grant=None)
    made = Town(harness, broker)
    for node in ("n1", "n2"):
        made.ask(AddNode, node)
    yield made
    made.running.stop()
    harness.close()


# --- refused by the broker -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exchange", "key"),
    [(ACTIONS, "n2"), (REPORTS, report_key("n2")), (REQUESTS, CONTROLLER_QUEUE)],
    ids=["an order to another agent", "a report for another node", "an operator's request"],
)
def test_the_broker_refuses_what_an_agent_may_not_send(exchange: str, key: str, town: Town) -> None:
    """The connection ends with the reason, nobody receives anything."""
    thief = town.thief()
    before, count = town.nodes(), town.core.screening.count(THIEF)

    thief.bus.publish(exchange, key, b"stolen")

    thief.lost()
    assert "ACCESS_REFUSED" in str(thief.events)
    assert town.nodes() == before
    assert town.core.screening.count(THIEF) == count
    victim = town.connect("agent.n2")
    victim.consume(agent_queue("n2").name, 10, acknowledged=False)
    assert all(b"stolen" not in delivery.body for delivery in _drained(Listener(town.harness, victim)))
    victim.close()


def test_the_broker_refuses_to_show_another_agents_queue(town: Town) -> None:
    thief = town.connect(THIEF)

    for queue in (agent_queue("n2").name, CONTROLLER_QUEUE, DEAD_LETTERS.name):
        with pytest.raises(PermanentError, match="ACCESS_REFUSED"):
            thief.consume(queue, 1)

    thief.consume(agent_queue("n1").name, 1)  # its own
    thief.close()


def test_answers_that_come_back_are_laid_to_whose_queue_it_was(town: Town) -> None:
    """Given a queue of a user that sends on as a request whatever comes, when it is named for an answer, then the user
    is accused, and the controller whose name is on what comes back is not."""
    loop = "reply.user.joe.loop"
    with pika.BlockingConnection(pika.URLParameters(town.harness.url("user.joe"))) as raw:
        channel = raw.channel()
        sent_on = {"x-dead-letter-exchange": REQUESTS, "x-dead-letter-routing-key": CONTROLLER_QUEUE}
        channel.queue_declare(loop, exclusive=True, arguments={"x-message-ttl": 0, **sent_on})
        for number in range(5):
            properties = pika.BasicProperties(user_id="user.joe", reply_to=loop)
            channel.basic_publish(REQUESTS, CONTROLLER_QUEUE, encode(Query(f"q{number}", "jobs")), properties)
        wait_for(lambda: "user.joe" in town.alarms())
    assert loop in town.alarms()["user.joe"]
    assert "controller.a" not in town.alarms()


# --- refused by the receiver -----------------------------------------------------------------------------------------

FORGED: dict[str, tuple[str, str, Message]] = {
    "under its own key a report for another node": (
        REPORTS,
        report_key("n1"),
        Report("n2", "boot-9", 99, clock_s=0.0, term=1, sample=NodeSample(), vms=()),
    ),
    "a result for another node": (
        RESULTS,
        CONTROLLER_QUEUE,
        Result(
            "n2", "boot-9", 99, clock_s=0.0, term=1, action="a1", kind=ActionKind.START, vm="j#0", outcome=Outcome.OK
        ),
    ),
    "as a result an operator's request": (RESULTS, CONTROLLER_QUEUE, AddNode("r", "n3")),
}


@pytest.mark.parametrize("case", FORGED)
def test_the_controller_refuses_what_the_broker_cannot_see(case: str, town: Town) -> None:
    """It changes nothing, and the alarm names the account whose credentials were used."""
    exchange, key, message = FORGED[case]
    before, count = town.nodes(), town.core.screening.count(THIEF)
    thief = town.thief()

    thief.bus.publish(exchange, key, encode(message), 1)

    assert [confirm.ok for confirm in thief.confirms(1)] == [True]  # the broker took it
    wait_for(lambda: town.core.screening.count(THIEF) == count + 1)
    assert "agent.n1 may not" in town.alarms()[THIEF]
    assert town.nodes() == before
    thief.bus.close()


def test_noise_and_a_message_without_a_name_raise_an_alarm(town: Town) -> None:
    """Given the stolen credentials, when `user_id` is left out, then there is an alarm though nobody can be named."""
    thief = town.thief()
    count, nameless = town.core.screening.count(THIEF), town.core.screening.count("")
    thief.bus.publish(RESULTS, CONTROLLER_QUEUE, b"\xc1noise")
    wait_for(lambda: town.core.screening.count(THIEF) == count + 1)
    thief.bus.close()

    with pika.BlockingConnection(pika.URLParameters(town.harness.url(THIEF))) as raw:
        raw.channel().basic_publish(RESULTS, CONTROLLER_QUEUE, b"anonymous")

    wait_for(lambda: town.core.screening.count("") == nameless + 1)
    assert town.alarms()[""].endswith("the last: no user id")


# --- a broker that is not ours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("an authority of its own", "no authority that is trusted here"),
        ("the system's authorities", "no authority that is trusted here"),
        ("another name", "is for another name"),
        ("an expired certificate", "has expired"),
        ("no TLS on a port for it", "does this port want TLS"),
        ("TLS on a port without", "no TLS is spoken there"),
    ],
)
def test_no_password_goes_to_a_broker_that_is_not_trusted(case: str, told: str, broker: PrivateBroker) -> None:
    """Every reason is told in words, without the password."""
    ca, url = str(broker.ca_file), broker.tls_url(broker.user, broker.password)
    tls, plain = (
        {
            "an authority of its own": Tls(str(broker.folder / "other.pem")),
            "another name": Tls(ca, server_name="example.org"),
            "an expired certificate": Tls(ca, server_name=EXPIRED),
            "TLS on a port without": Tls(ca),
        }.get(case),
        url.replace("amqps:", "amqp:"),
    )
    if case == "no TLS on a port for it":
        url = plain
    if case == "TLS on a port without":
        url = url.replace(f":{broker.amqps}/", f":{broker.amqp}/")

    with pytest.raises(BusUnavailable, match=told) as refused:
        connect(url, tls, answer_s=5.0)

    assert f":{broker.password}@" not in str(refused.value)


def _drained(listener: Listener) -> list[Any]:
    """What comes within half a second."""
    return [event for _ in range(5) for event in listener.bus.poll(0.1) if hasattr(event, "body")]
