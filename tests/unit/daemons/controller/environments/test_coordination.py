"""Coordination live: the paper's order of events, with one controller core."""

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
    harness = CoordinationHarness(10).begin()
    harness.pair(6, 4)
    assert harness.sizes() == {"hpc": 10, "shop": 0}
    harness.app("site", 3)
    assert harness.held() == {"hpc": 7, "shop": 3}
    harness.demand("site", 1)
    assert harness.held() == {"hpc": 7, "shop": 1}  # what the web gives back waits for the provider's timer
    harness.demand("site", 4)  # the provider's idle nodes come first, then idle ones of the batch side
    assert harness.held() == {"hpc": 6, "shop": 4}
    harness.demand("site", 2)
    harness.pass_time(LEASE_S)
    assert harness.held() == {"hpc": 8, "shop": 2} == harness.sizes()
    assert len(harness.controller.cluster.replicas_wanted("site")) == 2


def test_web_growth_suspends_the_smallest_job_first_and_then_the_one_that_started_last() -> None:
    harness = CoordinationHarness(10).begin()
    hpc, _ = harness.pair(6, 4)
    for name, size in (("large", 4), ("early", 2), ("late", 2), ("small", 1)):
        harness.submit(name, size)
        harness.pass_time(60.0)
    harness.app("site", 1)  # an idle node does
    assert set(harness.phases().values()) == {"running"}
    harness.demand("site", 2)
    assert [event.subject for event in harness.happenings("job-suspended-for-environment")] == ["small"]
    harness.demand("site", 3)
    assert [event.subject for event in harness.happenings("job-suspended-for-environment")] == ["small", "late"]
    assert hpc.suspended == 2
    assert harness.held() == {"hpc": 7, "shop": 3}
    assert harness.phases() == {"large": "running", "early": "running", "late": "suspended", "small": "running"}


def test_killed_jobs_go_back_to_their_place_and_their_work_is_counted_as_lost() -> None:
    harness = CoordinationHarness(4).begin()
    hpc, _ = harness.pair(3, 1, batch=KILL)
    harness.submit("wide", 2)
    harness.submit("first", 2)
    harness.submit("second", 2)
    killed = harness.controller.cluster.jobs["first"]
    for instance in killed.instances:
        instance.done_mcycles = 3_600_000.0
    harness.app("site", 1)
    assert hpc.killed == 1
    assert hpc.suspended == 0
    assert hpc.lost_node_hours == 2.0
    assert harness.phases() == {"wide": "running", "first": "waiting", "second": "waiting"}
    harness.demand("site", 0)
    harness.pass_time(LEASE_S)
    assert harness.phases() == {"wide": "running", "first": "running", "second": "waiting"}
    assert killed.attempt == 2
    assert killed.failures == 0


def test_a_batch_environment_asks_and_gives_back_by_its_managers_ratios() -> None:
    harness = CoordinationHarness(20).begin()
    hpc, _ = harness.pair(3, 2, model="flb-nub")
    assert harness.sizes() == {"hpc": 5, "shop": 0}
    harness.submit("runs", 5)
    for name in ("one", "two"):
        harness.submit(name, 4)
    harness.pass_time(LEASE_S - 60.0)
    assert harness.held()["hpc"] == 5
    harness.pass_time(60.0)  # 8 queued exceed 1.2 x 5: DR1 = 3
    assert harness.held()["hpc"] == 8
    harness.app("site", 4)  # from outside: nothing of the batch environment's
    assert harness.held() == {"hpc": 8, "shop": 4}
    assert hpc.suspended == 0
    harness.submit("wide", 10)
    harness.pass_time(LEASE_S)  # 18 are queued, DR1 = 10: 8 are free
    assert harness.held() == {"hpc": 16, "shop": 4}
    for name in ("one", "runs", "two", "wide"):
        harness.finish(name)
    sizes = []
    for _ in range(6):
        harness.pass_time(LEASE_S)
        sizes.append(harness.sizes()["hpc"])
    assert sizes == [8, 4, 2, 1, 1, 1]  # RSS: half of the idle ones
    assert harness.held() == {"hpc": 1, "shop": 4}


def test_the_managers_request_for_its_biggest_job() -> None:
    harness = CoordinationHarness(12).begin()
    harness.environment("hpc", "batch", 5, model="flb-nub")
    harness.look()
    harness.submit("runs", 3)
    harness.submit("big", 6)
    harness.pass_time(LEASE_S)
    assert harness.held()["hpc"] == 9  # 6 / 5 does not exceed 1.2: DR2 = 6 - 2 idle
    assert harness.phases()["big"] == "running"


def test_a_web_environment_that_gets_nothing_waits_and_is_served_when_units_are_free() -> None:
    harness = CoordinationHarness(6).begin()
    _, shop = harness.pair(3, 1, model="flb-nub")
    harness.app("site", 4)
    assert harness.sizes() == {"hpc": 4, "shop": 2}
    assert [event.subject for event in harness.happenings("environment-waiting")] == ["shop"]
    assert "2 more units" in shop.detail
    harness.add_nodes(1)
    assert harness.sizes() == {"hpc": 4, "shop": 3}
    harness = harness.successor()
    shop = harness.controller.cluster.environments["shop"]
    assert "1 more units" in shop.detail
    harness.add_nodes(2)
    assert harness.sizes() == {"hpc": 4, "shop": 4}
    assert harness.held() == {"hpc": 4, "shop": 4}
    assert shop.detail == ""


def test_lent_units_come_back_at_once_when_idle_and_within_a_lease_unit_when_not() -> None:
    harness = CoordinationHarness(10).begin()
    harness.environment("lender", "batch", 2, model="flb-nub", upper=8)
    harness.environment("taker", "batch", 0, model="flb-nub")
    harness.look()
    harness.submit("much", 6, environment="taker")
    harness.submit("more", 2, environment="taker")
    harness.pass_time(LEASE_S)
    assert harness.held() == {"lender": 1, "taker": 8}
    harness.finish("more")
    harness.submit("own", 5, environment="lender")
    harness.pass_time(LEASE_S)  # 5 wanted: one is free, the two idle ones of the taker come at once
    assert harness.held() == {"lender": 4, "taker": 6}
    assert harness.phases() == {"much": "running", "more": "completed", "own": "waiting"}
    harness.pass_time(LEASE_S - 1.0)
    assert harness.held() == {"lender": 4, "taker": 6}
    harness.pass_time(1.0)
    assert harness.held() == {"lender": 5, "taker": 5}
    assert harness.phases() == {"much": "suspended", "more": "completed", "own": "running"}
    assert harness.controller.cluster.environments["taker"].suspended == 1


def test_lower_bounds_are_never_lent() -> None:
    harness = CoordinationHarness(10).begin()
    harness.environment("quiet", "web", 4)
    harness.environment("taker", "batch", 2, model="flb-nub")
    harness.look()
    harness.submit("much", 10, environment="taker", goal_s=None)
    harness.pass_time(LEASE_S)
    assert harness.held() == {"quiet": 0, "taker": 6}
    harness.app("site", 4, "quiet")
    assert harness.held() == {"quiet": 4, "taker": 6}


def test_another_node_takes_the_place_of_one_that_is_lost_and_the_lost_one_is_surplus_when_it_returns() -> None:
    harness = CoordinationHarness(6, unreachable_after_s=15.0).begin()
    harness.pair(3, 1)
    harness.app("site", 1)
    lost = harness.given("hpc")[0]
    spare = [name for name, node in harness.controller.cluster.nodes.items() if not node.given]
    harness.mute(lost)
    harness.pass_reporting(60.0)
    assert harness.held() == {"hpc": 3, "shop": 1}  # it may come back
    harness.pass_reporting(120.0)
    assert harness.held() == {"hpc": 4, "shop": 1}
    assert set(harness.given("hpc")) & set(spare)
    harness.unmute(lost)
    harness.pass_reporting(30.0)
    assert harness.held() == {"hpc": 3, "shop": 1} == harness.sizes()


def test_when_nodes_are_lost_and_there_are_no_others_the_web_environment_is_served_first() -> None:
    harness = CoordinationHarness(4, unreachable_after_s=15.0).begin()
    harness.pair(2, 2)
    harness.app("site", 2)
    harness.mute(harness.given("shop")[0])
    harness.pass_reporting(140.0)
    assert len(set(harness.given("shop")) - harness.muted) == 2
    assert len(harness.given("hpc")) == 1
    harness.unmute(*harness.muted)
    harness.pass_reporting(30.0)
    assert harness.held() == {"hpc": 2, "shop": 2} == harness.sizes()


def test_an_operator_who_keeps_a_node_out_has_another_one_take_its_place() -> None:
    harness = CoordinationHarness(3).begin()
    harness.environment("hpc", "batch", 2, model="dedicated")
    harness.look()
    kept_out = harness.given("hpc")[0]
    harness.ask(DrainNode("drain", kept_out, True))
    harness.pass_time(10.0)
    assert len(set(harness.given("hpc")) - {kept_out}) == 2


def test_an_agreement_that_spoils_every_node_is_given_some_and_not_all() -> None:
    harness = CoordinationHarness(8).begin()
    harness.environment("bad", "batch", 2, model="dedicated")
    harness.environment("good", "batch", 1, model="dedicated")
    spoilt: set[str] = set()
    for _ in range(8):
        harness.look()
        for name in set(harness.given("bad")) - spoilt:
            node = harness.controller.cluster.nodes[name]
            node.environment, node.handover = "bad", Handover.FAILED
            spoilt.add(name)
    assert len(spoilt) == 4  # two, and two more: after that it is known to be at fault
    assert len(harness.given("good")) == 1
    for name in sorted(spoilt)[:2]:
        harness.ask(RepairNode(f"repair {name}", name))
    harness.look()
    counted = [
        name for name in harness.given("bad") if harness.controller.cluster.nodes[name].handover is not Handover.FAILED
    ]
    assert counted == sorted(spoilt)[:2]


def test_nodes_of_another_system_are_not_given() -> None:
    harness = CoordinationHarness(4)
    for name in ("n001", "n003"):
        harness.nodes[name] = replace(harness.nodes[name], os_type="debian", os_version="12")
    harness.begin()
    harness.environment("hpc", "batch", 2, os_type="debian", os_version="12")
    harness.look()
    assert harness.given("hpc") == ["n001", "n003"]
    harness.nodes["n001"] = replace(harness.nodes["n001"], os_version="13")
    for _ in range(2):  # it is heard of, and seen
        harness.look()
    assert harness.given("hpc") == ["n003"]


def test_on_demand_units_come_with_the_jobs_and_go_at_the_end_of_a_lease_unit() -> None:
    harness = CoordinationHarness(8).begin()
    harness.environment("hpc", "batch", 0, model="on-demand")
    harness.look()
    assert harness.held() == {"hpc": 0}
    harness.pass_time(100.0)
    harness.submit("one", 3)
    assert harness.held() == {"hpc": 3}
    assert harness.phases() == {"one": "running"}
    harness.finish("one")
    harness.pass_time(LEASE_S - 160.0)
    assert harness.held() == {"hpc": 3}
    harness.pass_time(60.0)
    assert harness.held() == {"hpc": 0}


def test_while_the_controller_only_observes_nothing_is_shared_and_a_missed_timer_fires_once() -> None:
    harness = CoordinationHarness(10).begin()
    harness.pair(6, 4)
    harness.app("site", 3)
    harness.demand("site", 1)
    harness.controller.unit_of_work.acting = False
    harness.pass_time(2.5 * LEASE_S)
    assert harness.held() == {"hpc": 7, "shop": 1}
    harness.controller.unit_of_work.acting = True
    harness.look()
    assert harness.held() == {"hpc": 9, "shop": 1}
    harness.demand("site", 2)
    harness.demand("site", 0)
    harness.pass_time(0.5 * LEASE_S - 1.0)
    assert harness.held() == {"hpc": 8, "shop": 0}
    harness.pass_time(1.0)
    assert harness.held() == {"hpc": 10, "shop": 0}


def test_a_successor_keeps_sizes_and_the_phase_of_the_timers() -> None:
    harness = CoordinationHarness(10).begin()
    harness.pair(6, 4)
    harness.app("site", 3)
    harness.submit("one", 2)
    harness.demand("site", 1)
    harness.pass_time(100.0)
    harness = harness.successor()
    assert harness.held() == {"hpc": 7, "shop": 1} == harness.sizes()
    harness.pass_time(LEASE_S - 101.0)
    assert harness.held() == {"hpc": 7, "shop": 1}
    harness.pass_time(1.0)
    assert harness.held() == {"hpc": 9, "shop": 1}
    assert harness.controller.cluster.environments["hpc"].suspended == 0


def test_a_partner_that_is_deactivated_leaves_the_other_alone_with_its_own_bound() -> None:
    harness = CoordinationHarness(10).begin()
    hpc, shop = harness.pair(6, 4)
    harness.app("site", 3)
    shop.wanted = EnvironmentState.DEACTIVATED
    hpc.partner = shop.partner = ""
    parts.coordination(harness.controller).changed("shop", harness.now_s)
    harness.look()
    assert harness.sizes() == {"hpc": 6, "shop": 0}
    assert harness.held() == {"hpc": 6, "shop": 0}


def test_a_policy_that_raises_leaves_its_environments_what_they_have() -> None:
    harness = CoordinationHarness(4).begin()
    harness.environment("hpc", "batch", 2)
    harness.look()

    class Broken(FixedBounds):
        def decide(self, group: GroupView, moment: Moment) -> GroupSizes:
            raise ZeroDivisionError(f"{moment} of {len(group.parties)}")

    parts.coordination(harness.controller).groups[0].policy = Broken()
    harness.pass_time(LEASE_S)
    assert harness.held() == {"hpc": 2}
    assert len(harness.happenings("coordination-failed")) == 2


SCRIPT: tuple[Callable[[CoordinationHarness], None], ...] = (
    lambda harness: harness.submit("wide", 5),
    lambda harness: harness.submit("slim", 2),
    lambda harness: harness.demand("site", 4),
    lambda harness: harness.pass_time(100.0),
    lambda harness: harness.demand("site", 2),
    lambda harness: harness.pass_time(LEASE_S - 100.0),
)


@pytest.mark.parametrize("crash", first(range(len(SCRIPT)), 2))
@pytest.mark.parametrize("stored", [True, False])
def test_sizes_come_out_the_same_wherever_the_controller_crashes(crash: int, stored: bool) -> None:
    """stored: what the step did was in the store; else it is asked for again."""
    harness = CoordinationHarness(10).begin()
    harness.pair(6, 4)
    harness.app("site", 1)
    for number, step in enumerate(SCRIPT):
        if number == crash and not stored:
            harness.store_fails = (False, "gone")
            step(harness)
            harness = harness.successor()
        step(harness)
        if number == crash and stored:
            harness = harness.successor()
    assert harness.held() == {"hpc": 8, "shop": 2} == harness.sizes()
    assert harness.phases() == {"wide": "running", "slim": "running"}
    assert harness.controller.cluster.environments["hpc"].suspended == 1


def test_units_that_are_vms_are_a_quota_and_take_no_nodes() -> None:
    harness = CoordinationHarness(6).begin()
    template = VmTemplate("small", 2, 2_000, 2_000.0)  # two of them on a node
    vms: dict[str, Any] = {"granularity": Granularity.VM, "template": template}
    harness.environment("hpc", "batch", 4, "shop", **vms)
    harness.environment("shop", "web", 2, "hpc", **vms)
    harness.environment("nodes", "batch", 2, model="flb-nub")
    harness.look()
    assert harness.sizes() == {"hpc": 6, "shop": 0, "nodes": 2}
    assert harness.held() == {"hpc": 0, "shop": 0, "nodes": 2}
    for name, size in (("one", 1), ("two", 2), ("three", 3)):
        harness.submit(name, size, memory_mib=2_000)
    assert set(harness.phases().values()) == {"running"}
    harness.app("site", 2, cores=2)
    assert harness.sizes() == {"hpc": 4, "shop": 2, "nodes": 2}
    assert harness.phases() == {"one": "running", "two": "suspended", "three": "running"}  # one VM was freed in surplus
    harness.submit("many", 6, "nodes", memory_mib=2_000)
    harness.pass_time(LEASE_S)  # of the four nodes that are left, three hold the six VMs
    assert harness.held()["nodes"] == 3


def test_more_vms_than_have_room_are_not_granted() -> None:
    harness = CoordinationHarness(3).begin()
    template = VmTemplate("small", 2, 2_000, 2_000.0)
    harness.environment("hpc", "batch", 1, model="flb-nub", granularity=Granularity.VM, template=template)
    harness.environment("nodes", "batch", 1)
    harness.look()
    for number in range(9):
        harness.submit(f"j{number}", memory_mib=2_000)
    harness.pass_time(LEASE_S)
    assert harness.sizes() == {"hpc": 4, "nodes": 1}
    assert list(harness.phases().values()).count("running") == 4


def test_an_environment_that_is_activated_anew_within_an_instant_begins_anew() -> None:
    harness = CoordinationHarness(4).begin()
    hpc = harness.environment("hpc", "batch", 2)
    harness.look()
    harness.pass_time(50.0)
    hpc.started_s, hpc.size = NOT_BEGUN, 0
    parts.coordination(harness.controller).changed("hpc", harness.now_s)
    harness.look()
    assert hpc.started_s == 50.0
    assert harness.held() == {"hpc": 2} == harness.sizes()
