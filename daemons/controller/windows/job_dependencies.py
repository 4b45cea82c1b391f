"""Jobs that wait for jobs: who waits for whom, who is released, and when the others are expected to be.

A job can only name jobs that are known when it is submitted, and never itself, so nobody waits in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Container

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.replies import unknown
from shared.values.jobs import Job, JobPhase


class DependencyGraph:
    """Releases jobs when the last of the jobs that they are `after` is completed."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work
        self._of: dict[str, dict[str, JobEntry]] = {}  # by predecessor: who waits for it
        self._lost: set[str] = set()  # predecessors of which it was told that they will never be completed

    def refuse(self, job: Job) -> tuple[str, str]:
        """Return why the job cannot wait for what it names, code and text ("": it can)."""
        for name in job.depends_on:
            entry = self.cluster.job(name)
            if entry is None:
                return "unknown-job", f"depends_on: {unknown('job', name, self.cluster.jobs)}; submit that one first"
            if entry.over and entry.phase is not JobPhase.COMPLETED:
                return "job-over", f"depends_on: job {name!r} is {entry.phase} and will never be completed"
        return "", ""

    def awaited(self, job: Job) -> tuple[str, ...]:
        """Return the jobs in its `depends_on` that are not completed."""
        return tuple(name for name in job.depends_on if not self._completed(name))

    def _completed(self, name: str) -> bool:
        entry = self.cluster.jobs.get(name)
        return entry is not None and entry.phase is JobPhase.COMPLETED

    def watch(self, entry: JobEntry) -> None:
        """Take note of what a job waits for; nothing happens when that is known already."""
        if not entry.over:
            for name in entry.awaits:
                self._of.setdefault(name, {})[entry.job.name] = entry

    def over(self, entry: JobEntry, now_s: float) -> None:
        """Handle a job that is over: release jobs that waited only for it, or report that they can never be
        released."""
        name = entry.job.name
        waiting = [successor for successor in self._of.get(name, {}).values() if name in successor.awaits]
        for successor in waiting:
            if successor.over:
                continue
            if entry.phase is not JobPhase.COMPLETED:
                if name in self._lost:
                    continue
                why = f"job {name!r}, which it waits for, is {entry.phase}"
                self.unit_of_work.emit(now_s, "job-dependency-failed", successor.job.name, why)
                continue
            successor.awaits = tuple(awaited for awaited in successor.awaits if awaited != name)
            self.unit_of_work.change(successor)
            if not successor.awaits:
                self.unit_of_work.place = True
                self.unit_of_work.emit(now_s, "job-unblocked", successor.job.name, f"after {name}")
        if entry.phase is JobPhase.COMPLETED:
            self._of.pop(name, None)
        elif waiting:
            self._lost.add(name)

    def forget(self, names: Container[str]) -> None:
        """Drop deleted jobs: they wait for none, and a new job of the same name is another one."""
        self._of = {
            name: kept
            for name, found in self._of.items()
            if (kept := {each: entry for each, entry in found.items() if each not in names})
        }
        self._lost = {name for name in self._lost if name not in names}

    def stranded(self, entry: JobEntry) -> str:
        """Return a job that it waits for and that will never be completed ("": none)."""
        for name in entry.awaits:
            awaited = self.cluster.jobs.get(name)
            if awaited is None or (awaited.over and awaited.phase is not JobPhase.COMPLETED):
                return name
        return ""

    def releases_s(self, now_s: float) -> dict[str, float]:
        """Return the earliest time when each job that waits for others is expected to be released (inf: never): as if
        every job before it ran at its highest speed as soon as it may."""
        waiting = {name: entry for found in self._of.values() for name, entry in found.items() if not entry.over}
        releases: dict[str, float] = {}
        for name, entry in sorted(waiting.items(), key=lambda item: item[1].order):
            ends = (self._end_s(awaited, releases, now_s) for awaited in entry.awaits)
            releases[name] = max(ends, default=now_s)
        return releases

    def _end_s(self, name: str, releases: dict[str, float], now_s: float) -> float:
        entry = self.cluster.jobs.get(name)
        if entry is None or entry.over:
            return now_s if entry is not None and entry.phase is JobPhase.COMPLETED else math.inf
        begin_s = max(now_s, releases.get(name, now_s), entry.job.desired_start_s, entry.not_before_s)
        return begin_s + left_s(entry)


def left_s(entry: JobEntry) -> float:
    """Return the remaining seconds of a job at its highest speed."""
    work_mcycles = entry.job.work_mcycles
    left = 1.0 - min(1.0, entry.done_mcycles / work_mcycles) if work_mcycles > 0.0 else 1.0
    return left * math.fsum(stage.work_mcycles / stage.max_mhz for stage in entry.job.stages)
