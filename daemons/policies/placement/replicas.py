"""The fewest instances that web applications are to have: for policies that know nothing of response times."""

from __future__ import annotations

import numpy as np

from daemons.policies.placement.free_capacity import FreeCapacity, shape_of
from daemons.policies.placement.moves import Homes, allotments, change
from daemons.policies.placement.refusals import why_not_ruled
from daemons.policies.placement.waiting import screen
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.policy_api.snapshot import Ints, WorkloadState


def start_missing_replicas(room: FreeCapacity, changes: list[Change], refused: dict[int, Reason]) -> None:
    """START waiting instances of every web application that runs fewer than its minimum, each on the first node that
    fits and has none; before any job is placed, after `drain`, whose outcome `changes` and `refused` are extended.

    Instances beyond the minimum are left as they are. Nothing is taken from anyone for them.
    """
    work = room.snapshot.workloads
    if not room.snapshot.web.names:
        return
    replicas = (work.app >= 0).nonzero()[0]
    homes = _homes(room, changes)
    running = work.state == WorkloadState.RUNNING.value
    for app in sorted(set(work.app[replicas].tolist())):
        of_app = work.app == app
        rows, at_once = screen(room.snapshot, (of_app & ~running).nonzero()[0])
        refused.update(at_once)
        missing = _minimum(room, app) - int((of_app & running).sum())
        enough = Reason(ReasonCode.KEEP, (("min_instances", float(_minimum(room, app))),))
        for row in rows.tolist():
            outcome = _start(room, row, homes) if missing > 0 else enough
            if isinstance(outcome, Reason):
                refused[row] = outcome
            else:
                changes.append(outcome)
                missing -= 1


def _homes(room: FreeCapacity, changes: list[Change]) -> Homes:
    """Return the nodes of the instances; those that `changes` move count at both ends."""
    snapshot = room.snapshot
    homes = Homes(snapshot)
    if changes:
        node_of = {name: row for row, name in reversed(list(enumerate(snapshot.nodes.names)))}
        app_of = dict(zip(snapshot.workloads.names, snapshot.workloads.app.tolist(), strict=True))
        for made in changes:
            if app_of[made.workload] >= 0:
                homes.add(app_of[made.workload], _rows([node_of[given.node] for given in made.allotments]))
    return homes


def _rows(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _minimum(room: FreeCapacity, app: int) -> int:
    return room.snapshot.web.min_instances.item(app)


def _start(room: FreeCapacity, row: int, homes: Homes) -> Change | Reason:
    snapshot, app = room.snapshot, room.snapshot.workloads.app.item(row)
    shape = shape_of(snapshot, row)._replace(spread=True)
    barred = homes.of(app)
    fits, rules = room.fits(shape), room.ruled(row)
    fits[barred] = False
    if rules is None:
        rows = fits.nonzero()[0][:1]
    else:
        slots = np.where(fits & (row not in rules.contradictions), 1, 0)
        rows = np.array(rules.choose(row, slots, 1, room.layout) or (), dtype=np.int64)
    if not rows.size:
        return why_not_ruled(room, row, shape, 1, barred)
    room.take(shape, rows)
    room.settle(row, rows)
    homes.add(app, rows)
    given = allotments(snapshot, rows, room.allotment_mhz(shape)[rows])
    reason = Reason(ReasonCode.ARRIVAL_ORDER, (("min_instances", float(_minimum(room, app))),))
    return change(snapshot, row, ChangeKind.START, given, reason)
