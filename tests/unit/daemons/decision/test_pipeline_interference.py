"""What policies decide where jobs slow each other down by the disks that they share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.decision.pipeline import DecideRequest, run
from daemons.models.outlook import outlook_of
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, ReasonCode
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.ports.plugins import find_policy
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot
from sim_backend.conformance.verifier import verify
from tests.simulation.place_instances import mixed_instance, small_instance
from tests.simulation.sharing_instances import with_io, with_loading

NOW_S = 10_000.0
RUNS, SLEEPS = WorkloadState.RUNNING, WorkloadState.SUSPENDED
SIMPLE = ("first-fit", "edf")


def _nodes(count: int, memory_mib: float = 8000.0) -> list[NodeRow]:
    return [NodeRow(f"n{at}", 4, 1000.0, memory_mib=memory_mib) for at in range(count)]


def _job(name: str, node: int | None = None, **more: object) -> WorkRow:
    row = WorkRow(
        name,
        memory_mib=2000.0,
        max_mhz=1000.0,
        vcpus=1,
        submit_s=0.0,
        desired_start_s=NOW_S,
        goal_s=NOW_S + 8000.0,
        work_mcycles=4e6,
    )
    if node is not None:
        row = replace(row, state=RUNS, places=((node, 1000.0),))
    return replace(row, **more)  # type: ignore[arg-type]


def _cluster(nodes: list[NodeRow], jobs: list[WorkRow], io: dict[str, float]) -> Snapshot:
    return with_io(replace(snapshot(nodes, jobs, NOW_S), cycle_s=900.0), io)


def _decide(seen: Snapshot, policy: str = "apc", **params: object) -> PlacementDecision:
    decision: PlacementDecision = find_policy("placement", policy).decide(seen, None, params)[0]
    assert verify(seen, decision) == []
    return decision


def _where(decision: PlacementDecision) -> dict[str, str]:
    return {change.workload: change.allotments[0].node for change in decision.changes if change.allotments}


def _change(decision: PlacementDecision, name: str) -> Change:
    return next(change for change in decision.changes if change.workload == name)


def _composed(policy: str) -> dict[str, object]:
    return {} if policy == "apc" else {"sharing": "composed"}


@pytest.mark.parametrize("policy", ["apc", *SIMPLE])
def test_disk_heavy_jobs_are_kept_apart(policy: str) -> None:
    jobs = [_job("d0"), _job("d1"), _job("c0"), _job("c1")]
    seen = _cluster(_nodes(2, 4000.0), jobs, {"d0": 0.8, "d1": 0.8})
    where = _where(_decide(seen, policy, **_composed(policy)))
    assert where["d0"] != where["d1"]
    assert sorted(where) == ["c0", "c1", "d0", "d1"]
    blind = _where(_decide(replace(seen, loading=None), policy))
    assert blind["d0"] == blind["d1"]


@pytest.mark.parametrize("policy", ["apc", *SIMPLE])
def test_a_job_goes_beside_those_that_slow_it_least(policy: str) -> None:
    jobs = [_job("heavy", 0), _job("light", 1), _job("none", 2), _job("new")]
    io = {"heavy": 0.9, "light": 0.3, "new": 0.6}
    assert _where(_decide(_cluster(_nodes(3), jobs, io), policy, **_composed(policy)))["new"] == "n2"
    del jobs[2]
    decision = _decide(_cluster(_nodes(2), jobs, io), policy, **_composed(policy))
    assert _where(decision)["new"] == "n1"
    assert dict(_change(decision, "new").reason.numbers)["slowed"] == pytest.approx(1.18)


@pytest.mark.parametrize("policy", SIMPLE)
def test_of_two_nodes_the_one_whose_users_end_first(policy: str) -> None:
    """Both would slow it alike; beside `short` it is alone again soon."""
    jobs = [_job("long", 0), _job("short", 1, done_mcycles=3.5e6), _job("new")]
    seen = _cluster(_nodes(2), jobs, {"long": 0.7, "short": 0.7, "new": 0.7})
    assert _where(_decide(seen, policy, sharing="composed"))["new"] == "n1"
    assert _where(_decide(seen, policy))["new"] == "n0"


@pytest.mark.parametrize("policy", ["apc", *SIMPLE])
def test_instances_of_one_job_are_spread(policy: str) -> None:
    jobs = [_job("other", 1), _job("gang", instances=3)]
    seen = _cluster(_nodes(4), jobs, {"gang": 0.5, "other": 0.5})
    given = _change(_decide(seen, policy, **_composed(policy)), "gang").allotments
    assert sorted(one.node for one in given) == ["n0", "n2", "n3"]


@pytest.mark.parametrize("policy", SIMPLE)
def test_an_earlier_goal_takes_the_place_of_a_job_that_slows_nobody_any_more(policy: str) -> None:
    """Room is made by suspending `late`, and its load goes with it."""
    jobs = [_job("late", 0, goal_s=NOW_S + 90_000.0), _job("stays", 1, goal_s=NOW_S + 100.0), _job("new")]
    seen = _cluster(_nodes(2, 2000.0), jobs, {"late": 0.9, "stays": 0.2, "new": 0.9})
    decision = _decide(seen, policy, sharing="composed")
    if policy == "edf":
        assert _where(decision)["new"] == "n0"
        assert "slowed" not in dict(_change(decision, "new").reason.numbers)
    else:
        assert not decision.changes


def test_running_jobs_that_slow_each_other_down_are_parted() -> None:
    jobs = [_job("d0", 0), _job("d1", 0)]
    seen = _cluster(_nodes(2), jobs, {"d0": 0.8, "d1": 0.8})
    decision = _decide(seen)
    (change,) = decision.changes
    assert change.kind is ChangeKind.MIGRATE
    assert change.reason.code is ReasonCode.SHARING
    assert dict(change.reason.numbers)["slowed_before"] == pytest.approx(1.64)
    assert not _decide(replace(seen, loading=None)).changes


def test_full_nodes_exchange_jobs() -> None:
    jobs = [_job("d0", 0), _job("d1", 0), _job("c0", 1), _job("c1", 1)]
    seen = _cluster(_nodes(2, 4000.0), jobs, {"d0": 0.9, "d1": 0.9})
    kinds = [(change.kind, change.workload[0]) for change in _decide(seen).changes]
    assert sorted(kinds) == [(ChangeKind.MIGRATE, "c"), (ChangeKind.MIGRATE, "d")]


def test_nobody_is_started_at_the_cost_of_the_unhappiest_and_others_start_all_the_same() -> None:
    """`poor` is the unhappiest by far and would be slowed; a job that loads nothing starts beside it."""
    poor, ends = _job("poor", 0, goal_s=NOW_S + 1000.0), _job("ends", 0, done_mcycles=3.9e6)
    late = NOW_S + 1e6
    jobs = [poor, ends, _job("greedy", goal_s=late), _job("quiet", goal_s=late)]
    seen = _cluster(_nodes(1), jobs, {"poor": 0.9, "greedy": 0.9})
    decision = _decide(seen)
    assert _where(decision) == {"quiet": "n0"}
    (refusal,) = decision.refusals
    assert (refusal.workload, refusal.reason.code) == ("greedy", ReasonCode.SHARING)
    assert dict(refusal.reason.numbers)["slowed"] == pytest.approx(1.81)


def test_the_model_asked_for_predicts() -> None:
    """Three unlike jobs on one node: what is predicted is the exact network's, not the formula's."""
    jobs = [_job("a", 0), _job("b", 0), _job("c", 0)]
    seen = _cluster(_nodes(1), jobs, {"a": 0.9, "b": 0.5, "c": 0.2})
    assert seen.loading is not None
    told = {}
    for model in ("formula", "product-form"):
        asked = replace(seen, loading=replace(seen.loading, model=model))
        told[model] = _decide(asked).predicted_utility
        assert told[model] == pytest.approx(min(outlook_of(asked, ()).predicted))
    assert told["formula"] != pytest.approx(told["product-form"], abs=1e-4)


def test_decisions_say_whom_sharing_slows() -> None:
    jobs = [_job("d0", 0), _job("d1"), _job("c0")]
    seen = _cluster(_nodes(1), jobs, {"d0": 0.8, "d1": 0.5})
    for policy in ("apc", "first-fit"):
        placed = run(DecideRequest(seen, PolicyChoice(policy), None, None, None)).placement
        found = [(one.workload, one.node, one.resource, one.by) for one in placed.slowed]
        assert found == [("d0", "n0", "io", ("d1",)), ("d1", "n0", "io", ("d0",))]
        assert placed.slowed[0].factor == pytest.approx(1.4)


def test_loads_of_no_use_change_nothing() -> None:
    seen = _cluster(_nodes(2), [_job("a", 0), _job("b"), _job("c")], {})
    for policy in ("apc", *SIMPLE):
        assert _decide(seen, policy) == _decide(replace(seen, loading=None), policy)


@pytest.mark.parametrize("policy", SIMPLE)
@pytest.mark.parametrize("value", ["yes", True, 1, None])
def test_other_values_of_the_parameter_are_refused(policy: str, value: object) -> None:
    with pytest.raises(InvalidInput, match="sharing"):
        find_policy("placement", policy).check_params({"sharing": value})


@pytest.mark.full
@pytest.mark.parametrize("policy", ["apc", *SIMPLE])
def test_whatever_is_loaded_decisions_are_sound(policy: str) -> None:
    for seed in range(25):
        seen = with_loading(mixed_instance(300 + seed), seed, "auto")
        decision = find_policy("placement", policy).decide(seen, None, _composed(policy))[0]
        assert verify(seen, decision) == [], seed


@pytest.mark.full
def test_seeing_is_no_worse_than_being_blind_and_better_on_average() -> None:
    """Both decisions judged with what sharing truly costs: the smallest utility and the mean."""
    lowest, means = [], []
    for seed in range(60):
        seen = with_loading(small_instance(seed), seed)
        found = []
        for shown in (seen, replace(seen, loading=None)):
            decision = find_policy("placement", "apc").decide(shown, None, {})[0]
            found.append(np.array(outlook_of(seen, decision.changes).predicted))
        lowest.append(found[0].min() - found[1].min())
        means.append(found[0].mean() - found[1].mean())
    assert min(lowest) >= -0.01
    assert np.mean(lowest) > 0.01
    assert np.mean(means) > 0.005
