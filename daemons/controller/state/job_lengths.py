"""How much work jobs have left: by what they declared, or where that is wrong by what ended jobs like them took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daemons.controller.state.jobs import JobEntry
from daemons.models.work_left import NO_HISTORY, RatioHistory, is_off, mean_left, with_ended, work_left
from daemons.values.records.cluster import Deleted, WorkRatioRecord
from shared.policy_api.snapshot import Floats
from shared.values.jobs import JobPhase

GROUPS_MAX = 500  # the one of which no job has ended for longest goes


@dataclass(frozen=True, slots=True)
class LeftWork:
    """Work left in Mcycles per instance of a job that does not go by what it declared: mean, tenth and ninetieth
    percentile."""

    mean_mcycles: float
    low_mcycles: float
    high_mcycles: float


class JobLengths:
    """The histories of groups: a job's class, or of jobs without one the account that submitted them."""

    def __init__(self) -> None:
        self._known: dict[str, WorkRatioRecord] = {}
        self._off: set[str] = set()

    def __iter__(self) -> Iterator[WorkRatioRecord]:
        return iter(self._known.values())

    def load(self, record: WorkRatioRecord) -> None:
        """Take over what an earlier controller has learnt."""
        self._known[record.group] = record
        (self._off.add if is_off(record.history) else self._off.discard)(record.group)

    def history(self, group: str) -> RatioHistory:
        """Return what is known of a group."""
        known = self._known.get(group)
        return NO_HISTORY if known is None else known.history

    def ended(self, entry: JobEntry) -> tuple[WorkRatioRecord | Deleted, ...]:
        """Add a completed job; return the records to store."""
        job, group = entry.job, _group(entry)
        if not group or job.app or entry.adopted or entry.phase is not JobPhase.COMPLETED:
            return ()
        before = self.history(group)
        history = with_ended(before, job.work_mcycles, entry.measured_mcycles)
        if history == before and history.count == 0:
            return ()
        record = WorkRatioRecord(group, history, entry.finished_s)
        self.load(record)
        if len(self._known) <= GROUPS_MAX:
            return (record,)
        oldest = min(self._known.values(), key=lambda one: (one.ended_s, one.group))
        del self._known[oldest.group]
        self._off.discard(oldest.group)
        return (record, Deleted(oldest.key))

    def left(self, entries: Iterable[JobEntry]) -> dict[str, LeftWork]:
        """Return what is left of those of the jobs that do not go by what they declared, by name: they have used it up,
        or the ended jobs of their group exclude it. O(jobs)."""
        found = [entry for entry in entries if self._is_other(entry)]
        if not found:
            return {}
        left = work_left(*self._columns(found))
        rows = zip(found, left.mean.tolist(), left.low.tolist(), left.high.tolist(), strict=True)
        return {entry.job.name: LeftWork(mean, low, high) for entry, mean, low, high in rows}

    def means_left(
        self, entries: Sequence[JobEntry], done_mcycles: Floats, left_mcycles: Floats
    ) -> tuple[list[int], Floats]:
        """Return the rows of those jobs and the means of what is left of them, float64[rows]. done_mcycles,
        left_mcycles: float64[entries], by what they declared. O(jobs)."""
        if self._off:
            rows = [at for at, entry in enumerate(entries) if left_mcycles[at] <= 0.0 or _group(entry) in self._off]
        else:
            rows = np.flatnonzero(left_mcycles <= 0.0).tolist()
        rows = [row for row in rows if self._is_other(entries[row])]
        if not rows:
            return rows, np.zeros(0)
        columns = self._columns([entries[row] for row in rows])
        return rows, mean_left(columns[0], done_mcycles[rows], *columns[2:])

    def _is_other(self, entry: JobEntry) -> bool:
        """Return whether a job's work does not follow its declaration; O(instances)."""
        job = entry.job
        if entry.over or entry.adopted or job.app or job.work_mcycles <= 0.0:
            return False
        if entry.done_mcycles < job.work_mcycles:
            return _group(entry) in self._off
        return any(not one.ended for one in entry.instances)

    def _columns(
        self, entries: Sequence[JobEntry]
    ) -> tuple[list[float], list[float], list[int], list[float], list[float]]:
        histories = [self.history(_group(entry)) for entry in entries]
        return (
            [entry.job.work_mcycles for entry in entries],
            [entry.done_mcycles for entry in entries],
            [history.count for history in histories],
            [history.mean for history in histories],
            [history.variance for history in histories],
        )


def _group(entry: JobEntry) -> str:
    return entry.job.job_class or entry.user
