"""Web applications: submitted, changed, removed, measured. Each instance that one may have is a job of its own, a
replica, so that the ledger, planning, reconciling and deciding treat it as they treat any VM."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import no_template
from daemons.controller.state.node_fit import could_hold, unknown_nodes, why_none
from daemons.controller.state.rule_conflicts import conflict
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.web_app import RECENT_S, WHOLE, Sample, WebEntry, misses_goal
from daemons.controller.web.calibration import calibrate
from daemons.controller.web.profiles import work_profile
from daemons.models.response_calibration import ResponseFactor
from daemons.values.records.cluster import WebRecord
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings
from shared.base.errors import InvalidValue
from shared.ports.effects import Effect, Measure, Scrape, Scraped
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import RemoveWeb, SetWeb, SubmitWeb
from shared.values.jobs import Job, JobPhase
from shared.values.migration import ordinary_mib
from shared.values.web_app import FlowSample, WebApp, with_goal

Refused = tuple[str, str]
DONE: Refused = ("", "")
_URL = re.compile(r"https?://[^\s/?#]+(/\S*)?")
COUNT_MAX = 10**12  # requests of one sample
TIME_MAX_S = 1e9
WINDOW_MIN_S = 1e-3
SCRAPE_LOST_S = 30.0  # an answer that has not come by then will not


MayForget = Callable[[str, float], bool]


class WebApps:
    """Keeps the table of web applications and their replicas. may_forget(app, now_s): whether an application of which
    nothing is left may be forgotten."""

    def __init__(
        self,
        cluster: Cluster,
        unit_of_work: UnitOfWork,
        deciding: DecisionCycle,
        settings: ControllerSettings,
        may_forget: MayForget,
    ) -> None:
        self.cluster, self.unit_of_work, self.deciding, self.settings = cluster, unit_of_work, deciding, settings
        self._may_forget = may_forget
        self.untidy: set[str] = set()

    # --- asked for --------------------------------------------------------------------------------------------------

    def submit(self, request: SubmitWeb, now_s: float) -> Refused:
        """Take an application in, or change the one of that name."""
        app = request.app
        web = self.cluster.web.get(app.name)
        if web is not None and web.request == request.request:
            return DONE
        if web is not None and web.removed:
            return "being-removed", f"the web application {app.name!r} is being removed; submit it when it is gone"
        refused = self._refuse(app)
        if refused != DONE:
            return refused
        what = "web-submitted" if web is None else "web-changed"
        if web is None:
            order = self.deciding.next_submission()
            web = self.cluster.web[app.name] = WebEntry(app, request.request, order, accepted_s=now_s)
        else:
            self._change(web, request)
        web.fit()
        self._needs(web)
        self._tell(web, now_s, what)
        self._fit_replicas(web, now_s)
        web.wants_room = True
        self.unit_of_work.scrape = self.unit_of_work.scrape or self._has_counters(web)
        return DONE

    def changed(self, request: SetWeb) -> SubmitWeb | Refused:
        """Return the submission that changes an application as asked, or why it cannot be changed so."""
        web = self.cluster.web.get(request.app)
        if web is None:
            return "unknown-web-app", unknown("web application", request.app, self.cluster.web)
        app, goals = web.app, dict(request.goals)
        strange = next((name for name in goals if name not in {flow.name for flow in app.flows}), None)
        if strange is not None:
            return "invalid-value", unknown("flow", strange, [flow.name for flow in app.flows])
        if request.rules is not None:
            lacking = "" if app.environment else unknown_nodes(self.cluster, request.rules)
            if lacking:
                return "unknown-node", lacking
            contradiction = conflict(self.cluster, app.name, request.rules)
            if contradiction:
                return "invalid-value", contradiction
        try:
            flows = tuple(with_goal(flow, goals[flow.name]) if flow.name in goals else flow for flow in app.flows)
            app = replace(
                app,
                importance=app.importance if request.importance is None else request.importance,
                rules=app.rules if request.rules is None else request.rules,
                flows=flows,
            )
        except InvalidValue as problem:
            return "invalid-value", str(problem)
        return SubmitWeb(request.request, app)

    def _refuse(self, app: WebApp) -> Refused:
        if app.name in self.cluster.jobs:
            return "duplicate-name", f"there is a job {app.name!r} already; choose another name"
        replica = app.replica_job(0, 0.0)
        taken = self.cluster.names_taken(replica)
        if taken:
            return "duplicate-name", f"the adopted VM {taken!r} has the name of one of its VMs; choose another name"
        if app.metrics_url and not _URL.fullmatch(app.metrics_url):
            return "invalid-value", f"metrics_url is {app.metrics_url!r}, expected http://... or https://..."
        misfit = misfit_of(app, self.cluster)
        if misfit:
            return "fits-no-node", misfit
        lacking = no_template(app.template, self.cluster)
        return ("unknown-template", lacking) if lacking else DONE

    def _change(self, web: WebEntry, request: SubmitWeb) -> None:
        if web.app.environment != request.app.environment:
            self._needs(web)  # of the environment that it leaves
        if web.app.flows != request.app.flows:
            web.forget()
        web.app, web.request = request.app, request.request
        if not self._has_counters(web):
            web.asked_s, web.scrape_error = None, ""

    def _needs(self, web: WebEntry) -> None:
        """Note that more or fewer instances are needed, or others."""
        if web.app.environment:
            self.unit_of_work.coordinate.add(web.app.environment)
        self.unit_of_work.adjust = self.unit_of_work.adjust or web.adjusts or bool(web.app.flows)

    def _tell(self, web: WebEntry, now_s: float, what: str) -> None:
        self.unit_of_work.dirty_web[web.app.name] = web
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, what, web.app.name)

    def remove(self, request: RemoveWeb, now_s: float) -> Refused:
        """Stop every instance; the application is forgotten when the last one is gone."""
        web = self.cluster.web.get(request.app)
        if web is None:
            return "unknown-web-app", unknown("web application", request.app, self.cluster.web)
        if not web.removed:
            web.removed = True
            for replica in list(self.cluster.replicas.get(request.app, {}).values()):
                self._end(replica, now_s)
            self.untidy.add(request.app)
            self._needs(web)
            self._tell(web, now_s, "web-removing")
        return DONE

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _fit_replicas(self, web: WebEntry, now_s: float) -> None:
        """Keep as many replicas as the maximum of instances; those in use keep the values that their VM was made
        with."""
        self.untidy.add(web.app.name)
        replicas = self._open_replicas(web.app.name)
        for index in self._free_indices(web.app, web.app.max_instances - len(replicas)):
            self._add(web.app.replica_job(index, max(0.0, now_s)), web, now_s)
        for index, replica in replicas.items():
            self._renew(replica, web.app.replica_job(index, replica.job.submit_s))

    def _open_replicas(self, app: str) -> dict[int, JobEntry]:
        return {
            index: replica for index, replica in sorted(self.cluster.replicas.get(app, {}).items()) if not replica.over
        }

    def _free_indices(self, app: WebApp, count: int) -> list[int]:
        """Return the first numbers for which no VM is or may be anywhere."""
        taken = self.cluster.replicas.get(app.name, {})
        found: list[int] = []
        index = 0
        while len(found) < count:
            if index not in taken:
                found.append(index)
            index += 1
        return found

    def _add(self, job: Job, web: WebEntry, now_s: float) -> None:
        """Add a replica. One whose name was used before continues its counts: remains of an earlier VM stay older."""
        before = self.cluster.jobs.get(job.name)
        replica = JobEntry(job, web.request, self.deciding.next_submission(), accepted_s=now_s)
        if before is not None:
            transitions.follow_on(replica, before)
        self.cluster.add_job(replica)
        self.unit_of_work.change(replica)

    def _renew(self, replica: JobEntry, job: Job) -> None:
        """Make a replica what the application says now, but for what its VM, if there may be one, was made with."""
        if not (replica.phase is JobPhase.WAITING and replica.clear):
            made = replica.job
            stage = replace(job.stages[0], memory_mib=made.memory_mib)
            job = replace(job, stages=(stage,), vcpus=made.vcpus, template=made.template)
        if job == replica.job:
            return
        replica.job = job
        for instance in replica.instances:
            memory_mib = ordinary_mib(job.memory_mib, instance.needs)
            instance.memory_mib = memory_mib + self.cluster.vm_overhead_mib
        transitions.outdate(replica)
        self.unit_of_work.change(replica)

    def _end(self, replica: JobEntry, now_s: float) -> None:
        if replica.over:
            return
        if replica.phase is JobPhase.RUNNING:
            self.unit_of_work.emit(now_s, "web-instance-stopped", replica.job.name, "removed")
        transitions.remove(self.cluster, replica, now_s)
        self.unit_of_work.change(replica)

    def tidy(self, now_s: float) -> None:
        """Forget applications that are gone, end replicas too many of which nothing runs, bring others up to date."""
        for name in sorted(self.untidy):
            web = self.cluster.web.get(name)
            replicas = self._open_replicas(name)
            if web is None or web.removed:
                for replica in replicas.values():  # of an application that the store does not know, if there are any
                    self._end(replica, now_s)
                self._forget(name, now_s)
                continue
            idle = [replica for replica in replicas.values() if replica.phase is JobPhase.WAITING and replica.clear]
            for replica in idle[::-1][: max(0, len(replicas) - web.app.max_instances)]:
                self._end(replica, now_s)
            kept = [
                (replica, web.app.replica_job(index, replica.job.submit_s))
                for index, replica in self._open_replicas(name).items()
            ]
            for replica, job in kept:
                self._renew(replica, job)
            if len(kept) <= web.app.max_instances and all(replica.job == job for replica, job in kept):
                self.untidy.discard(name)

    def _forget(self, name: str, now_s: float) -> None:
        if self.cluster.replicas.get(name) or (name in self.cluster.web and not self._may_forget(name, now_s)):
            return
        self.untidy.discard(name)
        self.cluster.replicas.pop(name, None)
        if self.cluster.web.pop(name, None) is not None:
            self.unit_of_work.dirty_web.pop(name, None)
            self.unit_of_work.removed_web.append(name)
            self.unit_of_work.emit(now_s, "web-removed", name)

    def load(self, record: WebRecord) -> None:
        """Take an application over from the store."""
        web = WebEntry(record.app, record.request, record.order, accepted_s=record.accepted_s, removed=record.removed)
        web.windows.extend(record.windows)
        web.wanted_instances = record.wanted_instances
        web.health.replaced_s.extend(record.replaced_s)
        web.health.least = record.least
        web.factors = {one.flow: ResponseFactor(one.log_sum, one.gap_sum, one.weight_s) for one in record.factors}
        web.fit()
        web.work = work_profile(web.app, web.windows)
        self.cluster.web[record.app.name] = web

    def loaded(self) -> None:
        """Start after all records are read."""
        self.untidy = {*self.cluster.web, *self.cluster.replicas}
        self.unit_of_work.scrape = self.has_counters()
        self.unit_of_work.adjust = any(web.adjusts or web.app.flows for web in self.cluster.web.values())

    # --- measured ---------------------------------------------------------------------------------------------------

    def report(self, report: WebReport, now_s: float) -> None:
        """Take a balancer's report; one that is not newer than the last is ignored."""
        web = self.cluster.web[report.app]
        if report.seq > web.seq:
            web.seq, web.pushed_s = report.seq, now_s
            self._measured(web, report.flows, now_s)

    def scraped(self, answer: Scraped, now_s: float) -> None:
        """Take the counters of an application or of its balancer, or the reason why they could not be read."""
        web = self.cluster.web.get(answer.app)
        if web is None or not self._has_counters(web):
            return
        web.asked_s = None
        before, web.scrape_error = web.scrape_error, answer.error
        if bool(answer.error) is not bool(before):  # the alarm has the latest words
            what = "web-not-measured" if answer.error else "web-measured-again"
            self.unit_of_work.emit(now_s, what, answer.app, answer.error)
        if web.app.metrics_url and answer.flows:
            self._measured(web, answer.flows, now_s)
        elif answer.flows:
            self._passed(web, answer.flows, now_s)

    def has_counters(self) -> bool:
        """Return whether any application has counters to read."""
        return any(self._has_counters(web) and not web.removed for web in self.cluster.web.values())

    def _has_counters(self, web: WebEntry) -> bool:
        """Return whether an application, or the balancer that serves it, has counters."""
        return bool(web.app.metrics_url) or (self.settings.balancer.measures and web.app.serving is not None)

    def scrapes(self, now_s: float) -> list[Effect]:
        """Ask for the counters of every application that has some, unless an answer is still to come."""
        effects: list[Effect] = []
        for name, web in self.cluster.web.items():
            waited_s = math.inf if web.asked_s is None else now_s - web.asked_s
            if web.removed or not self._has_counters(web) or waited_s < SCRAPE_LOST_S:
                continue
            web.asked_s = now_s
            if not web.app.metrics_url:
                effects.append(Measure(name))
                continue
            percentiles = tuple((flow.name, flow.percentile) for flow in web.app.flows if flow.percentile > 0.0)
            effects.append(Scrape(name, web.app.metrics_url, percentiles))
        return effects

    def _passed(self, web: WebEntry, flows: Iterable[FlowSample], now_s: float) -> None:
        """Take a balancer's measurement of all requests. It counts for the only flow, where there is one and no other
        source measures it."""
        whole = next((one for one in flows if one.flow == WHOLE and _is_possible(one)), None)
        if whole is None:
            return
        web.passed.append(Sample(now_s, (whole,)))
        if len(web.app.flows) == 1 and now_s - web.pushed_s > RECENT_S:
            self._measured(web, (replace(whole, flow=web.app.flows[0].name),), now_s)

    def _measured(self, web: WebEntry, flows: Iterable[FlowSample], now_s: float) -> None:
        known = {flow.name for flow in web.app.flows}
        sample = Sample(now_s, tuple(one for one in flows if one.flow in known and _is_possible(one)))
        if not sample.flows:
            return
        since_s = web.samples[-1].at_s if web.samples else now_s
        web.samples.append(sample)
        web.load.add(now_s, sample.flows)
        self.unit_of_work.overloaded = self.unit_of_work.overloaded or misses_goal(web)
        calibrate(self.cluster, web, sample)
        running = self._count_work(web)
        web.work_log.answered(since_s, now_s, {one.flow: one.served for one in sample.flows}, len(running))
        windows = web.work_log.windows(running)
        if windows:
            web.used_mhz = windows[-1].used_mcycles / windows[-1].seconds
            web.windows.extend(windows)
            web.work = work_profile(web.app, web.windows)
            self.unit_of_work.dirty_web[web.app.name] = web

    def _count_work(self, web: WebEntry) -> list[str]:
        """Read how much each instance has worked, as of the last report of its node; returns those that run."""
        running = []
        for replica in self.cluster.replicas.get(web.app.name, {}).values():
            if not replica.released:
                continue
            places = replica.instances[0].may_run_on
            node = self.cluster.nodes.get(next(iter(places))) if len(places) == 1 else None
            if node is not None:
                running.append(replica.job.name)
                web.work_log.worked(replica.job.name, replica.attempt, node.seen_s, replica.done_mcycles)
        return running


def _is_possible(sample: FlowSample) -> bool:
    """Return whether a sample is plausible: sums of such samples stay within every limit."""
    counts = (sample.offered, sample.served, sample.rejected, sample.queued)
    times_s = (sample.window_s, sample.mean_s, sample.percentile_s)
    return max(counts) <= COUNT_MAX and max(times_s) <= TIME_MAX_S and sample.window_s >= WINDOW_MIN_S


def misfit_of(app: WebApp, cluster: Cluster) -> str:
    """Return why no node could ever hold an instance, or fewer nodes than must run ("": they fit, or no node is known
    yet)."""
    nodes = [node.inventory for node in cluster.nodes.values() if node.inventory is not None]
    if not nodes:
        return ""
    replica = app.replica_job(0, 0.0)
    able = [node for node in nodes if could_hold(replica, node, cluster.vm_overhead_mib)]
    if not able:
        return why_none(replica, nodes, replica.memory_mib + cluster.vm_overhead_mib)
    if len(able) < app.min_instances:
        return f"{app.min_instances} instances must run, each on a node of its own, but only {len(able)} could hold one"
    return ""
