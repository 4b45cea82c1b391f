"""Changes as values, and evacuation of draining nodes: common parts of the simple policies."""

from __future__ import annotations

import numpy as np

from daemons.policies.placement.free_capacity import Fit, FreeCapacity, Shape, repeated, shape_of, spread
from daemons.policies.placement.refusals import unfit, why_not
from daemons.policies.placement.waiting import FIXED, profile_problem
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.policy_api.snapshot import Floats, Ints, Snapshot, WorkloadState
from shared.values.jobs import Allotment

_DRAIN = Reason(ReasonCode.DRAIN)
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
    if work.state.item(row) == WorkloadState.SUSPENDED.value:
        homes = held(room.snapshot, row)[0]
        if homes.size == work.instances.item(row):
            return room.first_fit_near(shape, homes)
    return room.first_fit(shape, work.instances.item(row))


def change(snapshot: Snapshot, row: int, kind: ChangeKind, given: tuple[Allotment, ...], reason: Reason) -> Change:
    """Return a change to workload `row` of the revision that the snapshot shows."""
    work = snapshot.workloads
    return Change(work.names[row], work.revision.item(row), kind, given, reason)


def begin(room: FreeCapacity, row: int, shape: Shape, rows: Ints, reason: Reason) -> Change:
    """Take the room and START the workload, or RESUME it if it is suspended."""
    room.take(shape, rows)
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
    instance of a web application that no node takes, where the application has more than its minimum.

    Returns the changes and, by row, why a workload stays where it is. The room is taken at once.
    """
    snapshot = room.snapshot
    changes: list[Change] = []
    stays: dict[int, Reason] = {}
    if not snapshot.nodes.draining.any():
        return changes, stays
    homes, spare = Homes(snapshot), _spare_instances(snapshot)
    for row in _on_draining(snapshot):
        outcome, app = _move(room, row, homes), snapshot.workloads.app.item(row)
        if isinstance(outcome, Reason) and outcome.code in _NO_PLACE and app >= 0 and spare[app] > 0:
            spare[app] -= 1
            changes.append(change(snapshot, row, ChangeKind.STOP, (), _DRAIN))
        elif isinstance(outcome, Reason):
            stays[row] = outcome
        else:
            changes.append(outcome)
    return changes, stays


def _spare_instances(snapshot: Snapshot) -> Ints:
    """Return how many instances of each web application run beyond its minimum, int64[web applications]."""
    work, web = snapshot.workloads, snapshot.web
    runs = (work.state == WorkloadState.RUNNING.value) & (work.app >= 0)
    return np.bincount(work.app[runs], minlength=len(web.names)) - web.min_instances


def _move(room: FreeCapacity, row: int, homes: Homes) -> Change | Reason:
    snapshot, work = room.snapshot, room.snapshot.workloads
    nodes, mhz = held(snapshot, row)
    if work.fixed[row]:
        return FIXED
    problem = profile_problem(snapshot, row)
    if problem is not None:
        return problem
    if (nodes < 0).any():
        return Reason(ReasonCode.UNKNOWN_NODE, (("instances", float((nodes < 0).sum())),))
    shape, app = shape_of(snapshot, row), work.app.item(row)
    leaving = snapshot.nodes.draining[nodes]
    count = int(leaving.sum())
    slots = room.slots(shape, count)
    barred = homes.of(app) if app >= 0 else nodes if shape.spread else None
    if barred is not None:
        slots[barred] = 0
    able = snapshot.migration.nodes_of(row) if snapshot.migration is not None else None
    if able is not None:
        slots[~able] = 0
    fit = spread(slots, count)
    if fit.rows is None:
        return why_not(room, shape, count, barred) if able is None else unfit(room, able)
    room.take(shape, fit.rows)
    if app >= 0:
        homes.add(app, fit.rows)
    to, to_mhz = np.array(nodes), np.array(mhz)
    to[leaving], to_mhz[leaving] = fit.rows, room.allotment_mhz(shape)[fit.rows]
    return change(snapshot, row, ChangeKind.MIGRATE, allotments(snapshot, to, to_mhz), _DRAIN)
