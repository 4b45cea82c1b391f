"""What views tell of nodes on their way into service and out of it, and of decisions about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.state.availability import keeps_awake
from daemons.controller.state.entries import NodeEntry
from daemons.values.records.cluster import Provisioned
from daemons.values.view_format import reason_view
from shared.policy_api.decision import WindowSize
from shared.values.nodes import Handover, NodeService

Row = dict[str, Any]


def service_row(node: NodeEntry) -> Row:
    """How far a node is, and how far it is to be; which environment has it, and which is to have it."""
    return {
        "service": node.service.value,
        "wanted": node.wanted,
        "held": node.held,
        "service_since_s": node.since_s or None,
        "environment": node.environment,
        "given": node.given,
        "handover": node.handover.value,
    }


def service_details(deployment: NodeLifecycle, node: NodeEntry) -> Row:
    """What a single node's view has beyond that."""
    way = deployment.work.way(node)
    standby = node.service is NodeService.STANDBY
    return {
        "failure": node.detail,
        "must_stay": node.name in deployment.staying(),
        "going_to_sleep": node.sleeping,
        "kept_awake": keeps_awake(node, deployment.power) if standby and not node.wanted else "",
        "setup_request": node.setup_request,
        "linked": node.linked,
        "woken_at_s": node.woken_s or None,
        "power_operation": way.power.value if way.power is not None else "",
        "power_detail": way.detail,
    }


def durations_view(deployment: NodeLifecycle) -> list[Row]:
    """The durations that were learnt."""
    return [asdict(record) for record in sorted(deployment.durations, key=lambda record: record.name)]


def provisioning_view(provisioned: Provisioned | None, limit: int) -> Row | None:
    """What a decision says of nodes, with at most `limit` names in each list."""
    if provisioned is None:
        return None
    return {
        "policy": provisioned.policy,
        "in_service": provisioned.in_service,
        "added": list(provisioned.added[:limit]),
        "removed": list(provisioned.removed[:limit]),
        "dropped": list(provisioned.dropped[:limit]),
        "held": provisioned.held,
        "reason": reason_view(provisioned.reason),
        "predicted_cost": provisioned.predicted_cost,
        "windows": [_window(size) for size in provisioned.windows],
        "refused": [{"nodes": nodes, "utility": utility} for nodes, utility in provisioned.refused[:limit]],
    }


def provisioning_counts(provisioned: Provisioned | None) -> Row | None:
    """The same in a few numbers."""
    if provisioned is None:
        return None
    return {
        "in_service": provisioned.in_service,
        "added": len(provisioned.added),
        "removed": len(provisioned.removed),
        "held": provisioned.held,
        "predicted_cost": provisioned.predicted_cost,
    }


def _window(size: WindowSize) -> Row:
    return {
        "window": size.window,
        "jobs": size.jobs,
        "nodes": size.nodes,
        "wanted": size.wanted,
        "breach": list(size.breach),
        "reason": str(size.reason),
        "predicted_cost": size.predicted_cost,
    }


def service_alarms(nodes: Iterable[NodeEntry]) -> Iterable[tuple[str, str, float | None, str]]:
    """Nodes that failed: code, name, since when, why."""
    for node in nodes:
        if node.service is NodeService.FAILED:
            yield "node-failed", node.name, node.since_s, node.detail
        if node.handover is Handover.FAILED:
            yield "setup-failed", node.name, None, node.detail
