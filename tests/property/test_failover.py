"""Where VMs go whose nodes are off, and what stays free for them: compared with a deliberately naive search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daemons.planning.failover import FailoverVm, places, spare_capacity
from shared.policy_api.snapshot import Snapshot
from tests.support import place_cases

TOLERANCE_MIB = 1e-3


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


def naive(snapshot: Snapshot, vms: list[FailoverVm], gone: set[int]) -> tuple[dict[int, int], list[float]]:
    """Return the node of each VM that finds one, and what is then taken of each node."""
    free = snapshot.nodes.free_memory_mib.tolist()
    apart, rows = grouped(snapshot), {vm.row for vm in vms}
    where = {row: snapshot.instances.node.item(row) for row in range(len(snapshot.workloads.names)) if row not in rows}
    taken = [0.0] * len(free)
    found: dict[int, int] = {}
    for vm in sorted(vms, key=lambda vm: (-snapshot.workloads.importance.item(vm.row), -vm.memory_mib, vm.row)):
        best = None
        for node in range(len(free)):
            beside = vm.row in apart and any(other in apart and at == node for other, at in where.items())
            if node in gone or not vm.able[node] or beside or free[node] < vm.memory_mib - TOLERANCE_MIB:
                continue
            if best is None or free[node] < free[best]:
                best = node
        if best is not None:
            found[vm.row] = where[vm.row] = best
            free[best] -= vm.memory_mib
            taken[best] += vm.memory_mib
    return found, taken


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
