"""Environments as a feature of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from daemons.controller.contract.feature import DONE, Alarm, Caller, Feature, Refused, SnapshotPart
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.environments import metrics
from daemons.controller.environments.coordination import Coordination, Entitlements
from daemons.controller.environments.feasibility import Known, refuse_app, refuse_job
from daemons.controller.environments.inventory import UnitsWanted
from daemons.controller.environments.lifecycle import Give, RemoveApp
from daemons.controller.environments.reclaim import Preemption
from daemons.controller.environments.requests import TIMER, Ask, EnvironmentRequests
from daemons.controller.environments.snapshot import environment_columns
from daemons.controller.environments.types import without_type
from daemons.controller.environments.views import environment_details, environment_row
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.metrics.values import Scrape
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    DrainNode,
    Query,
    Request,
    ReserveEnvironment,
    ResizeEnvironment,
    SubmitJob,
    SubmitWeb,
)

COORDINATE = "coordinate"
ASKS: tuple[type[Ask], ...] = (
    CreateEnvironment,
    ActivateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    ResizeEnvironment,
    ConsentEnvironment,
    ReserveEnvironment,
)


class EnvironmentsFeature(Feature):
    """Brings environments to life and to their ends, and gives each the units that it is to have.

    give(node, environment, now_s): says who is to have a node. refuse: what others have against a request. admitted:
    why a request, by its id, is not admitted. known_to: the environments that somebody may know of.
    """

    metrics = metrics.METRICS

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        deciding: DecisionCycle,
        *,
        remove_web: RemoveApp,
        preemption: Preemption,
        units_wanted: UnitsWanted,
        give: Give,
        entitlements: Entitlements | None,
        refuse: Callable[[Request, Caller, float], Refused],
        admitted: Callable[[str], Refused],
        known_to: Callable[[str], Known],
    ) -> None:
        self._cluster, self._unit_of_work = cluster, unit_of_work
        self._refuse, self._known_to = refuse, known_to
        self.coordination = Coordination(cluster, unit_of_work, settings, preemption, units_wanted, give, entitlements)
        self.agreements = EnvironmentRequests(
            cluster, unit_of_work, deciding, remove_web, give, self.coordination.changed, admitted
        )
        self.requests = dict.fromkeys(ASKS, self._handle)
        self.after = {DrainNode: self._drained}
        self.timers = {COORDINATE: self.coordination.wake, TIMER: self._due}
        self.views = {"environments": self._list, "environment": self._show}

    # --- requests ---------------------------------------------------------------------------------------------------

    def _handle(self, request: Ask, caller: Caller, now_s: float) -> Refused:
        if isinstance(request, CreateEnvironment) and request.agreement.name not in self._cluster.environments:
            refused = self._refuse(request, caller, now_s)
            if refused != DONE:
                return refused
        return self.agreements.handle(request, now_s, self._known_to(caller.sender))

    def _drained(self, request: DrainNode, now_s: float) -> None:
        if request.on:
            self.agreements.without(self._cluster.nodes[request.node], now_s)

    def refuse(self, request: Request, caller: Caller, now_s: float) -> Refused:
        """Refuse a workload that its environment does not take."""
        if isinstance(request, SubmitWeb):
            return refuse_app(request.app, self._cluster)
        if isinstance(request, SubmitJob) and request.job.environment:
            return refuse_job(request.job, self._cluster)
        return DONE

    # --- a new leader -----------------------------------------------------------------------------------------------

    def restore(self, now_s: float) -> None:
        """Go on with what was on its way."""
        self.agreements.loaded(now_s)
        self.coordination.loaded(now_s)

    # --- the end of an instant --------------------------------------------------------------------------------------

    def settle(self, now_s: float) -> None:
        """Run after the jobs that end at this instant, and before the write: sizes, node assignments and preempted jobs
        are stored together."""
        self.agreements.pair(now_s)
        self._unit_of_work.wake(COORDINATE, self.coordination.run(now_s))
        self.agreements.run(now_s)
        self._wake()

    def _due(self, now_s: float) -> None:
        self.agreements.due(now_s)
        self._wake()

    def _wake(self) -> None:
        self._unit_of_work.wake(TIMER, self.agreements.next_due_s())

    # --- decisions --------------------------------------------------------------------------------------------------

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the environment of each node and each job."""
        return SnapshotPart({"environments": environment_columns(self._cluster, nodes, jobs)})

    # --- views ------------------------------------------------------------------------------------------------------

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Environments that cannot have their lower bounds, and those whose type is gone."""
        for name, why in sorted(self.agreements.life.short.items()):
            yield "environment-short", name, None, why
        for name, why in sorted(without_type(self._cluster).items()):
            yield "unknown-type", name, None, why

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of environments."""
        metrics.read(self._cluster, scrape)

    def _list(self, query: Query, cluster: Cluster, now_s: float) -> Row:
        """Return all environments whose names begin with the subject, destroyed ones last."""
        found = [entry for name, entry in sorted(cluster.environments.items()) if name.startswith(query.subject)]
        found.sort(key=lambda entry: entry.destroyed)
        stock = self.coordination.allocation.stock(now_s)
        rows = [environment_row(cluster, stock, entry) for entry in found[: query.limit]]
        return {"total": len(found), "environments": rows}

    def _show(self, query: Query, cluster: Cluster, now_s: float) -> Row | Refused:
        """Return one environment."""
        entry = cluster.environments.get(query.subject)
        if entry is None:
            return "unknown-environment", unknown("environment", query.subject, cluster.environments)
        return {"environment": environment_details(cluster, self.coordination, entry, query.limit, now_s)}
