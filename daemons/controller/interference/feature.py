"""The domain of interference as a feature of the controller."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.controller.contract.feature import Caller, Feature, Refused, SnapshotPart
from daemons.controller.interference.profiles import InterferenceProfiles
from daemons.controller.interference.snapshot import loading_columns
from daemons.controller.interference.standard_jobs import StandardJobs
from daemons.controller.interference.views import profiles_view
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import LoadingRecord, PaceRecord
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.protocol.messages import Report, StandardJobEnded
from shared.protocol.operator_messages import ProfileNode, Query, RemoveNode

TIMER = "standard-jobs"


class InterferenceFeature(Feature):
    """Learns how jobs load nodes, from reports and from standard jobs."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self._unit_of_work = unit_of_work
        self.profiles = InterferenceProfiles(cluster, unit_of_work, settings)
        self.standard_jobs = StandardJobs(cluster, unit_of_work, settings, self.profiles)
        self.requests = {ProfileNode: self._profile_node}
        self.after = {RemoveNode: lambda request, now_s: self.standard_jobs.removed(request.node, now_s)}
        self.messages = {StandardJobEnded: self.standard_jobs.answer}
        self.records = {
            LoadingRecord: lambda record, _now_s: self.profiles.load(record),
            PaceRecord: lambda record, _now_s: self.profiles.load(record),
        }
        self.timers = {TIMER: self.standard_jobs.due}
        self.views = {"profiles": self._view}

    def _profile_node(self, request: ProfileNode, _caller: Caller, now_s: float) -> Refused:
        return self.standard_jobs.ask(request, now_s)

    def measured(self, node: NodeEntry, before: Report, last: Report, now_s: float) -> None:
        """Learn from what a node's VMs did between two of its reports."""
        self.profiles.window(node, before, last, now_s)

    def settle(self, now_s: float) -> None:
        """Close the meters of jobs that are over."""
        if self._unit_of_work.dirty_jobs:
            self.profiles.note(self._unit_of_work.dirty_jobs.values(), now_s)

    def commit(self, now_s: float) -> None:
        """Wake when a standard job must have been answered."""
        self._unit_of_work.wake(TIMER, self.standard_jobs.next_due_s())

    def cycle(self, now_s: float) -> None:
        """Have what was learnt stored."""
        self.profiles.cycle()

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the load that jobs put on nodes."""
        return SnapshotPart({"loading": loading_columns(self.profiles, nodes, jobs)})

    def _view(self, query: Query, _cluster: Cluster, now_s: float) -> Row:
        """Profiles of classes whose names begin with the subject."""
        return profiles_view(self.profiles, self.standard_jobs, query.subject, query.limit, now_s)
