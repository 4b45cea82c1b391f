"""The view of the whole cluster in a few numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from daemons.controller.views.alarms import alarms
from daemons.controller.views.context import ViewContext
from daemons.controller.views.jobs import all_jobs
from daemons.controller.views.nodes import vms_on
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query
from shared.values.agreement import EnvironmentState
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeService


def status(tables: ViewContext, _query: Query, now_s: float) -> Row:
    """Return the whole cluster in a few numbers."""
    cluster, deciding, settings = tables.cluster, tables.deciding, tables.settings
    up = [node for node in cluster.nodes.values() if node.condition is NodeCondition.UP]
    listed = [vm.managed for node in up for vm in vms_on(node)]
    flights = [instance.in_flight for instance in cluster.actions.values()]
    trouble = deciding.trouble
    role, phases = tables.leadership.role.value, Counter(entry.phase for entry in all_jobs(cluster))
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
        "decision_in_progress": deciding.in_progress,
        "dry_run_in_progress": tables.dry_running(),
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
            "instances": sum(len(cluster.replicas_wanted(name)) for name in cluster.web),
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


def _counts(codes: type[StrEnum], found: Iterable[StrEnum]) -> dict[str, int]:
    counts = Counter(found)
    return {code.value: counts[code] for code in codes}
