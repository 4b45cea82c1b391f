"""Which parts a controller has, and which features in which order: the one place that knows all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daemons.access.identity import who
from daemons.controller.admission.admission import Admission
from daemons.controller.admission.feature import AdmissionFeature
from daemons.controller.contract.computations import Computations
from daemons.controller.contract.feature import Feature
from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.contract.replies import Replies
from daemons.controller.core.commit import Commit
from daemons.controller.core.leadership import Leadership
from daemons.controller.decide.apply import DesiredState
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.energy.feature import EnergyFeature
from daemons.controller.environments.feasibility import Known
from daemons.controller.environments.feature import EnvironmentsFeature
from daemons.controller.environments.reclaim import Preemption
from daemons.controller.failover.feature import FailoverFeature
from daemons.controller.interference.feature import InterferenceFeature
from daemons.controller.learning.feature import LearningFeature
from daemons.controller.measure.heartbeats import Heartbeats
from daemons.controller.measure.leases import LeaseProofs
from daemons.controller.measure.reports import Measure
from daemons.controller.measure.screening import Screening
from daemons.controller.nodes.drain import Drain
from daemons.controller.nodes.feature import NodesFeature
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.notifications.feature import NotificationsFeature
from daemons.controller.reconcile.reconciler import Reconciler
from daemons.controller.requests.audit import Audit
from daemons.controller.requests.authorization import named
from daemons.controller.requests.dispatch import Requests
from daemons.controller.requests.job_changes import JobChanges
from daemons.controller.requests.jobs import JobRequests
from daemons.controller.requests.plans import PlanRequests
from daemons.controller.requests.queries import QueryHandler
from daemons.controller.requests.quota import QuotaFeature
from daemons.controller.requests.vm_power import VmPower
from daemons.controller.requests.vms import VmRequests
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.views.alarms import alarms
from daemons.controller.views.context import ViewContext
from daemons.controller.web.autoscaling import units_wanted
from daemons.controller.web.feature import WebFeature
from daemons.controller.web.node_value import WebLoss
from daemons.controller.web.snapshot import constraints_about
from daemons.controller.windows.feature import WindowsFeature
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.ports.effects import Received


@dataclass(frozen=True, slots=True)
class Spine:
    """The parts that every controller has, of which features are built."""

    name: str
    settings: ControllerSettings
    cluster: Cluster
    unit_of_work: UnitOfWork
    features: FeatureSet
    computations: Computations
    replies: Replies
    measure: Measure
    reconciler: Reconciler
    desired: DesiredState
    deciding: DecisionCycle


MakeFeature = Callable[[Spine], Feature]


@dataclass(frozen=True, slots=True)
class Parts:
    """A controller's parts, joined."""

    spine: Spine
    leadership: Leadership
    screening: Screening
    heartbeats: Heartbeats
    lease_proofs: LeaseProofs
    requests: Requests
    queries: QueryHandler
    commit: Commit


def wire(name: str, settings: ControllerSettings, plug_ins: Sequence[MakeFeature] = ()) -> Parts:
    """Join a controller's parts; features that are plugged in come last."""
    cluster, unit_of_work, features = Cluster(settings.vm_overhead_mib), UnitOfWork(), FeatureSet()
    computations, audit = Computations(unit_of_work), Audit(unit_of_work)
    replies = Replies(unit_of_work, audit.answered)
    leadership, screening = Leadership(name, settings.probe_s), Screening(unit_of_work)
    measure = Measure(cluster, unit_of_work, settings, features)
    reconciler = Reconciler(cluster, unit_of_work, settings, features)
    desired = DesiredState(cluster, unit_of_work, settings)

    def lose(entry: JobEntry, now_s: float) -> None:
        reconciler.take_back(entry, now_s, keep_images=False)

    drain = Drain(cluster, unit_of_work, settings, lose, desired.apply)
    lifecycle = NodeLifecycle(cluster, unit_of_work, settings, drain)
    deciding = DecisionCycle(cluster, unit_of_work, settings, desired, lifecycle, features, computations)
    spine = Spine(
        name=name,
        settings=settings,
        cluster=cluster,
        unit_of_work=unit_of_work,
        features=features,
        computations=computations,
        replies=replies,
        measure=measure,
        reconciler=reconciler,
        desired=desired,
        deciding=deciding,
    )
    vms = VmRequests(cluster, unit_of_work, deciding, measure)
    commit = Commit(cluster, unit_of_work, deciding, reconciler)

    def carry_out(received: Received, now_s: float, data: Row | None) -> None:
        requests.carry_out(received, now_s, data)

    def all_alarms(now_s: float) -> list[Row]:
        return alarms(context, now_s)

    features.add(*_features(spine, lifecycle, carry_out, all_alarms), *(make(spine) for make in plug_ins))
    handlers = {
        **JobRequests(cluster, unit_of_work, deciding, features, vms).handlers,
        **vms.handlers,
        **VmPower(cluster, unit_of_work, reconciler.adopted).handlers,
        **JobChanges(cluster, unit_of_work).handlers,
        **PlanRequests(cluster, unit_of_work, deciding).handlers,
        **features.handlers("requests"),
    }
    requests = Requests(handlers, features, replies)
    context = ViewContext(
        controller=name,
        leadership=leadership,
        settings=settings,
        cluster=cluster,
        unit_of_work=unit_of_work,
        deciding=deciding,
        reconciler=reconciler,
        features=features,
        screening=screening,
        in_hand=commit.counts,
        dry_running=lambda: queries.dry_running,
    )
    queries = QueryHandler(context, audit, vms, functools.partial(constraints_about, cluster))
    heartbeats = Heartbeats(cluster, unit_of_work, measure, settings)
    proofs = LeaseProofs(cluster, unit_of_work, measure, settings)
    return Parts(
        spine,
        leadership,
        screening,
        heartbeats=heartbeats,
        lease_proofs=proofs,
        requests=requests,
        queries=queries,
        commit=commit,
    )


def _features(
    spine: Spine,
    lifecycle: NodeLifecycle,
    carry_out: Callable[[Received, float, Row | None], None],
    all_alarms: Callable[[float], list[Row]],
) -> tuple[Feature, ...]:
    """Return the features in the order in which they are called, which is the order of work at the end of an
    instant."""
    cluster, unit_of_work, settings, deciding = spine.cluster, spine.unit_of_work, spine.settings, spine.deciding
    refuse = spine.features.refuse

    def expected_s(node_type: str, what: str) -> float:
        return lifecycle.durations.expected_s(settings.power.driver, node_type, what)

    def known_to(sender: str) -> Known:
        asker = who(sender)
        return None if asker is None or asker.sees_all else named(asker, cluster)

    windows = WindowsFeature(cluster, unit_of_work, settings, deciding, expected_s)
    web = WebFeature(cluster, unit_of_work, settings, deciding, refuse)
    valued = settings.prices.per_utility > 0.0
    web_loss = WebLoss(cluster, unit_of_work, settings.prices) if valued else None
    admission = Admission(spine.name, cluster, unit_of_work, settings, spine.computations, spine.replies, carry_out)
    environments = EnvironmentsFeature(
        cluster,
        unit_of_work,
        settings,
        deciding,
        remove_web=web.apps.remove,
        preemption=Preemption(cluster, unit_of_work, spine.desired.apply, spine.reconciler.take_back),
        units_wanted=units_wanted,
        give=lifecycle.handovers.give,
        entitlements=admission.assurance if admission.on else None,
        refuse=refuse,
        admitted=admission.refused,
        known_to=known_to,
    )
    return (
        QuotaFeature(cluster, settings.limits),
        NodesFeature(cluster, unit_of_work, spine.measure, lifecycle),
        FailoverFeature(cluster, unit_of_work, settings, spine.reconciler.adopted, deciding),
        InterferenceFeature(cluster, unit_of_work, settings),
        LearningFeature(cluster, settings),
        windows,
        web,
        environments,
        AdmissionFeature(cluster, unit_of_work, admission),
        EnergyFeature(cluster, unit_of_work, settings, windows.book.entries, web_loss),
        NotificationsFeature(unit_of_work, settings, all_alarms),
    )
