"""Deadline windows, and jobs that wait for jobs, as a feature of the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from daemons.controller.contract.feature import DONE, NO_PART, Alarm, Caller, Feature, Refused, SnapshotPart
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.windows.snapshot import Expected, window_views
from daemons.controller.windows.views import forecast, stranded_jobs, window_alarms
from daemons.controller.windows.windows import WindowBook
from daemons.decision.pipeline import DecideOutcome
from daemons.values.records.cluster import WindowRecord
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query, Request, SubmitJob

TIMER = "windows"


class WindowsFeature(Feature):
    """Keeps the forecasts of deadline windows, and releases jobs that wait for others. expected_s(node type, "deploy"
    or "remove"): how long nodes take to come into service or to leave it."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        deciding: DecisionCycle,
        expected_s: Expected,
    ) -> None:
        self._unit_of_work, self._deciding, self._expected_s = unit_of_work, deciding, expected_s
        self.book = WindowBook(cluster, unit_of_work, settings)
        self.records = {WindowRecord: lambda record, _now_s: self.book.load(record)}
        self.timers = {TIMER: self._due}
        self.views = {"forecast": self._view}

    def restore(self, now_s: float) -> None:
        """Count what is known only from the jobs."""
        self.book.loaded()

    def lead(self, now_s: float) -> None:
        """Close periods that have passed meanwhile."""
        self.book.tick(now_s)
        self._wake(now_s)

    def forget(self, jobs: Collection[str], environments: Collection[str]) -> None:
        """Drop dependencies on deleted jobs."""
        self.book.successors.forget(jobs)

    def _due(self, now_s: float) -> None:
        self.book.due(now_s)
        self._wake(now_s)

    def _wake(self, now_s: float) -> None:
        self._unit_of_work.wake(TIMER, self.book.next_due_s(now_s))

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        """Refuse a job whose queue does not take it, or that waits for what will never be completed."""
        return self.book.refuse(request.job, now_s) if isinstance(request, SubmitJob) else DONE

    def accepted(self, job: JobEntry) -> None:
        """Note which jobs it waits for."""
        job.awaits = self.book.successors.awaited(job.job)

    def settle(self, now_s: float) -> None:
        """Take in what has become of jobs."""
        if self._unit_of_work.dirty_jobs:
            self.book.note(self._unit_of_work.dirty_jobs.values(), now_s)

    def next_cycle_s(self, now_s: float) -> float:
        """Return when a decision must come for a deadline."""
        return self.book.next_cycle_s(now_s)

    def before_decision(self, now_s: float) -> None:
        """Compare what has happened with the forecasts."""
        self.book.cycle(now_s)

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the windows, and which jobs belong to an open one or stay where they are for theirs."""
        if not self.book:
            return NO_PART
        return SnapshotPart(
            {"windows": window_views(self.book, nodes, now_s, self._expected_s)},
            {entry.job.name for entry in jobs if self.book.stays(entry)},
            {entry.job.name for entry in jobs if self.book.queued(entry, now_s)},
        )

    def decided(self, outcome: DecideOutcome, now_s: float) -> None:
        """Note what each window was given."""
        if outcome.provisioning is not None:
            self.book.decided(outcome.provisioning, now_s)

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Promises in danger or broken, and jobs that wait for ever."""
        yield from window_alarms(self.book, now_s)
        yield from stranded_jobs(self.book)

    def _view(self, query: Query, _cluster: Cluster, now_s: float) -> Row:
        """Windows whose names begin with the subject, and the prices to come."""
        return forecast(self.book, self._deciding, query.subject, query.limit, now_s)
