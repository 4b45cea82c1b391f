"""A simulation of a batch and a web environment that share nodes, in virtual time: jobs of a log, first fit in order of
arrival, and a demand series; a coordination policy sets the number of nodes of each (phoenixcloud.txt sections 5 and
6).

Within one instant: jobs that end, the web side's demand, the provider's timer, the batch manager's, arrivals, and one
scheduling pass. Nodes are counted but not identified.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush

from daemons.capacity.coordination.leases import on_demand
from daemons.capacity.coordination.queue import WaitingJobs
from daemons.capacity.coordination.values import ON_DEMAND, SECONDS_PER_HOUR, Coordinated, Setting, WebDemand
from shared.base.clock import perf_s
from shared.base.errors import Infeasible
from shared.policy_api.coordination import GroupView, ManagerView, Moment, Party
from shared.policy_api.policies import CoordinationPolicy, EnvironmentType
from shared.ports.plugins import find_environment_type, find_policy
from shared.values.agreement import OnReclaim, WorkloadType
from shared.values.replay_job import ReplayJob


def coordinate(jobs: Sequence[ReplayJob], demand: WebDemand, setting: Setting) -> Coordinated:
    """Play `jobs` (in order of arrival, submitted in [0, horizon)) beside the demand. Raises `UnknownPolicy` for a
    model that nobody registered, `Infeasible` for a demand above what the web side can ever have."""
    begun_s = perf_s()
    _refuse_too_much(demand, setting)
    if setting.model == ON_DEMAND:
        return on_demand(jobs, demand, setting)
    run = _Run(jobs, demand, setting, find_policy("coordination", setting.model))
    run.play()
    return run.outcome(perf_s() - begun_s)


def _refuse_too_much(demand: WebDemand, setting: Setting) -> None:
    limit = setting.web_most
    most, at_s = demand.most(setting.horizon_s)
    if limit is not None and most > limit:
        raise Infeasible(f"the web side needs {most} nodes at {at_s:g} s, {setting.model} has {limit} for it")


class _Nodes:
    """Who has how many nodes, what that comes to, and what is owed to the web side."""

    __slots__ = ("adjustments", "batch", "busy", "held", "least", "node_s", "peak", "since_s", "waited_s", "web")

    def __init__(self, least: int) -> None:
        self.least = least  # that the group has in any case: its lower bounds
        self.batch = self.web = self.busy = self.held = self.peak = self.adjustments = 0
        self.since_s = self.node_s = self.waited_s = 0.0

    def advance(self, now_s: float) -> None:
        """Count what has been held, and waited for, up to now."""
        if (span_s := now_s - self.since_s) > 0.0:
            self.node_s += self.held * span_s
            if self.busy > self.batch:  # jobs that are being suspended still have them; idle ones of the provider serve
                self.waited_s += span_s * max(0, self.busy - self.batch - max(0, self.least - self.batch - self.web))
            self.since_s = now_s

    def settle(self) -> None:
        """Finish all changes of an instant."""
        self.held = max(self.least, self.batch + self.web)
        self.peak = max(self.peak, self.held)


class _Run:
    """One run; see `coordinate`."""

    def __init__(
        self, jobs: Sequence[ReplayJob], demand: WebDemand, setting: Setting, policy: CoordinationPolicy
    ) -> None:
        self.setting, self.policy = setting, policy
        self.type: EnvironmentType = find_environment_type(WorkloadType.BATCH.value)
        self.horizon_s = setting.horizon_s
        self.suspends = setting.terms.on_reclaim is OnReclaim.SUSPEND
        self.submits_s = [job.submit_s for job in jobs]
        self.sizes = [job.nodes for job in jobs]
        self.runs_s = [job.run_s for job in jobs]
        self.changes = list(demand.changes(setting.horizon_s))
        self.nodes = _Nodes(setting.batch_lower + setting.web_lower)
        self.waiting = WaitingJobs()
        self.running: dict[int, tuple[float, float, float]] = {}  # job -> when started, from when on it works, what
        self.ends: list[tuple[float, int, float]] = []  # when, job, when started: of a later start it is no more true
        self.leaving: deque[tuple[float, int]] = deque()  # when it is saved, job
        self.left_s: dict[int, float] = {}  # work of jobs that are saved on disk
        self.spent_s: dict[int, float] = {}  # what they have executed
        self.completed = self.killed = self.suspended = self.changed = self.arrived = 0
        self.execution_s = self.turnaround_s = self.lost_s = self.overhead_s = 0.0

    # --- time ---------------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Simulate from 0 to the horizon; a job that ends at the horizon has ended in time."""
        self._decide(Moment.START, 0.0)
        self.nodes.adjustments = 0  # what it begins with was not adjusted
        self.changed = 1
        ticks, now_s = 0, 0.0
        submits_s, ends, leaving, nodes = self.submits_s, self.ends, self.leaving, self.nodes
        submits_s.append(math.inf)
        self.changes.append((math.inf, 0))
        lease_s, horizon_s = self.setting.lease_s, self.horizon_s
        first_s = lease_s if self.setting.first_timer_s is None else self.setting.first_timer_s
        while True:
            tick_s = first_s + ticks * lease_s
            if ends and ends[0][0] <= now_s:
                self._end(now_s)
            if leaving and leaving[0][0] <= now_s:
                self._saved(now_s)
            if now_s >= horizon_s:
                break
            if self.changes[self.changed][0] <= now_s:
                self.changed += 1
                self._decide(Moment.DEMAND, now_s)
            if tick_s <= now_s:
                ticks += 1
                tick_s = first_s + ticks * lease_s
                self._decide(Moment.PROVISION, now_s)
                self._decide(Moment.MANAGE, now_s)
            if self.waiting.least <= nodes.batch - nodes.busy:
                self._pass(now_s)
            if submits_s[self.arrived] <= now_s:
                self._arrive(now_s)
            nodes.settle()
            next_s = min(submits_s[self.arrived], tick_s, self.changes[self.changed][0], horizon_s)
            if ends and ends[0][0] < next_s:
                next_s = ends[0][0]
            if leaving and leaving[0][0] < next_s:
                next_s = leaving[0][0]
            now_s = next_s
            nodes.advance(now_s)

    def outcome(self, wall_s: float) -> Coordinated:
        """Return the outcome."""
        nodes, count = self.nodes, self.completed
        return Coordinated(
            jobs_submitted=len(self.sizes),
            jobs_completed=count,
            mean_execution_s=self.execution_s / count if count else None,
            mean_turnaround_s=self.turnaround_s / count if count else None,
            peak_nodes=nodes.peak,
            peak_nodes_instant=nodes.peak,
            node_hours=nodes.node_s / SECONDS_PER_HOUR,
            killed=self.killed,
            suspended=self.suspended,
            lost_node_hours=self.lost_s / SECONDS_PER_HOUR,
            overhead_node_hours=self.overhead_s / SECONDS_PER_HOUR,
            web_waited_node_hours=nodes.waited_s / SECONDS_PER_HOUR,
            adjustments=nodes.adjustments,
            jobs_too_large=self._too_large(),
            wall_s=wall_s,
        )

    def _too_large(self) -> int:
        """Return the number of jobs that can never run, regardless of the others."""
        most, sizes = self.setting.batch_most(min(nodes for _, nodes in self.changes[:-1])), self.sizes
        return 0 if most is None else sum(size > most for size in sizes)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _end(self, now_s: float) -> None:
        """End the jobs whose work is done."""
        ends, running = self.ends, self.running
        while ends and ends[0][0] <= now_s:
            end_s, job, started_s = heappop(ends)
            if job not in running or running[job][0] != started_s:
                continue
            del running[job]
            self.nodes.busy -= self.sizes[job]
            self.completed += 1
            self.execution_s += end_s - started_s + self.spent_s.pop(job, 0.0)
            self.turnaround_s += end_s - self.submits_s[job]

    def _saved(self, now_s: float) -> None:
        """Free the nodes of jobs that are on disk now; the jobs wait at their places."""
        while self.leaving and self.leaving[0][0] <= now_s:
            _, job = self.leaving.popleft()
            self.nodes.busy -= self.sizes[job]
            self.waiting.add(job, self.sizes[job])

    def _pass(self, now_s: float) -> None:
        """Start waiting jobs, first fit."""
        nodes, waiting = self.nodes, self.waiting
        while (job := waiting.take(nodes.batch - nodes.busy)) >= 0:
            self._start(job, now_s)

    def _arrive(self, now_s: float) -> None:
        """Add the jobs that are submitted: they come after all waiting jobs, which have had their turn."""
        nodes, sizes, submits_s = self.nodes, self.sizes, self.submits_s
        while submits_s[self.arrived] <= now_s:
            job = self.arrived
            self.arrived += 1
            if sizes[job] <= nodes.batch - nodes.busy:
                self._start(job, now_s)
            else:
                self.waiting.add(job, sizes[job])

    def _start(self, job: int, now_s: float) -> None:
        self.nodes.busy += self.sizes[job]
        work_s = now_s
        left_s = self.left_s.pop(job, None)
        if left_s is None:
            left_s = self.runs_s[job]
        else:
            work_s += self.setting.resume_s
            self.overhead_s += self.sizes[job] * (min(work_s, self.horizon_s) - now_s)
        self.running[job] = (now_s, work_s, left_s)
        heappush(self.ends, (work_s + left_s, job, now_s))

    # --- sizes --------------------------------------------------------------------------------------------------------

    def _decide(self, moment: Moment, now_s: float) -> None:
        """Ask the policy, and do as it says."""
        nodes, setting, waiting = self.nodes, self.setting, self.waiting
        batch = Party(
            "batch",
            WorkloadType.BATCH,
            setting.batch_lower,
            upper=None,
            owned=nodes.batch,
            idle=max(0, nodes.batch - nodes.busy),
            wanted=0,
            queued=waiting.queued,
            biggest=waiting.biggest,
            batch=setting.terms,
        )
        if moment is Moment.MANAGE:
            batch = replace(batch, asks=self.type.manage(ManagerView(batch), {}))
        wanted = self.changes[max(0, self.changed - 1)][1]
        web = Party("web", WorkloadType.WEB, setting.web_lower, upper=None, owned=nodes.web, idle=0, wanted=wanted)
        working, serving = self.policy.decide(GroupView((batch, web)), moment).sizes
        nodes.adjustments += (working != nodes.batch) + (serving != nodes.web)
        nodes.batch, nodes.web = working, serving
        if nodes.busy > working:
            self._reclaim(now_s)

    def _reclaim(self, now_s: float) -> None:
        """Stop the smallest jobs first, of these the last started, of these the last arrived, until those that go on
        have nodes; what is being saved already is on its way."""
        sizes, running, nodes = self.sizes, self.running, self.nodes
        excess = sum(sizes[job] for job in running) - nodes.batch
        for job in sorted(running, key=lambda job: (sizes[job], -running[job][0], -job)):
            if excess <= 0:
                break
            excess -= sizes[job]
            started_s, work_s, left_s = running.pop(job)
            if self.suspends:
                self.left_s[job] = left_s - max(0.0, now_s - work_s)
                self._suspend(job, started_s, work_s, now_s)
            else:
                self.killed += 1
                self.lost_s += sizes[job] * (now_s - started_s)
                nodes.busy -= sizes[job]
                self.waiting.add(job, sizes[job])

    def _suspend(self, job: int, started_s: float, work_s: float, now_s: float) -> None:
        """Save a job to disk; one that was just being resumed has gone no further."""
        size, takes_s = self.sizes[job], self.setting.suspend_s
        self.suspended += 1
        self.spent_s[job] = self.spent_s.get(job, 0.0) + now_s - started_s + takes_s
        self.overhead_s += size * (min(takes_s, self.horizon_s - now_s))
        self.overhead_s -= size * max(0.0, min(work_s, self.horizon_s) - now_s)  # that the resume did not take
        if takes_s > 0.0:
            self.leaving.append((now_s + takes_s, job))
        else:
            self.nodes.busy -= size
            self.waiting.add(job, size)
