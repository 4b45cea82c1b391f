"""Whether nodes have what VMs need: for live migrations (`shared.values.migration`), and the template that they are
made from.

The first concerns what runs alone: what waits or is suspended is brought to life by the node itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.replies import unknown
from shared.policy_api.decision import Change, ChangeKind
from shared.policy_api.snapshot import Bools, MigrationColumns
from shared.values.jobs import JobPhase
from shared.values.migration import lacks

Texts = tuple[str, ...]

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


def needs_of(cluster: Cluster, instance: Instance) -> Texts:
    """Return what its running VM needs of a node that it is migrated to (empty: no known needs)."""
    for name in sorted(instance.may_run_on):
        status = cluster.nodes[name].vms.get(instance.vm)
        if status is not None and status.migration_needs:
            return status.migration_needs
    return ()


def lacking_on(cluster: Cluster, instance: Instance, name: str) -> Texts:
    """Return what the node lacks for a live migration of the VM to it (empty: nothing known)."""
    node = cluster.nodes.get(name)
    if node is None or node.inventory is None or not node.inventory.migration_has:
        return ()
    return lacks(node.inventory.migration_has, needs_of(cluster, instance))


def misfit(cluster: Cluster, entry: JobEntry, change: Change) -> str:
    """Return why a change would migrate a VM to a node that cannot take it live ("": it would not)."""
    if change.kind is not ChangeKind.MIGRATE or len(change.allotments) != len(entry.allotments):
        return ""
    for instance, before, after in zip(entry.instances, entry.allotments, change.allotments, strict=True):
        lack = lacking_on(cluster, instance, after.node) if after.node != before.node else ()
        if lack:
            return f"{instance.vm} needs what {after.node} lacks: {', '.join(lack)}"
    return ""


def migration_columns(
    cluster: Cluster, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float
) -> MigrationColumns | None:
    """Return where the running jobs may be migrated to, with recent failures taken into account; None where all may go
    anywhere. O(instances + nodes x needs that differ)."""
    has = [() if node.inventory is None else node.inventory.migration_has for node in nodes]
    if not any(has) and not any(one.shunned for entry in jobs for one in entry.instances):
        return None
    rows = {node.name: row for row, node in enumerate(nodes)}
    sets = _Sets(has)
    of = np.full(len(jobs), -1, dtype=np.int64)
    for row, entry in enumerate(jobs):
        if entry.phase is JobPhase.RUNNING:
            needs = frozenset(needs_of(cluster, one) for one in entry.instances) - {()}
            shunned = _shunned(entry, now_s)
            if needs or shunned:
                homes = [rows[allotment.node] for allotment in entry.allotments if allotment.node in rows]
                of[row] = sets.of(needs, homes, [rows[name] for name in shunned if name in rows])
    return MigrationColumns(np.array(sets.fits, dtype=np.bool_), of) if sets.fits else None


def _shunned(entry: JobEntry, now_s: float) -> set[str]:
    """Return the nodes to which a migration of it has failed lately."""
    return {name for one in entry.instances for name, until_s in one.shunned.items() if now_s < until_s}


class _Sets:
    """Sets of nodes that differ and are not all of them. Most workloads have the set of what they need, and their own
    nodes are in it."""

    def __init__(self, has: Sequence[Texts]) -> None:
        self._has = has
        self._able: dict[frozenset[Texts], tuple[Bools, int]] = {}
        self._known: dict[bytes, int] = {}
        self.fits: list[Bools] = []

    def of(self, needs: frozenset[Texts], homes: Sequence[int], shunned: Sequence[int] = ()) -> int:
        """Return the index of the set of nodes that have all of it and are not shunned, plus the homes (-1: the set of
        all nodes)."""
        if needs not in self._able:
            mask = np.ones(len(self._has), dtype=np.bool_)
            for one in needs:
                mask &= _able(self._has, one)
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


def _able(has: Sequence[Texts], needs: Texts) -> Bools:
    """Return which nodes have all of it; equal nodes are checked once."""
    known: dict[Texts, bool] = {}
    for one in has:
        if one not in known:
            known[one] = not lacks(one, needs)
    return np.fromiter((known[one] for one in has), dtype=np.bool_, count=len(has))
