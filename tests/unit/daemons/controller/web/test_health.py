"""The controller tells agents which instances to watch, and has those replaced that they find unhealthy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.values.settings import Automation, PolicyChoice
from shared.protocol.messages import Watch
from shared.protocol.operator_messages import (
    AddNode,
    ConfirmOff,
    DrainNode,
    Query,
    RemoveNode,
    RemoveWeb,
    SetDeciding,
    SubmitWeb,
)
from shared.values.actions import ActionKind
from shared.values.health import UNKNOWN_COMMAND, Health, Probe, ProbeKind, Target
from shared.values.jobs import Allotment
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from tests.support.controller_harness import ControllerHarness

NODES = ("n1", "n2", "n3", "n4")
PROBE = Probe(ProbeKind.TCP, 80, replace_max=2)
HOUR_S = 3_600.0


def shop(least: int = 2, most: int = 3, probe: Probe | None = PROBE, **changes: Any) -> WebApp:
    return replace(
        WebApp("shop", (), 1000, max_mhz=1000.0, min_instances=least, max_instances=most, probe=probe), **changes
    )


def led(app: WebApp | None = None, **settings: Any) -> ControllerHarness:
    """A leader of two instances that run, on n1 and n2."""
    harness = ControllerHarness(NODES, placement=PolicyChoice("first-fit"), web_adjust_s=100_000.0, **settings).lead()
    harness.ask(SubmitWeb("s", app or shop()))
    harness.obey()
    assert [sorted(harness.vms[name]) for name in NODES] == [["shop#0"], ["shop#1"], [], []]
    return harness


def watch(harness: ControllerHarness, node: str) -> Watch:
    """What a node was sent last."""
    return [sent for name, sent in harness.watches if name == node][-1]


def says(harness: ControllerHarness, node: str, *rows: Health, **fields: Any) -> None:
    """A report of a node that goes by the list that it was sent."""
    fields.setdefault("watch", watch(harness, node).number)
    harness.report(node, health=rows, **fields)


def row(harness: ControllerHarness, vm: str, healthy: bool = False, detail: str = "refused", probes: int = 5) -> Health:
    generation = harness.controller.cluster.instances[vm].generation
    return Health(vm, generation, healthy, harness.now_s, "" if healthy and detail == "refused" else detail, probes)


def is_ill(harness: ControllerHarness, vm: str, node: str) -> None:
    says(harness, node, row(harness, vm))


def stopped(harness: ControllerHarness) -> list[str]:
    return [order.vm for order in harness.orders if order.kind is ActionKind.STOP]


def told(harness: ControllerHarness, what: str) -> list[tuple[str, str]]:
    return [(event.subject, event.detail) for event in harness.happenings(what)]


def alarms(harness: ControllerHarness, what: str) -> list[str]:
    rows = harness.ask(Query("q", "status")).data["alarms"]
    return [each["detail"] for each in rows if each["what"] == what and each["subject"] == "shop"]


# --- telling ---------------------------------------------------------------------------------------------------------


def test_each_node_is_told_what_runs_on_it() -> None:
    harness = led()
    assert harness.watches == [
        ("n1", Watch(harness.controller.unit_of_work.term, 1, (Target("shop#0", 1, PROBE),))),
        ("n2", Watch(harness.controller.unit_of_work.term, 1, (Target("shop#1", 1, PROBE),))),
    ]
    for _ in range(5):
        harness.now_s += 5.0
        for name in ("n1", "n2"):
            says(harness, name)
    assert len(harness.watches) == 2


def test_without_a_probe_nobody_is_told_anything() -> None:
    assert led(shop(probe=None)).watches == []


def test_a_probe_that_is_changed_or_removed_holds_at_once() -> None:
    harness = led()
    other = replace(PROBE, port=8080)
    harness.ask(SubmitWeb("t", shop(probe=other)))
    assert watch(harness, "n1") == Watch(1, 2, (Target("shop#0", 1, other),))
    harness.ask(SubmitWeb("u", shop(probe=None)))
    assert [watch(harness, name) for name in ("n1", "n2")] == [Watch(1, 3), Watch(1, 3)]


def test_an_instance_that_moves_is_watched_where_it_is() -> None:
    harness = led()
    entry = harness.controller.cluster.active["shop#1"]
    harness.controller.cluster.set_allotments(entry, (Allotment("n3", 1000.0),))
    entry.revision += 1
    harness.controller.unit_of_work.change(entry)
    harness.report("n4")
    harness.obey()
    assert watch(harness, "n2") == Watch(1, 2)
    assert watch(harness, "n3") == Watch(1, 1, (Target("shop#1", 1, PROBE),))


def test_one_that_is_removed_is_not_watched() -> None:
    harness = led()
    harness.ask(RemoveWeb("r", "shop"))
    assert [watch(harness, name).targets for name in ("n1", "n2")] == [(), ()]


def test_an_agent_that_begins_anew_is_told_again_and_not_too_often() -> None:
    """Given an agent that goes by nothing: it is told after two report periods, and again only after two more."""
    harness = led()
    sent = len(harness.watches)
    harness.now_s += 4.0
    says(harness, "n1", watch=0)
    assert len(harness.watches) == sent  # what was sent may be on its way
    harness.now_s += 7.0
    says(harness, "n1", watch=0)
    assert watch(harness, "n1") == Watch(1, 2, (Target("shop#0", 1, PROBE),))
    says(harness, "n1", watch=0)
    assert len(harness.watches) == sent + 1


def test_a_new_leader_tells_everyone_and_takes_old_lists_back() -> None:
    """Given an agent that goes by the list of an earlier leader, and nothing on it is to be watched any more."""
    harness = led()
    successor = ControllerHarness(NODES, harness.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs = harness.vms, harness.seqs
    gone = Health("old#0", 3, False, 0.0, "refused", 9)
    successor.lead()
    assert sorted(successor.watches) == [
        ("n1", Watch(2, 1, (Target("shop#0", 1, PROBE),))),
        ("n2", Watch(2, 1, (Target("shop#1", 1, PROBE),))),
    ]
    successor.report("n3", health=(gone,), watch=0)
    assert watch(successor, "n3") == Watch(2, 1)
    successor.report("n3", watch=1)
    assert len(successor.watches) == 3


def test_a_silent_node_is_told_when_it_is_back() -> None:
    harness = led()
    harness.wait(40.0, ("n2", "n3", "n4"))
    harness.ask(SubmitWeb("t", shop(probe=replace(PROBE, port=81))))
    assert watch(harness, "n1").number == 1
    harness.report("n1", watch=1)
    assert watch(harness, "n1").targets[0].probe.port == 81


def test_a_node_that_is_added_again_is_sent_no_smaller_number() -> None:
    """Given an agent that goes on while its node is taken for off, removed, and added again."""
    harness = led()
    others = [name for name in NODES if name != "n2"]
    harness.wait(40.0, others)
    assert harness.ask(ConfirmOff("c", "n2")).done
    assert harness.ask(RemoveNode("d", "n2")).done
    harness.wait(40.0, others)
    harness.vms["n2"] = {}
    harness.ask(AddNode("e", "n2"))
    harness.report("n2", watch=1)
    for name in others:
        harness.ask(DrainNode(f"drain-{name}", name, True))
    harness.ask(SubmitWeb("t", replace(shop(1), name="wiki")))
    harness.obey()
    numbers = [sent.number for name, sent in harness.watches if name == "n2"]
    assert watch(harness, "n2").targets
    assert numbers == sorted(set(numbers))


# --- replacing -------------------------------------------------------------------------------------------------------


def test_an_unhealthy_instance_is_replaced() -> None:
    """Given one of two that is unhealthy, then it is stopped, and another one runs in its place."""
    harness = led()
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == ["shop#1"]
    harness.obey()
    running = {
        vm: name for name in NODES for vm, status in harness.vms[name].items() if status.state is VmState.RUNNING
    }
    assert len(running) == 2
    assert told(harness, "web-instance-unhealthy") == [("shop#1", "on n2: refused")]
    assert told(harness, "web-instance-replaced") == [("shop#1", "on n2: refused; number 1 in the last hour")]
    assert "unhealthy unhealthy_s=0 in_last_hour=1" in told(harness, "web-instance-stopped")[-1][1]
    assert alarms(harness, "web-unhealthy") == []


def test_one_that_gets_well_is_told_once() -> None:
    harness = led(shop(probe=replace(PROBE, replace_max=0)))
    for _ in range(3):
        is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == []
    assert alarms(harness, "web-unhealthy") == ["shop#1 on n2: refused; none is replaced: replace_max is 0"]
    for _ in range(3):
        says(harness, "n2", row(harness, "shop#1", True))
    assert len(told(harness, "web-instance-unhealthy")) == len(told(harness, "web-instance-healthy")) == 1
    assert alarms(harness, "web-unhealthy") == []


def test_one_at_a_time() -> None:
    """Given both unhealthy: the second waits until another runs in the place of the first."""
    harness = led()
    is_ill(harness, "shop#0", "n1")
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == ["shop#0"]
    assert alarms(harness, "web-unhealthy") == ["shop#1 on n2: refused; another instance is being started or stopped"]
    harness.obey()
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == ["shop#1"]


def test_no_more_than_so_many_in_an_hour() -> None:
    """Given instances that are all ill whatever is done, then two are replaced, the next an hour after the first."""
    harness = led()
    times: list[float] = []
    while harness.now_s < 2.2 * HOUR_S:
        harness.now_s += 60.0
        for name in NODES:
            rows = [row(harness, vm) for vm, status in harness.vms[name].items() if status.state is VmState.RUNNING]
            harness.report(name, health=tuple(rows), watch=harness.controller.cluster.nodes[name].watch)
        times += [harness.now_s] * len(stopped(harness))
        if len(times) == 2 and harness.now_s > times[1]:
            assert "used up: 2 in the last hour" in alarms(harness, "web-unhealthy")[0]
        harness.obey()
    assert times == [60.0, 120.0, 60.0 + HOUR_S, 120.0 + HOUR_S, 60.0 + 2 * HOUR_S, 120.0 + 2 * HOUR_S]


def test_replacements_are_counted_across_leaders() -> None:
    harness = led()
    for vm, node in (("shop#0", "n1"), ("shop#1", "n2")):
        is_ill(harness, vm, node)
        harness.obey()
    successor = ControllerHarness(NODES, harness.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs, successor.now_s = harness.vms, harness.seqs, harness.now_s + 60.0
    successor.lead()
    name, vm = next((name, vm) for name in NODES for vm in harness.vms[name])
    is_ill(successor, vm, name)
    assert stopped(successor) == []
    assert alarms(successor, "web-unhealthy")[0].endswith("replacements used up: 2 in the last hour")


def test_one_at_a_time_across_leaders() -> None:
    """Given one that was stopped and has not been made good when another controller takes the lead."""
    harness = led()
    harness.compute = False
    is_ill(harness, "shop#1", "n2")
    (stop,) = harness.take_orders()
    harness.result(stop)
    successor = ControllerHarness(NODES, harness.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs, successor.now_s, successor.compute = (
        harness.vms,
        harness.seqs,
        harness.now_s + 60.0,
        False,
    )
    successor.lead()
    is_ill(successor, "shop#0", "n1")
    assert stopped(successor) == []
    successor.compute = True
    successor.answer(successor.computations[-1])
    successor.settle()
    successor.obey()
    assert sum(len(vms) for vms in successor.vms.values()) == 2
    is_ill(successor, "shop#0", "n1")
    assert stopped(successor) == ["shop#0"]


@pytest.mark.parametrize("automation", [Automation.ADVISE, Automation.CONFIRM])
def test_below_auto_it_is_only_told(automation: Automation) -> None:
    harness = led(automation=automation)
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == []
    assert alarms(harness, "web-unhealthy") == [
        f"shop#1 on n2: refused; none is replaced: automation is {automation.value}"
    ]


def test_not_while_deciding_is_paused() -> None:
    harness = led()
    harness.ask(SetDeciding("p", False))
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == []
    harness.ask(SetDeciding("q", True))
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == ["shop#1"]


def test_silence_is_no_illness() -> None:
    """Given an unhealthy instance that waits, and its node falls silent: it is not replaced before its node says so
    again."""
    harness = led()
    is_ill(harness, "shop#0", "n1")
    is_ill(harness, "shop#1", "n2")
    harness.wait(40.0, ("n1", "n3", "n4"))
    harness.obey()
    harness.wait(60.0, ("n1", "n3", "n4"))
    assert "shop#1" not in stopped(harness)
    is_ill(harness, "shop#1", "n2")
    assert stopped(harness) == ["shop#1"]


def test_an_agent_that_begins_anew_has_found_nothing_out() -> None:
    """Given an unhealthy instance that waits; its agent begins anew, and then it is well after all."""
    harness = led()
    is_ill(harness, "shop#0", "n1")
    is_ill(harness, "shop#1", "n2")
    says(harness, "n2", row(harness, "shop#1", True, "", probes=0))
    harness.obey()
    says(harness, "n2", row(harness, "shop#1", True, "refused once", probes=1))
    assert stopped(harness) == []
    assert told(harness, "web-instance-healthy") == []
    says(harness, "n2", row(harness, "shop#1", True))
    assert told(harness, "web-instance-healthy") == [("shop#1", "on n2")]


def test_what_is_said_of_another_life_or_by_another_node_is_not_heard() -> None:
    harness = led()
    earlier = Health("shop#1", 0, False, 0.0, "refused", 9)
    says(harness, "n2", earlier)
    harness.report("n1", health=(row(harness, "shop#1"), Health("nobody#0", 1, False, 0.0, "x", 1)), watch=1)
    assert told(harness, "web-instance-unhealthy") == []
    assert stopped(harness) == []


def test_a_command_that_a_node_does_not_know_is_a_mistake_of_the_configuration() -> None:
    harness = led()
    unknown = f"{UNKNOWN_COMMAND} 'check'; there are: none"
    for _ in range(2):
        says(harness, "n2", row(harness, "shop#1", True, unknown))
    assert told(harness, "probe-unknown") == [("shop#1", f"on n2: {unknown}")]
    assert alarms(harness, "probe-unknown") == [f"shop#1: on n2: {unknown}"]
    assert stopped(harness) == []
    says(harness, "n2", row(harness, "shop#1", True))
    assert alarms(harness, "probe-unknown") == []


def test_with_a_goal_as_many_run_again_without_waiting_for_a_cycle() -> None:
    """Given an application whose number a policy chooses at each cycle: what has run is the least until it is made
    good, although fewer would do."""
    flow = Flow("browse", mean_s=0.5, work_mcycles=20.0)
    harness = led(shop(flows=(flow,)))
    web = harness.controller.cluster.web["shop"]
    harness.ask(SubmitWeb("t", shop(1, 3, flows=(flow,))))
    assert web.sizes(False)[0] == 1
    is_ill(harness, "shop#1", "n2")
    harness.obey()
    assert sum(len(vms) for vms in harness.vms.values()) == 2
    harness.report("n4")
    is_ill(harness, "shop#0", "n1")
    assert web.sizes(False)[0] == 2


def test_health_in_the_view() -> None:
    harness = led(shop(probe=replace(PROBE, replace_max=0)))
    is_ill(harness, "shop#1", "n2")
    says(harness, "n1", row(harness, "shop#0", True))
    replicas = harness.ask(Query("q", "web-app", subject="shop")).data["app"]["seats"]
    found = {replica["vm"]: replica["health"] for replica in replicas if replica["health"] is not None}
    assert found == {
        "shop#0": {"node": "n1", "healthy": True, "since_s": harness.now_s, "detail": "", "probes": 5},
        "shop#1": {"node": "n2", "healthy": False, "since_s": harness.now_s, "detail": "refused", "probes": 5},
    }


def test_the_one_that_takes_its_place_waits_until_it_has_left_their_node() -> None:
    """Given two nodes for two instances, and an unhealthy one whose stop is not answered yet."""
    harness = ControllerHarness(("n1", "n2"), placement=PolicyChoice("first-fit"), web_adjust_s=100_000.0).lead()
    harness.ask(SubmitWeb("s", shop()))
    harness.obey()
    harness.take_orders()
    is_ill(harness, "shop#1", "n2")
    harness.wait(20.0, ("n1", "n2"))
    (stop,) = harness.take_orders()
    assert (stop.kind, stop.vm) == (ActionKind.STOP, "shop#1")
    harness.result(stop)
    harness.wait(10.0, ("n1", "n2"))
    (start,) = harness.take_orders()
    assert (start.kind, start.node) == (ActionKind.START, "n2")
