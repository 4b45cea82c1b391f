"""What agents tell of what somebody else does to VMs of ours."""

from __future__ import annotations

from shared.ports.effects import Forget, TimerFired
from shared.protocol.messages import Order
from shared.values.actions import ActionKind, GuestChange
from shared.values.vms import VmState
from tests.support.agent_harness import Rig, action, guest_event, report, vm


def test_a_life_that_left_may_come_back_and_end() -> None:
    rig = Rig()
    rig.observed(vm())
    left = guest_event(rig.guest(GuestChange.LEFT, vm(), "to qemu+tls://n2/system"))

    assert (left.change, left.detail) == (GuestChange.LEFT, "to qemu+tls://n2/system")
    assert rig.guest(GuestChange.LEFT, vm()) == [], "it has left already"
    rig.handle(TimerFired("report"))
    assert len(report(rig.observed()).events) == 1, "and is not missed"
    rig.guest(GuestChange.STARTED, vm())
    assert guest_event(rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED))).event == 3


def test_one_that_was_missed_before_it_is_known_to_have_left_has_left() -> None:
    rig = Rig()
    rig.observed(vm())
    rig.handle(TimerFired("report"))
    assert guest_event(rig.observed()).change is GuestChange.VANISHED

    assert guest_event(rig.guest(GuestChange.LEFT, vm())).change is GuestChange.LEFT
    assert rig.guest(GuestChange.LEFT, vm()) == []


def test_what_leaves_by_an_order_of_ours_is_told_by_its_result_alone() -> None:
    rig = Rig()
    rig.observed(vm())
    rig.send(Order(action(kind=ActionKind.MIGRATE, to_node="n2")))

    assert rig.guest(GuestChange.LEFT, vm()) == []


def test_of_what_somebody_else_stopped_only_a_domain_that_is_left_is_forgotten() -> None:
    assert Forget("j#0") in Rig().guest(GuestChange.STOPPED, vm(state=VmState.CRASHED))
    assert Forget("j#0") not in Rig().guest(GuestChange.STOPPED, vm())
    assert Forget("j#0") not in Rig().guest(GuestChange.STARTED, vm())
