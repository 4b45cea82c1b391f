"""The life cycle of jobs: what changes a phase."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.entries import JobEntry
from daemons.controller.state.unit_of_work import Agenda
from shared.values.jobs import JobPhase


def rest(cluster: Cluster, entry: JobEntry) -> None:
    """What runs of a job is suspended; what has not come together yet waits, or goes back to its images."""
    if entry.phase is JobPhase.RUNNING:
        imaged = entry.released or entry.resuming
        entry.phase = JobPhase.SUSPENDED if imaged else JobPhase.WAITING
        entry.released, entry.resuming, entry.begun_s, entry.reading = False, False, None, None
        cluster.set_allotments(entry, ())


def cancel(cluster: Cluster, agenda: Agenda, entry: JobEntry, now_s: float) -> None:
    """Stop a job's VMs, discard its images and end it."""
    hands_on(entry, now_s)
    entry.phase, entry.finished_s = JobPhase.CANCELLED, now_s
    cluster.set_allotments(entry, ())
    entry.revision += 1
    agenda.change(entry)
    agenda.place = True
    agenda.happened(now_s, "job-cancelled", entry.job.name)


def hands_on(entry: JobEntry, now_s: float) -> None:
    """End the hold, and forget how often there was one."""
    if entry.hands_off is not None:
        if entry.not_before_s <= entry.hands_off.until_s:
            entry.not_before_s = min(entry.not_before_s, now_s)
        entry.hands_off, entry.reweights = None, 0
