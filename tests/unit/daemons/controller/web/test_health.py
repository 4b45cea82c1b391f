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
    desk = ControllerHarness(NODES, placement=PolicyChoice("first-fit"), web_adjust_s=100_000.0, **settings).lead()
    desk.ask(SubmitWeb("s", app or shop()))
    desk.obey()
    assert [sorted(desk.vms[name]) for name in NODES] == [["shop#0"], ["shop#1"], [], []]
    return desk


def watch(desk: ControllerHarness, node: str) -> Watch:
    """What a node was sent last."""
    return [sent for name, sent in desk.watches if name == node][-1]


def says(desk: ControllerHarness, node: str, *rows: Health, **fields: Any) -> None:
    """A report of a node that goes by the list that it was sent."""
    fields.setdefault("watch", watch(desk, node).number)
    desk.report(node, health=rows, **fields)


def row(desk: ControllerHarness, vm: str, healthy: bool = False, detail: str = "refused", probes: int = 5) -> Health:
    generation = desk.controller.cluster.instances[vm].generation
    return Health(vm, generation, healthy, desk.now_s, "" if healthy and detail == "refused" else detail, probes)


def is_ill(desk: ControllerHarness, vm: str, node: str) -> None:
    says(desk, node, row(desk, vm))


def stopped(desk: ControllerHarness) -> list[str]:
    return [order.vm for order in desk.orders if order.kind is ActionKind.STOP]


def told(desk: ControllerHarness, what: str) -> list[tuple[str, str]]:
    return [(event.subject, event.detail) for event in desk.happenings(what)]


def alarms(desk: ControllerHarness, what: str) -> list[str]:
    rows = desk.ask(Query("q", "status")).data["alarms"]
    return [each["detail"] for each in rows if each["what"] == what and each["subject"] == "shop"]


# --- telling ---------------------------------------------------------------------------------------------------------


def test_each_node_is_told_what_runs_on_it() -> None:
    desk = led()
    assert desk.watches == [
        ("n1", Watch(desk.controller.unit_of_work.term, 1, (Target("shop#0", 1, PROBE),))),
        ("n2", Watch(desk.controller.unit_of_work.term, 1, (Target("shop#1", 1, PROBE),))),
    ]
    for _ in range(5):
        desk.now_s += 5.0
        for name in ("n1", "n2"):
            says(desk, name)
    assert len(desk.watches) == 2


def test_without_a_probe_nobody_is_told_anything() -> None:
    assert led(shop(probe=None)).watches == []


def test_a_probe_that_is_changed_or_removed_holds_at_once() -> None:
    desk = led()
    other = replace(PROBE, port=8080)
    desk.ask(SubmitWeb("t", shop(probe=other)))
    assert watch(desk, "n1") == Watch(1, 2, (Target("shop#0", 1, other),))
    desk.ask(SubmitWeb("u", shop(probe=None)))
    assert [watch(desk, name) for name in ("n1", "n2")] == [Watch(1, 3), Watch(1, 3)]


def test_an_instance_that_moves_is_watched_where_it_is() -> None:
    desk = led()
    entry = desk.controller.cluster.active["shop#1"]
    desk.controller.cluster.set_allotments(entry, (Allotment("n3", 1000.0),))
    entry.revision += 1
    desk.controller.unit_of_work.change(entry)
    desk.report("n4")
    desk.obey()
    assert watch(desk, "n2") == Watch(1, 2)
    assert watch(desk, "n3") == Watch(1, 1, (Target("shop#1", 1, PROBE),))


def test_one_that_is_removed_is_not_watched() -> None:
    desk = led()
    desk.ask(RemoveWeb("r", "shop"))
    assert [watch(desk, name).targets for name in ("n1", "n2")] == [(), ()]


def test_an_agent_that_begins_anew_is_told_again_and_not_too_often() -> None:
    """Given an agent that goes by nothing: it is told after two report periods, and again only after two more."""
    desk = led()
    sent = len(desk.watches)
    desk.now_s += 4.0
    says(desk, "n1", watch=0)
    assert len(desk.watches) == sent  # what was sent may be on its way
    desk.now_s += 7.0
    says(desk, "n1", watch=0)
    assert watch(desk, "n1") == Watch(1, 2, (Target("shop#0", 1, PROBE),))
    says(desk, "n1", watch=0)
    assert len(desk.watches) == sent + 1


def test_a_new_leader_tells_everyone_and_takes_old_lists_back() -> None:
    """Given an agent that goes by the list of an earlier leader, and nothing on it is to be watched any more."""
    desk = led()
    successor = ControllerHarness(NODES, desk.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs = desk.vms, desk.seqs
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
    desk = led()
    desk.wait(40.0, ("n2", "n3", "n4"))
    desk.ask(SubmitWeb("t", shop(probe=replace(PROBE, port=81))))
    assert watch(desk, "n1").number == 1
    desk.report("n1", watch=1)
    assert watch(desk, "n1").targets[0].probe.port == 81


def test_a_node_that_is_added_again_is_sent_no_smaller_number() -> None:
    """Given an agent that goes on while its node is taken for off, removed, and added again."""
    desk = led()
    others = [name for name in NODES if name != "n2"]
    desk.wait(40.0, others)
    assert desk.ask(ConfirmOff("c", "n2")).done
    assert desk.ask(RemoveNode("d", "n2")).done
    desk.wait(40.0, others)
    desk.vms["n2"] = {}
    desk.ask(AddNode("e", "n2"))
    desk.report("n2", watch=1)
    for name in others:
        desk.ask(DrainNode(f"drain-{name}", name, True))
    desk.ask(SubmitWeb("t", replace(shop(1), name="wiki")))
    desk.obey()
    numbers = [sent.number for name, sent in desk.watches if name == "n2"]
    assert watch(desk, "n2").targets
    assert numbers == sorted(set(numbers))


# --- replacing -------------------------------------------------------------------------------------------------------


def test_an_unhealthy_instance_is_replaced() -> None:
    """Given one of two that is unhealthy, then it is stopped, and another one runs in its place."""
    desk = led()
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == ["shop#1"]
    desk.obey()
    running = {vm: name for name in NODES for vm, status in desk.vms[name].items() if status.state is VmState.RUNNING}
    assert len(running) == 2
    assert told(desk, "web-instance-unhealthy") == [("shop#1", "on n2: refused")]
    assert told(desk, "web-instance-replaced") == [("shop#1", "on n2: refused; number 1 in the last hour")]
    assert "unhealthy unhealthy_s=0 in_last_hour=1" in told(desk, "web-instance-stopped")[-1][1]
    assert alarms(desk, "web-unhealthy") == []


def test_one_that_gets_well_is_told_once() -> None:
    desk = led(shop(probe=replace(PROBE, replace_max=0)))
    for _ in range(3):
        is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == []
    assert alarms(desk, "web-unhealthy") == ["shop#1 on n2: refused; none is replaced: replace_max is 0"]
    for _ in range(3):
        says(desk, "n2", row(desk, "shop#1", True))
    assert len(told(desk, "web-instance-unhealthy")) == len(told(desk, "web-instance-healthy")) == 1
    assert alarms(desk, "web-unhealthy") == []


def test_one_at_a_time() -> None:
    """Given both unhealthy: the second waits until another runs in the place of the first."""
    desk = led()
    is_ill(desk, "shop#0", "n1")
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == ["shop#0"]
    assert alarms(desk, "web-unhealthy") == ["shop#1 on n2: refused; another instance is being started or stopped"]
    desk.obey()
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == ["shop#1"]


def test_no_more_than_so_many_in_an_hour() -> None:
    """Given instances that are all ill whatever is done, then two are replaced, the next an hour after the first."""
    desk = led()
    times: list[float] = []
    while desk.now_s < 2.2 * HOUR_S:
        desk.now_s += 60.0
        for name in NODES:
            rows = [row(desk, vm) for vm, status in desk.vms[name].items() if status.state is VmState.RUNNING]
            desk.report(name, health=tuple(rows), watch=desk.controller.cluster.nodes[name].watch)
        times += [desk.now_s] * len(stopped(desk))
        if len(times) == 2 and desk.now_s > times[1]:
            assert "used up: 2 in the last hour" in alarms(desk, "web-unhealthy")[0]
        desk.obey()
    assert times == [60.0, 120.0, 60.0 + HOUR_S, 120.0 + HOUR_S, 60.0 + 2 * HOUR_S, 120.0 + 2 * HOUR_S]


def test_replacements_are_counted_across_leaders() -> None:
    desk = led()
    for vm, node in (("shop#0", "n1"), ("shop#1", "n2")):
        is_ill(desk, vm, node)
        desk.obey()
    successor = ControllerHarness(NODES, desk.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs, successor.now_s = desk.vms, desk.seqs, desk.now_s + 60.0
    successor.lead()
    name, vm = next((name, vm) for name in NODES for vm in desk.vms[name])
    is_ill(successor, vm, name)
    assert stopped(successor) == []
    assert alarms(successor, "web-unhealthy")[0].endswith("replacements used up: 2 in the last hour")


def test_one_at_a_time_across_leaders() -> None:
    """Given one that was stopped and has not been made good when another controller takes the lead."""
    desk = led()
    desk.compute = False
    is_ill(desk, "shop#1", "n2")
    (stop,) = desk.take_orders()
    desk.result(stop)
    successor = ControllerHarness(NODES, desk.store, placement=PolicyChoice("first-fit"))
    successor.vms, successor.seqs, successor.now_s, successor.compute = desk.vms, desk.seqs, desk.now_s + 60.0, False
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
    desk = led(automation=automation)
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == []
    assert alarms(desk, "web-unhealthy") == [
        f"shop#1 on n2: refused; none is replaced: automation is {automation.value}"
    ]


def test_not_while_deciding_is_paused() -> None:
    desk = led()
    desk.ask(SetDeciding("p", False))
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == []
    desk.ask(SetDeciding("q", True))
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == ["shop#1"]


def test_silence_is_no_illness() -> None:
    """Given an unhealthy instance that waits, and its node falls silent: it is not replaced before its node says so
    again."""
    desk = led()
    is_ill(desk, "shop#0", "n1")
    is_ill(desk, "shop#1", "n2")
    desk.wait(40.0, ("n1", "n3", "n4"))
    desk.obey()
    desk.wait(60.0, ("n1", "n3", "n4"))
    assert "shop#1" not in stopped(desk)
    is_ill(desk, "shop#1", "n2")
    assert stopped(desk) == ["shop#1"]


def test_an_agent_that_begins_anew_has_found_nothing_out() -> None:
    """Given an unhealthy instance that waits; its agent begins anew, and then it is well after all."""
    desk = led()
    is_ill(desk, "shop#0", "n1")
    is_ill(desk, "shop#1", "n2")
    says(desk, "n2", row(desk, "shop#1", True, "", probes=0))
    desk.obey()
    says(desk, "n2", row(desk, "shop#1", True, "refused once", probes=1))
    assert stopped(desk) == []
    assert told(desk, "web-instance-healthy") == []
    says(desk, "n2", row(desk, "shop#1", True))
    assert told(desk, "web-instance-healthy") == [("shop#1", "on n2")]


def test_what_is_said_of_another_life_or_by_another_node_is_not_heard() -> None:
    desk = led()
    earlier = Health("shop#1", 0, False, 0.0, "refused", 9)
    says(desk, "n2", earlier)
    desk.report("n1", health=(row(desk, "shop#1"), Health("nobody#0", 1, False, 0.0, "x", 1)), watch=1)
    assert told(desk, "web-instance-unhealthy") == []
    assert stopped(desk) == []


def test_a_command_that_a_node_does_not_know_is_a_mistake_of_the_configuration() -> None:
    desk = led()
    unknown = f"{UNKNOWN_COMMAND} 'check'; there are: none"
    for _ in range(2):
        says(desk, "n2", row(desk, "shop#1", True, unknown))
    assert told(desk, "probe-unknown") == [("shop#1", f"on n2: {unknown}")]
    assert alarms(desk, "probe-unknown") == [f"shop#1: on n2: {unknown}"]
    assert stopped(desk) == []
    says(desk, "n2", row(desk, "shop#1", True))
    assert alarms(desk, "probe-unknown") == []


def test_with_a_goal_as_many_run_again_without_waiting_for_a_cycle() -> None:
    """Given an application whose number a policy chooses at each cycle: what has run is the least until it is made
    good, although fewer would do."""
    flow = Flow("browse", mean_s=0.5, work_mcycles=20.0)
    desk = led(shop(flows=(flow,)))
    web = desk.controller.cluster.web["shop"]
    desk.ask(SubmitWeb("t", shop(1, 3, flows=(flow,))))
    assert web.sizes(False)[0] == 1
    is_ill(desk, "shop#1", "n2")
    desk.obey()
    assert sum(len(vms) for vms in desk.vms.values()) == 2
    desk.report("n4")
    is_ill(desk, "shop#0", "n1")
    assert web.sizes(False)[0] == 2


def test_health_in_the_view() -> None:
    desk = led(shop(probe=replace(PROBE, replace_max=0)))
    is_ill(desk, "shop#1", "n2")
    says(desk, "n1", row(desk, "shop#0", True))
    replicas = desk.ask(Query("q", "web-app", subject="shop")).data["app"]["seats"]
    found = {replica["vm"]: replica["health"] for replica in replicas if replica["health"] is not None}
    assert found == {
        "shop#0": {"node": "n1", "healthy": True, "since_s": desk.now_s, "detail": "", "probes": 5},
        "shop#1": {"node": "n2", "healthy": False, "since_s": desk.now_s, "detail": "refused", "probes": 5},
    }


def test_the_one_that_takes_its_place_waits_until_it_has_left_their_node() -> None:
    """Given two nodes for two instances, and an unhealthy one whose stop is not answered yet."""
    desk = ControllerHarness(("n1", "n2"), placement=PolicyChoice("first-fit"), web_adjust_s=100_000.0).lead()
    desk.ask(SubmitWeb("s", shop()))
    desk.obey()
    desk.take_orders()
    is_ill(desk, "shop#1", "n2")
    desk.wait(20.0, ("n1", "n2"))
    (stop,) = desk.take_orders()
    assert (stop.kind, stop.vm) == (ActionKind.STOP, "shop#1")
    desk.result(stop)
    desk.wait(10.0, ("n1", "n2"))
    (start,) = desk.take_orders()
    assert (start.kind, start.node) == (ActionKind.START, "n2")
