"""Views of the controller's tables: pure functions that return plain data. docs/views.md has the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from heapq import nsmallest
from typing import Any, Protocol

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.decide.predictions import predicted_utilities
from daemons.controller.measure.adopted import is_lost, last_node
from daemons.controller.measure.screening import Screening
from daemons.controller.reconcile.reconciler import Reconciler
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.views.rows import (
    age_of,
    decision_row,
    decision_view,
    job_details,
    job_row,
    last_change,
    named_rows,
    node_details,
    node_row,
    node_trouble,
    settings_view,
    silent_since_s,
    vm_row,
    vms_on,
)
from daemons.decision.request_codec import SnapshotPages, to_bytes
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row, reason_view
from shared.policy_api.decision import Reason, ReasonCode
from shared.protocol.operator_messages import Query
from shared.values.agreement import EnvironmentState
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeService

NAMES_SHOWN = 5
OVER_FROM = 1 << 62
NOT_OVER = "not-over"  # of jobs: every phase but those of jobs that are over


class Leader(Protocol):
    """Whether a controller leads, and in which term."""

    @property
    def role(self) -> Enum:
        """What it is to the others."""
        ...

    @property
    def term(self) -> int:
        """The number of its lead; 0 for a standby."""
        ...


@dataclass(frozen=True, slots=True)
class ViewContext:
    """What views are made of. `in_hand`: what the controller waits for, by name. `dry_running`: a dry run is under
    way. `pages`: what was saved last. `troubles`: of the process beside its core, which the shell notes between two
    inputs: since when and what, by code of the alarm."""

    controller: str
    leadership: Leader
    settings: ControllerSettings
    cluster: Cluster
    unit_of_work: UnitOfWork
    deciding: DecisionCycle
    reconciler: Reconciler
    features: FeatureSet
    screening: Screening
    in_hand: Callable[[], dict[str, int]]
    dry_running: Callable[[], bool]
    pages: SnapshotPages = field(default_factory=SnapshotPages)
    troubles: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, what: str, detail: str, now_s: float) -> None:
        """The process has trouble with something beside its core, or ("") no longer."""
        if detail:
            self.troubles[what] = (self.troubles.get(what, (now_s, ""))[0], detail)
        else:
            self.troubles.pop(what, None)


def status(tables: ViewContext, _query: Query, now_s: float) -> Row:
    """The whole cluster in a few numbers."""
    cluster, deciding, settings = tables.cluster, tables.deciding, tables.settings
    up = [node for node in cluster.nodes.values() if node.condition is NodeCondition.UP]
    listed = [vm.managed for node in up for vm in vms_on(node)]
    flights = [instance.in_flight for instance in cluster.actions.values()]
    trouble = deciding.trouble
    role, phases = tables.leadership.role.value, Counter(entry.phase for entry in _jobs(cluster))
    return {
        "controller": tables.controller,
        "role": role,
        "leader": tables.controller,
        "acting": tables.unit_of_work.acting,
        "deciding": deciding.enabled,
        "automation": settings.automation.value,
        "placement": settings.placement.name,
        "provisioning": settings.provisioning.name,
        "decide_s": settings.decide_s,
        "decisions": deciding.decisions,
        "next_decision_at_s": deciding.due_s if deciding.enabled and tables.unit_of_work.acting else None,
        "decision_under_way": deciding.under_way,
        "dry_run_under_way": tables.dry_running(),
        "last_trouble": {"at_s": trouble.at_s, "what": trouble.what, "detail": trouble.detail} if trouble else None,
        "waiting_approval": deciding.pending.number if deciding.pending else None,
        "approvals_needed": settings.approvals,
        "approvals_missing": deciding.approving.missing,
        "nodes": {
            "total": len(cluster.nodes),
            "condition": _counts(NodeCondition, (node.condition for node in cluster.nodes.values())),
            "service": _counts(NodeService, (node.service for node in cluster.nodes.values())),
        },
        "jobs": {
            "total": phases.total(),
            "held": sum(entry.held and not entry.over for entry in cluster.active.values()),
            "phase": {phase.value: phases[phase] for phase in JobPhase},
        },
        "web_apps": {
            "total": len(cluster.web),
            "instances": sum(cluster.replicas_wanted(name) for name in cluster.web),
        },
        "environments": {
            "total": sum(not entry.destroyed for entry in cluster.environments.values()),
            "state": _counts(EnvironmentState, (entry.state for entry in cluster.environments.values())),
        },
        **tables.features.status(now_s),
        "vms": {"managed": sum(listed), "unmanaged": len(listed) - sum(listed)},
        "actions": {
            "total": len(flights),
            "migrations": cluster.migrations,
            "kinds": dict(Counter(flight.kind.value for flight in flights if flight is not None)),
        },
        "alarms": alarms(tables, now_s),
    }


def _jobs(cluster: Cluster) -> Iterable[JobEntry]:
    """Every job; an instance of a web application is none."""
    return (entry for entry in cluster.jobs.values() if not entry.job.app)


def _counts(codes: type[StrEnum], found: Iterable[StrEnum]) -> dict[str, int]:
    counts = Counter(found)
    return {code.value: counts[code] for code in codes}


def alarms(tables: ViewContext, now_s: float) -> list[Row]:
    """What is not as it should be now."""
    found = [*_node_alarms(tables, now_s), *_job_alarms(tables, now_s)]
    found += [_alarm(*each) for each in tables.features.alarms(now_s)]
    found += [_alarm(*each) for each in tables.screening.alarms(now_s)]
    trouble, pending = tables.deciding.trouble, tables.deciding.pending
    if trouble is not None:
        found.append(_alarm("decision-trouble", "controller", trouble.at_s, f"{trouble.what}: {trouble.detail}"))
    if pending is not None:
        what = f"decision {pending.number}: {len(pending.held)} changes"
        found.append(_alarm("plan-waiting", "controller", pending.at_s, what))
    found += [_alarm(what, "controller", *each) for what, each in sorted(tables.troubles.items())]
    if not tables.unit_of_work.acting:
        found.append(_alarm("not-acting", "controller", None, "it only observes until deciding is switched on"))
    return found


def _node_alarms(tables: ViewContext, now_s: float) -> Iterable[Row]:
    for name, node in sorted(tables.cluster.nodes.items()):
        if node.asleep or node.service is NodeService.FAILED:
            continue  # nothing is to be heard of it
        if node.condition is NodeCondition.UNKNOWN:
            said = node_trouble(node, tables.settings.silent_after_s, now_s)
            why = f"its agent is connected, but cannot read its hypervisor: {said['text']}; " if said else ""
            vms = f"{len(node.claimed)} VMs are or may be on it"
            yield _alarm("node-silent", name, silent_since_s(node), why + vms)
        if node.condition is NodeCondition.OFF:
            yield _alarm("node-off", name, node.off_s, "")
        if node.skewed:
            yield _alarm("clock-skewed", name, None, f"{min(node.skews_s):.1f} s")
        if node.back_s is not None and now_s < node.back_s + tables.settings.decide_s:
            yield _alarm("off-node-reports", name, node.back_s, "it was taken for off and is not")


def _job_alarms(tables: ViewContext, now_s: float) -> Iterable[Row]:
    for name, entry in tables.cluster.active.items():
        yield from _missing_alarms(tables, entry, now_s)
        if entry.hands_off is not None and entry.left_alone(now_s):
            hands, left_s = entry.hands_off, entry.hands_off.until_s - now_s
            yield _alarm(hands.what, hands.vm, hands.at_s, f"{hands.detail}; left alone for {left_s:.0f} s more")
        if entry.over:
            continue
        if entry.phase is JobPhase.SHUT_OFF:
            yield _adopted_alarm(tables, entry)
            continue
        if entry.stalled:
            yield _alarm("job-stalled", name, entry.progress_s, "no CPU time was used")
        late = entry.wanted_s + tables.settings.gang_timeout_s < now_s and not entry.released
        if name in tables.reconciler.blocked and late:
            what = "web-instance-blocked" if entry.job.app else "job-blocked"
            yield _alarm(what, name, entry.wanted_s, f"{entry.phase.value}, but a step finds no room")


def _adopted_alarm(tables: ViewContext, entry: JobEntry) -> Row:
    """An adopted VM that does not run: shut off, or lost until it is seen or let go (`trimtab vms forget`)."""
    (instance,) = entry.instances
    where = last_node(instance) or "no node"
    if is_lost(tables.cluster, instance):
        detail = f"{entry.adopted} is not defined on {where} any more; its definition is in the store"
        return _alarm("adopted-vm-lost", entry.job.name, entry.wanted_s, detail)
    return _alarm("adopted-vm-off", entry.job.name, entry.wanted_s, f"{entry.adopted} is shut off on {where}")


def _missing_alarms(tables: ViewContext, entry: JobEntry, now_s: float) -> Iterable[Row]:
    for instance in entry.instances:
        out_s = now_s - instance.missed_s
        if instance.left and out_s >= tables.settings.arrival_grace_s:
            yield _alarm("vm-out-of-sight", instance.vm, instance.missed_s or None, instance.left)
        elif instance.awaited and out_s >= tables.settings.silent_after_s:
            names = ", ".join(sorted(instance.awaited))
            yield _alarm("vm-out-of-sight", instance.vm, instance.missed_s, f"gone; no word since from {names}")


def _alarm(what: str, subject: str, since_s: float | None, detail: str) -> Row:
    return {"what": what, "subject": subject, "since_s": since_s, "detail": detail}


def nodes(tables: ViewContext, query: Query, now_s: float) -> Row:
    """All nodes whose names begin with the subject."""
    found = [node for name, node in sorted(tables.cluster.nodes.items()) if name.startswith(query.subject)]
    left = [node for node in found if node.name > query.after]
    shown = left[: query.limit]
    following = shown[-1].name if len(left) > len(shown) else ""
    return {"total": len(found), "nodes": [node_row(node, now_s) for node in shown], "next": following}


def node(tables: ViewContext, query: Query, now_s: float) -> Row:
    """One node. KeyError when there is none of the name."""
    entry = tables.cluster.nodes[query.subject]
    details = node_details(tables.cluster, tables.features, entry, now_s)
    trouble = node_trouble(entry, tables.settings.silent_after_s, now_s)
    return {"node": details | {"trouble": trouble, "drain_blockers": _drain_blockers(tables, entry)}}


def jobs(tables: ViewContext, query: Query, now_s: float) -> Row:
    """All jobs, those that are not over or those in the phase that the subject names; ValueError when it names none, or
    no page begins at `after`."""
    found = _chosen(tables.cluster, query.subject)
    after = int(query.after or -1)
    left = nsmallest(query.limit + 1, (each for each in found if _place(each) > after), key=_place)
    shown = left[: query.limit]
    following = f"{_place(shown[-1])}" if len(left) > len(shown) else ""
    reasons = tables.deciding.refusal_rows({entry.job.name for entry in shown})
    predicted = predicted_utilities(tables.deciding.history)
    rows = [_job(tables, entry, now_s, reasons, predicted) for entry in shown]
    return {"total": len(found), "jobs": rows, "next": following}


def _place(entry: JobEntry) -> int:
    """Where a job is in the list: those that are over last, the newest first. A job that ends while somebody turns the
    pages moves on, so it may be seen twice, but none is missed."""
    return OVER_FROM - entry.order if entry.over else entry.order


def _chosen(cluster: Cluster, subject: str) -> list[JobEntry]:
    """The jobs that a subject is about. Those that are over may be ten times as many as the others."""
    if subject == NOT_OVER:
        return [entry for entry in cluster.active.values() if not (entry.over or entry.job.app)]
    phase = JobPhase(subject) if subject else None
    return [entry for entry in _jobs(cluster) if phase is None or entry.phase is phase]


def job(tables: ViewContext, query: Query, now_s: float) -> Row:
    """One job. KeyError when there is none of the name."""
    entry = tables.cluster.jobs[query.subject]
    predicted = predicted_utilities(tables.deciding.history)
    row = _job(tables, entry, now_s, tables.deciding.refusal_rows({query.subject}), predicted)
    change = {"last_change": last_change(tables.deciding.history, query.subject)}
    return {"job": row | change | job_details(tables.cluster, entry)}


def definition(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """The definition of an adopted VM as its node sent it last, in pieces. KeyError when there is no such job."""
    entry = tables.cluster.jobs[query.subject]
    pieces = list(entry.definition)
    return {"job": entry.job.name, "vm": entry.adopted, "digest": entry.definition_digest, "definition": pieces}


def _job(
    tables: ViewContext, entry: JobEntry, now_s: float, reasons: dict[str, Row], predicted: Mapping[str, float]
) -> Row:
    refusal = reasons.get(entry.job.name)
    if entry.awaits:
        numbers = (("jobs", float(len(entry.awaits))),)
        names = ", ".join(entry.awaits[:NAMES_SHOWN])
        after = f"after {names}"
        refusal = reason_view(Reason(ReasonCode.AFTER, numbers)) | {"text": after, "words": after, "at_s": now_s}
    return job_row(entry, now_s, entry.job.name in tables.reconciler.blocked, refusal, predicted)


def _drain_blockers(tables: ViewContext, node: NodeEntry) -> list[Row]:
    """Why a node that is being emptied is not empty: each VM that may be on it, and what is known of why it stays."""
    if node.service is not NodeService.DRAINING:
        return []
    reasons = tables.deciding.refusal_rows({instance.job.job.name for instance in node.claimed.values()})
    pending = tables.deciding.pending
    held = {change.workload for change in pending.held} if pending is not None else set()
    rows: list[Row] = []
    for vm, instance in sorted(node.claimed.items()):
        name = instance.job.job.name
        text = "{words} ({code})".format_map(reasons[name]) if name in reasons else ""
        if instance.in_flight is not None:
            text = f"{instance.in_flight.kind.value} is under way"
        elif name in held and pending is not None:
            text = f"decision {pending.number} waits for approval"
        rows.append({"vm": vm, "workload": name, "why": text or "it is next"})
    return rows


def vms(tables: ViewContext, query: Query, now_s: float) -> Row:
    """All VMs and images, or those of the node that the subject names; KeyError when there is none."""
    cluster = tables.cluster
    places = [cluster.nodes[query.subject]] if query.subject else [node for _, node in sorted(cluster.nodes.items())]
    found = [(place, vm) for place in places for vm in vms_on(place)]
    node, _, last = query.after.partition("/")
    left = [(place, vm) for place, vm in found if (place.name, vm.vm) > (node, last)]
    shown = left[: query.limit]
    following = f"{shown[-1][0].name}/{shown[-1][1].vm}" if len(left) > len(shown) else ""
    rows = [vm_row(cluster, place, vm, now_s) for place, vm in shown]
    return {"total": len(found), "vms": rows, "next": following}


def plan(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """The decision that waits, else the last one, or the one of a number; KeyError when that one is not kept."""
    deciding = tables.deciding
    record = deciding.pending or deciding.history.last
    if query.subject:
        record = deciding.history.find(int(query.subject))
        if record is None:
            raise KeyError(query.subject)
    if record is None:
        return {"decision": None, "waiting_approval": False, "approvals_needed": 0, "approvals_missing": 0}
    waiting = deciding.pending is not None and record.number == deciding.pending.number
    return {
        "decision": decision_view(record, query.limit, deciding.progress.of(record)),
        "waiting_approval": waiting,
        "approvals_needed": tables.settings.approvals if record.asks else 0,
        "approvals_missing": deciding.approving.missing if waiting else 0,
    }


def plan_history(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """The decisions that are kept, newest first; those that say something of the workload that the subject names."""
    kept = list(tables.deciding.history)
    if not query.subject:
        return {"total": len(kept), "decisions": [decision_row(record) for record in kept[: query.limit]]}
    named = [(record, rows) for record in kept if (rows := named_rows(record, query.subject))]
    rows = [decision_row(record) | {"named": rows} for record, rows in named[: query.limit]]
    return {"total": len(named), "decisions": rows}


def doctor(tables: ViewContext, query: Query, now_s: float) -> Row:
    """Facts from which `trimtab doctor` judges."""
    cluster = tables.cluster
    places = [place for _, place in sorted(cluster.nodes.items())]
    models = sorted({place.inventory.cpu_model for place in places if place.inventory and place.inventory.cpu_model})
    strays = [vm for place in places for vm in place.vms if vm not in cluster.instances]
    return {
        "settings": settings_view(tables.settings),
        "nodes": [
            {
                "name": place.name,
                "condition": place.condition.value,
                "report_age_s": age_of(place, now_s),
                "skew_s": min(place.skews_s, default=None),
                "boot_id": place.boot_id,
                "echoed": place.echoed,
                "agent_term": place.last.term if place.last is not None else None,
                "events_open": len(place.events_above),
            }
            for place in places[: query.limit]
        ],
        "queues": tables.in_hand()
        | {"blocked_jobs": len(tables.reconciler.blocked), "touched_jobs": len(tables.unit_of_work.queued)},
        "facts": {
            "jobs": sum(1 for _ in _jobs(cluster)),
            "active_jobs": sum(not entry.job.app for entry in cluster.active.values()),
            "instances": len(cluster.instances),
            "history": len(tables.deciding.history),
            "cpu_models": models,
            "mixed_cpu_models": len(models) > 1,
            "unknown_vms": sorted(strays)[: query.limit],
            **tables.features.facts(),
        },
    }


def snapshot(tables: ViewContext, query: Query, now_s: float) -> Row:
    """What would be decided on now, in pages, or a page of what was saved last; ValueError for a page that is not
    there, `InvalidValue` for a policy's state that cannot be saved."""
    if not query.subject:
        tables.pages.put(query.request, lambda: to_bytes(tables.deciding.request(now_s, True)))
        return tables.pages.page(0)
    if not tables.pages.has(query.subject):
        raise ValueError(query.subject)
    return tables.pages.page(int(query.subject.rpartition(".")[2]))


VIEWS: dict[str, Callable[[ViewContext, Query, float], dict[str, Any]]] = {
    "status": status,
    "nodes": nodes,
    "node": node,
    "jobs": jobs,
    "job": job,
    "vms": vms,
    "definition": definition,
    "plan": plan,
    "plan-history": plan_history,
    "doctor": doctor,
    "snapshot": snapshot,
}
