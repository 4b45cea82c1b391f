"""A successor goes on with nodes on their way, and clocks that jump fail none."""

from __future__ import annotations

import pytest

from daemons.values.records.cluster import NodeRecord
from shared.protocol.operator_messages import ConfirmOff
from shared.values.nodes import NodeCondition, NodeService, PowerOperation
from tests.support.node_service_harness import LINKS, PowerDesk, details, power, running

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY
OFF, WAKING, FAILED = NodeService.OFF, NodeService.WAKING, NodeService.FAILED


@pytest.fixture
def desk() -> PowerDesk:
    made = PowerDesk()
    made.lead()
    return made


def test_a_successor_goes_on_with_a_node_that_is_emptied(desk: PowerDesk) -> None:
    node = running(desk)
    desk.want(*(name for name in desk.nodes if name != node))
    after = desk.succeeded()
    after.go(10.0)
    assert after.service(node) is DRAINING
    (move,) = after.take_orders()
    after.result(move)
    after.go(5.0)
    assert after.service(node) is STANDBY


def test_a_successor_puts_a_node_in_standby_to_sleep(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    after = desk.succeeded()
    after.go(80.0)
    assert [asked.node for asked in after.sleeps] == ["n3"]


@pytest.mark.parametrize("asleep", [True, False])
def test_a_successor_finds_out_what_became_of_a_node_that_was_asked_to_sleep(desk: PowerDesk, asleep: bool) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    assert len(desk.sleeps) == 1
    if asleep:
        desk.up.remove("n3")
    after = desk.succeeded()
    after.go(60.0)
    assert (after.service("n3"), after.happenings("node-silent")) == (OFF if asleep else STANDBY, [])


def test_a_successor_leaves_a_sleeping_node_asleep(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    after = desk.succeeded()
    after.go(3600.0)
    assert (after.service("n3"), after.powers, after.happenings("node-silent")) == (OFF, [], [])
    assert not any(name == "n3" for name, _ in after.hellos)
    after.want("n1", "n2", "n3")
    after.powered()
    after.comes_back("n3")
    assert after.service("n3") is IN_SERVICE


def test_a_controller_killed_in_the_middle_of_a_deployment_wakes_the_node_all_the_same(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    after = desk.succeeded()
    after.go(10.0)
    assert (after.service("n3"), after.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])
    after.comes_back("n3")
    assert after.service("n3") is IN_SERVICE


def test_a_successor_keeps_failed_nodes_out(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    desk.powered(False, "smoke")
    desk.go(310.0)
    after = desk.succeeded()
    after.go(60.0)
    node = after.controller.cluster.nodes["n3"]
    assert (node.service, "smoke" in node.detail) == (FAILED, True)


def test_a_node_that_was_being_emptied_before_decisions_did_that_is_kept_out(desk: PowerDesk) -> None:
    desk.store.write(1, (NodeRecord("n3", DRAINING, 0, boot_id="boot-1", off_boot_id="", inventory=desk.nodes["n3"]),))
    after = desk.succeeded()
    after.go(60.0)
    assert (after.service("n3"), after.controller.cluster.nodes["n3"].held) == (DRAINING, True)


def test_a_clock_that_jumps_fails_no_node(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.want("n1", "n2", "n3")
    desk.powered()
    desk.now_s += 7200.0
    desk.go(20.0)
    assert desk.service("n3") is WAKING
    desk.comes_back("n3")
    assert desk.service("n3") is IN_SERVICE


def test_a_sleeping_node_that_an_operator_says_is_off_can_still_be_woken(desk: PowerDesk) -> None:
    desk.put_to_sleep("n3")
    desk.ask(ConfirmOff("c", "n3"))
    assert desk.controller.cluster.nodes["n3"].condition is NodeCondition.OFF
    desk.want("n1", "n2", "n3")
    desk.go(10.0)
    desk.comes_back("n3")
    assert (desk.service("n3"), desk.happenings("off-node-reports")) == (IN_SERVICE, [])


def test_a_successor_tells_another_scheduler_again_what_it_may_not_have_heard() -> None:
    desk = PowerDesk(settings=power(does=LINKS))
    desk.lead()
    desk.want("n1", "n2")
    assert desk.asked(PowerOperation.DELINK) == ["n3"]
    after = desk.succeeded()
    after.go(10.0)
    assert (after.service("n3"), after.asked(PowerOperation.DELINK)) == (DRAINING, ["n3"])
    after.powered()
    assert after.service("n3") is STANDBY
    last = after.succeeded()
    last.go(10.0)
    last.want("n1", "n2", "n3")
    assert last.asked(PowerOperation.LINK) == ["n3"]


def test_an_answer_about_sleep_of_an_older_leaders_request_counts_once(desk: PowerDesk) -> None:
    desk.want("n1", "n2")
    desk.go(65.0)
    after = desk.succeeded()
    after.go(5.0)
    after.sleeps = desk.sleeps
    after.agree("n3", False, "an older term")
    after.agree("n3", False, "an older term")
    assert details(after, "sleep-failed") == [("n3", "an older term")]
