"""The fast path between cycles: web applications whose load has moved get CPU from the jobs beside them, or give it
back. Nothing is moved, suspended or stopped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.usage import unmanaged_mhz
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web.calibration import note_cpu
from daemons.controller.web.snapshot import flow_columns, is_work_known, web_columns
from daemons.decision.pipeline import shares_by_utility
from daemons.models.level import JobDemand
from daemons.models.load_forecast import headroom_quantile
from daemons.models.redistribution import Curves, Running, Shared, outlook_of, redistribute
from daemons.models.stages import JobStages, cycle_needs, finish_s, job_stages, left_mcycles, with_work_left
from daemons.models.web_utility import AppColumns, AppUtility, app_columns, app_utilities
from daemons.values.settings import ControllerSettings, WebPlanning
from shared.base.dataclass_columns import from_columns
from shared.base.errors import InvalidValue
from shared.policy_api.decision import UNBOUNDED, Change, ChangeKind, Reason, ReasonCode
from shared.policy_api.snapshot import Bools, Floats, Ints, StageColumns, stage_columns
from shared.values.jobs import Allotment, Job, JobPhase
from shared.values.nodes import Node, NodeCondition

WORTH = 0.02  # by so much the smallest utility must rise
RESIZED_FRAC = 0.01  # smaller changes of an allotment are not worth an action
LEAST_MHZ = 1.0
FULL_FRAC = 0.95  # of what its instances can use: it is all in use
ROOM_FRAC = 0.05  # of what an application has: less is not worth an action for a job that waits
SETTLING = 0.5  # part of the way to another head-room that is gone at a time
RUNNING = JobPhase.RUNNING
PHASES = (RUNNING, JobPhase.WAITING, JobPhase.SUSPENDED)
_Demand = tuple[Floats, Floats, Floats, Floats, Floats]


@dataclass(frozen=True, slots=True)
class _Declared:
    """What jobs declare, as columns: `stages` begin at the rows `first_stage` of these, int64[jobs + 1]."""

    jobs: Sequence[Job]
    first_stage: Ints
    stages: StageColumns
    goal_s: Floats
    start_s: Floats
    instances: Ints
    vcpus: Ints
    importance: Floats


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Where the instances of some entries are to be, as columns: their `allotments` by entry, how many each has
    (`counts`), the names of the nodes whose rows `node` has (-1: none of these), `had_mhz`."""

    allotments: Sequence[tuple[Allotment, ...]]
    counts: Ints
    names: Sequence[str]
    node: Ints
    had_mhz: Floats


@dataclass(frozen=True, slots=True)
class _Instances:
    """Instances that run where CPU is shared. `entries`: jobs, or instances of applications as jobs of their own; `of`:
    the row of its entry, rising; `node`: the row of its node; `had_mhz`: what it has. int64[n], float64[n]."""

    entries: Sequence[JobEntry]
    declared: _Declared
    of: Ints
    node: Ints
    had_mhz: Floats


@dataclass(frozen=True, slots=True)
class _Found:
    """What takes part. `demand`: a, b, r, tb and importance of `JobDemand` of each entry of `jobs`, of which some wait;
    `most_mhz`, `least_mhz`: what an instance of each can use and needs. `app`: the row of the application of each entry
    of `replicas`; `fixed_mhz`: CPU of those of each application that cannot be changed now."""

    jobs: _Instances
    demand: _Demand
    most_mhz: Floats
    least_mhz: Floats
    waiting: bool
    replicas: _Instances
    app: Ints
    fixed_mhz: Floats


class Redistribution:
    """Looks at the applications of the pool that have goals."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings, deciding: DecisionCycle) -> None:
        self._cluster, self._settings, self._deciding = cluster, settings, deciding
        self._by_utility = shares_by_utility(settings.placement)
        self._jobs, self._replicas = _declared([]), _declared([])
        self._wanted, self._replicas_wanted = _wanted([], []), _wanted([], [])

    def needed(self) -> bool:
        """Return whether there is an application that it looks at."""
        return self._by_utility and any(self._takes_part(web) for web in self._cluster.web.values())

    @staticmethod
    def _takes_part(web: WebEntry) -> bool:
        return bool(web.app.flows) and not (web.removed or web.app.environment)

    def run(self, now_s: float) -> None:
        """Redistribute the CPU of the nodes where that raises the lowest utility."""
        if self._deciding.in_progress or not self._deciding.enabled:
            return
        changes = self.changes(now_s)
        if changes:
            self._deciding.adjusted(changes, now_s)
            for web in self._cluster.web.values():
                note_cpu(web, self._cluster.replicas_wanted(web.app.name), now_s)

    def changes(self, now_s: float) -> list[Change]:
        """Return the changes of CPU that would help; none where they would not, or figures are missing."""
        measured = [web for web in self._cluster.web.values() if self._takes_part(web) and web.samples]
        apps: list[WebEntry] = []
        for web in measured:
            if _is_known(web):
                apps.append(web)
            else:
                self._catch_up(web)
        if not apps:
            return []
        up = [node for node in self._cluster.nodes.values() if node.condition is NodeCondition.UP]
        nodes = [node for node in up if node.inventory is not None and not node.environment]
        vcpu_mhz = max((node.inventory.core_mhz for node in nodes if node.inventory), default=0.0)
        if vcpu_mhz <= 0.0:
            return []
        found = self._gather(nodes, apps, now_s)
        if not len(found.replicas.of):
            return []
        try:
            columns = app_columns(web_columns(apps), flow_columns(apps, self._settings.web_planning), vcpu_mhz)
            running = _running(nodes, found, columns)
            curves = Curves(columns)
            now = outlook_of(running, found.jobs.had_mhz, found.replicas.had_mhz, curves)
            then = redistribute(running, curves)
            self._grow(running, apps, then, vcpu_mhz)
        except (InvalidValue, ArithmeticError):
            return []
        for web, best in zip(apps, columns.best.tolist(), strict=True):
            self._set_headroom(web, best - then.level)
        makes_room = self._makes_room(found, then)
        if not makes_room and _least(then) - _least(now) < WORTH:
            return []
        reason = Reason(ReasonCode.LOAD, (("utility", _least(then)), ("before", _least(now))))
        return _resized(found.jobs, then.mhz, found.replicas, then.replica_mhz, reason)

    def _makes_room(self, found: _Found, then: Shared) -> bool:
        """Return whether a waiting job gains capacity that is worth an action; it is started where it finds
        capacity."""
        had_mhz = float(found.replicas.had_mhz.sum())
        makes = found.waiting and float(then.replica_mhz.sum()) < (1.0 - ROOM_FRAC) * had_mhz
        self._deciding.unit_of_work.place = self._deciding.unit_of_work.place or makes
        return makes

    def _set_headroom(self, web: WebEntry, gap: float) -> None:
        """Plan from now on for as much head-room as the jobs can afford, who are so far below what the application
        could have."""
        wanted = headroom_quantile(self._settings.web_planning.headroom_quantile, gap)
        before = web.headroom_quantile
        web.headroom_quantile = wanted if before is None else before + SETTLING * (wanted - before)

    def _grow(self, running: Running, apps: Sequence[WebEntry], then: Shared, vcpu_mhz: float) -> None:
        """Ask for as many more instances as an application needs for the jobs' level, where those that run have all
        that they can use, it is not enough, and one more would help. What waits is worked off before they have started:
        it does not count."""
        planning = replace(self._settings.web_planning, work_off_s=math.inf)
        of, most, largest = running.replica_app, running.replica_most_mhz, np.zeros(len(apps))
        np.maximum.at(largest, of, most)
        all_mhz, given_mhz = (np.bincount(of, values, len(apps)).tolist() for values in (most, then.replica_mhz))
        for at, (web, count) in enumerate(zip(apps, np.bincount(of, minlength=len(apps)).tolist(), strict=True)):
            full = all_mhz[at] > 0.0 and given_mhz[at] > FULL_FRAC * all_mhz[at]
            if not full or then.utilities[at] >= then.level - WORTH:
                continue
            utility, each_mhz = _utility_of(web, self._settings.web_planning, vcpu_mhz), largest.item(at)
            if float(utility.utility(given_mhz[at] + each_mhz)) < then.utilities[at] + WORTH:
                continue
            lasting = _utility_of(web, planning, vcpu_mhz)
            lacks_mhz = float(lasting.mhz(min(then.level, lasting.best - WORTH))) - given_mhz[at]
            self._ask_for(web, count + max(1, math.ceil(min(lacks_mhz / each_mhz, web.app.max_instances))))

    def _ask_for(self, web: WebEntry, instances: int) -> None:
        """Have so many instances placed, unless they are on their way."""
        if instances > len(self._cluster.replicas_wanted(web.app.name)):
            web.grown = instances
            self._deciding.unit_of_work.place = True

    def _catch_up(self, web: WebEntry) -> None:
        """Ask for more instances of an application that cannot keep up, while the work of its requests is not known:
        in proportion to what it is asked for and what it answers, at most twice as many at a time. What was measured
        before the last one was started says nothing."""
        sample, running = web.samples[-1], self._cluster.replicas_wanted(web.app.name)
        began_s = sample.at_s - max((flow.window_s for flow in sample.flows), default=0.0)
        work_off_s = self._settings.web_planning.work_off_s
        asked_per_s = sum(flow.offered / flow.window_s + flow.queued / work_off_s for flow in sample.flows)
        answered_per_s = sum(flow.served / flow.window_s for flow in sample.flows)
        waits = any(flow.queued or flow.rejected for flow in sample.flows)
        if not waits or answered_per_s <= 0.0 or any(replica.wanted_s >= began_s for replica in running):
            return
        self._ask_for(web, min(math.ceil(len(running) * min(2.0, asked_per_s / answered_per_s)), web.app.max_instances))

    def _gather(self, nodes: Sequence[NodeEntry], apps: Sequence[WebEntry], now_s: float) -> _Found:
        """O(nodes + active jobs + their instances)."""
        of_app = {web.app.name: at for at, web in enumerate(apps)}
        active = [
            entry
            for entry in self._cluster.active.values()
            if entry.phase in PHASES and not (entry.awaits or entry.job.environment)
        ]
        jobs = [entry for entry in active if not (entry.job.app or entry.adopted)]
        replicas = [entry for entry in active if entry.job.app in of_app]
        fixed = self._deciding.builder.are_fixed([*jobs, *replicas], now_s)
        names = [node.name for node in nodes]
        runs = np.array([entry.phase is RUNNING for entry in jobs], dtype=np.bool_)
        self._jobs, self._replicas = _declared_by(jobs, self._jobs), _declared_by(replicas, self._replicas)
        self._wanted = _wanted_of(jobs, names, self._wanted)
        self._replicas_wanted = _wanted_of(replicas, names, self._replicas_wanted)
        placed, free = _placed(jobs, self._jobs, self._wanted, runs & ~fixed[: len(jobs)])
        stages = _stages(jobs, self._jobs)
        stages = with_work_left(
            stages, *self._cluster.lengths.means_left(jobs, stages.done_mcycles, left_mcycles(stages))
        )
        left = left_mcycles(stages)
        free &= left > 0.0
        left[runs & ~free] = 0.0
        needs = cycle_needs(stages, self._settings.decide_s)  # as a cycle's decision takes it
        app = np.array([of_app[entry.job.app] for entry in replicas], dtype=np.int64)
        replicas_run = np.array([entry.phase is RUNNING for entry in replicas], dtype=np.bool_)
        movable = replicas_run & ~fixed[len(jobs) :]
        replicas_placed, replicas_free = _placed(replicas, self._replicas, self._replicas_wanted, movable)
        kept = _taken(replicas_placed, ~replicas_free & _column(replicas, "released", np.bool_))
        others = [jobs[row] for row in np.flatnonzero(~runs).tolist()]
        return _Found(
            _taken(placed, free),
            _demand(self._jobs, left, np.where(left > 0.0, finish_s(stages), 0.0), now_s),
            most_mhz=needs.req_mhz,
            least_mhz=needs.min_mhz,
            waiting=any(now_s >= max(entry.not_before_s, entry.job.desired_start_s) for entry in others),
            replicas=_taken(replicas_placed, replicas_free),
            app=app,
            fixed_mhz=np.bincount(app[kept.of], kept.had_mhz, len(apps)).astype(np.float64),
        )


def _column(rows: Sequence[JobEntry | Job | Allotment | Node], name: str, kind: type[np.generic] = np.float64) -> Any:
    """Return the values of that attribute in all rows; a dotted name reads an attribute of a part."""
    return np.fromiter(map(attrgetter(name), rows), kind, len(rows))


def _declared_by(entries: Sequence[JobEntry], last: _Declared) -> _Declared:
    """Return what they declare. The last result is reused while the jobs are the same, since jobs never change. Most of
    the gathering time is spent waiting for memory."""
    jobs = [*map(attrgetter("job"), entries)]
    return last if jobs == last.jobs else _declared(jobs)


def _declared(jobs: Sequence[Job]) -> _Declared:
    by_job = [job.stages for job in jobs]
    first_stage = np.zeros(len(jobs) + 1, dtype=np.int64)
    np.cumsum([*map(len, by_job)], out=first_stage[1:])
    goal_s = [math.inf if job.goal_s is None else job.goal_s for job in jobs]
    return _Declared(
        jobs,
        first_stage,
        stage_columns([*chain.from_iterable(by_job)]),
        goal_s=np.array(goal_s, dtype=np.float64),
        start_s=_column(jobs, "desired_start_s"),
        instances=_column(jobs, "instances", np.int64),
        vcpus=_column(jobs, "vcpus", np.int64),
        importance=_column(jobs, "importance"),
    )


def _wanted_of(entries: Sequence[JobEntry], names: Sequence[str], last: _Wanted) -> _Wanted:
    """Return where they are to be. The last result is reused while that is the same, as mostly it is between two looks
    at a load that has not moved."""
    by_entry = [*map(attrgetter("allotments"), entries)]
    return last if by_entry == last.allotments and names == last.names else _wanted(by_entry, names)


def _wanted(by_entry: Sequence[tuple[Allotment, ...]], names: Sequence[str]) -> _Wanted:
    rows = {name: row for row, name in enumerate(names)}
    counts = np.fromiter(map(len, by_entry), np.int64, len(by_entry))
    allotments = [*chain.from_iterable(by_entry)]
    node = np.fromiter(map(rows.get, map(attrgetter("node"), allotments), repeat(-1)), np.int64, len(allotments))
    return _Wanted(by_entry, counts, names, node, _column(allotments, "cpu_mhz"))


def _placed(
    entries: Sequence[JobEntry], declared: _Declared, wanted: _Wanted, movable: Bools
) -> tuple[_Instances, Bools]:
    """Return all instances that have a node, and whether each of the entries may be changed: those that are `movable`
    and run only on these nodes."""
    of = np.repeat(np.arange(len(entries)), wanted.counts)
    elsewhere = np.bincount(of[wanted.node < 0], minlength=len(entries)) > 0
    return _Instances(entries, declared, of, wanted.node, wanted.had_mhz), movable & (wanted.counts > 0) & ~elsewhere


def _taken(placed: _Instances, which: Bools) -> _Instances:
    """Return the instances of some of the entries."""
    taken = which[placed.of]
    return replace(placed, of=placed.of[taken], node=placed.node[taken], had_mhz=placed.had_mhz[taken])


def _stages(entries: Sequence[JobEntry], declared: _Declared) -> JobStages:
    done = [e.instances[0].done_mcycles if len(e.instances) == 1 else e.done_mcycles for e in entries]
    stages = declared.stages
    return job_stages(
        np.array(done, dtype=np.float64),
        declared.first_stage,
        stages.work_mcycles,
        max_mhz=stages.max_mhz,
        min_mhz=stages.min_mhz,
        memory_mib=stages.memory_mib,
    )


def _demand(declared: _Declared, left_mcycles: Floats, best_s: Floats, now_s: float) -> _Demand:
    """Return a, b, r, tb and importance, see `JobDemand`."""
    goal_s, span_s = declared.goal_s - now_s, declared.goal_s - declared.start_s
    return declared.instances * left_mcycles, goal_s, span_s, best_s, declared.importance


def _running(nodes: Sequence[NodeEntry], found: _Found, apps: AppColumns) -> Running:
    """Return the running workloads in the form that the model takes. Raises `InvalidValue` for figures that it does not
    accept."""
    jobs, replicas = found.jobs, found.replicas
    inventories = [node.inventory for node in nodes if node.inventory is not None]
    core_mhz, cpu_mhz = _column(inventories, "core_mhz"), _column(inventories, "cpu_mhz")
    held_mhz = np.array([node.wanted_mhz + unmanaged_mhz(node) for node in nodes])
    held_mhz -= np.bincount(jobs.node, jobs.had_mhz, len(nodes)) + np.bincount(
        replicas.node, replicas.had_mhz, len(nodes)
    )

    def usable_mhz(instances: _Instances, wanted_mhz: Floats) -> Floats:
        """Return what each can use: see `Job.speed_on_mhz`."""
        vcpus = instances.declared.vcpus[instances.of]
        most_mhz: Floats = np.minimum(vcpus * core_mhz[instances.node], cpu_mhz[instances.node])
        return np.minimum(wanted_mhz[instances.of], most_mhz)

    a, b, r, tb, importance = found.demand
    least_mhz = np.maximum(found.least_mhz, LEAST_MHZ)[jobs.of]
    replica_mhz = replicas.declared.stages.max_mhz  # an instance of an application is a job of one stage
    return Running(
        np.maximum(cpu_mhz - held_mhz, 0.0),
        jobs.of,
        jobs.node,
        count=jobs.declared.instances[jobs.of],
        least_mhz=least_mhz,
        most_mhz=np.maximum(usable_mhz(jobs, found.most_mhz), least_mhz),
        replica_app=found.app[replicas.of],
        replica_node=replicas.node,
        replica_least_mhz=np.full(len(replicas.of), LEAST_MHZ),
        replica_most_mhz=np.maximum(usable_mhz(replicas, replica_mhz), LEAST_MHZ),
        demand=JobDemand(a, b, r, tb, None if (importance == 1.0).all() else importance),
        apps=apps,
        fixed_mhz=found.fixed_mhz,
        waiting=found.waiting,
    )


def _resized(jobs: _Instances, mhz: Floats, replicas: _Instances, replica_mhz: Floats, reason: Reason) -> list[Change]:
    """Changes where they are worth an action: first those that make room. O(instances), numpy but for the changes."""
    entries = [*jobs.entries, *replicas.entries]
    of = np.concatenate([jobs.of, replicas.of + len(jobs.entries)])
    had_mhz, given_mhz = np.concatenate([jobs.had_mhz, replicas.had_mhz]), np.concatenate([mhz, replica_mhz])
    differs = ~(np.abs(given_mhz - had_mhz) <= RESIZED_FRAC * np.maximum(had_mhz, 1.0))
    more_mhz = np.bincount(of, given_mhz, len(entries)) - np.bincount(of, had_mhz, len(entries))
    rows = np.flatnonzero(np.bincount(of, differs, len(entries)))
    rows = rows[np.argsort(more_mhz[rows], kind="stable")]
    resized = [entries[row] for row in rows.tolist()]
    before = [*map(attrgetter("allotments"), resized)]
    counts = np.fromiter(map(len, before), np.int64, len(before))
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(np.searchsorted(of, rows) - ends + counts, counts)
    nodes = map(attrgetter("node"), chain.from_iterable(before))
    after = map(Allotment, nodes, np.maximum(given_mhz[at], LEAST_MHZ).tolist())
    return from_columns(
        Change,
        [*map(attrgetter("job.name"), resized)],
        [*map(attrgetter("revision"), resized)],
        [ChangeKind.RESIZE] * len(resized),
        [*zip(after)] if (counts == 1).all() else [tuple(islice(after, count)) for count in counts.tolist()],
        [reason] * len(resized),
    )


def _utility_of(web: WebEntry, planning: WebPlanning, vcpu_mhz: float) -> AppUtility:
    (utility,) = app_utilities(web_columns([web]), flow_columns([web], planning), vcpu_mhz)
    return utility


def _is_known(web: WebEntry) -> bool:
    """Return whether it was measured, and the work of its requests is declared or was estimated."""
    return bool(web.samples) and all(is_work_known(web, flow) for flow in web.app.flows)


def _least(shared: Shared) -> float:
    return max(min((shared.level, *shared.utilities)), -UNBOUNDED)
