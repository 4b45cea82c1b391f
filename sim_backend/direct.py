"""The direct engine: a placement policy and the world, without bus, controller and agents. For sweeps.

Time jumps from event to event. Within one instant: completions and ends of operations, then arrivals, then one
scheduling pass. Cycles begin at 0 and every `cycle_s`. A pass is made
- at a cycle, when any job is there, or for an event-driven policy only when one waits or is suspended;
- for an event-driven policy also when a job arrived or ended, an operation that took time ended, or a job may start
  from now on, under the same condition.

What a decision wants is begun at once where there is room. An operation on a job is one for all its instances: it
begins when every node it goes to has room (so it waits for the suspends and migrations that make room, first decided
first served, and for nothing else), holds that room from then on, and ends after the cost of its slowest instance. The
job makes no progress during its own operation. A suspended job holds nothing; its images stay where it ran. Migrations
that wait for each other are broken up by suspending one of them. A policy sees as free what will be free once
everything wanted has come about, as the controller shows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from shared.clock import perf_s
from shared.costs import OperationCosts
from shared.errors import ContractViolation, Infeasible, InvalidInput, Problem
from shared.model import INSTANCE_SEPARATOR, ActionKind, Change, ChangeKind, Job, Node, instance_name
from shared.plugins import find_policy
from shared.ports import Policy
from shared.snapshot import Floats, Ints, WorkloadState
from sim_backend.direct_columns import Hold, Room, Workloads, snapshot
from sim_backend.figures import BusyNodes, JobRun, ReplayFigures, figures
from sim_backend.workloads import TrueStages, declared_stages
from sim_backend.world import World

_NOWHERE: Ints = np.empty(0, dtype=np.int64)
_NOTHING: Floats = np.empty(0)
_FROM = {
    ChangeKind.START: WorkloadState.WAITING,
    ChangeKind.RESUME: WorkloadState.SUSPENDED,
    ChangeKind.SUSPEND: WorkloadState.RUNNING,
    ChangeKind.MIGRATE: WorkloadState.RUNNING,
    ChangeKind.RESIZE: WorkloadState.RUNNING,
}


@dataclass(slots=True, eq=False)
class _Task:
    """A job in the engine. `nodes` and `cpu_mhz`: what its VMs hold, or where its images lie; `state` is the wanted
    one, with what it will hold in `wanted`; `fixed` while an operation on it waits or is under way."""

    row: int
    job: Job
    vms: list[str]
    memory_mib: float
    state: WorkloadState = WorkloadState.WAITING
    fixed: bool = False
    nodes: Ints = field(default_factory=lambda: _NOWHERE)
    cpu_mhz: Floats = field(default_factory=lambda: _NOTHING)
    wanted: Hold = (_NOWHERE, _NOTHING, 0.0)
    begin_s: float | None = None
    end_s: float | None = None


@dataclass(slots=True, eq=False)
class _Operation:
    """An operation on a whole job, towards `nodes` and `cpu_mhz`; `then`: what follows at once when it has ended."""

    kind: ActionKind
    task: _Task
    nodes: Ints
    cpu_mhz: Floats
    then: _Operation | None = None

    def moved(self) -> Ints:
        """The instances that change their node."""
        return np.flatnonzero(self.nodes != self.task.nodes)

    def needs(self) -> Hold:
        """The room it must have before it begins."""
        if self.kind is ActionKind.SUSPEND:
            return _NOWHERE, _NOTHING, 0.0
        if self.kind is ActionKind.MIGRATE:
            moved = self.moved()
            return self.nodes[moved], self.cpu_mhz[moved], self.task.memory_mib
        return self.nodes, self.cpu_mhz, self.task.memory_mib


def run_direct(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    *,
    policy: str | Policy,
    true_stages: Mapping[str, TrueStages] | None = None,
    costs: OperationCosts,
    window_s: float = math.inf,
    cycle_s: float = 900.0,
    params: Mapping[str, Any] | None = None,
) -> ReplayFigures:
    """Replay `jobs` on `nodes` under a placement policy, given as such or by its registered name.

    The figures are the world's truth over [0, window_s].
    `true_stages` by job name where the truth differs from what is declared. An infinite window ends when nothing more
    can happen. Raises `UnknownPolicy`; `Infeasible` for a job that no set of the empty nodes could hold;
    `InvalidInput` for two jobs or two nodes of one name, or no nodes; `ContractViolation` when the policy asks for
    what may not be done.
    """
    chosen = find_policy("placement", policy) if isinstance(policy, str) else policy
    begun_s = perf_s()
    _check(jobs, nodes)
    submitted = [job for job in jobs if job.submit_s < window_s]
    engine = _Engine(submitted, nodes, true_stages or {}, chosen, costs, cycle_s, dict(params or {}))
    end_s = engine.run(window_s)
    return figures(
        engine.runs(),
        engine.busy,
        nodes=len(nodes),
        window_s=end_s,
        wall_s=perf_s() - begun_s,
        operations=dict(sorted(engine.operations.items())),
    )


def _check(jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
    for what, values in (("job", jobs), ("node", nodes)):
        twice = [name for name, count in Counter(value.name for value in values).items() if count > 1]
        if twice:
            raise InvalidInput(*(Problem(f"{what} {name!r}", "named twice", "names that differ") for name in twice))
    if not nodes:
        raise InvalidInput(Problem("nodes", "there is none", "at least one"))
    slots: dict[Any, int] = {}
    for job in jobs:
        shape = job.memory_mib, job.max_mhz, job.vcpus, job.separate, job.needs
        if shape not in slots:
            slots[shape] = sum(_slots(job, node) for node in nodes)
        if slots[shape] < job.instances:
            raise Infeasible(f"job {job.name}: {job.instances} instances, but the empty nodes can hold {slots[shape]}")


def _slots(job: Job, node: Node) -> int:
    """How many instances of a job an empty node holds."""
    if job.memory_mib > node.usable_mib or not set(job.needs) <= set(node.labels):
        return 0
    if job.separate:
        return 1
    by_memory = node.usable_mib // job.memory_mib if job.memory_mib else job.instances
    return min(by_memory, int(node.cpu_mhz / job.speed_on_mhz(node) * (1 + 1e-9)))


class _Engine:
    def __init__(
        self,
        jobs: Sequence[Job],
        nodes: Sequence[Node],
        true_stages: Mapping[str, TrueStages],
        policy: Policy,
        costs: OperationCosts,
        cycle_s: float,
        params: dict[str, Any],
    ) -> None:
        self.policy, self.policy_state, self.params = policy, None, params
        self.costs, self.cycle_s = costs, cycle_s
        ordered = sorted(jobs, key=lambda job: (job.submit_s, job.name))
        self.jobs, self.true_stages = ordered, true_stages
        self.node_names = [node.name for node in nodes]
        self.node_rows = {node.name: row for row, node in enumerate(nodes)}
        self.world, self.workloads = World(), Workloads(ordered)
        self.room, self.wanted = Room(nodes), Room(nodes)  # what is free now, and once what is wanted has come about
        for node in nodes:
            self.world.add_host(node)
        self.tasks: dict[str, _Task] = {}  # submitted and not over
        self.submitted: list[_Task] = []
        self.busy = BusyNodes()
        self.operations: Counter[str] = Counter()
        self.pending: list[_Operation] = []  # wanted, waiting for room, in the order of decision
        self.ends: list[tuple[float, int, _Operation]] = []  # under way
        self.later: list[float] = []  # desired starts of submitted jobs that are still to come
        self.begun = 0
        self.touched = False  # whether anything happened at this instant
        self.not_running = 0  # jobs that a pass could serve: waiting or suspended, and not fixed

    # --- time ----------------------------------------------------------------------------------------------------

    def run(self, window_s: float) -> float:
        """Run to the end of the window, or until nothing can happen any more; returns when that is."""
        world, jobs, now_s = self.world, self.jobs, 0.0
        arrived, cycle, idle = 0, 0, False
        while True:
            next_s = world.next_end_s()
            next_s = math.inf if next_s is None else next_s
            if self.ends and self.ends[0][0] < next_s:
                next_s = self.ends[0][0]
            if arrived < len(jobs) and jobs[arrived].submit_s < next_s:
                next_s = jobs[arrived].submit_s
            if self.later and self.later[0] < next_s:
                next_s = self.later[0]
            cycle_at_s = cycle * self.cycle_s
            if self.workloads.live and cycle_at_s < next_s and not (idle and next_s == math.inf):
                next_s = cycle_at_s
            if next_s > window_s or next_s == math.inf:
                return now_s if window_s == math.inf else window_s
            now_s, self.touched = next_s, False
            event = self._happen(now_s)
            while arrived < len(jobs) and jobs[arrived].submit_s <= now_s:
                self._arrive(arrived, jobs[arrived])
                arrived, event = arrived + 1, True
            while cycle * self.cycle_s < now_s:  # cycles went by while no job was there
                cycle = max(cycle + 1, math.floor(now_s / self.cycle_s))
            cycle_due = cycle * self.cycle_s == now_s
            cycle += cycle_due
            if self._due(event, cycle_due):
                self._decide(now_s)
            idle = not self.touched

    def _due(self, event: bool, cycle_due: bool) -> bool:
        if self.policy.event_driven:
            return (event or cycle_due) and self.not_running > 0
        return cycle_due and bool(self.workloads.live)

    def _happen(self, now_s: float) -> bool:
        """Completions, then ends of operations, then starts that were waited for. Whether there was any."""
        over = self.world.advance(now_s)
        if over:
            self._complete(over, now_s)
        while self.ends and self.ends[0][0] <= now_s:
            self._end(heappop(self.ends)[2], now_s)
        while self.later and self.later[0] <= now_s:
            heappop(self.later)
            self.touched = True
        if self.pending:
            self._begin_pending(now_s)
        return self.touched

    def _arrive(self, row: int, job: Job) -> None:
        vms = [instance_name(job.name, index) for index in range(job.instances)]
        task = self.tasks[job.name] = _Task(row, job, vms, float(job.memory_mib))
        self.submitted.append(task)
        self.touched = True
        if job.desired_start_s > job.submit_s:
            heappush(self.later, job.desired_start_s)
        self.world.add_task(job.name, self.true_stages.get(job.name) or declared_stages(job), job.instances)
        self.workloads.arrive(row)
        self.not_running += 1

    def _complete(self, vms: Iterable[str], now_s: float) -> None:
        last = ""
        for vm in vms:
            self.world.remove(vm, now_s)
            name = vm.rpartition(INSTANCE_SEPARATOR)[0]
            if name == last:
                continue
            last = name
            task = self.tasks.pop(name)
            task.end_s, self.touched = now_s, True
            self._let_go((task.nodes, task.cpu_mhz, task.memory_mib), now_s)
            self.wanted.give(*task.wanted)
            self.workloads.leave(task.row)
            if task.fixed:  # it ended while an operation on it waited for room
                self.pending = [operation for operation in self.pending if operation.task is not task]

    # --- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, now_s: float) -> None:
        """One scheduling pass."""
        for task in self.tasks.values():
            if task.begin_s is not None:
                self.workloads.measure(task.row, self.world.done_mcycles(task.job.name, now_s))
        seen = snapshot(now_s, self.cycle_s, self.wanted, self.workloads)
        decision, self.policy_state = self.policy.decide(seen, self.policy_state, self.params)
        wanted = [operation for change in decision.changes if (operation := self._commit(change, now_s)) is not None]
        # What makes room goes first, whatever the order in which the policy names the changes.
        self.pending += sorted(wanted, key=lambda operation: operation.kind is not ActionKind.SUSPEND)
        if self.pending:
            self._begin_pending(now_s)

    def _commit(self, change: Change, now_s: float) -> _Operation | None:
        """Note what is wanted from now on; the operation that brings it about (a resize is done at once)."""
        task = self.tasks.get(change.workload)
        if task is None or task.fixed or task.state is not _FROM[change.kind]:
            raise ContractViolation(
                f"{change.kind} of {change.workload}, which is not there, is over, or in another state"
            )
        if change.revision != self.workloads.revision(task.row):
            raise ContractViolation(f"{change.kind} of {change.workload} is for revision {change.revision}")
        if task.state is WorkloadState.RUNNING:
            self.wanted.give(*task.wanted)
        if change.kind is ChangeKind.SUSPEND:
            nodes, cpu_mhz, state = task.nodes, np.zeros(len(task.nodes)), WorkloadState.SUSPENDED
        else:
            nodes, cpu_mhz = self._allotted(change, task)
            state, task.wanted = WorkloadState.RUNNING, (nodes, cpu_mhz, task.memory_mib)
            self.wanted.take(*task.wanted)
        self.operations[change.kind.value] += 1
        resize = change.kind is ChangeKind.RESIZE
        self.workloads.change(task.row, state, nodes, cpu_mhz, fixed=not resize)
        if resize:
            self._resize(task, cpu_mhz, now_s)
            return None
        if task.state is not WorkloadState.RUNNING:
            self.not_running -= 1
        task.state, task.fixed = state, True
        return _Operation(ActionKind(change.kind.value), task, nodes, cpu_mhz)

    def _allotted(self, change: Change, task: _Task) -> tuple[Ints, Floats]:
        if len(change.allotments) != len(task.vms):
            raise ContractViolation(
                f"{change.workload}: {len(change.allotments)} allotments, {len(task.vms)} instances"
            )
        rows = self.node_rows
        try:
            nodes = np.array([rows[allotment.node] for allotment in change.allotments], dtype=np.int64)
        except KeyError as error:
            raise ContractViolation(f"{change.workload}: there is no node {error}") from error
        return nodes, np.array([allotment.cpu_mhz for allotment in change.allotments], dtype=np.float64)

    def _resize(self, task: _Task, cpu_mhz: Floats, now_s: float) -> None:
        self.room.give(task.nodes, task.cpu_mhz, 0.0)
        self.room.take(task.nodes, cpu_mhz, 0.0)
        task.cpu_mhz = cpu_mhz
        for vm, weight_mhz in zip(task.vms, cpu_mhz.tolist(), strict=True):
            self.world.set_weight(vm, weight_mhz, math.inf, now_s)

    # --- operations ----------------------------------------------------------------------------------------------

    def _begin_pending(self, now_s: float) -> None:
        """Begin every operation that has room, in the order of decision, as long as that makes more room."""
        while self.pending:
            waiting, self.pending = self.pending, []
            held = [operation for operation in waiting if not self._begin(operation, now_s)]
            some_began = len(held) < len(waiting)
            self.pending = held + self.pending  # an operation that ended at once may have a successor
            if not some_began:
                if self.ends:
                    return  # what is under way will make the room
                self._break_up(now_s)

    def _break_up(self, now_s: float) -> None:
        """Nothing that waits can ever begin: turn the first migration into a suspend and a resume."""
        stuck = [operation for operation in self.pending if operation.kind is ActionKind.MIGRATE]
        if not stuck:
            names = ", ".join(operation.task.job.name for operation in self.pending)
            raise ContractViolation(f"the policy gave away room that there is not: {names} at {now_s} s")
        first = stuck[0]
        resume = _Operation(ActionKind.RESUME, first.task, first.nodes, first.cpu_mhz)
        self.pending.remove(first)
        self.pending.insert(0, _Operation(ActionKind.SUSPEND, first.task, first.task.nodes, first.cpu_mhz, resume))

    def _begin(self, operation: _Operation, now_s: float) -> bool:
        """Begin an operation if there is room for it; one that takes no time also ends."""
        task, kind = operation.task, operation.kind
        nodes, cpu_mhz, memory_mib = operation.needs()
        if len(nodes):
            if not self.room.try_take(nodes, cpu_mhz, memory_mib):
                return False
            self.busy.hold(nodes.tolist(), now_s)
        elsewhere = False
        if kind is ActionKind.START:
            task.begin_s = now_s
        elif kind is ActionKind.RESUME:
            elsewhere = len(operation.moved()) > 0
        elif kind is ActionKind.SUSPEND:
            for vm in task.vms:
                self.world.remove(vm, now_s)
        else:
            for vm in task.vms:
                self.world.set_running(vm, False, now_s)
        duration_s = self.costs.duration_s(kind, task.memory_mib, elsewhere)
        if duration_s > 0.0:
            self.begun += 1
            heappush(self.ends, (now_s + duration_s, self.begun, operation))
        else:
            self._end(operation, now_s)
        return True

    def _end(self, operation: _Operation, now_s: float) -> None:
        """The operation is over: what it freed is free, and the job executes unless it was suspended."""
        task, kind, self.touched = operation.task, operation.kind, True
        if kind is ActionKind.SUSPEND:
            self._let_go((task.nodes, task.cpu_mhz, task.memory_mib), now_s)
            if operation.then is not None:
                self.pending.append(operation.then)
                return
            self.not_running += 1
        elif kind is ActionKind.MIGRATE:
            self._arrived(operation, now_s)
        else:
            task.nodes, task.cpu_mhz = operation.nodes, operation.cpu_mhz
            names, vcpus, memory_mib = self.node_names, task.job.vcpus, task.memory_mib
            for vm, node, mhz in zip(task.vms, task.nodes.tolist(), task.cpu_mhz.tolist(), strict=True):
                self.world.place(vm, names[node], now_s, mhz, math.inf, vcpus, memory_mib)
        task.fixed = False
        self.workloads.release(task.row)

    def _arrived(self, operation: _Operation, now_s: float) -> None:
        """A migration is over: the room it came from is free, all instances go on."""
        task, moved = operation.task, operation.moved()
        self._let_go((task.nodes[moved], task.cpu_mhz[moved], task.memory_mib), now_s)
        for index in moved.tolist():
            self.world.move(task.vms[index], self.node_names[int(operation.nodes[index])], now_s)
        stayed = np.setdiff1d(np.arange(len(task.vms)), moved)
        self.room.give(task.nodes[stayed], task.cpu_mhz[stayed], 0.0)
        self.room.take(task.nodes[stayed], operation.cpu_mhz[stayed], 0.0)
        task.nodes, task.cpu_mhz = operation.nodes, operation.cpu_mhz
        for vm, weight_mhz in zip(task.vms, task.cpu_mhz.tolist(), strict=True):
            self.world.set_weight(vm, weight_mhz, math.inf, now_s)
            self.world.set_running(vm, True, now_s)

    def _let_go(self, held: Hold, now_s: float) -> None:
        self.room.give(*held)
        self.busy.release(held[0].tolist(), now_s)

    def runs(self) -> list[JobRun]:
        """What became of every submitted job, in order of submission."""
        return [
            JobRun(task.job.name, task.job.submit_s, task.begin_s, task.end_s, task.job.goal_s)
            for task in self.submitted
        ]
