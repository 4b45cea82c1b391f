"""The jobs of a span: true submissions, and of completed ones the work that was measured."""

from __future__ import annotations

import math
from dataclasses import replace

from daemons.controller.state.jobs import OVER
from daemons.store.reading import Reading
from daemons.values.records.cluster import JobRecord
from shared.policy_api.snapshot import Snapshot
from shared.values.jobs import Job, JobPhase
from sim_backend.history.values import LoggedJob
from sim_backend.loop.closed_loop import Stages

JOBS_MAX = 1_000_000
LEAST_FRAC = 0.001  # of a job's work, that is left of one which has done more than it had declared

Left = dict[str, str]


def read_jobs(reader: Reading, first: Snapshot, from_s: float, to_s: float) -> tuple[tuple[LoggedJob, ...], Left]:
    """Return the jobs of a span in order of submission, and the number of jobs left out by reason."""
    there = _standing(first)
    since_s = min(from_s, first.now_s)
    touched = [row.name for row in reader.jobs(since_s, to_s, JOBS_MAX) if row.accepted_s < to_s]
    names = dict.fromkeys((*there, *touched))
    found: list[LoggedJob] = []
    lost = stages = adopted = 0
    for name in names:
        record = reader.job(name)
        if record is None or (name in there and record.accepted_s >= to_s):
            lost += 1
            continue
        if record.phase in OVER and record.finished_s < from_s:
            continue
        if not record.job.stages:
            stages += 1
            continue
        adopted += bool(record.adopted)
        found.append(_logged(record, there.get(name, 0.0), from_s))
    kept = {each.job.name for each in found}
    jobs = [replace(each, job=_alone(each.job, kept)) for each in found]
    jobs.sort(key=lambda each: (each.at_s, each.accepted_s, each.job.name))
    return tuple(jobs), _left_out(lost, stages, adopted)


def _left_out(lost: int, stages: int, adopted: int) -> Left:
    counts = {
        "jobs that the store has forgotten": lost,
        "jobs of whose work nothing is known": stages,
        "adopted VMs": adopted,
    }
    words = {"adopted VMs": "they are simulated as jobs"}
    return {name: f"{count}{': ' + words[name] if name in words else ''}" for name, count in counts.items() if count}


def _standing(first: Snapshot) -> dict[str, float]:
    """Return the jobs at the begin of the span, with the work done per instance."""
    work = first.workloads
    return {name: work.done_mcycles.item(row) for row, name in enumerate(work.names) if work.app.item(row) < 0}


def _logged(record: JobRecord, done_mcycles: float, from_s: float) -> LoggedJob:
    job, at_s = record.job, max(record.accepted_s - from_s, 0.0)
    truth = _true_stages(record)
    left = _left(truth, done_mcycles)
    declared = _left([(stage.work_mcycles, stage.max_mhz) for stage in job.stages], done_mcycles)
    skipped = len(job.stages) - len(declared)
    stages = tuple(
        replace(stage, work_mcycles=work) for stage, (work, _) in zip(job.stages[skipped:], declared, strict=True)
    )
    cancelled = record.phase is JobPhase.CANCELLED
    return LoggedJob(
        replace(job, stages=stages),
        at_s,
        left,
        record.accepted_s,
        max(record.finished_s - from_s, at_s) if cancelled else None,
    )


def _true_stages(record: JobRecord) -> Stages:
    """Return the job's stages, scaled by one common factor to the measured work where it was measured."""
    declared = math.fsum(stage.work_mcycles for stage in record.job.stages)
    known = record.phase is JobPhase.COMPLETED and record.measured_mcycles > 0.0 and declared > 0.0
    factor = record.measured_mcycles / declared if known else 1.0
    return [(stage.work_mcycles * factor, stage.max_mhz) for stage in record.job.stages]


def _left(stages: Stages, done_mcycles: float) -> list[tuple[float, float]]:
    """Return the stages that remain after this amount of work; a small part of the last one always remains."""
    if done_mcycles <= 0.0:
        return list(stages)
    rest = list(stages)
    done = done_mcycles
    while len(rest) > 1 and done >= rest[0][0]:
        done -= rest.pop(0)[0]
    work, speed = rest[0]
    rest[0] = (max(work - done, LEAST_FRAC * work), speed)
    return rest


def _alone(job: Job, kept: set[str]) -> Job:
    """Return the job without the parts that are not simulated: environment, window, and dependencies on jobs that are
    not in the span."""
    return replace(job, environment="", queue="", depends_on=tuple(name for name in job.depends_on if name in kept))
