"""Whether an unreachable node has to be fenced: only for the proof that VMs which may run there have stopped, and not
while its agent is heard, since then they may run on."""

from __future__ import annotations

from daemons.controller.state.availability import is_empty
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry


def needs_no_fence(cluster: Cluster, node: NodeEntry) -> bool:
    """Return whether nothing waits for proof that the node is off: an operator has drained it, and no managed VM runs
    or may run there. Someone may be working on the machine; cutting its power would do harm and help nobody."""
    return node.held and is_empty(node) and not _is_awaited(cluster, node)


def heard_s(node: NodeEntry) -> float:
    """Return when the node's agent was last heard: a report, also one that does not know this leader yet, or the word
    that its hypervisor does not answer. Before the first of them, when this leader took over. What is said after a
    reboot says nothing of the VMs that ran before it."""
    if node.trouble is None or node.trouble[2] not in ("", node.boot_id):
        return node.seen_s
    return max(node.seen_s, node.trouble[0])


def _is_awaited(cluster: Cluster, node: NodeEntry) -> bool:
    """Return whether the node's report is awaited on a VM: one that is missing, or one that this leader has not seen
    since it took over."""
    if any(node.name in instance.awaited for instance in cluster.missing.values()):
        return True
    return node.name in cluster.nodes_not_reported and any(each.sought for each in cluster.instances.values())
