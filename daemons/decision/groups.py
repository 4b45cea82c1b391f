"""Parts a snapshot by environment, so that every placement policy sees the nodes and the workloads of one part alone,
and joins what the policies decide. Pure.

The first part is the pool: nodes and workloads of no environment, and workloads of environments whose units are VMs, as
many as these may run. Each other part is a running environment whose units are nodes. Where a snapshot names no
environments it is its own only part, as it stands. O(nodes + workloads + their instances) for all parts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daemons.decision.entitlement import over_quota
from shared.policy_api.decision import Change, ChangeKind, Outlook, PlacementDecision, Reason, ReasonCode, Refusal
from shared.policy_api.deferred import Deferred
from shared.policy_api.snapshot import (
    ELSEWHERE,
    NOBODY,
    POOL,
    Bools,
    FlowColumns,
    InstanceColumns,
    Ints,
    LoadingColumns,
    MigrationColumns,
    PowerColumns,
    Snapshot,
    StageColumns,
    WebColumns,
    WorkloadColumns,
    WorkloadState,
    take_rows,
)
from shared.values.jobs import Constraint, ConstraintKind

_RELATIONS = (ConstraintKind.TOGETHER, ConstraintKind.APART)
_NOT_RUNNING = Reason(ReasonCode.ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Partition:
    """What one placement policy sees. environment: "" for the pool. leaving: bool[nodes of the part], given to another
    (None: no node is). refused: of the pool, workloads that no policy sees, and why."""

    environment: str
    snapshot: Snapshot
    leaving: Bools | None = None
    refused: tuple[Refusal, ...] = ()


def parts(snapshot: Snapshot) -> tuple[Partition, ...]:
    """Return the pool, then the running environments of allocation unit `node` in their order. No row is in two of
    them. Nodes being reassigned, and workloads of environments that do not run or have no unit left, are in none."""
    held = snapshot.environments
    if held is None:
        return (Partition("", snapshot),)
    owner = held.workload.copy()
    by_vm = np.flatnonzero(held.quota >= 0)
    owner[np.isin(owner, by_vm)] = POOL
    refused = [(row, _NOT_RUNNING) for row in np.flatnonzero((owner == NOBODY) & _idle(snapshot)).tolist()]
    if by_vm.size:
        over = over_quota(snapshot)
        owner[[row for row, _ in over]] = NOBODY
        refused += over
    names = snapshot.workloads.names
    cut = _Cutter(snapshot, owner, held.node, held.leaving)
    pool = replace(cut.part(POOL, ""), refused=tuple(Refusal(names[row], why) for row, why in sorted(refused)))
    by_node = np.flatnonzero(held.quota < 0).tolist()
    return (pool, *(cut.part(row, held.names[row]) for row in by_node))


def _idle(snapshot: Snapshot) -> Bools:
    return np.asarray(snapshot.workloads.state != WorkloadState.RUNNING.value)


# --- parting ---------------------------------------------------------------------------------------------------------


class _Rows:
    """The rows of each owner, ascending."""

    def __init__(self, owner: Ints) -> None:
        self._order = owner.argsort(kind="stable")
        self._owners = owner[self._order]

    def of(self, who: int) -> Ints:
        first, end = np.searchsorted(self._owners, (who, who + 1)).tolist()
        return self._order[first:end]


class _Cutter:
    """Cuts parts out of one snapshot. `owner`: int64[workloads], `holder`: int64[nodes], whose they are."""

    def __init__(self, snapshot: Snapshot, owner: Ints, holder: Ints, leaving: Bools) -> None:
        self._whole, self._owner, self._leaving = snapshot, owner, leaving
        self._work, self._nodes = _Rows(owner), _Rows(holder)
        self._app_owner = self._apps()
        self._apps_rows = _Rows(self._app_owner)
        self._flow_rows = _Rows(self._app_owner[snapshot.flows.app])
        self._holders = self._named() if snapshot.constraints else {}

    def _apps(self) -> Ints:
        """Return int64[apps]: the environment of each web application, by its instances."""
        app, visible = self._whole.workloads.app, self._owner != NOBODY
        owner = np.full(len(self._whole.web.names), POOL, dtype=np.int64)
        owner[app[app >= 0]] = NOBODY
        seen = visible & (app >= 0)
        owner[app[seen]] = self._owner[seen]
        return owner

    def _named(self) -> dict[str, int]:
        """Whose each workload and web application is, by name."""
        named = dict(zip(reversed(self._whole.workloads.names), self._owner[::-1].tolist(), strict=True))
        return named | dict(zip(self._whole.web.names, self._app_owner.tolist(), strict=True))

    def part(self, who: int, name: str) -> Partition:
        whole, rows = self._whole, self._nodes.of(who)
        leaving = self._leaving[rows]
        work, instances, stages = self._workloads(who, rows)
        web, flows = self._web(who, work)
        seen = replace(
            whole,
            nodes=take_rows(whole.nodes, rows),
            workloads=work,
            instances=instances,
            stages=stages,
            web=web,
            flows=flows,
            constraints=self._constraints(who),
            power=_power(whole.power, rows, leaving) if who == POOL else None,
            windows=tuple(replace(one, rate=one.rate[rows], taken=one.taken[rows]) for one in whole.windows)
            if who == POOL
            else (),
            prices=whole.prices if who == POOL else None,
            environments=None,
            loading=_loading(whole.loading, self._work.of(who), rows),
            migration=_migration(whole.migration, self._work.of(who), rows),
        )
        return Partition(name, seen, leaving if leaving.any() else None)

    def _workloads(self, who: int, nodes: Ints) -> tuple[WorkloadColumns, InstanceColumns, StageColumns]:
        whole, rows = self._whole, self._work.of(who)
        work = take_rows(whole.workloads, rows)
        counts = np.where(work.state == WorkloadState.WAITING.value, 0, work.instances)
        at = _ragged(work.first_instance, counts)
        local = _local(len(whole.nodes.names), nodes)
        there = whole.instances.node[at]
        here = local[there]
        images = np.repeat(work.state == WorkloadState.SUSPENDED.value, counts)
        here[images & (there >= 0) & (here < 0)] = ELSEWHERE
        astray = np.zeros(len(rows), dtype=np.bool_)  # an instance runs where this part has no say
        astray[np.repeat(np.arange(len(rows)), counts)[(there >= 0) & (here < 0)]] = True
        mine = replace(
            work,
            fixed=work.fixed | (astray & (work.state == WorkloadState.RUNNING.value)),
            app=_local(len(whole.web.names), self._apps_rows.of(who))[work.app],
            first_instance=counts.cumsum() - counts,
            first_stage=work.stages.cumsum() - work.stages,
        )
        stages = take_rows(whole.stages, _ragged(work.first_stage, work.stages))
        return mine, InstanceColumns(here, whole.instances.cpu_mhz[at]), stages

    def _web(self, who: int, work: WorkloadColumns) -> tuple[WebColumns, FlowColumns]:
        """Never more instances than there are rows for: some may not be shown."""
        rows, whole = self._apps_rows.of(who), self._whole
        if not rows.size:
            return take_rows(whole.web, rows), take_rows(whole.flows, rows)
        web, flows = take_rows(whole.web, rows), take_rows(whole.flows, self._flow_rows.of(who))
        shown = np.bincount(work.app[work.app >= 0], minlength=rows.size)
        app = _local(len(whole.web.names), rows)[flows.app]
        web = replace(
            web,
            min_instances=np.minimum(web.min_instances, shown),
            max_instances=np.minimum(web.max_instances, shown),
        )
        return web, replace(flows, app=app)

    def _constraints(self, who: int) -> tuple[Constraint, ...]:
        """Return the constraints of workloads inside. A relation keeps the workloads that are inside or unknown. One
        that has only a single workload left of several is dropped: the others cannot share a node with it."""
        found = []
        for one in self._whole.constraints:
            members, about = self._inside(one.members, who), self._inside(one.about, who)
            if not any(self._holders.get(name) == who for name in (*members, *about)):
                continue
            several = len({*one.members, *one.about}) > 1 and one.kind in _RELATIONS
            if not members or (several and len({*members, *about}) < 2) or (one.about and not about):
                continue
            same = len(members) == len(one.members) and len(about) == len(one.about)
            found.append(one if same else replace(one, members=members, about=about))
        return tuple(found)

    def _inside(self, names: Sequence[str], who: int) -> tuple[str, ...]:
        return tuple(name for name in names if self._holders.get(name, who) == who)


def _power(power: PowerColumns | None, rows: Ints, leaving: Bools) -> PowerColumns | None:
    """Return the power columns of the nodes; a node to be reassigned counts as unavailable."""
    if power is None:
        return None
    mine = take_rows(power, rows)
    return replace(mine, available=mine.available & ~leaving)


def _migration(migration: MigrationColumns | None, work: Ints, nodes: Ints) -> MigrationColumns | None:
    """Return the columns of those workloads and nodes."""
    return migration and MigrationColumns(migration.fits[:, nodes], migration.of[work])


def _loading(loading: LoadingColumns | None, work: Ints, nodes: Ints) -> LoadingColumns | None:
    """Return the columns of those workloads and nodes."""
    if loading is None:
        return None
    return replace(loading, parts=loading.parts[:, work], node_type=loading.node_type[nodes])


def _local(count: int, rows: Ints) -> Ints:
    """Return int64[count + 1]: the row within a part of each row of the whole, -1 if it has none, and for -1."""
    local = np.full(count + 1, -1, dtype=np.int64)
    local[rows] = np.arange(len(rows))
    return local


def _ragged(first: Ints, counts: Ints) -> Ints:
    """Return the rows from first[i] on, counts[i] of them, for each i in turn."""
    before = counts.cumsum() - counts
    return np.repeat(first - before, counts) + np.arange(int(counts.sum()))


# --- joining ---------------------------------------------------------------------------------------------------------


def merge(shares: Sequence[Partition], decisions: Sequence[PlacementDecision]) -> PlacementDecision:
    """Merge the decisions of all parts into one, in their order: every change and every refusal, including those of
    workloads that no policy saw."""
    outlooks = [one.outlook for one in decisions if one.outlook is not None]
    utilities = [one.predicted_utility for one in decisions if one.predicted_utility is not None]
    refused = (*(part.refused for part in shares), *(one.refusals for one in decisions))
    return PlacementDecision(
        tuple(change for one in decisions for change in one.changes),
        Deferred(sum(map(len, refused)), lambda: [refusal for some in refused for refusal in some]),
        sum(one.evaluations for one in decisions),
        min(utilities, default=None),
        _joined(outlooks) if outlooks else None,
        tuple(sorted((each for one in decisions for each in one.slowed), key=lambda each: -each.factor)),
    )


def _joined(outlooks: Sequence[Outlook]) -> Outlook:
    """Join the names; the level is that of the part with the lowest."""

    def column(name: str) -> tuple[Any, ...]:
        return tuple(value for one in outlooks for value in getattr(one, name))

    levels = [one.level for one in outlooks if one.level is not None]
    columns = column("names"), column("now"), column("predicted"), column("best")
    some = any(one.planned for one in outlooks)
    planned = tuple(value for one in outlooks for value in one.under_planned_load()) if some else ()
    return Outlook(*columns, min(levels, default=None), column("goalless"), planned)


def give_way(part: Partition, decision: PlacementDecision) -> PlacementDecision:
    """Return the decision with all workloads that it would leave on nodes to be reassigned suspended, or stopped for
    instances of a web application: node reassignment waits for nothing else. Workloads that must not be changed now
    stay."""
    if part.leaving is None:
        return decision
    stuck = _stuck(part, part.leaving, decision)
    if not stuck:
        return decision
    work = part.snapshot.workloads
    ends = [
        Change(
            work.names[row],
            work.revision.item(row),
            ChangeKind.SUSPEND if work.app.item(row) < 0 else ChangeKind.STOP,
            (),
            Reason(ReasonCode.RECLAIMED, (("nodes", float(nodes)),)),
        )
        for row, nodes in stuck.items()
    ]
    gone = {change.workload for change in ends}
    return replace(
        decision,
        changes=(*(change for change in decision.changes if change.workload not in gone), *ends),
        refusals=tuple(refusal for refusal in decision.refusals if refusal.workload not in gone),
    )


def _stuck(part: Partition, leaving: Bools, decision: PlacementDecision) -> dict[int, int]:
    """Return, by row of the workloads that would stay there, the number of these nodes that each is on."""
    work, at = part.snapshot.workloads, part.snapshot.instances.node
    runs = (work.state == WorkloadState.RUNNING.value) & ~work.fixed
    counts = np.where(runs, work.instances, 0)
    owner, node = np.repeat(np.arange(len(counts)), counts), at[_ragged(work.first_instance, counts)]
    there = (node >= 0) & leaving[node]
    made = {change.workload: change for change in decision.changes}
    given_up = frozenset(part.snapshot.nodes.names[row] for row in np.flatnonzero(leaving).tolist())
    stuck: dict[int, int] = {}
    for row in np.unique(owner[there]).tolist():
        change = made.get(work.names[row])
        if change is None or any(given.node in given_up for given in change.allotments):
            stuck[row] = len(set(node[there & (owner == row)].tolist()))
    return stuck
