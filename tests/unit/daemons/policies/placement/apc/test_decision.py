"""What APC decides on clusters small enough to see why."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.policies.placement.apc import Apc
from shared.base.errors import InvalidInput
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, ReasonCode
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind, Stage
from shared.values.operation_costs import COSTS
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S, CYCLE_S = 10_000.0, 600.0
RUNNING, SUSPENDED = WorkloadState.RUNNING, WorkloadState.SUSPENDED
SMALL = NodeRow("n0", cores=1, core_mhz=1000.0, memory_mib=1000.0)


def _job(name: str, goal_s: float, needs_s: float = 1200.0, **more: Any) -> WorkRow:
    """A job that fills SMALL, runs `needs_s` at full speed and was to start now."""
    values = {"memory_mib": 1000.0, "work_mcycles": needs_s * 1000.0, "desired_start_s": NOW_S, **more}
    return WorkRow(name, goal_s=NOW_S + goal_s, **values)


def _seen(nodes: Sequence[NodeRow], jobs: Sequence[WorkRow], costs: str = "none", **more: Any) -> Snapshot:
    return replace(snapshot(nodes, jobs, NOW_S), cycle_s=CYCLE_S, costs=COSTS[costs], **more)


def _decide(seen: Snapshot, **params: Any) -> PlacementDecision:
    return Apc().decide(seen, None, params)[0]


def _changes(decision: PlacementDecision) -> Mapping[str, Change]:
    return {change.workload: change for change in decision.changes}


def _refused(decision: PlacementDecision) -> Mapping[str, ReasonCode]:
    return {refusal.workload: refusal.reason.code for refusal in decision.refusals}


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"heads": 0}, "heads"),
        ({"heads": True}, "heads"),
        ({"heads": 1.5}, "heads"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"guard": "maybe"}, "guard"),
        ({"guard": ["on"]}, "guard"),
        ({"changes_max": -1}, "changes_max"),
        ({"cool_down_s": math.inf}, "cool_down_s"),
        ({"event_driven_start": "yes"}, "event_driven_start"),
        ({"passes": 0}, "passes"),
        ({"haeds": 4}, "haeds"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(params: Mapping[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Apc().check_params(params)
    (problem,) = caught.value.problems
    assert named in problem.where
    assert problem.what
    assert problem.expected


def test_every_wrong_parameter_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        Apc().check_params({"heads": 0, "guard": 1})
    assert len(caught.value.problems) == 2


# --- displacing ------------------------------------------------------------------------------------------------------


def _rivals(goal_waiting: float, goal_running: float) -> Snapshot:
    running = _job("A", goal_running, state=RUNNING, places=((0, 1000.0),))
    return _seen([SMALL], [running, _job("B", goal_waiting)])


def test_the_unhappier_takes_the_place_of_the_happier() -> None:
    decision = _decide(_rivals(1500.0, 20_000.0))
    changes = _changes(decision)
    assert {name: change.kind for name, change in changes.items()} == {"A": ChangeKind.SUSPEND, "B": ChangeKind.START}
    assert changes["A"].reason.code is ReasonCode.PREEMPTED
    numbers = dict(changes["B"].reason.numbers)
    assert numbers["gain"] == pytest.approx(numbers["after"] - numbers["before"])
    assert numbers["gain"] > 0.01


def test_equal_jobs_are_not_exchanged_whatever_the_tolerance() -> None:
    decision = _decide(_rivals(1500.0, 1500.0), tolerance=0.0)
    assert not decision.changes
    assert _refused(decision) == {"B": ReasonCode.NO_GAIN}


def test_equal_jobs_in_turn_are_never_later_than_evenly() -> None:
    """Three of 1,200 s at full speed run on one node. Evenly, all would be done after 3,600 s."""
    left_s, mhz, done_s, now_s = dict.fromkeys("ABC", 1200.0), dict.fromkeys("ABC", 333.0), dict[str, float](), 0.0
    while left_s:
        jobs = [
            _job(name, 7200.0, needs_s, memory_mib=300.0, state=RUNNING, places=((0, mhz[name]),))
            for name, needs_s in left_s.items()
        ]
        mhz |= {name: change.allotments[0].cpu_mhz for name, change in _changes(_decide(_seen([SMALL], jobs))).items()}
        step_s = min(needs_s * SMALL.core_mhz / mhz[name] for name, needs_s in left_s.items())
        now_s += step_s
        left_s = {name: needs_s - step_s * mhz[name] / SMALL.core_mhz for name, needs_s in left_s.items()}
        done_s |= {name: now_s for name, needs_s in left_s.items() if needs_s < 1.0}
        left_s = {name: needs_s for name, needs_s in left_s.items() if needs_s >= 1.0}
    assert list(done_s.values()) == pytest.approx([1200.0, 2400.0, 3600.0], rel=0.01)


def test_the_guard_stops_the_later_of_two_alike_and_says_so() -> None:
    """B came later, so that its goal is later; it is unhappier since it takes longer. C lifts the common level."""
    running = _job("A", 20_000.0, 6000.0, state=RUNNING, places=((0, 1000.0),))
    large = WorkRow("C", RUNNING, vcpus=10, max_mhz=1e4, work_mcycles=2e7, goal_s=3e4, places=((1, 1e4),))
    nodes = [SMALL, NodeRow("n1", cores=10, core_mhz=1000.0, memory_mib=1000.0)]
    seen = _seen(nodes, [running, _job("B", 20_050.0, 19_900.0), large])
    assert {change.kind for change in _decide(seen, guard="off", tolerance=0.001).changes} == {
        ChangeKind.SUSPEND,
        ChangeKind.START,
    }
    for guard in ("equal", "on"):
        decision = _decide(seen, guard=guard, tolerance=0.001)
        assert not decision.changes
        assert _refused(decision) == {"B": ReasonCode.GUARD}


def test_a_tolerance_that_is_missed_keeps_things_as_they_are() -> None:
    decision = _decide(_rivals(1500.0, 20_000.0), tolerance=0.5)
    assert not decision.changes
    assert _refused(decision) == {"B": ReasonCode.NO_GAIN}
    (refusal,) = decision.refusals
    assert dict(refusal.reason.numbers)["tolerance"] == 0.5


def test_costs_that_take_the_whole_cycle_are_not_worth_it() -> None:
    seen = replace(_rivals(1500.0, 20_000.0), costs=replace(COSTS["paper"], suspend_s_per_mib=1.0))
    assert not _decide(seen).changes


def test_a_job_without_a_goal_gives_way_to_one_that_gains_little() -> None:
    guest = WorkRow("A", RUNNING, memory_mib=1000.0, work_mcycles=1e6, places=((0, 1000.0),))
    decision = _decide(_seen([SMALL], [guest, _job("B", 1e6, 9e5)]))
    assert {change.workload: change.kind for change in decision.changes} == {
        "A": ChangeKind.SUSPEND,
        "B": ChangeKind.START,
    }


def test_jobs_without_a_goal_take_what_is_left() -> None:
    rows = [WorkRow("free", memory_mib=1000.0), _job("aims", 5000.0), WorkRow("late", memory_mib=1000.0, goal_s=0.0)]
    nodes = [SMALL, replace(SMALL, name="n1")]
    decision = _decide(_seen(nodes, rows))
    assert "aims" in _changes(decision)
    assert len(decision.changes) == 2


def test_one_happy_gang_gives_way_as_a_whole_and_one_comes_as_a_whole() -> None:
    nodes = [SMALL, replace(SMALL, name="n1")]
    two = ((0, 1000.0), (1, 1000.0))
    gang = _job("A", 50_000.0, state=RUNNING, places=two, instances=2)
    decision = _decide(_seen(nodes, [gang, _job("B", 1500.0, instances=2)]))
    changes = _changes(decision)
    assert changes["A"].kind is ChangeKind.SUSPEND
    assert [given.node for given in changes["B"].allotments] == ["n0", "n1"]
    assert len({given.cpu_mhz for given in changes["B"].allotments}) == 1


def test_singles_make_room_for_a_gang() -> None:
    nodes = [SMALL, replace(SMALL, name="n1"), replace(SMALL, name="n2")]
    singles = [_job(f"A{at}", 50_000.0 + at, state=RUNNING, places=((at, 1000.0),)) for at in range(3)]
    decision = _decide(_seen(nodes, [*singles, _job("B", 1500.0, instances=2, spread=True)]))
    kinds = [change.kind for change in decision.changes]
    assert kinds.count(ChangeKind.SUSPEND) == 2
    assert kinds.count(ChangeKind.START) == 1


# --- limits ----------------------------------------------------------------------------------------------------------


def _three_rivals() -> Snapshot:
    nodes = [replace(SMALL, name=f"n{at}") for at in range(3)]
    running = [_job(f"A{at}", 50_000.0, state=RUNNING, places=((at, 1000.0),)) for at in range(3)]
    return _seen(nodes, [*running, *(_job(f"B{at}", 1500.0) for at in range(3))])


@pytest.mark.parametrize(("most", "made"), [(0, 3), (1, 1), (2, 2)])
def test_no_more_changes_than_allowed(most: int, made: int) -> None:
    decision = _decide(_three_rivals(), changes_max=most)
    assert [change.kind for change in decision.changes].count(ChangeKind.SUSPEND) == made
    waiting = [code for name, code in _refused(decision).items() if name.startswith("B")]
    assert waiting == [ReasonCode.MIGRATION_LIMIT] * (3 - made)


def test_what_was_moved_a_short_while_ago_stays() -> None:
    seen = _three_rivals()
    changed_s = np.full(6, -np.inf)
    changed_s[:2] = NOW_S - 100.0
    seen = replace(seen, workloads=replace(seen.workloads, changed_s=changed_s))
    decision = _decide(seen, cool_down_s=600.0)
    assert [change.workload for change in decision.changes if change.kind is ChangeKind.SUSPEND] == ["A2"]


def test_a_draining_node_is_emptied_and_who_cannot_move_says_why() -> None:
    nodes = [replace(SMALL, draining=True, schedulable=False, memory_mib=2000.0), replace(SMALL, name="n1")]
    jobs = [_job(name, 5000.0, state=RUNNING, places=((0, 500.0),)) for name in ("A", "B")]
    decision = _decide(_seen(nodes, jobs))
    (change,) = decision.changes
    assert change.kind is ChangeKind.MIGRATE
    assert change.reason.code is ReasonCode.DRAIN
    assert _refused(decision) == {({"A", "B"} - {change.workload}).pop(): ReasonCode.NO_MEMORY}


def _leaving(*places: tuple[int, float], cores: int = 4, **more: Any) -> Snapshot:
    """A job of 1000 MiB on n0, which is to be emptied, and others' CPU on n1 and n2, between cycles."""
    nodes = [replace(SMALL, draining=True, schedulable=False), *(NodeRow(f"n{at}", cores, 1000.0) for at in (1, 2))]
    busy = [
        WorkRow(f"B{at}", RUNNING, memory_mib=100.0, max_mhz=4000.0, vcpus=4, work_mcycles=1e6, places=(place,))
        for at, place in enumerate(places)
    ]
    return _seen(nodes, [_job("A", 5000.0, state=RUNNING, places=((0, 700.0),)), *busy], at_cycle=False, **more)


@pytest.mark.parametrize("fills", [True, False])
def test_between_cycles_a_node_is_emptied_into_idle_cpu_and_nothing_else_is_touched(fills: bool) -> None:
    (change,) = _decide(_leaving((1, 3900.0), (2, 3400.0)), event_driven_start=fills).changes
    assert (change.workload, change.kind, change.reason.code) == ("A", ChangeKind.MIGRATE, ReasonCode.DRAIN)
    (given,) = change.allotments
    assert given.node == "n2"
    assert given.cpu_mhz == pytest.approx(600.0)


def test_between_cycles_nobody_gives_way_to_what_leaves_and_the_reason_is_cpu() -> None:
    seen = _leaving((1, 3950.0), (2, 3990.0))
    decision = _decide(seen)
    assert not decision.changes
    (refusal,) = decision.refusals
    assert (refusal.workload, refusal.reason.code) == ("A", ReasonCode.NO_CPU)
    numbers = dict(refusal.reason.numbers)
    assert numbers == {"needed_mhz": pytest.approx(100.0), "largest_free_mhz": pytest.approx(50.0)}
    assert _changes(_decide(replace(seen, at_cycle=True)))["A"].kind is ChangeKind.MIGRATE


def test_no_memory_is_said_only_where_there_is_none() -> None:
    """Every instance of a gang finds a node, but not all of them together; one that must be alone has nowhere to go."""
    nodes = [
        replace(SMALL, draining=True, schedulable=False, memory_mib=2000.0),
        NodeRow("n1", 4, 1000.0, memory_mib=1500.0),
    ]
    gang = _job("A", 5000.0, state=RUNNING, places=((0, 500.0), (0, 500.0)), instances=2)
    (refusal,) = _decide(_seen(nodes, [gang])).refusals
    assert refusal.reason.code is ReasonCode.NO_MEMORY
    assert dict(refusal.reason.numbers)["instances_short"] == 1.0
    apart = replace(gang, spread=True, places=((0, 500.0), (1, 500.0)), memory_mib=100.0)
    (refusal,) = _decide(_seen(nodes, [apart])).refusals
    assert refusal.reason.code is ReasonCode.TOO_FEW_NODES


# --- rules -----------------------------------------------------------------------------------------------------------


def _ruled(kind: ConstraintKind, members: tuple[str, ...], nodes: tuple[str, ...] = ()) -> PlacementDecision:
    wide = [NodeRow(f"n{at}", cores=4, memory_mib=4000.0) for at in range(3)]
    jobs = [_job(name, 5000.0) for name in ("a", "b")]
    return _decide(_seen(wide, jobs, constraints=(Constraint(kind, members, nodes),)))


def _nodes(decision: PlacementDecision) -> dict[str, str]:
    return {name: change.allotments[0].node for name, change in _changes(decision).items()}


def test_pin_forbid_together_apart() -> None:
    assert _nodes(_ruled(ConstraintKind.PIN, ("a",), ("n2",)))["a"] == "n2"
    assert _nodes(_ruled(ConstraintKind.FORBID, ("a", "b"), ("n0", "n1"))) == {"a": "n2", "b": "n2"}
    together = _nodes(_ruled(ConstraintKind.TOGETHER, ("a", "b")))
    apart = _nodes(_ruled(ConstraintKind.APART, ("a", "b")))
    assert together["a"] == together["b"]
    assert apart["a"] != apart["b"]


def test_constraints_that_contradict_refuse_that_job_alone() -> None:
    wide = [NodeRow(f"n{at}", cores=4, memory_mib=4000.0) for at in range(3)]
    pins = tuple(Constraint(ConstraintKind.PIN, ("a",), (node,)) for node in ("n0", "n1"))
    decision = _decide(_seen(wide, [_job("a", 5000.0), _job("b", 5000.0)], constraints=pins))
    assert set(_changes(decision)) == {"b"}
    assert _refused(decision) == {"a": ReasonCode.CONTRADICTION}


def test_a_pin_to_a_node_that_is_not_usable_is_a_constraint() -> None:
    assert _refused(_ruled(ConstraintKind.PIN, ("a",), ("elsewhere",))) == {"a": ReasonCode.CONTRADICTION}
    wide = [NodeRow("n0", cores=4), NodeRow("n1", cores=4, schedulable=False)]
    seen = _seen(wide, [_job("a", 5000.0)], constraints=(Constraint(ConstraintKind.PIN, ("a",), ("n1",)),))
    assert _refused(_decide(seen)) == {"a": ReasonCode.CONSTRAINT}


def test_a_suspended_job_that_is_kept_resumes_where_its_image_is() -> None:
    nodes = [replace(SMALL, memory_mib=900.0), replace(SMALL, name="n1")]
    job = _job("a", 5000.0, state=SUSPENDED, places=((0, 0.0),))
    keep = Constraint(ConstraintKind.KEEP, ("a",))
    assert _nodes(_decide(_seen(nodes, [job]))) == {"a": "n1"}
    assert not _decide(_seen(nodes, [job], constraints=(keep,))).changes


# --- time ------------------------------------------------------------------------------------------------------------


def test_between_cycles_idle_room_is_filled_and_nothing_that_runs_is_touched() -> None:
    nodes = [replace(SMALL, memory_mib=2000.0), replace(SMALL, name="n1")]
    running = _job("A", 50_000.0, state=RUNNING, places=((0, 700.0),))
    jobs = [running, *(_job(f"B{at}", 1500.0 + at) for at in range(3))]
    seen = _seen(nodes, jobs, at_cycle=False)
    decision = _decide(seen)
    assert {name: change.allotments[0] for name, change in _changes(decision).items()} == {
        "B0": pytest.approx(_changes(decision)["B0"].allotments[0]),
        "B1": _changes(decision)["B1"].allotments[0],
    }
    assert {change.kind for change in decision.changes} == {ChangeKind.START}
    assert _changes(decision)["B0"].allotments[0].node == "n1"
    assert _changes(decision)["B1"].allotments[0].cpu_mhz == pytest.approx(300.0)
    assert not _decide(seen, event_driven_start=False).changes


def test_a_stage_that_is_entered_in_the_cycle_counts() -> None:
    """The second stage can use twice the speed of the first and is entered, so that it is given its speed at once."""
    stages = (Stage(100_000.0, 500.0), Stage(900_000.0, 1000.0))
    job = replace(_job("a", 9000.0), max_mhz=1000.0, stages=stages, work_mcycles=1e6)
    (change,) = _decide(_seen([SMALL], [job])).changes
    assert change.allotments[0].cpu_mhz == 1000.0
    slow = replace(job, stages=(Stage(400_000.0, 500.0), Stage(600_000.0, 1000.0)))
    (change,) = _decide(_seen([SMALL], [slow])).changes
    assert change.allotments[0].cpu_mhz == 500.0


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_decision_survives_pickling_with_its_reasons() -> None:
    decision = _decide(_rivals(1500.0, 20_000.0))
    again = pickle.loads(pickle.dumps(decision))
    assert tuple(again.changes) == tuple(decision.changes)
    assert tuple(again.refusals) == tuple(decision.refusals)
    assert again.outlook == decision.outlook


def test_importance_decides_between_equals() -> None:
    jobs = [_job("plain", 5000.0), _job("weighty", 5000.0, importance=4.0)]
    (change,) = _decide(_seen([SMALL], jobs)).changes
    assert change.workload == "weighty"


def test_no_nodes_no_jobs() -> None:
    empty = _decide(_seen([], []))
    assert (tuple(empty.changes), tuple(empty.refusals), empty.predicted_utility) == ((), (), None)
    assert empty.outlook is not None
    assert empty.outlook.level is None
    assert _refused(_decide(_seen([], [_job("a", 5000.0)]))) == {"a": ReasonCode.NO_NODES}
