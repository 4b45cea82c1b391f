"""Nodes into service and out of it: every step, what goes wrong on the way, and whose turn it is after a crash."""

from __future__ import annotations

import pytest

from shared.protocol.operator_messages import ConfirmOff, DrainNode, RepairNode
from shared.values.nodes import NodeService, PowerOperation
from shared.values.vms import VmState, VmStatus
from tests.support import parts
from tests.support.node_service_harness import LINKS, PowerHarness, details, power, running

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY
OFF, WAKING, FAILED = NodeService.OFF, NodeService.WAKING, NodeService.FAILED


@pytest.fixture
def harness() -> PowerHarness:
    made = PowerHarness()
    made.lead()
    return made


# --- the way out and back --------------------------------------------------------------------------------------------


def test_an_empty_node_that_is_not_wanted_goes_to_standby_and_then_to_sleep(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    assert harness.service("n3") is STANDBY
    harness.go(55.0)
    assert harness.sleeps == []
    harness.go(10.0)
    (asked,) = harness.sleeps
    assert (asked.node, asked.boot_id, asked.term) == ("n3", "boot-1", 1)
    assert asked.expires_at_s > harness.now_s
    harness.agree("n3")
    harness.go(30.0)
    assert (harness.service("n3"), harness.happenings("node-unreachable")) == (OFF, [])
    harness.go(3600.0)
    assert (harness.service("n3"), len(harness.sleeps), harness.powers) == (OFF, 1, [])


def test_a_node_that_is_wanted_again_is_woken_and_serves_when_it_reports(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    assert (harness.service("n3"), harness.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])
    harness.powered(detail="sent")
    harness.go(40.0)
    assert harness.service("n3") is WAKING
    harness.comes_back("n3")
    assert harness.service("n3") is IN_SERVICE
    (learnt,) = [r for r in parts.lifecycle(harness.controller).durations if r.what == "deploy"]
    assert 40.0 <= learnt.mean_s <= 50.0
    assert harness.store.get(learnt.key) == learnt


def test_a_node_that_was_switched_off_comes_back_with_another_boot(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    harness.comes_back("n3", "boot-2")
    assert (harness.service("n3"), harness.happenings("node-rebooted")) == (IN_SERVICE, [])


def test_what_was_said_before_falling_asleep_wakes_nobody(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.report("n3", clock_s=harness.now_s - 40.0)
    harness.go(30.0)
    assert (harness.service("n3"), harness.happenings("node-unreachable")) == (OFF, [])


def test_a_sleeping_node_that_reports_is_up_and_in_standby(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.go(20.0)
    harness.comes_back("n3")
    assert harness.service("n3") is STANDBY


def test_nodes_in_standby_and_on_the_way_there_serve_at_once_when_wanted_again(harness: PowerHarness) -> None:
    node = running(harness)
    others = [name for name in harness.nodes if name != node]
    harness.want(*others[:1])
    assert (harness.service(node), harness.service(others[1])) == (DRAINING, STANDBY)
    harness.want(*harness.nodes)
    assert {harness.service(name) for name in harness.nodes} == {IN_SERVICE}
    assert list(parts.lifecycle(harness.controller).durations) == []


def test_a_node_is_emptied_before_it_goes(harness: PowerHarness) -> None:
    node = running(harness)
    harness.want(*(name for name in harness.nodes if name != node))
    assert harness.service(node) is DRAINING
    (move,) = harness.take_orders()
    assert (move.kind, move.node) == ("migrate", node)
    harness.go(20.0)
    assert (harness.service(node), harness.sleeps) == (DRAINING, [])
    harness.result(move)
    harness.go(5.0)
    assert harness.service(node) is STANDBY


def test_without_a_driver_nodes_only_leave_scheduling() -> None:
    harness = PowerHarness(settings=power(does=frozenset(), through_agents=False))
    harness.lead()
    harness.want("n1")
    harness.go(7200.0)
    assert (harness.service("n2"), harness.sleeps, harness.powers) == (STANDBY, [], [])
    (learnt,) = list(parts.lifecycle(harness.controller).durations)
    assert (learnt.what, learnt.mean_s) == ("remove", 0.0)


def test_a_driver_that_switches_off_is_asked_instead_of_the_agent() -> None:
    does = frozenset({PowerOperation.WAKE, PowerOperation.SLEEP})
    harness = PowerHarness(settings=power(does=does, through_agents=False))
    harness.lead()
    harness.want("n1", "n2")
    harness.go(70.0)
    assert (harness.asked(PowerOperation.SLEEP), harness.sleeps) == (["n3"], [])
    harness.powered()
    harness.up.remove("n3")
    harness.go(30.0)
    assert harness.service("n3") is OFF


# --- what must not sleep ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("managed", [True, False])
def test_a_node_with_a_vm_that_nobody_knows_stays_awake(harness: PowerHarness, managed: bool) -> None:
    harness.vms["n3"]["stray"] = VmStatus("stray", VmState.RUNNING, 1, attempt=1, memory_mib=100, managed=managed)
    harness.go(5.0)
    harness.want("n1", "n2")
    harness.go(600.0)
    assert (harness.service("n3"), harness.sleeps) == (STANDBY, [])
    del harness.vms["n3"]["stray"]
    harness.go(60.0)
    assert [asked.node for asked in harness.sleeps] == ["n3"]


def test_a_node_with_a_saved_image_stays_awake(harness: PowerHarness) -> None:
    node = running(harness)
    harness.change(node, "j#0", state=VmState.SUSPENDED)
    harness.go(5.0)
    harness.controller.cluster.jobs["j"].held = True  # nobody resumes it
    harness.want(*(name for name in harness.nodes if name != node))
    harness.go(700.0)
    assert node not in [asked.node for asked in harness.sleeps]


def test_protected_nodes_and_those_that_are_kept_stay_in_service() -> None:
    harness = PowerHarness(settings=power(never=frozenset({"n3"}), keep_nodes=2))
    harness.lead()
    harness.want()
    harness.go(100.0)
    assert [harness.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, IN_SERVICE]


def test_a_silent_node_is_neither_taken_out_nor_put_to_sleep(harness: PowerHarness) -> None:
    harness.up.remove("n3")
    harness.go(30.0)
    harness.want("n1", "n2")
    assert harness.controller.cluster.nodes["n3"].wanted
    harness.up.remove("n2")
    harness.want("n1", "n3")
    harness.go(3600.0)
    assert [event.subject for event in harness.happenings("node-unreachable")] == ["n3", "n2"]
    assert (harness.service("n2"), harness.service("n3"), harness.sleeps) == (STANDBY, IN_SERVICE, [])


def test_a_node_whose_address_nobody_knows_is_not_put_to_sleep() -> None:
    harness = PowerHarness(settings=power(needs_mac=True))
    harness.lead()
    harness.want("n1", "n2")
    harness.go(600.0)
    assert (harness.service("n3"), harness.sleeps) == (STANDBY, [])


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_come_back_has_failed_until_it_is_repaired(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    asked = len(harness.computations)
    harness.powered(False, "no route to the socket")
    harness.go(310.0)
    assert harness.service("n3") is FAILED
    ((name, detail),) = details(harness, "node-failed")
    assert (name, "no route to the socket" in detail) == ("n3", True)
    assert len(harness.asked(PowerOperation.WAKE)) > 1  # tried again within the limit
    assert len(harness.computations) == asked + 1  # so that another takes its place
    wakes = len(harness.powers)
    harness.go(3600.0)
    assert (harness.service("n3"), len(harness.powers)) == (FAILED, wakes)
    harness.ask(RepairNode("r", "n3"))
    assert harness.service("n3") is WAKING  # it is wanted still
    harness.comes_back("n3")
    assert (harness.service("n3"), harness.controller.cluster.nodes["n3"].detail) == (IN_SERVICE, "")


def test_a_node_that_comes_back_late_stays_out(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    harness.powered()
    harness.go(310.0)
    harness.comes_back("n3")
    harness.go(60.0)
    assert harness.service("n3") is FAILED
    harness.ask(RepairNode("r", "n3"))
    assert harness.service("n3") is IN_SERVICE
    refused = harness.ask(RepairNode("again", "n3"))
    assert (refused.done, refused.code) == (False, "not-failed")


def test_an_agent_that_refuses_to_sleep_is_asked_again_later(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    harness.agree("n3", False, "a VM is alive")
    assert details(harness, "sleep-failed") == [("n3", "a VM is alive")]
    harness.go(10.0)
    assert len(harness.sleeps) == 1
    harness.go(60.0)
    assert len(harness.sleeps) == 2


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_goes_on_reporting_was_not_put_to_sleep(harness: PowerHarness, answers: bool) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    if answers:
        harness.agree("n3")
        harness.up.append("n3")
    harness.go(250.0)
    assert [event.subject for event in harness.happenings("sleep-failed")] != []
    harness.want("n1", "n2", "n3")
    harness.go(200.0)
    assert harness.service("n3") is IN_SERVICE


def test_silence_that_takes_long_to_be_noted_is_still_the_silence_of_a_sleeping_node() -> None:
    """Given reports so rare that a node counts as up for as long as it may take to fall asleep, when it has agreed and
    is silent, then it has not gone on reporting: it sleeps."""
    harness = PowerHarness(settings=power(), unreachable_after_s=185.0)
    harness.lead()
    harness.want("n1", "n2")
    harness.go(65.0)
    harness.agree("n3")
    harness.go(400.0)
    assert (harness.service("n3"), harness.happenings("sleep-failed")) == (OFF, [])


def test_a_node_that_falls_asleep_after_all_is_asleep(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    harness.agree("n3")
    harness.up.append("n3")
    harness.go(200.0)
    assert len(harness.happenings("sleep-failed")) == 1
    harness.up.remove("n3")
    harness.go(20.0)
    assert harness.service("n3") is OFF
    harness.want("n1", "n2", "n3")
    assert (harness.service("n3"), harness.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])


def test_a_node_that_may_be_falling_asleep_is_not_given_work(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    assert len(harness.sleeps) == 1
    harness.want("n1", "n2", "n3")
    assert harness.service("n3") is STANDBY
    harness.agree("n3")
    harness.go(30.0)
    assert (harness.service("n3"), harness.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])


def test_a_node_that_cannot_be_emptied_returns_to_service_and_is_left_alone_for_a_while(harness: PowerHarness) -> None:
    node = running(harness)
    harness.compute = False  # nobody moves anything
    harness.controller.cluster.jobs["j"].held = True
    others = [name for name in harness.nodes if name != node]
    harness.want(*others)
    harness.go(295.0)
    harness.take_orders()  # to suspend it, which nobody carries out
    harness.go(310.0)
    assert (harness.service(node), [event.subject for event in harness.happenings("drain-failed")]) == (
        IN_SERVICE,
        [node],
    )
    harness.want(*others)
    harness.go(60.0)
    assert harness.service(node) is IN_SERVICE
    harness.go(1200.0)
    harness.want(*others)
    assert harness.service(node) is DRAINING


def test_what_placement_does_not_move_is_suspended(harness: PowerHarness) -> None:
    node = running(harness)
    harness.compute = False
    harness.want(*(name for name in harness.nodes if name != node))
    harness.go(295.0)
    assert harness.take_orders() == []
    harness.go(10.0)
    (suspend,) = harness.take_orders()
    assert (suspend.kind, suspend.node) == ("suspend", node)
    harness.result(suspend)
    harness.go(5.0)
    assert harness.service(node) is STANDBY


def test_a_node_that_dies_while_it_is_emptied_has_failed_once_it_is_proven_off(harness: PowerHarness) -> None:
    node = running(harness)
    harness.want(*(name for name in harness.nodes if name != node))
    harness.up.remove(node)
    harness.go(900.0)
    assert harness.service(node) is DRAINING  # its VM may run
    assert harness.controller.cluster.nodes[node].claimed
    harness.take_orders()
    harness.ask(ConfirmOff("c", node))
    assert harness.service(node) is FAILED
    harness.go(30.0)
    assert [order.kind for order in harness.obey()] == ["start"]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_only_so_many_are_put_to_sleep_and_woken_in_a_minute() -> None:
    names = [f"n{index}" for index in range(1, 8)]
    harness = PowerHarness(names, settings=power(sleeps_per_minute=2, wakes_per_minute=3))
    harness.lead()
    harness.want("n1")
    harness.go(65.0)
    assert len(harness.sleeps) == 2
    while len(harness.sleeps) < 6:
        for asked in harness.sleeps:
            if asked.node in harness.up:
                harness.up.remove(asked.node)
        before = len(harness.sleeps)
        harness.go(60.0)
        assert len(harness.sleeps) <= before + 2
    for asked in harness.sleeps[-2:]:
        harness.up.remove(asked.node)
    harness.go(60.0)
    harness.want(*names)
    assert len(harness.asked(PowerOperation.WAKE)) == 3
    harness.go(55.0)
    assert len(harness.asked(PowerOperation.WAKE)) == 3
    harness.go(10.0)
    assert sorted(harness.asked(PowerOperation.WAKE)) == names[1:]


def test_sleeping_nodes_are_woken_in_turn_to_see_that_they_can_be() -> None:
    harness = PowerHarness(settings=power(wake_test_days=0.1))
    harness.lead()
    harness.want("n1")
    for _ in range(2):
        harness.go(70.0)
        for asked in harness.sleeps:
            if asked.node in harness.up:
                harness.up.remove(asked.node)
    harness.go(8640.0)
    assert harness.asked(PowerOperation.WAKE) == ["n2"]
    harness.powered()
    harness.comes_back("n2")
    assert harness.service("n2") is STANDBY
    harness.go(5.0)
    assert harness.asked(PowerOperation.WAKE) == ["n2", "n3"]  # one at a time
    harness.powered(False, "no lamp")
    harness.go(310.0)
    assert (harness.service("n3"), harness.service("n1")) == (FAILED, IN_SERVICE)


# --- others who schedule on the nodes --------------------------------------------------------------------------------


def test_another_scheduler_is_told_before_a_node_leaves_and_before_it_counts() -> None:
    harness = PowerHarness(settings=power(does=LINKS))
    harness.lead()
    harness.want("n1", "n2")
    assert (harness.service("n3"), harness.asked(PowerOperation.DELINK)) == (DRAINING, ["n3"])
    harness.powered()
    assert harness.service("n3") is STANDBY
    harness.want("n1", "n2", "n3")
    assert (harness.service("n3"), harness.asked(PowerOperation.LINK)) == (STANDBY, ["n3"])
    harness.powered(False, "busy")
    assert harness.service("n3") is STANDBY
    harness.go(20.0)
    harness.powered()
    assert (harness.service("n3"), harness.asked(PowerOperation.LINK)) == (IN_SERVICE, ["n3", "n3"])


def test_a_woken_node_is_linked_at_once() -> None:
    """That it was woken with success says nothing of when to link it."""
    harness = PowerHarness(settings=power(does=LINKS))
    harness.lead()
    harness.want("n1", "n2")
    harness.powered()
    harness.go(70.0)
    harness.agree("n3")
    harness.go(30.0)
    harness.want("n1", "n2", "n3")
    harness.powered()

    harness.comes_back("n3")
    assert (harness.service("n3"), harness.asked(PowerOperation.LINK)) == (WAKING, ["n3"])
    harness.powered(ok=False)
    harness.go(5.0)
    assert harness.asked(PowerOperation.LINK) == ["n3"]
    harness.go(15.0)
    assert harness.asked(PowerOperation.LINK) == ["n3", "n3"]
    harness.powered()
    assert harness.service("n3") is IN_SERVICE


def test_a_node_that_cannot_be_linked_has_failed() -> None:
    harness = PowerHarness(settings=power(does=LINKS))
    harness.lead()
    harness.want("n1", "n2")
    harness.powered()
    harness.want("n1", "n2", "n3")
    harness.powered(False, "who is n3?")
    harness.go(310.0)
    assert (harness.service("n3"), "who is n3?" in harness.controller.cluster.nodes["n3"].detail) == (FAILED, True)


# --- operators -------------------------------------------------------------------------------------------------------


def test_a_node_that_an_operator_keeps_out_is_not_touched_by_decisions(harness: PowerHarness) -> None:
    harness.ask(DrainNode("d", "n3", True))
    harness.want("n1", "n2")
    harness.go(3600.0)
    harness.want("n1", "n2", "n3")
    harness.go(60.0)
    assert (harness.service("n3"), harness.sleeps) == (DRAINING, [])
    harness.ask(DrainNode("u", "n3", False))
    assert harness.service("n3") is IN_SERVICE


def test_a_sleeping_node_that_an_operator_keeps_out_is_not_woken(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.ask(DrainNode("d", "n3", True))
    harness.want("n1", "n2", "n3")
    harness.go(60.0)
    assert (harness.service("n3"), harness.powers) == (OFF, [])
    harness.comes_back("n3")
    assert harness.service("n3") is DRAINING
    harness.ask(DrainNode("u", "n3", False))
    assert harness.service("n3") is IN_SERVICE
