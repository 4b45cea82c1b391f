"""The outlook of a placement: the utilities one cycle ahead, for any placement of any policy (apc.txt section 4.4).

At now + T, a job that is not done has its work left then. The jobs' level follows from all the CPU that jobs are given
in this cycle, including those that end within it. A job that ends keeps the utility of its own completion and leaves
the equation. Jobs on one node slow each other down according to `neighbours`. A job makes no progress during its own
operation; one that takes the place of a suspended job also waits for that suspend. A web application has the utility of
the total CPU of its instances, under the expected load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from daemons.models.level import JobDemand
from daemons.models.neighbours import Crowd, of_workloads, slowed
from daemons.models.stages import JobStages, finish_s, outlook, stages_of
from daemons.models.utility import utility_at
from daemons.models.web_utility import app_utilities, expected_flows
from shared.base.errors import InvalidValue
from shared.policy_api.decision import Change, ChangeKind, Outlook, Slowed
from shared.policy_api.snapshot import Bools, Floats, Ints, Snapshot, WorkloadState
from shared.values.actions import ActionKind

_SLACK = 1e-9  # sums of memory are rounded
_RUNS = frozenset({ChangeKind.START, ChangeKind.RESUME, ChangeKind.MIGRATE, ChangeKind.RESIZE})


@dataclass(frozen=True, slots=True)
class Target:
    """What runs where. running: bool[w], by row of the workloads. One entry per instance of a running workload, in the
    order of workloads and instances: owner (row of its workload), node (row), cpu_mhz; ragged arrays of one length."""

    running: Bools
    owner: Ints
    node: Ints
    cpu_mhz: Floats


def unchanged(snapshot: Snapshot) -> Target:
    """Return the placement that runs now."""
    work = snapshot.workloads
    running = np.asarray(work.state == WorkloadState.RUNNING.value)
    counts = np.where(running, work.instances, 0)
    owner = np.repeat(np.arange(len(counts)), counts)
    taken = np.repeat(work.first_instance - (counts.cumsum() - counts), counts) + np.arange(len(owner))
    return Target(running, owner, snapshot.instances.node[taken], snapshot.instances.cpu_mhz[taken])


def after(snapshot: Snapshot, changes: Iterable[Change]) -> Target:
    """Return the placement after the changes. Raises `InvalidValue` for a workload, a node or a number of allotments
    that the snapshot does not have."""
    now = unchanged(snapshot)
    rows = {name: row for row, name in reversed(list(enumerate(snapshot.workloads.names)))}
    nodes = {name: row for row, name in reversed(list(enumerate(snapshot.nodes.names)))}
    running, changed = now.running.copy(), np.zeros(len(now.running), dtype=np.bool_)
    owner: list[int] = []
    node: list[int] = []
    cpu_mhz: list[float] = []
    for change in changes:
        row = _known(rows, "workload", change.workload)
        wanted = int(snapshot.workloads.instances[row]) if change.kind in _RUNS else 0
        if len(change.allotments) != wanted:
            raise InvalidValue("allotments", len(change.allotments), f"{wanted} for {change.kind} {change.workload}")
        changed[row], running[row] = True, change.kind in _RUNS
        owner += [row] * wanted
        node += [_known(nodes, "node", allotment.node) for allotment in change.allotments]
        cpu_mhz += [allotment.cpu_mhz for allotment in change.allotments]
    kept = ~changed[now.owner]
    owners = np.concatenate([now.owner[kept], np.array(owner, dtype=np.int64)])
    order = owners.argsort(kind="stable")
    return Target(
        running,
        owners[order],
        np.concatenate([now.node[kept], np.array(node, dtype=np.int64)])[order],
        np.concatenate([now.cpu_mhz[kept], np.array(cpu_mhz, dtype=np.float64)])[order],
    )


def _known(rows: dict[str, int], what: str, name: str) -> int:
    if name not in rows:
        raise InvalidValue(what, name, f"a {what} of the snapshot")
    return rows[name]


def outlook_of(snapshot: Snapshot, changes: Iterable[Change]) -> Outlook:
    """Return the outlook of a decision: every job with a valid profile in the order of the rows, then the web
    applications."""
    forecast = Forecast(snapshot)
    now, _ = forecast.predict(unchanged(snapshot))
    predicted, level = forecast.predict(after(snapshot, changes))
    now_, then, best = (tuple(column.tolist()) for column in (now, predicted, forecast.best))
    return Outlook(forecast.names, now_, then, best, level, forecast.goalless())


def slowed_by(snapshot: Snapshot, changes: Iterable[Change]) -> tuple[Slowed, ...]:
    """Whom sharing slows once the changes are made, see `neighbours.slowed`; nothing for changes that name what the
    snapshot does not have."""
    try:
        target = after(snapshot, changes)
    except InvalidValue:
        return ()
    return slowed(snapshot, Crowd(target.owner, target.node))


class Forecast:
    """Predicts for one snapshot. `names`: those predicted for, jobs (but for those whose profile is not sound), then
    web applications; `best`: the utility that each reaches at full speed from now on, float64[len(names)]. Raises
    `InvalidValue` for a flow without a figure that its model needs."""

    def __init__(self, snapshot: Snapshot) -> None:
        work = snapshot.workloads
        self._snapshot = snapshot
        self._delays = _Delays(snapshot)
        limit_mhz = _limits_mhz(snapshot)
        self._rows = _sound(snapshot, limit_mhz)
        self._jobs: JobStages = stages_of(work, snapshot.stages, self._rows, limit_mhz[self._rows])
        self._start_s, self._goal_s = work.desired_start_s[self._rows], work.goal_s[self._rows]
        self._importance = work.importance[self._rows]
        self._instances = work.instances[self._rows].astype(np.float64)
        vcpu_mhz = snapshot.nodes.core_mhz.max(initial=0.0) or 1.0
        self._apps = app_utilities(snapshot.web, expected_flows(snapshot.flows), vcpu_mhz)
        self.names = (*(work.names[row] for row in self._rows.tolist()), *snapshot.web.names)
        best = self._utility(snapshot.now_s + finish_s(self._jobs))
        self.best = np.concatenate([best, self._web(_most_mhz(snapshot))])

    def aims(self) -> Bools:
        """Return which of the names have a goal, bool[len(names)]; the utility of the others has no meaning."""
        return np.concatenate(
            [np.isfinite(self._goal_s), np.array([bool(a.flows) for a in self._apps], dtype=np.bool_)]
        )

    def goalless(self) -> tuple[str, ...]:
        """Return the names without a goal."""
        return tuple(name for name, aimed in zip(self.names, self.aims().tolist(), strict=True) if not aimed)

    def predict(self, target: Target) -> tuple[Floats, float | None]:
        """Utilities in the order of `names` at now + T, and the jobs' common level (-inf: no CPU is given to jobs;
        None: no job has both a goal and work left)."""
        snapshot, rows = self._snapshot, self._rows
        running = target.running[rows]
        for_s = np.where(running, np.maximum(snapshot.cycle_s - self._delays.of(target)[rows], 0.0), 0.0)
        slow = self._slow(target)
        end = outlook(self._jobs, for_s / slow[rows], _slowest_mhz(target)[rows])
        ended = running & (end.left_mcycles == 0.0)
        at_s = snapshot.now_s + snapshot.cycle_s
        demand = JobDemand(
            np.where(ended, 0.0, end.left_mcycles * self._instances),
            self._goal_s - at_s,
            self._goal_s - self._start_s,
            end.best_s,
            self._importance,
        )
        app = snapshot.workloads.app[target.owner]
        level = demand.solve(float((target.cpu_mhz / slow[target.owner])[app < 0].sum()))
        of_jobs = np.where(ended, self._utility(at_s - for_s + end.ran_s * slow[rows]), level.utilities())
        web_mhz = np.zeros(len(self._apps))
        np.add.at(web_mhz, app[app >= 0], target.cpu_mhz[app >= 0])
        contested = (~ended & (end.left_mcycles > 0.0) & np.isfinite(self._goal_s)).any()
        return np.concatenate([of_jobs, self._web(web_mhz)]), level.level if contested else None

    def _slow(self, target: Target) -> Floats:
        """Return the slowdown factor of each workload against running alone, float64[w]."""
        loading, count = self._snapshot.loading, len(target.running)
        if loading is None:
            return np.ones(count)
        return of_workloads(loading, Crowd(target.owner, target.node), count, loading.model)

    def _utility(self, completed_s: Floats) -> Floats:
        return utility_at(completed_s, self._start_s, self._goal_s, self._importance)

    def _web(self, mhz: Floats) -> Floats:
        utilities = [float(app.utility(given)) for app, given in zip(self._apps, mhz.tolist(), strict=True)]
        return np.array(utilities, dtype=np.float64)


def _limits_mhz(snapshot: Snapshot) -> Floats:
    """Return the most CPU that one instance of each workload can be given on any node, float64[w]."""
    work, nodes = snapshot.workloads, snapshot.nodes
    if not len(nodes.names):
        return work.max_mhz
    most_mhz = np.minimum(work.vcpus * nodes.core_mhz.max(), nodes.cpu_mhz.max())
    return np.asarray(np.minimum(most_mhz, work.max_mhz))


def _most_mhz(snapshot: Snapshot) -> Floats:
    """Return the CPU of every web application with the maximum number of instances, each with a node of its own."""
    work, nodes, web = snapshot.workloads, snapshot.nodes, snapshot.web
    most_mhz = np.zeros(len(web.names))
    for app, count in enumerate(web.max_instances.tolist()):
        replica = (work.app == app).argmax() if (work.app == app).any() else None
        if replica is not None:
            each = np.minimum(np.minimum(work.vcpus[replica] * nodes.core_mhz, nodes.cpu_mhz), work.max_mhz[replica])
            most_mhz[app] = np.sort(each)[::-1][:count].sum()
    return most_mhz


def _sound(snapshot: Snapshot, limit_mhz: Floats) -> Ints:
    """Return the rows of the jobs with valid numbers: the others have no utility."""
    work = snapshot.workloads
    sound = (
        _first(work.names) & (work.app < 0) & (work.importance > 0.0) & np.isfinite(work.importance) & (limit_mhz > 0.0)
    )
    sound &= np.isfinite(work.done_mcycles) & (work.done_mcycles >= 0.0) & (work.instances >= 1)
    sound &= np.isposinf(work.goal_s) | (np.isfinite(work.goal_s) & (work.goal_s > work.desired_start_s))
    stages = snapshot.stages
    good = np.isfinite(stages.work_mcycles) & (stages.work_mcycles >= 0.0)
    good &= np.isfinite(stages.max_mhz) & (stages.max_mhz > 0.0)
    bad = np.concatenate([[0], (~good).cumsum()])
    sound &= bad[work.first_stage + work.stages] == bad[work.first_stage]
    return sound.nonzero()[0]


def _first(names: tuple[str, ...]) -> Bools:
    """Return whether no earlier row has the name, bool[w]: a name stands for its first row."""
    if len(set(names)) == len(names):
        return np.ones(len(names), dtype=np.bool_)
    rows = {name: row for row, name in reversed(list(enumerate(names)))}
    return np.array([rows[name] == row for row, name in enumerate(names)], dtype=np.bool_)


def _slowest_mhz(target: Target) -> Floats:
    """Return the speed of each job, which is that of its slowest instance; 0 if it does not run, float64[w]."""
    slowest = np.full(len(target.running), np.inf)
    np.minimum.at(slowest, target.owner, target.cpu_mhz)
    return np.where(target.running & np.isfinite(slowest), slowest, 0.0)


class _Delays:
    """How long operations keep workloads from running."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._before = unchanged(snapshot)
        work, costs = snapshot.workloads, snapshot.costs
        self._started_s = costs.durations_s(ActionKind.START, work.memory_mib)
        self._suspended_s = costs.durations_s(ActionKind.SUSPEND, work.memory_mib)
        self._resumed_s = costs.durations_s(ActionKind.RESUME, work.memory_mib)
        self._moved_s = costs.durations_s(ActionKind.MIGRATE, work.memory_mib)

    def of(self, target: Target) -> Floats:
        """Return the seconds until the last instance of each workload is in place, float64[w]; 0 if nothing moves."""
        work, owner = self._snapshot.workloads, target.owner
        state = work.state[owner]
        waited, suspended = state == WorkloadState.WAITING.value, state == WorkloadState.SUSPENDED.value
        index = np.arange(len(owner)) - np.searchsorted(owner, owner)
        home = np.full(len(owner), -1, dtype=np.int64)
        home[~waited] = self._snapshot.instances.node[(work.first_instance[owner] + index)[~waited]]
        away = ~waited & (home != target.node)
        arrives = waited | suspended | away
        own_s = np.where(waited, self._started_s[owner], 0.0)
        own_s += np.where(suspended, self._resumed_s[owner], 0.0) + np.where(away, self._moved_s[owner], 0.0)
        delay_s = np.zeros(len(target.running))
        waits_s = np.append(self._waits_s(target, arrives), 0.0)  # the last one: of a node that is not known
        np.maximum.at(delay_s, owner, own_s + np.where(arrives, waits_s[target.node], 0.0))
        return delay_s

    def _waits_s(self, target: Target, arrives: Bools) -> Floats:
        """Return the time that arrivals at a node wait for suspends there: the longest, if not all of them fit without
        it."""
        snapshot, before = self._snapshot, self._before
        work = snapshot.workloads
        longest_s, asked_mib = np.zeros(len(snapshot.nodes.names)), np.zeros(len(snapshot.nodes.names))
        leaving = ~target.running[before.owner] & (work.app[before.owner] < 0) & (before.node >= 0)
        if leaving.any():
            np.maximum.at(longest_s, before.node[leaving], self._suspended_s[before.owner[leaving]])
            owner = target.owner[arrives]
            np.add.at(asked_mib, target.node[arrives], work.memory_mib[owner] + snapshot.vm_overhead_mib)
        crowded = asked_mib > snapshot.nodes.free_memory_mib * (1.0 + _SLACK)
        return np.where(crowded, longest_s, 0.0)
