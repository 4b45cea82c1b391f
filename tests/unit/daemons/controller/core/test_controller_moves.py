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
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.change("n1", "j#0", cpu_time_s=100.0)
    desk.ask(DrainNode("d", "n1", True))
    (move,) = desk.take_orders()
    assert (move.kind, move.to_node) == (ActionKind.MIGRATE, "n2")
    final = structs.replace(desk.vms["n1"]["j#0"], cpu_time_s=120.0)
    desk.result(move, final=final)
    desk.change("n2", "j#0", cpu_time_s=30.0)
    desk.report("n2")
    assert desk.controller.cluster.jobs["j"].done_mcycles == 150_000.0
    desk.wait(900.0, reporting=["n1", "n2"])  # the next cycle stores what was measured

    second = ControllerHarness(store=desk.store)
    second.now_s, second.seqs, second.vms = desk.now_s, desk.seqs, desk.vms
    second.carry(second.controller.start(second.now_s))
    second.change("n2", "j#0", cpu_time_s=50.0)
    second.report("n2")
    assert second.controller.cluster.jobs["j"].done_mcycles == 170_000.0


@pytest.mark.parametrize("state", [VmState.INCOMING, VmState.RUNNING])
def test_work_is_counted_once_while_both_ends_of_a_migration_report(state: VmState) -> None:
    """The target lists the VM before the source has said that it has gone, again and again."""
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.change("n1", "j#0", cpu_time_s=100.0)
    desk.report("n1")
    desk.ask(DrainNode("d", "n1", True))
    (move,) = desk.take_orders()
    coming = structs.replace(desk.vms["n1"]["j#0"], state=state, cpu_time_s=0.5)
    for second in range(3):
        desk.change("n1", "j#0", cpu_time_s=101.0 + second)
        desk.vms["n2"]["j#0"] = coming
        desk.report("n2")
        desk.report("n1")
    instance = desk.controller.cluster.instances["j#0"]
    assert instance.done_mcycles == pytest.approx(103.0 * 1_000.0)
    del desk.vms["n2"]["j#0"]
    desk.result(move)
    desk.change("n2", "j#0", cpu_time_s=2.0)
    desk.report("n2")
    assert instance.done_mcycles == pytest.approx(105.0 * 1_000.0)


def test_after_a_migration_the_targets_older_report_is_not_believed() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.ask(DrainNode("d", "n1", True))
    (move,) = desk.take_orders()
    old_seq = desk.next_seq("n2")
    desk.result(move)
    assert [event.detail for event in desk.happenings("vm-moved")] == [f"{move.id} from n1"]
    arrived = desk.vms["n2"].pop("j#0")
    desk.report("n2", seq=old_seq)
    assert desk.controller.cluster.instances["j#0"].may_run_on == {"n2"}
    desk.vms["n2"]["j#0"] = arrived
    desk.report("n2")
    assert desk.orders == []


def test_after_a_failed_migration_a_drain_takes_another_way() -> None:
    """Once both have failed the first one is tried again."""
    desk = submitted(ControllerHarness(["n1", "n2", "n3"]).lead(), job())
    desk.obey()
    desk.ask(DrainNode("d", "n1", True))
    targets = []
    for back_off_s in (20.0, 35.0, 65.0):
        (move,) = desk.take_orders()
        assert (move.kind, move.node) == (ActionKind.MIGRATE, "n1")
        targets.append(move.to_node)
        desk.result(move, Outcome.NO_ROOM)
        desk.wait(back_off_s, reporting=["n1", "n2", "n3"])

    assert targets == ["n2", "n3", "n2"]


def test_a_failed_migration_leaves_the_job_where_it_is() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.ask(DrainNode("d", "n1", True))
    (move,) = desk.take_orders()
    desk.result(move, Outcome.FAILED)
    assert desk.orders == []
    assert desk.controller.cluster.jobs["j"].allotments[0].node == "n1"
    desk.wait(20.0, reporting=["n1", "n2"])
    assert kinds(desk) == [(ActionKind.MIGRATE, "n1")]  # the drain goes on after the back-off
