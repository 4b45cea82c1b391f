"""A controller in a few numbers."""

from __future__ import annotations

from typing import Any

from daemons.controller.core.controller import Controller
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition


def describe(controller: Controller) -> dict[str, Any]:
    """Return a few numbers about a controller, for progress displays and logs."""
    phases = [entry.phase for entry in controller.cluster.jobs.values() if not entry.job.app]
    return {
        "role": controller.leadership.role.value,
        "term": controller.unit_of_work.term,
        "nodes_up": sum(node.condition is NodeCondition.UP for node in controller.cluster.nodes.values()),
        "jobs": {phase.value: phases.count(phase) for phase in JobPhase},
        "decisions": controller.deciding.decisions,
        "actions_in_progress": len(controller.cluster.actions),
    }
