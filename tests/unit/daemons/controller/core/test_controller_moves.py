"""What the controller believes of a VM that moves, told as conversations with both of its nodes."""

from __future__ import annotations

import pytest
from msgspec import structs

from shared.protocol.operator_messages import DrainNode
from shared.values.actions import ActionKind, Outcome
from shared.values.vms import VmState
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.core.test_controller import kinds, submitted


def test_work_is_kept_across_a_move_and_a_restart_of_the_controller() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.change("n1", "j#0", cpu_time_s=100.0)
    harness.ask(DrainNode("d", "n1", True))
    (move,) = harness.take_orders()
    assert (move.kind, move.to_node) == (ActionKind.MIGRATE, "n2")
    final = structs.replace(harness.vms["n1"]["j#0"], cpu_time_s=120.0)
    harness.result(move, final=final)
    harness.change("n2", "j#0", cpu_time_s=30.0)
    harness.report("n2")
    assert harness.controller.cluster.jobs["j"].done_mcycles == 150_000.0
    harness.wait(900.0, reporting=["n1", "n2"])  # the next cycle stores what was measured

    second = ControllerHarness(store=harness.store)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    second.change("n2", "j#0", cpu_time_s=50.0)
    second.report("n2")
    assert second.controller.cluster.jobs["j"].done_mcycles == 170_000.0


@pytest.mark.parametrize("state", [VmState.INCOMING, VmState.RUNNING])
def test_work_is_counted_once_while_both_ends_of_a_migration_report(state: VmState) -> None:
    """The target lists the VM before the source has said that it has gone, again and again."""
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.change("n1", "j#0", cpu_time_s=100.0)
    harness.report("n1")
    harness.ask(DrainNode("d", "n1", True))
    (move,) = harness.take_orders()
    coming = structs.replace(harness.vms["n1"]["j#0"], state=state, cpu_time_s=0.5)
    for second in range(3):
        harness.change("n1", "j#0", cpu_time_s=101.0 + second)
        harness.vms["n2"]["j#0"] = coming
        harness.report("n2")
        harness.report("n1")
    instance = harness.controller.cluster.instances["j#0"]
    assert instance.done_mcycles == pytest.approx(103.0 * 1_000.0)
    del harness.vms["n2"]["j#0"]
    harness.result(move)
    harness.change("n2", "j#0", cpu_time_s=2.0)
    harness.report("n2")
    assert instance.done_mcycles == pytest.approx(105.0 * 1_000.0)


def test_after_a_migration_the_targets_older_report_is_not_believed() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    (move,) = harness.take_orders()
    old_seq = harness.next_seq("n2")
    harness.result(move)
    assert [event.detail for event in harness.happenings("vm-migrated")] == [f"{move.id} from n1"]
    arrived = harness.vms["n2"].pop("j#0")
    harness.report("n2", seq=old_seq)
    assert harness.controller.cluster.instances["j#0"].may_run_on == {"n2"}
    harness.vms["n2"]["j#0"] = arrived
    harness.report("n2")
    assert harness.orders == []


def test_after_a_failed_migration_a_drain_takes_another_way() -> None:
    """Once both have failed the first one is tried again."""
    harness = submitted(ControllerHarness(["n1", "n2", "n3"]).lead(), job())
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    targets = []
    for back_off_s in (20.0, 35.0, 65.0):
        (move,) = harness.take_orders()
        assert (move.kind, move.node) == (ActionKind.MIGRATE, "n1")
        targets.append(move.to_node)
        harness.result(move, Outcome.NO_ROOM)
        harness.wait(back_off_s, reporting=["n1", "n2", "n3"])

    assert targets == ["n2", "n3", "n2"]


def test_a_failed_migration_leaves_the_job_where_it_is() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.ask(DrainNode("d", "n1", True))
    (move,) = harness.take_orders()
    harness.result(move, Outcome.FAILED)
    assert harness.orders == []
    assert harness.controller.cluster.jobs["j"].allotments[0].node == "n1"
    harness.wait(20.0, reporting=["n1", "n2"])
    assert kinds(harness) == [(ActionKind.MIGRATE, "n1")]  # the drain goes on after the back-off
