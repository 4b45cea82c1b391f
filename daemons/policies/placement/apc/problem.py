"""A snapshot as the search sees it: plain lists by row of the workloads and nodes, everything derived done once.

Amounts are per instance unless said otherwise. Memory includes the overhead of a VM. A row is a *job* or a *replica*,
an instance of a web application.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daemons.models.stages import JobStages, cycle_needs, finish_s, left_by_stage, left_mcycles, stages_of
from daemons.models.utility import utility_at
from daemons.policies.placement.apc.params import Params
from daemons.policies.placement.free_capacity import repeated
from shared.policy_api.snapshot import ELSEWHERE, Bools, Floats, Ints, Snapshot, WorkloadState
from shared.values.actions import ActionKind

LEAST_MHZ = 1.0  # what runs is given at least this: a VM of no weight at all cannot be asked for
SLACK = 1e-9  # sums of floats are rounded
LARGEST = 1e100  # larger numbers are taken for wrong: their products would not be numbers

WAITING = WorkloadState.WAITING.value
RUNNING = WorkloadState.RUNNING.value
SUSPENDED = WorkloadState.SUSPENDED.value


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Some of the same as arrays, for what is done to all rows at once; goal_s is inf without a usable goal."""

    cpu_mhz: Floats
    leaving: Bools
    movable: Bools
    aims: Bools
    goal_s: Floats
    urgency: Ints
    req_mhz: Floats
    least_mhz: Floats
    left: Floats


@dataclass(slots=True, eq=False)
class Problem:
    """The snapshot in columns.

    By row of the nodes: cpu_mhz and memory_mib, the total that workloads that may be changed can use on a node;
    free_mib, the current free memory; core_mhz and most_mhz, its clock and all its CPU; usable, may receive; leaving,
    to be evacuated.

    tracked: rows of the jobs that are predicted or may be changed; profiled: rows of `profile`, their stages.

    By row of the workloads (numbers of rows that are not `counted` have no meaning): sound: its profile can be used;
    state; counted: a job in the prediction; aims: it has a goal; is_replica; movable: runs and may be changed;
    may_start: waits or is suspended and may be placed now; cool: it was changed a short while ago; stays: it runs, and
    is never suspended for others; home, home_mhz: node and MHz of each instance now, or of each image; k: instances;
    spread; vcpus; memory (MiB); req_mhz, least_mhz: speed limits of this cycle; left: work left; full_mhz: speed of its
    current stage; stages: (work, full speed) of the rest if that is more than one stage; best_s: time to complete at
    full speed; goal_s; r_s: relative goal; weight: importance; top: utility at full speed from now on; idle: utility
    that it can still reach if it does not run in this cycle; urgency: the rank by `top`, jobs without a goal last;
    start_s, suspend_s, resume_s, migrate_s: durations of the operations.
    """

    snapshot: Snapshot
    params: Params
    now_s: float
    cycle_s: float
    cpu_mhz: list[float]
    memory_mib: list[float]
    free_mib: list[float]
    core_mhz: list[float]
    most_mhz: list[float]
    usable: Bools
    leaving: list[bool]
    tracked: list[int]
    profiled: Ints
    profile: JobStages
    columns: Columns
    sound: list[bool]
    state: list[int]
    counted: list[bool]
    aims: list[bool]
    is_replica: list[bool]
    movable: list[bool]
    may_start: list[bool]
    cool: list[bool]
    stays: list[bool]
    home: list[tuple[int, ...]]
    home_mhz: list[tuple[float, ...]]
    k: list[int]
    spread: list[bool]
    vcpus: list[int]
    memory: list[float]
    req_mhz: list[float]
    least_mhz: list[float]
    left: list[float]
    full_mhz: list[float]
    stages: list[list[tuple[float, float]] | None]
    best_s: list[float]
    goal_s: list[float]
    r_s: list[float]
    weight: list[float]
    top: list[float]
    idle: list[float]
    urgency: list[int]
    start_s: list[float]
    suspend_s: list[float]
    resume_s: list[float]
    migrate_s: list[float]

    def cap_mhz(self, row: int, node: int) -> float:
        """Return the most that one instance can be given on a node."""
        return min(self.req_mhz[row], self.vcpus[row] * self.core_mhz[node], self.most_mhz[node])

    def delay_s(self, row: int, place: tuple[int, ...], waits: Mapping[int, float]) -> float:
        """Return how long the workload makes no progress when it moves to `place`: until its last instance is there.

        waits: by node, the duration of the longest suspend there; arrivals wait for it.
        """
        state, home = self.state[row], self.home[row]
        if state == RUNNING and place == home:
            return 0.0
        longest = 0.0
        for index, node in enumerate(place):
            wait_s = waits.get(node, 0.0)
            if state == WAITING:
                wait_s += self.start_s[row]
            elif state == SUSPENDED:
                wait_s += self.resume_s[row] + (self.migrate_s[row] if home[index] != node else 0.0)
            elif home[index] == node:
                continue
            else:
                wait_s += self.migrate_s[row]
            longest = max(longest, wait_s)
        return longest

    def arriving(self, row: int, place: tuple[int, ...], node: int) -> int:
        """Return the number of instances that come to a node and are not there now."""
        if self.state[row] != RUNNING:
            return place.count(node)
        return sum(to == node and was != node for was, to in zip(self.home[row], place, strict=True))

    def leaving_any(self, row: int) -> bool:
        """Return whether a running workload has an instance on a node to be evacuated."""
        return any(0 <= node < len(self.leaving) and self.leaving[node] for node in self.home[row])


def _sound(snapshot: Snapshot) -> tuple[Bools, Bools]:
    """Return the rows whose profile can be used, and of these the jobs that have a defined utility, bool[w] each."""
    work = snapshot.workloads
    with np.errstate(all="ignore"):
        total = np.abs(work.submit_s) + np.abs(work.desired_start_s) + np.abs(work.not_before_s) + work.max_mhz
        total += work.min_mhz + work.memory_mib + work.work_mcycles + work.done_mcycles + work.importance
        sound = (total < LARGEST) & (work.max_mhz > 0.0) & (work.importance > 1.0 / LARGEST) & (work.vcpus >= 1)
        sound &= (work.min_mhz >= 0.0) & (work.memory_mib >= 0.0) & (work.work_mcycles >= 0.0)
        sound &= (work.done_mcycles >= 0.0) & (work.min_mhz <= work.max_mhz) & (work.instances >= 1)
        sound &= (np.abs(work.goal_s) < LARGEST) | np.isposinf(work.goal_s)
    again = repeated(work.names)
    if again:
        sound[list(again)] = False
    columns = snapshot.stages
    if columns.work_mcycles.size:
        with np.errstate(all="ignore"):
            fine = (columns.work_mcycles >= 0.0) & (columns.work_mcycles < LARGEST)
            fine &= (columns.max_mhz > 1.0 / LARGEST) & (columns.max_mhz < LARGEST)
            fine &= (columns.min_mhz >= 0.0) & (columns.min_mhz < LARGEST)
        bad = np.concatenate([[0], (~fine).cumsum()])
        sound &= bad[work.first_stage + work.stages] == bad[work.first_stage]
    return sound, sound & (work.app < 0)


def _places(snapshot: Snapshot) -> tuple[list[tuple[int, ...]], list[tuple[float, ...]], Bools]:
    """Node and MHz of each instance of what runs or is suspended, and whether each workload's are all known."""
    work = snapshot.workloads
    nodes, mhz = snapshot.instances.node.tolist(), snapshot.instances.cpu_mhz.tolist()
    count = len(snapshot.nodes.names)
    home: list[tuple[int, ...]] = []
    home_mhz: list[tuple[float, ...]] = []
    known = np.ones(len(work.names), dtype=np.bool_)
    firsts, counts, states = work.first_instance.tolist(), work.instances.tolist(), work.state.tolist()
    for row, (first, k, state) in enumerate(zip(firsts, counts, states, strict=True)):
        if state == WAITING or k < 1:
            home.append(())
            home_mhz.append(())
            continue
        where = tuple(nodes[first : first + k])
        home.append(where)
        home_mhz.append(tuple(mhz[first : first + k]))
        given = home_mhz[-1]
        reach = [node for node in where if node != ELSEWHERE] if state == SUSPENDED else where
        there = len(where) == k and min(reach, default=0) >= 0 and max(reach, default=-1) < count
        known[row] = there and 0.0 <= min(given) <= sum(given) < LARGEST
    return home, home_mhz, known


def _capacity(snapshot: Snapshot, movable: Bools) -> tuple[Floats, Floats]:
    """Return the free capacity of each node plus that held there by `movable` running workloads: MHz, MiB."""
    work, nodes = snapshot.workloads, snapshot.nodes
    cpu_mhz, memory_mib = nodes.free_cpu_mhz.copy(), nodes.free_memory_mib.copy()
    rows = movable.nonzero()[0]
    if rows.size:
        counts = work.instances[rows]
        owner = np.repeat(rows, counts)
        at = np.repeat(work.first_instance[rows] - (counts.cumsum() - counts), counts) + np.arange(owner.size)
        where = snapshot.instances.node[at]
        np.add.at(cpu_mhz, where, snapshot.instances.cpu_mhz[at])
        np.add.at(memory_mib, where, work.memory_mib[owner] + snapshot.vm_overhead_mib)
    return cpu_mhz, memory_mib


def _limits_mhz(snapshot: Snapshot) -> Floats:
    """Return the most that the fastest node could give to one instance of each workload, regardless of stages."""
    nodes, work = snapshot.nodes, snapshot.workloads
    fine = np.isfinite(nodes.cpu_mhz) & ~np.isnan(nodes.core_mhz)
    kinds = set(zip(nodes.core_mhz[fine].tolist(), nodes.cpu_mhz[fine].tolist(), strict=True))
    limit = np.zeros(len(work.names))
    for core_mhz, cpu_mhz in kinds:
        np.maximum(limit, np.minimum(work.vcpus * core_mhz, cpu_mhz), out=limit)
    return np.where(limit > 0.0, limit, np.inf)


def _ragged_stages(
    several: Ints, first: Ints, left: Floats, max_mhz: Floats, rows: int
) -> list[list[tuple[float, float]] | None]:
    stages: list[list[tuple[float, float]] | None] = [None] * rows
    lefts, most = left.tolist(), max_mhz.tolist()
    for row in several.tolist():
        here = range(int(first[row]), int(first[row + 1]))
        stages[row] = [(lefts[at], most[at]) for at in here if lefts[at] > 0.0]
    return stages


def problem_of(snapshot: Snapshot, params: Params) -> Problem:
    """Derive the problem from the snapshot; never raises for any values in it."""
    with np.errstate(all="ignore"):
        return _build(snapshot, params)


def _nodes_in_reach(snapshot: Snapshot) -> tuple[Bools, Bools]:
    """Return the nodes that may receive, and the nodes to be evacuated, bool[n] each; one of unknown capacity is
    neither."""
    nodes = snapshot.nodes
    known = (nodes.cpu_mhz < LARGEST) & (nodes.memory_mib < LARGEST) & ~np.isnan(nodes.core_mhz)
    known &= (np.abs(nodes.free_cpu_mhz) < LARGEST) & (np.abs(nodes.free_memory_mib) < LARGEST)
    usable = nodes.schedulable & ~nodes.draining & known & (nodes.cpu_mhz > 0.0) & (nodes.core_mhz > 0.0)
    leaving = nodes.draining & known
    again = repeated(nodes.names)
    if again:
        usable[list(again)] = False
        leaving[list(again)] = False
    return usable, leaving


def _movable(snapshot: Snapshot, sound: Bools, in_reach: Bools, home: list[tuple[int, ...]]) -> Bools:
    """Return the rows that run and may be changed, bool[w]."""
    work = snapshot.workloads
    movable = np.asarray(work.state == RUNNING) & sound & ~work.fixed
    if not in_reach.all():
        fine = in_reach.tolist()
        for row in movable.nonzero()[0].tolist():
            movable[row] = all(fine[node] for node in home[row])
    return np.asarray(movable)


def _profiles(snapshot: Snapshot, jobs: Bools) -> _Profiles:
    """Return the profiles of the jobs in this cycle, from their stages."""
    work, count = snapshot.workloads, len(snapshot.workloads.names)
    limit, chosen = _limits_mhz(snapshot), jobs.nonzero()[0]
    profile = stages_of(work, snapshot.stages, chosen, limit[chosen])
    needs = cycle_needs(profile, snapshot.cycle_s)
    req, least = work.max_mhz.copy(), work.min_mhz.copy()
    over = needs.req_mhz <= 0.0
    req[chosen] = np.where(over, work.max_mhz[chosen], needs.req_mhz)
    least[chosen] = np.where(over, work.min_mhz[chosen], needs.min_mhz)
    left, best_s = np.zeros(count), np.zeros(count)
    left[chosen], best_s[chosen] = left_mcycles(profile), finish_s(profile)
    ahead = best_s > 0.0
    full = np.where(ahead, left / np.where(ahead, best_s, 1.0), np.minimum(work.max_mhz, limit))
    stages: list[list[tuple[float, float]] | None] = [None] * count
    several = np.flatnonzero(np.diff(profile.first_stage) > 1)
    if several.size:
        per_stage = left_by_stage(profile)
        ragged = _ragged_stages(several, profile.first_stage, per_stage, profile.max_mhz, chosen.size)
        for at in several.tolist():
            stages[int(chosen[at])] = ragged[at]
    return _Profiles(chosen, profile, req, least_mhz=least, left=left, best_s=best_s, full_mhz=full, ragged=stages)


@dataclass(frozen=True, slots=True)
class _Profiles:
    rows: Ints
    stages: JobStages
    req_mhz: Floats
    least_mhz: Floats
    left: Floats
    best_s: Floats
    full_mhz: Floats
    ragged: list[list[tuple[float, float]] | None]


def _build(snapshot: Snapshot, params: Params) -> Problem:
    work, nodes, costs = snapshot.workloads, snapshot.nodes, snapshot.costs
    sound, jobs = _sound(snapshot)
    home, home_mhz, known = _places(snapshot)
    profiles_sound, sound = sound, sound & known
    usable, leaving = _nodes_in_reach(snapshot)
    movable = _movable(snapshot, sound, usable | leaving, home)
    cpu_mhz, memory_mib = _capacity(snapshot, movable)
    may_start = (work.state != RUNNING) & sound & ~work.fixed
    may_start &= np.maximum(work.desired_start_s, work.not_before_s) <= snapshot.now_s
    aims = jobs & np.isfinite(work.goal_s) & (work.goal_s > work.desired_start_s)
    counted = jobs & (aims | np.isposinf(work.goal_s))
    found = _profiles(snapshot, jobs)
    soonest = snapshot.now_s + found.best_s
    goal = np.where(aims, work.goal_s, np.inf)
    top = utility_at(soonest, work.desired_start_s, goal, work.importance)
    idle = utility_at(soonest + snapshot.cycle_s, work.desired_start_s, goal, work.importance)
    urgency = np.empty(len(top), dtype=np.int64)
    urgency[np.lexsort((work.submit_s, np.where(aims, top, np.inf)))] = np.arange(len(top))
    mib, tracked = work.memory_mib, (work.app < 0) & (movable | counted | may_start)
    return Problem(
        snapshot=snapshot,
        params=params,
        now_s=snapshot.now_s,
        cycle_s=snapshot.cycle_s,
        cpu_mhz=cpu_mhz.tolist(),
        memory_mib=memory_mib.tolist(),
        free_mib=nodes.free_memory_mib.tolist(),
        core_mhz=nodes.core_mhz.tolist(),
        most_mhz=nodes.cpu_mhz.tolist(),
        usable=usable,
        leaving=leaving.tolist(),
        tracked=tracked.nonzero()[0].tolist(),
        profiled=found.rows,
        profile=found.stages,
        columns=Columns(
            cpu_mhz,
            leaving,
            movable,
            aims=aims,
            goal_s=goal,
            urgency=urgency,
            req_mhz=found.req_mhz,
            least_mhz=found.least_mhz,
            left=found.left,
        ),
        sound=profiles_sound.tolist(),
        state=work.state.tolist(),
        counted=counted.tolist(),
        aims=aims.tolist(),
        is_replica=(work.app >= 0).tolist(),
        movable=movable.tolist(),
        may_start=may_start.tolist(),
        cool=(snapshot.now_s - work.changed_s < params.cool_down_s).tolist(),
        stays=(work.stays & (work.state == RUNNING)).tolist(),
        home=home,
        home_mhz=home_mhz,
        k=work.instances.tolist(),
        spread=work.spread.tolist(),
        vcpus=work.vcpus.tolist(),
        memory=(mib + snapshot.vm_overhead_mib).tolist(),
        req_mhz=found.req_mhz.tolist(),
        least_mhz=found.least_mhz.tolist(),
        left=found.left.tolist(),
        full_mhz=found.full_mhz.tolist(),
        stages=found.ragged,
        best_s=found.best_s.tolist(),
        goal_s=work.goal_s.tolist(),
        r_s=np.where(aims, work.goal_s - work.desired_start_s, 1.0).tolist(),
        weight=work.importance.tolist(),
        top=top.tolist(),
        idle=idle.tolist(),
        urgency=urgency.tolist(),
        start_s=costs.durations_s(ActionKind.START, mib).tolist(),
        suspend_s=costs.durations_s(ActionKind.SUSPEND, mib).tolist(),
        resume_s=costs.durations_s(ActionKind.RESUME, mib).tolist(),
        migrate_s=costs.durations_s(ActionKind.MIGRATE, mib).tolist(),
    )
