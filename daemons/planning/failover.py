"""Where VMs go whose nodes are off, and what must stay free so that those of any one node can go somewhere. Pure.

Memory decides, and required rules hold; CPU is shared, and the next decision divides it. VMs are placed one after the
other: the most important first, then the largest, each on the node with the least free memory that can take it (best
fit decreasing).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daemons.planning.make_room import Capacity, Need
from shared.policy_api.snapshot import Bools, Floats, Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class FailoverVm:
    """A VM that is to be restarted on another node. row: of its workload. memory_mib: with overhead. able: the nodes
    that have what it needs beside memory, bool[n]. node: where it runs (-1: nowhere)."""

    row: int
    memory_mib: float
    able: Bools
    node: int = -1


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A node some of whose VMs no other node could take. rows: of these; memory_mib: of them together."""

    node: int
    rows: tuple[int, ...]
    memory_mib: float


@dataclass(frozen=True, slots=True, eq=False)
class SpareCapacity:
    """reserve_mib: the memory that must stay free on each node, float64[n]; uncovered: nodes for which it is not
    enough."""

    reserve_mib: Floats
    uncovered: tuple[Uncovered, ...]


def places(snapshot: Snapshot, vms: Sequence[FailoverVm]) -> dict[int, int]:
    """Return the node of each VM by its row; those are left out for which no node is left. O(VMs x nodes) in numpy."""
    return _placed(Capacity(snapshot), vms)


def spare_capacity(snapshot: Snapshot, vms: Sequence[FailoverVm], lost: int) -> SpareCapacity:
    """Return what must stay free so that the VMs of any `lost` nodes can restart on the others: of every node, taken
    together with the `lost` - 1 that hold the most of such memory. A MiB serves whichever nodes are lost. O(VMs x
    nodes) in numpy."""
    count = len(snapshot.nodes.names)
    reserve_mib = np.zeros(count)
    uncovered: list[Uncovered] = []
    capacity = Capacity(snapshot)
    for node, gone in _losses(vms, count, lost):
        theirs = [vm for vm in vms if vm.node in gone]
        free_mib, free_mhz = capacity.free_mib.copy(), capacity.free_mhz.copy()
        homes = {vm.row: capacity.places.get(vm.row) for vm in theirs}
        for row in homes:
            capacity.places.pop(row, None)
        capacity.layout.changed()
        left = np.ones(count, dtype=np.bool_)
        left[list(gone)] = False
        found = _placed(capacity, theirs, left)
        np.maximum(reserve_mib, free_mib - capacity.free_mib, out=reserve_mib)
        missing = [vm for vm in theirs if vm.row not in found]
        if missing:
            uncovered.append(Uncovered(node, tuple(vm.row for vm in missing), sum(vm.memory_mib for vm in missing)))
        capacity.free_mib[:], capacity.free_mhz[:] = free_mib, free_mhz
        for row, home in homes.items():
            capacity.places.pop(row, None)
            if home is not None:
                capacity.places[row] = home
        capacity.layout.changed()
    return SpareCapacity(reserve_mib, tuple(uncovered))


def _losses(vms: Sequence[FailoverVm], count: int, lost: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield each node that has such VMs, with the nodes that are lost together with it, itself among them."""
    held_mib = np.zeros(count)
    for vm in vms:
        if vm.node >= 0:
            held_mib[vm.node] += vm.memory_mib
    fullest = [node for node in np.argsort(-held_mib, kind="stable").tolist() if held_mib[node] > 0.0]
    for node in sorted(fullest):
        others = [other for other in fullest if other != node][: max(0, lost - 1)]
        yield node, frozenset((node, *others))


def _placed(capacity: Capacity, vms: Sequence[FailoverVm], among: Bools | None = None) -> dict[int, int]:
    found: dict[int, int] = {}
    importance = capacity.snapshot.workloads.importance
    for vm in sorted(vms, key=lambda vm: (-importance.item(vm.row), -vm.memory_mib, vm.row)):
        need = Need(vm.row, vm.memory_mib, 0.0)
        able = capacity.fits(need) & vm.able
        nodes = capacity.best_first(vm.row, able if among is None else able & among)
        if nodes.size:
            found[vm.row] = nodes.item(0)
            capacity.place(need, nodes.item(0))
    return found
