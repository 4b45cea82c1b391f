"""What decisions see of environments: whose each node and each workload is, and how many VMs those may run whose units
are VMs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import HANDED, is_leaving
from shared.policy_api.snapshot import NOBODY, POOL, EnvironmentColumns


def environment_columns(
    cluster: Cluster, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry]
) -> EnvironmentColumns | None:
    """Return the columns with one entry for each node and each job, in their order; None where no environment is
    involved."""
    lives = any(not one.destroyed for one in cluster.environments.values())
    if not lives and not any(n.environment or n.given for n in nodes) and not any(j.job.environment for j in jobs):
        return None
    running = sorted((one for one in cluster.environments.values() if one.running), key=lambda one: one.order)
    rows = {one.name: row for row, one in enumerate(running)} | {"": POOL}
    return EnvironmentColumns(
        tuple(one.name for one in running),
        np.array([_holder(node, rows) for node in nodes], dtype=np.int64),
        np.array([rows.get(entry.job.environment, NOBODY) for entry in jobs], dtype=np.int64),
        np.array([-1 if one.by_node else one.size for one in running], dtype=np.int64),
        np.array([is_leaving(node) for node in nodes], dtype=np.bool_),
    )


def _holder(node: NodeEntry, rows: dict[str, int]) -> int:
    return rows.get(node.environment, NOBODY) if node.handover in HANDED else NOBODY
