"""A plan in progress is stopped: what becomes of nodes on their way out of service and into it."""

from __future__ import annotations

import pytest

from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import ConfirmOff, DrainNode, Query, StopPlan
from shared.values.actions import ActionKind
from shared.values.nodes import NodeService, PowerOperation
from tests.support import parts
from tests.support.node_service_harness import LINKS, PowerHarness, power, running

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY
OFF, WAKING = NodeService.OFF, NodeService.WAKING
DECIDE_S = 100.0


@pytest.fixture
def harness() -> PowerHarness:
    made = PowerHarness()
    made.lead()
    return made


def others(harness: PowerHarness, node: str) -> list[str]:
    return [name for name in harness.nodes if name != node]


def stop(harness: PowerHarness) -> str:
    """Stop what is in progress; what the controller answers."""
    reply = harness.ask(StopPlan("stop"))
    assert reply.done
    return harness.happenings("plan-stopped")[-1].detail


# --- out of service --------------------------------------------------------------------------------------------------


def test_a_node_that_is_being_emptied_serves_again_and_its_vms_stay(harness: PowerHarness) -> None:
    node = running(harness)
    harness.compute = False  # nothing moves yet
    harness.want(*others(harness, node))
    assert harness.service(node) is DRAINING
    assert stop(harness) == "1 nodes stay in service, 0 are not woken"
    assert harness.service(node) is IN_SERVICE
    harness.go(2_000.0)
    assert (harness.take_orders(), harness.sleeps) == ([], [])
    assert harness.store.get(("node", node)).wanted


def test_a_move_off_a_node_that_is_being_emptied_ends_and_what_has_not_begun_stays(harness: PowerHarness) -> None:
    node = running(harness)
    harness.want(*others(harness, node))
    (move,) = harness.take_orders()
    assert move.kind is ActionKind.MIGRATE
    assert stop(harness) == (
        "0 workloads stay as they are, 1 operations end, 0 are aborted, 1 nodes stay in service, 0 are not woken"
    )
    harness.result(move)
    harness.go(2_000.0)
    assert harness.take_orders() == []
    assert harness.controller.cluster.jobs["j"].allotments[0].node == move.to_node
    assert (harness.service(node), harness.sleeps) == (IN_SERVICE, [])


def test_an_empty_node_in_standby_serves_again(harness: PowerHarness) -> None:
    harness.go(10.0)
    harness.want("n1", "n2")
    harness.go(30.0)
    assert harness.service("n3") is STANDBY
    stop(harness)
    assert harness.service("n3") is IN_SERVICE
    harness.go(2_000.0)
    assert harness.sleeps == []


def test_a_sleep_that_is_ordered_is_finished(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(70.0)
    assert len(harness.sleeps) == 1
    assert stop(harness) == "nothing was in progress"
    harness.agree("n3")
    harness.go(200.0)
    assert (harness.service("n3"), harness.powers) == (OFF, [])


def test_other_schedulers_get_a_node_back_that_they_were_told_of() -> None:
    harness = PowerHarness(settings=power(does=LINKS))
    harness.lead()
    harness.want("n1", "n2")
    assert harness.asked(PowerOperation.DELINK) == ["n3"]
    stop(harness)
    harness.powered()
    assert harness.asked(PowerOperation.LINK) == ["n3"]
    harness.powered()
    assert harness.service("n3") is IN_SERVICE


def test_without_a_power_driver_a_node_that_is_out_of_service_stays_so() -> None:
    harness = PowerHarness(settings=power(driver="none", does=frozenset(), through_agents=False))
    harness.lead()
    harness.want("n1", "n2")
    assert harness.service("n3") is STANDBY
    assert stop(harness) == "nothing was in progress"
    assert harness.service("n3") is STANDBY


def test_a_node_that_was_woken_to_see_that_it_can_be_goes_back_to_sleep() -> None:
    harness = PowerHarness(settings=power(wake_test_days=1.0))
    harness.lead()
    harness.put_to_sleep("n3")
    harness.go(86_500.0)
    assert harness.service("n3") is WAKING
    harness.comes_back("n3")
    assert harness.service("n3") is STANDBY
    assert stop(harness) == "nothing was in progress"
    assert harness.service("n3") is STANDBY


def test_a_node_that_an_operator_keeps_out_stays_out(harness: PowerHarness) -> None:
    node = running(harness)
    harness.ask(DrainNode("d", node, True))
    stop(harness)
    assert harness.service(node) is DRAINING


# --- into service ----------------------------------------------------------------------------------------------------


def test_a_wake_that_has_begun_is_finished_and_no_other_begins() -> None:
    harness = PowerHarness(settings=power(wakes_per_minute=1))
    harness.lead()
    harness.put_to_sleep("n3")
    harness.want("n1")
    harness.go(70.0)
    harness.agree("n2")
    harness.go(60.0)
    harness.want("n1", "n2", "n3")
    (woken,) = harness.asked(PowerOperation.WAKE)
    (waits,) = {"n2", "n3"} - {woken}
    assert (harness.service(woken), harness.service(waits)) == (WAKING, OFF)
    assert stop(harness) == "0 nodes stay in service, 1 are not woken"
    harness.powered()
    harness.comes_back(woken)
    harness.go(600.0)
    assert (harness.service(woken), harness.service(waits)) == (IN_SERVICE, OFF)
    assert harness.asked(PowerOperation.WAKE) == [woken]


def test_a_node_that_must_serve_is_woken_all_the_same() -> None:
    harness = PowerHarness(settings=power(wakes_per_minute=0, keep_nodes=2))
    harness.lead()
    harness.put_to_sleep("n3")
    harness.up.remove("n2")
    harness.go(100.0)
    harness.ask(ConfirmOff("c", "n2"))
    harness.want("n1", "n3")
    assert stop(harness) == "nothing was in progress"
    assert harness.store.get(("node", "n3")).wanted


def test_a_node_that_is_wanted_while_it_falls_asleep_is_not_woken_after_that(harness: PowerHarness) -> None:
    harness.want("n1", "n2")
    harness.go(70.0)
    harness.want("n1", "n2", "n3")
    assert stop(harness) == "0 nodes stay in service, 1 are not woken"
    harness.agree("n3")
    harness.go(200.0)
    assert (harness.service("n3"), harness.powers) == (OFF, [])


# --- what is proposed after it ---------------------------------------------------------------------------------------


def deciding() -> PowerHarness:
    """A harness that decides every 100 s to keep one node in service."""
    harness = PowerHarness(
        settings=power(standby_s=1_000.0),
        provisioning=PolicyChoice("static", {"nodes": 1}),
        decide_s=DECIDE_S,
    )
    harness.lead()
    harness.go(DECIDE_S + 5.0)
    assert [harness.service(name) for name in ("n2", "n3")] == [STANDBY, STANDBY]
    return harness


def test_the_same_is_not_decided_again_for_four_cycles_and_then_it_is() -> None:
    harness = deciding()
    stop(harness)
    shown = harness.ask(Query("q", "plan")).data["decision"]
    assert (shown["policy"], shown["provisioning"]["removed"], shown["held"]) == ("plan-stop", ["n2", "n3"], [])
    harness.go(3.0 * DECIDE_S)
    assert [harness.service(name) for name in ("n2", "n3")] == [IN_SERVICE, IN_SERVICE]
    assert harness.ask(Query("q", "plan")).data["decision"]["provisioning"]["dropped"] == ["n2", "n3"]
    harness.go(DECIDE_S)
    assert [harness.service(name) for name in ("n2", "n3")] == [STANDBY, STANDBY]


def test_a_decision_in_the_making_does_not_take_it_up_again() -> None:
    harness = deciding()
    harness.compute = False
    harness.go(DECIDE_S)
    stop(harness)
    harness.answer(harness.computations[-1])
    harness.settle()
    assert [harness.service(name) for name in ("n2", "n3")] == [IN_SERVICE, IN_SERVICE]


def test_a_new_leader_knows_what_was_stopped() -> None:
    harness = deciding()
    stop(harness)
    after = PowerHarness(
        harness.nodes,
        harness.store,
        harness.controller.settings.power,
        provisioning=PolicyChoice("static", {"nodes": 1}),
        decide_s=DECIDE_S,
    )
    after.boots, after.seqs, after.vms, after.now_s = harness.boots, harness.seqs, harness.vms, harness.now_s
    after.carry(after.controller.start(after.now_s))
    after.settle()
    after.go(2.0 * DECIDE_S)
    assert [after.service(name) for name in ("n2", "n3")] == [IN_SERVICE, IN_SERVICE]
    after.go(3.0 * DECIDE_S)
    assert [after.service(name) for name in ("n2", "n3")] == [STANDBY, STANDBY]


def test_a_node_that_falls_out_ends_it_early() -> None:
    harness = deciding()
    stop(harness)
    harness.go(DECIDE_S)
    rejected = harness.controller.deciding.approving.without_rejected
    change = parts.lifecycle(harness.controller).change_to(["n1"], dict.fromkeys(harness.nodes, 1), harness.now_s)
    assert change.removed == ("n2", "n3")
    assert rejected(change, harness.now_s).removed == ()
    harness.up.remove("n1")
    harness.go(100.0)
    assert rejected(change, harness.now_s).removed == ("n2", "n3")
