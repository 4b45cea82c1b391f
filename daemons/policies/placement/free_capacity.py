"""Free room on nodes, and who fits where: the arithmetic that the placement policies share.

An instance's allotment on a node is min(max_mhz, vcpus x core_mhz, cpu_mhz of the node). It fits when the node is
schedulable, not draining, has the labels, has that much CPU and memory_mib + vm_overhead_mib of memory free (less one
part in 10^9, for sums of floats), and the allotment is above 0 and not below min_mhz.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from daemons.models.placement_relations import Layout, Place
from daemons.models.placement_rules import PlacementRules, rules_of, running_places
from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot

SLACK = 1e-9
_ENOUGH = 1.0 - SLACK


class Shape(NamedTuple):
    """What one instance needs of a node. `memory_mib` includes the VM's overhead."""

    memory_mib: float
    max_mhz: float
    min_mhz: float
    vcpus: int
    spread: bool
    required_labels: tuple[str, ...]


def shape_of(snapshot: Snapshot, row: int) -> Shape:
    """Return the shape of the instances of workload `row`."""
    work = snapshot.workloads
    return Shape(
        work.memory_mib.item(row) + snapshot.vm_overhead_mib,
        work.max_mhz.item(row),
        work.min_mhz.item(row),
        work.vcpus.item(row),
        work.spread.item(row),
        work.required_labels[row],
    )


class Fit(NamedTuple):
    """Node rows for the instances, in order (None: they do not all fit), and how many would fit where they do not."""

    rows: Ints | None
    slots: int


class _Form(NamedTuple):
    """A shape against every node: allotment in MHz, the least free MHz that will do, and whether it may be there."""

    allotment_mhz: Floats
    enough_mhz: Floats
    eligible: Bools


def repeated(names: tuple[str, ...]) -> frozenset[int]:
    """Return the rows whose name an earlier row has: a name stands for its first row only."""
    if len(set(names)) == len(names):
        return frozenset()
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    return frozenset(row for row, name in enumerate(names) if first[name] != row)


class FreeCapacity:
    """Free memory and CPU per node while a decision is being made. `copy` is cheap; the snapshot is never written.

    `rules`: None where there are none; `places`, and as a `layout`: the nodes of every workload that runs, by row, only
    kept with rules.
    """

    __slots__ = ("_forms", "free_mhz", "free_mib", "layout", "places", "rules", "snapshot", "usable")

    def __init__(self, snapshot: Snapshot) -> None:
        nodes = snapshot.nodes
        self.snapshot = snapshot
        self.free_mib = nodes.free_memory_mib.copy()
        self.free_mhz = nodes.free_cpu_mhz.copy()
        self.usable: Bools = nodes.schedulable & ~nodes.draining
        again = repeated(nodes.names)
        if again:
            self.usable[list(again)] = False
        self._forms: dict[Shape, _Form] = {}
        self.rules: PlacementRules | None = rules_of(snapshot, self.usable) if snapshot.constraints else None
        self.places: dict[int, Place] = running_places(snapshot) if self.rules is not None else {}
        self.layout = Layout(self.places.get)

    def copy(self) -> FreeCapacity:
        """Another room with the same free amounts, to try things in."""
        other = FreeCapacity.__new__(FreeCapacity)
        other.snapshot, other.usable, other._forms = self.snapshot, self.usable, self._forms
        other.free_mib, other.free_mhz = self.free_mib.copy(), self.free_mhz.copy()
        other.rules, other.places = self.rules, dict(self.places)
        other.layout = self.layout.copy(other.places.get)
        return other

    def take_over(self, other: FreeCapacity) -> None:
        """Become what a copy has become."""
        self.free_mib, self.free_mhz = other.free_mib, other.free_mhz
        self.places, self.layout = other.places, other.layout

    def settle(self, row: int, rows: Ints) -> None:
        """Record that the workload is on these node rows."""
        if self.rules is not None:
            was, self.places[row] = self.places.get(row, ()), tuple(rows.tolist())
            self.layout.moved(row, was, self.places[row], self.rules.of(row))

    def vacate(self, row: int) -> None:
        """Record that the workload is on no node."""
        if self.rules is not None:
            self.layout.moved(row, self.places.pop(row, ()), (), self.rules.of(row))

    def ruled(self, row: int) -> PlacementRules | None:
        """Return the rules if any is about the workload, labels that it requires aside."""
        return self.rules if self.rules is not None and self.rules.concerns(row) else None

    def _form(self, shape: Shape) -> _Form:
        form = self._forms.get(shape)
        if form is None:
            nodes = self.snapshot.nodes
            allotment = np.minimum(nodes.core_mhz * shape.vcpus, nodes.cpu_mhz)
            np.minimum(allotment, shape.max_mhz, out=allotment)
            eligible = allotment >= shape.min_mhz
            eligible &= allotment > 0.0
            eligible &= self.usable
            if shape.required_labels:
                eligible &= self.labelled(shape.required_labels)
            form = self._forms[shape] = _Form(allotment, allotment * _ENOUGH, eligible)
        return form

    def labelled(self, needs: tuple[str, ...]) -> Bools:
        """Return the nodes that have all the labels, bool[n]."""
        wanted = set(needs)
        labels = self.snapshot.nodes.labels
        return np.fromiter((wanted.issubset(has) for has in labels), dtype=np.bool_, count=len(labels))

    def allotment_mhz(self, shape: Shape) -> Floats:
        """Return the CPU that one instance is given on each node, MHz, float64[n]."""
        return self._form(shape).allotment_mhz

    def eligible(self, shape: Shape) -> Bools:
        """Return the nodes that could take an instance if their CPU and memory were free, regardless of memory
        capacity, bool[n]."""
        return self._form(shape).eligible

    def fits(self, shape: Shape) -> Bools:
        """Return the nodes with capacity for one instance now, bool[n]."""
        form = self._form(shape)
        fits = self.free_mib >= shape.memory_mib * _ENOUGH
        fits &= self.free_mhz >= form.enough_mhz
        fits &= form.eligible
        return fits

    def slots(self, shape: Shape, at_most: int) -> Ints:
        """Return the number of instances that each node could take now, at most `at_most` (1 with `spread`),
        int64[n]."""
        fits = self.fits(shape)
        if shape.spread or at_most == 1:
            return fits.astype(np.int64)
        with np.errstate(all="ignore"):  # nodes that do not fit may hold anything
            slots = np.floor(self.free_mhz / self._form(shape).allotment_mhz + SLACK)
            if shape.memory_mib > 0.0:
                np.minimum(slots, np.floor(self.free_mib / shape.memory_mib + SLACK), out=slots)
        return np.where(fits, np.clip(slots, 1, at_most), 0).astype(np.int64)

    def slots_at(self, shape: Shape, node: int, at_most: int, free_mib: float, free_mhz: float) -> int:
        """Return `slots` of one node as if it had this much free."""
        form = self._form(shape)
        fits = free_mib >= shape.memory_mib * _ENOUGH and free_mhz >= form.enough_mhz.item(node)
        if not (fits and form.eligible.item(node)):
            return 0
        if shape.spread or at_most == 1:
            return 1
        slots = min(free_mhz / form.allotment_mhz.item(node) + SLACK, float(at_most))
        if shape.memory_mib > 0.0:
            slots = min(slots, free_mib / shape.memory_mib + SLACK)
        return max(1, math.floor(slots))

    def first_fit(self, shape: Shape, instances: int) -> Fit:
        """Return the first nodes with capacity for all instances: each goes to the first node that still has
        capacity."""
        if shape.spread or instances == 1:
            rows = self.fits(shape).nonzero()[0]
            return Fit(rows[:instances] if rows.size >= instances else None, rows.size)
        return spread(self.slots(shape, instances), instances)

    def first_fit_near(self, shape: Shape, homes: Ints) -> Fit:
        """Return nodes like `first_fit` with one instance per entry of `homes`, each on its home (a node row) if
        possible."""
        slots = self.slots(shape, homes.size)
        total = int(slots.sum())
        if total < homes.size:
            return Fit(None, total)
        rows = np.full(homes.size, -1, dtype=np.int64)
        for index, home in enumerate(homes.tolist()):
            if 0 <= home < slots.size and slots[home] > 0:
                rows[index] = home
                slots[home] -= 1
        away = (rows < 0).nonzero()[0]
        rest = spread(slots, away.size).rows
        if rest is not None:  # always: there are as many slots as instances
            rows[away] = rest
        return Fit(rows, total)

    def take(self, shape: Shape, rows: Ints) -> None:
        """Give one instance's room away on each of the node rows (a row may come more than once)."""
        mhz = self._form(shape).allotment_mhz[rows]
        if shape.spread or rows.size == 1:
            self.free_mib[rows] -= shape.memory_mib
            self.free_mhz[rows] -= mhz
        else:
            np.subtract.at(self.free_mib, rows, shape.memory_mib)
            np.subtract.at(self.free_mhz, rows, mhz)

    def release(self, rows: Ints, memory_mib: float, cpu_mhz: Floats) -> None:
        """Give room back: `memory_mib` and cpu_mhz[i] on node rows[i]."""
        np.add.at(self.free_mib, rows, memory_mib)
        np.add.at(self.free_mhz, rows, cpu_mhz)


def spread(slots: Ints, instances: int) -> Fit:
    """Fill nodes in row order, each up to its slots."""
    filled = slots.cumsum()
    total = int(filled[-1]) if filled.size else 0
    if total < instances:
        return Fit(None, total)
    return Fit(filled.searchsorted(np.arange(instances), side="right"), total)
