"""How long operations take here: from orders and answers to what decisions count with, over a change of leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.controller.state.operation_times import OperationTimes
from daemons.models.operation_times import SAMPLES_MAX
from daemons.store.bodies import from_body, to_body
from daemons.values.records.cluster import OperationRecord
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Result
from shared.protocol.operator_messages import MoveVm, SubmitJob
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.operation_costs import COSTLY, COSTS
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.views.test_registry import view

PAPER = COSTS["paper"]


def _action(kind: ActionKind, number: int = 0, from_node: str = "") -> Action:
    return Action(
        f"a{number}", kind, node="n1", vm="j#0", term=1, boot_id="boot", expires_at_s=1e9, from_node=from_node
    )


def _result(number: int = 0, outcome: Outcome = Outcome.OK, kind: ActionKind = ActionKind.SUSPEND) -> Result:
    return Result(
        node="n1",
        boot_id="boot",
        seq=1,
        clock_s=0.0,
        term=1,
        action=f"a{number}",
        kind=kind,
        vm="j#0",
        outcome=outcome,
    )


def _measure(times: OperationTimes, kind: ActionKind, seconds: float, memory_mib: float = 1000.0) -> int:
    times.sent(_action(kind), memory_mib, 100.0)
    return len(times.answered(_result(kind=kind), 100.0 + seconds))


def test_nothing_measured_is_as_configured() -> None:
    assert OperationTimes().costs(PAPER) == PAPER
    assert OperationTimes().costs(COSTS["none"]) == COSTS["none"]


@pytest.mark.parametrize("kind", COSTLY)
def test_after_ten_decisions_count_with_what_was_measured(kind: ActionKind) -> None:
    times = OperationTimes()
    for _ in range(10):
        assert _measure(times, kind, 0.9) == 1
    costs = times.costs(PAPER)
    assert costs.duration_s(kind, 1000.0) == pytest.approx(0.9, rel=0.3)
    others = [other for other in COSTLY if other is not kind]
    assert [costs.line(other) for other in others] == [PAPER.line(other) for other in others]


def test_configured_costs_stand_where_that_is_wanted() -> None:
    times = OperationTimes()
    for _ in range(10):
        _measure(times, ActionKind.START, 40.0)
    assert times.costs_now(ControllerSettings()).duration_s(ActionKind.START, 1000.0) == pytest.approx(40.0)
    assert times.costs_now(ControllerSettings(learn_costs=False)) == PAPER


def test_failures_repeated_answers_and_what_nobody_sent_teach_nothing() -> None:
    times = OperationTimes()
    times.sent(_action(ActionKind.SUSPEND), 1000.0, 0.0)
    assert times.answered(_result(outcome=Outcome.TIMED_OUT), 99.0) == ()
    assert times.answered(_result(), 100.0) == ()
    assert times.answered(_result(7), 100.0) == ()
    assert times.costs(PAPER) == PAPER


def test_an_order_that_is_sent_again_counts_from_the_first_time() -> None:
    times = OperationTimes()
    times.sent(_action(ActionKind.SUSPEND), 1000.0, 0.0)
    times.sent(_action(ActionKind.SUSPEND), 1000.0, 50.0)
    (record,) = times.answered(_result(), 60.0)
    assert record.measured[-1].seconds == 60.0


def test_only_what_takes_time_and_needs_no_transfer_is_measured() -> None:
    times = OperationTimes()
    for number, action in enumerate(
        (
            _action(ActionKind.SET_CPU, 0),
            _action(ActionKind.STOP, 1),
            _action(ActionKind.RESUME, 2, from_node="n2"),
        )
    ):
        times.sent(action, 1000.0, 0.0)
        assert times.answered(_result(number), 9.0) == ()
    times.sent(_action(ActionKind.RESUME, 3, from_node="n1"), 1000.0, 0.0)
    assert len(times.answered(_result(3), 9.0)) == 1


def test_the_newest_are_kept_and_taken_over() -> None:
    first, second = OperationTimes(), OperationTimes()
    for seconds in range(1, 100):
        first.sent(_action(ActionKind.MIGRATE), 500.0, 0.0)
        (record,) = first.answered(_result(), float(seconds))
        second.load(record)
    assert len(record.measured) == SAMPLES_MAX
    assert from_body(to_body(record), OperationRecord) == record
    assert second.costs(PAPER) == first.costs(PAPER) != PAPER


def test_a_controller_learns_from_its_own_orders_and_shows_it() -> None:
    """Five starts take 50 s each; the next leader knows."""
    harness = ControllerHarness().lead()
    for number in range(5):
        harness.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=100)))
        (order,) = harness.take_orders()
        harness.now_s += 50.0
        harness.result(order)
        harness.report("n1")
        harness.report("n2")
    rows = {row["kind"]: row for row in view(harness, "operations")["operations"]}
    assert (rows["start"]["measured"], rows["start"]["median_s"], rows["start"]["median_mib"]) == (5, 50.0, 100.0)
    assert rows["start"]["expected_s"] == pytest.approx(50.0)
    assert rows["migrate"]["expected_s"] is None
    assert harness.controller.deciding.builder.build(harness.now_s).costs.start_s == pytest.approx(50.0)
    successor = ControllerHarness(store=harness.store).lead()
    assert {row["kind"]: row for row in view(successor, "operations")["operations"]}["start"] == rows["start"]
    fixed = ControllerHarness(store=harness.store, learn_costs=False).lead()
    assert fixed.controller.deciding.builder.build(fixed.now_s).costs == PAPER


def test_a_migration_is_measured_by_its_answer() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("r", job("j", memory_mib=100)))
    harness.obey()
    (node,) = [name for name, vms in harness.vms.items() if "j#0" in vms]
    harness.ask(MoveVm("m", "j#0", "n2" if node == "n1" else "n1"))
    (order,) = harness.take_orders()
    harness.now_s += 7.0
    harness.result(order)
    rows = {row["kind"]: row for row in view(harness, "operations")["operations"]}
    assert rows["migrate"]["median_s"] == pytest.approx(7.0)


def test_a_resume_elsewhere_costs_a_migration_more() -> None:
    costs = replace(PAPER, resume_s=2.0, migrate_s=3.0)
    assert costs.duration_s(ActionKind.RESUME, 0.0, elsewhere=True) == 5.0
    assert costs.duration_s(ActionKind.RESUME, 1000.0) == pytest.approx(2.0 + 33.3)
    assert costs.line(ActionKind.STOP) == (0.0, 0.0)
