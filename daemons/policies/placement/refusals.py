"""Why a workload is not placed, in numbers; worked out when someone reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from daemons.policies.placement.free_capacity import SLACK, FreeCapacity, Shape, shape_of
from shared.policy_api.decision import Reason, ReasonCode, Refusal
from shared.policy_api.deferred import Deferred
from shared.policy_api.snapshot import Bools, Floats, Ints


def _finite(value: float) -> float:
    return float(np.nan_to_num(value))


def _largest(values: Floats, of: Bools) -> float:
    chosen = values[of]
    return _finite(chosen.max()) if chosen.size else 0.0


def _whole_slots(free: Floats, needed: Floats | float, among: Bools, at_most: int) -> int:
    """Return the number of instances that fit by one resource alone."""
    with np.errstate(all="ignore"):
        slots = np.nan_to_num(np.floor(free / needed + SLACK), nan=0.0)
    return int(np.clip(slots[among], 0, at_most).sum())


def why_not(room: FreeCapacity, shape: Shape, instances: int, barred: Ints | None = None) -> Reason:
    """Return the obstacle for `instances` of `shape` in this free capacity, without the `barred` node rows.

    The caller knows that they do not fit.

    NO_NODES, LABELS, FITS_NO_NODE, TOO_FEW_NODES are as their names say. Otherwise NO_MEMORY or NO_CPU: the resource of
    which fewer instances would fit, with the need of an instance, the most that an eligible node has free, and the
    number of instances that do not fit.
    """
    nodes = room.snapshot.nodes
    if not room.usable.any():
        return Reason(ReasonCode.NO_NODES, (("nodes", float(len(nodes.names))),))
    usable = float(room.usable.sum())
    if shape.required_labels and not (room.usable & room.labelled(shape.required_labels)).any():
        return Reason(ReasonCode.LABELS, (("labels", float(len(shape.required_labels))), ("nodes", usable)))
    allotment = room.allotment_mhz(shape)
    empty = room.eligible(shape) & (nodes.memory_mib >= shape.memory_mib * (1.0 - SLACK))
    if not empty.any():
        numbers = (("needed_mib", shape.memory_mib), ("largest_mib", _largest(nodes.memory_mib, room.usable)))
        mhz = (("needed_mhz", shape.min_mhz), ("largest_mhz", _largest(allotment, room.usable)))
        return Reason(ReasonCode.FITS_NO_NODE, numbers + mhz)
    if barred is not None:
        empty[barred] = False
    if shape.spread and empty.sum() < instances:
        numbers = (("needed_nodes", float(instances)), ("nodes", float(empty.sum())))
        return Reason(ReasonCode.TOO_FEW_NODES, numbers)
    return _short(room, shape, instances, empty)


def why_not_ruled(room: FreeCapacity, row: int, shape: Shape, instances: int, barred: Ints | None = None) -> Reason:
    """Return the obstacle for instances of a workload that may have rules: CONTRADICTION, CONSTRAINT with the number of
    nodes that have room and how many of these each rule excludes, or what `why_not` says if there is no room anyway."""
    rules = room.ruled(row)
    if rules is None:
        return why_not(room, shape, instances, barred)
    if row in rules.contradictions:
        return rules.contradictions[row]
    slots = room.slots(shape, instances)
    if barred is not None:
        slots[barred] = 0
    if int(slots.sum()) < instances:
        return why_not(room, shape, instances, barred)
    roomy = slots > 0
    excluded = rules.obstacles(row, roomy, room.layout)
    return Reason(ReasonCode.CONSTRAINT, (("nodes_with_room", float(roomy.sum())), *excluded))


def broken(room: FreeCapacity, row: int, shape: Shape, name: str) -> Reason:
    """Return the reason if a running workload stays where a required rule, of this name, does not hold: how many nodes
    the rules leave to it, and how many of these have room."""
    open_ = room.usable if room.rules is None else room.rules.open_to(row, room.layout)
    numbers = (("nodes_allowed", float(open_.sum())), ("nodes_with_room", float((open_ & room.fits(shape)).sum())))
    return Reason(ReasonCode.CONSTRAINT, ((name, 1.0), *numbers))


def unfit(room: FreeCapacity, able: Bools) -> Reason:
    """Return the reason if no node that a running workload can be migrated to has the capacity: the number of nodes
    that take VMs, and how many of them it is `able` to go to."""
    numbers = (("nodes", float(room.usable.sum())), ("nodes_able", float((room.usable & able).sum())))
    return Reason(ReasonCode.MIGRATION_FIT, numbers)


def _short(room: FreeCapacity, shape: Shape, instances: int, empty: Bools) -> Reason:
    """NO_MEMORY or NO_CPU, among nodes that would do if they were empty."""
    allotment = room.allotment_mhz(shape)
    each = 1 if shape.spread else instances
    unbounded = shape.memory_mib <= 0.0
    by_mib = math.inf if unbounded else _whole_slots(room.free_mib, shape.memory_mib, empty, each)
    by_mhz = _whole_slots(room.free_mhz, allotment, empty, each)
    short = float(instances - int(room.slots(shape, instances)[empty].sum()))
    if by_mib <= by_mhz:
        numbers = (("needed_mib", shape.memory_mib), ("largest_free_mib", _largest(room.free_mib, empty)))
        return Reason(ReasonCode.NO_MEMORY, (*numbers, ("instances_short", short)))
    numbers = (("needed_mhz", _largest(allotment, empty)), ("largest_free_mhz", _largest(room.free_mhz, empty)))
    return Reason(ReasonCode.NO_CPU, (*numbers, ("instances_short", short)))


def refusals(room: FreeCapacity, refused: dict[int, Reason], unplaced: Ints) -> Sequence[Refusal]:
    """Refusals in row order: those with a reason, and those that found no room, judged by the room that is left."""

    def build() -> list[Refusal]:
        work = room.snapshot.workloads
        known: dict[tuple[Shape, int], Reason] = {}
        reasons = dict(refused)
        for row in unplaced.tolist():
            if room.ruled(row) is not None:
                shape = shape_of(room.snapshot, row)
                reasons[row] = why_not_ruled(room, row, shape, work.instances.item(row))
                continue
            key = shape_of(room.snapshot, row), work.instances.item(row)
            if key not in known:
                known[key] = why_not(room, *key)
            reasons[row] = known[key]
        return [Refusal(work.names[row], reasons[row]) for row in sorted(reasons)]

    return Deferred(len(refused) + unplaced.size, build)
