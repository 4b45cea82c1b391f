"""Admission and assurance as a feature of the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from daemons.controller.admission import metrics
from daemons.controller.admission.admission import Admission
from daemons.controller.admission.views import assurance_view, best_effort, missed
from daemons.controller.contract.feature import Alarm, Feature, Refused
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.replies import unknown
from daemons.values.view_format import Row
from shared.metrics.values import Scrape
from shared.ports.effects import Received
from shared.protocol.operator_messages import Query

TIMER = "assurance"


class AdmissionFeature(Feature):
    """Decides which environments come in, and watches over what they were promised."""

    metrics = metrics.METRICS

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, admission: Admission) -> None:
        self._cluster, self._unit_of_work = cluster, unit_of_work
        self.admission = admission
        self.records = {AssuranceRecord: lambda record, _now_s: admission.assurance.load(record)}
        self.timers = {TIMER: admission.due}
        self.views = {"assurance": self._view}

    def restore(self, now_s: float) -> None:
        """Go on with what was promised and measured."""
        self.admission.loaded(now_s)

    def forget(self, jobs: Collection[str], environments: Collection[str]) -> None:
        """Delete what is known of environments that were deleted."""
        self.admission.assurance.forget(environments)

    def holds(self, received: Received, now_s: float) -> bool:
        """Return whether a request waits for the policy's verdict, or has been answered."""
        return self.admission.takes(received, now_s)

    def settle(self, now_s: float) -> None:
        """Have stored what is known of demand."""
        self._unit_of_work.wake(TIMER, self.admission.settle(now_s))

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Promises that are not kept."""
        return missed(self.admission)

    def status(self, now_s: float) -> Row:
        """Return what promises leave for best effort."""
        return {"best_effort": best_effort(self.admission)}

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of promises."""
        metrics.read(self._cluster, self.admission.assurance.entries, scrape)

    def _view(self, query: Query, cluster: Cluster, now_s: float) -> Row | Refused:
        """Promises and what was served, of all environments or of the one that the subject names."""
        if query.subject and query.subject not in cluster.environments:
            return "unknown-environment", unknown("environment", query.subject, cluster.environments)
        return assurance_view(self.admission, cluster, query.subject, query.limit, now_s)
