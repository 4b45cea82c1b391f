"""The same on a real broker that `trimtab broker setup` has prepared: no other account notices what one does."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pika  # type: ignore[import-untyped]
import pytest

from shared.bus.broker_setup import Account, ManagementApi, Rabbitmqctl, at_limits, definitions
from shared.bus.rabbitmq.bus import connect
from shared.protocol.operator_messages import Query
from shared.protocol.topology import CONTROLLER_QUEUE, DEAD_QUEUE, REQUESTS
from tests.integration.private_broker import PROGRAMS, PrivateBroker
from tests.support.shell_harness import RealRig, wait_for

ANSWER_S = 2.0
USUALLY_S = 0.5
DEAD_MAX = 300  # of a minute or two, of one sender
PASSWORD = "secret"
USERS = (
    "controller.a",
    "controller.setup",
    "agent.n1",
    "agent.n2",
    "operator.test",
    "user.tom",
)
_NUMBERS = itertools.count(1)
pytestmark = [pytest.mark.full, pytest.mark.alone]


class Prepared:
    """A vhost with everything that the setup makes; `connect` as the rig wants it."""

    def __init__(self, broker: PrivateBroker) -> None:
        self._broker = broker
        self.vhost = f"attacked-{next(_NUMBERS)}"
        self.api = ManagementApi(broker.management_url, broker.user, broker.password)
        self.api.apply(definitions(self.vhost, [Account(user, PASSWORD) for user in USERS], ["n1", "n2"]))

    def url(self, user: str) -> str:
        return self._broker.url(user, PASSWORD, self.vhost)

    def at_limits(self) -> set[tuple[str, str]]:
        """The accounts at a limit of the broker, and what of."""
        way = Rabbitmqctl((str(PROGRAMS / "rabbitmqctl"),), self._broker.environment)
        return {
            (use.account, use.what) for use in at_limits(way.connections(), way.queues(self.vhost), way.transactions())
        }

    def dead_letters(self) -> int:
        """How many there are."""
        listed = self._broker.ctl("--vhost", self.vhost, "list_queues", "name", "messages").splitlines()
        return next(int(line.split()[1]) for line in listed if line.startswith(f"{DEAD_QUEUE}\t"))

    def connect(self, user: str) -> Any:
        return connect(self.url(user))


@contextmanager
def led(folder: Path, broker: PrivateBroker, nodes: int) -> Iterator[RealRig]:
    """A controller and nodes that take orders, on a vhost of their own."""
    made = RealRig(folder, nodes=nodes, bus=Prepared(broker))
    made.start()
    wait_for(lambda: all(row["schedulable"] for row in made.ask(Query("begin", "nodes")).data["nodes"]))
    yield made
    made.end()
    made.operator.close()
    made.bus.api.call("DELETE", f"vhosts/{made.bus.vhost}")


@pytest.fixture
def rig(tmp_path: Path, broker: PrivateBroker) -> Iterator[RealRig]:
    with led(tmp_path, broker, 2) as made:
        yield made


@pytest.mark.parametrize(
    ("user", "act", "seconds", "alarming"),
    [
        ("user.tom", "large-requests", 20, True),
        ("agent.n1", "large-results", 20, True),
        ("agent.n1", "large-reports", 20, True),
        ("user.tom", "queries", 40, True),
        ("user.tom", "fill-huge", 60, False),
        ("user.tom", "fill", 60, False),
        ("user.tom", "fill-unacked", 60, False),
        ("user.tom", "fill-stream", 60, False),
        ("user.tom", "headers", 40, True),
        ("user.tom", "connections", 20, False),
        ("agent.n1", "dead-letters", 10, False),
    ],
)
def test_no_other_account_notices(user: str, act: str, seconds: int, alarming: bool, rig: RealRig) -> None:
    """The leader leads, no connection of another is lost, the broker takes messages, both nodes are used (n1's agent
    may be heard less often when it is n1 that attacks), and an operator is answered within 2 s all the time."""
    command = [sys.executable, "-m", "tests.security.attacker", rig.bus.url(user), act, str(seconds)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    answers_s: list[float] = []
    alarms: set[str] = set()
    held: set[tuple[str, str]] = set()
    try:
        for number in itertools.count():
            if attacker.poll() is not None:
                break
            begun_s = rig.clock.monotonic_s()
            status = rig.ask(Query(f"look-{number}", "status")).data
            answers_s.append(rig.clock.monotonic_s() - begun_s)
            alarms |= {alarm["subject"] for alarm in status["alarms"] if alarm["what"] == "message-refused"}
            rig.clock.sleep(0.25)
            if act == "connections" and not held:
                held = rig.bus.at_limits()
    finally:
        attacker.kill()
        said = attacker.communicate()[0]
    shown = (
        f"median {median(answers_s):.3f} s, slowest {max(answers_s):.3f} s; {user} did and failed to: {said.strip()}"
    )
    print(f"{act}: {shown}")
    assert max(answers_s) <= ANSWER_S, shown
    assert median(answers_s) <= USUALLY_S, shown
    assert rig.running[0].exit_status is None
    assert rig.running[0].shell.core.leadership.term == 1  # type: ignore[attr-defined]
    lost = [line for line in rig.lines("not connected") if line.get("node") != "n1" or not user.startswith("agent.")]
    assert lost == [], said
    assert not [line for line in rig.lines() if "takes no messages" in line["event"]]
    nodes = {row["name"]: row for row in rig.ask(Query("nodes", "nodes")).data["nodes"]}
    assert nodes["n2"]["schedulable"]
    assert not [line for line in rig.lines("happened") if line["what"] == "clock-skewed"]
    assert (user in alarms) is alarming
    if act == "connections":
        assert ("user.tom", "connections") in held
    assert rig.bus.dead_letters() <= DEAD_MAX


def test_a_transaction_is_named(broker: PrivateBroker) -> None:
    """The broker can neither refuse transactions nor bound them: whoever has one is named."""
    made = Prepared(broker)
    connection = pika.BlockingConnection(pika.URLParameters(made.url("user.tom")))
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish(REQUESTS, CONTROLLER_QUEUE, bytes(1_000), pika.BasicProperties(user_id="user.tom"))
    try:
        wait_for(lambda: ("user.tom", "messages in transactions") in made.at_limits())
    finally:
        connection.close()
        made.api.call("DELETE", f"vhosts/{made.vhost}")
