"""Changes as values, and evacuation of draining nodes: common parts of the simple policies."""

from __future__ import annotations

import numpy as np

from daemons.models.placement_rules import KEEP_NAME, PlacementRules
from daemons.policies.placement.free_capacity import Fit, FreeCapacity, Shape, repeated, shape_of, spread
from daemons.policies.placement.refusals import broken, unfit, why_not, why_not_ruled
from daemons.policies.placement.waiting import FIXED, profile_problem
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot, WorkloadState
from shared.values.jobs import Allotment

_DRAIN, _RULE = Reason(ReasonCode.DRAIN), Reason(ReasonCode.RULE)
_KEPT = Reason(ReasonCode.CONSTRAINT, ((KEEP_NAME, 1.0),))
_DOMAINS = 8  # racks, zones, ... tried for workloads that must share one
_NO_PLACE = frozenset(
    {
        ReasonCode.NO_NODES,
        ReasonCode.LABELS,
        ReasonCode.FITS_NO_NODE,
        ReasonCode.TOO_FEW_NODES,
        ReasonCode.NO_MEMORY,
        ReasonCode.NO_CPU,
        ReasonCode.MIGRATION_FIT,
    }
)


def allotments(snapshot: Snapshot, rows: Ints, cpu_mhz: Floats) -> tuple[Allotment, ...]:
    """Instance i on node row rows[i] with cpu_mhz[i]."""
    name_of = snapshot.nodes.names.__getitem__
    return tuple(map(Allotment, map(name_of, rows.tolist()), cpu_mhz.tolist()))


def held(snapshot: Snapshot, row: int) -> tuple[Ints, Floats]:
    """Node rows and MHz of the instances of a running or suspended workload."""
    first, count = snapshot.workloads.first_instance.item(row), snapshot.workloads.instances.item(row)
    chosen = slice(first, first + count)
    return snapshot.instances.node[chosen], snapshot.instances.cpu_mhz[chosen]


def find_fit(room: FreeCapacity, row: int, shape: Shape) -> Fit:
    """Return nodes for the instances of a waiting workload; for a suspended one, the nodes of their images if
    possible."""
    work = room.snapshot.workloads
    homes = None
    if work.state.item(row) == WorkloadState.SUSPENDED.value:
        homes = held(room.snapshot, row)[0]
        homes = homes if homes.size == work.instances.item(row) else None
    rules = room.ruled(row)
    if rules is not None:
        return _ruled_fit(room, rules, row, shape, () if homes is None else tuple(homes.tolist()))
    if homes is not None:
        return room.first_fit_near(shape, homes)
    return room.first_fit(shape, work.instances.item(row))


def _ruled_fit(room: FreeCapacity, rules: PlacementRules, row: int, shape: Shape, homes: tuple[int, ...]) -> Fit:
    """Return nodes like `find_fit` that required rules allow, those first that break fewest preferred ones."""
    count = room.snapshot.workloads.instances.item(row)
    slots = room.slots(shape, count)
    place = None
    if row not in rules.contradictions:
        place = rules.choose(row, slots, count, room.layout, homes)
    bound = row in rules.no_migration and max(homes, default=-1) >= 0
    if place is None or (bound and place != homes):
        return Fit(None, 0)
    return Fit(np.array(place, dtype=np.int64), int(slots.sum()))


def change(snapshot: Snapshot, row: int, kind: ChangeKind, given: tuple[Allotment, ...], reason: Reason) -> Change:
    """Return a change to workload `row` of the revision that the snapshot shows."""
    work = snapshot.workloads
    return Change(work.names[row], work.revision.item(row), kind, given, reason)


def begin(room: FreeCapacity, row: int, shape: Shape, rows: Ints, reason: Reason) -> Change:
    """Take the room and START the workload, or RESUME it if it is suspended."""
    room.take(shape, rows)
    room.settle(row, rows)
    waiting = room.snapshot.workloads.state.item(row) == WorkloadState.WAITING.value
    kind = ChangeKind.START if waiting else ChangeKind.RESUME
    given = allotments(room.snapshot, rows, room.allotment_mhz(shape)[rows])
    return change(room.snapshot, row, kind, given, reason)


def _on_draining(snapshot: Snapshot) -> list[int]:
    """Return the rows of the running workloads with an instance on a draining node, in row order."""
    work = snapshot.workloads
    again = repeated(work.names)
    found = []
    for row in (work.state == WorkloadState.RUNNING.value).nonzero()[0].tolist():
        nodes = held(snapshot, row)[0]
        if row not in again and snapshot.nodes.draining[nodes[nodes >= 0]].any():
            found.append(row)
    return found


class Homes:
    """Node rows on which web applications have an instance, or are given one: no second one may go there."""

    __slots__ = ("_of",)

    def __init__(self, snapshot: Snapshot) -> None:
        work = snapshot.workloads
        self._of: dict[int, set[int]] = {}
        for row in ((work.app >= 0) & (work.state == WorkloadState.RUNNING.value)).nonzero()[0].tolist():
            self.add(work.app.item(row), held(snapshot, row)[0])

    def add(self, app: int, rows: Ints) -> None:
        """Web application `app` has an instance on each of the node rows."""
        self._of.setdefault(app, set()).update(row for row in rows.tolist() if row >= 0)

    def of(self, app: int) -> Ints:
        """Node rows that are closed to another instance of the web application, ascending."""
        return np.array(sorted(self._of.get(app, ())), dtype=np.int64)


def drain(room: FreeCapacity) -> tuple[list[Change], dict[int, Reason]]:
    """MIGRATE every instance on a draining node to the first nodes that fit, all of a workload's or none. STOP an
    instance of a web application that no node takes, where the application has more than its minimum. At cycles also
    MIGRATE instances for which a required rule does not hold, as far as there is room.

    Returns the changes and, by row, why a workload stays where it is. The room is taken at once.
    """
    snapshot = room.snapshot
    changes: list[Change] = []
    stays: dict[int, Reason] = {}
    breaking = _breaking(room)
    if not breaking and not snapshot.nodes.draining.any():
        return changes, stays
    homes, spare = Homes(snapshot), _spare_instances(snapshot)
    draining, moved = _on_draining(snapshot), set[int]()
    for row in (*draining, *(row for row in breaking if row not in set(draining))):
        if row in moved:
            continue
        outcome, app = _moved(room, row, homes, moved), snapshot.workloads.app.item(row)
        empties = row in breaking and row not in draining
        if isinstance(outcome, Reason) and outcome.code in _NO_PLACE and app >= 0 and spare[app] > 0 and not empties:
            spare[app] -= 1
            changes.append(change(snapshot, row, ChangeKind.STOP, (), _DRAIN))
            room.vacate(row)
        elif isinstance(outcome, Reason):
            stays[row] = outcome
        else:
            changes += [made for _, made in outcome]
            moved.update(at for at, _ in outcome)
            for at, _ in outcome:
                stays.pop(at, None)
    return changes, stays


def _breaking(room: FreeCapacity) -> list[int]:
    """Return the running workloads for which a required rule does not hold, in row order, at cycles."""
    rules, snapshot = room.rules, room.snapshot
    if rules is None or not snapshot.at_cycle:
        return []
    again = repeated(snapshot.workloads.names)
    concerned = sorted((rules.offending | rules.parts.keys()) & room.places.keys())
    return [row for row in concerned if row not in again and rules.broken(row, room.places[row], room.layout)]


def _spare_instances(snapshot: Snapshot) -> Ints:
    """Return how many instances of each web application run beyond its minimum, int64[web applications]."""
    work, web = snapshot.workloads, snapshot.web
    runs = (work.state == WorkloadState.RUNNING.value) & (work.app >= 0)
    return np.bincount(work.app[runs], minlength=len(web.names)) - web.min_instances


def _moved(room: FreeCapacity, row: int, homes: Homes, already: set[int]) -> list[tuple[int, Change]] | Reason:
    """Return the moves of a workload's instances that are in the wrong place, with those of workloads that must share
    its domain if need be; or why it stays. already: rows that this decision has moved."""
    snapshot, work = room.snapshot, room.snapshot.workloads
    nodes = held(snapshot, row)[0]
    if work.fixed[row]:
        return FIXED
    problem = profile_problem(snapshot, row)
    if problem is not None:
        return problem
    if (nodes < 0).any():
        return Reason(ReasonCode.UNKNOWN_NODE, (("instances", float((nodes < 0).sum())),))
    rules, leaving = room.ruled(row), snapshot.nodes.draining[nodes]
    if rules is None:
        return _moved_alone(room, row, homes, leaving, _DRAIN)
    if row in rules.no_migration:
        return _KEPT
    drained = bool(leaving.any())
    if snapshot.at_cycle:
        place = tuple(nodes.tolist())
        leaving = leaving | np.array(rules.misplaced(row, place, room.layout), dtype=np.bool_)
    if not leaving.any():
        return []  # those that were in its way have moved
    why = _DRAIN if drained else _RULE
    name = rules.broken(row, room.places[row], room.layout)
    alone = _moved_alone(room, row, homes, leaving, why)
    if isinstance(alone, list):
        return alone
    together = _moved_together(room, rules, row, already, why)
    return together or (alone if drained or not name else broken(room, row, shape_of(snapshot, row), name))


def _moved_alone(
    room: FreeCapacity, row: int, homes: Homes, leaving: Bools, why: Reason
) -> list[tuple[int, Change]] | Reason:
    """Return the move of the instances that are `leaving` (bool[instances]) to the first nodes that fit."""
    snapshot, work = room.snapshot, room.snapshot.workloads
    nodes, mhz = held(snapshot, row)
    shape, app, rules = shape_of(snapshot, row), work.app.item(row), room.ruled(row)
    count = int(leaving.sum())
    slots = room.slots(shape, count)
    barred = homes.of(app) if app >= 0 else nodes if shape.spread else None
    if barred is not None:
        slots[barred] = 0
    able = snapshot.migration.nodes_of(row) if snapshot.migration is not None else None
    if able is not None:
        slots[~able] = 0
    if rules is None:
        rows = spread(slots, count).rows
    else:
        kept = tuple(nodes[~leaving].tolist())
        chosen = rules.choose(row, slots, count, room.layout, kept=kept)
        rows = None if chosen is None else np.array(chosen, dtype=np.int64)
    if rows is None:
        if able is not None and (rules is None or int(slots.sum()) < count):
            return unfit(room, able)
        return why_not(room, shape, count, barred) if rules is None else why_not_ruled(room, row, shape, count, barred)
    room.take(shape, rows)
    if app >= 0:
        homes.add(app, rows)
    to, to_mhz = np.array(nodes), np.array(mhz)
    to[leaving], to_mhz[leaving] = rows, room.allotment_mhz(shape)[rows]
    room.settle(row, to)
    return [(row, change(snapshot, row, ChangeKind.MIGRATE, allotments(snapshot, to, to_mhz), why))]


def _moved_together(
    room: FreeCapacity, rules: PlacementRules, row: int, already: set[int], why: Reason
) -> list[tuple[int, Change]]:
    """Return the moves of a workload and of all that must share a domain with it to another such domain; [] if none has
    room, or one of them must not be moved, or not again."""
    snapshot, work = room.snapshot, room.snapshot.workloads
    rows = sorted(rules.near(row, room.layout))
    bound = any(work.fixed[each] or work.app[each] >= 0 or each in rules.no_migration for each in rows)
    bound |= not already.isdisjoint(rows)
    if len(rows) < 2 or bound or any(profile_problem(snapshot, each) is not None for each in rows):
        return []
    barred = np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    for _ in range(_DOMAINS):
        trial = room.copy()
        for each in rows:
            trial.vacate(each)
        made: list[tuple[int, Change]] = []
        for each in rows:
            shape, nodes = shape_of(snapshot, each), held(snapshot, each)[0]
            slots = np.where(barred, 0, trial.slots(shape, nodes.size))
            slots[nodes] = 0  # each of them moves: what it leaves is still its own until it is gone
            chosen = rules.choose(each, slots, nodes.size, trial.layout) if (nodes >= 0).all() else None
            if chosen is None:
                break
            to = np.array(chosen, dtype=np.int64)
            trial.take(shape, to)
            trial.settle(each, to)
            given = allotments(snapshot, to, trial.allotment_mhz(shape)[to])
            made.append((each, change(snapshot, each, ChangeKind.MIGRATE, given, why)))
        if len(made) == len(rows):
            room.take_over(trial)
            return made
        if not made:
            return []
        first = trial.places[made[0][0]][0]
        for relation in rules.relations.get(made[0][0], ()):
            if relation.together:
                barred |= relation.domain == relation.domain.item(first)
    return []
