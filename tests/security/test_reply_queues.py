"""Nobody has answers put into a queue of others, whatever the role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.protocol.account_messages import OnBehalf
from shared.protocol.codec import encode
from shared.protocol.operator_messages import Query
from shared.protocol.topology import asked_at
from tests.support.shell_harness import RealRig, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=2)
    made.start()
    yield made
    made.end()


@pytest.mark.parametrize("short", [False, True], ids=["requests", "questions"])
@pytest.mark.parametrize("user", ["operator.bob", "owner.kim", "user.tom", "portal.p1", "controller.b"])
def test_an_answer_goes_to_whoever_asked(user: str, short: bool, rig: RealRig) -> None:
    """Given a question whose answer is wanted in an agent's queue, then the agent gets none, and the alarm names who
    it was."""
    question = Query("mischief", "status")
    message = OnBehalf("mischief", "operator.bob", "", encode(question)) if user.startswith("portal.") else question
    exchange, key = asked_at(user, short)

    rig.bus.connect(user).publish(exchange, key, encode(message), None, "agent.n2")

    def alarming() -> bool:
        alarms = rig.ask(Query("look", "status")).data["alarms"]
        return any(
            alarm["what"] == "message-refused" and "may not have answers sent to agent.n2" in alarm["detail"]
            for alarm in alarms
        )

    wait_for(alarming)
    assert not [line for line in rig.lines("refused delivery") if line["reason"] == "a reply is not for agents"]
