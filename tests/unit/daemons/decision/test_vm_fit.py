"""Where one more VM fits: each kind of answer by an example, odd numbers, and the limits of the search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from daemons.decision.vm_fit import COPY_NAMES, SEARCHES_MAX, Obstacle, VmFit, VmFitTask, vm_fit
from daemons.planning.make_room import CANDIDATES_MAX, MOVES_MAX
from shared.policy_api.snapshot import (
    NOBODY,
    POOL,
    EnvironmentColumns,
    MigrationColumns,
    Snapshot,
    WebColumns,
    WorkloadState,
)
from shared.values.jobs import Constraint, ConstraintKind
from shared.values.new_vm import COPIES_MAX, NewVm
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

ONE = COPY_NAMES[0]


def runs(name: str, node: int, mib: float = 1_000.0, **fields: object) -> WorkRow:
    """A VM that runs, with 100 MHz."""
    row = WorkRow(name, WorkloadState.RUNNING, mib, places=((node, 100.0),))
    return replace(row, **fields)  # type: ignore[arg-type]


def nodes(count: int, **fields: object) -> list[NodeRow]:
    """Nodes of 4 x 1,000 MHz and 4,000 MiB."""
    return [replace(NodeRow(f"n{at}", memory_mib=4_000.0), **fields) for at in range(count)]  # type: ignore[arg-type]


def ask(seen: Snapshot, mib: int, *constraints: Constraint, vcpus: int = 1, count: int = 1, mhz: float = 0.0) -> VmFit:
    return vm_fit(VmFitTask(seen, NewVm(vcpus, mib, mhz), constraints, count))


def test_two_small_vms_make_room_where_one_is_not_enough() -> None:
    seen = snapshot(nodes(2), [runs("a", 0), runs("b", 0), runs("c", 0, 1_500.0), runs("d", 1, 1_900.0)])
    found = ask(seen, 2_500)
    (fit,) = found.with_moves
    assert fit.node == "n0"
    assert [(move.workload, move.to_node) for move in fit.moves] == [("a", "n1"), ("b", "n1")]
    assert fit.free_memory_mib == 0.0
    assert found.placements == (fit,)
    assert (found.how_many, found.limited) == (0, False)
    (misfit,) = found.misfits
    assert (misfit.node, misfit.obstacle) == ("n1", Obstacle.MEMORY)
    assert dict(misfit.numbers) == {
        "needed_mib": 2_500.0,
        "free_mib": 2_100.0,
        "capacity_mib": 4_000.0,
        "movable_mib": 1_900.0,
    }


def test_what_must_not_move_does_not() -> None:
    seen = snapshot(nodes(2), [runs("a", 0), runs("b", 1)])
    assert [fit.moves[0].workload for fit in ask(seen, 3_500).with_moves] == ["a", "b"]
    fixed = snapshot(nodes(2), [runs("a", 0, fixed=True), runs("b", 1)])
    assert [fit.moves[0].workload for fit in ask(fixed, 3_500).with_moves] == ["b"]
    keep = replace(seen, constraints=(Constraint(ConstraintKind.KEEP, ("a",)),))
    assert [fit.moves[0].workload for fit in ask(keep, 3_500).with_moves] == ["b"]
    pinned = replace(seen, constraints=(Constraint(ConstraintKind.PIN, ("b",), ("n1",)),))
    assert [fit.moves[0].workload for fit in ask(pinned, 3_500).with_moves] == ["a"]
    stuck = MigrationColumns(np.array([[True, False]]), np.array([0, -1]))
    assert [fit.moves[0].workload for fit in ask(replace(seen, migration=stuck), 3_500).with_moves] == ["b"]


def test_an_instance_of_a_web_application_does_not_join_another_one() -> None:
    work = [runs("w#0", 0, app=0), runs("w#1", 1, app=0)]
    web = WebColumns(("w",), np.array([1]), np.array([2]), np.array([math.inf]), np.array([1.0]))
    seen = replace(snapshot(nodes(2), work), web=web)
    assert ask(seen, 3_500).with_moves == ()
    three = replace(snapshot(nodes(3), [*work, runs("x", 2, fixed=True)]), web=web)
    assert [fit.moves[0].to_node for fit in ask(three, 3_500).with_moves] == ["n2", "n2"]


def test_what_the_rules_keep_away_moves_first() -> None:
    """It leaves the rack, not only the node."""
    racks = ("rack=a", "rack=a", "rack=b")
    hosts = [replace(node, labels=(rack,)) for node, rack in zip(nodes(3), racks, strict=True)]
    seen = snapshot(hosts, [runs("x", 0), runs("y", 2, 500.0)])
    apart = Constraint(ConstraintKind.APART, (ONE,), scope="rack", about=("x",))
    found = ask(seen, 1_000, apart)
    assert [fit.node for fit in found.fits] == ["n2"]
    (fit,) = found.with_moves
    assert (fit.node, fit.moves[0].to_node) == ("n0", "n2")
    (misfit,) = found.misfits
    assert (misfit.node, misfit.obstacle, misfit.names) == ("n1", Obstacle.RULE, ("x",))
    assert misfit.rule == "anti_affinity"


def test_a_vm_that_must_be_beside_another_one_needs_room_there() -> None:
    seen = snapshot(nodes(2), [runs("x", 0), runs("y", 0, 2_000.0)])
    found = ask(seen, 2_000, Constraint(ConstraintKind.TOGETHER, (ONE,), about=("x",)))
    assert found.fits == ()
    (fit,) = found.with_moves
    assert (fit.node, [move.workload for move in fit.moves]) == ("n0", ["y"])
    assert [(each.obstacle, each.names) for each in found.misfits] == [(Obstacle.RULE, ("x",))]


def test_instances_of_one_workload_keep_their_rules_among_each_other() -> None:
    hosts = [replace(node, labels=(f"rack={'aabb'[at]}",)) for at, node in enumerate(nodes(4))]
    gang = WorkRow("g", WorkloadState.RUNNING, 1_000.0, instances=2, places=((0, 100.0), (2, 100.0)))
    others = [runs("x", 1, 1_000.0, fixed=True), runs("y", 3, 500.0, fixed=True)]
    seen = snapshot(hosts, [gang, *others])
    free = {fit.node: fit.moves[0].to_node for fit in ask(seen, 3_600).with_moves}
    assert free == {"n0": "n1", "n2": "n0"}
    apart = replace(seen, constraints=(Constraint(ConstraintKind.APART, ("g",), scope="rack"),))
    assert {fit.node: fit.moves[0].to_node for fit in ask(apart, 3_600).with_moves} == {"n0": "n1", "n2": "n3"}
    together = replace(seen, constraints=(Constraint(ConstraintKind.TOGETHER, ("g",), scope="rack"),))
    assert {fit.node: fit.moves[0].to_node for fit in ask(together, 3_600).with_moves} == {"n0": "n2", "n2": "n0"}
    spread = snapshot(hosts[:2], [replace(gang, spread=True, places=((0, 100.0), (1, 100.0)))])
    assert ask(spread, 3_600).with_moves == ()


def test_preferences_break_ties_only() -> None:
    seen = snapshot(nodes(3), [runs("x", 0, 500.0), runs("y", 2)])
    dislike = Constraint(ConstraintKind.FORBID, (ONE,), ("n0", "n2"), weight=50)
    assert [fit.node for fit in ask(seen, 1_000, dislike).fits] == ["n2", "n0", "n1"]
    even = snapshot(nodes(3), [])
    assert [fit.node for fit in ask(even, 1_000, dislike).fits] == ["n1", "n0", "n2"]


def test_several_go_on_with_moves_where_they_stop_fitting() -> None:
    seen = snapshot(nodes(3), [runs("a", 0, 1_500.0), runs("b", 1, 1_000.0), runs("c", 2, 3_000.0, fixed=True)])
    found = ask(seen, 2_800, count=3)
    assert [(fit.node, len(fit.moves)) for fit in found.placements] == [("n1", 0)]
    found = ask(seen, 2_500, count=3)
    assert [(fit.node, len(fit.moves)) for fit in found.placements] == [("n0", 0), ("n1", 0)]
    assert found.how_many == 2
    roomy = snapshot(nodes(4), [runs(name, at, 1_000.0) for at, name in enumerate("abcd")])
    found = ask(roomy, 2_500, count=8)
    assert found.how_many == 4
    assert [len(fit.moves) for fit in found.placements[:4]] == [0, 0, 0, 0]
    moved = [move.workload for fit in found.placements for move in fit.moves]
    assert len(moved) == len(set(moved))


def test_group_members_of_the_question_stay_apart() -> None:
    seen = snapshot(nodes(3), [runs("x", 0)])
    apart = Constraint(ConstraintKind.APART, (*COPY_NAMES, "x"))
    found = ask(seen, 100, apart, count=3)
    assert found.how_many == 2
    assert {fit.node for fit in found.placements[:2]} == {"n1", "n2"}
    assert len(found.placements) == 2


def test_cpu_counts_where_it_is_asked_for() -> None:
    seen = snapshot(nodes(2), [runs("a", 0, places=((0, 3_500.0),), max_mhz=4_000.0, vcpus=4)])
    assert len(ask(seen, 100).fits) == 2
    found = ask(seen, 100, mhz=1_000.0)
    assert [fit.node for fit in found.fits] == ["n1"]
    assert [fit.moves[0].workload for fit in found.with_moves] == ["a"]
    assert found.fits[0].free_cpu_mhz == 3_000.0
    (first, _) = ask(seen, 100, mhz=1_500.0).misfits
    assert (first.obstacle, dict(first.numbers)["capacity_mhz"]) == (Obstacle.CPU, 1_000.0)
    (first, _) = ask(seen, 100, vcpus=5).misfits
    assert dict(first.numbers) == {"needed_vcpus": 5.0, "cores": 4.0}


def test_nodes_of_environments_are_left_out() -> None:
    held = EnvironmentColumns(
        ("e",), np.array([POOL, 0, NOBODY]), np.zeros(0, dtype=np.int64), np.array([-1]), np.zeros(3, dtype=np.bool_)
    )
    found = ask(replace(snapshot(nodes(3), []), environments=held), 1_000)
    assert [fit.node for fit in found.fits] == ["n0"]
    assert [(each.node, each.obstacle, each.names) for each in found.misfits] == [
        ("n1", Obstacle.ENVIRONMENT, ("e",)),
        ("n2", Obstacle.ENVIRONMENT, ()),
    ]


def test_odd_numbers_and_empty_clusters_have_an_answer() -> None:
    empty = ask(snapshot([], []), 1)
    assert (empty.fits, empty.with_moves, empty.misfits, empty.placements, empty.how_many) == ((), (), (), (), 0)
    for odd in (math.nan, math.inf, -math.inf, -1.0, 0.0):
        seen = snapshot(nodes(2), [runs("a", 0, 3_000.0), runs("b", 1, odd)])
        found = ask(seen, 2_000)
        assert {each.workload for fit in found.with_moves for each in fit.moves} <= {"a", "b"}
        numbers = [number for each in found.misfits for _, number in each.numbers]
        assert all(map(math.isfinite, numbers))
        assert all(math.isfinite(fit.free_memory_mib) for fit in (*found.fits, *found.with_moves))
    twice = [*nodes(1), *nodes(1)]
    assert len(ask(snapshot(twice, []), 1_000).fits) == 1
    assert ask(snapshot(nodes(2), []), 1 << 40).placements == ()


def test_limits_are_stated() -> None:
    many = [runs(f"v{at}", 0, 4_000.0 / 40) for at in range(40)]
    found = ask(snapshot(nodes(2, memory_mib=4_000.0), [*many, runs("x", 1, 3_000.0, fixed=True)]), 1_000)
    assert found.fits[0].node == "n1"
    (misfit,) = found.misfits
    assert (misfit.node, misfit.limited) == ("n0", True)
    assert 40 > CANDIDATES_MAX > MOVES_MAX
    assert ask(snapshot(nodes(1, memory_mib=1e6), []), 1).how_many == COPIES_MAX


def test_only_so_many_searches_are_made_for_further_vms() -> None:
    count = SEARCHES_MAX + 4
    small = [runs(f"s{at}", at) for at in range(count)]
    full = [runs(f"f{at}", count + at, 2_900.0, fixed=True) for at in range(count)]
    found = ask(snapshot(nodes(2 * count), [*small, *full]), 3_500, count=count)
    assert (found.how_many, len(found.placements), found.limited) == (0, SEARCHES_MAX, True)
    assert len({fit.moves[0].to_node for fit in found.placements}) == SEARCHES_MAX
    few = ask(snapshot(nodes(2 * count), [*small, *full]), 3_500, count=3)
    assert (len(few.placements), few.limited) == (3, False)


def test_a_large_cluster_is_answered_with_the_same_search() -> None:
    """1,000 nodes and 5,000 VMs; the time is measured elsewhere."""
    rng = np.random.default_rng(7)
    hosts = [NodeRow(f"n{at}", cores=32, memory_mib=64_000.0) for at in range(1_000)]
    work = [runs(f"v{at}", at % 1_000, float(rng.choice([8_000.0, 12_000.0, 16_000.0]))) for at in range(5_000)]
    found = ask(snapshot(hosts, work), 30_000, vcpus=8)
    assert len(found.fits) + len(found.with_moves) + len(found.misfits) == 1_000
    assert found.with_moves
    sizes = [(len(fit.moves), sum(move.memory_mib for move in fit.moves)) for fit in found.with_moves]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("count", [1, COPIES_MAX])
def test_the_snapshot_stays_as_it_was(count: int) -> None:
    seen = snapshot(nodes(2), [runs("a", 0), runs("b", 1)])
    before = seen.nodes.free_memory_mib.copy(), seen.instances.node.copy()
    ask(seen, 1_000, count=count)
    assert (seen.nodes.free_memory_mib == before[0]).all()
    assert (seen.instances.node == before[1]).all()
