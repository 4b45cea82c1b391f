"""Coordination live: the paper's order of events, with a controller on a desk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.state.environment import NOT_BEGUN
from daemons.policies.coordination.bounds import FixedBounds
from shared.policy_api.coordination import GroupSizes, GroupView, Moment
from shared.protocol.operator_messages import DrainNode, RepairNode
from shared.values.agreement import EnvironmentState, Granularity, VmTemplate
from shared.values.nodes import Handover
from tests.extent import first
from tests.support import parts
from tests.support.coordination_harness import KILL, LEASE_S, CoordinationHarness


def test_fixed_bounds_follow_the_papers_order() -> None:
    desk = CoordinationHarness(10).begin()
    desk.pair(6, 4)
    assert desk.sizes() == {"hpc": 10, "shop": 0}
    desk.app("site", 3)
    assert desk.held() == {"hpc": 7, "shop": 3}
    desk.demand("site", 1)
    assert desk.held() == {"hpc": 7, "shop": 1}  # what the web gives back waits for the provider's timer
    desk.demand("site", 4)  # the provider's idle nodes come first, then idle ones of the batch side
    assert desk.held() == {"hpc": 6, "shop": 4}
    desk.demand("site", 2)
    desk.pass_time(LEASE_S)
    assert desk.held() == {"hpc": 8, "shop": 2} == desk.sizes()
    assert desk.controller.cluster.replicas_wanted("site") == 2


def test_web_growth_suspends_the_smallest_job_first_and_then_the_one_that_started_last() -> None:
    desk = CoordinationHarness(10).begin()
    hpc, _ = desk.pair(6, 4)
    for name, size in (("large", 4), ("early", 2), ("late", 2), ("small", 1)):
        desk.submit(name, size)
        desk.pass_time(60.0)
    desk.app("site", 1)  # an idle node does
    assert set(desk.phases().values()) == {"running"}
    desk.demand("site", 2)
    assert [event.subject for event in desk.happenings("job-suspended-for-environment")] == ["small"]
    desk.demand("site", 3)
    assert [event.subject for event in desk.happenings("job-suspended-for-environment")] == ["small", "late"]
    assert hpc.suspended == 2
    assert desk.held() == {"hpc": 7, "shop": 3}
    assert desk.phases() == {"large": "running", "early": "running", "late": "suspended", "small": "running"}


def test_killed_jobs_go_back_to_their_place_and_their_work_is_counted_as_lost() -> None:
    desk = CoordinationHarness(4).begin()
    hpc, _ = desk.pair(3, 1, batch=KILL)
    desk.submit("wide", 2)
    desk.submit("first", 2)
    desk.submit("second", 2)
    killed = desk.controller.cluster.jobs["first"]
    for instance in killed.instances:
        instance.done_mcycles = 3_600_000.0
    desk.app("site", 1)
    assert hpc.killed == 1
    assert hpc.suspended == 0
    assert hpc.lost_node_hours == 2.0
    assert desk.phases() == {"wide": "running", "first": "waiting", "second": "waiting"}
    desk.demand("site", 0)
    desk.pass_time(LEASE_S)
    assert desk.phases() == {"wide": "running", "first": "running", "second": "waiting"}
    assert killed.attempt == 2
    assert killed.failures == 0


def test_a_batch_environment_asks_and_gives_back_by_its_managers_ratios() -> None:
    desk = CoordinationHarness(20).begin()
    hpc, _ = desk.pair(3, 2, model="flb-nub")
    assert desk.sizes() == {"hpc": 5, "shop": 0}
    desk.submit("runs", 5)
    for name in ("one", "two"):
        desk.submit(name, 4)
    desk.pass_time(LEASE_S - 60.0)
    assert desk.held()["hpc"] == 5
    desk.pass_time(60.0)  # 8 queued exceed 1.2 x 5: DR1 = 3
    assert desk.held()["hpc"] == 8
    desk.app("site", 4)  # from outside: nothing of the batch environment's
    assert desk.held() == {"hpc": 8, "shop": 4}
    assert hpc.suspended == 0
    desk.submit("wide", 10)
    desk.pass_time(LEASE_S)  # 18 are queued, DR1 = 10: 8 are free
    assert desk.held() == {"hpc": 16, "shop": 4}
    for name in ("one", "runs", "two", "wide"):
        desk.finish(name)
    sizes = []
    for _ in range(6):
        desk.pass_time(LEASE_S)
        sizes.append(desk.sizes()["hpc"])
    assert sizes == [8, 4, 2, 1, 1, 1]  # RSS: half of the idle ones
    assert desk.held() == {"hpc": 1, "shop": 4}


def test_the_managers_request_for_its_biggest_job() -> None:
    desk = CoordinationHarness(12).begin()
    desk.environment("hpc", "batch", 5, model="flb-nub")
    desk.look()
    desk.submit("runs", 3)
    desk.submit("big", 6)
    desk.pass_time(LEASE_S)
    assert desk.held()["hpc"] == 9  # 6 / 5 does not exceed 1.2: DR2 = 6 - 2 idle
    assert desk.phases()["big"] == "running"


def test_a_web_environment_that_gets_nothing_waits_and_is_served_when_units_are_free() -> None:
    desk = CoordinationHarness(6).begin()
    _, shop = desk.pair(3, 1, model="flb-nub")
    desk.app("site", 4)
    assert desk.sizes() == {"hpc": 4, "shop": 2}
    assert [event.subject for event in desk.happenings("environment-waits")] == ["shop"]
    assert "2 more units" in shop.detail
    desk.add_nodes(1)
    assert desk.sizes() == {"hpc": 4, "shop": 3}
    desk = desk.successor()
    shop = desk.controller.cluster.environments["shop"]
    assert "1 more units" in shop.detail
    desk.add_nodes(2)
    assert desk.sizes() == {"hpc": 4, "shop": 4}
    assert desk.held() == {"hpc": 4, "shop": 4}
    assert shop.detail == ""


def test_lent_units_come_back_at_once_when_idle_and_within_a_lease_unit_when_not() -> None:
    desk = CoordinationHarness(10).begin()
    desk.environment("lender", "batch", 2, model="flb-nub", upper=8)
    desk.environment("taker", "batch", 0, model="flb-nub")
    desk.look()
    desk.submit("much", 6, environment="taker")
    desk.submit("more", 2, environment="taker")
    desk.pass_time(LEASE_S)
    assert desk.held() == {"lender": 1, "taker": 8}
    desk.finish("more")
    desk.submit("own", 5, environment="lender")
    desk.pass_time(LEASE_S)  # 5 wanted: one is free, the two idle ones of the taker come at once
    assert desk.held() == {"lender": 4, "taker": 6}
    assert desk.phases() == {"much": "running", "more": "completed", "own": "waiting"}
    desk.pass_time(LEASE_S - 1.0)
    assert desk.held() == {"lender": 4, "taker": 6}
    desk.pass_time(1.0)
    assert desk.held() == {"lender": 5, "taker": 5}
    assert desk.phases() == {"much": "suspended", "more": "completed", "own": "running"}
    assert desk.controller.cluster.environments["taker"].suspended == 1


def test_lower_bounds_are_never_lent() -> None:
    desk = CoordinationHarness(10).begin()
    desk.environment("quiet", "web", 4)
    desk.environment("taker", "batch", 2, model="flb-nub")
    desk.look()
    desk.submit("much", 10, environment="taker", goal_s=None)
    desk.pass_time(LEASE_S)
    assert desk.held() == {"quiet": 0, "taker": 6}
    desk.app("site", 4, "quiet")
    assert desk.held() == {"quiet": 4, "taker": 6}


def test_another_node_takes_the_place_of_one_that_is_lost_and_the_lost_one_is_surplus_when_it_returns() -> None:
    desk = CoordinationHarness(6, silent_after_s=15.0).begin()
    desk.pair(3, 1)
    desk.app("site", 1)
    lost = desk.given("hpc")[0]
    spare = [name for name, node in desk.controller.cluster.nodes.items() if not node.given]
    desk.mute(lost)
    desk.pass_reporting(60.0)
    assert desk.held() == {"hpc": 3, "shop": 1}  # it may come back
    desk.pass_reporting(120.0)
    assert desk.held() == {"hpc": 4, "shop": 1}
    assert set(desk.given("hpc")) & set(spare)
    desk.unmute(lost)
    desk.pass_reporting(30.0)
    assert desk.held() == {"hpc": 3, "shop": 1} == desk.sizes()


def test_when_nodes_are_lost_and_there_are_no_others_the_web_environment_is_served_first() -> None:
    desk = CoordinationHarness(4, silent_after_s=15.0).begin()
    desk.pair(2, 2)
    desk.app("site", 2)
    desk.mute(desk.given("shop")[0])
    desk.pass_reporting(140.0)
    assert len(set(desk.given("shop")) - desk.muted) == 2
    assert len(desk.given("hpc")) == 1
    desk.unmute(*desk.muted)
    desk.pass_reporting(30.0)
    assert desk.held() == {"hpc": 2, "shop": 2} == desk.sizes()


def test_an_operator_who_keeps_a_node_out_has_another_one_take_its_place() -> None:
    desk = CoordinationHarness(3).begin()
    desk.environment("hpc", "batch", 2, model="dedicated")
    desk.look()
    kept_out = desk.given("hpc")[0]
    desk.ask(DrainNode("drain", kept_out, True))
    desk.pass_time(10.0)
    assert len(set(desk.given("hpc")) - {kept_out}) == 2


def test_an_agreement_that_spoils_every_node_is_given_some_and_not_all() -> None:
    desk = CoordinationHarness(8).begin()
    desk.environment("bad", "batch", 2, model="dedicated")
    desk.environment("good", "batch", 1, model="dedicated")
    spoilt: set[str] = set()
    for _ in range(8):
        desk.look()
        for name in set(desk.given("bad")) - spoilt:
            node = desk.controller.cluster.nodes[name]
            node.environment, node.handover = "bad", Handover.FAILED
            spoilt.add(name)
    assert len(spoilt) == 4  # two, and two more: after that it is known to be at fault
    assert len(desk.given("good")) == 1
    for name in sorted(spoilt)[:2]:
        desk.ask(RepairNode(f"repair {name}", name))
    desk.look()
    counted = [
        name for name in desk.given("bad") if desk.controller.cluster.nodes[name].handover is not Handover.FAILED
    ]
    assert counted == sorted(spoilt)[:2]


def test_nodes_of_another_system_are_not_given() -> None:
    desk = CoordinationHarness(4)
    for name in ("n001", "n003"):
        desk.nodes[name] = replace(desk.nodes[name], os_type="debian", os_version="12")
    desk.begin()
    desk.environment("hpc", "batch", 2, os_type="debian", os_version="12")
    desk.look()
    assert desk.given("hpc") == ["n001", "n003"]
    desk.nodes["n001"] = replace(desk.nodes["n001"], os_version="13")
    for _ in range(2):  # it is heard of, and seen
        desk.look()
    assert desk.given("hpc") == ["n003"]


def test_on_demand_units_come_with_the_jobs_and_go_at_the_end_of_a_lease_unit() -> None:
    desk = CoordinationHarness(8).begin()
    desk.environment("hpc", "batch", 0, model="on-demand")
    desk.look()
    assert desk.held() == {"hpc": 0}
    desk.pass_time(100.0)
    desk.submit("one", 3)
    assert desk.held() == {"hpc": 3}
    assert desk.phases() == {"one": "running"}
    desk.finish("one")
    desk.pass_time(LEASE_S - 160.0)
    assert desk.held() == {"hpc": 3}
    desk.pass_time(60.0)
    assert desk.held() == {"hpc": 0}


def test_while_the_controller_only_observes_nothing_is_shared_and_a_missed_timer_fires_once() -> None:
    desk = CoordinationHarness(10).begin()
    desk.pair(6, 4)
    desk.app("site", 3)
    desk.demand("site", 1)
    desk.controller.unit_of_work.acting = False
    desk.pass_time(2.5 * LEASE_S)
    assert desk.held() == {"hpc": 7, "shop": 1}
    desk.controller.unit_of_work.acting = True
    desk.look()
    assert desk.held() == {"hpc": 9, "shop": 1}
    desk.demand("site", 2)
    desk.demand("site", 0)
    desk.pass_time(0.5 * LEASE_S - 1.0)
    assert desk.held() == {"hpc": 8, "shop": 0}
    desk.pass_time(1.0)
    assert desk.held() == {"hpc": 10, "shop": 0}


def test_a_successor_keeps_sizes_and_the_phase_of_the_timers() -> None:
    desk = CoordinationHarness(10).begin()
    desk.pair(6, 4)
    desk.app("site", 3)
    desk.submit("one", 2)
    desk.demand("site", 1)
    desk.pass_time(100.0)
    desk = desk.successor()
    assert desk.held() == {"hpc": 7, "shop": 1} == desk.sizes()
    desk.pass_time(LEASE_S - 101.0)
    assert desk.held() == {"hpc": 7, "shop": 1}
    desk.pass_time(1.0)
    assert desk.held() == {"hpc": 9, "shop": 1}
    assert desk.controller.cluster.environments["hpc"].suspended == 0


def test_a_partner_that_is_deactivated_leaves_the_other_alone_with_its_own_bound() -> None:
    desk = CoordinationHarness(10).begin()
    hpc, shop = desk.pair(6, 4)
    desk.app("site", 3)
    shop.wanted = EnvironmentState.DEACTIVATED
    hpc.partner = shop.partner = ""
    parts.coordination(desk.controller).changed("shop", desk.now_s)
    desk.look()
    assert desk.sizes() == {"hpc": 6, "shop": 0}
    assert desk.held() == {"hpc": 6, "shop": 0}


def test_a_policy_that_raises_leaves_its_environments_what_they_have() -> None:
    desk = CoordinationHarness(4).begin()
    desk.environment("hpc", "batch", 2)
    desk.look()

    class Broken(FixedBounds):
        def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
            raise ZeroDivisionError(f"{moment} of {len(group.parties)}")

    parts.coordination(desk.controller).groups[0].policy = Broken()
    desk.pass_time(LEASE_S)
    assert desk.held() == {"hpc": 2}
    assert len(desk.happenings("coordination-failed")) == 2


SCRIPT: tuple[Callable[[CoordinationHarness], None], ...] = (
    lambda desk: desk.submit("wide", 5),
    lambda desk: desk.submit("slim", 2),
    lambda desk: desk.demand("site", 4),
    lambda desk: desk.pass_time(100.0),
    lambda desk: desk.demand("site", 2),
    lambda desk: desk.pass_time(LEASE_S - 100.0),
)


@pytest.mark.parametrize("crash", first(range(len(SCRIPT)), 2))
@pytest.mark.parametrize("stored", [True, False])
def test_sizes_come_out_the_same_wherever_the_controller_crashes(crash: int, stored: bool) -> None:
    """stored: what the step did was in the store; else it is asked for again."""
    desk = CoordinationHarness(10).begin()
    desk.pair(6, 4)
    desk.app("site", 1)
    for number, step in enumerate(SCRIPT):
        if number == crash and not stored:
            desk.store_fails = (False, "gone")
            step(desk)
            desk = desk.successor()
        step(desk)
        if number == crash and stored:
            desk = desk.successor()
    assert desk.held() == {"hpc": 8, "shop": 2} == desk.sizes()
    assert desk.phases() == {"wide": "running", "slim": "running"}
    assert desk.controller.cluster.environments["hpc"].suspended == 1


def test_units_that_are_vms_are_a_quota_and_take_no_nodes() -> None:
    desk = CoordinationHarness(6).begin()
    template = VmTemplate("small", 2, 2_000, 2_000.0)  # two of them on a node
    vms: dict[str, Any] = {"granularity": Granularity.VM, "template": template}
    desk.environment("hpc", "batch", 4, "shop", **vms)
    desk.environment("shop", "web", 2, "hpc", **vms)
    desk.environment("nodes", "batch", 2, model="flb-nub")
    desk.look()
    assert desk.sizes() == {"hpc": 6, "shop": 0, "nodes": 2}
    assert desk.held() == {"hpc": 0, "shop": 0, "nodes": 2}
    for name, size in (("one", 1), ("two", 2), ("three", 3)):
        desk.submit(name, size, memory_mib=2_000)
    assert set(desk.phases().values()) == {"running"}
    desk.app("site", 2, cores=2)
    assert desk.sizes() == {"hpc": 4, "shop": 2, "nodes": 2}
    assert desk.phases() == {"one": "running", "two": "suspended", "three": "running"}  # one VM was freed in surplus
    desk.submit("many", 6, "nodes", memory_mib=2_000)
    desk.pass_time(LEASE_S)  # of the four nodes that are left, three hold the six VMs
    assert desk.held()["nodes"] == 3


def test_more_vms_than_have_room_are_not_granted() -> None:
    desk = CoordinationHarness(3).begin()
    template = VmTemplate("small", 2, 2_000, 2_000.0)
    desk.environment("hpc", "batch", 1, model="flb-nub", granularity=Granularity.VM, template=template)
    desk.environment("nodes", "batch", 1)
    desk.look()
    for number in range(9):
        desk.submit(f"j{number}", memory_mib=2_000)
    desk.pass_time(LEASE_S)
    assert desk.sizes() == {"hpc": 4, "nodes": 1}
    assert list(desk.phases().values()).count("running") == 4


def test_an_environment_that_is_activated_anew_within_an_instant_begins_anew() -> None:
    desk = CoordinationHarness(4).begin()
    hpc = desk.environment("hpc", "batch", 2)
    desk.look()
    desk.pass_time(50.0)
    hpc.started_s, hpc.size = NOT_BEGUN, 0
    parts.coordination(desk.controller).changed("hpc", desk.now_s)
    desk.look()
    assert hpc.started_s == 50.0
    assert desk.held() == {"hpc": 2} == desk.sizes()
