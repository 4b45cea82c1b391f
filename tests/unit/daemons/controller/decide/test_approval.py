"""Plans that wait: approved by as many accounts as it takes, or rejected and left in peace for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.access.delegation import on_behalf
from daemons.controller.decide.approval import REJECTED_CYCLES
from daemons.controller.decide.decision_log import KEPT_MAX
from daemons.controller.decide.progress import Progress, edges
from daemons.values.settings import Automation
from shared.policy_api.decision import Step
from shared.protocol.account_messages import RejectPlan
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import ApprovePlan, DrainNode, Query, SubmitJob
from shared.values.actions import ActionKind, Outcome
from tests.support.controller_harness import ControllerHarness, job

CYCLE_S = 60.0
NODES = ("n1", "n2")


def held(**settings: Any) -> ControllerHarness:
    """A harness with a move that waits: its node is to be emptied."""
    harness = ControllerHarness(NODES, automation=Automation.CONFIRM, decide_s=CYCLE_S, **settings)
    harness.lead()
    harness.ask(SubmitJob("s", job()))
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    assert harness.controller.deciding.pending is not None
    return harness


def number(harness: ControllerHarness) -> int:
    """Of the decision that waits."""
    pending = harness.controller.deciding.pending
    assert pending is not None
    return pending.number


def approve(harness: ControllerHarness, account: str, request: str, why: str = "") -> Reply:
    """An operator's word, with a reason."""
    harness.say(on_behalf(account, ApprovePlan(request, number(harness)), why), account)
    return harness.replies[-1]


def plan(harness: ControllerHarness, subject: str = "") -> dict[str, Any]:
    """The view."""
    data = harness.ask(Query("q", "plan", subject)).data
    assert isinstance(data, dict)
    return data


def test_a_plan_waits_for_as_many_accounts_as_it_takes() -> None:
    harness = held(approvals=2)
    assert approve(harness, "operator.jane", "a1", "looks right").done
    assert harness.take_orders() == []
    assert (plan(harness)["waiting_approval"], plan(harness)["approvals_missing"]) == (True, 1)
    again = approve(harness, "operator.jane", "a2")
    assert (again.code, "1 more" in again.detail) == ("already-approved", True)
    waiting = number(harness)
    assert approve(harness, "operator.joe", "a3").done
    assert [action.kind for action in harness.take_orders()] == [ActionKind.MIGRATE]
    decision = plan(harness, f"{waiting}")["decision"]
    assert decision["approvals"] == [
        {"account": "operator.jane", "at_s": harness.now_s, "why": "looks right"},
        {"account": "operator.joe", "at_s": harness.now_s, "why": ""},
    ]
    assert decision["approved_at_s"] == harness.now_s
    told = [event.detail for event in harness.events if event.what == "plan-approved"]
    assert told == ["operator.jane: looks right; 1 more must", "operator.joe"]


def test_a_plan_and_its_approvals_outlive_the_controller() -> None:
    harness = held(approvals=2)
    assert approve(harness, "operator.jane", "a1").done
    waiting = number(harness)
    later = ControllerHarness(NODES, harness.store, automation=Automation.CONFIRM, decide_s=CYCLE_S, approvals=2)
    later.vms, later.seqs = harness.vms, harness.seqs
    later.lead()
    assert number(later) == waiting
    assert approve(later, "operator.jane", "b1").code == "already-approved"
    assert approve(later, "operator.joe", "b2").done
    assert later.controller.deciding.pending is None
    assert [action.kind for action in later.take_orders()] == [ActionKind.MIGRATE]


def test_waiting_is_one_alarm_whichever_decision_waits() -> None:
    """Given a decision that waits, when the next one takes its place, then the alarm is still the same, and says so."""

    def alarm() -> tuple[str, str]:
        alarms = harness.ask(Query("q", "status")).data["alarms"]
        (found,) = [each for each in alarms if each["what"] == "plan-waiting"]
        return found["subject"], found["detail"]

    harness = held()
    before, told = number(harness), alarm()
    harness.wait(2 * CYCLE_S, NODES)
    after = number(harness)
    assert after > before
    assert [told, alarm()] == [("controller", f"decision {each}: 1 changes") for each in (before, after)]


def test_who_has_approved_it_carries_it_out_when_fewer_are_asked_for_since() -> None:
    harness = held(approvals=2)
    assert approve(harness, "operator.jane", "a1").done
    later = ControllerHarness(NODES, harness.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = harness.vms, harness.seqs
    later.lead()
    waiting = number(later)
    assert approve(later, "operator.jane", "b1").done
    assert [action.kind for action in later.take_orders()] == [ActionKind.MIGRATE]
    assert [each["account"] for each in plan(later, f"{waiting}")["decision"]["approvals"]] == ["operator.jane"]


def test_orders_that_nobody_answers_are_forgotten() -> None:
    harness = held()
    assert approve(harness, "operator.jane", "a1").done
    (order,) = harness.take_orders()
    progress = harness.controller.deciding.progress
    progress.steps_max = 2
    for count in range(5):
        progress.sent(replace(order, id=f"{order.id}-{count}"), harness.now_s)
    assert len(progress._sent) == 2


def test_what_is_settled_does_not_wait_after_a_restart() -> None:
    harness = held()
    assert approve(harness, "operator.jane", "a1").done
    later = ControllerHarness(NODES, harness.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = harness.vms, harness.seqs
    assert later.lead().controller.deciding.pending is None


def test_the_same_plan_anew_keeps_its_approvals_and_another_one_does_not() -> None:
    harness = held(approvals=2)
    assert approve(harness, "operator.jane", "a1").done
    first = number(harness)
    harness.wait(CYCLE_S, reporting=NODES)
    assert number(harness) > first
    assert plan(harness)["approvals_missing"] == 1
    harness.ask(SubmitJob("s2", job("k")))
    harness.obey()
    harness.ask(DrainNode("u", "n1", False))
    harness.ask(DrainNode("d2", "n2", True))
    harness.wait(CYCLE_S, reporting=NODES)
    assert plan(harness)["approvals_missing"] == 2


def test_what_is_rejected_is_not_proposed_again_until_cycles_have_gone_by() -> None:
    harness = held()
    rejected = number(harness)
    assert harness.ask(RejectPlan("r", rejected, "not today")).done
    assert harness.ask(RejectPlan("r2", rejected)).code == "no-such-plan"
    decision = plan(harness, f"{rejected}")["decision"]
    assert decision["rejected"] == {"account": "operator.test", "at_s": harness.now_s, "why": "not today"}
    for _ in range(REJECTED_CYCLES - 1):
        harness.wait(CYCLE_S, reporting=NODES)
        assert harness.controller.deciding.pending is None
    assert [one["reason"]["code"] for one in plan(harness)["decision"]["dropped"]] == ["rejected"]
    harness.wait(CYCLE_S, reporting=NODES)
    assert harness.controller.deciding.pending is not None


def test_what_is_rejected_is_proposed_again_when_something_of_substance_has_changed() -> None:
    harness = held()
    assert harness.ask(RejectPlan("r", number(harness))).done
    harness.controller.cluster.jobs["j"].revision += 1
    harness.wait(CYCLE_S, reporting=NODES)
    assert harness.controller.deciding.pending is not None


def test_a_rejection_outlives_the_controller() -> None:
    harness = held()
    assert harness.ask(RejectPlan("r", number(harness))).done
    later = ControllerHarness(NODES, harness.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = harness.vms, harness.seqs
    later.lead()
    later.wait(CYCLE_S, reporting=NODES)
    assert later.controller.deciding.pending is None


def test_the_steps_of_a_plan_are_followed() -> None:
    harness = held()
    waiting = number(harness)

    def step() -> tuple[str, str]:
        (row,) = plan(harness, f"{waiting}")["decision"]["steps"]
        assert (row["id"], row["after"]) == (0, [])
        return row["state"], row["detail"]

    assert step() == ("held", "")
    assert approve(harness, "operator.jane", "a").done
    assert step() == ("sent", "")
    (order,) = harness.take_orders()
    harness.result(order, Outcome.FAILED, detail="no route")
    assert step() == ("failed", "failed no route")
    harness.wait(20.0, reporting=NODES)  # what has failed is decided anew
    waiting = number(harness)
    assert approve(harness, "operator.jane", "a2").done
    (order,) = harness.take_orders()
    harness.result(order)
    assert step() == ("done", "")


def test_plans_of_decisions_that_nobody_can_ask_for_are_forgotten() -> None:
    harness = held(limits=ControllerHarness().controller.settings.limits)
    waiting = harness.controller.deciding.pending
    assert waiting is not None
    progress = Progress(harness.controller.cluster)
    for count in range(KEPT_MAX + 5):
        progress.follow(replace(waiting, number=waiting.number + count), 0.0)
    assert len(progress._plans) == KEPT_MAX
    assert [one.state.value for one in progress.of(replace(waiting, number=waiting.number + KEPT_MAX))] == ["waiting"]


def test_a_step_is_dropped_when_its_workload_is_changed_otherwise() -> None:
    harness = held(limits=ControllerHarness().controller.settings.limits)
    waiting = harness.controller.deciding.pending
    assert waiting is not None
    progress = Progress(harness.controller.cluster)
    progress.follow(waiting, 0.0)
    assert [one.state.value for one in progress.of(waiting)] == ["waiting"]
    harness.controller.cluster.jobs["j"].revision += 1
    assert [one.state.value for one in progress.of(waiting)] == ["dropped"]


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        (
            [Step(ActionKind.SUSPEND, "a", "a#0", node="n1"), Step(ActionKind.START, "b", "b#0", node="n1", wave=1)],
            [[], [0]],
        ),
        (
            [
                Step(ActionKind.SUSPEND, "a", "a#0", node="n1"),
                Step(ActionKind.MIGRATE, "b", "b#0", node="n2", to_node="n1", wave=1),
                Step(ActionKind.RESUME, "a", "a#0", node="n2", wave=2),
            ],
            [[], [0], [0, 1]],
        ),
        (
            [Step(ActionKind.START, "a", "a#0", node="n1"), Step(ActionKind.START, "b", "b#0", node="n1", wave=1)],
            [[], []],
        ),
        ([], []),
    ],
)
def test_steps_wait_for_what_makes_room_and_for_the_vms_own(steps: list[Step], after: list[list[int]]) -> None:
    assert edges(steps) == after
