"""Where a new VM would go, asked of a controller: the rules of all workloads count, and nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.protocol.messages import Reply
from shared.protocol.operator_messages import CheckVmFit, DrainNode, DryRun, SubmitJob
from shared.values.jobs import Preference, PreferenceKind, Rules
from shared.values.new_vm import NewVm
from tests.support.controller_harness import OPERATOR, ControllerHarness, job


@pytest.fixture
def harness() -> ControllerHarness:
    """Two nodes; a job of the group `db` runs on the first."""
    made = ControllerHarness().lead()
    made.ask(SubmitJob("s", replace(job(goal_s=1e6), rules=Rules(anti_affinity="db"))))
    made.obey()
    return made


def fit(harness: ControllerHarness, vm: NewVm, count: int = 1) -> dict[str, Any]:
    """The answer."""
    reply = harness.ask(CheckVmFit(f"fit-{len(harness.replies)}", vm, count))
    assert reply.done, reply
    assert isinstance(reply.data, dict)
    return reply.data


def test_nothing_is_ordered_decided_or_stored(harness: ControllerHarness) -> None:
    before = list(harness.orders), harness.controller.deciding.decisions, len(harness.events)
    data = fit(harness, NewVm(1, 500))
    assert (list(harness.orders), harness.controller.deciding.decisions, len(harness.events)) == before
    assert [row["node"] for row in data["fits"]] == ["n1", "n2"]
    assert data["how_many"] == len(fit(harness, NewVm(1, 500), 500)["placements"]) > 1


def test_the_groups_of_running_workloads_count(harness: ControllerHarness) -> None:
    data = fit(harness, NewVm(1, 500, rules=Rules(anti_affinity="db")), 2)
    assert [row["node"] for row in data["fits"]] == ["n2"]
    assert data["how_many"] == 1
    (move,) = data["with_moves"][0]["moves"]
    assert (move["vm"], move["node"], move["to_node"]) == ("j#0", "n1", "n2")
    together = fit(harness, NewVm(1, 500, rules=Rules(vm_affinity=("j",))))
    assert [row["node"] for row in together["fits"]] == ["n1"]
    assert [(row["node"], row["names"]) for row in together["misfits"]] == [("n2", ["j"])]
    liking = Rules(preferred=(Preference(PreferenceKind.NODE_AFFINITY, "n2"),))
    assert [row["node"] for row in fit(harness, NewVm(1, 500, rules=liking))["fits"]] == ["n1", "n2"]


def test_a_drained_node_takes_nothing(harness: ControllerHarness) -> None:
    harness.ask(DrainNode("d", "n2", True))
    data = fit(harness, NewVm(1, 500))
    assert [(row["node"], row["code"]) for row in data["misfits"]] == [("n2", "node-not-schedulable")]


def test_the_same_question_is_answered_once_and_another_one_waits(harness: ControllerHarness) -> None:
    harness.compute = False
    asked = CheckVmFit("f", NewVm(1, 500))
    before = len(harness.computations)
    for _ in range(2):
        harness.say(asked, OPERATOR)
    replies = len(harness.replies)
    assert harness.ask(DryRun("d")).code == "busy"
    assert len(harness.computations) == before + 1
    harness.answer(harness.computations[-1])
    answers = harness.replies[replies + 1 :]
    assert [(reply.request, reply.done) for reply in answers] == [("f", True)]


def test_what_nobody_can_answer_is_refused(harness: ControllerHarness) -> None:
    unknown = CheckVmFit("f", NewVm(1, 500, rules=Rules(node_affinity=("n9",))))
    assert harness.ask(unknown).code == "unknown-node"
    for sender in ("owner.acme", "user.bob"):
        harness.say(CheckVmFit("f", NewVm(1, 500)), sender)
        reply = harness.replies[-1]
        assert isinstance(reply, Reply)
        assert reply.code == "not-allowed"
