"""What the policies think of a change by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shared.protocol.account_messages import Assess
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import DrainNode, SubmitJob
from tests.support.controller_harness import ControllerHarness, job


@pytest.fixture
def desk() -> ControllerHarness:
    """Two nodes; a job runs on the first."""
    made = ControllerHarness().lead()
    made.ask(SubmitJob("s", job(goal_s=1e6)))
    made.obey()
    return made


def assessed(desk: ControllerHarness, kind: str, subject: str, node: str = "") -> dict[str, Any]:
    """The answer."""
    reply = desk.ask(Assess(f"{kind}-{subject}-{node}", kind, subject, node))
    assert reply.done, reply
    assert isinstance(reply.data, dict)
    return reply.data


def test_a_move_is_looked_at_and_not_made(desk: ControllerHarness) -> None:
    orders, decisions = list(desk.orders), desk.controller.deciding.decisions
    data = assessed(desk, "migrate", "j#0", "n2")
    assert (desk.orders, desk.controller.deciding.decisions) == (orders, decisions)
    assert desk.controller.cluster.jobs["j"].allotments[0].node == "n1"
    assert (data["refused"], data["undone"], data["others"]) == (None, False, 0)
    (row,) = data["utilities"]
    assert row["workload"] == "j"
    assert row["changed"] <= row["now"]
    (operation,) = data["operations"]
    assert (operation["vm"], operation["kind"]) == ("j#0", "migrate")
    assert operation["seconds"] == pytest.approx(0.0132 * 1000)


def test_what_would_be_refused_says_so(desk: ControllerHarness) -> None:
    desk.ask(DrainNode("d", "n2", True))
    assert assessed(desk, "migrate", "j#0", "n2")["refused"]["code"] == "node-not-schedulable"


def test_suspending_costs_utility_and_a_drain_moves_what_is_there(desk: ControllerHarness) -> None:
    desk.ask(SubmitJob("s2", job("k", goal_s=1e6)))
    desk.obey()
    data = assessed(desk, "suspend", "j")
    (row,) = (each for each in data["utilities"] if each["workload"] == "j")
    assert row["changed"] < row["now"]
    data = assessed(desk, "drain", "n1")
    assert ("j", "migrate") in [(one["workload"], one["kind"]) for one in data["follows"]]
    assert "j#0" in [one["vm"] for one in data["operations"]]
    assert not desk.controller.cluster.nodes["n1"].held


@pytest.mark.parametrize(
    ("kind", "subject", "node", "code"),
    [
        ("migrate", "x#0", "n2", "unknown-vm"),
        ("migrate", "j#0", "n9", "unknown-node"),
        ("suspend", "x", "", "unknown-job"),
        ("drain", "n9", "", "unknown-node"),
        ("explode", "j", "", "invalid-value"),
    ],
)
def test_what_there_is_not_cannot_be_looked_at(
    desk: ControllerHarness, kind: str, subject: str, node: str, code: str
) -> None:
    assert desk.ask(Assess("a", kind, subject, node)).code == code


def test_only_the_provider_asks(desk: ControllerHarness) -> None:
    for sender in ("owner.acme", "user.bob"):
        desk.say(Assess("a", "suspend", "j"), sender)
        reply = desk.replies[-1]
        assert isinstance(reply, Reply)
        assert reply.code == "not-allowed"
