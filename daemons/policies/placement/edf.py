"""Preemptive earliest goal first, for gangs too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from daemons.models.placement_rules import PlacementRules
from daemons.policies.placement.free_capacity import Fit, FreeCapacity, Shape, repeated, shape_of
from daemons.policies.placement.moves import begin, change, drain, find_fit, held
from daemons.policies.placement.refusals import refusals
from daemons.policies.placement.replicas import start_missing_replicas
from daemons.policies.placement.sharers import Sharers, sharers_of, sharing_problems
from daemons.policies.placement.waiting import Pending, asking, profile_problem, screen
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.policies import Needs
from shared.policy_api.snapshot import Floats, Ints, Snapshot, WorkloadState


@dataclass(frozen=True, slots=True)
class _Runner:
    """A running job that may be preempted, and the resources that it would free: per instance, memory with overhead."""

    row: int
    goal_s: float
    memory_mib: float
    node: Ints
    cpu_mhz: Floats


def _runners(snapshot: Snapshot, moved: set[int]) -> list[_Runner]:
    """Running jobs that may be preempted, latest goal first (ties: last submitted first)."""
    work = snapshot.workloads
    runs = work.state == WorkloadState.RUNNING.value
    rows = (runs & ~work.fixed & ~work.stays & (work.app < 0) & ~np.isnan(work.goal_s)).nonzero()[0]
    rows = rows[np.lexsort((work.submit_s[rows], work.goal_s[rows]))][::-1]
    again = repeated(work.names) | moved
    found = []
    for row in rows.tolist():
        node, cpu_mhz = held(snapshot, row)
        sound = node.size == work.instances.item(row) and (node >= 0).all() and np.isfinite(cpu_mhz).all()
        if sound and row not in again and profile_problem(snapshot, row) is None:
            memory_mib = work.memory_mib.item(row) + snapshot.vm_overhead_mib
            found.append(_Runner(row, work.goal_s.item(row), memory_mib, node, cpu_mhz))
    return found


@dataclass(slots=True)
class _Pass:
    """The state of one decision in progress. `ceiling` is the free capacity if every runner with a later goal were
    preempted."""

    room: FreeCapacity
    runners: list[_Runner]
    ceiling: FreeCapacity
    changes: list[Change]
    sharers: Sharers | None
    gone: set[int] = field(default_factory=set)

    @classmethod
    def begin(cls, room: FreeCapacity, changes: list[Change], runners: list[_Runner], sharers: Sharers | None) -> _Pass:
        ceiling = room.copy() if runners else room
        for runner in runners:
            ceiling.release(runner.node, runner.memory_mib, runner.cpu_mhz)
            ceiling.vacate(runner.row)
        return cls(room, runners, ceiling, changes, sharers)

    def lower_ceiling(self, goal_s: float) -> None:
        """Runners whose goal is not later than `goal_s` keep their room from here on."""
        while self.runners and not self.runners[-1].goal_s > goal_s:
            runner = self.runners.pop()
            if runner.row not in self.gone:
                self.ceiling.release(runner.node, -runner.memory_mib, -runner.cpu_mhz)
                self.ceiling.settle(runner.row, runner.node)

    def serve(self, row: int, shape: Shape) -> int | None:
        """Place the job in free room or in room made for it; else how many instances there could be room for."""
        work = self.room.snapshot.workloads
        goal_s = work.goal_s.item(row)
        self.lower_ceiling(goal_s)
        fit = self._find_fit(self.room, row, shape)
        if fit.rows is None and self.ceiling is not self.room:
            fit = self._preempt(row, shape, goal_s)
        if fit.rows is None:
            return fit.slots
        numbers = (("goal_s", goal_s),) if math.isfinite(goal_s) else ()
        reason = Reason(ReasonCode.EARLIER_GOAL if numbers else ReasonCode.ARRIVAL_ORDER, numbers)
        if self.sharers is not None:
            self.sharers.take(row, fit.rows, self.room.allotment_mhz(shape)[fit.rows])
            reason = self.sharers.with_slowdown(reason, row, fit.rows)
        self.changes.append(begin(self.room, row, shape, fit.rows, reason))
        if self.ceiling is not self.room:
            self.ceiling.take(shape, fit.rows)
            self.ceiling.settle(row, fit.rows)
        return None

    def _find_fit(self, room: FreeCapacity, row: int, shape: Shape) -> Fit:
        return find_fit(room, row, shape) if self.sharers is None else self.sharers.find_fit(room, row, shape)

    def _preempt(self, row: int, shape: Shape, goal_s: float) -> Fit:
        instances = self.room.snapshot.workloads.instances.item(row)
        ruled = self.room.ruled(row) is not None
        at_best = find_fit(self.ceiling, row, shape) if ruled else self.ceiling.first_fit(shape, instances)
        if at_best.rows is None:
            return at_best
        active = (runner for runner in self.runners if runner.row not in self.gone)
        losers = _losers(self.room, row, shape, active)
        trial = _without(self.room, losers)
        for runner in losers:
            if self.sharers is not None:
                self.sharers.leave(runner.row)
        fit = self._find_fit(trial, row, shape)
        if fit.rows is None:  # only by a rounding of sums of floats
            for runner in losers:
                if self.sharers is not None:
                    self.sharers.take(runner.row, runner.node, runner.cpu_mhz)
            return Fit(None, instances)
        self.room.take_over(trial)
        for runner in losers:
            self.gone.add(runner.row)
            later = (("goal_s", runner.goal_s),) if math.isfinite(runner.goal_s) else ()
            reason = Reason(ReasonCode.LATER_GOAL, (*later, ("preempted_to_goal_s", goal_s)))
            self.changes.append(change(self.room.snapshot, runner.row, ChangeKind.SUSPEND, (), reason))
        return fit


def _losers(room: FreeCapacity, row: int, shape: Shape, runners: Iterable[_Runner]) -> list[_Runner]:
    """Return the runners to suspend for a job: where others do not matter, only which nodes it may use limits them."""
    rules = room.ruled(row)
    if rules is not None and row in rules.relations:
        return _fewest_ruled(room, rules, row, shape, runners)
    instances = room.snapshot.workloads.instances.item(row)
    return _fewest(room, shape, instances, runners, None if rules is None else rules.allowed(row).tolist())


def _fewest(
    room: FreeCapacity, shape: Shape, instances: int, runners: Iterable[_Runner], allowed: Sequence[bool] | None
) -> list[_Runner]:
    """Runners to suspend so that the instances fit: from the latest goal on until they do, then less those, from the
    earliest goal on, without whom they still do. allowed: by node (None: all)."""
    mib, mhz = room.free_mib.tolist(), room.free_mhz.tolist()
    slots = room.slots(shape, instances).tolist()
    if allowed is not None:
        slots = [count if may else 0 for count, may in zip(slots, allowed, strict=True)]
    total = sum(slots)

    def shift(runner: _Runner, sign: float) -> None:
        nonlocal total
        for node, cpu_mhz in zip(runner.node.tolist(), runner.cpu_mhz.tolist(), strict=True):
            mib[node] += sign * runner.memory_mib
            mhz[node] += sign * cpu_mhz
            if allowed is not None and not allowed[node]:
                continue
            now = room.slots_at(shape, node, instances, mib[node], mhz[node])
            total += now - slots[node]
            slots[node] = now

    chosen: list[_Runner] = []
    for runner in runners:
        shift(runner, 1.0)
        chosen.append(runner)
        if total >= instances:
            break
    kept = []
    for runner in reversed(chosen):
        shift(runner, -1.0)
        if total < instances:
            shift(runner, 1.0)
            kept.append(runner)
    return kept[::-1]


def _without(room: FreeCapacity, losers: Iterable[_Runner]) -> FreeCapacity:
    """Return the room as it would be if these runners were suspended."""
    trial = room.copy()
    for runner in losers:
        trial.release(runner.node, runner.memory_mib, runner.cpu_mhz)
        trial.vacate(runner.row)
    return trial


def _fewest_ruled(
    room: FreeCapacity, rules: PlacementRules, row: int, shape: Shape, runners: Iterable[_Runner]
) -> list[_Runner]:
    """Return runners to suspend as `_fewest` does, for a job with rules about others. Only runners on nodes that it may
    use, or that a rule relates to it, are looked at: the others could not make room."""
    allowed = rules.allowed(row)
    related = {other for relation in rules.relations.get(row, ()) for other in relation.related(row)}
    useful = (runner for runner in runners if runner.row in related or allowed[runner.node].any())

    def fits(losers: Sequence[_Runner]) -> bool:
        return find_fit(_without(room, losers), row, shape).rows is not None

    losers: list[_Runner] = []
    low = 0
    while not fits(losers):
        low, more = len(losers) + 1, list(islice(useful, max(1, len(losers))))
        if not more:
            return losers
        losers += more
    high = len(losers)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(losers[:middle]) else (middle + 1, high)
    losers = losers[:high]
    for runner in reversed(losers[:-1]):
        fewer = [other for other in losers if other is not runner]
        if fits(fewer):
            losers = fewer
    return losers


class EarliestDeadlineFirst:
    """Waiting and suspended jobs by goal (none: last), then arrival. Each takes free capacity by first fit, else the
    place of running jobs with later goals: the latest first, as few as are needed, whole gangs, never without placing
    the job.

    Draining nodes are evacuated and required rules repaired first, and web applications get their minimum number of
    instances, as by first-fit. Neither those nor jobs with instances on draining nodes are preempted. A preempted job
    is suspended and considered again at the next decision. Parameters `preempt` (bool, default true) and `sharing`, as
    of first-fit.
    """

    name = "edf"
    needs = Needs()
    event_driven = True

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a parameter that there is not, or another value than it may have."""
        where, known = f"policy {self.name}", ("preempt", "sharing")
        problems = [
            Problem(f"{where}: {key}", "there is no such parameter", ", ".join(known))
            for key in params
            if key not in known
        ]
        problems += sharing_problems(params, where)
        if not isinstance(params.get("preempt", True), bool):
            problems.append(Problem(f"{where}: preempt", f"{params['preempt']!r} is no bool", "true or false"))
        if problems:
            raise InvalidInput(*problems)

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, None]:
        """Serve jobs by goal; `state` is not used. Raises `InvalidInput` as `check_params` does, nothing else."""
        del state
        self.check_params(params)
        work, room = snapshot.workloads, FreeCapacity(snapshot)
        changes, refused = drain(room)
        start_missing_replicas(room, changes, refused)
        rows, at_once = screen(snapshot, asking(snapshot))
        rows = rows[work.goal_s[rows].argsort(kind="stable")]
        on_draining = set(refused) | _rows_named(snapshot, changes)
        refused.update(at_once)
        runners = _runners(snapshot, on_draining) if rows.size and params.get("preempt", True) else []
        sharers = sharers_of(snapshot, params, changes)
        in_progress, pending = _Pass.begin(room, changes, runners, sharers), Pending(snapshot, rows)
        for row in pending:
            shape = shape_of(snapshot, row)
            slots = in_progress.serve(row, shape)
            if slots is None:
                pending.placed()
            elif room.ruled(row) is None:
                pending.strike(shape, slots)
        return PlacementDecision(tuple(changes), refusals(room, refused, pending.left), pending.tried), None


def _rows_named(snapshot: Snapshot, changes: list[Change]) -> set[int]:
    """Return the rows of the workloads that the changes affect."""
    if not changes:
        return set()
    row_of = {name: row for row, name in reversed(list(enumerate(snapshot.workloads.names)))}
    return {row_of[made.workload] for made in changes}
