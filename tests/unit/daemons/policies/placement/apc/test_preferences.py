"""What APC does for preferred rules: a choice between equals, and moves that cost nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemons.policies.placement.apc import Apc
from shared.policy_api.decision import ChangeKind, PlacementDecision, ReasonCode
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind
from shared.values.operation_costs import COSTS
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S = 10_000.0
RUNNING = WorkloadState.RUNNING
PIN, APART, TOGETHER = ConstraintKind.PIN, ConstraintKind.APART, ConstraintKind.TOGETHER
NODES = [NodeRow(f"n{at}", labels=(("ssd",) if at == 2 else ()) + (f"rack=r{at // 2}",)) for at in range(4)]
SSD = Constraint(PIN, ("a",), labels=("ssd",), weight=5)


def _on(name: str, node: int, mhz: float = 1000.0, **more: Any) -> WorkRow:
    return WorkRow(name, RUNNING, places=((node, mhz),), **more)


def _decide(
    rows: list[WorkRow], *constraints: Constraint, costs: str = "none", nodes: list[NodeRow] = NODES, **params: Any
) -> PlacementDecision:
    seen: Snapshot = replace(snapshot(nodes, rows, NOW_S), constraints=constraints, costs=COSTS[costs])
    return Apc().decide(seen, None, params)[0]


def _moves(decision: PlacementDecision) -> dict[str, str]:
    return {each.workload: each.allotments[0].node for each in decision.changes if each.kind is not ChangeKind.RESIZE}


def test_of_equal_nodes_the_preferred_one() -> None:
    assert _moves(_decide([WorkRow("a")])) == {"a": "n0"}
    assert _moves(_decide([WorkRow("a")], SSD)) == {"a": "n2"}
    assert _moves(_decide([WorkRow("a"), WorkRow("b")], Constraint(APART, ("b", "a"), scope="rack", weight=1))) in (
        {"a": "n0", "b": "n2"},
        {"a": "n2", "b": "n0"},
    )


def test_the_larger_weight_wins() -> None:
    """It would be with b on n0, and on n2."""
    near = Constraint(TOGETHER, ("a",), about=("b",), weight=4)
    assert _moves(_decide([WorkRow("a"), _on("b", 0, fixed=True)], SSD, near)) == {"a": "n2"}
    assert _moves(_decide([WorkRow("a"), _on("b", 0, fixed=True)], SSD, replace(near, weight=6))) == {"a": "n0"}


def test_a_preference_does_not_slow_down_a_job_with_a_goal() -> None:
    """Half as fast on the preferred node."""
    nodes = [NodeRow("n0", 1), NodeRow("n2", 1, core_mhz=500.0, labels=("ssd",))]
    rows = [WorkRow("a", desired_start_s=NOW_S, goal_s=NOW_S + 4000.0, work_mcycles=2e6)]
    assert _moves(_decide(rows, SSD, nodes=nodes)) == {"a": "n0"}


def test_a_preference_never_keeps_a_job_from_starting() -> None:
    """The only room is where it would not be."""
    full = [_on(f"f{at}{number}", at, fixed=True) for at in (0, 1, 2) for number in range(4)]
    assert _moves(_decide([WorkRow("a"), *full], SSD)) == {"a": "n3"}


def test_what_runs_moves_to_where_it_prefers_if_that_costs_nothing() -> None:
    decision = _decide([_on("a", 0)], SSD, costs="paper")
    assert _moves(decision) == {"a": "n2"}
    assert decision.changes[0].reason.code is ReasonCode.PREFERENCE
    assert not _decide([_on("a", 2)], SSD, costs="paper").changes


@pytest.mark.parametrize(
    ("row", "params", "more"),
    [
        ({}, {"preference_moves": 0}, ()),
        ({"changed_s": NOW_S - 10.0}, {"cool_down_s": 60.0}, ()),
        ({"fixed": True}, {}, ()),
        ({}, {}, (Constraint(ConstraintKind.KEEP, ("a",)),)),
        ({}, {}, (Constraint(ConstraintKind.FORBID, ("a",), ("n2",)),)),
        ({"goal_s": NOW_S + 4000.0, "desired_start_s": NOW_S}, {}, ()),  # the pause would cost it utility
    ],
)
def test_what_is_not_moved_for_a_preference(
    row: dict[str, Any], params: dict[str, Any], more: tuple[Constraint, ...]
) -> None:
    assert not _decide([_on("a", 0, **row)], SSD, *more, costs="paper", **params).changes


def test_nobody_gets_less_cpu_for_a_preference() -> None:
    """n2 has one core, on which b runs."""
    nodes = [replace(node, cores=1) if node.name == "n2" else node for node in NODES]
    assert not _decide([_on("a", 0), _on("b", 2)], SSD, nodes=nodes, costs="paper").changes


def test_so_many_moves_and_no_more_and_those_that_lose_most_first() -> None:
    rows = [_on(f"v{at}", 0, 100.0, max_mhz=100.0) for at in range(6)]
    wishes = [Constraint(PIN, (row.name,), labels=("ssd",), weight=at + 1) for at, row in enumerate(rows)]
    decision = _decide(rows, *wishes, costs="paper", preference_moves=2)
    assert _moves(decision) == {"v5": "n2", "v4": "n2"}


def test_moves_for_preferences_end() -> None:
    """Six that would all be alone on four nodes: two cycles later nothing moves."""
    rows = [_on(f"v{at}", 0, 100.0, max_mhz=100.0) for at in range(6)]
    alone = Constraint(APART, tuple(row.name for row in rows), weight=3)
    where = {row.name: 0 for row in rows}
    for _ in range(3):
        decision = _decide([_on(name, node, 100.0, max_mhz=100.0) for name, node in where.items()], alone)
        where |= {name: int(node[1:]) for name, node in _moves(decision).items()}
    assert not decision.changes
    assert len({*where.values()}) == 4
