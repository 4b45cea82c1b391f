"""Whether nodes have what VMs need: for live migrations (`shared.values.migration`), and the template that they are
made from.

The first concerns what runs alone: what waits or is suspended is brought to life by the node itself. Of hugepages a
node has what is left of its pools: all that it has, without what VMs on it hold, managed or not, and what those will
hold that are on their way or wanted there. The same holds for the memory of NUMA cells, of VMs that must be in them:
others may use it too, but may have theirs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import inf

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.replies import unknown
from shared.policy_api.decision import Change, ChangeKind
from shared.policy_api.snapshot import Bools, Floats, MigrationColumns
from shared.values.jobs import JobPhase
from shared.values.migration import (
    CELL_MEMORY,
    ORDINARY_KIB,
    PageUse,
    lacks,
    memory_needs,
    page_need,
    pages_of,
    parted,
    sentence,
    ties,
    with_cell_memory,
)
from shared.values.vms import HOLDING_STATES

Texts = tuple[str, ...]
Cells = frozenset[int]

NAMES_SHOWN = 10


def no_template(name: str, cluster: Cluster) -> str:
    """Return why no node could make a VM from a template ("": one could, or a node has not reported its templates
    yet)."""
    there = [None if node.inventory is None else node.inventory.templates for node in cluster.nodes.values()]
    known = {each for names in there for each in names or ()}
    if not there or None in there or name in known:
        return ""
    has = f"nodes have {', '.join(sorted(known)[:NAMES_SHOWN])}" if known else "no node has any"
    return unknown("template", name, known, f" on any node; {has}") if name else f"it names no template; {has}"


# --- one VM and one node ----------------------------------------------------------------------------------------------


def lacking_on(cluster: Cluster, instance: Instance, name: str) -> Texts:
    """Return what the node lacks for a live migration of the VM to it, as `shared.values.migration` has it (empty:
    nothing known)."""
    return _lacking(cluster, instance, name)[1]


def why_not_on(cluster: Cluster, instance: Instance, name: str) -> Texts:
    """Return the same as sentences."""
    has, lack = _lacking(cluster, instance, name)
    return tuple(sentence(need, name, has) for need in lack)


def pages_lacking_on(cluster: Cluster, instance: Instance, name: str) -> Texts:
    """Return which hugepages the node surely lacks for a start of the VM, as sentences (empty: it may have all). A VM
    that is to run is started when that may succeed, even where a migration to the node would not be planned."""
    node, pages = cluster.nodes.get(name), instance.pages
    if node is None or node.inventory is None or not (pages.total_mib and node.inventory.migration_has):
        return ()
    has = _with_free(node.inventory.migration_has, pages, free_pages_mib(node, pages, instance, is_lax=True))
    return tuple(sentence(need, name, has) for need in lacks(has, memory_needs(instance.needs)))


def misfit(cluster: Cluster, entry: JobEntry, change: Change) -> str:
    """Return why a change would migrate a VM to a node that cannot take it live ("": it would not)."""
    if change.kind is not ChangeKind.MIGRATE or len(change.allotments) != len(entry.allotments):
        return ""
    coming: dict[str, list[Instance]] = {}
    for instance, before, after in zip(entry.instances, entry.allotments, change.allotments, strict=True):
        if after.node == before.node:
            continue
        has, lack = _lacking(cluster, instance, after.node, coming.get(after.node, ()))
        if lack:
            return f"{instance.vm}: {'; '.join(sentence(need, after.node, has) for need in lack)}"
        coming.setdefault(after.node, []).append(instance)
    return ""


def _lacking(cluster: Cluster, instance: Instance, name: str, coming: Iterable[Instance] = ()) -> tuple[Texts, Texts]:
    """Return what the node has for a VM, hugepages as far as they are free, and what of its needs the node lacks.
    `coming`: others that come there with it."""
    node = cluster.nodes.get(name)
    if node is None or node.inventory is None or not instance.needs:
        return (), ()
    has = node.inventory.migration_has
    if instance.pages.amounts and has and name not in instance.may_run_on:
        has = _with_free(has, instance.pages, free_pages_mib(node, instance.pages, instance, coming))
        room_mib = _cell_room_mib(node, _pages_held(node, instance, coming), instance.pages.cells)
        has += (f"{CELL_MEMORY}={room_mib:.0f}",) if room_mib < inf else ()
    return has, lacks(has, instance.needs)


def _with_free(has: Texts, pages: PageUse, free_mib: Sequence[int]) -> Texts:
    """Return the features of a node with the free hugepages of these sizes in place of all that it has."""
    others = [text for text in has if parted(text)[0] != "hugepages"]
    sizes = [size_kib for size_kib, _ in pages.mib_by_size_kib]
    return (*others, *(page_need(size_kib, mib) for size_kib, mib in zip(sizes, free_mib, strict=True)))


def free_pages_mib(
    node: NodeEntry,
    pages: PageUse,
    instance: Instance | None = None,
    coming: Iterable[Instance] = (),
    *,
    is_lax: bool = False,
) -> list[int]:
    """Return the MiB that are free on a node in hugepages of each size of `pages`, for `instance` and in the NUMA cells
    that `pages` must be in. What others hold in unknown cells counts as if it was in these, or, if `is_lax`, as if it
    was in others."""
    if node.inventory is None:
        return [0] * len(pages.mib_by_size_kib)
    held = _pages_held(node, instance, coming)
    return [
        min(_free(node, held, size_kib, frozenset()), _free(node, held, size_kib, pages.cells, is_lax=is_lax))
        for size_kib, _ in pages.mib_by_size_kib
    ]


def _free(
    node: NodeEntry, held: Sequence[PageUse], size_kib: int, cells: frozenset[int], *, is_lax: bool = False
) -> int:
    """Return what is free in pages of a size in all of these NUMA cells together (none: in all that there are)."""
    assert node.inventory is not None
    pools = [pool for pool in node.inventory.hugepages if pool.size_kib == size_kib]
    total = sum(pool.total_mib for pool in pools if not cells or pool.cell in cells or pool.cell < 0)
    if cells and is_lax:
        used = sum(one.of_size(size_kib) for one in held if one.cells and one.cells <= cells)
    else:
        used = sum(one.share_of(size_kib, cells) for one in held)
    return max(0, total - used)


def _cell_room_mib(node: NodeEntry, held: Sequence[PageUse], cells: frozenset[int]) -> float:
    """Return the ordinary memory in MiB that these NUMA cells have for VMs that must be in them, without what such VMs
    hold that may be in one of these (inf: it is not known how much they have)."""
    sizes = {} if node.inventory is None else {one.cell: one.memory_mib for one in node.inventory.numa_cells}
    if node.inventory is None or not cells or not all(sizes.get(cell) for cell in cells):
        return inf
    in_pages = sum(pool.total_mib for pool in node.inventory.hugepages if pool.cell in cells)
    used = sum(one.share_of(ORDINARY_KIB, cells) for one in held)
    return max(0, sum(sizes[cell] for cell in cells) - in_pages - used)


def _pages_held(node: NodeEntry, instance: Instance | None, coming: Iterable[Instance]) -> list[PageUse]:
    """Return the hugepages that all VMs but `instance` hold, or will hold, on a node, and their memory that must be in
    NUMA cells."""
    ours = {**node.claimed, **node.paged, **{one.vm: one for one in coming}}
    found = [one.pages for one in ours.values() if one is not instance and one.pages.amounts]
    reported = node.last.vms if node.last is not None else ()
    others = [one for one in reported if one.vm not in ours and one.state in HOLDING_STATES]
    skipped = "" if instance is None else instance.vm
    needs = [(one.migration_needs, one.memory_mib) for one in others if one.migration_needs and one.vm != skipped]
    return found + [pages_of(with_cell_memory(each, memory_mib)) for each, memory_mib in needs]


# --- all running VMs and all nodes ------------------------------------------------------------------------------------


def migration_columns(nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float) -> MigrationColumns | None:
    """Return where the running jobs may be migrated to, with recent failures taken into account; None where all may go
    anywhere. O(instances + nodes x needs that differ)."""
    rows = {node.name: row for row, node in enumerate(nodes)}
    sets = _Sets(nodes)
    of = np.full(len(jobs), -1, dtype=np.int64)
    for row, entry in enumerate(jobs):
        if entry.phase is JobPhase.RUNNING:
            needs = frozenset(one.needs for one in entry.instances if one.needs)
            shunned = _shunned(entry, now_s)
            if needs or shunned:
                homes = [rows[allotment.node] for allotment in entry.allotments if allotment.node in rows]
                of[row] = sets.of(needs, homes, [rows[name] for name in shunned if name in rows])
    return MigrationColumns(np.array(sets.fits, dtype=np.bool_), of) if sets.fits else None


def able_to_start(nodes: Sequence[NodeEntry]) -> tuple[Callable[[Texts], Bools], Callable[[int, Cells], Floats]]:
    """Return what says which nodes have what a VM needs to be started there beside hugepages and memory of NUMA cells,
    bool[nodes], and what says how much of these is free, as `_Able.free_mib` does; each is found out once."""
    able = _Able(nodes)
    return cache(able.without_memory), able.free_mib


def _shunned(entry: JobEntry, now_s: float) -> set[str]:
    """Return the nodes to which a migration of it has failed lately."""
    return {name for one in entry.instances for name, until_s in one.shunned.items() if now_s < until_s}


class _Sets:
    """Sets of nodes that differ and are not all of them. Most workloads have the set of what they need, and their own
    nodes are in it."""

    def __init__(self, nodes: Sequence[NodeEntry]) -> None:
        self._able_of = _Able(nodes)
        self._able: dict[frozenset[Texts], tuple[Bools, int]] = {}
        self._known: dict[bytes, int] = {}
        self._count = len(nodes)
        self.fits: list[Bools] = []

    def of(self, needs: frozenset[Texts], homes: Sequence[int], shunned: Sequence[int] = ()) -> int:
        """Return the index of the set of nodes that have all of it and are not shunned, plus the homes (-1: the set of
        all nodes)."""
        if needs not in self._able:
            mask = np.ones(self._count, dtype=np.bool_)
            for one in needs:
                mask &= self._able_of.mask(one)
            self._able[needs] = mask, self._index(mask)
        mask, index = self._able[needs]
        if not shunned and all(mask.item(home) for home in homes):
            return index
        mask = mask.copy()
        mask[list(homes)] = False
        without = mask.copy()
        without[list(shunned)] = False
        if without.any():  # else there is no other way
            mask = without
        mask[list(homes)] = True
        return self._index(mask)

    def _index(self, mask: Bools) -> int:
        if mask.all():
            return -1
        index = self._known.setdefault(mask.tobytes(), len(self.fits))
        if index == len(self.fits):
            self.fits.append(mask)
        return index


class _Able:
    """Which nodes have what a VM needs: nodes with equal features are compared once for each need, and their free
    hugepages are counted once."""

    def __init__(self, nodes: Sequence[NodeEntry]) -> None:
        self._nodes = nodes
        kinds: dict[Texts, int] = {}
        has = [() if node.inventory is None else node.inventory.migration_has for node in nodes]
        self._kind = np.array([kinds.setdefault(one, len(kinds)) for one in has], dtype=np.int64)
        self._kinds = list(kinds)
        self._masks: dict[str, Bools] = {}
        self._held: list[list[PageUse]] | None = None
        self._free: dict[tuple[int, frozenset[int]], Floats] = {}

    def mask(self, needs: Texts) -> Bools:
        """Return which nodes have all of it, bool[nodes]."""
        mask = self.without_memory(needs)
        for size_kib, cells, amount_mib in pages_of(needs).draws():
            mask &= self.free_mib(size_kib, cells) >= amount_mib
        return mask

    def without_memory(self, needs: Texts) -> Bools:
        """Return which nodes have all of it, hugepages and memory of NUMA cells whether or not they are free,
        bool[nodes]."""
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for need in needs:
            mask &= self._of_need(need)
        return mask

    def _of_need(self, need: str) -> Bools:
        mask = self._masks.get(need)
        if mask is None:
            fits = np.array([not lacks(has, (need,)) for has in self._kinds], dtype=np.bool_)
            mask = self._masks[need] = fits[self._kind] if len(self._kinds) else np.ones(0, dtype=np.bool_)
        return mask

    def free_mib(self, size_kib: int, cells: Cells) -> Floats:
        """Return the MiB that are free on each node in hugepages of a size in these NUMA cells (none: in all), or, for
        `ORDINARY_KIB`, of their memory for VMs that must be in them; float64[nodes]; inf where that is not known."""
        if self._held is None:
            self._held = [_pages_held(node, None, ()) for node in self._nodes]
        key = size_kib, cells
        if key not in self._free:
            free_of = partial(_free, size_kib=size_kib) if size_kib != ORDINARY_KIB else _cell_room_mib
            free = [
                free_of(node, held, cells=cells) if node.inventory is not None and node.inventory.migration_has else inf
                for node, held in zip(self._nodes, self._held, strict=True)
            ]
            self._free[key] = np.array(free, dtype=np.float64)
        return self._free[key]


# --- for people -------------------------------------------------------------------------------------------------------


def why_bound(needs: Texts) -> Texts:
    """Return why a VM with these needs can be migrated to no node at all, as sentences (empty: nothing is known)."""
    return tuple(sentence(need) for need in ties(needs))
