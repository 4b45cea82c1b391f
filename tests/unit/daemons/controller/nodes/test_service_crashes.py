"""A successor goes on with nodes on their way, and clocks that jump fail none."""

from __future__ import annotations

import pytest

from daemons.values.records.cluster import NodeRecord
from shared.protocol.operator_messages import ConfirmOff
from shared.values.nodes import NodeCondition, NodeService, PowerOperation
from tests.support.node_service_harness import LINKS, PowerHarness, details, power, running

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY
OFF, WAKING, FAILED = NodeService.OFF, NodeService.WAKING, NodeService.FAILED


@pytest.fixture
def harness() -> PowerHarness:
    made = PowerHarness()
    made.lead()
    return made


def test_a_successor_goes_on_with_a_node_that_is_emptied(harness: PowerHarness) -> None:
    node = running(harness)
    harness.want(*(name for name in harness.nodes if name != node))
    after = harness.succeeded()
    after.go(10.0)
    assert after.service(node) is DRAINING
    (move,) = after.take_orders()
    after.result(move)
    after.go(5.0)
    assert after.service(node) is STANDBY


def test_a_successor_puts_a_node_in_standby_to_sleep(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    after = harness.succeeded()
    after.go(80.0)
    assert [asked.node for asked in after.sleeps] == ["n3"]


@pytest.mark.parametrize("asleep", [True, False])
def test_a_successor_finds_out_what_became_of_a_node_that_was_asked_to_sleep(
    harness: PowerHarness, asleep: bool
) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    assert len(harness.sleeps) == 1
    if asleep:
        harness.up.remove("n3")
    after = harness.succeeded()
    after.go(60.0)
    assert (after.service("n3"), after.happenings("node-unreachable")) == (OFF if asleep else STANDBY, [])


def test_a_successor_leaves_a_sleeping_node_asleep(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    after = harness.succeeded()
    after.go(3600.0)
    assert (after.service("n3"), after.powers, after.happenings("node-unreachable")) == (OFF, [], [])
    assert not any(name == "n3" for name, _ in after.hellos)
    after.want("n1", "n2", "n3")
    after.powered()
    after.comes_back("n3")
    assert after.service("n3") is IN_SERVICE


def test_a_controller_killed_in_the_middle_of_a_deployment_wakes_the_node_all_the_same(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    after = harness.succeeded()
    after.go(10.0)
    assert (after.service("n3"), after.asked(PowerOperation.WAKE)) == (WAKING, ["n3"])
    after.comes_back("n3")
    assert after.service("n3") is IN_SERVICE


def test_a_successor_keeps_failed_nodes_out(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    harness.powered(False, "smoke")
    harness.go(310.0)
    after = harness.succeeded()
    after.go(60.0)
    node = after.controller.cluster.nodes["n3"]
    assert (node.service, "smoke" in node.detail) == (FAILED, True)


def test_a_node_that_was_being_emptied_before_decisions_did_that_is_kept_out(harness: PowerHarness) -> None:
    harness.store.write(
        1, (NodeRecord("n3", DRAINING, 0, boot_id="boot-1", off_boot_id="", inventory=harness.nodes["n3"]),)
    )
    after = harness.succeeded()
    after.go(60.0)
    assert (after.service("n3"), after.controller.cluster.nodes["n3"].held) == (DRAINING, True)


def test_a_clock_that_jumps_fails_no_node(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.want("n1", "n2", "n3")
    harness.powered()
    harness.now_s += 7200.0
    harness.go(20.0)
    assert harness.service("n3") is WAKING
    harness.comes_back("n3")
    assert harness.service("n3") is IN_SERVICE


def test_a_sleeping_node_that_an_operator_says_is_off_can_still_be_woken(harness: PowerHarness) -> None:
    harness.put_to_sleep("n3")
    harness.ask(ConfirmOff("c", "n3"))
    assert harness.controller.cluster.nodes["n3"].condition is NodeCondition.OFF
    harness.want("n1", "n2", "n3")
    harness.go(10.0)
    harness.comes_back("n3")
    assert (harness.service("n3"), harness.happenings("off-node-reports")) == (IN_SERVICE, [])


def test_a_successor_tells_another_scheduler_again_what_it_may_not_have_heard() -> None:
    harness = PowerHarness(settings=power(does=LINKS))
    harness.lead()
    harness.want("n1", "n2")
    assert harness.asked(PowerOperation.DELINK) == ["n3"]
    after = harness.succeeded()
    after.go(10.0)
    assert (after.service("n3"), after.asked(PowerOperation.DELINK)) == (DRAINING, ["n3"])
    after.powered()
    assert after.service("n3") is STANDBY
    last = after.succeeded()
    last.go(10.0)
    last.want("n1", "n2", "n3")
    assert last.asked(PowerOperation.LINK) == ["n3"]


def test_an_answer_about_sleep_of_an_older_leaders_request_counts_once(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(65.0)
    after = harness.succeeded()
    after.go(5.0)
    after.sleeps = harness.sleeps
    after.agree("n3", False, "an older term")
    after.agree("n3", False, "an older term")
    assert details(after, "sleep-failed") == [("n3", "an older term")]
