"""Where VMs go whose nodes are off, and what stays free for them: compared with a deliberately naive search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.planning.failover import FailoverVm, FreePages, places, pools_of, spare_capacity
from shared.policy_api.snapshot import Snapshot
from shared.values.migration import PageUse
from tests.extent import examples
from tests.support import place_cases

TOLERANCE_MIB = 1e-3
CELLS = (0, 1)
SIZES = (0, 2_048, 1_048_576)  # 0: no hugepages
Have = dict[tuple[int, int, int], int]  # MiB by node, size of pages and cell


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, tuple[FailoverVm, ...]]:
    """A cluster of a few nodes with VMs that must be able to restart elsewhere; some in a group that stays apart."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=2, max_size=5))
    nodes = [place_cases.node(f"n{k}", memory_mib=size * 500) for k, size in enumerate(sizes)]
    left = [size * 500 for size in sizes]
    jobs, homes, apart = [], [], []
    for index in range(draw(st.integers(0, 8))):
        at, memory_mib = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(1, 6)) * 100
        if left[at] < memory_mib:
            continue
        left[at] -= memory_mib
        homes.append(at)
        name, importance = f"j{index}", draw(st.sampled_from((1, 2)))
        apart += [name] if draw(st.integers(0, 3)) == 0 else []
        jobs.append(place_cases.job(name, state="running", node=f"n{at}", memory_mib=memory_mib, importance=importance))
    rules = [{"kind": "apart", "members": apart}] if len(apart) > 1 else []
    snapshot = place_cases.snapshot(nodes=nodes, jobs=jobs, constraints=rules)
    able = st.one_of(st.just([True] * len(nodes)), st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes)))
    vms = tuple(
        FailoverVm(row, jobs[row]["memory_mib"], np.array(draw(able)), at)
        for row, at in enumerate(homes)
        if draw(st.booleans())
    )
    return snapshot, vms


def grouped(snapshot: Snapshot) -> set[int]:
    """The rows of workloads that must stay apart."""
    members = {name for each in snapshot.constraints for name in each.members}
    return {row for row, name in enumerate(snapshot.workloads.names) if name in members}


def naive(
    snapshot: Snapshot,
    vms: list[FailoverVm],
    gone: set[int],
    have: Have | None = None,
    held: Sequence[list[PageUse]] = (),
) -> tuple[dict[int, int], list[float]]:
    """Return the node of each VM that finds one, and what is then taken of each node. have: what the pools have. held:
    the uses on each node, to which those of placed VMs are added."""
    free = snapshot.nodes.free_memory_mib.tolist()
    apart, rows = grouped(snapshot), {vm.row for vm in vms}
    where = {row: snapshot.instances.node.item(row) for row in range(len(snapshot.workloads.names)) if row not in rows}
    taken = [0.0] * len(free)
    found: dict[int, int] = {}
    for vm in sorted(
        vms, key=lambda vm: (-snapshot.workloads.importance.item(vm.row), -vm.memory_mib - vm.pages.total_mib, vm.row)
    ):
        best = None
        for node in range(len(free)):
            beside = vm.row in apart and any(other in apart and at == node for other, at in where.items())
            if node in gone or not vm.able[node] or beside or free[node] < vm.memory_mib - TOLERANCE_MIB:
                continue
            if have is not None and not takes(have, held[node], node, vm.pages):
                continue
            if best is None or free[node] < free[best]:
                best = node
        if best is not None:
            found[vm.row] = where[vm.row] = best
            free[best] -= vm.memory_mib
            taken[best] += vm.memory_mib
            if held:
                held[best].append(vm.pages)
    return found, taken


# --- hugepages, and memory of NUMA cells ------------------------------------------------------------------------------


@st.composite
def paged(draw: st.DrawFn) -> tuple[Snapshot, tuple[FailoverVm, ...], Have, dict[int, PageUse]]:
    """Nodes with enough ordinary memory, what their pools have, and VMs with what each holds. What is free is for about
    one of them; of no pool is less there than those hold that are there."""
    homes = draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    jobs = [place_cases.job(f"j{row}", state="running", node=f"n{at}", memory_mib=100) for row, at in enumerate(homes)]
    snapshot = place_cases.snapshot(nodes=[place_cases.node(f"n{at}", memory_mib=4_000) for at in range(3)], jobs=jobs)
    amount = st.sampled_from((0, 100, 100, 150))
    have = {(node, size, cell): draw(amount) for node in range(3) for size in SIZES for cell in CELLS}
    uses: dict[int, PageUse] = {}
    for row, node in enumerate(homes):
        sizes = draw(st.sampled_from((SIZES[1:2], SIZES[1:2], SIZES[1:], ())))
        cells = draw(st.sampled_from((frozenset(), frozenset({0}), frozenset({1}), frozenset({0, 1}))))
        bound_mib = draw(st.sampled_from((0, 60, 100))) if cells else 0
        uses[row] = use = PageUse(tuple((size, draw(st.sampled_from((60, 100)))) for size in sizes), cells, bound_mib)
        for size, mib in use.amounts:
            have[node, size, min(cells, default=0)] += mib
    every = np.ones(3, dtype=np.bool_)
    return snapshot, tuple(FailoverVm(row, 100, every, at, uses[row]) for row, at in enumerate(homes)), have, uses


def left_mib(have: Have, held: list[PageUse], node: int, size: int, cells: frozenset[int]) -> int:
    """What is left of some cells once everything is counted that may be in one of them."""
    total = sum(have[node, size, cell] for cell in CELLS if not cells or cell in cells)
    taken = 0
    for use in held:
        if not cells or not use.cells or use.cells & cells:
            taken += sum(mib for of_size, mib in use.amounts if of_size == size)
    return max(0, total - taken)


def takes(have: Have, held: list[PageUse], node: int, use: PageUse) -> bool:
    """Whether a node has the memory for one more."""
    for size, mib in use.amounts:
        for cells in {use.cells, frozenset[int]()} if size else {use.cells}:
            if left_mib(have, held, node, size, cells) < mib:
                return False
    return True


def free_pages(snapshot: Snapshot, vms: tuple[FailoverVm, ...], have: Have, uses: dict[int, PageUse]) -> FreePages:
    """What is free with all where they are."""
    homes, count = snapshot.instances.node.tolist(), len(snapshot.nodes.names)
    pools = pools_of(vm.pages for vm in vms)
    there = [[uses[row] for row, home in enumerate(homes) if home == node] for node in range(count)]
    free = [[left_mib(have, there[node], node, *pool) for node in range(count)] for pool in pools]
    return FreePages(pools, np.array(free, dtype=np.float64).reshape(len(pools), count))


@settings(max_examples=examples(300))
@given(paged())
def test_pages_are_counted_down_as_a_naive_search_counts_them(
    case: tuple[Snapshot, tuple[FailoverVm, ...], Have, dict[int, PageUse]],
) -> None:
    """In the spare capacity, and for VMs without a node; each count is of all that is on a node then."""
    snapshot, vms, have, uses = case
    pages, homes = free_pages(snapshot, vms, have, uses), snapshot.instances.node.tolist()
    before = pages.free_mib.copy()
    spare, short = spare_capacity(snapshot, vms, 1, pages), {}
    for node in sorted({vm.node for vm in vms}):
        theirs = [vm for vm in vms if vm.node == node]
        rows = {vm.row for vm in theirs}
        there = [[uses[row] for row, home in enumerate(homes) if home == at and row not in rows] for at in range(3)]
        found, _ = naive(snapshot, theirs, {node}, have, there)
        if len(found) < len(theirs):
            missing = [vm for vm in theirs if vm.row not in found]
            short[node] = {vm.row for vm in missing}, sum(vm.pages.total_mib for vm in missing)
        lone = [replace(vm, able=np.arange(3) != node, node=-1) for vm in theirs]
        assert places(snapshot, lone, pages) == found
    assert {each.node: ({*each.rows}, each.pages_mib) for each in spare.uncovered} == short
    np.testing.assert_array_equal(pages.free_mib, before)


@given(clusters())
def test_spare_capacity_is_what_each_loss_needs(case: tuple[Snapshot, tuple[FailoverVm, ...]]) -> None:
    snapshot, vms = case
    spare = spare_capacity(snapshot, vms, 1)
    reserve, short = [0.0] * len(snapshot.nodes.names), {}
    for node in sorted({vm.node for vm in vms}):
        theirs = [vm for vm in vms if vm.node == node]
        found, taken = naive(snapshot, theirs, {node})
        reserve = [max(a, b) for a, b in zip(reserve, taken, strict=True)]
        if len(found) < len(theirs):
            short[node] = {vm.row for vm in theirs if vm.row not in found}
    np.testing.assert_allclose(spare.reserve_mib, reserve, atol=TOLERANCE_MIB)
    assert {each.node: {*each.rows} for each in spare.uncovered} == short


@given(clusters())
def test_the_loss_of_all_nodes_leaves_none_for_anything(case: tuple[Snapshot, tuple[FailoverVm, ...]]) -> None:
    snapshot, vms = case
    holding, count = {vm.node for vm in vms}, len(snapshot.nodes.names)
    spare = spare_capacity(snapshot, vms, count)
    if len(holding) == count:
        assert {each.node for each in spare.uncovered} == holding
        assert not spare.reserve_mib.any()


@given(clusters())
def test_vms_without_a_node_are_placed_as_the_naive_search_does(case: tuple[Snapshot, tuple[FailoverVm, ...]]) -> None:
    """The VMs of one node, which takes none any more."""
    snapshot, vms = case
    for node in {vm.node for vm in vms}:
        theirs = [vm for vm in vms if vm.node == node]
        lone = [replace(vm, able=vm.able & (np.arange(vm.able.size) != node), node=-1) for vm in theirs]
        rows = {vm.row for vm in theirs}
        others = [row for row in range(len(snapshot.workloads.names)) if row not in rows]
        if grouped(snapshot) & rows and len(others) < len(snapshot.workloads.names):
            continue  # the snapshot has them where they were, which counts for rules
        found, _ = naive(snapshot, theirs, {node})
        assert places(snapshot, lone) == found
