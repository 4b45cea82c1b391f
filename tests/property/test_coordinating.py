"""Random demand, jobs, losses of nodes and crashes of the controller: whose nodes are whose stays true."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.controller.environments.inventory import counts
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover
from tests.extent import examples
from tests.support.coordination_harness import KILL, LEASE_S, CoordinationHarness

NODES = 9
JOBS_MAX = 12

steps = st.one_of(
    st.tuples(st.just("demand"), st.sampled_from(["site", "other"]), st.integers(0, 6)),
    st.tuples(st.just("job"), st.sampled_from(["hpc", "mill"]), st.integers(1, 4)),
    st.tuples(st.just("end"), st.integers(0, JOBS_MAX), st.just(0)),
    st.tuples(st.just("lose"), st.integers(0, NODES - 1), st.just(0)),
    st.tuples(st.just("return"), st.integers(0, NODES - 1), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([7.0, 150.0, LEASE_S]), st.just(0)),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
)


class World:
    """Two pairs on nine nodes: `hpc` and `shop` under FB with 3 + 1, `mill` and `mart` under FLB-NUB with 2 + 1."""

    def __init__(self) -> None:
        self.harness = CoordinationHarness(NODES, unreachable_after_s=15.0).begin()
        self.harness.pair(3, 1)
        self.harness.environment("mill", "batch", 2, "mart", model="flb-nub", batch=KILL)
        self.harness.environment("mart", "web", 1, "mill", model="flb-nub")
        self.harness.look()
        self.harness.app("site", 0)
        self.harness.app("other", 0, "mart")
        self.jobs = 0

    def do(self, what: str, which: str | int | float, count: int) -> None:
        """One step."""
        harness = self.harness
        cluster = harness.controller.cluster
        if what == "demand":
            harness.demand(str(which), count)
        elif what == "job" and self.jobs < JOBS_MAX:
            self.jobs += 1
            harness.submit(f"j{self.jobs}", min(count, 3), str(which))
        elif what == "end" and (job := cluster.jobs.get(f"j{which}")) is not None:
            if job.phase is JobPhase.RUNNING and job.released and not any(one.in_flight for one in job.instances):
                harness.finish(job.job.name)
        elif what == "lose" and len(harness.muted) < 2:
            harness.mute(f"n{which:03}")
        elif what == "return":
            harness.unmute(f"n{which:03}")
        elif what == "wait":
            harness.pass_reporting(float(which))
        elif what == "crash":
            self.harness = harness.successor()

    def check(self) -> None:
        """What holds at any time."""
        cluster = self.harness.controller.cluster
        lowers = {"hpc": 4, "mill": 3}
        held = dict.fromkeys(lowers, 0)
        good = 0
        for node in cluster.nodes.values():
            group = {"hpc": "hpc", "shop": "hpc", "mill": "mill", "mart": "mill"}.get(node.given)
            counted = counts(node, self.harness.controller.settings.power, self.harness.now_s)
            good += counted
            if group is not None and counted:
                held[group] += 1
            for instance in node.claimed.values():
                assert instance.job.job.environment == node.environment
                assert node.handover in (Handover.SETTLED, Handover.EMPTYING)
        if good == NODES:  # what is held, and what is yet to be given of the bounds, is there
            assert sum(max(held[name], lowers[name]) for name in held) <= NODES
        for entry in cluster.environments.values():
            assert entry.size >= 0
        assert cluster.environments["hpc"].size + cluster.environments["shop"].size <= lowers["hpc"]

    def rest(self) -> None:
        """All nodes are back and two lease units have gone by."""
        self.harness.muted.clear()
        for _ in range(2):
            self.harness.pass_reporting(30.0)
            self.harness.pass_reporting(LEASE_S)

    def check_sizes(self) -> None:
        """What follows from the policies when nothing changes for a while."""
        environments = self.harness.controller.cluster.environments
        wanted = {name: web.wanted_instances or 0 for name, web in self.harness.controller.cluster.web.items()}
        assert environments["shop"].size == min(wanted["site"], 4)
        assert environments["hpc"].size == 4 - environments["shop"].size
        assert environments["mart"].size <= wanted["other"]
        assert environments["mart"].size >= min(wanted["other"], 3 - environments["mill"].size)
        assert self.harness.held() == self.harness.sizes()
        assert all(node.in_hand for node in self.harness.controller.cluster.nodes.values())


def carry_out(script: list[tuple[str, str | int | float, int]]) -> None:
    """One script, and what must hold at any time and at its end."""
    world = World()
    for step in script:
        world.do(*step)
        world.check()
    world.rest()
    world.check()
    world.check_sizes()


# a node that was replaced comes back; a guest of a job ends while another of it is to be paused
BACK = ["lose 0", "job hpc 3", "job hpc 1", "demand site 1", "demand site 5", "wait 150", "job hpc 3", "demand other 6"]
ENDS = ["lose 0", "job hpc 2", "crash 0", "end 1"]


@pytest.mark.full
@pytest.mark.parametrize("script", [BACK, ENDS], ids=["back", "ends"])
def test_what_once_went_wrong(script: list[str]) -> None:
    """Scripts that broke it."""
    carry_out([_step(*line.split()) for line in script])


def _step(what: str, which: str, count: str = "0") -> tuple[str, str | int | float, int]:
    return what, float(which) if what == "wait" else int(which) if which.isdigit() else which, int(count)


@pytest.mark.full
@settings(max_examples=examples(5))
@given(st.lists(steps, min_size=6, max_size=14))
def test_nodes_have_one_owner_bounds_are_kept_and_sizes_follow_the_policies(
    script: list[tuple[str, str | int | float, int]],
) -> None:
    """Whatever happens."""
    carry_out(script)


@pytest.mark.full
@settings(max_examples=examples(60))
@given(st.lists(steps, max_size=20))
def test_so_they_do_over_many_scripts(script: list[tuple[str, str | int | float, int]]) -> None:
    """The same, more often and longer."""
    carry_out(script)


@pytest.mark.full
@settings(max_examples=examples(8))
@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0.0, 90.0, 300.0, LEASE_S])), max_size=10))
def test_sizes_under_fixed_bounds_are_those_of_a_plain_restatement(script: list[tuple[int, float]]) -> None:
    """(instances wanted, how long then): section 5.1 in four lines."""
    harness = CoordinationHarness(8).begin()
    harness.pair(4, 2)
    harness.app("site", 0)
    web, batch = 0, 5  # an application begins with one instance
    for wanted, seconds in script:
        harness.demand("site", wanted)
        web = min(wanted, 6)
        batch = min(batch, 6 - web)
        assert harness.sizes() == {"hpc": batch, "shop": web} == harness.held()
        if harness.now_s // LEASE_S < (harness.now_s + seconds) // LEASE_S:
            batch = 6 - web
        harness.pass_time(seconds)
        assert harness.sizes() == {"hpc": batch, "shop": web} == harness.held()
