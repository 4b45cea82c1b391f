"""How many nodes jobs with goals and web applications are given besides the windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest

from daemons.decision import pipeline
from daemons.decision.pipeline import DecideOutcome, DecideRequest
from daemons.decision.pool_size import Before, size_pool, with_nodes
from daemons.decision.tables.memory import MemoryTables
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput
from shared.policy_api.analysis import BreachQuery
from shared.policy_api.decision import Outlook, PlacementDecision, ProvisioningDecision, Reason, ReasonCode
from shared.policy_api.snapshot import Snapshot, WebColumns, WorkloadState
from sim_backend.conformance.clusters import WorkRow
from tests.support.provisioning_cases import cluster, power, window

TABLE_CACHE = MemoryTables()
NOTHING = ProvisioningDecision((), Reason(ReasonCode.SPARE))
RUNNING = WorkloadState.RUNNING


def run(seen: Snapshot, placement: str = "apc", provisioning: str = "threshold", **params: Any) -> DecideOutcome:
    request = DecideRequest(
        replace(seen, at_cycle=True), PolicyChoice(placement), None, PolicyChoice(provisioning, params), None
    )
    return pipeline.run(request, TABLE_CACHE)


def in_service(seen: Snapshot, placement: str = "apc", **params: Any) -> tuple[str, ...]:
    decision = run(seen, placement, **params).provisioning
    assert decision is not None
    return decision.in_service


def due(name: str, goal_s: float, **changes: Any) -> WorkRow:
    """1,000 s of work at full speed of one core, from now (1,000 s) on."""
    return WorkRow(name, **{"work_mcycles": 1e6, "goal_s": goal_s, "memory_mib": 2000.0} | changes)


class Predicts:
    """A placement policy of which only the prediction counts: `utilities[n]` with n nodes."""

    def __init__(self, utilities: Sequence[float], name: str = "j") -> None:
        self.utilities, self.name = utilities, name
        self.asked: list[int] = []

    def __call__(self, seen: Snapshot) -> PlacementDecision:
        count = int(seen.nodes.schedulable.sum())
        self.asked.append(count)
        return PlacementDecision(outlook=Outlook((self.name,), (0.0,), (self.utilities[count],), (1.0,), 0.0))


def covered(utilities: Sequence[float], nodes: int, tolerance: float = 0.01, **powers: Any) -> ProvisioningDecision:
    seen = cluster(nodes=nodes, jobs=[due("j", 5000.0)], powers=power(nodes, **powers))
    return size_pool(seen, NOTHING, Predicts(utilities), tolerance).decision


# --- the search ------------------------------------------------------------------------------------------------------


def test_the_fewest_with_which_nobody_is_worse_off() -> None:
    decision = covered([-3.0, -2.0, -1.0, -0.2, -0.195], 4)
    assert len(decision.in_service) == 3
    assert decision.refused == ((0, -3.0), (2, -1.0))
    assert str(decision.reason).startswith("needed in_service=3 others=3")


def test_a_utility_of_0_is_enough() -> None:
    assert len(covered([-3.0, 0.0, 0.5, 0.7, 0.9], 4).in_service) == 1
    assert covered([0.1, 0.0, 0.5, 0.7, 0.9], 4) == NOTHING


def test_tolerance() -> None:
    assert len(covered([-1.0, -0.9, -0.85, -0.8, -0.8], 4, 0.06).in_service) == 2
    assert len(covered([-1.0, -0.9, -0.85, -0.8, -0.8], 4, 0.2).in_service) == 0


def test_fewer_are_taken_when_they_were_enough_twice() -> None:
    """Given that three others were enough and now one is, then three stay for one more decision; more come at once."""
    three, one, two = [-1.0] * 3 + [0.5] * 2, [-1.0] + [0.5] * 4, [-1.0] * 2 + [0.5] * 3
    seen = cluster(nodes=4, jobs=[due("j", 5000.0)], powers=power(4))
    before: Before | None = None
    sizes = []
    for utilities in (three, one, one, two, one, three, one, two):
        made = size_pool(seen, NOTHING, Predicts(utilities), 0.01, before)
        before = Before(made.others, made.nodes)
        sizes.append(len(made.decision.in_service))
    assert sizes == [3, 3, 1, 2, 2, 3, 3, 2]


def test_kept_nodes_are_told_apart() -> None:
    seen = cluster(nodes=4, jobs=[due("j", 5000.0)], powers=power(4))
    made = size_pool(seen, NOTHING, Predicts([-1.0] + [0.5] * 4), 0.01, Before(3, 3))
    assert dict(made.decision.reason.numbers) == {"in_service": 3.0, "others": 3.0, "tried": 4.0, "needed": 1.0}
    assert (made.others, made.nodes) == (1, 1)


def test_nodes_that_a_window_took_over_are_not_kept_twice() -> None:
    """Given two others beside one node of windows, when the windows want three, then no other is kept."""
    seen = cluster(nodes=4, jobs=[due("j", 5000.0)], powers=power(4))
    base = replace(NOTHING, in_service=("n0", "n1", "n2"))
    assert size_pool(seen, base, Predicts([0.5] * 5), 0.01, Before(2, 3)).decision == base
    assert len(size_pool(seen, NOTHING, Predicts([0.5] * 5), 0.01, Before(2, 3)).decision.in_service) == 2


def test_what_was_enough_is_part_of_the_state() -> None:
    """Given a decision with three others, when they are no longer needed, then the state of it, packed and unpacked,
    keeps them for one decision, and those of policies that know nothing of it are none."""
    urgent, idle = cluster(jobs=[due(f"j{i}", 2400.0) for i in range(12)]), cluster()
    state: Any = {"periods": []}
    sizes = []
    for seen in (urgent, idle, idle):
        request = DecideRequest(seen, PolicyChoice("apc"), None, PolicyChoice("threshold"), state)
        outcome = pipeline.run(request, TABLE_CACHE)
        assert outcome.provisioning is not None
        sizes.append(len(outcome.provisioning.in_service))
        state = msgpack.unpackb(msgpack.packb(outcome.provisioning_state))
    assert sizes == [3, 3, 0]
    assert state["policy"] == {"periods": []}
    outcome = pipeline.run(replace(request, provisioning_state={"policy": None, "others": ["x"]}), TABLE_CACHE)
    assert outcome.provisioning is not None
    assert outcome.provisioning.in_service == ()


@pytest.mark.parametrize("least", [0, 1, 2, 77, 499, 511, 512])
def test_few_placements_are_tried(least: int) -> None:
    utilities = [-1.0] * least + [0.5] * (513 - least)
    seen = cluster(nodes=512, jobs=[due("j", 5000.0)], powers=power(512, wanted=np.arange(512) < 500))
    place = Predicts(utilities)
    assert len(size_pool(seen, NOTHING, place, 0.01).decision.in_service) == least
    assert len(place.asked) <= 13


def test_what_is_found_is_enough_where_more_is_worse() -> None:
    utilities = [-1.0, 0.5, -1.0, 0.5, 0.5]
    decision = covered(utilities, 4)
    assert utilities[len(decision.in_service)] >= 0.0


def test_nobody_asks_for_nodes() -> None:
    place = Predicts([0.0] * 5)
    assert size_pool(cluster(), NOTHING, place, 0.01).decision == NOTHING
    assert place.asked == []


def test_jobs_of_windows_do_not_count() -> None:
    """Given a job of the queue of an open window, then its utility is nobody's concern."""
    seen = cluster(window(), jobs=[WorkRow("j", queued=True)])
    assert size_pool(seen, NOTHING, Predicts([-1.0, 0.0, 0.0, 0.0, 0.0]), 0.01).decision == NOTHING


def test_others_join_in_the_order_of_choice() -> None:
    decision = covered([-1.0, -1.0, 0.0, 0.0, 0.0], 4, wanted=[False] * 4, peak_w=[4.0, 1.0, 3.0, 2.0])
    assert decision.in_service == ("n1", "n3")


# --- with placement policies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["apc", "edf", "first-fit"])
def test_urgent_jobs_bring_nodes_into_service(placement: str) -> None:
    """Twelve jobs that fill three of four nodes, with hardly any time to lose."""
    jobs = [due(f"j{i}", 2400.0) for i in range(12)]
    assert len(in_service(cluster(jobs=jobs), placement)) == 3
    assert in_service(cluster(), placement) == ()


def test_patient_jobs_share_fewer_nodes() -> None:
    jobs = [due(f"j{i}", 100_000.0) for i in range(12)]
    assert len(in_service(cluster(jobs=jobs), "apc")) < 3


@pytest.mark.parametrize("placement", ["edf", "first-fit"])
def test_jobs_without_goals_are_served_beside_windows_too(placement: str) -> None:
    jobs = [WorkRow(f"j{i}", memory_mib=2000.0) for i in range(8)]
    assert len(in_service(cluster(jobs=jobs), placement)) == 2
    assert len(in_service(cluster(window(jobs=0, interval=7), jobs=jobs), placement)) == 2
    of_window = [replace(job, queued=True) for job in jobs]
    assert len(in_service(cluster(window(jobs=0, interval=7), jobs=of_window), placement)) == 1


@pytest.mark.parametrize("placement", ["apc", "edf", "first-fit"])
def test_a_gang_beside_a_window_that_waits(placement: str) -> None:
    """Given a window whose jobs fill its node, and more of them that wait, when a gang comes that needs two nodes, then
    they are added to that of the window, and none for its jobs."""
    running = [full(f"q{i}", 0) for i in range(4)]
    waiting = [WorkRow(f"w{i}", memory_mib=2000.0, queued=True) for i in range(8)]
    gang = WorkRow("gang", memory_mib=2000.0, instances=8, submit_s=900.0)
    view = window(count=6, jobs=0, interval=7)
    assert len(in_service(cluster(view, nodes=6, jobs=[*running, *waiting, gang]), placement)) == 3
    assert len(in_service(cluster(view, nodes=6, jobs=[*running, *waiting]), placement)) == 1


@pytest.mark.parametrize("placement", ["apc", "edf", "first-fit"])
def test_jobs_of_a_window_on_nodes_for_others_bring_no_more_of_them(placement: str) -> None:
    """Given jobs of a window that have also filled the node that a job without a goal was meant to have, then no other
    one comes for it."""
    running = [full(f"q{i}", i // 4) for i in range(8)]
    waits = WorkRow("job", memory_mib=2000.0, submit_s=900.0)
    seen = cluster(
        window(count=6, jobs=0, interval=7), nodes=6, jobs=[*running, waits], powers=power(6, wanted=np.arange(6) < 2)
    )
    assert len(in_service(seen, placement)) == 2


def full(name: str, node: int, **changes: Any) -> WorkRow:
    """A job of a window that runs on a quarter of the node."""
    return WorkRow(name, RUNNING, memory_mib=2000.0, places=((node, 1000.0),), **{"queued": True} | changes)


def test_windows_come_first_and_the_rest_on_top() -> None:
    jobs = [due(f"j{i}", 2400.0) for i in range(8)]
    view = window(jobs=4, interval=6)
    outcome = run(cluster(view, jobs=jobs))
    assert outcome.provisioning is not None
    assert outcome.provisioning.windows[0].nodes > 2
    assert len(outcome.provisioning.in_service) == outcome.provisioning.windows[0].nodes


def test_static_is_left_alone() -> None:
    jobs = [due(f"j{i}", 2400.0) for i in range(12)]
    outcome = run(cluster(jobs=jobs), provisioning="static", nodes=1)
    assert outcome.provisioning is not None
    assert outcome.provisioning.in_service == ("n0",)


# --- what placement sees ---------------------------------------------------------------------------------------------


def test_nodes_that_leave_are_emptied_in_the_same_cycle() -> None:
    """Given a job on the node that is not needed, then it moves in the same decision."""
    jobs = [due("a", 90_000.0, state=RUNNING, places=((3, 1000.0),))]
    seen = cluster(jobs=jobs, powers=power(peak_w=[1.0, 1.0, 1.0, 9.0], wanted=[False, False, False, False]))
    outcome = run(seen)
    assert outcome.provisioning is not None
    [name] = outcome.provisioning.in_service
    assert name != "n3"
    [change] = outcome.placement.changes
    assert [given.node for given in change.allotments] == [name]


def test_nodes_with_jobs_that_must_stay_are_not_emptied() -> None:
    jobs = [due("a", 90_000.0, state=RUNNING, places=((3, 1000.0),), fixed=True)]
    seen = with_nodes(cluster(jobs=jobs), np.array([True, False, False, False]), at_last=False)
    assert seen.nodes.draining.tolist() == [False, True, True, False]
    assert seen.nodes.schedulable.tolist() == [True, False, False, False]


def test_a_node_that_sleeps_takes_nothing_yet() -> None:
    """Given a cluster of which one node is awake, when urgent jobs need three, then two are wanted and take nothing."""
    asleep = power(on=[True, False, False, False], wanted=[True, False, False, False])
    seen = cluster(jobs=[due(f"j{i}", 2400.0) for i in range(12)], powers=asleep)
    open_now = np.array([True, False, False, False])
    seen = replace(seen, nodes=replace(seen.nodes, schedulable=open_now))
    outcome = run(seen)
    assert outcome.provisioning is not None
    assert len(outcome.provisioning.in_service) == 3
    assert {given.node for change in outcome.placement.changes for given in change.allotments} == {"n0"}


def test_a_node_kept_out_by_an_operator_stays_as_it_is() -> None:
    kept = power(available=[True, True, True, False])
    seen = cluster(jobs=[due(f"j{i}", 2400.0) for i in range(20)], powers=kept)
    draining = np.array([False, False, False, True])
    seen = replace(seen, nodes=replace(seen.nodes, draining=draining, schedulable=~draining))
    assert in_service(seen) == ("n0", "n1", "n2")
    assert with_nodes(seen, np.ones(4, dtype=np.bool_), at_last=True).nodes.schedulable.tolist()[3] is False


def test_a_node_on_its_way_out_that_is_wanted_again_is_not_emptied() -> None:
    seen = cluster(jobs=[due(f"j{i}", 2400.0) for i in range(16)])
    leaving = np.array([False, False, False, True])
    seen = replace(seen, nodes=replace(seen.nodes, draining=leaving, schedulable=~leaving))
    assert in_service(seen) == ("n0", "n1", "n2", "n3")
    after = with_nodes(seen, np.ones(4, dtype=np.bool_), at_last=False)
    assert not after.nodes.draining.any()


def test_between_cycles_nothing_is_provisioned() -> None:
    outcome = pipeline.run(DecideRequest(cluster(), PolicyChoice("apc"), None, None, {"kept": 1}), TABLE_CACHE)
    assert (outcome.provisioning, outcome.provisioning_state, outcome.missing) == (None, {"kept": 1}, ())


def test_an_analyser_is_asked_with_its_parameters() -> None:
    """Given an analyser that takes no parameters, when the window's configuration has some, then they reach it."""
    seen, asked = cluster(window()), BreachQuery(window(), (1, 2))
    recording_cache = pipeline.RecordingCache(TABLE_CACHE, {"night": {"odd": 1}})
    with pytest.raises(InvalidInput, match="odd"):
        recording_cache(asked)
    known = pipeline.RecordingCache(TABLE_CACHE, {})(asked)
    assert list(known) == pytest.approx(run(seen).provisioning.windows[0].breach[:2])  # type: ignore[union-attr]


def test_an_analyser_that_nobody_knows_tells_nothing() -> None:
    outcome = run(cluster(window(analyser="crystal-ball")))
    assert outcome.provisioning is not None
    assert outcome.provisioning.windows[0].breach == ()


# --- without a goal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["apc", "first-fit"])
def test_an_application_without_a_goal_needs_nodes_for_its_instances(placement: str) -> None:
    """Given an application without flows that is to have three instances, then it has three nodes, though nothing
    predicts how it would do with fewer."""
    replicas = [WorkRow(f"shop#{index}", work_mcycles=0.0, memory_mib=100.0, app=0) for index in range(4)]
    seen = cluster(nodes=5, jobs=replicas, powers=power(5))
    web = WebColumns(("shop",), np.array([3]), np.array([3]), np.array([np.inf]), np.array([1.0]))
    assert len(in_service(replace(seen, web=web), placement)) == 3
