"""What the policies think of a change by hand (`Assess`): what it does to utilities, and whether they would undo it.

Computed in the worker beside decisions, on the snapshot of a decision now: once as it is, once with the change made.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from daemons.decision import groups, pipeline
from daemons.decision.pipeline import DecideRequest
from daemons.models.outlook import Forecast, after
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode, Refusal
from shared.policy_api.policies import TableCache
from shared.policy_api.snapshot import Floats, Snapshot, WorkloadState
from shared.values.jobs import Allotment

MIGRATE, SUSPEND, RESUME, DRAIN = "migrate", "suspend", "resume", "drain"
BY_HAND = Reason(ReasonCode.OPERATOR)


@dataclass(frozen=True, slots=True)
class AssessTask:
    """The change to assess: `workload` is migrated (its instance number `index` to `node`), suspended or resumed, or
    `node` drained, while which the workloads need `min_mhz` (None: as before)."""

    request: DecideRequest
    kind: str
    workload: str = ""
    index: int = 0
    node: str = ""
    min_mhz: Floats | None = None


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of an assessment. now: the utility of each workload one cycle ahead without the change, changed: with
    the change and the policy's reaction; levels: of the jobs, the same. proposes: what the policy would do to these
    workloads without the change, follows: to them after the change, with `refusals`; others: to how many others.
    skipped: why the data were insufficient ("": they were sufficient)."""

    workloads: tuple[str, ...]
    now: Mapping[str, float]
    changed: Mapping[str, float]
    levels: tuple[float | None, float | None]
    proposes: tuple[Change, ...]
    follows: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    others: int
    skipped: str = ""


def assess(task: AssessTask, table_cache: TableCache = pipeline.no_tables) -> Assessment:
    """Look at a change. Raises what a policy raises, `InvalidValue` for what the snapshot does not have."""
    request = replace(task.request, snapshot=replace(task.request.snapshot, at_cycle=True))
    snapshot = request.snapshot
    subjects = subjects_of(task, snapshot)
    made, by_hand = with_change(task, snapshot)
    before = pipeline.run(request, table_cache)
    then = pipeline.run(replace(request, snapshot=made), table_cache)
    follows = tuple(one for one in then.placement.changes if one.workload in subjects)
    own = (*by_hand, *(one for one in follows if not by_hand))
    now, level = _predicted(_part(snapshot, subjects, task.node), ())
    changed, level_then = _predicted(_part(snapshot, subjects, task.node), own)
    return Assessment(
        tuple(sorted(subjects)),
        now,
        changed,
        levels=(level, level_then),
        proposes=tuple(one for one in before.placement.changes if one.workload in subjects),
        follows=follows,
        refusals=tuple(one for one in then.placement.refusals if one.workload in subjects),
        others=sum(one.workload not in subjects for one in then.placement.changes),
        skipped=before.skipped or then.skipped,
    )


def subjects_of(task: AssessTask, snapshot: Snapshot) -> frozenset[str]:
    """Return the workloads that the change affects: one, or all on the node. Raises `InvalidValue` for one that the
    snapshot does not have."""
    work = snapshot.workloads
    if task.kind != DRAIN:
        return frozenset({work.names[_row(work.names, "workload", task.workload)]})
    node = _row(snapshot.nodes.names, "node", task.node)
    running = np.flatnonzero((work.state == WorkloadState.RUNNING.value) & (work.instances > 0)).tolist()
    return frozenset(work.names[row] for row in running if (_places(snapshot, row) == node).any())


def with_change(task: AssessTask, snapshot: Snapshot) -> tuple[Snapshot, tuple[Change, ...]]:
    """Return the snapshot after the change, and the change; no change if the policy determines what follows. Raises
    `InvalidValue` for an item that the snapshot does not have, or that cannot be changed that way in its state."""
    if task.kind == DRAIN:
        return _drained(snapshot, _row(snapshot.nodes.names, "node", task.node), task.min_mhz), ()
    row = _row(snapshot.workloads.names, "workload", task.workload)
    if task.kind == RESUME:
        return _released(snapshot, row), ()
    if snapshot.workloads.state[row] != WorkloadState.RUNNING.value:
        raise InvalidValue("workload", task.workload, "one that runs")
    if task.kind == SUSPEND:
        return _suspended(snapshot, row), (_change(snapshot, row, ChangeKind.SUSPEND, ()),)
    target = _row(snapshot.nodes.names, "node", task.node)
    nodes = _places(snapshot, row).copy()
    if not 0 <= task.index < len(nodes):
        raise InvalidValue("index", task.index, f"0 to {len(nodes) - 1}")
    nodes[task.index] = target
    cpu_mhz = _shares(snapshot, row)
    wanted = [
        Allotment(snapshot.nodes.names[at], mhz) for at, mhz in zip(nodes.tolist(), cpu_mhz.tolist(), strict=True)
    ]
    return _moved(snapshot, row, task.index, target), (_change(snapshot, row, ChangeKind.MIGRATE, wanted),)


def undone(kind: str, index: int, node: str, follows: Iterable[Change]) -> bool:
    """Return whether the following changes undo a change (see `AssessTask`): its workload moves again or is suspended,
    or a job that may run again is not resumed."""
    changes = tuple(follows)
    if kind == MIGRATE:
        return any(
            one.kind is ChangeKind.SUSPEND or (one.kind is ChangeKind.MIGRATE and one.allotments[index].node != node)
            for one in changes
        )
    return kind == RESUME and not any(one.kind is ChangeKind.RESUME for one in changes)


# --- parts of snapshots ----------------------------------------------------------------------------------------------


def _row(names: Sequence[str], what: str, name: str) -> int:
    if name not in names:
        raise InvalidValue(what, name, f"a {what} that decisions see")
    return names.index(name)


def _slice(snapshot: Snapshot, row: int) -> slice:
    first = int(snapshot.workloads.first_instance[row])
    return slice(first, first + int(snapshot.workloads.instances[row]))


def _places(snapshot: Snapshot, row: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(snapshot.instances.node[_slice(snapshot, row)])


def _shares(snapshot: Snapshot, row: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(snapshot.instances.cpu_mhz[_slice(snapshot, row)])


def _change(snapshot: Snapshot, row: int, kind: ChangeKind, wanted: Iterable[Allotment]) -> Change:
    work = snapshot.workloads
    return Change(work.names[row], int(work.revision[row]), kind, tuple(wanted), BY_HAND)


def _drained(snapshot: Snapshot, row: int, min_mhz: Floats | None) -> Snapshot:
    draining, schedulable = snapshot.nodes.draining.copy(), snapshot.nodes.schedulable.copy()
    draining[row], schedulable[row] = True, False
    power = snapshot.power
    if power is not None:  # as of a node that an operator keeps out
        wanted, available, must_stay = power.wanted.copy(), power.available.copy(), power.must_stay.copy()
        wanted[row] = available[row] = must_stay[row] = False
        power = replace(power, wanted=wanted, available=available, must_stay=must_stay)
    nodes = replace(snapshot.nodes, draining=draining, schedulable=schedulable)
    work = snapshot.workloads if min_mhz is None else replace(snapshot.workloads, min_mhz=min_mhz)
    return replace(snapshot, nodes=nodes, workloads=work, power=power)


def _released(snapshot: Snapshot, row: int) -> Snapshot:
    fixed = snapshot.workloads.fixed.copy()
    fixed[row] = False
    return replace(snapshot, workloads=replace(snapshot.workloads, fixed=fixed))


def _moved(snapshot: Snapshot, row: int, index: int, target: int) -> Snapshot:
    at = int(snapshot.workloads.first_instance[row]) + index
    node, changed_s = snapshot.instances.node.copy(), snapshot.workloads.changed_s.copy()
    given = _held(snapshot, row, int(node[at]), float(snapshot.instances.cpu_mhz[at]), 1.0)
    taken = _held(given, row, target, float(snapshot.instances.cpu_mhz[at]), -1.0)
    node[at], changed_s[row] = target, snapshot.now_s
    return replace(
        taken,
        instances=replace(snapshot.instances, node=node),
        workloads=replace(snapshot.workloads, changed_s=changed_s),
    )


def _suspended(snapshot: Snapshot, row: int) -> Snapshot:
    """Return the snapshot in which it holds nothing and is left unchanged, as after an operator's suspend."""
    freed = snapshot
    for node, cpu_mhz in zip(_places(snapshot, row).tolist(), _shares(snapshot, row).tolist(), strict=True):
        freed = _held(freed, row, node, cpu_mhz, 1.0)
    state, fixed = snapshot.workloads.state.copy(), snapshot.workloads.fixed.copy()
    cpu_mhz_now = snapshot.instances.cpu_mhz.copy()
    state[row], fixed[row] = WorkloadState.SUSPENDED.value, True
    cpu_mhz_now[_slice(snapshot, row)] = 0.0
    return replace(
        freed,
        workloads=replace(snapshot.workloads, state=state, fixed=fixed),
        instances=replace(snapshot.instances, cpu_mhz=cpu_mhz_now),
    )


def _held(snapshot: Snapshot, row: int, node: int, cpu_mhz: float, sign: float) -> Snapshot:
    """Return the snapshot with the resources of an instance freed (`sign` 1) or taken (-1)."""
    if node < 0:
        return snapshot
    free_mhz, free_mib = snapshot.nodes.free_cpu_mhz.copy(), snapshot.nodes.free_memory_mib.copy()
    free_mhz[node] += sign * cpu_mhz
    free_mib[node] += sign * (float(snapshot.workloads.memory_mib[row]) + snapshot.vm_overhead_mib)
    return replace(snapshot, nodes=replace(snapshot.nodes, free_cpu_mhz=free_mhz, free_memory_mib=free_mib))


def _part(snapshot: Snapshot, subjects: frozenset[str], node: str) -> Snapshot:
    """Return the policy's part of the snapshot that has the workloads, or the node: CPU of other environments does not
    help them."""
    shares = groups.parts(snapshot)
    for part in shares:
        if subjects & set(part.snapshot.workloads.names) or (not subjects and node in part.snapshot.nodes.names):
            return part.snapshot
    return shares[0].snapshot


def _predicted(snapshot: Snapshot, changes: Iterable[Change]) -> tuple[dict[str, float], float | None]:
    """Utilities one cycle ahead, by workload, and the jobs' level; without a goal, or not finite, they are left out."""
    names = set(snapshot.workloads.names)
    forecast = Forecast(snapshot)
    utilities, level = forecast.predict(after(snapshot, [one for one in changes if one.workload in names]))
    told = np.isfinite(utilities) & forecast.aims()
    found = zip(forecast.names, utilities.tolist(), told.tolist(), strict=True)
    return {name: round(u, 4) for name, u, known in found if known}, _finite(level)


def _finite(level: float | None) -> float | None:
    return level if level is not None and np.isfinite(level) else None
