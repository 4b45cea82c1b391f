"""Rows of environments as plain data. docs/reference/views.md has the keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from daemons.controller.environments.coordination import Coordination
from daemons.controller.environments.inventory import Inventory, like, owned_and_idle, queue_of
from daemons.controller.environments.pairing import why_not
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.nodes import NodeEntry
from shared.policy_api.coordination import Moment
from shared.values.jobs import JobPhase

Row = dict[str, Any]
PHASES = (JobPhase.WAITING, JobPhase.RUNNING, JobPhase.SUSPENDED)


def environment_row(cluster: Cluster, stock: Inventory, entry: EnvironmentEntry) -> Row:
    """Return an environment as a row of the list."""
    agreement = entry.agreement
    owned, idle = owned_and_idle(entry, cluster, stock)
    workloads = [job for job in cluster.jobs_of(entry.name) if not job.over]
    jobs = [job.phase for job in workloads if not job.job.app]
    return {
        "name": entry.name,
        "owner": entry.owner,
        "workload": agreement.workload.value,
        "type": agreement.type_name,
        "model": agreement.model,
        "state": entry.state.value,
        "wanted": entry.wanted.value,
        "granularity": agreement.granularity.value,
        "lower": agreement.lower,
        "upper": agreement.upper,
        "size": entry.size,
        "owned": owned,
        "idle": idle,
        "partner": entry.partner,
        "jobs": {phase.value: jobs.count(phase) for phase in PHASES},
        "instances": sum(job.phase is JobPhase.RUNNING for job in workloads if job.job.app),
        "detail": entry.detail,
    }


def environment_details(
    cluster: Cluster, coordination: Coordination, entry: EnvironmentEntry, limit: int, now_s: float
) -> Row:
    """Return an environment in full detail, with at most `limit` of its nodes."""
    stock = coordination.allocation.stock(now_s)
    node = like(entry, cluster, stock)
    queued, biggest = queue_of(entry, cluster, node, now_s, arrived=True) if entry.batch else (0, 0)
    nodes = [node for _, node in sorted(cluster.nodes.items()) if entry.name in (node.given, node.environment)]
    return environment_row(cluster, stock, entry) | {
        "agreement": agreement_view(entry),
        "created_at_s": entry.created_s,
        "ended_at_s": entry.ended_s if entry.destroyed else None,
        "nodes": [_node(cluster, entry, node) for node in nodes[:limit]],
        "queue": {"queued": queued, "biggest": biggest},
        **_timers(coordination, entry),
        "adjustments": entry.adjustments,
        "killed": entry.killed,
        "suspended": entry.suspended,
        "lost_node_hours": entry.lost_node_hours,
        "setups": entry.setups,
        "consents": sorted(entry.consents),
        "declined": sorted(entry.declined),
        "parts_s": entry.parts_s,
        "offered": entry.offered,
        "not_coordinated": _not_coordinated(cluster, entry),
    }


def _node(cluster: Cluster, entry: EnvironmentEntry, node: NodeEntry) -> Row:
    """Return a node of an environment; other environments are named only if the requester may know of them."""
    return {
        "name": node.name,
        "handover": node.handover.value,
        "given": node.given if node.given in cluster.environments else "",
        "environment": node.environment if node.environment in cluster.environments else "",
        "service": node.service.value,
        "condition": node.condition.value,
        "detail": node.detail if node.environment in ("", entry.name) else "",
    }


def agreement_view(entry: EnvironmentEntry) -> Row:
    """Return every key of its agreement, as plain data."""
    return {key: _plain(value) for key, value in asdict(entry.agreement).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value  # a member of an enumeration as its word


def _timers(coordination: Coordination, entry: EnvironmentEntry) -> Row:
    """Return when the timers of its group fire next, null while they do not run."""
    group = next((group for group in coordination.groups if entry.name in group.names), None)
    if group is None or not entry.begun:
        return {"next_provision_s": None, "next_manage_s": None}
    return {
        "next_provision_s": group.next_s(Moment.PROVISION),
        "next_manage_s": group.next_s(Moment.MANAGE),
    }


def _not_coordinated(cluster: Cluster, entry: EnvironmentEntry) -> str:
    """Return why it runs without the environment that its agreement names ("": it does not, or names none)."""
    name = entry.agreement.coordinated_with
    if not name or entry.partner == name or entry.over:
        return ""
    other = cluster.environments.get(name)
    if other is None or other.over:
        return f"no environment {name!r} shares with it"  # or none that the asker may know of
    if not (entry.serves and other.serves):
        return f"{(other if entry.serves else entry).name!r} is not activated"
    return why_not(entry, other)
