"""Which live migrations make room on a node for one more VM. Pure.

A VM can be moved where `trimtab vms migrate` would accept it: its memory and its allotted CPU are free there, and every
required rule holds when its turn comes. Only VMs of the node itself are moved, each once and straight to its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from daemons.models.placement_relations import Layout, Relation
from daemons.models.placement_rules import rules_of, running_places
from daemons.policies.placement.free_capacity import SLACK, repeated
from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot, WorkloadState

ENOUGH = 1.0 - SLACK
MOVES_MAX = 3  # from one node
CANDIDATES_MAX = 32  # VMs of one node that are looked at, the largest
TARGETS_MAX = 8  # nodes that are tried for one VM of a set
NODE_TRIES_MAX = 200  # looks for targets, for one node
TRIES_MAX = 8_000  # for all nodes
_CHUNK = 2_048  # rows of a matrix VMs x nodes
_Restore = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Need:
    """What one VM needs of a node. row: of its workload. memory_mib: with overhead, in MiB. cpu_mhz: 0 or more; 0: it
    shares what CPU there is."""

    row: int
    memory_mib: float
    cpu_mhz: float


@dataclass(frozen=True, slots=True)
class Move:
    """One live migration: instance `index` of workload `row` to another node. memory_mib: without overhead."""

    row: int
    index: int
    node: int
    to_node: int
    memory_mib: float


@dataclass(frozen=True, slots=True)
class Search:
    """The smallest set of moves that makes room (None: none was found). limited: a limit of this module was reached, so
    that there may be one."""

    moves: tuple[Move, ...] | None
    limited: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Instances:
    """Running instances that may be migrated, by node; those of node n are rows first[n] to first[n + 1]."""

    row: Ints
    index: Ints
    node: Ints
    memory_mib: Floats  # with overhead
    cpu_mhz: Floats
    first: Ints


class Capacity:
    """Free memory and CPU of each node, and where all workloads are, while one question is answered. The snapshot is
    never written."""

    def __init__(self, snapshot: Snapshot) -> None:
        nodes, work = snapshot.nodes, snapshot.workloads
        self.snapshot = snapshot
        self.free_mib, self.free_mhz = nodes.free_memory_mib.copy(), nodes.free_cpu_mhz.copy()
        self.usable: Bools = nodes.schedulable & ~nodes.draining
        self.usable[list(repeated(nodes.names))] = False
        self.rules = rules_of(snapshot, self.usable)
        self.places = running_places(snapshot)
        self.layout = Layout(self.places.get)
        self.movable = _movable(snapshot, self.rules.no_migration)
        self.moved: Bools = np.zeros(self.movable.row.size, dtype=np.bool_)
        self._rows_of_app: dict[int, list[int]] = {}
        for row in ((work.app >= 0) & (work.state == WorkloadState.RUNNING.value)).nonzero()[0].tolist():
            self._rows_of_app.setdefault(work.app.item(row), []).append(row)

    # --- looking ----------------------------------------------------------------------------------------------------

    def large_enough(self, need: Need) -> Bools:
        """Return the nodes that could hold the VM if nothing else were there, rules aside, bool[n]."""
        nodes, vcpus = self.snapshot.nodes, self.snapshot.workloads.vcpus.item(need.row)
        speed = np.minimum(nodes.core_mhz * vcpus, nodes.cpu_mhz)
        found = (nodes.memory_mib >= need.memory_mib * ENOUGH) & (nodes.cores >= vcpus)
        return np.asarray(found & (speed >= need.cpu_mhz * ENOUGH))

    def has_room(self, need: Need) -> Bools:
        """Return the nodes with the memory and CPU free, bool[n]."""
        found = self.free_mib >= need.memory_mib * ENOUGH
        return np.asarray(found & (self.free_mhz >= need.cpu_mhz * ENOUGH)) if need.cpu_mhz > 0.0 else found

    def open_to(self, row: int) -> Bools:
        """Return the usable nodes on which the workload keeps every required rule, bool[n]."""
        return self.rules.open_to(row, self.layout)

    def fits(self, need: Need) -> Bools:
        """Return the nodes on which the VM can start now, bool[n]."""
        return np.asarray(self.open_to(need.row) & self.large_enough(need) & self.has_room(need))

    def best_first(self, row: int, among: Bools) -> Ints:
        """Return nodes by their free memory, the least first (best fit); then by the weights of the preferences that an
        instance of the workload would break there; then in row order."""
        chosen = among.nonzero()[0]
        if chosen.size < 2:
            return chosen
        penalty = self.rules.penalty(row, self.layout) if self.rules.prefers(row) else None
        keys = (self.free_mib[chosen],) if penalty is None else (penalty[chosen], self.free_mib[chosen])
        return chosen[np.lexsort(keys)]

    def reachable(self) -> Bools:
        """Return which movable instances have a node to go to, the places of others aside, bool[instances]. O(instances
        x nodes) in numpy."""
        one, nodes, work = self.movable, self.snapshot.nodes, self.snapshot.workloads
        found: Bools = np.zeros(one.row.size, dtype=np.bool_)
        masks, mask_of = np.stack(self.rules.masks), np.array(self.rules.mask_of, dtype=np.int64)
        for begin in range(0, one.row.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            rows, mib, mhz = one.row[part], one.memory_mib[part, None], one.cpu_mhz[part, None]
            able = masks[mask_of[rows]]
            able &= self.free_mib >= mib * ENOUGH
            able &= self.free_mhz >= mhz * ENOUGH
            able &= np.minimum(work.vcpus[rows, None] * nodes.core_mhz, nodes.cpu_mhz) >= mhz * ENOUGH
            able[np.arange(rows.size), one.node[part]] = False
            found[part] = able.any(axis=1) & (work.max_mhz[rows] >= one.cpu_mhz[part] * ENOUGH)
        return found & ~self.moved

    def targets(self, at: int, among: Bools | None = None) -> Ints:
        """Return the nodes that a movable instance can be migrated to now, best first. among: bool[n] (None: any)."""
        one, nodes, work = self.movable, self.snapshot.nodes, self.snapshot.workloads
        row, index, mhz = one.row.item(at), one.index.item(at), one.cpu_mhz.item(at)
        mask = self.open_to(row) & (self.free_mib >= one.memory_mib.item(at) * ENOUGH)
        mask &= self.free_mhz >= mhz * ENOUGH
        mask &= np.minimum(nodes.core_mhz * work.vcpus.item(row), nodes.cpu_mhz) >= mhz * ENOUGH
        if among is not None:
            mask &= among
        mask[one.node.item(at)] = False
        others = [node for i, node in enumerate(self.places[row]) if i != index]
        if work.spread.item(row):
            mask[[node for node in others if node >= 0]] = False
        for replica in self._rows_of_app.get(work.app.item(row), ()):
            mask[[node for node in self.places[replica] if node >= 0]] = False
        if others:
            for relation in self.rules.relations.get(row, ()):
                mask &= _beside(relation, row, others)
        return self.best_first(row, mask)

    # --- changing ---------------------------------------------------------------------------------------------------

    def place(self, need: Need, node: int) -> None:
        """Put a VM on a node."""
        self.free_mib[node] -= need.memory_mib
        self.free_mhz[node] -= need.cpu_mhz
        self.places[need.row] = (node,)
        self.layout.changed()

    def move(self, at: int, target: int) -> _Restore:
        """Migrate an instance; return what `restore` needs."""
        one = self.movable
        here, mib, mhz = one.node.item(at), one.memory_mib.item(at), one.cpu_mhz.item(at)
        before = (
            self.free_mib.item(here),
            self.free_mhz.item(here),
            self.free_mib.item(target),
            self.free_mhz.item(target),
        )
        self.free_mib[here] += mib
        self.free_mhz[here] += mhz
        self.free_mib[target] -= mib
        self.free_mhz[target] -= mhz
        self._put(at, target)
        return before

    def restore(self, at: int, target: int, before: _Restore) -> None:
        """Take back the last `move`."""
        here = self.movable.node.item(at)
        self.free_mib[here], self.free_mhz[here], self.free_mib[target], self.free_mhz[target] = before
        self._put(at, here)

    def _put(self, at: int, node: int) -> None:
        row, index = self.movable.row.item(at), self.movable.index.item(at)
        place = self.places[row]
        self.places[row] = (*place[:index], node, *place[index + 1 :])
        self.layout.changed()

    def carry_out(self, moves: tuple[Move, ...]) -> None:
        """Make moves that a search has found; what was moved is not moved again."""
        one = self.movable
        for each in moves:
            begin, end = one.first.item(each.node), one.first.item(each.node + 1)
            same = (one.row[begin:end] == each.row) & (one.index[begin:end] == each.index)
            at = begin + int(same.argmax())
            self.move(at, each.to_node)
            self.moved[at] = True


class MoveSearch:
    """Looks for the fewest moves, of these the ones with the least memory, that make room for a VM; `tries`: how many
    looks for targets are left to all searches. For one state of a `Capacity`."""

    def __init__(self, capacity: Capacity, need: Need, tries: int = TRIES_MAX) -> None:
        self.capacity, self.need, self.tries = capacity, need, tries
        self._reachable = capacity.reachable()
        self._node_tries = 0
        self._limited = False

    def of(self, node: int) -> Search:
        """Return the search for one node, which must be large enough for the VM, and allowed by all rules but those
        about other workloads. Exact for nodes with at most `CANDIDATES_MAX` movable VMs and few targets. O(subsets of
        at most `MOVES_MAX` VMs) in numpy, O(tries x nodes)."""
        forced = self._in_the_way(node)
        one = self.capacity.movable
        begin, end = one.first.item(node), one.first.item(node + 1)
        ids = begin + self._reachable[begin:end].nonzero()[0]
        if forced is None or not {*forced} <= {*ids.tolist()}:
            return Search(None, False)
        self._node_tries, self._limited = min(NODE_TRIES_MAX, self.tries), False
        rest = ids[~np.isin(ids, list(forced))] if forced else ids
        if rest.size > CANDIDATES_MAX:
            rest = np.sort(rest[np.argsort(-one.memory_mib[rest], kind="stable")[:CANDIDATES_MAX]])
            self._limited = True
        fixed = tuple(forced)
        for size in range(max(1, len(fixed)), MOVES_MAX + 1):
            for chosen in self._sets(node, fixed, rest, size - len(fixed)):
                found = self._assigned((*fixed, *chosen), node, forced)
                if found is not None:
                    return Search(tuple(self._move(at, target) for at, target in found), self._limited)
                if self._node_tries <= 0:
                    return Search(None, True)
        enough_mib, enough_mhz = self._lacking(node)
        more = ids.size > MOVES_MAX and one.memory_mib[ids].sum() >= enough_mib
        return Search(None, self._limited or bool(more and one.cpu_mhz[ids].sum() >= enough_mhz))

    def _lacking(self, node: int) -> tuple[float, float]:
        """Return the memory in MiB and the CPU in MHz that must be freed on a node; CPU -inf: none is needed."""
        need, capacity = self.need, self.capacity
        mhz = need.cpu_mhz * ENOUGH - capacity.free_mhz.item(node) if need.cpu_mhz > 0.0 else -np.inf
        return need.memory_mib * ENOUGH - capacity.free_mib.item(node), mhz

    def _sets(self, node: int, fixed: tuple[int, ...], rest: Ints, size: int) -> list[tuple[int, ...]]:
        """Return the sets of `size` instances that free enough beside the fixed ones, the least memory first."""
        one, (mib, mhz) = self.capacity.movable, self._lacking(node)
        if rest.size < size:
            return []
        chosen = rest[_choices(rest.size, size)]
        freed_mib = one.memory_mib[chosen].sum(axis=1) + one.memory_mib[list(fixed)].sum()
        freed_mhz = one.cpu_mhz[chosen].sum(axis=1) + one.cpu_mhz[list(fixed)].sum()
        enough = ((freed_mib >= mib) & (freed_mhz >= mhz)).nonzero()[0]
        ordered = enough[np.argsort(freed_mib[enough], kind="stable")[: NODE_TRIES_MAX + 1]]
        return [tuple(each) for each in chosen[ordered].tolist()]

    def _assigned(
        self, left: tuple[int, ...], node: int, forced: Mapping[int, Bools]
    ) -> tuple[tuple[int, int], ...] | None:
        """Return a target for each instance, in an order in which every move is allowed when its turn comes, and after
        which the VM is allowed on the node; None if there is none."""
        capacity = self.capacity
        if not left:
            return () if capacity.open_to(self.need.row).item(node) else None
        ruled = any(capacity.movable.row.item(at) in capacity.rules.relations for at in left)
        for at in left if ruled else left[:1]:
            if self._node_tries <= 0:
                return None
            self._node_tries -= 1
            self.tries -= 1
            targets = capacity.targets(at, forced.get(at)).tolist()
            self._limited |= len(targets) > TARGETS_MAX
            for target in targets[:TARGETS_MAX]:
                before = capacity.move(at, target)
                rest = self._assigned(tuple(other for other in left if other != at), node, forced)
                capacity.restore(at, target, before)
                if rest is not None:
                    return ((at, target), *rest)
        return None

    def _in_the_way(self, node: int) -> dict[int, Bools] | None:
        """Return the instances on the node that must leave it for the VM's rules, each with the nodes that are far
        enough, bool[n]; None if the rules forbid the node whatever leaves it."""
        capacity, need = self.capacity, self.need
        found: dict[int, Bools] = {}
        one = capacity.movable
        begin, end = one.first.item(node), one.first.item(node + 1)
        at_of = {
            (row, index): begin + at
            for at, (row, index) in enumerate(
                zip(one.row[begin:end].tolist(), one.index[begin:end].tolist(), strict=True)
            )
        }
        for relation in capacity.rules.relations.get(need.row, ()):
            domain = relation.domain_of(node)
            for other in relation.related(need.row):
                for index, place in enumerate(capacity.places.get(other) or ()):
                    if (relation.domain_of(place) == domain) == relation.together:
                        continue
                    if relation.together:
                        return None
                    at = at_of.get((other, index)) if place == node else None
                    if at is None:
                        return None
                    far = relation.domain != domain
                    found[at] = found[at] & far if at in found else far
        return found

    def _move(self, at: int, target: int) -> Move:
        one = self.capacity.movable
        row = one.row.item(at)
        memory_mib = self.capacity.snapshot.workloads.memory_mib.item(row)
        return Move(row, one.index.item(at), one.node.item(at), target, memory_mib)


def _beside(relation: Relation, row: int, others: list[int]) -> Bools:
    """Return the nodes on which an instance keeps a relation with the other instances of its own workload, bool[n]."""
    domains = {relation.domain_of(node) for node in others}
    if relation.together and row in relation.rows:
        (first, *more) = domains
        return np.asarray(relation.domain == first) if not more else np.zeros(relation.domain.size, dtype=np.bool_)
    if relation.alone and not relation.together:
        return ~np.isin(relation.domain, list(domains))
    return np.ones(relation.domain.size, dtype=np.bool_)


def _movable(snapshot: Snapshot, no_migration: set[int]) -> _Instances:
    """Return the running instances that may be migrated: of workloads that are not fixed, may be moved and have sound
    numbers."""
    work, overhead_mib = snapshot.workloads, snapshot.vm_overhead_mib
    may = (work.state == WorkloadState.RUNNING.value) & ~work.fixed & (work.instances > 0)
    may[[*no_migration, *repeated(work.names)]] = False
    rows = may.nonzero()[0]
    counts = work.instances[rows]
    row = np.repeat(rows, counts)
    index = np.arange(row.size) - np.repeat(
        np.cumsum(work.instances[rows]) - work.instances[rows], work.instances[rows]
    )
    held = work.first_instance[row] + index
    node, mhz, mib = (
        snapshot.instances.node[held],
        snapshot.instances.cpu_mhz[held],
        work.memory_mib[row] + overhead_mib,
    )
    sound = (node >= 0) & np.isfinite(mhz) & (mhz >= 0.0) & np.isfinite(mib) & (mib >= 0.0)
    order = sound.nonzero()[0][np.argsort(node[sound], kind="stable")]
    first = np.searchsorted(node[order], np.arange(len(snapshot.nodes.names) + 1))
    return _Instances(row[order], index[order], node[order], mib[order], mhz[order], first)


@lru_cache(maxsize=CANDIDATES_MAX * (MOVES_MAX + 1))
def _choices(count: int, size: int) -> Ints:
    """Return every choice of `size` among `count`, int64[choices, size], in lexical order."""
    return np.array(list(combinations(range(count), size)), dtype=np.int64).reshape(comb(count, size), size)
