"""Views of nodes that enter or leave service, and of decisions about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.state.availability import sleep_blocker
from daemons.controller.state.nodes import NodeEntry
from shared.values.nodes import Handover, NodeService

Row = dict[str, Any]


def service_details(lifecycle: NodeLifecycle, node: NodeEntry) -> Row:
    """Return the additional details in the view of a single node."""
    way = lifecycle.work.way(node)
    standby = node.service is NodeService.STANDBY
    return {
        "failure": node.detail,
        "must_stay": node.name in lifecycle.staying(),
        "going_to_sleep": node.sleeping,
        "kept_awake": sleep_blocker(node, lifecycle.power) if standby and not node.wanted else "",
        "setup_request": node.setup_request,
        "linked": node.linked,
        "woken_at_s": node.woken_s or None,
        "power_operation": way.power.value if way.power is not None else "",
        "power_detail": way.detail,
    }


def durations_view(lifecycle: NodeLifecycle) -> list[Row]:
    """Return the learned durations."""
    return [asdict(record) for record in sorted(lifecycle.durations, key=lambda record: record.name)]


def service_alarms(nodes: Iterable[NodeEntry]) -> Iterable[tuple[str, str, float | None, str]]:
    """Yield nodes that failed: code, name, since when, why."""
    for node in nodes:
        if node.service is NodeService.FAILED:
            yield "node-failed", node.name, node.since_s, node.detail
        if node.handover is Handover.FAILED:
            yield "setup-failed", node.name, None, node.detail
