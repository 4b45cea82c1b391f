"""Jobs as sequences of stages: what is left, what a cycle needs, what a while of running achieves.

apc.txt sections 4.1 to 4.3 with two readings: the best remaining time begins at the current stage (not at the last one
done), and what a cycle needs counts every stage entered within it, not only those completed in it.

The stages of all jobs lie in ragged columns. Every function walks the k-th stages of all jobs at once, so it costs one
pass over the stages and adds up within a job in the order of a plain loop. Where every job has one stage the columns
are used as they are, without an index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints, StageColumns, WorkloadColumns

Rows = Ints | slice
ALL = slice(None)
_LEAST_MCYCLES = 1e-9


@dataclass(frozen=True, slots=True)
class JobStages:
    """Jobs and their stages; made by `job_stages` or `stages_of`. All figures are per instance.

    done_mcycles: float64[n], work done of each job. first_stage: int64[n + 1], the stages of job j are the rows
    first_stage[j]:first_stage[j + 1]. work_mcycles, max_mhz, min_mhz, memory_mib: float64[s]. ranks: for k = 0, 1, ...
    the jobs that have a k-th stage and the rows of these stages.
    """

    done_mcycles: Floats
    first_stage: Ints
    work_mcycles: Floats
    max_mhz: Floats
    min_mhz: Floats
    memory_mib: Floats
    ranks: tuple[tuple[Rows, Rows], ...]

    def __len__(self) -> int:
        return len(self.done_mcycles)


@dataclass(frozen=True, slots=True)
class CycleNeeds:
    """What each job needs throughout a cycle, per instance: the most speed it can use, the least with which it runs,
    memory. float64[n] each."""

    req_mhz: Floats
    min_mhz: Floats
    memory_mib: Floats


@dataclass(frozen=True, slots=True)
class Outlook:
    """Jobs after a while of running; float64[n] each, per instance.

    done_mcycles: work done in all. left_mcycles: work left (0: ended). best_s: time to complete that at full speed.
    ran_s: how long it ran, less than asked for where it ended before.
    """

    done_mcycles: Floats
    left_mcycles: Floats
    best_s: Floats
    ran_s: Floats


def job_stages(
    done_mcycles: Floats, first_stage: Ints, work_mcycles: Floats, max_mhz: Floats, min_mhz: Floats, memory_mib: Floats
) -> JobStages:
    """Return the jobs of ragged stages, see `JobStages`; a job may have none. Raises `InvalidValue` for wrong
    offsets."""
    counts = np.diff(first_stage)
    fits = len(first_stage) == len(done_mcycles) + 1 and first_stage[0] == 0 and first_stage[-1] == len(work_mcycles)
    if not fits or (counts < 0).any():
        raise InvalidValue("first_stage", first_stage, "0, ..., number of stages, never falling, one more than jobs")
    return JobStages(
        done_mcycles, first_stage, work_mcycles, max_mhz, min_mhz, memory_mib, _ranks(first_stage[:-1], counts)
    )


def stages_of(
    workloads: WorkloadColumns, stages: StageColumns, rows: Ints, limit_mhz: Floats | float = np.inf
) -> JobStages:
    """Return the jobs in these rows of a snapshot. limit_mhz: the most that one instance can be given (vcpus x core_mhz
    of the fastest node), a number or float64[len(rows)]; it limits the most that a stage can use."""
    counts = workloads.stages[rows]
    first_stage, taken = _gather(workloads.first_stage[rows], counts)
    limits = np.repeat(np.broadcast_to(np.asarray(limit_mhz, dtype=np.float64), len(rows)), counts)
    return job_stages(
        workloads.done_mcycles[rows],
        first_stage,
        stages.work_mcycles[taken],
        np.minimum(stages.max_mhz[taken], limits),
        stages.min_mhz[taken],
        stages.memory_mib[taken],
    )


def _gather(first: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """New offsets for jobs whose stages begin at `first`, and the old rows of these stages."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets, np.repeat(first - offsets[:-1], counts) + np.arange(offsets[-1])


def _ranks(first: Ints, counts: Ints) -> tuple[tuple[Rows, Rows], ...]:
    if len(counts) and counts.min() == counts.max() == 1:
        return ((ALL, ALL),)
    order = np.argsort(-counts, kind="stable")
    having = len(counts) - np.searchsorted(np.sort(counts), np.arange(counts.max(initial=0)), side="right")
    return tuple((order[:n], first[order[:n]] + k) for k, n in enumerate(having))


def left_by_stage(jobs: JobStages) -> Floats:
    """Return the work left in every stage in Mcycles (Eq. 3), float64[s]; 0 for stages done."""
    left = np.empty_like(jobs.work_mcycles)
    for _, stage, work in _walk(jobs):
        left[stage] = work
    return left


def left_mcycles(jobs: JobStages) -> Floats:
    """Return the work left of every job in Mcycles, per instance, float64[n]."""
    total = np.zeros(len(jobs))
    for job, _, work in _walk(jobs):
        total[job] += work
    return total


def finish_s(jobs: JobStages, at_mhz: Floats | float = np.inf) -> Floats:
    """Return the seconds to complete the remaining work at a constant allotment per instance, a number or float64[n].

    In each stage the speed is the smaller of the allotment and the stage's maximum; without an allotment this is the
    best remaining time. inf if work is left and the speed is 0.
    """
    given_mhz = np.broadcast_to(np.asarray(at_mhz, dtype=np.float64), len(jobs))
    total_s = np.zeros(len(jobs))
    for job, stage, work in _walk(jobs):
        total_s[job] += _seconds(work, np.minimum(given_mhz[job], jobs.max_mhz[stage]))
    return total_s


def cycle_needs(jobs: JobStages, cycle_s: float) -> CycleNeeds:
    """Return the needs of each job throughout a cycle of `cycle_s` seconds (Eqs. 4 to 6).

    The largest figures over the current stage and every stage entered before the cycle's end if all run at full speed.
    A stage without work is never entered. A job that has used up its declared work stays in its last stage with work;
    one without any work needs nothing.
    """
    req, least, memory = np.zeros(len(jobs)), np.zeros(len(jobs)), np.zeros(len(jobs))
    passed_s = np.zeros(len(jobs))
    for job, stage, work in _walk(jobs):
        # Until work is left, each stage takes the place of the one before; from then on the largest count.
        begun = passed_s[job] > 0.0
        entered = (work > 0.0) & (passed_s[job] < cycle_s)
        fresh = ~begun & (jobs.work_mcycles[stage] > 0.0)
        for kept, offered in ((req, jobs.max_mhz), (least, jobs.min_mhz), (memory, jobs.memory_mib)):
            larger = np.where(entered, np.maximum(kept[job], offered[stage]), kept[job])
            kept[job] = np.where(fresh, offered[stage], larger)
        passed_s[job] += _seconds(work, jobs.max_mhz[stage])
    return CycleNeeds(req, least, memory)


def outlook(jobs: JobStages, for_s: Floats | float, at_mhz: Floats | float) -> Outlook:
    """Return the jobs after `for_s` seconds at a constant allotment per instance; finite numbers >= 0 or float64[n]
    each.

    Speed in each stage as in `finish_s`; `best_s` is the time for the remaining work at full speed. The least speeds of
    the stages are ignored: an allotment below them requests a job that does not run.
    """
    given_mhz = np.broadcast_to(np.asarray(at_mhz, dtype=np.float64), len(jobs))
    time_s = np.array(np.broadcast_to(np.asarray(for_s, dtype=np.float64), len(jobs)))
    asked_s = time_s.copy()
    done, left, best_s = jobs.done_mcycles.copy(), np.zeros(len(jobs)), np.zeros(len(jobs))
    for job, stage, work in _walk(jobs):
        full = jobs.max_mhz[stage]
        speed = np.minimum(given_mhz[job], full)
        need_s = _seconds(work, speed)
        ends = need_s <= time_s[job]
        gained = np.where(ends, work, np.minimum(work, time_s[job] * speed))
        done[job] += gained
        left[job] += work - gained
        best_s[job] += _seconds(work - gained, full)
        time_s[job] = np.where(ends, time_s[job] - need_s, 0.0)
    return Outlook(done, left, best_s, asked_s - time_s)


def _walk(jobs: JobStages) -> Iterator[tuple[Rows, Rows, Floats]]:
    """Yield, for k = 0, 1, ...: (jobs with a k-th stage, the rows of these stages, work left in them)."""
    done = jobs.done_mcycles.copy()
    for job, stage in jobs.ranks:
        work = jobs.work_mcycles[stage]
        used = np.minimum(done[job], work)
        done[job] -= used
        yield job, stage, work - used


def _seconds(work: Floats, mhz: Floats) -> Floats:
    """Return the time for the work; 0 for no work, inf at no speed."""
    seconds = np.zeros(work.shape)
    with np.errstate(over="ignore"):  # hardly any speed is as good as none
        np.divide(work, mhz, out=seconds, where=(work > 0.0) & (mhz > 0.0))
    seconds[(work > 0.0) & (mhz <= 0.0)] = np.inf
    return seconds


def stage_work_left(work_mcycles: Sequence[float], done_mcycles: float, left_mcycles: float) -> list[float]:
    """Return the work of the stages of one job from its work done and left, regardless of its declaration: the
    unfinished work of each stage is scaled by the same factor; beyond all of them the last one with work is longer.
    O(stages)."""
    found, before, total = list(work_mcycles), 0.0, math.fsum(work_mcycles)
    if done_mcycles >= total:
        found[max(at for at, work in enumerate(found) if work > 0.0)] += done_mcycles + left_mcycles - total
        return found
    factor = left_mcycles / (total - done_mcycles)
    for at, work in enumerate(work_mcycles):
        rest = min(max(before + work - done_mcycles, 0.0), work)
        found[at] = work - rest + rest * factor
        before += work
    return found


def with_work_left(stages: JobStages, rows: Sequence[int], left_mcycles: Floats) -> JobStages:
    """Return the same jobs, with `left_mcycles` left of those in `rows`, float64[rows]: each as in `stage_work_left`. A
    job in `rows` has a stage with work. O(stages)."""
    if not len(rows):
        return stages
    work, first = stages.work_mcycles, stages.first_stage
    of = np.repeat(np.arange(len(stages)), np.diff(first))
    ends = np.cumsum(work)
    ends -= np.concatenate(([0.0], ends))[first[:-1]][of]
    rest = np.clip(ends - stages.done_mcycles[of], 0.0, work)
    declared, total = np.bincount(of, work, len(stages)), np.bincount(of, rest, len(stages))
    mine, beyond = np.array(rows, dtype=np.int64), stages.done_mcycles >= declared
    factor = np.ones(len(stages))
    factor[mine] = np.where(beyond[mine], 1.0, left_mcycles / np.maximum(total[mine], _LEAST_MCYCLES))
    found = work - rest + rest * factor[of]
    last = np.full(len(stages), -1, dtype=np.int64)
    np.maximum.at(last, of, np.where(work > 0.0, np.arange(len(work)), -1))
    more = np.where(beyond[mine], stages.done_mcycles[mine] + left_mcycles - declared[mine], 0.0)
    found[last[mine]] += more
    return replace(stages, work_mcycles=found)
