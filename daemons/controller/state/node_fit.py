"""Whether a node, if it were empty, could hold an instance of a job."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.tenancy import nodes_of
from daemons.values.replies import unknown
from shared.values.jobs import Job, PreferenceKind, Rules
from shared.values.nodes import Node

_ABOUT_NODES = (PreferenceKind.NODE_AFFINITY, PreferenceKind.NODE_ANTI_AFFINITY)


def could_hold(job: Job, node: Node, vm_overhead_mib: float) -> bool:
    """Return whether a node, if it were empty, could hold an instance of a job."""
    return (
        node.usable_mib >= job.memory_mib + vm_overhead_mib
        and set(job.required_labels) <= set(node.labels)
        and job.speed_on_mhz(node) >= job.min_mhz
        and (not job.rules.node_affinity or node.name in job.rules.node_affinity)
        and node.name not in job.rules.node_anti_affinity
        and not {*job.rules.label_anti_affinity} & {*node.labels}
    )


def why_none(job: Job, nodes: list[Node], vm_overhead_mib: float) -> str:
    """Says what no node has."""
    memory_mib = job.memory_mib + vm_overhead_mib
    largest_mib, fastest_mhz = max(node.usable_mib for node in nodes), max(job.speed_on_mhz(n) for n in nodes)
    pinned = f", to be on one of {sorted(job.rules.node_affinity)}" if job.rules.node_affinity else ""
    labels = sorted(set(job.required_labels))
    barred = f", and none of {sorted(job.rules.label_anti_affinity)}" if job.rules.label_anti_affinity else ""
    return (
        f"an instance needs {memory_mib:g} MiB, {job.min_mhz:g} MHz and labels {labels}{barred}{pinned}; "
        f"none of {len(nodes)} nodes has it all (most memory {largest_mib} MiB, most speed {fastest_mhz:g} MHz)"
    )


def fits_nowhere(job: Job, nodes: list[Node], vm_overhead_mib: float) -> str:
    """Return why no node of the cluster could ever hold an instance, or all that must be spread ("": they fit, or no
    node is known yet)."""
    if not nodes:
        return ""
    able = [node for node in nodes if could_hold(job, node, vm_overhead_mib)]
    if not able:
        return why_none(job, nodes, vm_overhead_mib)
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
