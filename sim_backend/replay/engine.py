"""The direct engine: a placement policy and the world, without bus, controller and agents. For parameter sweeps.

Time jumps from event to event. Within one instant the order is: completions and ends of operations, arrivals, one
scheduling pass. Cycles begin at 0 and every `cycle_s`. A pass is made

- at a cycle, when any job or web application exists; for an event-driven policy only when a job waits, is suspended
  or gets less CPU than it could use, when a web application exists, where sharing counts, or where every cycle is
  requested;
- for an event-driven policy also when a job arrived or ended, an operation that took time ended, or a job may start
  from now on, if a job waits or is suspended or a web application has fewer instances than its minimum.

Cycles without a pass are skipped.

The changes of a decision begin at once where there is capacity. An operation on a job covers all its instances. It
begins when every node it goes to has capacity, holds that capacity from then on, and ends after the cost of its slowest
instance. It therefore waits only for the suspends and migrations that free capacity, in the order of decisions. The job
makes no progress during its own operation. A suspended job holds no capacity; its images stay where it ran. Migrations
that wait for each other are resolved by suspending one of them. A policy sees as free the capacity that will be free
once all changes are complete, as the controller shows it. Instances of web applications use exactly their allotted CPU;
those of jobs share the rest of the node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from shared.base.clock import perf_s
from shared.base.errors import ContractViolation
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision
from shared.policy_api.policies import Policy
from shared.policy_api.snapshot import Floats, Ints, Snapshot, WorkloadState
from shared.ports.plugins import find_policy
from shared.values.actions import ActionKind
from shared.values.jobs import INSTANCE_SEPARATOR, Job, instance_name
from shared.values.load_vector import IO
from shared.values.nodes import Node
from shared.values.operation_costs import OperationCosts
from sim_backend.replay.columns import Hold, NodeCapacity, Workloads
from sim_backend.replay.tasks import FROM, MAKES_ROOM, NOTHING, NOWHERE, Operation, Pass, Task, check_input
from sim_backend.replay.web_loads import WebLoad, flow_columns, web_columns
from sim_backend.replay.workloads import TrueStages, declared_stages
from sim_backend.world.figures import BusyNodes, JobRun, ReplayFigures, figures
from sim_backend.world.world import World

_ENDLESS = ((1e30, math.inf),)  # the work of an instance of a web application: it takes whatever it is given
_NEVER_S = 1e18


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
    web_apps: Sequence[WebLoad] = (),
    event_driven: bool | None = None,
    stop_after: int | None = None,
    watch: Callable[[Pass], None] | None = None,
    every_cycle: bool = False,
    interference: str = "",
    true_io: Mapping[str, float] | None = None,
) -> ReplayFigures:
    """Replay `jobs` on `nodes` under a placement policy, given as such or by its registered name.

    The figures are the world's truth over [0, window_s]; operations on instances of `web_apps` are counted among them.
    `true_stages` by job name where the truth differs from what is declared, `true_io` likewise of the part of its time
    alone that a job is at its node's disk. `interference`: the model of what sharing costs that the policy is to reckon
    with (`LoadingColumns.model`, ""): off. An infinite window ends when nothing more
    can happen, any window when `stop_after` jobs are completed. `event_driven`: instead of what the policy says.
    `watch` is given every pass; `every_cycle`: there is one at each cycle with a job, even where nothing could change.
    Raises `UnknownPolicy`; `Infeasible` for a job that no set of the empty nodes could hold; `InvalidInput` for two
    jobs, nodes or web applications of one name, or no nodes; `ContractViolation` when the policy asks for what may not
    be done.
    """
    chosen = find_policy("placement", policy) if isinstance(policy, str) else policy
    begun_s = perf_s()
    check_input(jobs, nodes, [load.app.name for load in web_apps])
    submitted = [job for job in jobs if job.submit_s < window_s]
    engine = _Engine(
        submitted,
        nodes,
        true_stages or {},
        policy=chosen,
        costs=costs,
        cycle_s=cycle_s,
        params=dict(params or {}),
        web_apps=web_apps,
    )
    engine.watch, engine.every_cycle, engine.interference = watch, every_cycle, interference
    engine.true_io = true_io or {}
    if event_driven is not None:
        engine.event_driven = event_driven
    end_s = engine.run(window_s, stop_after)
    return figures(
        engine.runs(),
        engine.busy,
        nodes=len(nodes),
        window_s=end_s,
        wall_s=perf_s() - begun_s,
        operations=dict(sorted(engine.operations.items())),
    )


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
        web_apps: Sequence[WebLoad],
    ) -> None:
        self.policy, self.policy_state, self.params = policy, None, params
        self.costs, self.cycle_s, self.event_driven = costs, cycle_s, policy.event_driven
        self.watch: Callable[[Pass], None] | None = None
        self.every_cycle, self.interference = False, ""
        self.true_io: Mapping[str, float] = {}
        self.loads, self.web = web_apps, web_columns(web_apps)
        self.last_step_s = max((load.steps[-1][0] for load in web_apps), default=0.0)
        replicas = [replica for load in web_apps for replica in load.replicas()]
        ordered = sorted(jobs, key=lambda job: (job.submit_s, job.name))
        self.jobs, self.true_stages, self.first_row = ordered, true_stages, len(replicas)
        self.nodes, self.node_names = nodes, [node.name for node in nodes]
        self.node_rows = {node.name: row for row, node in enumerate(nodes)}
        self.world, self.workloads = World(), Workloads(replicas + ordered, self.web.names)
        self.room, self.wanted = (
            NodeCapacity(nodes),
            NodeCapacity(nodes),
        )  # what is free now, and once what is wanted has come about
        for node in nodes:
            self.world.add_host(node)
        self.tasks: dict[str, Task] = {}  # jobs submitted and not over
        self.replicas = {replica.name: self._new(row, replica, _ENDLESS) for row, replica in enumerate(replicas)}
        self.submitted: list[Task] = []
        self.busy = BusyNodes()
        self.operations: Counter[str] = Counter()
        self.pending: list[Operation] = []  # wanted, waiting for room, in the order of decision
        self.ends: list[tuple[float, int, Operation]] = []  # under way
        self.later: list[float] = []  # desired starts of submitted jobs that are still to come
        self.begun = self.completed = 0
        self.touched = False  # whether anything happened at this instant
        self.not_running = 0  # jobs that a pass could serve: waiting or suspended, and not fixed
        self.slow = 0  # jobs that could use more CPU than they are given

    # --- time ----------------------------------------------------------------------------------------------------

    def run(self, window_s: float, stop_after: int | None) -> float:
        """Run to the end of the window, until so many jobs are completed, or until nothing can happen any more;
        returns when that is."""
        world, jobs, now_s = self.world, self.jobs, 0.0
        arrived, cycle, idle = 0, 0, False
        while True:
            next_s = world.next_end_s()
            next_s = math.inf if next_s is None or next_s > _NEVER_S else next_s
            if self.ends and self.ends[0][0] < next_s:
                next_s = self.ends[0][0]
            if arrived < len(jobs) and jobs[arrived].submit_s < next_s:
                next_s = jobs[arrived].submit_s
            if self.later and self.later[0] < next_s:
                next_s = self.later[0]
            cycle_at_s = cycle * self.cycle_s
            if self.tasks or (self.replicas and (arrived < len(jobs) or window_s < math.inf)):
                stuck = idle and next_s == math.inf and now_s >= self.last_step_s
                empty = next_s < math.inf and not self._due(False, True)  # no pass is made before the next event
                next_s = next_s if stuck or empty else min(next_s, cycle_at_s)
            if next_s > window_s or next_s == math.inf:
                return now_s if window_s == math.inf else window_s
            now_s, self.touched = next_s, False
            event = self._happen(now_s)
            if stop_after is not None and self.completed >= stop_after:
                return now_s
            while arrived < len(jobs) and jobs[arrived].submit_s <= now_s:
                self._arrive(self.first_row + arrived, jobs[arrived])
                arrived, event = arrived + 1, True
            while cycle * self.cycle_s < now_s:  # cycles went by while no job was there
                cycle = max(cycle + 1, math.floor(now_s / self.cycle_s))
            cycle_due = cycle * self.cycle_s == now_s
            cycle += cycle_due
            if self._due(event, cycle_due):
                self._decide(now_s, cycle_due)
            idle = not self.touched

    def _due(self, event: bool, cycle_due: bool) -> bool:
        is_waiting = self.not_running > 0
        could_change = self.slow or self.replicas or self.every_cycle or self.interference
        if cycle_due and (not self.event_driven or could_change):
            return bool(self.tasks or self.replicas)
        return self.event_driven and (cycle_due or event) and (is_waiting or self._replicas_missing())

    def _replicas_missing(self) -> bool:
        """Return whether a web application is wanted with fewer instances than its minimum."""
        if not self.replicas:
            return False
        running = Counter(task.job.app for task in self.replicas.values() if task.state is WorkloadState.RUNNING)
        return any(running[load.app.name] < load.app.min_instances for load in self.loads)

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
        task = self.tasks[job.name] = self._new(row, job, self.true_stages.get(job.name) or declared_stages(job))
        self.submitted.append(task)
        self.touched = True
        if job.desired_start_s > job.submit_s:
            heappush(self.later, job.desired_start_s)
        self.not_running += 1

    def _new(self, row: int, job: Job, true_stages: TrueStages) -> Task:
        io = self.true_io.get(job.name, job.resource_profile.part(IO))
        self.world.add_task(job.name, true_stages, job.instances, io=io)
        self.workloads.arrive(row)
        return Task(
            row,
            job,
            [instance_name(job.name, index) for index in range(job.instances)],
            memory_mib=float(job.memory_mib),
        )

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
            self.completed += 1
            self.slow -= task.slow
            self._let_go((task.nodes, task.cpu_mhz, task.memory_mib), now_s)
            self.wanted.give(*task.wanted)
            self.workloads.leave(task.row)
            if task.fixed:  # it ended while an operation on it waited for room
                self.pending = [operation for operation in self.pending if operation.task is not task]

    # --- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, now_s: float, at_cycle: bool) -> None:
        """Run one scheduling pass."""
        for task in self.tasks.values():
            if task.begin_s is not None:
                self.workloads.measure(task.row, self.world.done_mcycles(task.job.name, now_s))
        seen = self._snapshot(now_s, at_cycle)
        begun_s = perf_s()
        decision, self.policy_state = self.policy.decide(seen, self.policy_state, self.params)
        decide_s = perf_s() - begun_s
        wanted = [operation for change in decision.changes if (operation := self._commit(change, now_s)) is not None]
        # What makes room goes first, whatever the order in which the policy names the changes.
        self.pending += sorted(wanted, key=lambda operation: operation.kind not in MAKES_ROOM)
        if self.watch is not None:
            self.watch(self._pass(seen, decision, wanted, decide_s))
        if self.pending:
            self._begin_pending(now_s)

    def _snapshot(self, now_s: float, at_cycle: bool) -> Snapshot:
        """Return the policy's current view. Free capacity is that after all wanted changes."""
        rows, instances = self.workloads.columns()
        return Snapshot(
            now_s,
            self.cycle_s,
            self.wanted.columns(),
            workloads=rows,
            instances=instances,
            stages=self.workloads.stages,
            web=self.web,
            flows=flow_columns(self.loads, now_s),
            costs=self.costs,
            at_cycle=at_cycle,
            loading=self.workloads.loading(len(self.nodes), self.interference),
        )

    def _pass(self, seen: Snapshot, decision: PlacementDecision, wanted: list[Operation], decide_s: float) -> Pass:
        placed = [task for task in self.tasks.values() if task.state is WorkloadState.RUNNING]
        web_mhz = dict.fromkeys(self.web.names, 0.0)
        for replica in self.replicas.values():
            if replica.state is WorkloadState.RUNNING:
                web_mhz[replica.job.app] += float(replica.wanted[1].sum())
        resumes = [operation for operation in wanted if operation.kind is ActionKind.RESUME]
        return Pass(
            seen,
            decision,
            len(self.tasks),
            placed=len(placed),
            jobs_mhz=math.fsum(float(task.wanted[1].sum()) for task in placed),
            web_mhz=web_mhz,
            operations=Counter(change.kind.value for change in decision.changes),
            moved_and_resumed=sum(len(operation.moved()) > 0 for operation in resumes),
            decide_s=decide_s,
        )

    def _commit(self, change: Change, now_s: float) -> Operation | None:
        """Note what is wanted from now on; the operation that brings it about (a resize is done at once)."""
        task, kind = self.tasks.get(change.workload) or self.replicas.get(change.workload), change.kind
        if task is None or task.fixed or task.state is not FROM[kind]:
            raise ContractViolation(f"{kind} of {change.workload}, which is not there, is over, or in another state")
        is_replica = bool(task.job.app)
        if kind is (ChangeKind.SUSPEND if is_replica else ChangeKind.STOP):
            raise ContractViolation(f"{kind} of {change.workload}: jobs are suspended, instances stopped")
        if change.revision != self.workloads.revision(task.row):
            raise ContractViolation(f"{kind} of {change.workload} is for revision {change.revision}")
        if task.state is WorkloadState.RUNNING:
            self.wanted.give(*task.wanted)
        if kind is ChangeKind.STOP:
            nodes, cpu_mhz, state = NOWHERE, NOTHING, WorkloadState.WAITING
        elif kind is ChangeKind.SUSPEND:
            nodes, cpu_mhz, state = task.nodes, np.zeros(len(task.nodes)), WorkloadState.SUSPENDED
        else:
            nodes, cpu_mhz = self._allotted(change, task)
            state, task.wanted = WorkloadState.RUNNING, (nodes, cpu_mhz, task.memory_mib)
            self.wanted.take(*task.wanted)
        self.operations[kind.value] += 1
        resize = kind is ChangeKind.RESIZE
        self.workloads.change(task.row, state, nodes, cpu_mhz, None if resize else now_s)
        self._count(task, state)
        if resize:
            self._resize(task, cpu_mhz, now_s)
            return None
        task.state, task.fixed = state, True
        return Operation(ActionKind(kind.value), task, nodes, cpu_mhz)

    def _count(self, task: Task, state: WorkloadState) -> None:
        """Keep `not_running` and `slow` for a job that is wanted in `state` from now on."""
        if task.job.app:
            return
        if task.state is not WorkloadState.RUNNING:
            self.not_running -= 1
        slow = state is WorkloadState.RUNNING and task.could_use_more(self.nodes)
        self.slow += slow - task.slow
        task.slow = slow

    def _allotted(self, change: Change, task: Task) -> tuple[Ints, Floats]:
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

    def _resize(self, task: Task, cpu_mhz: Floats, now_s: float) -> None:
        self.room.give(task.nodes, task.cpu_mhz, 0.0)
        self.room.take(task.nodes, cpu_mhz, 0.0)
        task.cpu_mhz = cpu_mhz
        for vm, weight_mhz in zip(task.vms, cpu_mhz.tolist(), strict=True):
            self.world.set_weight(vm, weight_mhz, weight_mhz if task.job.app else math.inf, now_s)

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
                    return  # what is in progress will make the room
                self._break_up(now_s)

    def _break_up(self, now_s: float) -> None:
        """Resolve a deadlock in which no waiting operation can begin: turn the first migration into a suspend and a
        resume."""
        stuck = [operation for operation in self.pending if operation.kind is ActionKind.MIGRATE]
        if not stuck:
            names = ", ".join(operation.task.job.name for operation in self.pending)
            raise ContractViolation(f"the policy gave away room that there is not: {names} at {now_s} s")
        first = stuck[0]
        resume = Operation(ActionKind.RESUME, first.task, first.nodes, first.cpu_mhz)
        self.pending.remove(first)
        self.pending.insert(0, Operation(ActionKind.SUSPEND, first.task, first.task.nodes, first.cpu_mhz, resume))

    def _begin(self, operation: Operation, now_s: float) -> bool:
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
        elif kind in MAKES_ROOM:
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

    def _end(self, operation: Operation, now_s: float) -> None:
        """End an operation: free its capacity and let the job execute unless it was suspended."""
        task, kind, self.touched = operation.task, operation.kind, True
        if kind is ActionKind.SUSPEND:
            self._let_go((task.nodes, task.cpu_mhz, task.memory_mib), now_s)
            if operation.then is not None:
                self.pending.append(operation.then)
                return
            self.not_running += 1
        elif kind is ActionKind.STOP:
            self._let_go((task.nodes, task.cpu_mhz, task.memory_mib), now_s)
            task.nodes, task.cpu_mhz = NOWHERE, NOTHING
        elif kind is ActionKind.MIGRATE:
            self._arrived(operation, now_s)
        else:
            task.nodes, task.cpu_mhz = operation.nodes, operation.cpu_mhz
            names, vcpus, memory_mib = self.node_names, task.job.vcpus, task.memory_mib
            cap_mhz = float(task.cpu_mhz[0]) if task.job.app else math.inf
            for vm, node, mhz in zip(task.vms, task.nodes.tolist(), task.cpu_mhz.tolist(), strict=True):
                self.world.place(vm, names[node], now_s, mhz, cap_mhz, vcpus, memory_mib)
        task.fixed = False
        self.workloads.release(task.row)

    def _arrived(self, operation: Operation, now_s: float) -> None:
        """End a migration: free the capacity at the source and let all instances continue."""
        task, moved = operation.task, operation.moved()
        self._let_go((task.nodes[moved], task.cpu_mhz[moved], task.memory_mib), now_s)
        for index in moved.tolist():
            self.world.move(task.vms[index], self.node_names[int(operation.nodes[index])], now_s)
        stayed = np.setdiff1d(np.arange(len(task.vms)), moved)
        self.room.give(task.nodes[stayed], task.cpu_mhz[stayed], 0.0)
        self.room.take(task.nodes[stayed], operation.cpu_mhz[stayed], 0.0)
        task.nodes, task.cpu_mhz = operation.nodes, operation.cpu_mhz
        for vm, weight_mhz in zip(task.vms, task.cpu_mhz.tolist(), strict=True):
            self.world.set_weight(vm, weight_mhz, weight_mhz if task.job.app else math.inf, now_s)
            self.world.set_running(vm, True, now_s)

    def _let_go(self, held: Hold, now_s: float) -> None:
        self.room.give(*held)
        self.busy.release(held[0].tolist(), now_s)

    def runs(self) -> list[JobRun]:
        """Return the run of every submitted job, in order of submission."""
        return [
            JobRun(
                task.job.name,
                task.job.submit_s,
                task.begin_s,
                task.end_s,
                task.job.goal_s,
                task.job.desired_start_s,
            )
            for task in self.submitted
        ]
