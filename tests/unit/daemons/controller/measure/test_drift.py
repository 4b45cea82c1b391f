"""What somebody else does to VMs of ours: noticed, told, followed where it must be, and left alone for a while."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import CancelJob, ConfirmGone, HandsOn, MoveVm, Query, SubmitJob
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.vms import VmState, VmStatus
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

NODES = ("n1", "n2", "n3")
HOLD_S = 900.0


def running(instances: int = 1, store: Any = None, **fields: Any) -> ControllerHarness:
    """A job that runs, from n1 on."""
    desk = ControllerHarness(NODES, store=store, placement=PolicyChoice("first-fit"), decide_s=300.0).lead()
    desk.ask(SubmitJob("s", job(instances=instances, **fields)))
    desk.obey()
    desk.wait(5.0, reporting=NODES)
    assert entry(desk).released
    return desk


def entry(desk: ControllerHarness) -> Any:
    return desk.controller.cluster.jobs["j"]


def kinds(desk: ControllerHarness) -> list[ActionKind]:
    return [order.kind for order in desk.take_orders()]


def what(desk: ControllerHarness) -> list[str]:
    return [event.what for event in desk.events if event.what.endswith("-by-other")]


def alarms(desk: ControllerHarness) -> dict[str, str]:
    data = desk.ask(Query("q", "status")).data
    return {alarm["what"]: alarm["detail"] for alarm in data["alarms"]}


def moved(desk: ControllerHarness, to: str, vm: str = "j#0") -> None:
    """Somebody moves it; only reports tell."""
    (home,) = [name for name in NODES if vm in desk.vms[name]]
    desk.vms[to][vm] = desk.vms[home].pop(vm)
    for name in NODES:
        desk.report(name)


# --- moves ------------------------------------------------------------------------------------------------------------


def test_a_vm_that_somebody_else_moved_is_wanted_where_it_is() -> None:
    """Given a running job, when its VM is on another node without an order, then it stays there and all is told."""
    desk = running()
    moved(desk, "n2")

    assert desk.take_orders() == []
    assert [allotment.node for allotment in entry(desk).allotments] == ["n2"]
    (event,) = desk.happenings("moved-by-other")
    assert event.subject == "j#0"
    assert event.detail.startswith("n1 to n2")
    assert "n1 to n2" in alarms(desk)["moved-by-other"]
    assert entry(desk).done_mcycles == 0.0
    assert entry(desk).attempt == 1


def test_what_the_hypervisors_say_of_a_move_is_told() -> None:
    desk = running()
    desk.vms["n2"]["j#0"] = desk.vms["n1"]["j#0"]
    desk.guest("n2", "j#0", GuestChange.ARRIVED, detail="from qemu+ssh://n1/system")
    desk.guest("n1", "j#0", GuestChange.LEFT)

    (event,) = desk.happenings("moved-by-other")
    assert "from qemu+ssh://n1/system" in event.detail
    assert [allotment.node for allotment in entry(desk).allotments] == ["n2"]
    assert entry(desk).instances[0].left == ""


def test_what_somebody_else_moved_is_left_alone_and_decisions_say_so() -> None:
    """Given a moved job on a node that is drained, when decisions are made, then it stays until the hold is over."""
    desk = running()
    moved(desk, "n2")
    parts.lifecycle(desk.controller).hold(desk.controller.cluster.nodes["n2"], True, desk.now_s)
    desk.wait(HOLD_S - 20.0, reporting=NODES)

    assert desk.take_orders() == []
    row = desk.ask(Query("q", "job", "j")).data["job"]
    assert row["hands_off"]["what"] == "moved-by-other"
    (vm,) = desk.ask(Query("q", "vms")).data["vms"]
    assert vm["hands_off"] == row["hands_off"]
    assert row["waits_for"]["code"] == "hands-off"
    desk.wait(400.0, reporting=NODES)
    assert kinds(desk)[:1] == [ActionKind.MIGRATE]


def test_our_own_migration_is_nobody_elses() -> None:
    desk = running()
    desk.ask(MoveVm("m", "j#0", "n2"))
    desk.obey()
    desk.wait(30.0, reporting=NODES)

    assert what(desk) == []
    assert [allotment.node for allotment in entry(desk).allotments] == ["n2"]


def test_our_own_migration_that_came_about_late_is_followed() -> None:
    """Given a migration that was given up, when the VM is at its target all the same, then it is wanted there."""
    desk = running()
    desk.ask(MoveVm("m", "j#0", "n2"))
    (order,) = desk.take_orders()
    desk.result(order, outcome=Outcome.TIMED_OUT, status=desk.vms["n1"]["j#0"])
    moved(desk, "n2")
    desk.wait(60.0, reporting=NODES)

    assert what(desk) == []
    assert [allotment.node for allotment in entry(desk).allotments] == ["n2"]
    assert desk.take_orders() == []


def test_a_new_leader_knows_of_the_hold() -> None:
    desk = running()
    moved(desk, "n2")
    again = ControllerHarness(NODES, store=desk.store, placement=PolicyChoice("first-fit"))
    again.now_s, again.vms, again.seqs = desk.now_s, desk.vms, dict.fromkeys(NODES, 1000)
    again.carry(again.controller.start(again.now_s))
    again.wait(10.0, reporting=NODES)

    assert what(again) == []
    assert entry(again).hands_off == entry(desk).hands_off
    moved(again, "n3")
    assert what(again) == ["moved-by-other"]


def test_holds_double_until_a_day_and_operators_end_them() -> None:
    desk = running()
    spans = []
    for to in ("n2", "n3", "n2", "n3", "n2", "n3", "n2", "n3", "n2"):
        moved(desk, to)
        spans.append(entry(desk).hands_off.until_s - desk.now_s)
        desk.now_s = entry(desk).hands_off.until_s
        for name in NODES:
            desk.report(name)
    assert spans == [900.0 * 2**n for n in range(7)] + [86_400.0] * 2

    moved(desk, "n1")
    assert desk.ask(HandsOn("h", "j#0")).done
    assert entry(desk).hands_off is None
    assert "moved-by-other" not in alarms(desk)
    assert desk.ask(HandsOn("h2", "x#0")).code == "unknown-vm"
    moved(desk, "n2")
    assert entry(desk).hands_off.until_s - desk.now_s == 900.0


def test_a_quick_row_of_moves_is_one_hold() -> None:
    desk = running()
    moved(desk, "n2")
    moved(desk, "n3")

    assert len(what(desk)) == 2
    assert entry(desk).hands_off.count == 1
    assert desk.take_orders() == []


def test_asking_trimtab_ends_the_hold() -> None:
    desk = running()
    moved(desk, "n2")
    assert desk.ask(MoveVm("m", "j#0", "n3")).done
    assert kinds(desk) == [ActionKind.MIGRATE]


# --- out of sight -----------------------------------------------------------------------------------------------------


def test_a_vm_that_left_for_an_unknown_place_is_never_started_anew() -> None:
    """Given a VM that somebody took away, when nobody reports it, then it is unknown until an operator says it is
    gone."""
    desk = running()
    desk.guest("n1", "j#0", GuestChange.LEFT, detail="to qemu+ssh://elsewhere/system")
    desk.wait(2_000.0, reporting=NODES)

    assert desk.take_orders() == []
    assert entry(desk).phase is JobPhase.RUNNING
    assert "elsewhere" in alarms(desk)["vm-out-of-sight"]
    assert desk.ask(ConfirmGone("g", "j#0")).done
    assert kinds(desk) == [ActionKind.START]
    assert "vm-out-of-sight" not in alarms(desk)
    assert desk.ask(ConfirmGone("g2", "j#0")).code == "vm-not-missing"
    assert desk.ask(ConfirmGone("g3", "x#0")).code == "unknown-vm"


def test_a_new_leader_does_not_start_what_has_left() -> None:
    desk = running()
    desk.guest("n1", "j#0", GuestChange.LEFT)
    again = ControllerHarness(NODES, store=desk.store, placement=PolicyChoice("first-fit"))
    again.now_s, again.vms, again.seqs = desk.now_s, desk.vms, dict.fromkeys(NODES, 1000)
    again.carry(again.controller.start(again.now_s))
    again.wait(400.0, reporting=NODES)

    assert again.take_orders() == []
    assert entry(again).instances[0].left


def test_what_has_left_is_known_again_when_it_is_seen() -> None:
    desk = running()
    gone = desk.vms["n1"]["j#0"]
    desk.guest("n1", "j#0", GuestChange.LEFT)
    desk.vms["n3"]["j#0"] = gone
    desk.report("n3")

    assert what(desk) == ["moved-by-other"]
    assert [allotment.node for allotment in entry(desk).allotments] == ["n3"]
    assert "vm-out-of-sight" not in alarms(desk)


def test_one_that_vanished_is_started_anew_when_all_that_are_up_have_told() -> None:
    """Given an agent that was away when its VM went, when another node is the last to tell, then it was there."""
    desk = running()
    gone = desk.vms["n1"]["j#0"]
    desk.guest("n1", "j#0", GuestChange.VANISHED)
    desk.now_s += 5.0
    desk.report("n1")
    desk.report("n2")
    assert desk.take_orders() == []
    desk.vms["n3"]["j#0"] = gone
    desk.report("n3")

    assert desk.take_orders() == []
    assert what(desk) == ["moved-by-other"]
    assert entry(desk).attempt == 1


def test_one_that_a_report_does_not_list_is_waited_for_too() -> None:
    desk = running()
    desk.vms["n1"].pop("j#0")
    desk.report("n1")
    assert desk.take_orders() == []
    desk.wait(5.0, reporting=["n1", "n2"])
    assert desk.take_orders() == []
    desk.wait(5.0, reporting=["n1", "n2", "n3"])
    assert kinds(desk) == [ActionKind.START]


def test_a_node_that_falls_silent_is_waited_for_until_it_is_known() -> None:
    desk = running()
    desk.guest("n1", "j#0", GuestChange.VANISHED)
    desk.wait(100.0, reporting=["n1", "n2"])

    assert desk.take_orders() == []
    assert "n3" in alarms(desk)["vm-out-of-sight"]
    desk.wait(5.0, reporting=NODES)
    assert kinds(desk) == [ActionKind.START]


def test_a_vm_that_is_not_ours_any_more_is_not_started_beside_itself() -> None:
    """Given somebody who took our metadata off a VM, when it is missed, then it is unknown."""
    desk = running()
    desk.guest("n1", "j#0", GuestChange.VANISHED)
    desk.vms["n1"]["j#0"] = VmStatus("j#0", VmState.RUNNING, managed=False)
    desk.wait(10.0, reporting=NODES)

    assert desk.take_orders() == []
    assert "not ours" in entry(desk).instances[0].left


def test_a_guest_that_crashed_is_started_anew_at_once() -> None:
    desk = running()
    desk.change("n1", "j#0", state=VmState.CRASHED)
    desk.guest("n1", "j#0", GuestChange.VANISHED)
    assert kinds(desk) == [ActionKind.START]


# --- stopped, started, paused -----------------------------------------------------------------------------------------


def test_what_somebody_else_stopped_begins_anew_after_the_hold() -> None:
    desk = running()
    desk.guest("n1", "j#0", GuestChange.STOPPED, detail="destroyed")

    assert "destroyed" in desk.happenings("stopped-by-other")[0].detail
    desk.wait(HOLD_S - 30.0, reporting=NODES)
    assert desk.take_orders() == []
    desk.wait(60.0, reporting=NODES)
    assert kinds(desk) == [ActionKind.START]


def test_what_somebody_else_stopped_and_started_runs_on() -> None:
    """Given a VM that was destroyed, when it is started by hand, then its job runs where it is."""
    desk = running()
    before = desk.vms["n1"]["j#0"]
    desk.guest("n1", "j#0", GuestChange.STOPPED)
    assert entry(desk).phase is JobPhase.WAITING
    desk.vms["n2"]["j#0"] = before
    desk.guest("n2", "j#0", GuestChange.STARTED, detail="booted")
    desk.wait(60.0, reporting=NODES)

    assert desk.take_orders() == []
    assert (entry(desk).phase, entry(desk).attempt) == (JobPhase.RUNNING, 1)
    assert [allotment.node for allotment in entry(desk).allotments] == ["n2"]
    assert what(desk) == ["stopped-by-other", "started-by-other"]


def test_our_own_start_that_came_about_late_is_nobody_elses() -> None:
    """Given a start that was given up and is tried again, when the VM of the first try lives, then nobody is blamed."""
    desk = ControllerHarness(NODES).lead()
    desk.ask(SubmitJob("s", job()))
    (start,) = desk.take_orders()
    desk.result(start)
    status = desk.vms[start.node]["j#0"]
    late = ControllerHarness(NODES).lead()
    late.ask(SubmitJob("s", job()))
    late.take_orders()
    late.vms[start.node]["j#0"] = status
    late.guest(start.node, "j#0", GuestChange.STARTED, detail="started by somebody")

    assert what(late) == []
    assert entry(late).hands_off is None


def test_a_vm_of_a_job_that_is_over_is_stopped_after_the_hold() -> None:
    desk = running()
    before = desk.vms["n1"]["j#0"]
    desk.ask(CancelJob("c", "j"))
    desk.obey()
    desk.vms["n1"]["j#0"] = before
    desk.guest("n1", "j#0", GuestChange.STARTED)
    desk.wait(HOLD_S - 30.0, reporting=NODES)

    assert desk.take_orders() == []
    assert "started-by-other" in alarms(desk)
    desk.wait(60.0, reporting=NODES)
    assert kinds(desk) == [ActionKind.STOP]


@pytest.mark.parametrize("instances", [1, 2])
def test_what_somebody_else_paused_stays_so_until_the_hold_is_over(instances: int) -> None:
    desk = running(instances)
    desk.change("n1", "j#0", state=VmState.PAUSED)
    desk.report("n1")

    assert what(desk) == ["paused-by-other"]
    desk.wait(HOLD_S - 30.0, reporting=NODES)
    assert desk.take_orders() == []
    desk.wait(60.0, reporting=NODES)
    assert kinds(desk) == [ActionKind.UNPAUSE]


def test_a_gang_comes_and_goes_without_anybody_else() -> None:
    """Its pauses and resumptions are our own, also where a node falls silent."""
    desk = running(2, separate=True)
    desk.wait(60.0, reporting=["n1", "n3"])
    desk.obey()
    desk.wait(60.0, reporting=NODES)
    desk.obey()
    desk.wait(60.0, reporting=NODES)

    assert what(desk) == []
    assert {status.state for vms in desk.vms.values() for status in vms.values()} == {VmState.RUNNING}


def test_weights_are_put_right_three_times() -> None:
    desk = running()
    for _ in range(3):
        desk.change("n1", "j#0", cpu_mhz=10.0)
        desk.report("n1")
        assert [order.kind for order in desk.obey()] == [ActionKind.SET_CPU]
        desk.wait(10.0, reporting=NODES)
    desk.change("n1", "j#0", cpu_mhz=10.0)
    desk.report("n1")

    assert desk.take_orders() == []
    assert what(desk) == ["reweighted-by-other"] * 4
    assert "10 MHz" in alarms(desk)["reweighted-by-other"]


def test_a_vm_of_an_older_life_is_nobody_elses_move() -> None:
    """Given a node that was wrongly taken for off, when it is back with an older VM, then that is stopped."""
    desk = running()
    desk.vms["n3"]["j#0"] = VmStatus("j#0", VmState.RUNNING, 0, attempt=0, memory_mib=1000)
    desk.report("n3")

    assert [(order.kind, order.node) for order in desk.take_orders()] == [(ActionKind.STOP, "n3")]
    assert what(desk) == []
