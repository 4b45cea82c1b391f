"""How much work jobs have left: what they declared, and beyond that what the ended jobs of their class took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from daemons.controller.state.jobs import JobEntry
from daemons.models.overrun import NO_HISTORY, RatioHistory, with_ended, work_left
from daemons.values.records.cluster import Deleted, OverrunRecord
from shared.values.jobs import JobPhase

CLASSES_MAX = 500  # the one of which no job has ended for longest goes


@dataclass(frozen=True, slots=True)
class Overrun:
    """Work left in Mcycles per instance of a job that has done what it declared: mean, tenth and ninetieth
    percentile."""

    mean_mcycles: float
    low_mcycles: float
    high_mcycles: float


class JobLengths:
    """The histories of classes. A job without a class goes by none."""

    def __init__(self) -> None:
        self._known: dict[str, OverrunRecord] = {}

    def __iter__(self) -> Iterator[OverrunRecord]:
        return iter(self._known.values())

    def load(self, record: OverrunRecord) -> None:
        """Take over what an earlier controller has learnt."""
        self._known[record.job_class] = record

    def history(self, job_class: str) -> RatioHistory:
        """Return what is known of a class."""
        known = self._known.get(job_class)
        return NO_HISTORY if known is None else known.history

    def ended(self, entry: JobEntry) -> tuple[OverrunRecord | Deleted, ...]:
        """Take in a job that was completed; returns what is to be stored."""
        job = entry.job
        if not job.job_class or job.app or entry.adopted or entry.phase is not JobPhase.COMPLETED:
            return ()
        before = self.history(job.job_class)
        history = with_ended(before, job.work_mcycles, entry.measured_mcycles)
        if history == before and history.count == 0:
            return ()
        self._known[job.job_class] = record = OverrunRecord(job.job_class, history, entry.finished_s)
        if len(self._known) <= CLASSES_MAX:
            return (record,)
        oldest = min(self._known.values(), key=lambda one: (one.ended_s, one.job_class))
        del self._known[oldest.job_class]
        return (record, Deleted(oldest.key))

    def overruns(self, entries: Iterable[JobEntry]) -> dict[str, Overrun]:
        """Return what is left of those of the jobs that have used up what they declared, by name; O(jobs)."""
        over = [entry for entry in entries if _is_beyond(entry)]
        if not over:
            return {}
        histories = [self.history(entry.job.job_class) for entry in over]
        left = work_left(
            [entry.job.work_mcycles for entry in over],
            [entry.done_mcycles for entry in over],
            [history.count for history in histories],
            [history.mean for history in histories],
            [history.variance for history in histories],
        )
        rows = zip(over, left.mean.tolist(), left.low.tolist(), left.high.tolist(), strict=True)
        return {entry.job.name: Overrun(mean, low, high) for entry, mean, low, high in rows}


def _is_beyond(entry: JobEntry) -> bool:
    """Whether a job goes on although its declared work is done; O(instances)."""
    job = entry.job
    if entry.over or entry.adopted or job.app or job.work_mcycles <= 0.0:
        return False
    return any(not one.ended for one in entry.instances) and entry.done_mcycles >= job.work_mcycles
