"""The same on a real broker that `trimtab broker setup` has prepared: no other account notices what one does."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.bus.broker_setup import Account, ManagementApi, definitions
from shared.bus.rabbitmq import connect
from shared.messages import Query
from tests.integration.private_broker import PrivateBroker
from tests.unit.shell_rig import RealRig, wait_for

ANSWER_S = 2.0
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

    def connect(self, user: str) -> Any:
        return connect(self.url(user))


@pytest.fixture
def rig(tmp_path: Path, broker: PrivateBroker) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=2, bus=Prepared(broker))
    made.start()
    wait_for(lambda: all(row["schedulable"] for row in made.ask(Query("begin", "nodes")).data["nodes"]))
    yield made
    made.end()
    made.operator.close()
    made.bus.api.call("DELETE", f"vhosts/{made.bus.vhost}")


@pytest.mark.parametrize(
    ("user", "act", "seconds", "alarming"),
    [
        ("user.tom", "large-requests", 20, True),
        ("agent.n1", "large-results", 20, True),
        ("agent.n1", "large-reports", 20, True),
        ("user.tom", "queries", 40, True),
        ("user.tom", "fill-huge", 60, False),
        ("user.tom", "fill", 60, False),
        ("user.tom", "connections", 20, False),
    ],
)
def test_no_other_account_notices(user: str, act: str, seconds: int, alarming: bool, rig: RealRig) -> None:
    """The leader leads, no connection of another is lost, the broker takes messages, both nodes are used (n1's agent
    may be heard less often when it is n1 that attacks), and an operator is answered within 2 s all the time."""
    command = [sys.executable, "-m", "tests.security.attacker", rig.bus.url(user), act, str(seconds)]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    slowest_s = 0.0
    alarms: set[str] = set()
    try:
        for number in itertools.count():
            if attacker.poll() is not None:
                break
            begun_s = rig.clock.monotonic_s()
            status = rig.ask(Query(f"look-{number}", "status")).data
            slowest_s = max(slowest_s, rig.clock.monotonic_s() - begun_s)
            alarms |= {alarm["subject"] for alarm in status["alarms"] if alarm["what"] == "message-refused"}
            rig.clock.sleep(0.25)
    finally:
        attacker.kill()
        said = attacker.communicate()[0]
    assert slowest_s <= ANSWER_S, said
    assert rig.running[0].exit_status is None
    assert rig.running[0].shell.core.leadership.term == 1  # type: ignore[attr-defined]
    lost = [line for line in rig.lines("not connected") if line.get("node") != "n1" or not user.startswith("agent.")]
    assert lost == [], said
    assert not [line for line in rig.lines() if "takes no messages" in line["event"]]
    nodes = {row["name"]: row for row in rig.ask(Query("nodes", "nodes")).data["nodes"]}
    assert nodes["n2"]["schedulable"]
    assert not [line for line in rig.lines("happened") if line["what"] == "clock-skewed"]
    assert (user in alarms) is alarming
