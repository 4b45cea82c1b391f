"""What falls into one instant has an order; who lends gets back; which nodes count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.controller.environments.inventory import LOST_AFTER_S, counts, is_free, nodes_for, share_of, slots
from daemons.controller.state.nodes import NodeEntry
from daemons.values.settings import PowerSettings
from shared.policy_api.coordination import Moment
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import GuestEvent
from shared.protocol.operator_messages import SubmitJob
from shared.values.actions import GuestChange
from shared.values.agreement import BatchTerms
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover, Node, NodeCondition, NodeService, PowerOperation
from tests.support import parts
from tests.support.controller_harness import OPERATOR, job
from tests.support.coordination_harness import KILL, LEASE_S, CoordinationHarness

SLEEPS = PowerSettings("exec", frozenset({PowerOperation.SLEEP, PowerOperation.WAKE}))


def test_a_job_that_ends_at_the_instant_of_a_demand_makes_room_before_anybody_gives_way() -> None:
    harness = CoordinationHarness(4).begin()
    hpc, _ = harness.pair(2, 2)
    harness.app("site", 0)
    harness.pass_time(LEASE_S)
    harness.submit("first", 1)
    harness.submit("rest", 3)
    (instance,) = harness.controller.cluster.jobs["rest"].instances[:1]
    for number, one in enumerate(harness.controller.cluster.jobs["rest"].instances, 1):
        (node,) = one.may_run_on
        status = harness.vms[node].pop(one.vm)
        ended = GuestEvent(
            node,
            "boot-1",
            harness.next_seq(node),
            clock_s=harness.now_s,
            event=number,
            change=GuestChange.ENDED,
            status=status,
        )
        harness.carry(
            harness.controller.handle(fx.Received(harness.delivery(), topology.agent_user(node), ended), harness.now_s)
        )
    assert instance.job.phase.value == "running"  # its end is yet to be noted
    harness.demand("site", 3)
    assert hpc.suspended == 0
    assert harness.phases() == {"first": "running", "rest": "completed"}
    assert harness.held() == {"hpc": 1, "shop": 3}


def test_jobs_that_arrive_at_the_instant_of_the_managers_timer_do_not_count_yet() -> None:
    harness = CoordinationHarness(8).begin()
    harness.environment("hpc", "batch", 1, model="flb-nub")
    harness.look()
    harness.pass_time(LEASE_S - 0.5)
    harness.now_s = LEASE_S
    asked = job("late", instances=4, memory_mib=4_000, spread=True, environment="hpc")
    received = fx.Received(harness.delivery(), OPERATOR, SubmitJob("late", asked), "")
    harness.carry(harness.controller.handle(received, harness.now_s))
    harness.settle()
    assert harness.held() == {"hpc": 1}
    harness.pass_time(LEASE_S)
    assert harness.held() == {"hpc": 4}


def test_the_provider_refills_before_the_manager_asks() -> None:
    harness = CoordinationHarness(9).begin()
    harness.environment("hpc", "batch", 4, model="flb-nub")
    harness.look()
    harness.pass_time(2 * LEASE_S)
    sized = [event.detail for event in harness.happenings("environment-sized")]
    assert sized == [
        "0 to 4: start",
        "4 to 2: manage: RSS = 2: 0 queued, 4 idle of 4",
        "2 to 4: provision",
        "4 to 2: manage: RSS = 2: 0 queued, 4 idle of 4",
    ]


def test_what_a_web_environment_borrowed_is_taken_from_under_its_instances_within_a_lease_unit() -> None:
    harness = CoordinationHarness(10).begin()
    harness.environment("lender", "batch", 2, model="flb-nub", upper=8)
    harness.environment("shop", "web", 0, model="flb-nub")
    harness.look()
    harness.app("site", 6)
    assert harness.held() == {"lender": 2, "shop": 6}
    harness.submit("own", 8, "lender")
    harness.pass_time(LEASE_S)
    assert harness.held() == {"lender": 4, "shop": 6}
    harness.pass_time(LEASE_S)
    assert harness.held() == {"lender": 8, "shop": 2}
    assert harness.phases() == {"own": "running"}
    assert len(harness.controller.cluster.replicas_wanted("site")) == 2
    harness.pass_time(2 * LEASE_S)
    assert harness.held() == {"lender": 8, "shop": 2}  # it waits, and nobody is disturbed
    harness.finish("own")
    harness.pass_time(4 * LEASE_S)
    assert harness.held()["shop"] == 6


def test_several_pairs_share_one_provider() -> None:
    harness = CoordinationHarness(12).begin()
    harness.pair(3, 2)
    harness.environment("mill", "batch", 2, "mart", model="flb-nub")
    harness.environment("mart", "web", 2, "mill", model="flb-nub")
    harness.look()
    assert harness.sizes() == {"hpc": 5, "shop": 0, "mill": 4, "mart": 0}
    harness.app("site", 9)
    harness.app("other", 6, "mart")
    assert harness.sizes() == {"hpc": 0, "shop": 5, "mill": 4, "mart": 3}  # three are free beyond the lower bounds
    assert harness.held() == harness.sizes()


def node(**fields: object) -> NodeEntry:
    """A node that is up, heard of at 1,000 s."""
    inventory = Node("n", 4, 1_000.0, memory_mib=4_000, mac_addresses=("02:00:00:00:00:01",))
    entry = NodeEntry("n", condition=NodeCondition.UP, inventory=inventory)
    entry.seen_s, entry.given = 1_000.0, "hpc"
    for name, value in fields.items():
        setattr(entry, name, value)
    return entry


@pytest.mark.parametrize(
    ("fields", "at_s", "counted", "free"),
    [
        ({}, 1_000.0, True, True),
        ({"held": True}, 1_000.0, False, False),
        ({"service": NodeService.FAILED}, 1_000.0, False, False),
        ({"handover": Handover.FAILED}, 1_000.0, False, False),
        ({"condition": NodeCondition.UNKNOWN}, 1_000.0 + LOST_AFTER_S - 1.0, True, False),
        ({"condition": NodeCondition.UNKNOWN}, 1_000.0 + LOST_AFTER_S, False, False),
        ({"condition": NodeCondition.OFF}, 1_000.0, False, False),
        ({"condition": NodeCondition.UNKNOWN, "service": NodeService.OFF}, 9_999.0, True, True),
        ({"service": NodeService.DRAINING}, 1_000.0, True, True),
        ({"inventory": None}, 1_000.0, False, False),
    ],
)
def test_which_nodes_count_and_which_may_be_given(
    fields: dict[str, object], at_s: float, counted: bool, free: bool
) -> None:
    assert (counts(node(**fields), SLEEPS, at_s) and node(**fields).inventory is not None) is counted
    assert is_free(node(**fields), SLEEPS) is free


def test_a_sleeping_node_counts_only_where_it_can_be_woken() -> None:
    asleep = node(condition=NodeCondition.UNKNOWN, service=NodeService.OFF)
    assert counts(asleep, SLEEPS, 1_000.0)
    assert not counts(asleep, PowerSettings(), 1_000.0)


def test_how_many_units_a_job_needs() -> None:
    host = Node("n", 4, 1_000.0, memory_mib=4_000)
    assert share_of(job(instances=6, memory_mib=1_000), host, 0.0) == 1.5
    assert share_of(job(instances=6, memory_mib=1_000), host, 500.0) == 3.0
    assert share_of(job(instances=6, memory_mib=1_000, spread=True), host, 0.0) == 6.0
    assert share_of(job(instances=6, memory_mib=9_000), host, 0.0) == 6.0
    assert share_of(job(instances=6), None, 0.0) == 6.0
    assert slots(host, 0.0, 0.0) == 0
    assert nodes_for([4, 2, 2], 5) == 2
    assert nodes_for([4], 9) == 1


def test_timers_keep_their_phase() -> None:
    harness = CoordinationHarness(2).begin()
    harness.now_s = 7.25
    hpc = harness.environment("hpc", "batch", 1, lease_s=0.1)
    harness.look()
    (made,) = parts.coordination(harness.controller).groups
    for tick in range(1, 200):
        at_s = made.next_s(Moment.PROVISION)
        assert at_s == pytest.approx(7.25 + 0.1 * tick, abs=1e-9)
        made.fired(Moment.PROVISION, at_s)
    made.fired(Moment.PROVISION, 30.02)
    assert made.next_s(Moment.PROVISION) == pytest.approx(30.05)
    hpc.agreement = replace(hpc.agreement, lease_s=10.0)
    assert made.next_s(Moment.PROVISION) == 37.25


def test_with_upper_bounds_both_together_never_have_more() -> None:
    harness = CoordinationHarness(6).begin()
    harness.pair(2, 2, model="flb-nub", upper=4)
    harness.app("site", 8)
    assert harness.sizes() == {"hpc": 0, "shop": 6}
    harness.submit("queued", 4)
    harness.pass_time(LEASE_S - 0.5)
    harness.add_nodes(6, looking=False)  # seen when the timers fire, not before
    harness.pass_time(0.5)
    assert harness.sizes() == {"hpc": 0, "shop": 8}
    assert harness.held() == harness.sizes()


def test_a_web_environment_gives_up_a_node_only_when_nothing_is_to_run_on_it_any_more() -> None:
    harness = CoordinationHarness(4).begin()
    harness.pair(2, 2)
    harness.app("site", 2)
    cluster = harness.controller.cluster
    cluster.web["site"].wanted_instances = 1
    harness.look()
    assert harness.sizes() == {"hpc": 2, "shop": 1}
    assert harness.held() == {"hpc": 2, "shop": 2}
    harness.demand("site", 1)
    assert harness.held() == {"hpc": 2, "shop": 1}


@pytest.mark.parametrize("terms", [KILL, BatchTerms()])
def test_a_job_that_has_not_come_together_gives_way_without_blame(terms: BatchTerms) -> None:
    harness = CoordinationHarness(3).begin()
    harness.pair(2, 1, batch=terms)
    asked = job("starts", instances=3, memory_mib=4_000, spread=True, environment="hpc")
    harness.ask(SubmitJob("starts", asked))
    entry = harness.controller.cluster.jobs["starts"]
    assert (entry.phase, entry.released) == (JobPhase.RUNNING, False)
    harness.app("site", 1)
    assert entry.phase is JobPhase.WAITING
    assert (entry.failures, entry.not_before_s) == (0, 0.0)
    assert harness.controller.cluster.environments["hpc"].suspended == 0


def test_a_sleeping_node_is_woken_only_when_those_awake_are_not_enough() -> None:
    harness = CoordinationHarness(3, power=SLEEPS).begin()
    nodes = harness.controller.cluster.nodes
    for name in ("n000", "n001"):
        nodes[name].service, nodes[name].condition = NodeService.OFF, NodeCondition.UNKNOWN
        nodes[name].wanted = False
        harness.mute(name)
    harness.environment("hpc", "batch", 2)
    harness.look()
    assert harness.given("hpc") == ["n000", "n002"]
    assert nodes["n000"].wanted
    assert not nodes["n001"].wanted
    assert [(power.node, power.operation) for power in harness.powers] == [("n000", PowerOperation.WAKE)]
    harness.unmute("n000")
    harness.boots["n000"] = "boot-2"
    harness.pass_reporting(20.0)
    assert nodes["n000"].in_hand
    assert nodes["n000"].service is NodeService.IN_SERVICE
