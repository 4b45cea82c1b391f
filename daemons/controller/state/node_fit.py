"""Whether a node, if it were empty, could hold an instance of a job."""

from __future__ import annotations

from collections.abc import Collection, Container

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.tenancy import nodes_of
from daemons.models.rule_contradictions import Ruled
from daemons.values.replies import unknown
from shared.values.jobs import Job, PreferenceKind, Rules
from shared.values.nodes import Node

_ABOUT_NODES = (PreferenceKind.NODE_AFFINITY, PreferenceKind.NODE_ANTI_AFFINITY)


def is_allowed(required_labels: Collection[str], rules: Rules, node: Node) -> bool:
    """Return whether required labels and rules about nodes and labels let a workload onto a node."""
    return Ruled(rules, tuple(required_labels)).suits(node.name, frozenset(node.labels))


def could_hold(job: Job, node: Node, vm_overhead_mib: float) -> bool:
    """Return whether a node, if it were empty, could hold an instance of a job."""
    return _has_capacity(job, node, job.memory_mib + vm_overhead_mib) and is_allowed(
        job.required_labels, job.rules, node
    )


def _has_capacity(job: Job, node: Node, memory_mib: float) -> bool:
    return node.usable_mib >= memory_mib and job.speed_on_mhz(node) >= job.min_mhz


def why_none(job: Job, nodes: list[Node], memory_mib: float) -> str:
    """Say what no node has. memory_mib: of an instance, with its overhead."""
    largest_mib, fastest_mhz = max(node.usable_mib for node in nodes), max(job.speed_on_mhz(n) for n in nodes)
    pinned = f", to be on one of {sorted(job.rules.node_affinity)}" if job.rules.node_affinity else ""
    avoided = f", on none of {sorted(job.rules.node_anti_affinity)}" if job.rules.node_anti_affinity else ""
    labels = sorted({*job.required_labels, *job.rules.label_affinity})
    barred = f", and none of {sorted(job.rules.label_anti_affinity)}" if job.rules.label_anti_affinity else ""
    return (
        f"an instance needs {memory_mib:g} MiB, {job.min_mhz:g} MHz and labels {labels}{barred}{pinned}{avoided}; "
        f"none of {len(nodes)} nodes has it all (most memory {largest_mib} MiB, most speed {fastest_mhz:g} MHz)"
    )


def fits_nowhere(
    job: Job, nodes: list[Node], vm_overhead_mib: float, there: Container[str] = (), memory_mib: float | None = None
) -> str:
    """Return why no node of the cluster could ever hold an instance, or all that must be spread ("": they fit, or no
    node is known yet). there: nodes that hold one already, whatever their size. memory_mib: ordinary memory of an
    instance, with its overhead (None: that of the job)."""
    if not nodes:
        return ""
    memory_mib = job.memory_mib + vm_overhead_mib if memory_mib is None else memory_mib
    able = [
        node
        for node in nodes
        if is_allowed(job.required_labels, job.rules, node)
        and (node.name in there or _has_capacity(job, node, memory_mib))
    ]
    if not able:
        return why_none(job, nodes, memory_mib)
    if job.spread and job.instances > len(able):
        return f"{job.instances} instances must be separate, but only {len(able)} nodes could hold one"
    return ""


def inventories(cluster: Cluster, environment: str) -> list[Node]:
    """Return what is known of the nodes on which workloads of an environment ("": of none) may run, now or later."""
    if environment:
        return nodes_of(cluster.environments[environment].agreement, cluster)
    return [node.inventory for node in cluster.nodes.values() if node.inventory is not None]


def unknown_nodes(cluster: Cluster, rules: Rules) -> str:
    """Return which node of the rules does not take part ("": all do). It names others: not for those who own an
    environment."""
    preferred = (one.target for one in rules.preferred if one.kind in _ABOUT_NODES)
    named = (*rules.node_affinity, *rules.node_anti_affinity, *preferred)
    return next((unknown("node", name, cluster.nodes) for name in named if name not in cluster.nodes), "")
