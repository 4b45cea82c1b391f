"""Rules read from a snapshot: domains, contradictions, several instances, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.models.placement_relations import Layout
from daemons.models.placement_rules import PlacementRules, rules_of, running_places
from shared.policy_api.decision import ReasonCode
from shared.policy_api.snapshot import ELSEWHERE, Snapshot, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

PIN, FORBID, KEEP = ConstraintKind.PIN, ConstraintKind.FORBID, ConstraintKind.KEEP
TOGETHER, APART = ConstraintKind.TOGETHER, ConstraintKind.APART
RUNNING = WorkloadState.RUNNING
NODES = (  # two racks of two nodes, and a node in none
    NodeRow("n0", labels=("ssd", "rack=r0", "zone=a")),
    NodeRow("n1", labels=("rack=r0", "zone=a")),
    NodeRow("n2", labels=("rack=r1", "zone=a")),
    NodeRow("n3", labels=("ssd", "rack=r1")),
    NodeRow("n4"),
)
NOWHERE = Layout(dict[int, tuple[int, ...]]().get)


def _on(name: str, *nodes: int, **more: object) -> WorkRow:
    places = tuple((node, 1000.0) for node in nodes)
    return WorkRow(name, RUNNING, instances=len(nodes), places=places, **more)  # type: ignore[arg-type]


def _read(rows: list[WorkRow], *constraints: Constraint) -> tuple[PlacementRules, Layout, Snapshot]:
    seen = replace(snapshot(NODES, rows), constraints=constraints)
    return rules_of(seen, seen.nodes.schedulable), Layout(running_places(seen).get), seen


def _open(rules: PlacementRules, row: int, layout: Layout) -> list[int]:
    found: list[int] = rules.open_to(row, layout).nonzero()[0].tolist()
    return found


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        (Constraint(PIN, ("w",), ("n1",), labels=("ssd",)), [0, 1, 3]),
        (Constraint(PIN, ("w",), labels=("ssd", "rack=r1")), [3]),
        (Constraint(FORBID, ("w",), ("n4",), labels=("ssd", "zone=a")), []),
        (Constraint(FORBID, ("w",), labels=("rack=r0",)), [2, 3, 4]),
        (Constraint(APART, ("w", "r")), [0, 2, 3, 4]),
        (Constraint(APART, ("w", "r"), scope="rack"), [2, 3, 4]),
        (Constraint(APART, ("w", "r"), scope="zone"), [3, 4]),
        (Constraint(APART, ("w", "r"), scope="no such label"), [0, 2, 3, 4]),
        (Constraint(APART, ("r",), about=("w",), scope="rack"), [2, 3, 4]),
        (Constraint(TOGETHER, ("w", "r")), [1]),
        (Constraint(TOGETHER, ("w",), about=("r",), scope="rack"), [0, 1]),
        (Constraint(APART, ("w", "nobody")), [0, 1, 2, 3, 4]),
    ],
)
def test_where_one_that_waits_may_go(constraint: Constraint, nodes: list[int]) -> None:
    """r runs on n1."""
    rules, layout, _ = _read([WorkRow("w"), _on("r", 1)], constraint)
    assert _open(rules, 0, layout) == nodes


def test_a_node_without_the_label_is_a_domain_of_its_own() -> None:
    rules, _, _ = _read([WorkRow("a"), WorkRow("b")], Constraint(APART, ("a", "b"), scope="zone"))
    assert _open(rules, 0, Layout({1: (4,)}.get)) == [0, 1, 2, 3]
    assert _open(rules, 0, Layout({1: (3,)}.get)) == [0, 1, 2, 4]
    assert _open(rules, 0, Layout({1: (-1,)}.get)) == [0, 1, 2, 3, 4]


def test_one_on_a_node_that_is_not_shown_holds_those_back_that_must_be_with_it() -> None:
    rules, _, _ = _read([WorkRow("a"), WorkRow("b")], Constraint(TOGETHER, ("a", "b")))
    assert _open(rules, 0, Layout({1: (-1,)}.get)) == []


CONTRADICTIONS = [
    ((Constraint(TOGETHER, ("a", "b")), Constraint(APART, ("a", "b"))), {"a", "b"}),
    ((Constraint(TOGETHER, ("a", "b")), Constraint(APART, ("a", "b"), scope="rack")), {"a", "b"}),
    ((Constraint(TOGETHER, ("a", "b"), scope="rack"), Constraint(APART, ("a", "b"))), set()),
    ((Constraint(TOGETHER, ("a", "b"), scope="zone"), Constraint(APART, ("a", "b"), scope="zone")), {"a", "b"}),
    ((Constraint(TOGETHER, ("a", "b"), scope="rack"), Constraint(APART, ("a", "b"), scope="zone")), set()),  # n2, n3
    ((Constraint(TOGETHER, ("g",), scope="rack"), Constraint(APART, ("g",))), {"g"}),  # three on two nodes
    ((Constraint(TOGETHER, ("g",), scope="zone"), Constraint(APART, ("g",))), set()),
    ((Constraint(TOGETHER, ("a",), about=("s",)),), set()),
    ((Constraint(TOGETHER, ("a", "s")),), {"s"}),  # its instances are spread
    ((Constraint(PIN, ("a",), ("n0",)), Constraint(FORBID, ("a",), labels=("ssd",))), {"a"}),
    (
        (
            Constraint(TOGETHER, ("a", "b"), scope="rack"),
            Constraint(PIN, ("a",), ("n0",)),
            Constraint(PIN, ("b",), ("n1",)),
        ),
        set(),
    ),
    (
        (
            Constraint(TOGETHER, ("a", "b"), scope="rack"),
            Constraint(PIN, ("a",), ("n0",)),
            Constraint(PIN, ("b",), ("n2",)),
        ),
        {"a", "b"},
    ),
    (
        (
            Constraint(TOGETHER, ("a",), about=("b",)),
            Constraint(PIN, ("a",), ("n0",)),
            Constraint(PIN, ("b",), ("n2",)),
        ),
        {"a"},
    ),
    ((Constraint(APART, ("a", "b"), weight=9), Constraint(TOGETHER, ("a", "b"))), set()),
]


@pytest.mark.parametrize(("constraints", "names"), CONTRADICTIONS)
def test_contradictions(constraints: tuple[Constraint, ...], names: set[str]) -> None:
    rows = [WorkRow("a"), WorkRow("b"), WorkRow("g", instances=3), WorkRow("s", instances=2, spread=True)]
    rules, _, seen = _read(rows, *constraints)
    assert {seen.workloads.names[row] for row in rules.contradictions} == names
    assert all(reason.code is ReasonCode.CONTRADICTION for reason in rules.contradictions.values())


@pytest.mark.parametrize(
    ("constraints", "slots", "place"),
    [
        ((Constraint(APART, ("g",), scope="rack"),), [9, 9, 9, 9, 9], (0, 2, 4)),
        ((Constraint(APART, ("g",), scope="rack"),), [9, 9, 9, 9, 0], None),
        ((Constraint(TOGETHER, ("g",), scope="rack"),), [1, 1, 1, 2, 9], (2, 3, 3)),
        ((Constraint(TOGETHER, ("g",), scope="rack"),), [1, 1, 1, 1, 2], None),
        ((Constraint(TOGETHER, ("g",), scope="zone"), Constraint(APART, ("g",))), [9, 9, 9, 9, 9], (0, 1, 2)),
        ((Constraint(PIN, ("g",), labels=("ssd",), weight=5),), [2, 9, 9, 9, 9], (0, 0, 3)),
        ((Constraint(APART, ("g",), weight=5),), [9, 9, 9, 9, 9], (0, 1, 2)),
        ((Constraint(TOGETHER, ("g",), scope="rack", weight=5),), [1, 0, 2, 2, 9], (0, 2, 2)),
        ((Constraint(FORBID, ("g",), ("n0",)),), [0, 0, 0, 0, 0], None),
    ],
)
def test_places_for_three_instances(
    constraints: tuple[Constraint, ...], slots: list[int], place: tuple[int, ...] | None
) -> None:
    rules, _, _ = _read([WorkRow("g", instances=3)], *constraints)
    assert rules.choose(0, np.array(slots), 3, NOWHERE) == place


def test_instances_go_home_if_they_can_and_away_from_those_that_stay() -> None:
    rules, _, _ = _read([WorkRow("g", instances=3)], Constraint(APART, ("g",), scope="rack"))
    slots = np.array([9, 9, 9, 9, 9])
    assert rules.choose(0, slots, 3, NOWHERE, homes=(3, 1, 2)) == (3, 1, 4)
    assert rules.choose(0, slots, 2, NOWHERE, kept=(1,)) == (2, 4)
    assert rules.choose(0, slots, 3, NOWHERE, homes=(ELSEWHERE, -1, 1)) == (2, 4, 1)
    rules, _, _ = _read([WorkRow("g", instances=3)], Constraint(TOGETHER, ("g",), scope="rack"))
    assert rules.choose(0, slots, 2, NOWHERE, kept=(3,)) == (2, 2)
    assert rules.choose(0, slots, 2, NOWHERE, kept=(3, 0)) is None
    assert rules.choose(0, slots, 2, NOWHERE, kept=(-1,)) is None


def test_rank_decides_among_equals() -> None:
    rules, _, _ = _read([WorkRow("w")], Constraint(PIN, ("w",), labels=("ssd",), weight=5))
    assert rules.choose(0, np.ones(5, dtype=np.int64), 1, NOWHERE, rank=np.array([4.0, 0.0, 0.0, 1.0, 0.0])) == (3,)


def test_what_stands_in_the_way_is_named() -> None:
    rows = [WorkRow("w"), _on("r", 1)]
    rules, layout, _ = _read(
        rows,
        Constraint(FORBID, ("w",), labels=("ssd",)),
        Constraint(APART, ("w", "r"), scope="rack"),
        Constraint(PIN, ("w",), ("n0", "n1", "n2")),
    )
    every = np.ones(5, dtype=np.bool_)
    named = rules.obstacles(0, every, layout)
    assert dict(named) == {"label_anti_affinity": 2.0, "node_affinity": 2.0, "anti_affinity": 2.0}
    assert rules.broken(0, (0,), layout) == "label_anti_affinity"
    assert rules.broken(0, (1,), layout) == "anti_affinity"
    assert rules.broken(0, (4,), layout) == "node_affinity"
    assert rules.broken(0, (2,), layout) == ""
    rules, layout, _ = _read([WorkRow("w")], Constraint(PIN, ("w",), labels=("ssd", "new")))
    assert rules.obstacles(0, every, layout) == (("label_affinity", 5.0 - rules.allowed(0).sum()),)


def test_who_is_kept_together_by_others() -> None:
    rows = [_on("a", 0), _on("b", 1), _on("c", 2), WorkRow("d"), _on("e", 4)]
    rules, layout, _ = _read(
        rows,
        Constraint(TOGETHER, ("a", "b"), scope="rack"),
        Constraint(TOGETHER, ("b",), about=("c",), scope="zone"),
        Constraint(TOGETHER, ("c", "d")),
        Constraint(APART, ("a", "e")),
    )
    assert rules.near(0, layout) == {0, 1, 2}


def test_empty_and_large() -> None:
    """No nodes, no workloads; and a group of all of five thousand in time."""
    empty = replace(snapshot([], []), constraints=(Constraint(APART, ("a", "b"), scope="rack"),))
    assert rules_of(empty, empty.nodes.schedulable).relations == {}
    names = tuple(f"v{at}" for at in range(5000))
    nodes = [NodeRow(f"n{at}", labels=(f"rack=r{at % 40}",)) for at in range(1000)]
    seen = snapshot(nodes, [WorkRow(name, RUNNING, places=((at % 1000, 1.0),)) for at, name in enumerate(names)])
    seen = replace(seen, constraints=(Constraint(APART, names, scope="rack", weight=2),))
    rules, layout = rules_of(seen, seen.nodes.schedulable), Layout(running_places(seen).get)
    penalty = rules.penalty(0, layout)
    assert penalty is not None
    assert penalty.tolist() == [2.0] * 1000
