"""The fast path between cycles: web applications whose load has moved get CPU from the jobs beside them, or give it
back. Nothing is moved, suspended or stopped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.usage import unmanaged_mhz
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web.snapshot import UNKNOWN, flow_columns, flow_now, web_columns
from daemons.decision.pipeline import shares_by_utility
from daemons.models.level import JobDemand
from daemons.models.load_forecast import headroom_quantile
from daemons.models.redistribution import Curves, Running, Shared, outlook_of, redistribute
from daemons.models.web_utility import AppColumns, AppUtility, app_utilities
from daemons.values.settings import ControllerSettings
from shared.base.errors import InvalidValue
from shared.policy_api.decision import UNBOUNDED, Change, ChangeKind, Reason, ReasonCode
from shared.values.jobs import Allotment, JobPhase
from shared.values.nodes import NodeCondition

WORTH = 0.02  # by so much the smallest utility must rise
RESIZED_FRAC = 0.01  # smaller changes of an allotment are not worth an action
LEAST_MHZ = 1.0
FULL_FRAC = 0.95  # of what its instances can use: it is all in use
ROOM_FRAC = 0.05  # of what an application has: less is not worth an action for a job that waits
SETTLING = 0.5  # part of the way to another head-room that is gone at a time
PHASES = (JobPhase.RUNNING, JobPhase.WAITING, JobPhase.SUSPENDED)


@dataclass(slots=True)
class _Rows:
    """What takes part, as it is gathered."""

    jobs: list[JobEntry] = field(default_factory=list)
    demand: list[tuple[float, float, float, float, float]] = field(default_factory=list)
    waiting: bool = False
    row: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    had: list[float] = field(default_factory=list)
    replicas: list[JobEntry] = field(default_factory=list)
    replica_app: list[int] = field(default_factory=list)
    replica_node: list[int] = field(default_factory=list)
    replica_most: list[float] = field(default_factory=list)
    replica_had: list[float] = field(default_factory=list)
    fixed_mhz: list[float] = field(default_factory=list)


class Redistribution:
    """Looks at the applications of the pool that have goals."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings, deciding: DecisionCycle) -> None:
        self._cluster, self._settings, self._deciding = cluster, settings, deciding
        self._by_utility = shares_by_utility(settings.placement)

    def needed(self) -> bool:
        """Return whether there is an application that it looks at."""
        return self._by_utility and any(self._takes_part(web) for web in self._cluster.web.values())

    @staticmethod
    def _takes_part(web: WebEntry) -> bool:
        return bool(web.app.flows) and not (web.removed or web.app.environment)

    def run(self, now_s: float) -> None:
        """Share the CPU of the nodes anew where that helps who has least."""
        if self._deciding.under_way or not self._deciding.enabled:
            return
        changes = self.changes(now_s)
        if changes:
            self._deciding.adjusted(changes, now_s)

    def changes(self, now_s: float) -> list[Change]:
        """Return the changes of CPU that would help; none where they would not, or figures are missing."""
        apps = [web for web in self._cluster.web.values() if self._takes_part(web) and _is_known(web)]
        if not apps:
            return []
        nodes = [node for node in self._cluster.nodes.values() if self._is_shared(node)]
        vcpu_mhz = max((node.inventory.core_mhz for node in nodes if node.inventory), default=0.0)
        if vcpu_mhz <= 0.0:
            return []
        rows = self._gather(nodes, apps, now_s)
        if not rows.replicas:
            return []
        try:
            utilities = app_utilities(web_columns(apps), flow_columns(apps, self._settings.web_planning), vcpu_mhz)
            running = self._running(nodes, rows, utilities)
            columns = AppColumns(utilities)
            curves = Curves(columns)
            now = outlook_of(running, np.array(rows.had), np.array(rows.replica_had), curves)
            then = redistribute(running, curves)
        except (InvalidValue, ArithmeticError):
            return []
        self._grow(rows, apps, utilities, then)
        for web, best in zip(apps, columns.best.tolist(), strict=True):
            self._set_headroom(web, best - then.level)
        if _least(then) < _least(now) + WORTH and not self._makes_room(rows, then):
            return []
        return self._resized(rows, then, _least(now), _least(then))

    def _makes_room(self, rows: _Rows, then: Shared) -> bool:
        """Whether a job that waits gets room that is worth an action; it is started where it finds it."""
        had = sum(rows.replica_had)
        makes = rows.waiting and float(then.replica_mhz.sum()) < (1.0 - ROOM_FRAC) * had
        self._deciding.unit_of_work.place = self._deciding.unit_of_work.place or makes
        return makes

    def _set_headroom(self, web: WebEntry, gap: float) -> None:
        """Plan from now on for as much head-room as the jobs can afford, who are so far below what the application
        could have."""
        wanted = headroom_quantile(self._settings.web_planning.headroom_quantile, gap)
        before = web.headroom_quantile
        web.headroom_quantile = wanted if before is None else before + SETTLING * (wanted - before)

    def _grow(self, rows: _Rows, apps: Sequence[WebEntry], utilities: Sequence[AppUtility], then: Shared) -> None:
        """Ask for more instances where those that run have all that they can use, it is not enough, and one more would
        help."""
        of, most, largest = np.array(rows.replica_app), np.array(rows.replica_most), np.zeros(len(apps))
        np.maximum.at(largest, of, most)
        all_mhz, given_mhz = (np.bincount(of, values, len(apps)).tolist() for values in (most, then.replica_mhz))
        for at, web in enumerate(apps):
            full = all_mhz[at] > 0.0 and given_mhz[at] > FULL_FRAC * all_mhz[at]
            wanted = self._cluster.replicas_wanted(web.app.name)
            if not full or wanted >= web.app.max_instances or then.utilities[at] >= then.level - WORTH:
                continue
            if float(utilities[at].utility(given_mhz[at] + largest.item(at))) >= then.utilities[at] + WORTH:
                web.grown = wanted + max(1, wanted // 4)
                self._deciding.unit_of_work.place = True

    @staticmethod
    def _is_shared(node: NodeEntry) -> bool:
        return node.inventory is not None and node.condition is NodeCondition.UP and not node.environment

    def _gather(self, nodes: Sequence[NodeEntry], apps: Sequence[WebEntry], now_s: float) -> _Rows:
        rows, found = {node.name: at for at, node in enumerate(nodes)}, _Rows()
        of_app = {web.app.name: at for at, web in enumerate(apps)}
        found.fixed_mhz = [0.0] * len(apps)
        fixed = self._deciding.builder.is_fixed
        for entry in self._cluster.active.values():
            job = entry.job
            if entry.phase not in PHASES or entry.awaits or job.environment:
                continue
            places = [rows.get(allotment.node, -1) for allotment in entry.allotments]
            free = entry.phase is JobPhase.RUNNING and bool(places) and min(places) >= 0 and not fixed(entry, now_s)
            if job.app:
                if free and job.app in of_app:
                    found.replicas.append(entry)
                    found.replica_app.append(of_app[job.app])
                    found.replica_node.append(places[0])
                    found.replica_most.append(self._most_mhz(entry, nodes[places[0]]))
                    found.replica_had.append(entry.allotments[0].cpu_mhz)
                elif entry.released and job.app in of_app:
                    found.fixed_mhz[of_app[job.app]] += entry.allotments[0].cpu_mhz if entry.allotments else 0.0
                continue
            if entry.adopted:
                continue
            left = max(0.0, job.work_mcycles - entry.done_mcycles)
            goal_s = math.inf if job.goal_s is None else job.goal_s
            if not left and entry.phase is JobPhase.RUNNING:
                free = False  # it needs more than was declared, and nobody knows how much
            if not free and entry.phase is JobPhase.RUNNING:
                left = 0.0  # it keeps what it has
            span_s = goal_s - job.desired_start_s
            found.demand.append((job.instances * left, goal_s - now_s, span_s, left / job.max_mhz, job.importance))
            if entry.phase is not JobPhase.RUNNING:
                found.waiting = found.waiting or now_s >= max(entry.not_before_s, job.desired_start_s)
            if not free:
                continue
            found.jobs.append(entry)
            for place, allotment in zip(places, entry.allotments, strict=True):
                found.row.append(len(found.demand) - 1)
                found.node.append(place)
                found.count.append(job.instances)
                found.least.append(max(job.min_mhz, LEAST_MHZ))
                found.most.append(self._most_mhz(entry, nodes[place]))
                found.had.append(allotment.cpu_mhz)
        return found

    @staticmethod
    def _most_mhz(entry: JobEntry, node: NodeEntry) -> float:
        return entry.job.speed_on_mhz(node.inventory) if node.inventory is not None else 0.0

    def _running(self, nodes: Sequence[NodeEntry], rows: _Rows, apps: Sequence[AppUtility]) -> Running:
        held = np.array([node.wanted_mhz + unmanaged_mhz(node) for node in nodes])
        node, replica_node = np.array(rows.node, dtype=np.int64), np.array(rows.replica_node, dtype=np.int64)
        had, replica_had = np.array(rows.had), np.array(rows.replica_had)
        held -= np.bincount(node, had, len(nodes)) + np.bincount(replica_node, replica_had, len(nodes))
        cpu = np.array([node.inventory.cpu_mhz if node.inventory else 0.0 for node in nodes])
        columns = zip(*rows.demand, strict=True) if rows.demand else [()] * 5
        a, b, r, tb, importance = (np.array(column) for column in columns)
        return Running(
            np.maximum(cpu - held, 0.0),
            np.array(rows.row, dtype=np.int64),
            node,
            count=np.array(rows.count, dtype=np.int64),
            least_mhz=np.array(rows.least),
            most_mhz=np.maximum(np.array(rows.most), np.array(rows.least)),
            replica_app=np.array(rows.replica_app, dtype=np.int64),
            replica_node=replica_node,
            replica_least_mhz=np.full(len(rows.replicas), LEAST_MHZ),
            replica_most_mhz=np.maximum(np.array(rows.replica_most), LEAST_MHZ),
            demand=JobDemand(a, b, r, tb, None if (importance == 1.0).all() else importance),
            apps=apps,
            fixed_mhz=np.array(rows.fixed_mhz),
            waiting=rows.waiting,
        )

    def _resized(self, rows: _Rows, shared: Shared, was: float, least: float) -> list[Change]:
        """Changes where they are worth an action: first those that make room."""
        given, replicas = shared.mhz.tolist(), shared.replica_mhz.tolist()
        changes: list[tuple[float, Change]] = []
        reason = Reason(ReasonCode.LOAD, (("utility", least), ("before", was)))
        at = 0
        for entry in rows.jobs:
            each = given[at : at + len(entry.allotments)]
            at += len(entry.allotments)
            self._add(changes, entry, each, reason)
        for entry, mhz in zip(rows.replicas, replicas, strict=True):
            self._add(changes, entry, [mhz], reason)
        return [change for _, change in sorted(changes, key=lambda one: one[0])]

    @staticmethod
    def _add(changes: list[tuple[float, Change]], entry: JobEntry, mhz: Sequence[float], reason: Reason) -> None:
        had = [allotment.cpu_mhz for allotment in entry.allotments]
        if all(abs(new - old) <= RESIZED_FRAC * max(old, 1.0) for new, old in zip(mhz, had, strict=True)):
            return
        allotments = tuple(
            Allotment(allotment.node, max(new, LEAST_MHZ)) for allotment, new in zip(entry.allotments, mhz, strict=True)
        )
        change = Change(entry.job.name, entry.revision, ChangeKind.RESIZE, allotments, reason)
        changes.append((sum(mhz) - sum(had), change))


def _is_known(web: WebEntry) -> bool:
    """Whether it was measured, and the work of its requests is declared or was estimated."""
    return bool(web.samples) and all(flow_now(web, flow).profile != UNKNOWN for flow in web.app.flows)


def _least(shared: Shared) -> float:
    return max(min((shared.level, *shared.utilities)), -UNBOUNDED)
