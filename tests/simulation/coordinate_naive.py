"""A batch and a web environment that share nodes, second by second: the rules of phoenixcloud.txt section 5 with the
readings of docs/appendix/papers.md, written down as plainly as can be, without policies, events or queues. Whole
seconds only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from daemons.capacity.coordination.values import Setting, WebDemand
from shared.values.agreement import OnReclaim
from shared.values.replay_job import ReplayJob

HOUR_S = 3600


@dataclass
class NaiveJob:
    """A job and where it is: waiting, running, saving, done."""

    place: int
    submit_s: int
    run_s: int
    size: int
    state: str = "waiting"
    started_s: int = 0
    resumed_until_s: int = 0
    left_s: int = 0
    saved_at_s: int = 0
    on_disk: bool = False
    spent_s: int = 0


@dataclass
class Naive:
    """Everything that happens, and what it comes to."""

    jobs: list[NaiveJob]
    demand: WebDemand
    setting: Setting
    batch: int = 0
    web: int = 0
    spare: int = 0  # of the provider, within what the two share
    arrived: list[NaiveJob] = field(default_factory=list)
    executions: list[int] = field(default_factory=list)
    turnarounds: list[int] = field(default_factory=list)
    killed: int = 0
    suspended: int = 0
    lost_s: int = 0
    overhead_s: int = 0
    waited_s: int = 0
    held_s: int = 0
    peak: int = 0
    adjustments: int = 0

    def wanted(self, now_s: int) -> int:
        """What the web side needs at a time."""
        at_s, found = now_s % self.demand.period_s, 0
        for from_s, nodes in zip(self.demand.times_s, self.demand.nodes, strict=True):
            if from_s <= at_s:
                found = nodes
        return found

    def using(self) -> int:
        """Nodes that jobs have."""
        return sum(job.size for job in self.arrived if job.state in ("running", "saving"))

    def play(self) -> None:
        """Second by second."""
        setting, lease_s = self.setting, int(self.setting.lease_s)
        first_s = int(setting.first_timer_s or lease_s)
        shared = setting.batch_lower + setting.web_lower
        for now_s in range(int(setting.horizon_s)):
            before = (self.batch, self.web)
            self.jobs_end(now_s)
            if now_s == 0:
                self.begin(shared)
                before = (self.batch, self.web)
            elif self.wanted(now_s) != self.wanted(now_s - 1):
                self.web_demand(self.wanted(now_s), now_s)
                self.adjustments += (before[0] != self.batch) + (before[1] != self.web)
            if now_s >= first_s and (now_s - first_s) % lease_s == 0:
                before_timer = self.batch
                self.provider_timer(shared)
                self.adjustments += before_timer != self.batch
                before_timer = self.batch
                self.manager_timer(shared)
                self.adjustments += before_timer != self.batch
            for job in self.jobs:
                if job.submit_s == now_s:
                    self.arrived.append(job)
            self.first_fit(now_s)
            while self.jobs_end(now_s):  # those that run for no time
                self.first_fit(now_s)
            held = max(shared, self.batch + self.web)
            self.held_s += held
            self.peak = max(self.peak, held)
            self.overhead_s += sum(job.size for job in self.arrived if job.state == "saving")
            self.overhead_s += sum(
                job.size for job in self.arrived if job.state == "running" and now_s < job.resumed_until_s
            )
            self.waited_s += max(0, self.using() - self.batch - self.spare)
        self.jobs_end(int(setting.horizon_s))

    def begin(self, shared: int) -> None:
        """The web side has its first demand, the batch side what is left."""
        self.web, self.batch = self.wanted(0), max(0, shared - self.wanted(0))
        if self.setting.model == "dedicated":
            self.batch, self.web = self.setting.batch_lower, self.setting.web_lower
        self.spare = max(0, shared - self.batch - self.web)

    def jobs_end(self, now_s: int) -> bool:
        """Whether any did; those that are saved now wait again."""
        ended = False
        for job in self.arrived:
            if job.state == "running" and job.resumed_until_s + job.left_s == now_s:
                job.state, ended = "done", True
                self.executions.append(job.spent_s + now_s - job.started_s)
                self.turnarounds.append(now_s - job.submit_s)
            if job.state == "saving" and job.saved_at_s == now_s:
                job.state = "waiting"
        return ended

    def web_demand(self, wanted: int, now_s: int) -> None:
        """It grows or shrinks to what it needs."""
        more = wanted - self.web
        if self.setting.model == "dedicated":
            return
        self.web = wanted
        if self.setting.model == "flb-nub":
            return
        if more < 0:
            self.spare -= more
            return
        from_spare = min(self.spare, more)
        self.spare -= from_spare
        self.batch -= more - from_spare
        self.make_room(now_s)

    def make_room(self, now_s: int) -> None:
        """Stop the smallest job, of these the last started, of these the last arrived, until the others fit."""
        while True:
            running = [job for job in self.arrived if job.state == "running"]
            if sum(job.size for job in running) <= self.batch:
                return
            running.sort(key=lambda job: job.place, reverse=True)
            running.sort(key=lambda job: job.started_s, reverse=True)
            running.sort(key=lambda job: job.size)
            self.stop(running[0], now_s)

    def stop(self, job: NaiveJob, now_s: int) -> None:
        """Kill it or save it."""
        if self.setting.terms.on_reclaim is OnReclaim.KILL:
            job.state = "waiting"
            self.killed += 1
            self.lost_s += job.size * (now_s - job.started_s)
            return
        takes_s = int(self.setting.suspend_s)
        self.suspended += 1
        job.left_s -= max(0, now_s - job.resumed_until_s)
        job.spent_s += now_s - job.started_s + takes_s
        job.on_disk = True
        job.saved_at_s = now_s + takes_s
        job.state = "saving" if takes_s else "waiting"

    def provider_timer(self, shared: int) -> None:
        """What is idle of what they share goes to the batch side."""
        if self.setting.model == "fb":
            self.batch, self.spare = self.batch + self.spare, 0
        elif self.setting.model == "flb-nub" and self.batch + self.web < shared:
            self.batch = shared - self.web

    def manager_timer(self, shared: int) -> None:
        """Ask for more or give back."""
        del shared
        if self.setting.model != "flb-nub":
            return
        terms = self.setting.terms
        sizes = [job.size for job in self.arrived if job.state == "waiting"]
        queued, idle = sum(sizes), self.batch - self.using()
        above = queued > 0 if self.batch == 0 else queued / self.batch > terms.request_ratio
        below = queued == 0 if self.batch == 0 else queued / self.batch < terms.release_ratio
        if above:
            self.batch = max(self.batch, queued)
        elif sizes and max(sizes) > self.batch:
            self.batch += max(sizes) - idle
        elif below:
            self.batch -= int(terms.elastic_factor * idle)

    def first_fit(self, now_s: int) -> None:
        """Every waiting job that fits, in order of arrival."""
        for job in sorted(self.arrived, key=lambda job: job.place):
            if job.state == "waiting" and job.size <= self.batch - self.using():
                job.state, job.started_s, job.resumed_until_s = "running", now_s, now_s
                if job.on_disk:
                    job.resumed_until_s += int(self.setting.resume_s)
                else:
                    job.left_s, job.spent_s = job.run_s, 0


def naive(jobs: Sequence[ReplayJob], demand: WebDemand, setting: Setting) -> dict[str, object]:
    """The figures of a run, by name, in whole seconds and node-seconds."""
    rows = [NaiveJob(place, int(job.submit_s), int(job.run_s), size=job.nodes) for place, job in enumerate(jobs)]
    run = Naive(rows, demand, setting)
    run.play()
    return {
        "completed": len(run.executions),
        "execution_s": sum(run.executions),
        "turnaround_s": sum(run.turnarounds),
        "peak": run.peak,
        "node_s": run.held_s,
        "killed": run.killed,
        "suspended": run.suspended,
        "lost_s": run.lost_s,
        "overhead_s": run.overhead_s,
        "waited_s": run.waited_s,
        "adjustments": run.adjustments,
    }


def naive_on_demand(jobs: Sequence[ReplayJob], demand: WebDemand, setting: Setting) -> dict[str, object]:
    """The same where every job leases nodes of its own."""
    run = Naive([], demand, setting)
    lease_s, horizon_s = int(setting.lease_s), int(setting.horizon_s)
    leases = []
    for job in jobs:
        until_s = int(job.submit_s) + lease_s
        while until_s < job.submit_s + job.run_s:
            until_s += lease_s
        leases.append((int(job.submit_s), until_s, job.nodes))
    node_s = sum((until_s - from_s) * size for from_s, until_s, size in leases)
    instant, hours = 0, [0] * -(-horizon_s // HOUR_S)
    for now_s in range(horizon_s):
        web = run.wanted(now_s)
        node_s += web
        instant = max(instant, web + sum(size for from_s, until_s, size in leases if from_s <= now_s < until_s))
        hours[now_s // HOUR_S] = max(hours[now_s // HOUR_S], web)
    for hour in range(len(hours)):
        begin_s, end_s = hour * HOUR_S, (hour + 1) * HOUR_S
        hours[hour] += sum(size for from_s, until_s, size in leases if from_s < end_s and until_s > begin_s)
    ended = [int(job.run_s) for job in jobs if job.submit_s + job.run_s <= horizon_s]
    return {
        "completed": len(ended),
        "execution_s": sum(ended),
        "turnaround_s": sum(ended),
        "peak": max(hours),
        "instant": instant,
        "node_s": node_s,
    }
