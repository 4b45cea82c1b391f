"""Whether a VM can be adopted: asked by the request, and by the views that list what could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.values.replies import unknown
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState, VmStatus

Refused = tuple[str, str]
ADOPTABLE: Refused = ("", "")


def names_twice(cluster: Cluster) -> Mapping[str, int]:
    """Return on how many nodes there is an unmanaged VM of a name, for names of more than one; O(VMs)."""
    found = Counter(
        status.vm
        for node in cluster.nodes.values()
        for status in (node.last.vms if node.last is not None else ())
        if not status.managed
    )
    return {vm: count for vm, count in found.items() if count > 1}


def refusal(cluster: Cluster, node: NodeEntry, vm: str, twice: Mapping[str, int]) -> Refused:
    """Return why a VM of a node cannot be adopted now, code and text; ("", "") when it can. twice: `names_twice`."""
    if not node.usable or node.inventory is None or node.last is None:
        return "node-not-usable", f"node {node.name!r} is {node.condition}; its VMs are not known for certain"
    if node.environment or not node.in_hand:
        whose = node.environment or node.given
        return "node-in-environment", f"node {node.name!r} is environment {whose!r}'s; an adopted VM has none"
    if vm in cluster.instances:
        return "vm-known", f"{vm} is a VM of job {cluster.instances[vm].job.job.name!r}"
    status = status_on(node, vm)
    if status is None:
        return "unknown-vm", unknown("VM", vm, [each.vm for each in node.last.vms], f" on node {node.name!r}")
    why = _state(status)
    if not why and vm in twice:
        why = f"is a VM on {twice[vm]} nodes: names of VMs must be unique in the cluster"
    return ("vm-not-adoptable", f"{vm} {why}") if why else ADOPTABLE


def status_on(node: NodeEntry, vm: str) -> VmStatus | None:
    """Return the status of a VM that is not one of a known job, by the node's last report."""
    if vm in node.vms:
        return node.vms[vm]
    statuses = node.last.vms if node.last is not None else ()
    return next((status for status in statuses if status.vm == vm and not status.managed), None)


def _state(status: VmStatus) -> str:
    if status.transient:
        return "is transient: libvirt forgets it when it stops; define it first (virsh define)"
    if status.busy:
        return f"is busy: {status.busy} is in progress"
    if status.state is VmState.PAUSED and not status.managed:
        return "is paused; resume it first"
    if status.state not in LIVE_STATES | OFF_STATES:
        return f"is {status.state}; only a VM that runs or is shut off is adopted"
    return ""
