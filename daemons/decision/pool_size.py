"""How many nodes all that is of no window's queue needs besides those of the deadline windows: the fewest with which
placement predicts no smaller utility below 0 than with all of them, and finds a place for what has no goal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from daemons.models import node_choice
from shared.policy_api.decision import ChangeKind, PlacementDecision, ProvisioningDecision, Reason, ReasonCode
from shared.policy_api.snapshot import Bools, Ints, Snapshot, WorkloadState

TOLERANCE = 0.01
LEAST = -1e6  # a utility as low as can be told: a job that does not run at all has one without end
Place = Callable[[Snapshot], PlacementDecision]
_PLACING = frozenset({ChangeKind.START, ChangeKind.RESUME, ChangeKind.MIGRATE, ChangeKind.RESIZE})


@dataclass(frozen=True, slots=True)
class Before:
    """What was enough at a decision: so many other nodes, and so many nodes in all."""

    others: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Covered(Before):
    """A decision with other nodes, and what was enough."""

    decision: ProvisioningDecision


def size_pool(
    snapshot: Snapshot, decision: ProvisioningDecision, place: Place, tolerance: float, before: Before | None = None
) -> Covered:
    """Return the decision with as many other nodes as needed, in the order in which they are chosen. The number that
    sufficed at the decision `before` is kept for one more, unless the windows now have that many nodes themselves.

    place: runs the placement policy on a snapshot, called O(log n) times. A size is refused if the smallest utility of
    jobs with goals and web applications is below 0 and lower by `tolerance` than with all nodes. If there are no
    predictions, a size is refused if some of them find no place although they do with all nodes; also if some cannot
    leave their nodes. In that case the utility in `refused` is minus their number. Workloads without a goal count too:
    web applications by the places of their instances, jobs unless they are in an open window's queue; they need a place
    besides the jobs that the window's own nodes execute.
    """
    base = rows(snapshot, decision.in_service)
    more = node_choice.others(snapshot, base)
    refused: list[tuple[int, float]] = []
    judge = _Judge(snapshot, place, base)
    needed = _needed(snapshot, judge, more, tolerance, refused)
    kept = 0 if before is None else min(before.others, before.nodes - int(base.sum()), more.size)
    count = max(needed, kept)
    decision = replace(decision, refused=tuple(sorted(refused)))
    if count:
        chosen = _with(base, more[:count])
        numbers = [("in_service", float(chosen.sum())), ("others", float(count)), ("tried", float(judge.tried))]
        if count > needed:
            numbers.append(("needed", float(needed)))
        reason = Reason(ReasonCode.NEEDED, tuple(numbers))
        decision = replace(decision, in_service=node_choice.names(snapshot, chosen), reason=reason)
    return Covered(needed, int(base.sum()) + needed, decision)


def _needed(snapshot: Snapshot, judge: _Judge, more: Ints, tolerance: float, refused: list[tuple[int, float]]) -> int:
    """Return the number of the nodes that are needed; insufficient cluster sizes are added to `refused`."""
    base = judge.base
    if not more.size or not judge.needs_any:
        return 0
    best = judge.standing(_with(base, more))

    def enough(count: int) -> bool:
        fewer = judge.standing(_with(base, more[:count]))
        lower = fewer.below(best, tolerance)
        if lower is not None:
            refused.append((int(base.sum()) + count, lower))
        return lower is None

    return _fewest(more.size, int(node_choice.wanted(snapshot)[more].sum()), enough)


def rows(snapshot: Snapshot, names: tuple[str, ...]) -> Bools:
    """Return bool[n]: the first row of each name."""
    wanted = frozenset(names)
    inside = np.array([name in wanted for name in snapshot.nodes.names], dtype=np.bool_)
    return inside & node_choice.available(replace(snapshot, power=None))


def with_nodes(snapshot: Snapshot, chosen: Bools, at_last: bool) -> Snapshot:
    """Return the cluster with only the chosen nodes in service, the others being evacuated if jobs may leave them.
    `at_last`: after the nodes that are not in service yet have come up."""
    nodes, power = snapshot.nodes, snapshot.power
    open_now = nodes.schedulable if power is None or not at_last else power.available
    kept_out = nodes.draining if power is None else nodes.draining & ~power.available
    draining = np.where(chosen, kept_out, nodes.draining | ~_held(snapshot))
    return replace(snapshot, nodes=replace(nodes, schedulable=open_now & chosen, draining=draining))


def _set_aside(snapshot: Snapshot, gone: Bools) -> Snapshot:
    """Return the cluster in which these workloads hold nothing and are not placed."""
    work, nodes = snapshot.workloads, snapshot.nodes
    free_mhz, free_mib = nodes.free_cpu_mhz.copy(), nodes.free_memory_mib.copy()
    for row in np.flatnonzero(gone & (work.state == WorkloadState.RUNNING.value)).tolist():
        first = work.first_instance[row]
        here = slice(first, first + work.instances[row])
        places = snapshot.instances.node[here]
        there = places >= 0
        np.add.at(free_mhz, places[there], snapshot.instances.cpu_mhz[here][there])
        np.add.at(free_mib, places[there], work.memory_mib[row] + snapshot.vm_overhead_mib)
    state = np.where(gone, WorkloadState.WAITING.value, work.state)
    return replace(
        snapshot,
        nodes=replace(nodes, free_cpu_mhz=free_mhz, free_memory_mib=free_mib),
        workloads=replace(work, state=state, fixed=work.fixed | gone),
    )


def _with(base: Bools, more: np.ndarray) -> Bools:
    chosen = base.copy()
    chosen[more] = True
    return chosen


def _fewest(most: int, present: int, enough: Callable[[int], bool]) -> int:
    """Return the least number from 0 to `most` that suffices, given that more are never worse; `most` suffices. Checks
    `present` early."""
    if enough(0):
        return 0
    low, high = 0, most
    if 0 < present < most:
        low, high = (low, present) if enough(present) else (present, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _held(snapshot: Snapshot) -> Bools:
    """Return bool[n]: nodes with an instance of a job that must not be changed now."""
    work, held = snapshot.workloads, np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    for row in np.flatnonzero(work.fixed & (work.state == WorkloadState.RUNNING.value)).tolist():
        first = work.first_instance[row]
        places = snapshot.instances.node[first : first + work.instances[row]]
        held[places[places >= 0]] = True
    return held


@dataclass(frozen=True, slots=True)
class _Standing:
    """The outcome for the workloads that count: the smallest utility (None: no prediction), the jobs with a place in
    service, the number of instances of each web application, and the workloads that stay on nodes to be evacuated."""

    utility: float | None
    jobs: frozenset[str]
    instances: Counter[int]
    stuck: frozenset[str]

    def below(self, best: _Standing, tolerance: float) -> float | None:
        """Return the utility, or minus the number without a place, if that is too low compared with the best; else
        None."""
        if self.utility is not None and best.utility is not None:
            if self.utility < 0.0 and self.utility < best.utility - tolerance:
                return self.utility
        elif best.utility is not None:
            return -1.0
        lacking = len(best.jobs - self.jobs) + (best.instances - self.instances).total()
        lacking += len(self.stuck - best.stuck)
        return -float(lacking) if lacking else None


class _Judge:
    """Places those that count on parts of the cluster. `tried`: how often; `base`: the nodes of windows."""

    def __init__(self, snapshot: Snapshot, place: Place, base: Bools) -> None:
        self._snapshot, self._place, self.base, self.tried = snapshot, place, base, 0
        work = snapshot.workloads
        job = work.app < 0
        self._goals = job & np.isfinite(work.goal_s)
        self._free = job & ~self._goals & ~work.queued
        self._apps = ~job
        flows = np.isin(work.app, self._snapshot.flows.app)
        self._unpredicted = self._free | (self._apps & ~flows)  # has no goal: no utility tells what becomes of it
        names = np.array(work.names, dtype=object)
        self._named = frozenset(names[self._goals].tolist()) | frozenset(snapshot.web.names)
        self._beside: Snapshot | None = None  # what jobs without goals share with those of queues
        if (work.queued & job).any() and self._free.any():
            self._beside = _set_aside(snapshot, work.queued & job & ~self._within_base())

    @property
    def needs_any(self) -> bool:
        """Whether anything asks for nodes."""
        return bool(self._goals.any() or self._free.any() or self._apps.any())

    def standing(self, chosen: Bools) -> _Standing:
        """Return the outcome of the placement policy on the cluster with only these nodes."""
        demands = self._goals | self._apps
        if self._beside is None:
            return self._placing(self._snapshot, chosen, demands | self._free)
        free = self._placing(self._beside, chosen, self._free)
        if not demands.any():
            return replace(free, utility=0.0)
        found = self._placing(self._snapshot, chosen, demands)
        return replace(found, jobs=found.jobs | free.jobs, stuck=found.stuck | free.stuck)

    def _placing(self, snapshot: Snapshot, chosen: Bools, counted: Bools) -> _Standing:
        self.tried += 1
        seen = with_nodes(snapshot, chosen, at_last=True)
        decision = self._place(seen)
        outlook = decision.outlook
        places = _places(seen, decision)
        stuck = self._stuck(places, seen.nodes.draining, counted)
        if outlook is None:
            return _Standing(None, *self._placed(places, chosen, counted), stuck)
        known = [
            max(utility, LEAST)
            for name, utility in zip(outlook.names, outlook.under_planned_load(), strict=True)
            if name in self._named and not math.isnan(utility)
        ]
        return _Standing(min(known, default=0.0), *self._placed(places, chosen, counted & self._unpredicted), stuck)

    def _within_base(self) -> Bools:
        """Return bool[w]: runs, and on nodes of windows only."""
        work = self._snapshot.workloads
        inside = work.state == WorkloadState.RUNNING.value
        for row in np.flatnonzero(inside).tolist():
            first = work.first_instance[row]
            places = self._snapshot.instances.node[first : first + work.instances[row]]
            inside[row] = bool(self.base[places[places >= 0]].all())
        return np.asarray(inside)

    def _stuck(self, places: dict[int, list[int]], draining: Bools, counted: Bools) -> frozenset[str]:
        names = self._snapshot.workloads.names
        stuck = (row for row, nodes in places.items() if counted[row] and any(draining[node] for node in nodes))
        return frozenset(names[row] for row in stuck)

    def _placed(
        self, places: dict[int, list[int]], chosen: Bools, counted: Bools
    ) -> tuple[frozenset[str], Counter[int]]:
        work = self._snapshot.workloads
        inside = [row for row, nodes in places.items() if counted[row] and all(chosen[node] for node in nodes)]
        jobs = frozenset(work.names[row] for row in inside if work.app[row] < 0)
        return jobs, Counter(int(work.app[row]) for row in inside if work.app[row] >= 0)


def _places(snapshot: Snapshot, decision: PlacementDecision) -> dict[int, list[int]]:
    """Return the nodes of every workload that runs after the decision, by rows; unknown nodes are left out."""
    work = snapshot.workloads
    node_rows = {name: row for row, name in reversed(list(enumerate(snapshot.nodes.names)))}
    work_rows = {name: row for row, name in reversed(list(enumerate(work.names)))}
    places: dict[int, list[int]] = {}
    for row in np.flatnonzero(work.state == WorkloadState.RUNNING.value).tolist():
        first = work.first_instance[row]
        found = snapshot.instances.node[first : first + work.instances[row]]
        places[row] = [node for node in found.tolist() if node >= 0]
    for change in decision.changes:
        row = work_rows[change.workload]
        places.pop(row, None)
        if change.kind in _PLACING:
            places[row] = [node_rows[given.node] for given in change.allotments]
    return places
