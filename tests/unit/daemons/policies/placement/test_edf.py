"""EDF: order of goals, who gives way and who does not."""

from __future__ import annotations

import math

import pytest

from daemons.policies.placement.edf import EarliestDeadlineFirst
from shared.base.errors import InvalidInput
from shared.policy_api.decision import ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.snapshot import WorkloadState
from sim_backend.conformance.clusters import NodeRow, WorkRow, after, snapshot

RUNNING, SUSPENDED = WorkloadState.RUNNING, WorkloadState.SUSPENDED
SEEN_NODES = [NodeRow("n0", cores=2), NodeRow("n1", cores=2)]


def decide(nodes: list[NodeRow], *jobs: WorkRow, preempt: bool = True) -> PlacementDecision:
    """EDF's decision."""
    return EarliestDeadlineFirst().decide(snapshot(nodes, jobs), None, {"preempt": preempt})[0]


def kinds(decision: PlacementDecision) -> dict[str, str]:
    """Kind by workload, in the order of the changes."""
    return {change.workload: change.kind.value for change in decision.changes}


def runner(name: str, goal_s: float, *nodes: int, fixed: bool = False) -> WorkRow:
    """A running job with an instance of 1000 MHz on each of the nodes."""
    places = tuple((node, 1000.0) for node in nodes)
    return WorkRow(name, RUNNING, goal_s=goal_s, instances=len(nodes), places=places, fixed=fixed)


def test_earliest_goal_first() -> None:
    """No goal comes last; equal goals by arrival."""
    jobs = [
        WorkRow("none"),
        WorkRow("late", goal_s=9000.0),
        WorkRow("second", goal_s=5000.0, submit_s=2.0),
        WorkRow("first", goal_s=5000.0, submit_s=1.0),
    ]
    decision = decide([NodeRow("n0", cores=3)], *jobs)
    assert list(kinds(decision)) == ["first", "second", "late"]
    assert decision.changes[0].reason == Reason(ReasonCode.EARLIER_GOAL, (("goal_s", 5000.0),))
    assert [refusal.workload for refusal in decision.refusals] == ["none"]


def test_latest_goal_gives_way() -> None:
    """One runner is enough, and it is the one with the latest goal; its room is used."""
    jobs = [
        runner("a", 6000.0, 0),
        runner("b", 8000.0, 0),
        runner("c", 7000.0, 1),
        runner("d", math.inf, 1, fixed=True),
    ]
    decision = decide(SEEN_NODES, *jobs, WorkRow("j", goal_s=5000.0))
    assert kinds(decision) == {"b": "suspend", "j": "start"}
    suspend, start = decision.changes
    assert suspend.reason == Reason(ReasonCode.LATER_GOAL, (("goal_s", 8000.0), ("preempted_to_goal_s", 5000.0)))
    assert [given.node for given in start.allotments] == ["n0"]


def test_free_room_comes_first() -> None:
    """Nobody gives way while there is room."""
    assert kinds(decide(SEEN_NODES, runner("a", 9000.0, 0, 0), WorkRow("j", goal_s=5000.0))) == {"j": "start"}


def test_equal_and_earlier_goals_stay() -> None:
    """Only strictly later goals give way."""
    jobs = [runner("a", 5000.0, 0, 0), runner("b", 4000.0, 1, 1)]
    decision = decide(SEEN_NODES, *jobs, WorkRow("j", goal_s=5000.0))
    assert not decision.changes
    assert decision.refusals[0].reason.code is ReasonCode.NO_CPU


def test_never_in_vain() -> None:
    """If even all later jobs together would not make room, none of them is touched."""
    jobs = [runner("a", 9000.0, 0), runner("b", 4000.0, 0), runner("c", 9000.0, 1), runner("d", 4000.0, 1)]
    big = WorkRow("j", goal_s=5000.0, vcpus=2, max_mhz=2000.0)
    decision = decide(SEEN_NODES, *jobs, big)
    assert not decision.changes
    assert [refusal.workload for refusal in decision.refusals] == ["j"]


def test_only_those_who_help_are_suspended() -> None:
    """The latest goal is let go again when another's place is what makes the room."""
    jobs = [runner("a", 9000.0, 0), runner("b", 4000.0, 0), runner("c", 8000.0, 1), runner("d", 7000.0, 1)]
    big = WorkRow("j", goal_s=5000.0, vcpus=2, max_mhz=2000.0)
    assert kinds(decide(SEEN_NODES, *jobs, big)) == {"c": "suspend", "d": "suspend", "j": "start"}


def test_gangs_give_way_whole_and_are_served_whole() -> None:
    """A preempted gang frees the room of all its instances; a gang that asks gets all places."""
    gang = runner("g", 9000.0, 0, 0, 1)
    decision = decide(SEEN_NODES, gang, runner("k", 4000.0, 1), WorkRow("j", goal_s=5000.0, instances=2))
    assert kinds(decision) == {"g": "suspend", "j": "start"}
    decision = decide(SEEN_NODES, gang, runner("k", 4000.0, 1), WorkRow("j", goal_s=5000.0, instances=4))
    assert not decision.changes


def test_room_left_over_serves_the_next_goal_but_not_the_suspended() -> None:
    """What a gang leaves behind goes to the next waiting job; the gang itself asks again next time."""
    gang = runner("g", 9000.0, 0, 0, 1, 1)
    jobs = [gang, WorkRow("j", goal_s=5000.0, instances=3), WorkRow("k", goal_s=9500.0)]
    seen = snapshot(SEEN_NODES, jobs)
    decision, _ = EarliestDeadlineFirst().decide(seen, None, {})
    assert kinds(decision) == {"g": "suspend", "j": "start", "k": "start"}
    again, _ = EarliestDeadlineFirst().decide(after(seen, decision), None, {})
    assert not again.changes
    assert [refusal.workload for refusal in again.refusals] == ["g"]


def test_suspended_jobs_compete_by_goal() -> None:
    """A suspended job with an earlier goal takes the place of a later one, on its image's node if that is free."""
    asleep = WorkRow("s", SUSPENDED, goal_s=5000.0, places=((0, 1000.0),))
    decision = decide([NodeRow("n0", cores=1)], runner("r", 9000.0, 0), asleep)
    assert kinds(decision) == {"r": "suspend", "s": "resume"}


def test_without_preemption() -> None:
    """Only free room is given."""
    jobs = [runner("a", 9000.0, 0, 0), runner("b", 9000.0, 1), WorkRow("j", goal_s=5000.0), WorkRow("k", goal_s=4000.0)]
    assert kinds(decide(SEEN_NODES, *jobs, preempt=False)) == {"k": "start"}


def test_jobs_being_drained_are_not_preempted() -> None:
    """They have a change already, or could not be moved."""
    nodes = [NodeRow("n0", cores=1, draining=True), NodeRow("n1", cores=1)]
    decision = decide(nodes, runner("r", 9000.0, 0), WorkRow("j", goal_s=5000.0))
    assert kinds(decision) == {"r": "migrate"}
    assert decision.changes[0].kind is ChangeKind.MIGRATE


def test_parameters() -> None:
    """`preempt` is a bool; nothing else is known."""
    EarliestDeadlineFirst().check_params({"preempt": False})
    for params in ({"preempt": 1}, {"preempt": None}, {"heads": 4}):
        with pytest.raises(InvalidInput):
            EarliestDeadlineFirst().check_params(params)
