"""On whose nodes the workloads of an environment run, and how many VMs it may run there."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from shared.values.agreement import Agreement
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover, Node

HANDED = frozenset({Handover.SETTLED, Handover.EMPTYING})  # who has it has it still
POOLED = ""  # the environment of nodes that are nobody's


def tenant_pool(cluster: Cluster, environment: str) -> str | None:
    """Return the environment on whose nodes workloads of `environment` ("": of none) may run: its own, or `POOLED`
    where its units are VMs. None: it is not running, and nothing of it may be started anywhere."""
    if not environment:
        return POOLED
    entry = cluster.environments.get(environment)
    if entry is None or not entry.running:
        return None
    return environment if entry.by_node else POOLED


def admits(cluster: Cluster, node: NodeEntry | None, environment: str) -> bool:
    """Return whether a VM of a workload of `environment` may come to the node now, without regard to capacity and node
    health."""
    return node is not None and node.in_hand and node.environment == tenant_pool(cluster, environment)


class Units:
    """How many VMs environments still may run whose units are VMs; looked up once for each, then counted down."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left: dict[str, int] = {}

    def take(self, entry: JobEntry) -> bool:
        """Take a unit for each instance of a workload that is to run; false, and nothing is taken, where there are not
        enough. For what is of no such environment there always are."""
        name = entry.job.environment
        environment = self._cluster.environments.get(name)
        if environment is None or environment.by_node:
            return True
        if name not in self._left:
            own = self._cluster.jobs_of(name)
            self._left[name] = environment.size - sum(e.job.instances for e in own if e.phase is JobPhase.RUNNING)
        enough = entry.job.instances <= self._left[name]
        self._left[name] -= entry.job.instances if enough else 0
        return enough


def is_leaving(node: NodeEntry) -> bool:
    """Return whether the node must be evacuated because it is assigned to another environment."""
    return node.handover in HANDED and node.given != node.environment


def is_nobodys(node: NodeEntry) -> bool:
    """Return whether the node belongs to the provider and stays there."""
    return node.in_hand and not node.environment


def runs(agreement: Agreement, system: tuple[str, str]) -> bool:
    """Return whether an agreement accepts a node with that operating system, its type and version."""
    os_type, os_version = system
    return agreement.os_type in ("", os_type) and agreement.os_version in ("", os_version)


def nodes_of(agreement: Agreement, cluster: Cluster) -> list[Node]:
    """Return the inventories of the nodes on which workloads of an environment may run, now or later."""
    known = (node.inventory for node in cluster.nodes.values())
    return [facts for facts in known if facts is not None and runs(agreement, (facts.os_type, facts.os_version))]
