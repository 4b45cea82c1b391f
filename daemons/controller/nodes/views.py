"""What views tell of nodes on their way into service and out of it, and of decisions about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.state.availability import keeps_awake
from daemons.controller.state.nodes import NodeEntry
from shared.values.nodes import Handover, NodeService

Row = dict[str, Any]


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


def service_alarms(nodes: Iterable[NodeEntry]) -> Iterable[tuple[str, str, float | None, str]]:
    """Nodes that failed: code, name, since when, why."""
    for node in nodes:
        if node.service is NodeService.FAILED:
            yield "node-failed", node.name, node.since_s, node.detail
        if node.handover is Handover.FAILED:
            yield "setup-failed", node.name, None, node.detail
