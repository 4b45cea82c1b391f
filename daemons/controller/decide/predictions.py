"""What views tell of a job's future: when it ends, and how content it will be. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from daemons.controller.state.job_lengths import LeftWork
from daemons.controller.state.jobs import JobEntry
from daemons.decision.gains import columns_of
from daemons.models.stages import stage_work_left
from daemons.models.utility import utility_at
from daemons.values.records.cluster import DecisionRecord
from shared.values.jobs import JobPhase


def predicted_end_s(entry: JobEntry) -> float | None:
    """When a job ends that keeps the CPU of its slowest instance, each stage at its own limit at most; whole seconds.

    Counted from when its work was last read, so that it stands still from one report to the next. None: it does not
    run, or makes no progress, or has no CPU, or its work is not declared.
    """
    return _end_s(entry, [stage.work_mcycles for stage in entry.job.stages])


def predicted_ends_s(entry: JobEntry, left: LeftWork) -> tuple[float, float, float] | None:
    """When a job ends that does not go by the work that it declared, at the CPU of its slowest instance: as expected,
    and a tenth and nine tenths of such jobs; None as `predicted_end_s`, which says when its declared work is done."""
    declared = [stage.work_mcycles for stage in entry.job.stages]
    amounts = left.mean_mcycles, left.low_mcycles, left.high_mcycles
    if entry.job.work_mcycles <= 0.0:
        return None
    mean_s, low_s, high_s = (
        _end_s(entry, stage_work_left(declared, entry.done_mcycles, mcycles)) for mcycles in amounts
    )
    return None if mean_s is None or low_s is None or high_s is None else (mean_s, low_s, high_s)


def _end_s(entry: JobEntry, work_mcycles: Sequence[float]) -> float | None:
    """As `predicted_end_s`, where its stages have so much work."""
    if entry.phase is not JobPhase.RUNNING or not entry.released or entry.stalled or entry.job.work_mcycles <= 0.0:
        return None
    given_mhz = min((allotment.cpu_mhz for allotment in entry.allotments), default=0.0)
    if given_mhz <= 0.0:
        return None
    done_mcycles, end_s = entry.done_mcycles, entry.progress_s
    for stage, work in zip(entry.job.stages, work_mcycles, strict=True):
        end_s += max(work - done_mcycles, 0.0) / min(given_mhz, stage.max_mhz)
        done_mcycles = max(done_mcycles - work, 0.0)
    return float(round(end_s))


def predicted_utilities(decisions: Iterable[DecisionRecord]) -> Mapping[str, float]:
    """What the last decision that predicted anything predicts, by workload; `decisions` newest first."""
    last = next((record for record in decisions if len(record.gains)), None)
    if last is None:
        return {}
    gains = columns_of(last.gains)
    return dict(zip(gains.names, gains.predicted.tolist(), strict=True))


def job_utility(entry: JobEntry, predicted: Mapping[str, float], end_s: float | None) -> float | None:
    """A job's utility (1 best, 0 on its goal): of one that is complete as it was, else as predicted, else that of
    `end_s`, when it is to end. None: not known, or over without being complete."""
    job = entry.job
    if entry.over:
        return utility_of_completed(entry) if entry.phase is JobPhase.COMPLETED and job.goal_s is not None else None
    if job.name in predicted:
        return predicted[job.name]
    if job.goal_s is None or end_s is None:
        return None
    margin = (job.goal_s - end_s) / (job.goal_s - job.desired_start_s)
    # `models.utility.utility_at` for one job: views have thousands
    return margin / job.importance if margin > 0.0 else margin * job.importance


def utility_of_completed(entry: JobEntry) -> float:
    """The utility of a job that is complete: that of the time when it was."""
    job = entry.job
    goal_s = math.inf if job.goal_s is None else job.goal_s
    return float(utility_at(entry.finished_s, job.desired_start_s, goal_s, job.importance))
