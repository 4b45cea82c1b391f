"""How many VMs an environment may run whose units are VMs: whose turn it is, and who must wait. Pure."""

from __future__ import annotations

import numpy as np

from shared.policy_api.decision import Reason, ReasonCode
from shared.policy_api.snapshot import Ints, Snapshot, WorkloadState

Turn = tuple[bool, int, float, int]


def over_quota(snapshot: Snapshot) -> list[tuple[int, Reason]]:
    """Return the rows of workloads that may not be started because their environment has no unit left for them, with
    the reasons.

    Running workloads count. Of the others, jobs follow in order of arrival, as many as fit into the rest; one that is
    too large does not block others. Instances of web applications come in turn, first those that their application must
    have. Workloads that must not be started now (fixed, or not yet due) take no unit and are not reported: no policy
    starts them.
    """
    held = snapshot.environments
    if held is None:
        return []
    found = []
    for row in np.flatnonzero(held.quota >= 0).tolist():
        found += _beyond(snapshot, np.flatnonzero(held.workload == row), held.quota.item(row))
    return found


def _beyond(snapshot: Snapshot, rows: Ints, quota: int) -> list[tuple[int, Reason]]:
    work = snapshot.workloads
    runs = work.state[rows] == WorkloadState.RUNNING.value
    used = int(work.instances[rows[runs]].sum())
    waits = ~runs & ~work.fixed[rows]
    waits &= np.maximum(work.desired_start_s, work.not_before_s)[rows] <= snapshot.now_s
    left, found = quota - used, []
    for row in _in_turn(snapshot, rows[runs], rows[waits]):
        units = max(work.instances.item(row), 0)
        if units <= left:
            left -= units
        else:
            numbers = (("queued", float(units)), ("quota", float(quota)), ("in_use", float(used)))
            found.append((row, Reason(ReasonCode.OVER_QUOTA, numbers)))
    return found


def _in_turn(snapshot: Snapshot, running: Ints, waiting: Ints) -> list[int]:
    work = snapshot.workloads
    instances: dict[int, int] = {}
    for app in work.app[running].tolist():
        instances[app] = instances.get(app, 0) + 1
    turns: list[Turn] = []
    for row in waiting.tolist():
        app, nth = work.app.item(row), 0
        if app >= 0:
            nth = instances.get(app, 0)
            instances[app] = nth + 1
        spare = app >= 0 and nth >= snapshot.web.min_instances.item(app)
        turns.append((spare, nth, work.submit_s.item(row), row))
    return [turn[-1] for turn in sorted(turns)]
