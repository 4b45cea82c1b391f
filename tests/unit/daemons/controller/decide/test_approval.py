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
    """A desk with a move that waits: its node is to be emptied."""
    desk = ControllerHarness(NODES, automation=Automation.CONFIRM, decide_s=CYCLE_S, **settings)
    desk.lead()
    desk.ask(SubmitJob("s", job()))
    desk.obey()
    desk.ask(DrainNode("d", "n1", True))
    assert desk.controller.deciding.pending is not None
    return desk


def number(desk: ControllerHarness) -> int:
    """Of the decision that waits."""
    pending = desk.controller.deciding.pending
    assert pending is not None
    return pending.number


def approve(desk: ControllerHarness, account: str, request: str, why: str = "") -> Reply:
    """An operator's word, with a reason."""
    desk.say(on_behalf(account, ApprovePlan(request, number(desk)), why), account)
    return desk.replies[-1]


def plan(desk: ControllerHarness, subject: str = "") -> dict[str, Any]:
    """The view."""
    data = desk.ask(Query("q", "plan", subject)).data
    assert isinstance(data, dict)
    return data


def test_a_plan_waits_for_as_many_accounts_as_it_takes() -> None:
    desk = held(approvals=2)
    assert approve(desk, "operator.jane", "a1", "looks right").done
    assert desk.take_orders() == []
    assert (plan(desk)["waiting_approval"], plan(desk)["approvals_missing"]) == (True, 1)
    again = approve(desk, "operator.jane", "a2")
    assert (again.code, "1 more" in again.detail) == ("already-approved", True)
    waiting = number(desk)
    assert approve(desk, "operator.joe", "a3").done
    assert [action.kind for action in desk.take_orders()] == [ActionKind.MIGRATE]
    decision = plan(desk, f"{waiting}")["decision"]
    assert decision["approvals"] == [
        {"account": "operator.jane", "at_s": desk.now_s, "why": "looks right"},
        {"account": "operator.joe", "at_s": desk.now_s, "why": ""},
    ]
    assert decision["approved_at_s"] == desk.now_s
    told = [event.detail for event in desk.events if event.what == "plan-approved"]
    assert told == ["operator.jane: looks right; 1 more must", "operator.joe"]


def test_a_plan_and_its_approvals_outlive_the_controller() -> None:
    desk = held(approvals=2)
    assert approve(desk, "operator.jane", "a1").done
    waiting = number(desk)
    later = ControllerHarness(NODES, desk.store, automation=Automation.CONFIRM, decide_s=CYCLE_S, approvals=2)
    later.vms, later.seqs = desk.vms, desk.seqs
    later.lead()
    assert number(later) == waiting
    assert approve(later, "operator.jane", "b1").code == "already-approved"
    assert approve(later, "operator.joe", "b2").done
    assert later.controller.deciding.pending is None
    assert [action.kind for action in later.take_orders()] == [ActionKind.MIGRATE]


def test_waiting_is_one_alarm_whichever_decision_waits() -> None:
    """Given a decision that waits, when the next one takes its place, then the alarm is still the same, and says so."""

    def alarm() -> tuple[str, str]:
        alarms = desk.ask(Query("q", "status")).data["alarms"]
        (found,) = [each for each in alarms if each["what"] == "plan-waiting"]
        return found["subject"], found["detail"]

    desk = held()
    before, told = number(desk), alarm()
    desk.wait(2 * CYCLE_S, NODES)
    after = number(desk)
    assert after > before
    assert [told, alarm()] == [("controller", f"decision {each}: 1 changes") for each in (before, after)]


def test_who_has_approved_it_carries_it_out_when_fewer_are_asked_for_since() -> None:
    desk = held(approvals=2)
    assert approve(desk, "operator.jane", "a1").done
    later = ControllerHarness(NODES, desk.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = desk.vms, desk.seqs
    later.lead()
    waiting = number(later)
    assert approve(later, "operator.jane", "b1").done
    assert [action.kind for action in later.take_orders()] == [ActionKind.MIGRATE]
    assert [each["account"] for each in plan(later, f"{waiting}")["decision"]["approvals"]] == ["operator.jane"]


def test_orders_that_nobody_answers_are_forgotten() -> None:
    desk = held()
    assert approve(desk, "operator.jane", "a1").done
    (order,) = desk.take_orders()
    progress = desk.controller.deciding.progress
    progress.steps_max = 2
    for count in range(5):
        progress.sent(replace(order, id=f"{order.id}-{count}"), desk.now_s)
    assert len(progress._sent) == 2


def test_what_is_settled_does_not_wait_after_a_restart() -> None:
    desk = held()
    assert approve(desk, "operator.jane", "a1").done
    later = ControllerHarness(NODES, desk.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = desk.vms, desk.seqs
    assert later.lead().controller.deciding.pending is None


def test_the_same_plan_anew_keeps_its_approvals_and_another_one_does_not() -> None:
    desk = held(approvals=2)
    assert approve(desk, "operator.jane", "a1").done
    first = number(desk)
    desk.wait(CYCLE_S, reporting=NODES)
    assert number(desk) > first
    assert plan(desk)["approvals_missing"] == 1
    desk.ask(SubmitJob("s2", job("k")))
    desk.obey()
    desk.ask(DrainNode("u", "n1", False))
    desk.ask(DrainNode("d2", "n2", True))
    desk.wait(CYCLE_S, reporting=NODES)
    assert plan(desk)["approvals_missing"] == 2


def test_what_is_rejected_is_not_proposed_again_until_cycles_have_gone_by() -> None:
    desk = held()
    rejected = number(desk)
    assert desk.ask(RejectPlan("r", rejected, "not today")).done
    assert desk.ask(RejectPlan("r2", rejected)).code == "no-such-plan"
    decision = plan(desk, f"{rejected}")["decision"]
    assert decision["rejected"] == {"account": "operator.test", "at_s": desk.now_s, "why": "not today"}
    for _ in range(REJECTED_CYCLES - 1):
        desk.wait(CYCLE_S, reporting=NODES)
        assert desk.controller.deciding.pending is None
    assert [one["reason"]["code"] for one in plan(desk)["decision"]["dropped"]] == ["rejected"]
    desk.wait(CYCLE_S, reporting=NODES)
    assert desk.controller.deciding.pending is not None


def test_what_is_rejected_is_proposed_again_when_something_of_substance_has_changed() -> None:
    desk = held()
    assert desk.ask(RejectPlan("r", number(desk))).done
    desk.controller.cluster.jobs["j"].revision += 1
    desk.wait(CYCLE_S, reporting=NODES)
    assert desk.controller.deciding.pending is not None


def test_a_rejection_outlives_the_controller() -> None:
    desk = held()
    assert desk.ask(RejectPlan("r", number(desk))).done
    later = ControllerHarness(NODES, desk.store, automation=Automation.CONFIRM, decide_s=CYCLE_S)
    later.vms, later.seqs = desk.vms, desk.seqs
    later.lead()
    later.wait(CYCLE_S, reporting=NODES)
    assert later.controller.deciding.pending is None


def test_the_steps_of_a_plan_are_followed() -> None:
    desk = held()
    waiting = number(desk)

    def step() -> tuple[str, str]:
        (row,) = plan(desk, f"{waiting}")["decision"]["steps"]
        assert (row["id"], row["after"]) == (0, [])
        return row["state"], row["detail"]

    assert step() == ("held", "")
    assert approve(desk, "operator.jane", "a").done
    assert step() == ("sent", "")
    (order,) = desk.take_orders()
    desk.result(order, Outcome.FAILED, detail="no route")
    assert step() == ("failed", "failed no route")
    desk.wait(20.0, reporting=NODES)  # what has failed is decided anew
    waiting = number(desk)
    assert approve(desk, "operator.jane", "a2").done
    (order,) = desk.take_orders()
    desk.result(order)
    assert step() == ("done", "")


def test_plans_of_decisions_that_nobody_can_ask_for_are_forgotten() -> None:
    desk = held(limits=ControllerHarness().controller.settings.limits)
    waiting = desk.controller.deciding.pending
    assert waiting is not None
    progress = Progress(desk.controller.cluster)
    for count in range(KEPT_MAX + 5):
        progress.follow(replace(waiting, number=waiting.number + count), 0.0)
    assert len(progress._plans) == KEPT_MAX
    assert [one.state.value for one in progress.of(replace(waiting, number=waiting.number + KEPT_MAX))] == ["waiting"]


def test_a_step_is_dropped_when_its_workload_is_changed_otherwise() -> None:
    desk = held(limits=ControllerHarness().controller.settings.limits)
    waiting = desk.controller.deciding.pending
    assert waiting is not None
    progress = Progress(desk.controller.cluster)
    progress.follow(waiting, 0.0)
    assert [one.state.value for one in progress.of(waiting)] == ["waiting"]
    desk.controller.cluster.jobs["j"].revision += 1
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
