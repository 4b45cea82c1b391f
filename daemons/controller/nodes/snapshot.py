"""What decisions see of nodes on their way into service and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.controller.nodes.durations import DEPLOY, REMOVE
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.state.availability import AWAY, is_available
from daemons.controller.state.nodes import NodeEntry
from shared.policy_api.snapshot import PowerColumns
from shared.values.nodes import NodeService


def power_columns(lifecycle: NodeLifecycle, nodes: Sequence[NodeEntry]) -> PowerColumns:
    """Return one row for each of the nodes, all of which have reported their facts."""
    power, stay = lifecycle.power, lifecycle.staying()
    types = tuple(node.inventory.node_type if node.inventory is not None else "" for node in nodes)
    draws = [power.draw_of(node_type) for node_type in types]

    def bools(values: list[bool]) -> np.ndarray:
        return np.array(values, dtype=np.bool_)

    def floats(values: list[float]) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    return PowerColumns(
        bools([node.wanted and not node.held for node in nodes]),
        bools([is_available(node, power) for node in nodes]),
        bools([node.name in stay and not node.held for node in nodes]),
        on=bools([node.service not in AWAY for node in nodes]),
        deploy_s=floats([_deploy_s(lifecycle, node, kind) for node, kind in zip(nodes, types, strict=True)]),
        remove_s=floats([lifecycle.durations.expected_s(power.driver, kind, REMOVE) for kind in types]),
        idle_w=floats([draw.idle_w for draw in draws]),
        peak_w=floats([draw.peak_w for draw in draws]),
        off_w=floats([draw.off_w for draw in draws]),
        types=types,
    )


def _deploy_s(lifecycle: NodeLifecycle, node: NodeEntry, node_type: str) -> float:
    """Return the seconds left until a waking node is up; 0 for one that is up."""
    if not node.asleep:
        return 0.0
    expected_s = lifecycle.durations.expected_s(lifecycle.power.driver, node_type, DEPLOY)
    if node.service is not NodeService.WAKING:
        return expected_s
    return max(expected_s - lifecycle.waking_s(node), 0.0)
