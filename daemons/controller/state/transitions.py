"""The lifecycle of jobs and replicas: no other module writes a phase or a revision.

    waiting --start--> running --complete--> completed
       ^                |   ^
       |   take_back,   |   | resume
       +---- stop ------+   |
                        +-suspend, rest, take_back--> suspended

In each of these phases a job can be cancelled, ended or released; an adopted VM is shut off and runs again. `revision`
counts every change that a decision in progress cannot know. The caller handles the consequences for others (events,
what is stored, whether to decide again).
"""

from __future__ import annotations

from collections.abc import Sequence

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import terms_of
from shared.values.jobs import Allotment, JobPhase

# --- what decisions want --------------------------------------------------------------------------------------------


def start(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment], now_s: float) -> None:
    """Want it to run from its beginning."""
    _begin(cluster, entry, allotments, False, now_s)


def resume(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment], now_s: float) -> None:
    """Want it to go on from its images."""
    _begin(cluster, entry, allotments, True, now_s)


def _begin(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment], resuming: bool, now_s: float) -> None:
    entry.phase, entry.released, entry.resuming = JobPhase.RUNNING, False, resuming
    entry.begun_s, entry.wanted_s = None, now_s
    reallot(cluster, entry, allotments)


def suspend(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment]) -> None:
    """Want it saved to images."""
    entry.phase, entry.released, entry.reading = JobPhase.SUSPENDED, False, None
    reallot(cluster, entry, allotments)


def stop(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment]) -> None:
    """Want a replica nowhere; a decision may start it again."""
    entry.phase, entry.released = JobPhase.WAITING, False
    reallot(cluster, entry, allotments)


def reallot(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment]) -> None:
    """Want it on other nodes or with other CPU, as it is."""
    cluster.set_allotments(entry, tuple(allotments))
    outdate(entry)


def outdate(entry: JobEntry) -> None:
    """Make stale what a decision in the making wants of it."""
    entry.revision += 1


def follow_on(entry: JobEntry, before: JobEntry) -> None:
    """Let a replica go on counting where the last one of its name ended: what is left of that stays older."""
    entry.attempt, entry.revision = before.attempt, before.revision + 1


# --- what is given up, and what ends --------------------------------------------------------------------------------


def rest(cluster: Cluster, entry: JobEntry) -> None:
    """Suspend what runs of a job; what has not come together yet waits, or goes back to its images."""
    if entry.phase is JobPhase.RUNNING:
        _give_up(cluster, entry, entry.released or entry.resuming)


def take_back(cluster: Cluster, entry: JobEntry, to_images: bool) -> None:
    """Give up an attempt to run the job: it goes back to its images, or waits to restart."""
    _give_up(cluster, entry, to_images)
    outdate(entry)


def _give_up(cluster: Cluster, entry: JobEntry, to_images: bool) -> None:
    entry.phase = JobPhase.SUSPENDED if to_images else JobPhase.WAITING
    entry.released, entry.resuming, entry.begun_s, entry.reading = False, False, None, None
    cluster.set_allotments(entry, ())


def run_on(cluster: Cluster, entry: JobEntry, allotments: Sequence[Allotment], now_s: float) -> None:
    """Want it to run on where it does, with this CPU."""
    entry.phase, entry.released = JobPhase.RUNNING, True
    entry.wanted_s = entry.progress_s = now_s
    entry.stalled = False
    reallot(cluster, entry, allotments)


def complete(cluster: Cluster, entry: JobEntry, now_s: float) -> None:
    """Note that all its work is done."""
    _end(cluster, entry, JobPhase.COMPLETED, now_s)


def cancel(cluster: Cluster, unit_of_work: UnitOfWork, entry: JobEntry, now_s: float) -> None:
    """Stop a job's VMs, discard its images and end it."""
    reconcile_vm(entry, now_s)
    _end(cluster, entry, JobPhase.CANCELLED, now_s)
    unit_of_work.change(entry)
    unit_of_work.place = True
    unit_of_work.emit(now_s, "job-cancelled", entry.job.name)


def remove(cluster: Cluster, entry: JobEntry, now_s: float) -> None:
    """End a replica for good."""
    entry.released = False
    _end(cluster, entry, JobPhase.CANCELLED, now_s)


def forget(cluster: Cluster, entry: JobEntry, now_s: float) -> None:
    """Release a job whose VMs continue without the controller."""
    reconcile_vm(entry, now_s)
    entry.released = False
    _end(cluster, entry, JobPhase.FORGOTTEN, now_s)


def _end(cluster: Cluster, entry: JobEntry, phase: JobPhase, now_s: float) -> None:
    entry.phase, entry.finished_s = phase, now_s
    reallot(cluster, entry, ())


# --- VMs that others start and stop ---------------------------------------------------------------------------------


def adopt(entry: JobEntry, runs: bool, now_s: float) -> None:
    """Take over a VM that runs, or is shut off."""
    entry.phase, entry.attempt = JobPhase.RUNNING if runs else JobPhase.SHUT_OFF, 1
    entry.begun_s = entry.wanted_s = entry.progress_s = now_s


def shut_off(cluster: Cluster, entry: JobEntry, now_s: float) -> bool:
    """Note that an adopted VM no longer runs; one whose adoption had not completed is released. Return whether it had
    completed."""
    entry.phase = JobPhase.SHUT_OFF if entry.taken else JobPhase.FORGOTTEN
    entry.released, entry.resuming, entry.begun_s, entry.reading = False, False, None, None
    entry.finished_s = 0.0 if entry.taken else now_s
    if entry.failover_to:  # it may be defined there by now
        entry.left_on = tuple(sorted({*entry.left_on, entry.failover_to}))
    entry.failover_to = ""
    entry.reconciliation_paused, entry.wanted_s = None, now_s
    reallot(cluster, entry, ())
    return entry.taken


def shut_down(cluster: Cluster, entry: JobEntry, now_s: float) -> None:
    """Want an adopted VM shut off: its guest is shut down where it runs."""
    reconcile_vm(entry, now_s)
    entry.phase, entry.released, entry.resuming, entry.reading = JobPhase.SHUT_OFF, True, False, None
    entry.wanted_s = now_s
    reallot(cluster, entry, ())


def is_off(entry: JobEntry) -> None:
    """Note that an adopted VM that was to be shut down is off."""
    entry.released = False
    outdate(entry)


def start_adopted(cluster: Cluster, entry: JobEntry, allotment: Allotment, now_s: float) -> None:
    """Want an adopted VM that is shut off to run where its definition is. Its attempt stays: it counts whoever starts
    it."""
    for instance in entry.instances:
        instance.issued_attempt, instance.host_restarted = 0, False
    start(cluster, entry, (allotment,), now_s)


def fail_over(cluster: Cluster, entry: JobEntry, allotment: Allotment, left: str, now_s: float) -> None:
    """Want an adopted VM to be defined anew on another node and to run there; its own node, `left`, is off."""
    start_adopted(cluster, entry, allotment, now_s)
    entry.failover_to = allotment.node
    digests = {**dict(entry.left_digests), left: entry.definition_digest}
    entry.left_digests = tuple(sorted(digests.items()))
    entry.left_on = tuple(sorted({*entry.left_on, left} - {allotment.node}))


def run_again(cluster: Cluster, entry: JobEntry, allotment: Allotment, now_s: float) -> None:
    """Note that an adopted VM runs again, where and with how much CPU."""
    run_on(cluster, entry, (allotment,), now_s)


def found_saved(entry: JobEntry) -> None:
    """Note that an adopted VM that was shut off has a saved image. It is held there, unless a decision saved it before
    its host failed."""
    entry.phase, entry.held = JobPhase.SUSPENDED, entry.held or entry.lost_with_host or not terms_of(entry).running
    outdate(entry)


def started_externally(cluster: Cluster, entry: JobEntry, allotment: Allotment, now_s: float) -> None:
    """Note that somebody else has started a job of one instance: it runs from now on."""
    entry.phase, entry.released, entry.resuming, entry.begun_s = JobPhase.RUNNING, True, False, None
    entry.wanted_s = entry.progress_s = now_s
    cluster.set_allotments(entry, (allotment,))


def reconcile_vm(entry: JobEntry, now_s: float) -> None:
    """End the hold, and forget how often there was one."""
    if entry.reconciliation_paused is not None:
        if entry.not_before_s <= entry.reconciliation_paused.until_s:
            entry.not_before_s = min(entry.not_before_s, now_s)
        entry.reconciliation_paused, entry.reweights = None, 0
