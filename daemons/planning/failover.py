"""Where VMs go whose nodes are off, and what must stay free so that those of any one node can go somewhere. Pure.

Memory decides, hugepages and the memory of NUMA cells included, and required rules hold; CPU is shared, and the next
decision divides it. VMs are placed one after the
other: the most important first, then the largest, each on the node with the least free memory that can take it (best
fit decreasing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.planning.make_room import Capacity, Need
from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot
from shared.values.migration import NO_PAGES, PageUse

Pool = tuple[int, frozenset[int]]  # the size of pages in KiB, and NUMA cells (none: all of a node); see PageUse.draws


@dataclass(frozen=True, slots=True, eq=False)
class FailoverVm:
    """A VM that is to be restarted on another node. row: of its workload. memory_mib: with overhead, without pages.
    able: the nodes that have what it needs beside memory, bool[n]. node: where it runs (-1: nowhere). pages: its
    hugepages, and its memory in NUMA cells."""

    row: int
    memory_mib: float
    able: Bools
    node: int = -1
    pages: PageUse = NO_PAGES

    @property
    def size_mib(self) -> float:
        """All its memory, hugepages included."""
        return self.memory_mib + self.pages.total_mib


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A node some of whose VMs no other node could take. rows: of these; memory_mib, pages_mib: of them together,
    ordinary memory and hugepages."""

    node: int
    rows: tuple[int, ...]
    memory_mib: float
    pages_mib: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SpareCapacity:
    """reserve_mib: the memory that must stay free on each node, float64[n]; uncovered: nodes for which it is not
    enough."""

    reserve_mib: Floats
    uncovered: tuple[Uncovered, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FreePages:
    """What is free of pools that VMs draw on. pools: each once; free_mib: of each on each node, float64[pools, n] (inf:
    not known)."""

    pools: tuple[Pool, ...] = ()
    free_mib: Floats = field(default_factory=lambda: np.zeros((0, 0)))


def pools_of(uses: Iterable[PageUse]) -> tuple[Pool, ...]:
    """Return the pools that uses draw on, each once."""
    return tuple(dict.fromkeys((size, cells) for pages in dict.fromkeys(uses) for size, cells, _ in pages.draws()))


class _PageCount:
    """What is left of pools while VMs are placed. What a VM holds may come from every pool that its cells are in. Each
    use that differs is compared with the pools once: O(uses x pools)."""

    def __init__(self, pages: FreePages) -> None:
        self._pools, self.free_mib = pages.pools, pages.free_mib.copy()
        self._at = {pool: at for at, pool in enumerate(pages.pools)}
        self._known: dict[PageUse, tuple[Ints, Floats, Floats]] = {}
        self._taken: list[tuple[PageUse, int]] = []

    def _of(self, use: PageUse) -> tuple[Ints, Floats, Floats]:
        """Return the pools that a use draws on with what must be free there, and what it takes of all pools."""
        if use not in self._known:
            draws = [(self._at[size, cells], mib) for size, cells, mib in use.draws()]
            rows = np.array([at for at, _ in draws], dtype=np.int64)
            needed_mib = np.array([mib for _, mib in draws], dtype=np.float64)
            takes_mib = np.array([use.share_of(*pool) for pool in self._pools], dtype=np.float64)
            self._known[use] = rows, needed_mib, takes_mib
        return self._known[use]

    def has_room(self, use: PageUse) -> Bools:
        """Return the nodes where all of it is free, bool[n]. O(nodes) in numpy."""
        rows, needed_mib, _ = self._of(use)
        return np.asarray((self.free_mib[rows] >= needed_mib[:, None]).all(axis=0))

    def take(self, use: PageUse, node: int) -> None:
        """Count a VM as placed. O(pools)."""
        self.free_mib[:, node] -= self._of(use)[2]
        self._taken.append((use, node))

    def give_back(self) -> None:
        """Take back all that was taken; amounts are whole, so that nothing is left of it."""
        for use, node in self._taken:
            self.free_mib[:, node] += self._of(use)[2]
        self._taken.clear()


def places(snapshot: Snapshot, vms: Sequence[FailoverVm], pages: FreePages | None = None) -> dict[int, int]:
    """Return the node of each VM by its row; those are left out for which no node is left. pages: what is free of all
    pools that they draw on (None: they draw on none). O(VMs x nodes) in numpy."""
    return _placed(Capacity(snapshot), _PageCount(pages or FreePages()), vms)


def spare_capacity(
    snapshot: Snapshot, vms: Sequence[FailoverVm], lost: int, pages: FreePages | None = None
) -> SpareCapacity:
    """Return what must stay free so that the VMs of any `lost` nodes can restart on the others: of every node, taken
    together with the `lost` - 1 that hold the most of such memory. A MiB serves whichever nodes are lost. pages: as for
    `places`. O(lost x VMs x nodes) in numpy."""
    count = len(snapshot.nodes.names)
    reserve_mib = np.zeros(count)
    uncovered: list[Uncovered] = []
    capacity, left_of = Capacity(snapshot), _PageCount(pages or FreePages())
    of_node: dict[int, list[FailoverVm]] = {}
    for vm in vms:
        of_node.setdefault(vm.node, []).append(vm)
    for node, gone in _losses(vms, count, lost):
        theirs = [vm for each in gone for vm in of_node.get(each, ())]
        free_mib, free_mhz = capacity.free_mib.copy(), capacity.free_mhz.copy()
        homes = {vm.row: capacity.places.get(vm.row) for vm in theirs}
        for row in homes:
            capacity.places.pop(row, None)
        capacity.layout.changed()
        left = np.ones(count, dtype=np.bool_)
        left[list(gone)] = False
        found = _placed(capacity, left_of, theirs, left)
        left_of.give_back()
        np.maximum(reserve_mib, free_mib - capacity.free_mib, out=reserve_mib)
        missing = [vm for vm in theirs if vm.row not in found]
        if missing:
            memory_mib, pages_mib = (sum(vm.memory_mib for vm in missing), sum(vm.pages.total_mib for vm in missing))
            uncovered.append(Uncovered(node, tuple(sorted(vm.row for vm in missing)), memory_mib, pages_mib))
        capacity.free_mib[:], capacity.free_mhz[:] = free_mib, free_mhz
        for row, home in homes.items():
            capacity.places.pop(row, None)
            if home is not None:
                capacity.places[row] = home
        capacity.layout.changed()
    return SpareCapacity(reserve_mib, tuple(uncovered))


def _losses(vms: Sequence[FailoverVm], count: int, lost: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield each node that has such VMs, with the nodes that are lost together with it, itself among them."""
    held_mib, holding = np.zeros(count), {vm.node for vm in vms if vm.node >= 0}
    for vm in vms:
        if vm.node >= 0:
            held_mib[vm.node] += vm.size_mib
    fullest = [node for node in np.argsort(-held_mib, kind="stable").tolist() if node in holding]
    for node in sorted(fullest):
        others = [other for other in fullest if other != node][: max(0, lost - 1)]
        yield node, frozenset((node, *others))


def _placed(
    capacity: Capacity, pages: _PageCount, vms: Sequence[FailoverVm], among: Bools | None = None
) -> dict[int, int]:
    found: dict[int, int] = {}
    importance = capacity.snapshot.workloads.importance
    for vm in sorted(vms, key=lambda vm: (-importance.item(vm.row), -vm.size_mib, vm.row)):
        need = Need(vm.row, vm.memory_mib, 0.0)
        able = capacity.fits(need) & vm.able
        if vm.pages.amounts:
            able &= pages.has_room(vm.pages)
        nodes = capacity.best_first(vm.row, able if among is None else able & among)
        if nodes.size:
            found[vm.row] = nodes.item(0)
            capacity.place(need, nodes.item(0))
            if vm.pages.amounts:
                pages.take(vm.pages, nodes.item(0))
    return found
