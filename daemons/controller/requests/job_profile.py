"""The stages of a job that declares none, as completed jobs of its class suggest them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from daemons.controller.state.jobs import JobEntry
from daemons.models.job_profiler import JOBS_MAX, FinishedJob, JobProfileStatus, ProfileParams, profile_of
from daemons.values.records.cluster import DECLARED
from shared.values.jobs import Job, JobPhase, Stage

SPEED_MIN_MHZ = 1e-3
JOBS_MIN = ProfileParams().jobs_min


def with_stages(job: Job, known: Iterable[JobEntry]) -> tuple[Job, str]:
    """Return a job of a class with the stage that completed jobs of its class suggest, and the origin of the stage as
    text.

    When there are too few such jobs, return the job itself and what is missing.
    """
    jobs = _finished(job.job_class, known)
    profile = profile_of(jobs)
    if profile.standing is not JobProfileStatus.ESTIMATED:
        return job, (
            f"{len(jobs)} jobs of class {job.job_class!r} have been completed and measured, {JOBS_MIN} are needed to "
            "tell what another one needs; submit it with stages"
        )
    speed_mhz = max(profile.max_mhz.value, SPEED_MIN_MHZ)
    stage = Stage(profile.work_mcycles.value, speed_mhz, memory_mib=math.ceil(profile.memory_mib.value))
    half = profile.work_mcycles.half_width_frac
    sure = f", ±{100.0 * half:.0f} %" if math.isfinite(half) else ""
    return replace(job, stages=(stage,)), f"estimated from {profile.jobs} jobs{sure}"


def _finished(job_class: str, known: Iterable[JobEntry]) -> tuple[FinishedJob, ...]:
    """Return the newest completed jobs of a class whose work was measured, oldest first."""
    done = [
        entry
        for entry in known
        if entry.job.job_class == job_class and entry.phase is JobPhase.COMPLETED and entry.measured_mcycles > 0.0
    ]
    done.sort(key=lambda entry: (entry.finished_s, entry.order))
    return tuple(
        FinishedJob(entry.measured_mcycles, _speed_mhz(entry), float(entry.job.memory_mib))
        for entry in done[-JOBS_MAX:]
    )


def _speed_mhz(entry: JobEntry) -> float:
    """Return the highest observed speed. Other load may have slowed the job down; a declared speed therefore counts as
    well."""
    return max(entry.measured_mhz, entry.job.max_mhz if entry.profile == DECLARED else 0.0)
