"""Deadline windows, live: acquires their data from what happens to jobs, keeps their forecasts, and raises alarms.

Everything follows from the time, the jobs and one record for each window, so that clock jumps and a controller that was
away are survived: periods that have passed meanwhile are closed, what came in is counted from the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.windows.job_dependencies import DependencyGraph
from daemons.controller.windows.node_rates import JobSize, Worth, size_of, worth_of
from daemons.controller.windows.window import WindowEntry
from daemons.models.arrivals import type_speeds
from daemons.values.calendar import local_text
from daemons.values.records.cluster import ServedJob, WindowRecord
from daemons.values.settings import ControllerSettings, Removal
from shared.policy_api.decision import ProvisioningDecision, ReasonCode, WindowSize
from shared.values.jobs import Job, JobPhase
from shared.values.nodes import Node

RELEASES_OFF_FRAC = 0.1  # of the jobs that are still to come: so wrong expected releases may be
WORSE = 2.0  # times as likely as when it was last told: a danger is told again in a period
SAFE_FRAC = 0.5  # of what the promise allows to be missed: with no more than that a danger is over


class WindowBook:
    """All deadline windows. `sizes`: what the last decision gave each."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.entries = {window.name: WindowEntry(window, settings.decide_s) for window in settings.windows}
        self.by_queue = {entry.settings.queue: entry for entry in self.entries.values()}
        self.successors = DependencyGraph(cluster, unit_of_work)
        self.sizes: dict[str, WindowSize] = {}
        self._speeds_mhz: dict[str, float] = {}  # of running jobs
        self._type_speeds: dict[str, tuple[tuple[ServedJob, ...], dict[str, float]]] = {}  # by window
        self._worth: dict[str, tuple[object, Worth]] = {}  # by window: what it was made of, and the worth

    def __bool__(self) -> bool:
        return bool(self.entries)

    # --- taking over ------------------------------------------------------------------------------------------------

    def load(self, record: WindowRecord) -> None:
        """Take over what an earlier controller kept; that of a window which is not configured any more is left."""
        entry = self.entries.get(record.name)
        if entry is not None:
            entry.record = record

    def loaded(self) -> None:
        """Start after every record and job is read: count what is derived only from the jobs."""
        for entry in self.entries.values():
            period = entry.settings.periods.at(entry.record.opens_s)
            if entry.has_period and period is not None:
                entry.begin(period)
        for job in sorted(self.cluster.jobs.values(), key=lambda job: job.order):
            self.successors.watch(job)
            window = self.by_queue.get(job.job.queue) if job.job.queue else None
            if window is not None:
                self._count(window, job)
                last_s = window.record.served[-1].finished_s if window.record.served else -math.inf
                if job.phase is JobPhase.COMPLETED and job.finished_s > last_s:
                    self._served(window, job)
                if not job.over and job.runs_since_s is not None:
                    self._speeds_mhz[job.job.name] = self._speed_mhz(job)

    # --- what happens to jobs ---------------------------------------------------------------------------------------

    def note(self, jobs: Iterable[JobEntry], now_s: float) -> None:
        """Take in what has changed of jobs in this instant; what follows for other jobs goes to the unit of work."""
        for job in list(jobs):
            if job.job.app:
                continue
            if job.over:
                self.successors.over(job, now_s)
            elif job.awaits:
                self.successors.watch(job)
            window = self.by_queue.get(job.job.queue) if job.job.queue else None
            if window is not None:
                self._note(window, job, now_s)

    def _note(self, window: WindowEntry, job: JobEntry, now_s: float) -> None:
        name = job.job.name
        if name not in window.live:
            if job.over:
                return
            self._count(window, job)
        self._account(job, now_s)
        if job.over:
            del window.live[name]
            if job.phase is JobPhase.COMPLETED:
                self._served(window, job)

    def _count(self, window: WindowEntry, job: JobEntry) -> None:
        window.arrived(job.accepted_s, job.job.instances)
        window.jobs_seen.append(job.job)
        window.jobs_seen_new = True
        if not job.over:
            window.live[job.job.name] = job

    def _served(self, window: WindowEntry, job: JobEntry) -> None:
        if job.ran_mcycles > 0.0:
            window.served(ServedJob(job.finished_s, job.ran_mcycles, job.ran_on or "", job.job.job_class))

    def _account(self, job: JobEntry, now_s: float) -> None:
        """Count the time that a job of a queue runs: released and live, neither waiting nor suspended."""
        runs = job.phase is JobPhase.RUNNING and job.released
        if job.runs_since_s is not None:
            job.ran_mcycles = self._ran_mcycles(job, now_s)
        job.runs_since_s = now_s if runs else None
        if runs:
            self._speeds_mhz[job.job.name] = self._speed_mhz(job)
            kind = self._type(job)
            job.ran_on = kind if job.ran_on in (None, kind) else ""
        else:
            self._speeds_mhz.pop(job.job.name, None)
        if job.phase is JobPhase.WAITING and job.ran_mcycles > 0.0:
            job.ran_mcycles *= _saved_frac(job)

    def _ran_mcycles(self, job: JobEntry, now_s: float) -> float:
        if job.runs_since_s is None:
            return job.ran_mcycles
        speed_mhz = self._speeds_mhz.get(job.job.name, 0.0)
        return job.ran_mcycles + max(0.0, now_s - job.runs_since_s) * speed_mhz

    def _speed_mhz(self, job: JobEntry) -> float:
        """Return the speed that the job can have where it is wanted; that of its slowest instance."""
        speeds = [job.job.speed_on_mhz(node) for node in self._inventories(job)]
        return min(speeds, default=0.0)

    def _type(self, job: JobEntry) -> str:
        types = {node.node_type for node in self._inventories(job)}
        return types.pop() if len(types) == 1 else ""

    def _inventories(self, job: JobEntry) -> list[Node]:
        nodes = (self.cluster.nodes.get(allotment.node) for allotment in job.allotments)
        return [node.inventory for node in nodes if node is not None and node.inventory is not None]

    # --- submitting -------------------------------------------------------------------------------------------------

    def refuse(self, job: Job, now_s: float) -> tuple[str, str]:
        """Return why a job cannot be accepted for its queue, or for its `depends_on`: code and text ("": it can)."""
        if job.queue:
            window = self.by_queue.get(job.queue)
            if window is None:
                known = ", ".join(repr(queue) for queue in sorted(self.by_queue)) or "none"
                return "unknown-queue", f"no window is configured for queue {job.queue!r}; there are: {known}"
            period = window.settings.periods.at(now_s)
            if period is not None and not period.opens_s <= now_s < period.submit_until_s:
                after = now_s >= period.submit_until_s
                period = window.settings.periods.at(period.deadline_s) if after else period
                zone = window.settings.periods.zone
                opens = f"it opens at {local_text(period.opens_s, zone)} ({zone})" if period else "it does not open"
                return "queue-closed", f"queue {job.queue!r} takes no jobs now; {opens}"
            if period is None:
                return "queue-closed", f"queue {job.queue!r} does not open within two weeks"
        return self.successors.refuse(job)

    # --- time passes ------------------------------------------------------------------------------------------------

    def next_due_s(self, now_s: float) -> float:
        """Return when a window opens or ends next (inf: never)."""
        times = (at_s for e in self.entries.values() for at_s in (e.record.opens_s, e.record.deadline_s))
        return min((at_s for at_s in times if at_s > now_s), default=math.inf)

    def next_cycle_s(self, now_s: float) -> float:
        """Return when a decision must come: whole cycles before the earliest deadline, which avoids losing part of an
        interval (inf: no window is near)."""
        cycle_s = self.settings.decide_s
        deadlines = [entry.record.deadline_s for entry in self.entries.values() if entry.is_near(now_s)]
        if not deadlines:
            return math.inf
        left = (min(deadlines) - now_s) / cycle_s
        return min(deadlines) - cycle_s * (math.ceil(left - 1e-6) - 1) if left > 1.0 + 1e-6 else min(deadlines)

    def due(self, now_s: float) -> None:
        """Handle the opening or the deadline of a window: draw the consequences and request a new decision."""
        self.tick(now_s)
        self.unit_of_work.place = self.unit_of_work.cycle = True

    def tick(self, now_s: float) -> None:
        """Close periods that are over, and make the forecasts of those that come next."""
        for entry in self.entries.values():
            period = entry.settings.periods.at(now_s)
            record = entry.record
            known = (record.opens_s, record.submit_until_s, record.deadline_s)
            if period is not None and known == (period.opens_s, period.submit_until_s, period.deadline_s):
                continue
            if entry.has_period and record.deadline_s <= now_s:
                self._close(entry, now_s)
            if period is None:
                entry.change(opens_s=0.0, submit_until_s=0.0, deadline_s=0.0)
                continue
            since_s = period.opens_s if entry.has_period else max(now_s, period.opens_s)
            entry.change(
                opens_s=period.opens_s,
                submit_until_s=period.submit_until_s,
                deadline_s=period.deadline_s,
                since_s=since_s,
                danger_s=None,
            )
            entry.begin(period)
            self._freeze(entry, now_s)
            for job in entry.live.values():
                entry.arrived(job.accepted_s, job.job.instances)
        self.store()

    def _close(self, entry: WindowEntry, now_s: float) -> None:
        deadline_s = entry.record.deadline_s
        queue = entry.settings.queue
        late = [
            job
            for job in self.cluster.jobs.values()
            if job.job.queue == queue
            and job.accepted_s < deadline_s
            and (not job.over or (job.phase is JobPhase.COMPLETED and job.finished_s > deadline_s))
        ]
        missed = sum(job.job.instances for job in late)
        entry.close(missed)
        if missed:
            self.unit_of_work.emit(now_s, "deadline-missed", entry.settings.name, f"{missed} jobs were not done")

    def _freeze(self, entry: WindowEntry, now_s: float) -> None:
        worth = self.worth(entry, self._known_nodes())
        entry.freeze(now_s, worth.speed_mhz, self._running_mcycles(entry, now_s), self.type_speeds(entry))

    def _running_mcycles(self, entry: WindowEntry, now_s: float) -> list[float]:
        found = (self._ran_mcycles(job, now_s) for job in entry.live.values())
        return [mcycles for mcycles in found if mcycles > 0.0]

    def begun_mcycles(self, entry: WindowEntry, now_s: float) -> list[float]:
        """Return the work done for jobs that were begun and are not finished, once for each instance."""
        return [
            mcycles
            for job in entry.live.values()
            if not (job.awaits or job.held) and (mcycles := self._ran_mcycles(job, now_s)) > 0.0
            for _ in range(job.job.instances)
        ]

    def cycle(self, now_s: float) -> None:
        """Compare the observations with the forecasts before a decision is made."""
        self.tick(now_s)
        for entry in self.entries.values():
            running = self._running_mcycles(entry, now_s)
            if entry.record.mcycles <= 0.0 and entry.has_period:
                entry.freeze_work(self.worth(entry, self._known_nodes()).speed_mhz, running, self.type_speeds(entry))
            if entry.is_open(now_s):
                for told in entry.check(now_s, running, self.type_speeds(entry)):
                    self.unit_of_work.emit(now_s, "forecast-left-band", entry.settings.name, told)
            if entry.is_near(now_s):
                self._refresh_releases(entry, now_s)
        self.store()

    def _refresh_releases(self, entry: WindowEntry, now_s: float) -> None:
        """Expected releases stand until they are so wrong that it matters: new ones need new tables."""
        waiting = {name: job for name, job in entry.live.items() if job.awaits and not job.held}
        fresh = [0.0] * entry.intervals if waiting or any(entry.record.releases) else []
        if waiting:
            for name, at_s in self.successors.releases_s(now_s).items():
                if name in waiting and math.isfinite(at_s):
                    fresh[entry.row_of(at_s)] += waiting[name].job.instances
        stands = entry.record.releases if len(entry.record.releases) == len(fresh) else (0.0,) * len(fresh)
        begin = entry.row_of(now_s)
        off, worst = 0.0, 0.0
        for new, old in zip(fresh[begin:][::-1], stands[begin:][::-1], strict=True):
            off += new - old
            worst = max(worst, abs(off))
        left = entry.jobs_at() + entry.expected(now_s, entry.record.deadline_s) + sum(fresh[begin:])
        if worst > max(0.5, RELEASES_OFF_FRAC * left):
            entry.change(releases=tuple(fresh))

    def store(self) -> None:
        """Have what has changed stored; what is done at every completion of a job waits for the next cycle."""
        for entry in self.entries.values():
            if entry.dirty:
                entry.dirty = False
                self.unit_of_work.records.append(entry.record)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _known_nodes(self) -> list[NodeEntry]:
        return [node for node in self.cluster.nodes.values() if node.inventory is not None]

    def size(self, entry: WindowEntry) -> JobSize:
        """Return the size of a job of its queue; it is kept while it is about right, as the forecast is."""
        if entry.jobs_seen_new:
            entry.jobs_seen_new = False
            fresh = size_of(entry.jobs_seen, self.settings.vm_overhead_mib)
            if entry.size is None or not fresh.is_like(entry.size):
                entry.size = fresh
        return entry.size if entry.size is not None else JobSize(self.settings.vm_overhead_mib)

    def worth(self, entry: WindowEntry, nodes: Sequence[NodeEntry]) -> Worth:
        """Return what each of the nodes is worth to it."""
        size, speeds = self.size(entry), self.type_speeds(entry)
        key = (tuple(node.inventory for node in nodes), size, speeds)
        known = self._worth.get(entry.settings.name)
        if known is None or known[0] != key:
            known = self._worth[entry.settings.name] = (
                key,
                worth_of(nodes, size, entry.settings.jobs_per_node, speeds),
            )
        return known[1]

    def type_speeds(self, entry: WindowEntry) -> dict[str, float]:
        """Return how fast nodes of each type are for its jobs, relative to their clocks."""
        served, known = entry.record.served, self._type_speeds.get(entry.settings.name)
        if known is None or known[0] is not served:
            found = type_speeds(
                [job.mcycles for job in served], [job.node_type for job in served], [job.job_class for job in served]
            )
            known = self._type_speeds[entry.settings.name] = (served, found)
        return known[1]

    def stays(self, job: JobEntry) -> bool:
        """Return whether a running job must stay where it is until it is done."""
        window = self.by_queue.get(job.job.queue) if job.job.queue else None
        return window is not None and window.settings.removal is Removal.WAIT and job.phase is JobPhase.RUNNING

    def queued(self, job: JobEntry, now_s: float) -> bool:
        """Return whether the window of its queue is open and chooses its nodes."""
        window = self.by_queue.get(job.job.queue) if job.job.queue else None
        return window is not None and window.is_open(now_s)

    # --- decisions --------------------------------------------------------------------------------------------------

    def decided(self, decision: ProvisioningDecision, now_s: float) -> None:
        """Record the size of each window by the decision, and report windows that are too small for their deadline
        target."""
        self.sizes = {size.window: size for size in decision.windows}
        for size in decision.windows:
            entry = self.entries.get(size.window)
            if entry is None or not entry.is_open(now_s):
                continue
            self._tell_danger(entry, size, now_s)
        self.store()

    def _tell_danger(self, entry: WindowEntry, size: WindowSize, now_s: float) -> None:
        """Report what is new: a deadline at risk, a risk `WORSE` times as high as last reported, or a deadline that is
        on track again with a margin. After a change of controllers the reported state stands."""
        least, confidence = entry.settings.nodes_min, entry.settings.confidence
        breach = endangered(size, least, confidence)
        known = entry.record.danger_s is not None
        if breach is None:
            if known and endangered(size, least, 1.0 - SAFE_FRAC * (1.0 - confidence)) is None:
                entry.change(danger_s=None)
                self.unit_of_work.emit(now_s, "deadline-on-track", size.window, f"{size.nodes} nodes are enough")
            return
        if known and entry.told_breach is None:
            entry.told_breach = breach
        elif not known or breach >= WORSE * (entry.told_breach or 0.0):
            entry.change(danger_s=now_s)
            entry.told_breach = breach
            words = f"{size.jobs} jobs, {size.nodes} nodes: {danger_words(size, breach)}"
            self.unit_of_work.emit(now_s, "deadline-at-risk", size.window, words)


def endangered(size: WindowSize, nodes_min: int, confidence: float) -> float | None:
    """Return the probability to miss the deadline where that exceeds what the window allows, None where it does not:
    the window is too small at its maximum size, or with the nodes that are left for it."""
    allowed = 1.0 - confidence
    short = size.reason.code is ReasonCode.OUT_OF_REACH or size.wanted > size.nodes
    if not size.breach:
        return 1.0 if short else None
    given = size.breach[min(max(size.nodes - breach_from(size, nodes_min), 0), len(size.breach) - 1)]
    if short and given > allowed:
        return given
    return size.breach[-1] if size.breach[-1] > allowed else None


def danger_words(size: WindowSize, breach: float) -> str:
    """Return as text how likely the deadline is missed, and whether more nodes could help."""
    alone = dict(size.reason.numbers).get("unavoidable")
    words = f"misses its deadline with probability {breach:.3g}"
    return words if alone is None else f"{words}; run times alone, on any number of nodes, with {alone:.3g}"


def breach_from(size: WindowSize, nodes_min: int) -> int:
    """Return the number of nodes to which the first of the breach probabilities applies."""
    return int(dict(size.reason.numbers).get("breach_from", max(nodes_min, 1)))


def _saved_frac(job: JobEntry) -> float:
    """Return the share of a job's progress that its guests have saved, from which they restart."""
    step, done_mcycles = job.job.checkpoint_mcycles, job.done_mcycles
    return math.floor(done_mcycles / step) * step / done_mcycles if step > 0.0 and done_mcycles > 0.0 else 0.0
