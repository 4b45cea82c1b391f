"""What somebody else does to VMs of ours: noticed, told, followed where it must be, and left alone for a while."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.state import transitions
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import CancelJob, ConfirmGone, MoveVm, Query, ReconcileVm, SubmitJob
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import Allotment, JobPhase
from shared.values.vms import VmState, VmStatus
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

NODES = ("n1", "n2", "n3")
HOLD_S = 900.0


def running(instances: int = 1, store: Any = None, **fields: Any) -> ControllerHarness:
    """A job that runs, from n1 on."""
    harness = ControllerHarness(NODES, store=store, placement=PolicyChoice("first-fit"), decide_s=300.0).lead()
    harness.ask(SubmitJob("s", job(instances=instances, **fields)))
    harness.obey()
    harness.wait(5.0, reporting=NODES)
    assert entry(harness).released
    return harness


def entry(harness: ControllerHarness) -> Any:
    return harness.controller.cluster.jobs["j"]


def kinds(harness: ControllerHarness) -> list[ActionKind]:
    return [order.kind for order in harness.take_orders()]


def what(harness: ControllerHarness) -> list[str]:
    return [event.what for event in harness.events if event.what.endswith("-externally")]


def alarms(harness: ControllerHarness) -> dict[str, str]:
    data = harness.ask(Query("q", "status")).data
    return {alarm["what"]: alarm["detail"] for alarm in data["alarms"]}


def moved(harness: ControllerHarness, to: str, vm: str = "j#0") -> None:
    """Somebody moves it; only reports tell."""
    (home,) = [name for name in NODES if vm in harness.vms[name]]
    harness.vms[to][vm] = harness.vms[home].pop(vm)
    for name in NODES:
        harness.report(name)


# --- moves ------------------------------------------------------------------------------------------------------------


def test_no_instance_follows_another_that_somebody_moved_to_where_it_was_to_go() -> None:
    """Given two that must be separate, and a migration that has not begun, then that is given up."""
    harness = running(2, spread=True)
    cluster, j = harness.controller.cluster, entry(harness)
    assert [allotment.node for allotment in j.allotments] == ["n1", "n2"]
    transitions.reallot(cluster, j, [Allotment("n3", 500.0), j.allotments[1]])
    moved(harness, "n3", "j#1")
    done = harness.obey()
    while harness.now_s < HOLD_S + 60.0:
        harness.wait(30.0, reporting=NODES)
        done += harness.obey()
    assert ActionKind.MIGRATE not in [order.kind for order in done]
    assert [allotment.node for allotment in j.allotments] == ["n1", "n3"]
    assert "j#1 is on n3; they must be separate" in harness.happenings("migration-unfit")[0].detail


def test_a_vm_that_somebody_else_moved_is_wanted_where_it_is() -> None:
    """Given a running job, when its VM is on another node without an order, then it stays there and all is told."""
    harness = running()
    moved(harness, "n2")

    assert harness.take_orders() == []
    assert [allotment.node for allotment in entry(harness).allotments] == ["n2"]
    (event,) = harness.happenings("moved-externally")
    assert event.subject == "j#0"
    assert event.detail.startswith("n1 to n2")
    assert "n1 to n2" in alarms(harness)["moved-externally"]
    assert entry(harness).done_mcycles == 0.0
    assert entry(harness).attempt == 1


def test_what_the_hypervisors_say_of_a_move_is_told() -> None:
    harness = running()
    harness.vms["n2"]["j#0"] = harness.vms["n1"]["j#0"]
    harness.guest("n2", "j#0", GuestChange.ARRIVED, detail="from qemu+ssh://n1/system")
    harness.guest("n1", "j#0", GuestChange.LEFT)

    (event,) = harness.happenings("moved-externally")
    assert "from qemu+ssh://n1/system" in event.detail
    assert [allotment.node for allotment in entry(harness).allotments] == ["n2"]
    assert entry(harness).instances[0].left == ""


def test_what_somebody_else_moved_is_left_alone_and_decisions_say_so() -> None:
    """Given a moved job on a node that is drained, when decisions are made, then it stays until the hold is over."""
    harness = running()
    moved(harness, "n2")
    parts.lifecycle(harness.controller).hold(harness.controller.cluster.nodes["n2"], True, harness.now_s)
    harness.wait(HOLD_S - 20.0, reporting=NODES)

    assert harness.take_orders() == []
    row = harness.ask(Query("q", "job", "j")).data["job"]
    assert row["reconciliation_paused"]["what"] == "moved-externally"
    (vm,) = harness.ask(Query("q", "vms")).data["vms"]
    assert vm["reconciliation_paused"] == row["reconciliation_paused"]
    assert row["waits_for"]["code"] == "reconciliation-paused"
    harness.wait(400.0, reporting=NODES)
    assert kinds(harness)[:1] == [ActionKind.MIGRATE]


def test_our_own_migration_is_nobody_elses() -> None:
    harness = running()
    harness.ask(MoveVm("m", "j#0", "n2"))
    harness.obey()
    harness.wait(30.0, reporting=NODES)

    assert what(harness) == []
    assert [allotment.node for allotment in entry(harness).allotments] == ["n2"]


def test_our_own_migration_that_came_about_late_is_followed() -> None:
    """Given a migration that was given up, when the VM is at its target all the same, then it is wanted there."""
    harness = running()
    harness.ask(MoveVm("m", "j#0", "n2"))
    (order,) = harness.take_orders()
    harness.result(order, outcome=Outcome.TIMED_OUT, status=harness.vms["n1"]["j#0"])
    moved(harness, "n2")
    harness.wait(60.0, reporting=NODES)

    assert what(harness) == []
    assert [allotment.node for allotment in entry(harness).allotments] == ["n2"]
    assert harness.take_orders() == []


def test_a_new_leader_knows_of_the_hold() -> None:
    harness = running()
    moved(harness, "n2")
    again = ControllerHarness(NODES, store=harness.store, placement=PolicyChoice("first-fit"))
    again.now_s, again.vms, again.seqs = harness.now_s, harness.vms, dict.fromkeys(NODES, 1000)
    again.carry(again.controller.start(again.now_s))
    again.wait(10.0, reporting=NODES)

    assert what(again) == []
    assert entry(again).reconciliation_paused == entry(harness).reconciliation_paused
    moved(again, "n3")
    assert what(again) == ["moved-externally"]


def test_holds_double_until_a_day_and_operators_end_them() -> None:
    harness = running()
    spans = []
    for to in ("n2", "n3", "n2", "n3", "n2", "n3", "n2", "n3", "n2"):
        moved(harness, to)
        spans.append(entry(harness).reconciliation_paused.until_s - harness.now_s)
        harness.now_s = entry(harness).reconciliation_paused.until_s
        for name in NODES:
            harness.report(name)
    assert spans == [900.0 * 2**n for n in range(7)] + [86_400.0] * 2

    moved(harness, "n1")
    assert harness.ask(ReconcileVm("h", "j#0")).done
    assert entry(harness).reconciliation_paused is None
    assert "moved-externally" not in alarms(harness)
    assert harness.ask(ReconcileVm("h2", "x#0")).code == "unknown-vm"
    moved(harness, "n2")
    assert entry(harness).reconciliation_paused.until_s - harness.now_s == 900.0


def test_a_quick_row_of_moves_is_one_hold() -> None:
    harness = running()
    moved(harness, "n2")
    moved(harness, "n3")

    assert len(what(harness)) == 2
    assert entry(harness).reconciliation_paused.count == 1
    assert harness.take_orders() == []


def test_asking_trimtab_ends_the_hold() -> None:
    harness = running()
    moved(harness, "n2")
    assert harness.ask(MoveVm("m", "j#0", "n3")).done
    assert kinds(harness) == [ActionKind.MIGRATE]


# --- out of sight -----------------------------------------------------------------------------------------------------


def test_a_vm_that_left_for_an_unknown_place_is_never_started_anew() -> None:
    """Given a VM that somebody took away, when nobody reports it, then it is unknown until an operator says it is
    gone."""
    harness = running()
    harness.guest("n1", "j#0", GuestChange.LEFT, detail="to qemu+ssh://elsewhere/system")
    harness.wait(2_000.0, reporting=NODES)

    assert harness.take_orders() == []
    assert entry(harness).phase is JobPhase.RUNNING
    assert "elsewhere" in alarms(harness)["vm-missing"]
    assert harness.ask(ConfirmGone("g", "j#0")).done
    assert kinds(harness) == [ActionKind.START]
    assert "vm-missing" not in alarms(harness)
    assert harness.ask(ConfirmGone("g2", "j#0")).code == "vm-not-missing"
    assert harness.ask(ConfirmGone("g3", "x#0")).code == "unknown-vm"


def test_a_new_leader_does_not_start_what_has_left() -> None:
    harness = running()
    harness.guest("n1", "j#0", GuestChange.LEFT)
    again = ControllerHarness(NODES, store=harness.store, placement=PolicyChoice("first-fit"))
    again.now_s, again.vms, again.seqs = harness.now_s, harness.vms, dict.fromkeys(NODES, 1000)
    again.carry(again.controller.start(again.now_s))
    again.wait(400.0, reporting=NODES)

    assert again.take_orders() == []
    assert entry(again).instances[0].left


def test_what_has_left_is_known_again_when_it_is_seen() -> None:
    harness = running()
    gone = harness.vms["n1"]["j#0"]
    harness.guest("n1", "j#0", GuestChange.LEFT)
    harness.vms["n3"]["j#0"] = gone
    harness.report("n3")

    assert what(harness) == ["moved-externally"]
    assert [allotment.node for allotment in entry(harness).allotments] == ["n3"]
    assert "vm-missing" not in alarms(harness)


def test_one_that_vanished_is_started_anew_when_all_that_are_up_have_told() -> None:
    """Given an agent that was away when its VM went, when another node is the last to tell, then it was there."""
    harness = running()
    gone = harness.vms["n1"]["j#0"]
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    harness.now_s += 5.0
    harness.report("n1")
    harness.report("n2")
    assert harness.take_orders() == []
    harness.vms["n3"]["j#0"] = gone
    harness.report("n3")

    assert harness.take_orders() == []
    assert what(harness) == ["moved-externally"]
    assert entry(harness).attempt == 1


def test_one_that_a_report_does_not_list_is_waited_for_too() -> None:
    harness = running()
    harness.vms["n1"].pop("j#0")
    harness.report("n1")
    assert harness.take_orders() == []
    harness.wait(5.0, reporting=["n1", "n2"])
    assert harness.take_orders() == []
    harness.wait(5.0, reporting=["n1", "n2", "n3"])
    assert kinds(harness) == [ActionKind.START]


def test_a_node_that_falls_silent_is_waited_for_until_it_is_known() -> None:
    harness = running()
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    harness.wait(100.0, reporting=["n1", "n2"])

    assert harness.take_orders() == []
    assert "n3" in alarms(harness)["vm-missing"]
    harness.wait(5.0, reporting=NODES)
    assert kinds(harness) == [ActionKind.START]


def test_a_vm_that_is_not_ours_any_more_is_not_started_beside_itself() -> None:
    """Given somebody who took our metadata off a VM, when it is missed, then it is unknown."""
    harness = running()
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    harness.vms["n1"]["j#0"] = VmStatus("j#0", VmState.RUNNING, managed=False)
    harness.wait(10.0, reporting=NODES)

    assert harness.take_orders() == []
    assert "not ours" in entry(harness).instances[0].left


def test_a_guest_that_crashed_is_started_anew_at_once() -> None:
    harness = running()
    harness.change("n1", "j#0", state=VmState.CRASHED)
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    assert kinds(harness) == [ActionKind.START]


# --- stopped, started, paused -----------------------------------------------------------------------------------------


def test_what_somebody_else_stopped_begins_anew_after_the_hold() -> None:
    harness = running()
    harness.guest("n1", "j#0", GuestChange.STOPPED, detail="destroyed")

    assert "destroyed" in harness.happenings("stopped-externally")[0].detail
    harness.wait(HOLD_S - 30.0, reporting=NODES)
    assert harness.take_orders() == []
    harness.wait(60.0, reporting=NODES)
    assert kinds(harness) == [ActionKind.START]


def test_what_somebody_else_stopped_and_started_runs_on() -> None:
    """Given a VM that was destroyed, when it is started by hand, then its job runs where it is."""
    harness = running()
    before = harness.vms["n1"]["j#0"]
    harness.guest("n1", "j#0", GuestChange.STOPPED)
    assert entry(harness).phase is JobPhase.WAITING
    harness.vms["n2"]["j#0"] = before
    harness.guest("n2", "j#0", GuestChange.STARTED, detail="booted")
    harness.wait(60.0, reporting=NODES)

    assert harness.take_orders() == []
    assert (entry(harness).phase, entry(harness).attempt) == (JobPhase.RUNNING, 1)
    assert [allotment.node for allotment in entry(harness).allotments] == ["n2"]
    assert what(harness) == ["stopped-externally", "started-externally"]


def test_our_own_start_that_came_about_late_is_nobody_elses() -> None:
    """Given a start that was given up and is tried again, when the VM of the first try lives, then nobody is blamed."""
    harness = ControllerHarness(NODES).lead()
    harness.ask(SubmitJob("s", job()))
    (start,) = harness.take_orders()
    harness.result(start)
    status = harness.vms[start.node]["j#0"]
    late = ControllerHarness(NODES).lead()
    late.ask(SubmitJob("s", job()))
    late.take_orders()
    late.vms[start.node]["j#0"] = status
    late.guest(start.node, "j#0", GuestChange.STARTED, detail="started by somebody")

    assert what(late) == []
    assert entry(late).reconciliation_paused is None


def test_a_vm_of_a_job_that_is_over_is_stopped_after_the_hold() -> None:
    harness = running()
    before = harness.vms["n1"]["j#0"]
    harness.ask(CancelJob("c", "j"))
    harness.obey()
    harness.vms["n1"]["j#0"] = before
    harness.guest("n1", "j#0", GuestChange.STARTED)
    harness.wait(HOLD_S - 30.0, reporting=NODES)

    assert harness.take_orders() == []
    assert "started-externally" in alarms(harness)
    harness.wait(60.0, reporting=NODES)
    assert kinds(harness) == [ActionKind.STOP]


@pytest.mark.parametrize("instances", [1, 2])
def test_what_somebody_else_paused_stays_so_until_the_hold_is_over(instances: int) -> None:
    harness = running(instances)
    harness.change("n1", "j#0", state=VmState.PAUSED)
    harness.report("n1")

    assert what(harness) == ["paused-externally"]
    harness.wait(HOLD_S - 30.0, reporting=NODES)
    assert harness.take_orders() == []
    harness.wait(60.0, reporting=NODES)
    assert kinds(harness) == [ActionKind.UNPAUSE]


def test_a_gang_comes_and_goes_without_anybody_else() -> None:
    """Its pauses and resumptions are our own, also where a node falls silent."""
    harness = running(2, spread=True)
    harness.wait(60.0, reporting=["n1", "n3"])
    harness.obey()
    harness.wait(60.0, reporting=NODES)
    harness.obey()
    harness.wait(60.0, reporting=NODES)

    assert what(harness) == []
    assert {status.state for vms in harness.vms.values() for status in vms.values()} == {VmState.RUNNING}


def test_weights_are_put_right_three_times() -> None:
    harness = running()
    for _ in range(3):
        harness.change("n1", "j#0", cpu_mhz=10.0)
        harness.report("n1")
        assert [order.kind for order in harness.obey()] == [ActionKind.SET_CPU]
        harness.wait(10.0, reporting=NODES)
    harness.change("n1", "j#0", cpu_mhz=10.0)
    harness.report("n1")

    assert harness.take_orders() == []
    assert what(harness) == ["cpu-changed-externally"] * 4
    assert "10 MHz" in alarms(harness)["cpu-changed-externally"]


def test_a_vm_of_an_older_life_is_nobody_elses_move() -> None:
    """Given a node that was wrongly taken for off, when it is back with an older VM, then that is stopped."""
    harness = running()
    harness.vms["n3"]["j#0"] = VmStatus("j#0", VmState.RUNNING, 0, attempt=0, memory_mib=1000)
    harness.report("n3")

    assert [(order.kind, order.node) for order in harness.take_orders()] == [(ActionKind.STOP, "n3")]
    assert what(harness) == []
