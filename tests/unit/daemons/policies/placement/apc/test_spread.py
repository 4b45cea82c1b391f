"""What APC does with workloads without a goal: fair parts of a node, moves to where more is left, reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.outlook import after, outlook_of
from daemons.policies.placement.apc import Apc
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, ReasonCode, Refusal
from shared.policy_api.snapshot import Snapshot, WebColumns, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind
from shared.values.operation_costs import COSTS
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S, CYCLE_S = 10_000.0, 900.0
RUNNING = WorkloadState.RUNNING
NODE = NodeRow("n0", cores=4, core_mhz=2000.0, memory_mib=16_000.0)
OTHER = replace(NODE, name="n1")


def _vm(name: str, mhz: float = 1000.0, node: int = 0, **more: Any) -> WorkRow:
    """Runs without a goal, on one vCPU."""
    return WorkRow(name, state=RUNNING, places=((node, mhz),), **{"max_mhz": 2000.0, **more})


def _seen(nodes: Sequence[NodeRow], rows: Sequence[WorkRow], **more: Any) -> Snapshot:
    return replace(snapshot(nodes, rows, NOW_S), cycle_s=CYCLE_S, costs=COSTS["paper"], **more)


def _decide(seen: Snapshot, **params: Any) -> PlacementDecision:
    return Apc().decide(seen, None, params)[0]


def _changes(decision: PlacementDecision) -> Mapping[str, Change]:
    return {change.workload: change for change in decision.changes}


def _refused(decision: PlacementDecision) -> Mapping[str, Refusal]:
    return {refusal.workload: refusal for refusal in decision.refusals}


def _given(seen: Snapshot, decision: PlacementDecision) -> dict[str, tuple[str, float]]:
    """Node and MHz of what runs in the end, of one instance each."""
    then, names = after(seen, decision.changes), seen.workloads.names
    rows = zip(then.owner.tolist(), then.node.tolist(), then.cpu_mhz.tolist(), strict=True)
    return {names[owner]: (seen.nodes.names[node], mhz) for owner, node, mhz in rows}


# --- fair parts ------------------------------------------------------------------------------------------------------


def test_four_starved_beside_four_fed_share_their_node_evenly() -> None:
    decision = _decide(_seen([NODE], [_vm(f"v{at}", 2000.0 if at < 4 else 1.0) for at in range(8)]))
    assert {change.kind for change in decision.changes} == {ChangeKind.RESIZE}
    assert [change.allotments[0].cpu_mhz for change in decision.changes] == pytest.approx([1000.0] * 8)
    codes = {name: change.reason.code for name, change in _changes(decision).items()}
    assert codes == {f"v{at}": ReasonCode.PREEMPTED if at < 4 else ReasonCode.FAIR_SHARE for at in range(8)}
    assert dict(_changes(decision)["v7"].reason.numbers) == {"before_mhz": 1.0, "after_mhz": pytest.approx(1000.0)}


def test_half_of_them_move_to_an_empty_node_so_that_all_run_at_full_speed() -> None:
    seen = _seen([NODE, OTHER], [_vm(f"v{at}", 2000.0 if at < 4 else 1.0) for at in range(8)])
    decision = _decide(seen)
    given_mhz = _given(seen, decision)
    assert [mhz for _, mhz in given_mhz.values()] == pytest.approx([2000.0] * 8)
    moved = [change for change in decision.changes if change.kind is ChangeKind.MIGRATE]
    assert len(moved) == 4
    assert {change.reason.code for change in moved} == {ReasonCode.FAIR_SHARE}
    assert not _decide(_after(seen, decision)).changes


def _after(seen: Snapshot, decision: PlacementDecision) -> Snapshot:
    """The same VMs where the decision has put them."""
    nodes = [NodeRow(name, cores=4, core_mhz=2000.0, memory_mib=16_000.0) for name in seen.nodes.names]
    names = [node.name for node in nodes]
    placed = _given(seen, decision)
    return _seen(nodes, [_vm(name, mhz, names.index(node)) for name, (node, mhz) in placed.items()])


def test_who_has_a_goal_is_served_first_and_the_rest_share_what_is_left() -> None:
    goal = WorkRow(
        "g", RUNNING, max_mhz=4000.0, vcpus=2, places=((0, 1000.0),), desired_start_s=NOW_S, goal_s=NOW_S + 3600.0,
        work_mcycles=2e7,
    )  # fmt: skip
    seen = _seen([NODE], [*(_vm(f"v{at}", 1000.0) for at in range(4)), goal])
    given_mhz = {name: mhz for name, (_, mhz) in _given(seen, _decide(seen)).items()}
    assert given_mhz == pytest.approx({"g": 4000.0} | {f"v{at}": 1000.0 for at in range(4)})


def test_the_more_important_gets_its_multiple_and_nobody_less_than_its_least() -> None:
    rows = [_vm("twice", importance=2.0), _vm("once"), _vm("least", min_mhz=700.0)]
    seen = _seen([replace(NODE, cores=1)], rows)
    given_mhz = {name: mhz for name, (_, mhz) in _given(seen, _decide(seen)).items()}
    assert given_mhz == pytest.approx({"twice": 2600.0 / 3.0, "once": 1300.0 / 3.0, "least": 700.0})


def test_instances_of_applications_without_a_goal_share_with_such_jobs() -> None:
    ones = np.ones(2)
    web = WebColumns(("a", "b"), np.array([1, 1]), np.array([1, 1]), ones * np.inf, ones)
    rows = [
        WorkRow(f"{name}#0", RUNNING, max_mhz=8000.0, vcpus=4, work_mcycles=0.0, app=at, places=((0, 100.0),))
        for at, name in enumerate(web.names)
    ]
    seen = _seen([NODE], [*rows, _vm("v0", max_mhz=1000.0), _vm("v1", 50.0)], web=web)
    decision = _decide(seen)
    given_mhz = {name: mhz for name, (_, mhz) in _given(seen, decision).items()}
    assert given_mhz == pytest.approx({"a#0": 2500.0, "b#0": 2500.0, "v0": 1000.0, "v1": 2000.0})
    assert decision.outlook is not None
    assert sorted(decision.outlook.goalless) == ["a", "b", "v0", "v1"]
    assert decision.predicted_utility is None


def test_a_job_of_several_instances_shares_on_all_its_nodes() -> None:
    gang = WorkRow("gang", RUNNING, max_mhz=2000.0, instances=2, places=((0, 2000.0), (1, 2000.0)))
    busy = [_vm(f"v{at}", 100.0, 0) for at in range(7)] + [_vm("w", 2000.0, 1)]
    seen = _seen([NODE, replace(OTHER, cores=1, core_mhz=3000.0)], [gang, *busy], constraints=_kept(8))
    then = after(seen, _decide(seen).changes)
    assert then.cpu_mhz[:2] == pytest.approx([1000.0, 1000.0])
    assert then.cpu_mhz[2:9] == pytest.approx([1000.0] * 7)
    assert then.cpu_mhz[9] == pytest.approx(2000.0)


def _kept(count: int) -> tuple[Constraint, ...]:
    names = (*(f"v{at}" for at in range(count)), "w")
    return tuple(Constraint(ConstraintKind.KEEP, (name,)) for name in names)


# --- moves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "params", "constraints"),
    [
        ({"memory_mib": 20_000.0}, {}, ()),  # no room elsewhere
        ({"required_labels": ("gpu",)}, {}, ()),
        ({"fixed": True}, {}, ()),
        ({"changed_s": NOW_S - 10.0}, {"cool_down_s": 60.0}, ()),
        ({"min_mhz": 50.0, "stays": True}, {}, ()),  # it lives on, and does not use what it has
        ({}, {}, (Constraint(ConstraintKind.KEEP, ("v0",)), Constraint(ConstraintKind.KEEP, ("v1",)))),
    ],
)
def test_nobody_moves_who_may_not_or_does_not_want_more(
    more: dict[str, Any], params: dict[str, Any], constraints: tuple[Constraint, ...]
) -> None:
    node = replace(NODE, cores=1, memory_mib=40_000.0)
    decision = _decide(_seen([node, OTHER], [_vm("v0", **more), _vm("v1", **more)], constraints=constraints), **params)
    assert not [change for change in decision.changes if change.kind is ChangeKind.MIGRATE]


def test_no_more_moves_than_a_cycle_may_make() -> None:
    decision = _decide(_seen([NODE, OTHER], [_vm(f"v{at}") for at in range(8)]), changes_max=1)
    assert [change.kind for change in decision.changes].count(ChangeKind.MIGRATE) == 1


def test_a_move_that_costs_more_than_it_brings_is_not_made() -> None:
    """Of 900 s 870 would be spent on the way."""
    slow = replace(COSTS["paper"], migrate_s_per_mib=0.87)
    rows = [_vm(f"v{at}") for at in range(8)]
    assert not _decide(replace(_seen([NODE, OTHER], rows), costs=slow)).changes
    assert _decide(_seen([NODE, OTHER], rows)).changes


def test_between_cycles_nobody_moves_nor_is_resized() -> None:
    assert not _decide(_seen([NODE, OTHER], [_vm(f"v{at}") for at in range(8)], at_cycle=False)).changes


def test_one_of_equal_nodes_gains_nothing_and_nothing_swings() -> None:
    """Five on four cores and four on four: a move would only change places."""
    rows = [_vm(f"v{at}", 1600.0) for at in range(5)] + [_vm(f"w{at}", 2000.0, 1) for at in range(4)]
    assert not _decide(_seen([NODE, OTHER], rows)).changes


def test_jobs_with_goals_keep_what_they_have_when_others_spread() -> None:
    goals = [
        WorkRow(f"g{at}", RUNNING, max_mhz=2000.0, places=((1, 2000.0),), desired_start_s=NOW_S, work_mcycles=1e7,
                goal_s=NOW_S + 7200.0)
        for at in range(3)
    ]  # fmt: skip
    seen = _seen([NODE, OTHER], [*(_vm(f"v{at}") for at in range(8)), *goals])
    given_mhz = _given(seen, _decide(seen))
    assert [given_mhz[f"g{at}"] for at in range(3)] == [("n1", 2000.0)] * 3
    assert sorted(node for name, (node, _) in given_mhz.items() if name.startswith("v")).count("n1") == 1


# --- starved ---------------------------------------------------------------------------------------------------------


def _crowded(mhz: float) -> Snapshot:
    goals = [
        WorkRow(f"g{at}", RUNNING, max_mhz=2000.0, places=((0, 2000.0),), desired_start_s=NOW_S, work_mcycles=1e7,
                goal_s=NOW_S + 7200.0)
        for at in range(3)
    ]  # fmt: skip
    last = replace(goals[0], name="g3", places=((0, 2000.0 - mhz),))
    return _seen([NODE], [*goals, last, _vm("v", mhz)])


def test_a_plan_that_starves_a_workload_says_so() -> None:
    changes = _changes(_decide(_crowded(500.0)))
    assert changes["v"].kind is ChangeKind.RESIZE
    assert changes["v"].allotments[0].cpu_mhz == pytest.approx(1.0)
    assert changes["v"].reason.code is ReasonCode.STARVED
    numbers = dict(changes["v"].reason.numbers)
    assert numbers == {"given_mhz": pytest.approx(1.0), "wanted_mhz": 2000.0, "largest_free_mhz": 0.0}


def test_a_workload_that_stays_starved_is_refused_more() -> None:
    decision = _decide(_crowded(1.0))
    assert "v" not in _changes(decision)
    assert _refused(decision)["v"].reason.code is ReasonCode.STARVED


def test_a_vm_that_lives_on_is_starved_only_below_what_it_uses() -> None:
    seen = _crowded(50.0)
    work = seen.workloads
    stays = np.array([name == "v" for name in work.names])
    needs = replace(seen, workloads=replace(work, stays=stays, min_mhz=np.where(stays, 50.0, 0.0)))
    assert "v" not in _refused(_decide(needs))


# --- utilities that tell nothing -------------------------------------------------------------------------------------


def test_a_utility_is_told_of_what_has_a_goal_only() -> None:
    seen = _crowded(500.0)
    decision = _decide(seen)
    assert decision.outlook is not None
    assert decision.outlook.goalless == ("v",) == outlook_of(seen, decision.changes).goalless
    assert decision.predicted_utility == min(decision.outlook.of_goals()) < 1.0


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(1.0, 2000.0)), min_size=1, max_size=10))
def test_the_smallest_speed_never_falls_and_one_more_decision_changes_nothing_much(
    where: list[tuple[int, float]],
) -> None:
    nodes = [NODE, OTHER, replace(NODE, name="n2")]
    used = [math.fsum(mhz for node, mhz in where if node == at) for at in range(3)]
    rows = [_vm(f"v{at}", mhz * min(1.0, 8000.0 / used[node]), node) for at, (node, mhz) in enumerate(where)]
    seen = _seen(nodes, rows)
    decision = _decide(seen)
    given_mhz = [mhz for _, mhz in _given(seen, decision).values()]
    assert min(given_mhz) >= min(row.places[0][1] for row in rows) * (1.0 - 1e-9)
    then = _after(seen, decision)
    again = [change for change in _decide(then).changes if change.kind is ChangeKind.MIGRATE]
    assert not again


# --- beside permanent VMs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal_s", [math.inf, NOW_S + 4000.0])
@pytest.mark.parametrize(("instances", "spread"), [(1, False), (2, True)])
def test_who_waits_starts_beside_permanent_vms_that_do_not_use_their_cpu(
    goal_s: float, instances: int, spread: bool
) -> None:
    """They never end: it would wait for ever."""
    vms = [_vm(f"v{at}", 2000.0, at // 4, stays=True, min_mhz=50.0) for at in range(8)]
    job = WorkRow("job", max_mhz=1000.0, goal_s=goal_s, work_mcycles=1e6, instances=instances, spread=spread)
    seen = _seen([NODE, OTHER], [*vms, job])
    decision = _decide(seen)
    started = _changes(decision)["job"]
    assert (started.kind, len({each.node for each in started.allotments})) == (ChangeKind.START, instances)
    assert not _refused(decision)
    assert {change.kind for change in decision.changes} == {ChangeKind.START, ChangeKind.RESIZE}


@pytest.mark.parametrize("instances", [1, 2])
def test_permanent_vms_keep_the_cpu_that_they_use(instances: int) -> None:
    vms = [_vm(f"v{at}", 2000.0, at // 4, stays=True, min_mhz=1990.0) for at in range(8)]
    decision = _decide(_seen([NODE, OTHER], [*vms, WorkRow("job", max_mhz=1000.0, instances=instances)]))
    assert [*_refused(decision)] == ["job"]
    assert not decision.changes


def test_between_cycles_permanent_vms_keep_their_cpu() -> None:
    vms = [_vm(f"v{at}", 2000.0, stays=True, min_mhz=50.0) for at in range(4)]
    decision = _decide(_seen([NODE], [*vms, WorkRow("job", max_mhz=1000.0)], at_cycle=False))
    assert not decision.changes
