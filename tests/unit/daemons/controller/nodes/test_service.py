"""Nodes into service and out of it: every step, what goes wrong on the way, and whose turn it is after a crash."""

from __future__ import annotations

import pytest

from shared.protocol.operator_messages import ConfirmOff, DrainNode, RepairNode
from shared.values.nodes import NodeService, PowerOperation
from shared.values.vms import VmState, VmStatus
from tests.support import parts
from tests.support.node_service_harness import LINKS, PowerDesk, details, power, running

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY
OFF, WAKING, FAILED = NodeService.OFF, NodeService.WAKING, NodeService.FAILED


@pytest.fixture
def desk() -> PowerDesk:
    made = PowerDesk()
    made.lead()
    return made


# --- the way out and back --------------------------------------------------------------------------------------------


def test_an_empty_node_that_is_not_wanted_goes_to_standby_and_then_to_sleep(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    assert desk.service("n3") is STANDBY
    desk.go(55.0)
    assert desk.sleeps == []
    desk.go(10.0)
    (asked,) = desk.sleeps
    assert (asked.node, asked.boot_id, asked.term) == ("n3", "boot-1", 1)
    assert asked.expires_at_s > desk.now_s
    desk.agree("n3")
    desk.go(30.0)
    assert (desk.service("n3"), desk.happenings("node-silent")) == (OFF, [])
    desk.go(3600.0)
    assert (desk.service("n3"), len(desk.sleeps), desk.powers) == (OFF, 1, [])


def test_a_node_that_is_wanted_again_is_woken_and_serves_when_it_reports(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    assert (desk.service("n3"), desk.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])
    desk.powered(detail="sent")
    desk.go(40.0)
    assert desk.service("n3") is WAKING
    desk.comes_back("n3")
    assert desk.service("n3") is IN_SERVICE
    (learnt,) = [r for r in parts.lifecycle(desk.controller).durations if r.what == "deploy"]
    assert 40.0 <= learnt.mean_s <= 50.0
    assert desk.store.get(learnt.key) == learnt


def test_a_node_that_was_switched_off_comes_back_with_another_boot(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    desk.comes_back("n3", "boot-2")
    assert (desk.service("n3"), desk.happenings("node-rebooted")) == (IN_SERVICE, [])


def test_what_was_said_before_falling_asleep_wakes_nobody(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.report("n3", clock_s=desk.now_s - 40.0)
    desk.go(30.0)
    assert (desk.service("n3"), desk.happenings("node-silent")) == (OFF, [])


def test_a_sleeping_node_that_reports_is_up_and_in_standby(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.go(20.0)
    desk.comes_back("n3")
    assert desk.service("n3") is STANDBY


def test_nodes_in_standby_and_on_the_way_there_serve_at_once_when_wanted_again(desk: PowerDesk) -> None:
    node = running(desk)
    others = [name for name in desk.nodes if name != node]
    desk.want(*others[:1])
    assert (desk.service(node), desk.service(others[1])) == (DRAINING, STANDBY)
    desk.want(*desk.nodes)
    assert {desk.service(name) for name in desk.nodes} == {IN_SERVICE}
    assert list(parts.lifecycle(desk.controller).durations) == []


def test_a_node_is_emptied_before_it_goes(desk: PowerDesk) -> None:
    node = running(desk)
    desk.want(*(name for name in desk.nodes if name != node))
    assert desk.service(node) is DRAINING
    (move,) = desk.take_orders()
    assert (move.kind, move.node) == ("migrate", node)
    desk.go(20.0)
    assert (desk.service(node), desk.sleeps) == (DRAINING, [])
    desk.result(move)
    desk.go(5.0)
    assert desk.service(node) is STANDBY


def test_without_a_driver_nodes_only_leave_scheduling() -> None:
    desk = PowerDesk(settings=power(does=frozenset(), through_agents=False))
    desk.lead()
    desk.want("n1")
    desk.go(7200.0)
    assert (desk.service("n2"), desk.sleeps, desk.powers) == (STANDBY, [], [])
    (learnt,) = list(parts.lifecycle(desk.controller).durations)
    assert (learnt.what, learnt.mean_s) == ("remove", 0.0)


def test_a_driver_that_switches_off_is_asked_instead_of_the_agent() -> None:
    does = frozenset({PowerOperation.WAKE, PowerOperation.SLEEP})
    desk = PowerDesk(settings=power(does=does, through_agents=False))
    desk.lead()
    desk.want("n1", "n2")
    desk.go(70.0)
    assert (desk.asked(PowerOperation.SLEEP), desk.sleeps) == (["n3"], [])
    desk.powered()
    desk.up.remove("n3")
    desk.go(30.0)
    assert desk.service("n3") is OFF


# --- what must not sleep ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("managed", [True, False])
def test_a_node_with_a_vm_that_nobody_knows_stays_awake(desk: PowerDesk, managed: bool) -> None:
    desk.vms["n3"]["stray"] = VmStatus("stray", VmState.RUNNING, 1, attempt=1, memory_mib=100, managed=managed)
    desk.go(5.0)
    desk.want("n1", "n2")
    desk.go(600.0)
    assert (desk.service("n3"), desk.sleeps) == (STANDBY, [])
    del desk.vms["n3"]["stray"]
    desk.go(60.0)
    assert [asked.node for asked in desk.sleeps] == ["n3"]


def test_a_node_with_a_saved_image_stays_awake(desk: PowerDesk) -> None:
    node = running(desk)
    desk.change(node, "j#0", state=VmState.SUSPENDED)
    desk.go(5.0)
    desk.controller.cluster.jobs["j"].held = True  # nobody resumes it
    desk.want(*(name for name in desk.nodes if name != node))
    desk.go(700.0)
    assert node not in [asked.node for asked in desk.sleeps]


def test_protected_nodes_and_those_that_are_kept_stay_in_service() -> None:
    desk = PowerDesk(settings=power(never=frozenset({"n3"}), keep_nodes=2))
    desk.lead()
    desk.want()
    desk.go(100.0)
    assert [desk.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, IN_SERVICE]


def test_a_silent_node_is_neither_taken_out_nor_put_to_sleep(desk: PowerDesk) -> None:
    desk.up.remove("n3")
    desk.go(30.0)
    desk.want("n1", "n2")
    assert desk.controller.cluster.nodes["n3"].wanted
    desk.up.remove("n2")
    desk.want("n1", "n3")
    desk.go(3600.0)
    assert [event.subject for event in desk.happenings("node-silent")] == ["n3", "n2"]
    assert (desk.service("n2"), desk.service("n3"), desk.sleeps) == (STANDBY, IN_SERVICE, [])


def test_a_node_whose_address_nobody_knows_is_not_put_to_sleep() -> None:
    desk = PowerDesk(settings=power(needs_mac=True))
    desk.lead()
    desk.want("n1", "n2")
    desk.go(600.0)
    assert (desk.service("n3"), desk.sleeps) == (STANDBY, [])


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_come_back_has_failed_until_it_is_repaired(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    asked = len(desk.computations)
    desk.powered(False, "no route to the socket")
    desk.go(310.0)
    assert desk.service("n3") is FAILED
    ((name, detail),) = details(desk, "node-failed")
    assert (name, "no route to the socket" in detail) == ("n3", True)
    assert len(desk.asked(PowerOperation.WAKE)) > 1  # tried again within the limit
    assert len(desk.computations) == asked + 1  # so that another takes its place
    wakes = len(desk.powers)
    desk.go(3600.0)
    assert (desk.service("n3"), len(desk.powers)) == (FAILED, wakes)
    desk.ask(RepairNode("r", "n3"))
    assert desk.service("n3") is WAKING  # it is wanted still
    desk.comes_back("n3")
    assert (desk.service("n3"), desk.controller.cluster.nodes["n3"].detail) == (IN_SERVICE, "")


def test_a_node_that_comes_back_late_stays_out(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    desk.powered()
    desk.go(310.0)
    desk.comes_back("n3")
    desk.go(60.0)
    assert desk.service("n3") is FAILED
    desk.ask(RepairNode("r", "n3"))
    assert desk.service("n3") is IN_SERVICE
    refused = desk.ask(RepairNode("again", "n3"))
    assert (refused.done, refused.code) == (False, "not-failed")


def test_an_agent_that_refuses_to_sleep_is_asked_again_later(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    desk.agree("n3", False, "a VM is alive")
    assert details(desk, "sleep-failed") == [("n3", "a VM is alive")]
    desk.go(10.0)
    assert len(desk.sleeps) == 1
    desk.go(60.0)
    assert len(desk.sleeps) == 2


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_goes_on_reporting_was_not_put_to_sleep(desk: PowerDesk, answers: bool) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    if answers:
        desk.agree("n3")
        desk.up.append("n3")
    desk.go(250.0)
    assert [event.subject for event in desk.happenings("sleep-failed")] != []
    desk.want("n1", "n2", "n3")
    desk.go(200.0)
    assert desk.service("n3") is IN_SERVICE


def test_silence_that_takes_long_to_be_noted_is_still_the_silence_of_a_sleeping_node() -> None:
    """Given reports so rare that a node counts as up for as long as it may take to fall asleep, when it has agreed and
    is silent, then it has not gone on reporting: it sleeps."""
    desk = PowerDesk(settings=power(), silent_after_s=185.0)
    desk.lead()
    desk.want("n1", "n2")
    desk.go(65.0)
    desk.agree("n3")
    desk.go(400.0)
    assert (desk.service("n3"), desk.happenings("sleep-failed")) == (OFF, [])


def test_a_node_that_falls_asleep_after_all_is_asleep(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    desk.agree("n3")
    desk.up.append("n3")
    desk.go(200.0)
    assert len(desk.happenings("sleep-failed")) == 1
    desk.up.remove("n3")
    desk.go(20.0)
    assert desk.service("n3") is OFF
    desk.want("n1", "n2", "n3")
    assert (desk.service("n3"), desk.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])


def test_a_node_that_may_be_falling_asleep_is_not_given_work(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    assert len(desk.sleeps) == 1
    desk.want("n1", "n2", "n3")
    assert desk.service("n3") is STANDBY
    desk.agree("n3")
    desk.go(30.0)
    assert (desk.service("n3"), desk.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])


def test_a_node_that_cannot_be_emptied_returns_to_service_and_is_left_alone_for_a_while(desk: PowerDesk) -> None:
    node = running(desk)
    desk.compute = False  # nobody moves anything
    desk.controller.cluster.jobs["j"].held = True
    others = [name for name in desk.nodes if name != node]
    desk.want(*others)
    desk.go(295.0)
    desk.take_orders()  # to suspend it, which nobody carries out
    desk.go(310.0)
    assert (desk.service(node), [event.subject for event in desk.happenings("drain-failed")]) == (IN_SERVICE, [node])
    desk.want(*others)
    desk.go(60.0)
    assert desk.service(node) is IN_SERVICE
    desk.go(1200.0)
    desk.want(*others)
    assert desk.service(node) is DRAINING


def test_what_placement_does_not_move_is_suspended(desk: PowerDesk) -> None:
    node = running(desk)
    desk.compute = False
    desk.want(*(name for name in desk.nodes if name != node))
    desk.go(295.0)
    assert desk.take_orders() == []
    desk.go(10.0)
    (suspend,) = desk.take_orders()
    assert (suspend.kind, suspend.node) == ("suspend", node)
    desk.result(suspend)
    desk.go(5.0)
    assert desk.service(node) is STANDBY


def test_a_node_that_dies_while_it_is_emptied_has_failed_once_it_is_proven_off(desk: PowerDesk) -> None:
    node = running(desk)
    desk.want(*(name for name in desk.nodes if name != node))
    desk.up.remove(node)
    desk.go(900.0)
    assert desk.service(node) is DRAINING  # its VM may run
    assert desk.controller.cluster.nodes[node].claimed
    desk.take_orders()
    desk.ask(ConfirmOff("c", node))
    assert desk.service(node) is FAILED
    desk.go(30.0)
    assert [order.kind for order in desk.obey()] == ["start"]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_only_so_many_are_put_to_sleep_and_woken_in_a_minute() -> None:
    names = [f"n{index}" for index in range(1, 8)]
    desk = PowerDesk(names, settings=power(sleeps_per_minute=2, wakes_per_minute=3))
    desk.lead()
    desk.want("n1")
    desk.go(65.0)
    assert len(desk.sleeps) == 2
    while len(desk.sleeps) < 6:
        for asked in desk.sleeps:
            if asked.node in desk.up:
                desk.up.remove(asked.node)
        before = len(desk.sleeps)
        desk.go(60.0)
        assert len(desk.sleeps) <= before + 2
    for asked in desk.sleeps[-2:]:
        desk.up.remove(asked.node)
    desk.go(60.0)
    desk.want(*names)
    assert len(desk.asked(PowerOperation.WAKE)) == 3
    desk.go(55.0)
    assert len(desk.asked(PowerOperation.WAKE)) == 3
    desk.go(10.0)
    assert sorted(desk.asked(PowerOperation.WAKE)) == names[1:]


def test_sleeping_nodes_are_woken_in_turn_to_see_that_they_can_be() -> None:
    desk = PowerDesk(settings=power(wake_test_days=0.1))
    desk.lead()
    desk.want("n1")
    for _ in range(2):
        desk.go(70.0)
        for asked in desk.sleeps:
            if asked.node in desk.up:
                desk.up.remove(asked.node)
    desk.go(8640.0)
    assert desk.asked(PowerOperation.WAKE) == ["n2"]
    desk.powered()
    desk.comes_back("n2")
    assert desk.service("n2") is STANDBY
    desk.go(5.0)
    assert desk.asked(PowerOperation.WAKE) == ["n2", "n3"]  # one at a time
    desk.powered(False, "no lamp")
    desk.go(310.0)
    assert (desk.service("n3"), desk.service("n1")) == (FAILED, IN_SERVICE)


# --- others who schedule on the nodes --------------------------------------------------------------------------------


def test_another_scheduler_is_told_before_a_node_leaves_and_before_it_counts() -> None:
    desk = PowerDesk(settings=power(does=LINKS))
    desk.lead()
    desk.want("n1", "n2")
    assert (desk.service("n3"), desk.asked(PowerOperation.DELINK)) == (DRAINING, ["n3"])
    desk.powered()
    assert desk.service("n3") is STANDBY
    desk.want("n1", "n2", "n3")
    assert (desk.service("n3"), desk.asked(PowerOperation.LINK)) == (STANDBY, ["n3"])
    desk.powered(False, "busy")
    assert desk.service("n3") is STANDBY
    desk.go(20.0)
    desk.powered()
    assert (desk.service("n3"), desk.asked(PowerOperation.LINK)) == (IN_SERVICE, ["n3", "n3"])


def test_a_woken_node_is_linked_at_once() -> None:
    """That it was woken with success says nothing of when to link it."""
    desk = PowerDesk(settings=power(does=LINKS))
    desk.lead()
    desk.want("n1", "n2")
    desk.powered()
    desk.go(70.0)
    desk.agree("n3")
    desk.go(30.0)
    desk.want("n1", "n2", "n3")
    desk.powered()

    desk.comes_back("n3")
    assert (desk.service("n3"), desk.asked(PowerOperation.LINK)) == (WAKING, ["n3"])
    desk.powered(ok=False)
    desk.go(5.0)
    assert desk.asked(PowerOperation.LINK) == ["n3"]
    desk.go(15.0)
    assert desk.asked(PowerOperation.LINK) == ["n3", "n3"]
    desk.powered()
    assert desk.service("n3") is IN_SERVICE


def test_a_node_that_cannot_be_linked_has_failed() -> None:
    desk = PowerDesk(settings=power(does=LINKS))
    desk.lead()
    desk.want("n1", "n2")
    desk.powered()
    desk.want("n1", "n2", "n3")
    desk.powered(False, "who is n3?")
    desk.go(310.0)
    assert (desk.service("n3"), "who is n3?" in desk.controller.cluster.nodes["n3"].detail) == (FAILED, True)


# --- operators -------------------------------------------------------------------------------------------------------


def test_a_node_that_an_operator_keeps_out_is_not_touched_by_decisions(desk: PowerDesk) -> None:
    desk.ask(DrainNode("d", "n3", True))
    desk.want("n1", "n2")
    desk.go(3600.0)
    desk.want("n1", "n2", "n3")
    desk.go(60.0)
    assert (desk.service("n3"), desk.sleeps) == (DRAINING, [])
    desk.ask(DrainNode("u", "n3", False))
    assert desk.service("n3") is IN_SERVICE


def test_a_sleeping_node_that_an_operator_keeps_out_is_not_woken(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.ask(DrainNode("d", "n3", True))
    desk.want("n1", "n2", "n3")
    desk.go(60.0)
    assert (desk.service("n3"), desk.powers) == (OFF, [])
    desk.comes_back("n3")
    assert desk.service("n3") is DRAINING
    desk.ask(DrainNode("u", "n3", False))
    assert desk.service("n3") is IN_SERVICE
