"""Where one more VM would go, and what would have to move for it (`CheckVmFit`). Nothing is changed. Pure.

Memory decides: it is never overcommitted. CPU is shared, so it counts only where the question states a need. CPU that
workloads are allotted does not count as free. Only nodes without an environment are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from daemons.decision import groups
from daemons.planning.make_room import ENOUGH, Capacity, Move, MoveSearch, Need
from shared.policy_api.snapshot import NOBODY, POOL, Bools, Snapshot, WorkloadColumns, WorkloadState
from shared.values.jobs import Constraint
from shared.values.new_vm import COPIES_MAX, NewVm

COPY_NAMES = tuple(f"new VM {number}" for number in range(1, COPIES_MAX + 1))
"""Names of the VMs in constraints; no workload's name has a space."""
SEARCHES_MAX = 8  # for further VMs, after those that fit as it is
NAMES_MAX = 3  # workloads that one obstacle names


class Obstacle(StrEnum):
    """Why a VM does not fit on a node. Codes of refusals."""

    ENVIRONMENT = "node-in-environment"
    NOT_SCHEDULABLE = "node-not-schedulable"
    LABELS = "labels"
    RULE = "constraint"
    MEMORY = "no-memory"
    CPU = "no-cpu"


@dataclass(frozen=True, slots=True)
class VmFitTask:
    """The question: where `count` such VMs would go, 1 to `COPIES_MAX`. constraints: those about them, by `COPY_NAMES`:
    the first name is that of the first VM, and so on."""

    snapshot: Snapshot
    vm: NewVm
    constraints: tuple[Constraint, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """A live migration that makes room: instance `index` of a workload to another node. memory_mib: of the VM."""

    workload: str
    index: int
    node: str
    to_node: str
    memory_mib: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that can hold the VM. free_memory_mib, free_cpu_mhz: what is free there afterwards; CPU may be negative.
    moves: what has to move first, in this order. limited: fewer or smaller ones may be enough, because a limit of the
    search was reached."""

    node: str
    free_memory_mib: float
    free_cpu_mhz: float
    moves: tuple[Migration, ...] = ()
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Misfit:
    """A node that cannot hold the VM. numbers: of memory or CPU. names: missing labels, workloads in the way, or the
    environment. rule: the name of a required rule. limited: more moves than the search tries may make room."""

    node: str
    obstacle: Obstacle
    numbers: tuple[tuple[str, float], ...] = ()
    names: tuple[str, ...] = ()
    rule: str = ""
    limited: bool = False


@dataclass(frozen=True, slots=True)
class VmFit:
    """The answer. fits, with_moves: where one such VM can go now, and after others have moved, best first; misfits: the
    other nodes, in the order of the snapshot. how_many: such VMs fit without moves, counted up to `COPIES_MAX`.
    placements: of the VMs in the question, one after the other, as many as there is a place for. limited: a limit of
    the search was reached before all were placed."""

    fits: tuple[Fit, ...]
    with_moves: tuple[Fit, ...]
    misfits: tuple[Misfit, ...]
    how_many: int
    placements: tuple[Fit, ...]
    limited: bool


def vm_fit(task: VmFitTask) -> VmFit:
    """Answer the question. O(nodes x workloads) in numpy, and at most `TRIES_MAX` looks for targets of O(nodes) for
    each of at most `SEARCHES_MAX` + 1 searches."""
    return _Answer(task).answer()


_Found = dict[int, tuple[tuple[Move, ...], bool]]  # by node: moves, and whether a limit of the search was reached


class _Answer:
    def __init__(self, task: VmFitTask) -> None:
        self._whole, self._task, self._vm = task.snapshot, task, task.vm
        self._snapshot, self._first = _with_copies(groups.parts(task.snapshot)[0].snapshot, task)
        self._capacity = Capacity(self._snapshot)

    def answer(self) -> VmFit:
        need = self._need(0)
        fits = self._capacity.fits(need)
        found, failed = self._searched(need, fits)
        order = self._best_first(found)
        now = tuple(self._fit(need, node) for node in self._capacity.best_first(need.row, fits).tolist())
        with_moves = tuple(self._fit(need, node, *found[node]) for node in order)
        misfits = self._misfits(need, fits, failed)
        placements, how_many, limited = self._placements(found, failed, order)
        return VmFit(now, with_moves, misfits, how_many, placements, limited)

    def _need(self, copy: int) -> Need:
        memory_mib = self._vm.memory_mib + self._snapshot.vm_overhead_mib
        return Need(self._first + copy, memory_mib, self._vm.cpu_mhz)

    # --- one VM -----------------------------------------------------------------------------------------------------

    def _searched(self, need: Need, fits: Bools) -> tuple[_Found, dict[int, bool]]:
        """Return the moves that make room, by node, and of the nodes where none do whether a limit was reached. Nodes
        that lack the least memory come first."""
        capacity = self._capacity
        nodes = (capacity.rules.allowed(need.row) & capacity.large_enough(need) & ~fits).nonzero()[0]
        search = MoveSearch(capacity, need)
        found: _Found = {}
        failed: dict[int, bool] = {}
        for node in nodes[np.argsort(-capacity.free_mib[nodes], kind="stable")].tolist():
            outcome = search.of(node)
            if outcome.moves is None:
                failed[node] = outcome.limited
            else:
                found[node] = outcome.moves, outcome.limited
        return found, failed

    def _best_first(self, found: _Found) -> list[int]:
        """Return nodes by the number of moves, then by the memory that is moved, then by what is free afterwards."""

        def cost(node: int) -> tuple[int, float, float, int]:
            moves, _ = found[node]
            freed_mib = sum(move.memory_mib + self._snapshot.vm_overhead_mib for move in moves)
            return len(moves), freed_mib, self._capacity.free_mib.item(node) + freed_mib, node

        return sorted(found, key=cost)

    def _misfits(self, need: Need, fits: Bools, failed: dict[int, bool]) -> tuple[Misfit, ...]:
        reasons, able = _Reasons(self._capacity, need, self._vm.required_labels), self._capacity.rules.allowed(need.row)
        able = able & self._capacity.large_enough(need) & ~fits
        misfits = [reasons.of(node) for node in (~fits & ~able).nonzero()[0].tolist()]
        misfits += [replace(reasons.of(node), limited=limited) for node, limited in failed.items()]
        misfits += self._elsewhere()
        row_of = {name: row for row, name in enumerate(self._whole.nodes.names)}
        return tuple(sorted(misfits, key=lambda each: row_of[each.node]))

    def _fit(self, need: Need, node: int, moves: Sequence[Move] = (), limited: bool = False) -> Fit:
        capacity, work, names = self._capacity, self._snapshot.workloads, self._snapshot.nodes.names
        mib, mhz = capacity.free_mib.item(node) - need.memory_mib, capacity.free_mhz.item(node) - need.cpu_mhz
        migrations = []
        for move in moves:
            mib += move.memory_mib + self._snapshot.vm_overhead_mib
            mhz += self._snapshot.instances.cpu_mhz.item(work.first_instance.item(move.row) + move.index)
            migrations.append(
                Migration(work.names[move.row], move.index, names[move.node], names[move.to_node], move.memory_mib)
            )
        return Fit(names[node], _finite(mib), _finite(mhz), tuple(migrations), limited)

    def _elsewhere(self) -> Iterator[Misfit]:
        """Yield the nodes that environments have, or that are being reassigned."""
        held = self._whole.environments
        if held is None:
            return
        for node in (held.node != POOL).nonzero()[0].tolist():
            owner = held.node.item(node)
            names = () if owner == NOBODY else (held.names[owner],)
            yield Misfit(self._whole.nodes.names[node], Obstacle.ENVIRONMENT, names=names)

    # --- several ----------------------------------------------------------------------------------------------------

    def _placements(
        self, found: _Found, failed: dict[int, bool], order: list[int]
    ) -> tuple[tuple[Fit, ...], int, bool]:
        """Return where the VMs go, how many fit without moves, and whether a limit was reached before all were placed.
        Each goes to the best node for it, given those before. found, failed: of the search for the first of them;
        order: its nodes, best first."""
        count, limited = self._task.count, True
        placed = self._as_many_as_fit(0, COPIES_MAX)
        how_many = len(placed)
        for _ in range(SEARCHES_MAX):
            if len(placed) >= count:
                break
            need = self._need(len(placed))
            if placed:
                found, failed = self._searched(need, self._capacity.fits(need))
                order = self._best_first(found)
            if not order:
                limited = any(failed.values())
                break
            moves, is_cut = found[order[0]]
            placed.append(self._fit(need, order[0], moves, is_cut))
            self._capacity.carry_out(moves)
            self._capacity.place(need, order[0])
            placed += self._as_many_as_fit(len(placed), count)
        return tuple(placed[:count]), how_many, limited and len(placed) < count

    def _as_many_as_fit(self, begin: int, end: int) -> list[Fit]:
        """Place the VMs from number `begin` on, each on the best node for it, until one fits nowhere, or number `end`
        is reached."""
        placed: list[Fit] = []
        for copy in range(begin, end):
            need = self._need(copy)
            nodes = self._capacity.best_first(need.row, self._capacity.fits(need))
            if not nodes.size:
                break
            placed.append(self._fit(need, nodes.item(0)))
            self._capacity.place(need, nodes.item(0))
        return placed


class _Reasons:
    """Says of a node why the VM does not fit there."""

    def __init__(self, capacity: Capacity, need: Need, required_labels: tuple[str, ...]) -> None:
        self._capacity, self._need, self._labels = capacity, need, required_labels
        self._open = capacity.open_to(need.row)
        one = capacity.movable
        self._movable_mib = np.bincount(one.node, one.memory_mib, len(capacity.snapshot.nodes.names))
        self._movable_mhz = np.bincount(one.node, one.cpu_mhz, len(capacity.snapshot.nodes.names))

    def of(self, node: int) -> Misfit:
        capacity, need, nodes = self._capacity, self._need, self._capacity.snapshot.nodes
        name, vcpus = nodes.names[node], capacity.snapshot.workloads.vcpus.item(need.row)
        if not capacity.usable[node]:
            return Misfit(name, Obstacle.NOT_SCHEDULABLE)
        lacking = tuple(label for label in dict.fromkeys(self._labels) if label not in nodes.labels[node])
        if lacking:
            return Misfit(name, Obstacle.LABELS, names=lacking)
        if not capacity.rules.allowed(need.row)[node]:
            return Misfit(name, Obstacle.RULE, rule=capacity.rules.broken(need.row, (node,), capacity.layout))
        if not nodes.memory_mib[node] >= need.memory_mib * ENOUGH:
            return Misfit(name, Obstacle.MEMORY, self._memory(node))
        if nodes.cores[node] < vcpus:
            numbers = (("needed_vcpus", float(vcpus)), ("cores", float(nodes.cores[node])))
            return Misfit(name, Obstacle.CPU, numbers)
        if not capacity.large_enough(need)[node]:
            return Misfit(name, Obstacle.CPU, self._cpu(node))
        if not self._open[node]:
            rule = capacity.rules.broken(need.row, (node,), capacity.layout)
            return Misfit(name, Obstacle.RULE, names=self._in_the_way(node), rule=rule)
        if not capacity.free_mib[node] >= need.memory_mib * ENOUGH:
            return Misfit(name, Obstacle.MEMORY, self._memory(node))
        return Misfit(name, Obstacle.CPU, self._cpu(node))

    def _memory(self, node: int) -> tuple[tuple[str, float], ...]:
        numbers = (
            ("needed_mib", self._need.memory_mib),
            ("free_mib", self._capacity.free_mib.item(node)),
            ("capacity_mib", self._capacity.snapshot.nodes.memory_mib.item(node)),
            ("movable_mib", self._movable_mib.item(node)),
        )
        return tuple((name, _finite(number)) for name, number in numbers)

    def _cpu(self, node: int) -> tuple[tuple[str, float], ...]:
        nodes, vcpus = self._capacity.snapshot.nodes, self._capacity.snapshot.workloads.vcpus.item(self._need.row)
        numbers = (
            ("needed_mhz", self._need.cpu_mhz),
            ("free_mhz", self._capacity.free_mhz.item(node)),
            ("capacity_mhz", min(nodes.core_mhz.item(node) * vcpus, nodes.cpu_mhz.item(node))),
            ("movable_mhz", self._movable_mhz.item(node)),
        )
        return tuple((name, _finite(number)) for name, number in numbers)

    def _in_the_way(self, node: int) -> tuple[str, ...]:
        """Return the workloads that a rule between workloads is about: those apart from which the VM must stay, in the
        domain of the node; or those together with which it must be."""
        capacity, found = self._capacity, dict[str, None]()
        names = capacity.snapshot.workloads.names
        for relation in capacity.rules.relations.get(self._need.row, ()):
            domain = relation.domain_of(node)
            for other in sorted(relation.related(self._need.row)):
                domains = {relation.domain_of(place) for place in capacity.places.get(other) or ()}
                if domains - {domain} if relation.together else domains & {domain}:
                    found[names[other]] = None
        return tuple(found)[:NAMES_MAX]


def _with_copies(snapshot: Snapshot, task: VmFitTask) -> tuple[Snapshot, int]:
    """Return the snapshot with waiting workloads for the VMs behind all others, and the row of the first of them."""
    work, vm, count = snapshot.workloads, task.vm, len(COPY_NAMES)
    values: dict[str, Any] = {
        "names": COPY_NAMES,
        "state": WorkloadState.WAITING.value,
        "memory_mib": vm.memory_mib,
        "vcpus": vm.vcpus,
        "max_mhz": np.inf,
        "min_mhz": vm.cpu_mhz,
        "instances": 1,
        "importance": 1.0,
        "required_labels": (vm.required_labels,) * count,
        "app": -1,
    }
    columns: dict[str, Any] = {}
    for each in fields(WorkloadColumns):
        column, value = getattr(work, each.name), values.get(each.name, 0)
        if isinstance(column, np.ndarray):
            columns[each.name] = np.concatenate((column, np.full(count, value, dtype=column.dtype)))
        else:
            columns[each.name] = (*column, *value)
    migration = snapshot.migration
    if migration is not None:
        migration = replace(migration, of=np.concatenate((migration.of, np.full(count, -1, dtype=np.int64))))
    made = replace(
        snapshot,
        workloads=WorkloadColumns(**columns),
        constraints=(*snapshot.constraints, *task.constraints),
        migration=migration,
        loading=None,
    )
    return made, len(work.names)


def _finite(value: float) -> float:
    return float(np.nan_to_num(value))
