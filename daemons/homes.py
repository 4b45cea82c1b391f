"""On whose nodes the workloads of an environment run."""

from __future__ import annotations

from daemons.entries import NodeEntry
from daemons.state import Cluster

POOLED = ""  # the environment of nodes that are nobody's


def home_of(cluster: Cluster, environment: str) -> str | None:
    """The environment on whose nodes workloads of `environment` ("": of none) may run: its own, or `POOLED` where its
    units are VMs. None: it is not running, and nothing of it may be started anywhere."""
    if not environment:
        return POOLED
    entry = cluster.environments.get(environment)
    if entry is None or not entry.running:
        return None
    return environment if entry.by_node else POOLED


def takes(cluster: Cluster, node: NodeEntry | None, environment: str) -> bool:
    """Whether a VM of a workload of `environment` may come to the node now, room and its condition aside."""
    return node is not None and node.in_hand and node.environment == home_of(cluster, environment)
