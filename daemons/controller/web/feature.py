"""Web applications as a feature of the controller."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from daemons.controller.contract.feature import DONE, Alarm, Caller, Feature, Refused, SnapshotPart
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import tenant_pool
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web import metrics
from daemons.controller.web.apps import WebApps
from daemons.controller.web.autoscaling import Autoscaler
from daemons.controller.web.health import HealthChecks
from daemons.controller.web.load_balancing import LoadBalancing
from daemons.controller.web.redistribution import Redistribution
from daemons.controller.web.snapshot import constraints_of, flow_columns, running_apps, web_columns
from daemons.controller.web.views import app_details, app_row, waits_for
from daemons.decision.pipeline import DecideOutcome
from daemons.models.response_calibration import BOUND
from daemons.values.records.cluster import WebRecord
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.metrics.values import Scrape
from shared.ports.effects import Balanced, Scraped
from shared.protocol.messages import Report, WebReport
from shared.protocol.operator_messages import Query, RemoveWeb, Request, SetWeb, SubmitWeb

SCRAPE, ADJUST, REDISTRIBUTE, BALANCE = "scrape", "adjust", "redistribute", "balance"
Refuse = Callable[[Request, Caller, float], Refused]


class WebFeature(Feature):
    """Serves web applications: measured, scaled, balanced, watched. `refuse`: what others have against a request."""

    metrics = metrics.METRICS

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        settings: ControllerSettings,
        deciding: DecisionCycle,
        refuse: Refuse,
    ) -> None:
        self._cluster, self._unit_of_work, self._settings = cluster, unit_of_work, settings
        self._deciding, self._refuse = deciding, refuse
        self.balancing = LoadBalancing(cluster, unit_of_work, settings.balancer)
        self.apps = WebApps(cluster, unit_of_work, deciding, settings, self.balancing.may_forget)
        self.autoscaler = Autoscaler(cluster, unit_of_work, settings, deciding.desired.apply)
        self.redistribution = Redistribution(cluster, settings, deciding)
        self._redistributed_s = -math.inf
        self.health = HealthChecks(cluster, unit_of_work, settings, deciding)
        self.requests = {SubmitWeb: self._submit, SetWeb: self._set, RemoveWeb: self._remove}
        self.messages = {WebReport: self.apps.report}
        self.answers = {Scraped: self.apps.scraped, Balanced: self.balancing.balanced}
        self.records = {WebRecord: lambda record, _now_s: self.apps.load(record)}
        self.timers = {
            SCRAPE: self._scrape,
            ADJUST: self._adjust,
            REDISTRIBUTE: self._redistribute,
            BALANCE: self.balancing.wake,
        }
        self.views = {"web-apps": self._list, "web-app": self._show}

    # --- requests ---------------------------------------------------------------------------------------------------

    def _submit(self, request: SubmitWeb, caller: Caller, now_s: float) -> Refused:
        refused = self._refuse(request, caller, now_s)
        return refused if refused != DONE else self.apps.submit(request, now_s)

    def _set(self, request: SetWeb, caller: Caller, now_s: float) -> Refused:
        changed = self.apps.changed(request)
        return self._submit(changed, caller, now_s) if isinstance(changed, SubmitWeb) else changed

    def _remove(self, request: RemoveWeb, _caller: Caller, now_s: float) -> Refused:
        return self.apps.remove(request, now_s)

    # --- a new leader -----------------------------------------------------------------------------------------------

    def restore(self, now_s: float) -> None:
        """Go on with what was being removed, replaced or measured."""
        self.apps.loaded()
        self.balancing.loaded(now_s)
        self.health.loaded()

    # --- nodes and VMs ----------------------------------------------------------------------------------------------

    def watched(self, node: NodeEntry, report: Report, now_s: float) -> None:
        """Take in how instances are."""
        self.health.heard(node, report, now_s)

    def may_stop(self, job: JobEntry, now_s: float) -> bool:
        """Return whether an instance is drained, where that can be determined."""
        return self.balancing.may_stop(job, now_s)

    # --- the end of an instant --------------------------------------------------------------------------------------

    def prepare(self, now_s: float) -> None:
        """Replace unhealthy instances."""
        self.health.run(now_s)

    def settle(self, now_s: float) -> None:
        """Forget applications that are gone, and bring replicas up to date."""
        if self.apps.untidy:
            self.apps.tidy(now_s)

    def commit(self, now_s: float) -> None:
        """Start measuring and adjusting where that was requested; update load balancers and agents."""
        unit_of_work = self._unit_of_work
        if unit_of_work.scrape:
            unit_of_work.scrape = False
            if SCRAPE not in unit_of_work.timers:
                unit_of_work.start_timer(SCRAPE, now_s)
        if unit_of_work.adjust:
            unit_of_work.adjust = False
            if ADJUST not in unit_of_work.timers:
                unit_of_work.start_timer(ADJUST, now_s + self._settings.web_adjust_s)
        if unit_of_work.overloaded:
            unit_of_work.overloaded = False
            self._hurry(now_s)
        self.balancing.note(unit_of_work.dirty_jobs.values())
        self.balancing.note_apps((*unit_of_work.dirty_web, *unit_of_work.removed_web, *unit_of_work.readdressed))
        unit_of_work.readdressed.clear()
        self.balancing.run(now_s)
        unit_of_work.wake(BALANCE, self.balancing.next_due_s())
        self.health.tell(now_s)

    def _scrape(self, now_s: float) -> None:
        if self.apps.has_counters():
            self._unit_of_work.effects += self.apps.scrapes(now_s)
            self._unit_of_work.start_timer(SCRAPE, now_s + self._settings.scrape_s)

    def _adjust(self, now_s: float) -> None:
        scaling, sharing = self.autoscaler.needed(), self.redistribution.needed()
        if scaling:
            self.autoscaler.tick(now_s, self._deciding.enabled and self._unit_of_work.acting)
        if sharing:
            self._redistribute(now_s)
        if scaling or sharing:
            self._unit_of_work.start_timer(ADJUST, now_s + self._settings.web_adjust_s)

    def _hurry(self, now_s: float) -> None:
        """Share CPU at the measurement that shows a missed goal: what waits until the next look would have to be worked
        off. At most every `scrape_s`, however often applications are measured."""
        if REDISTRIBUTE not in self._unit_of_work.timers and self.redistribution.needed():
            self._unit_of_work.start_timer(REDISTRIBUTE, max(now_s, self._redistributed_s + self._settings.scrape_s))

    def _redistribute(self, now_s: float) -> None:
        if self._unit_of_work.acting:
            self._redistributed_s = now_s
            self.redistribution.run(now_s)

    # --- decisions --------------------------------------------------------------------------------------------------

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the applications with their flows, and the placement constraints of workloads."""
        apps = running_apps(self._cluster)
        return SnapshotPart(
            {
                "web": web_columns(apps, at_cycle),
                "flows": flow_columns(apps, self._settings.web_planning),
                "constraints": constraints_of(jobs, apps),
            }
        )

    def decided(self, outcome: DecideOutcome, now_s: float) -> None:
        """Note how many instances a cycle's decision has chosen."""
        if outcome.provisioning is not None:
            for web in self._cluster.web.values():
                web.grown = 0
        self.autoscaler.decided(outcome)

    # --- views ------------------------------------------------------------------------------------------------------

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Applications with too few instances, not measured, not balanced, or not well."""
        cluster = self._cluster
        for name, web in sorted(cluster.web.items()):
            app = web.app
            running = sum(replica.released for replica in cluster.replicas.get(name, {}).values())
            if running < app.min_instances and not web.removed and tenant_pool(cluster, app.environment) is not None:
                yield "web-too-few", name, None, f"{running} of at least {app.min_instances} instances run"
            if web.scrape_error:
                yield "web-not-measured", name, web.measured_at_s, web.scrape_error
            if web.unreachable is not None:
                yield "balancer-unreachable", name, *web.unreachable
            for flow, factor in sorted(web.factors.items()):
                if factor.is_wrong:
                    yield "web-model-wrong", name, None, _model_wrong(web, flow, factor.value)
            for what, since_s, why in web.health.alarms():
                yield what, name, since_s, why

    def read_metrics(self, scrape: Scrape, now_s: float) -> None:
        """Take the readings of applications."""
        metrics.read(self._cluster, scrape)

    def _list(self, query: Query, cluster: Cluster, now_s: float) -> Row:
        """Return all web applications whose names begin with the subject."""
        found = [web for name, web in sorted(cluster.web.items()) if name.startswith(query.subject)]
        return {"total": len(found), "apps": [app_row(cluster, web, now_s) for web in found[: query.limit]]}

    def _show(self, query: Query, cluster: Cluster, now_s: float) -> Row | Refused:
        """Return one web application."""
        web = cluster.web.get(query.subject)
        if web is None:
            return "unknown-web-app", unknown("web application", query.subject, cluster.web)
        details = app_details(cluster, self._deciding, web, now_s)
        return {"app": details | {"waits_for": waits_for(cluster, self._deciding, query.subject)}}


def _model_wrong(web: WebEntry, flow: str, value: float) -> str:
    """Return what is wrong with the response-time model of a flow."""
    form = next((each.model.value for each in web.app.flows if each.name == flow), "")
    bounds = f"{1.0 / BOUND:g} to {BOUND:g} are believed"
    return f"the response times of {flow} are {value:.2f} times what its model ({form}) says; {bounds}"
