"""A plan in progress is stopped: nothing new begins, what runs ends or is aborted, and nothing is left half-done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.values.records.cluster import PLAN_STOP
from daemons.values.settings import Automation, Limits, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.ports import effects as fx
from shared.protocol.messages import AbortAction
from shared.protocol.operator_messages import DecideNow, DrainNode, MoveVm, SetDeciding, StopPlan, SubmitJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import Allotment, JobPhase
from tests.support.controller_harness import ControllerHarness, job


class Harness(ControllerHarness):
    """Keeps what agents are asked to abort."""

    def __init__(self, **settings: object) -> None:
        self.aborts: list[AbortAction] = []
        super().__init__(**settings)  # type: ignore[arg-type]

    def carry(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Publish) and isinstance(effect.message, AbortAction):
                self.aborts.append(effect.message)
        super().carry(effects)


def running(count: int = 1, **settings: object) -> Harness:
    harness = Harness(**settings)
    harness.lead()
    for number in range(count):
        harness.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=100)))
    harness.obey()
    for node in harness.nodes:
        harness.report(node)
    return harness


def moving(count: int = 2) -> tuple[Harness, Action]:
    """Jobs that are all to move, one of which moves."""
    harness = running(count)
    home = harness.controller.cluster.jobs["j0"].allotments[0].node
    other = next(node for node in harness.nodes if node != home)
    for number in range(count):
        harness.ask(MoveVm(f"m{number}", f"j{number}#0", other))
    (move,) = [one for one in harness.take_orders() if one.kind is ActionKind.MIGRATE]
    return harness, move


def test_what_has_not_begun_stays_where_it_is_and_what_runs_ends() -> None:
    harness, move = moving()
    assert harness.ask(StopPlan("s")).done
    assert harness.aborts == []
    harness.result(move)
    harness.wait(60.0, reporting=list(harness.nodes))
    assert [one.kind for one in harness.take_orders() if one.kind is ActionKind.MIGRATE] == []
    homes = {name: entry.allotments[0].node for name, entry in harness.controller.cluster.jobs.items()}
    assert homes[move.vm.partition("#")[0]] == move.to_node
    assert sorted(homes.values()) == ["n1", "n2"]
    (event,) = harness.happenings("plan-stopped")
    assert event.detail == "1 workloads stay as they are, 1 operations end, 0 are aborted"


def test_a_migration_that_runs_is_aborted_where_that_is_asked_for() -> None:
    harness, move = moving(1)
    harness.ask(StopPlan("s", abort=True))
    (abort,) = harness.aborts
    assert (abort.node, abort.action) == (move.node, move.id)
    harness.result(move, Outcome.TIMED_OUT)
    harness.wait(60.0, reporting=list(harness.nodes))
    entry = harness.controller.cluster.jobs["j0"]
    assert entry.allotments[0].node == move.node
    assert harness.orders == []


def test_an_abort_that_comes_too_late_is_followed() -> None:
    harness, move = moving(1)
    harness.ask(StopPlan("s", abort=True))
    harness.result(move)
    harness.wait(60.0, reporting=list(harness.nodes))
    moves = [one for one in harness.take_orders() if one.kind is ActionKind.MIGRATE]
    entry = harness.controller.cluster.jobs["j0"]
    assert entry.phase is JobPhase.RUNNING
    assert {entry.allotments[0].node, *(one.to_node for one in moves)} <= {"n1", "n2"}


def test_a_start_that_has_begun_comes_to_run() -> None:
    harness = Harness()
    harness.lead()
    harness.ask(SubmitJob("r", job("j", memory_mib=100)))
    (start,) = harness.take_orders()
    harness.ask(StopPlan("s"))
    harness.result(start)
    harness.report(start.node)
    assert harness.controller.cluster.jobs["j"].phase is JobPhase.RUNNING


def test_what_was_stopped_is_not_proposed_at_once() -> None:
    harness = running(2, placement=PolicyChoice("apc"), automation=Automation.AUTO)
    home = harness.controller.cluster.jobs["j0"].allotments[0].node
    harness.ask(DrainNode("d", home, True))
    harness.wait(10.0, reporting=list(harness.nodes))
    moves = [one for one in harness.take_orders() if one.kind is ActionKind.MIGRATE]
    assert moves
    harness.ask(StopPlan("s", abort=True))
    for move in moves:
        harness.result(move, Outcome.TIMED_OUT)
    harness.wait(300.0, reporting=list(harness.nodes))
    assert [one for one in harness.take_orders() if one.kind is ActionKind.MIGRATE] == []


# --- decide now -------------------------------------------------------------------------------------------------------


def test_a_decision_is_made_now_at_every_level() -> None:
    for level in Automation:
        harness = running(1, automation=level)
        before = harness.controller.deciding.decisions
        assert harness.ask(DecideNow("d")).done
        harness.wait(1.0, reporting=list(harness.nodes))
        assert harness.controller.deciding.decisions == before + 1


def test_no_decision_is_made_while_deciding_is_paused() -> None:
    harness = running()
    harness.ask(SetDeciding("p", False))
    before = harness.controller.deciding.decisions
    reply = harness.ask(DecideNow("d"))
    assert (reply.done, reply.code) == (False, "deciding-paused")
    harness.wait(10.0, reporting=list(harness.nodes))
    assert harness.controller.deciding.decisions == before


def settled(harness: Harness, *changes: Change) -> list[Action]:
    """The orders that follow when these changes are decided."""
    controller = harness.controller
    controller.deciding.desired.apply([*changes], harness.now_s)
    for node in harness.nodes:
        harness.report(node)
    return harness.take_orders()


def test_a_migration_whose_cpu_is_set_first_does_not_begin_after_that() -> None:
    harness = running()
    entry = harness.controller.cluster.jobs["j0"]
    (allotment,) = entry.allotments
    other = next(node for node in harness.nodes if node != allotment.node)
    wanted = (Allotment(other, allotment.cpu_mhz / 2),)
    (order,) = settled(harness, Change("j0", entry.revision, ChangeKind.MIGRATE, wanted, Reason(ReasonCode.LOAD)))
    assert order.kind is ActionKind.SET_CPU
    assert harness.ask(StopPlan("s")).done
    harness.result(order)
    harness.wait(60.0, reporting=list(harness.nodes))
    assert ActionKind.MIGRATE not in [one.kind for one in harness.take_orders()]
    assert entry.allotments[0].node == allotment.node


def test_what_is_to_be_suspended_and_has_not_begun_runs_on() -> None:
    harness = running(3, limits=Limits(actions_per_node=1, migrations_per_node=1))
    for _ in range(5):
        harness.obey()
        harness.wait(10.0, reporting=list(harness.nodes))
    entries = [harness.controller.cluster.jobs[f"j{number}"] for number in range(3)]
    assert {entry.phase for entry in entries} == {JobPhase.RUNNING}
    why = Reason(ReasonCode.PREEMPTED)
    orders = settled(harness, *(Change(one.job.name, one.revision, ChangeKind.SUSPEND, (), why) for one in entries))
    assert 0 < len(orders) < 3
    assert harness.ask(StopPlan("s")).done
    for order in orders:
        harness.result(order)
    harness.wait(60.0, reporting=list(harness.nodes))
    assert ActionKind.SUSPEND not in [one.kind for one in harness.obey()]
    saved = {order.vm.partition("#")[0] for order in orders}
    assert {entry.phase for entry in entries if entry.job.name not in saved} == {JobPhase.RUNNING}
    assert all(entry.released for entry in entries if entry.job.name not in saved)


def test_what_was_stopped_is_in_the_history_and_a_new_leader_does_not_propose_it_either() -> None:
    """The workload that stays has changed once more since: that proposes nothing again."""
    harness, move = moving()
    harness.ask(StopPlan("s"))
    harness.result(move)
    after = Harness(store=harness.store)
    after.vms, after.boots, after.seqs, after.now_s = harness.vms, harness.boots, harness.seqs, harness.now_s
    after.lead()
    deciding = after.controller.deciding
    (record,) = [one for one in deciding.history if one.policy == PLAN_STOP]
    (change,) = record.held
    assert change.kind is ChangeKind.MIGRATE
    assert record.rejected is not None
    other = replace(change, revision=change.revision + 1)
    (refusal,) = deciding.approving.rejected([other], after.now_s)
    assert (refusal.workload, refusal.reason.code) == (change.workload, ReasonCode.REJECTED)
    assert deciding.approving.rejected([other], after.now_s + 10.0 * 900.0) == []


def succeeded(harness: Harness) -> Harness:
    """The next leader over the same store and nodes."""
    after = Harness(store=harness.store)
    after.vms, after.boots, after.seqs, after.now_s = harness.vms, harness.boots, harness.seqs, harness.now_s
    return after


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("arrives", [False, True])
def test_a_new_leader_leaves_a_vm_where_its_stopped_move_has_ended(abort: bool, arrives: bool) -> None:
    """Neither is a lost order given again, nor a VM brought back that has moved."""
    harness, move = moving(1)
    harness.ask(StopPlan("s", abort=abort))
    if arrives:
        harness.vms[move.to_node][move.vm] = harness.vms[move.node].pop(move.vm)
    after = succeeded(harness)
    after.lead()
    after.wait(200.0, reporting=list(after.nodes))
    assert after.take_orders() == []
    (allotment,) = after.controller.cluster.jobs["j0"].allotments
    assert allotment.node == (move.to_node if arrives else move.node)
    assert after.happenings("moved-externally") == []


def test_an_order_that_nobody_answers_is_not_given_again() -> None:
    harness, move = moving(1)
    harness.ask(StopPlan("s"))
    harness.wait(200.0, reporting=list(harness.nodes))
    assert harness.take_orders() == []
    assert harness.controller.cluster.jobs["j0"].allotments[0].node == move.node


def test_after_it_has_settled_an_operator_moves_it_as_ever() -> None:
    harness, move = moving(1)
    harness.ask(StopPlan("s"))
    harness.result(move)
    harness.wait(60.0, reporting=list(harness.nodes))
    assert harness.ask(MoveVm("back", move.vm, move.node)).done
    (back,) = harness.take_orders()
    harness.result(back)
    harness.wait(60.0, reporting=list(harness.nodes))
    assert harness.take_orders() == []
    assert harness.controller.cluster.jobs["j0"].allotments[0].node == move.node
