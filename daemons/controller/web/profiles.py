"""What the profilers make of what was measured: the work of web requests, and the stages of jobs of a class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from daemons.controller.state.entries import JobEntry
from daemons.controller.state.web_app import WorkEstimate
from daemons.models.job_profiler import JOBS_MAX, ClassHistory, FinishedJob, JobHistory, ProfileParams, profile_of
from daemons.models.job_profiler import Standing as ClassStanding
from daemons.models.work_profiler import UsageSample, WorkWindows, estimate
from daemons.values.records.cluster import DECLARED, WorkWindow
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.web_app import WebApp

HALF_WIDTH_MAX_FRAC = 1.0  # an estimate that could as well be nothing is none
SPEED_MIN_MHZ = 1e-3
JOBS_MIN = ProfileParams().jobs_min


def estimates_of(app: WebApp, windows: Iterable[WorkWindow]) -> dict[str, WorkEstimate]:
    """The work per request of the flows that declare none, as far as the windows tell it.

    What the declared work explains of the CPU used is taken off first. Flows that the regression cannot tell yet, or
    not from each other, get their average: the rest of the CPU used over their requests, with an infinite half-width.
    """
    declared = {flow.name: flow.work_mcycles for flow in app.flows if flow.work_mcycles is not None}
    names = tuple(flow.name for flow in app.flows if flow.name not in declared)
    samples = [_sample(window, names, declared) for window in windows]
    if not names or not samples:
        return {}
    found = {
        flow.flow: WorkEstimate(flow.work_mcycles, flow.half_width_frac, flow.samples)
        for flow in estimate(WorkWindows(names, tuple(samples))).flows
        if flow.work_mcycles > 0.0 and flow.half_width_frac <= HALF_WIDTH_MAX_FRAC
    }
    return found | _averages(names, samples, found)


def _sample(window: WorkWindow, names: tuple[str, ...], declared: Mapping[str, float]) -> UsageSample:
    """A window with the CPU that the flows `names` have used."""
    served = {one.flow: float(one.served) for one in window.served}
    known_mcycles = sum(served.get(name, 0.0) * work_mcycles for name, work_mcycles in declared.items())
    used_mhz = max(0.0, window.used_mcycles - known_mcycles) / window.seconds
    answered = tuple(served.get(name, 0.0) for name in names)
    return UsageSample(window.seconds, used_mhz, window.instances, answered, (0.0,) * len(names))


def _averages(
    names: tuple[str, ...], samples: list[UsageSample], found: Mapping[str, WorkEstimate]
) -> dict[str, WorkEstimate]:
    """For each flow that is not `found`, the CPU that those have not used over its and its like's requests."""
    used_mcycles = requests = 0.0
    for sample in samples:
        used_mcycles += sample.used_mhz * sample.window_s
        for name, answered in zip(names, sample.answered, strict=True):
            if name in found:
                used_mcycles -= answered * found[name].work_mcycles
            else:
                requests += answered
    if requests <= 0.0 or used_mcycles <= 0.0:
        return {}
    average = WorkEstimate(used_mcycles / requests, math.inf, len(samples))
    return {name: average for name in names if name not in found}


def with_stages(job: Job, known: Iterable[JobEntry]) -> tuple[Job, str]:
    """A job of a class with the stage that completed jobs of its class suggest, and where it comes from in words.

    The job itself, and what is missing, when there are too few.
    """
    jobs = _finished(job.job_class, known)
    profile = profile_of(JobHistory((ClassHistory(job.job_class, jobs),)), job.job_class)
    if profile.standing is not ClassStanding.ESTIMATED:
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
    """The newest completed jobs of a class whose work was measured, oldest first."""
    done = [
        entry
        for entry in known
        if entry.job.job_class == job_class and entry.phase is JobPhase.COMPLETED and entry.measured_mcycles > 0.0
    ]
    done.sort(key=lambda entry: (entry.finished_s, entry.order))
    return tuple(
        FinishedJob(job_class, entry.measured_mcycles, _speed_mhz(entry), float(entry.job.memory_mib))
        for entry in done[-JOBS_MAX:]
    )


def _speed_mhz(entry: JobEntry) -> float:
    """The highest speed that was seen; others may have held the job back, so what was declared counts as well."""
    return max(entry.measured_mhz, entry.job.max_mhz if entry.profile == DECLARED else 0.0)
