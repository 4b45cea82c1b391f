"""Predictions that views show of a job's future: its end and its utility. Pure."""

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
    """Return when a job ends that keeps the CPU of its slowest instance, with each stage at most at its own limit, in
    whole seconds.

    Counted from when its work was last read; the result is therefore constant between reports. None: it does not run,
    makes no progress, has no CPU, or its work is not declared.
    """
    return _end_s(entry, [stage.work_mcycles for stage in entry.job.stages])


def predicted_ends_s(entry: JobEntry, left: LeftWork) -> tuple[float, float, float] | None:
    """Return when a job ends whose remaining work is estimated instead of declared, at the CPU of its slowest instance:
    the expected end, and the ends by which a tenth and nine tenths of such jobs are done. None as in `predicted_end_s`,
    which says when its declared work is done."""
    declared = [stage.work_mcycles for stage in entry.job.stages]
    amounts = left.mean_mcycles, left.low_mcycles, left.high_mcycles
    if entry.job.work_mcycles <= 0.0:
        return None
    mean_s, low_s, high_s = (
        _end_s(entry, stage_work_left(declared, entry.done_mcycles, mcycles)) for mcycles in amounts
    )
    return None if mean_s is None or low_s is None or high_s is None else (mean_s, low_s, high_s)


def _end_s(entry: JobEntry, work_mcycles: Sequence[float]) -> float | None:
    """Return the same as `predicted_end_s`, with this much work in its stages."""
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
    """Return the predictions of the last decision that predicted anything, by workload; `decisions` newest first."""
    last = next((record for record in decisions if len(record.gains)), None)
    if last is None:
        return {}
    gains = columns_of(last.gains)
    return dict(zip(gains.names, gains.predicted.tolist(), strict=True))


def job_utility(entry: JobEntry, predicted: Mapping[str, float], end_s: float | None) -> float | None:
    """Return a job's utility (1 best, 0 on its goal): the actual one once it is complete, otherwise the predicted one,
    otherwise that of an end at `end_s`. None: unknown, or over without being complete."""
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
    """Return the utility of a complete job: that of its completion time."""
    job = entry.job
    goal_s = math.inf if job.goal_s is None else job.goal_s
    return float(utility_at(entry.finished_s, job.desired_start_s, goal_s, job.importance))
