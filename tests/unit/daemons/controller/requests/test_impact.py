"""What the policies think of a change by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shared.protocol.account_messages import Assess
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import DrainNode, SubmitJob
from tests.support.controller_harness import ControllerHarness, job


@pytest.fixture
def harness() -> ControllerHarness:
    """Two nodes; a job runs on the first."""
    made = ControllerHarness().lead()
    made.ask(SubmitJob("s", job(goal_s=1e6)))
    made.obey()
    return made


def assessed(harness: ControllerHarness, kind: str, subject: str, node: str = "") -> dict[str, Any]:
    """The answer."""
    reply = harness.ask(Assess(f"{kind}-{subject}-{node}", kind, subject, node))
    assert reply.done, reply
    assert isinstance(reply.data, dict)
    return reply.data


def test_a_move_is_looked_at_and_not_made(harness: ControllerHarness) -> None:
    orders, decisions = list(harness.orders), harness.controller.deciding.decisions
    data = assessed(harness, "migrate", "j#0", "n2")
    assert (harness.orders, harness.controller.deciding.decisions) == (orders, decisions)
    assert harness.controller.cluster.jobs["j"].allotments[0].node == "n1"
    assert (data["refused"], data["undone"], data["others"]) == (None, False, 0)
    (row,) = data["utilities"]
    assert row["workload"] == "j"
    assert row["changed"] <= row["now"]
    (operation,) = data["operations"]
    assert (operation["vm"], operation["kind"]) == ("j#0", "migrate")
    assert operation["seconds"] == pytest.approx(0.0132 * 1000)


def test_what_would_be_refused_says_so(harness: ControllerHarness) -> None:
    harness.ask(DrainNode("d", "n2", True))
    assert assessed(harness, "migrate", "j#0", "n2")["refused"]["code"] == "node-not-schedulable"


def test_suspending_costs_utility_and_a_drain_moves_what_is_there(harness: ControllerHarness) -> None:
    harness.ask(SubmitJob("s2", job("k", goal_s=1e6)))
    harness.obey()
    data = assessed(harness, "suspend", "j")
    (row,) = (each for each in data["utilities"] if each["workload"] == "j")
    assert row["changed"] < row["now"]
    data = assessed(harness, "drain", "n1")
    assert ("j", "migrate") in [(one["workload"], one["kind"]) for one in data["follows"]]
    assert "j#0" in [one["vm"] for one in data["operations"]]
    assert not harness.controller.cluster.nodes["n1"].held


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
    harness: ControllerHarness, kind: str, subject: str, node: str, code: str
) -> None:
    assert harness.ask(Assess("a", kind, subject, node)).code == code


def test_only_the_provider_asks(harness: ControllerHarness) -> None:
    for sender in ("owner.acme", "user.bob"):
        harness.say(Assess("a", "suspend", "j"), sender)
        reply = harness.replies[-1]
        assert isinstance(reply, Reply)
        assert reply.code == "not-allowed"
