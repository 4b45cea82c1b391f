"""Which nodes must not leave service, and which must not be put to sleep."""

from __future__ import annotations

from collections.abc import Set

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.values.settings import PowerSettings
from shared.values.nodes import NodeCondition, NodeService
from shared.values.vms import LIVE_STATES, VmState

AWAY = frozenset({NodeService.OFF, NodeService.WAKING})


def can_wake(node: NodeEntry, power: PowerSettings) -> bool:
    """Return whether the power driver could put the node to sleep and wake it again."""
    macs = node.inventory.mac_addresses if node.inventory is not None else ()
    return power.can_sleep and (bool(macs) or not power.needs_mac)


def is_available(node: NodeEntry, power: PowerSettings) -> bool:
    """Return whether the node could serve within a cycle: not failed, not held back by an operator, and up or
    asleep."""
    if node.held or node.inventory is None or node.service is NodeService.FAILED:
        return False
    return node.usable or (node.asleep and can_wake(node, power))


def staying(cluster: Cluster, power: PowerSettings, named: Set[str] = frozenset()) -> frozenset[str]:
    """Return the names of the nodes that must stay in service when those `named` are wanted there: the protected ones,
    those of environments, and enough of the others to keep the minimum.

    Of the others, those that already serve come first, then those that draw least for their CPU.
    """
    able = [node for node in cluster.nodes.values() if is_available(node, power)]

    def rank(node: NodeEntry) -> tuple[bool, bool, float, str]:
        facts = node.inventory
        assert facts is not None
        watts = power.draw_of(facts.node_type).peak_w / facts.cpu_mhz
        return node.service is not NodeService.IN_SERVICE, not node.wanted, watts, node.name

    protected = {node.name for node in cluster.nodes.values() if node.name in power.never or is_bound(node)}
    kept = {node.name for node in able if node.name in protected or node.name in named}
    if len(kept) >= power.keep_nodes:
        return frozenset(protected)
    more = [node.name for node in sorted(able, key=rank) if node.name not in kept]
    return frozenset(protected.union(more[: max(power.keep_nodes - len(kept), 0)]))


def is_bound(node: NodeEntry) -> bool:
    """Return whether an environment has the node, or the node is being reassigned: it must not leave service."""
    return bool(node.given) or not node.in_hand


def is_empty(node: NodeEntry) -> bool:
    """Return whether no managed VM is or may be on the node, and no operation is in progress there; saved images may be
    stored on it."""
    return not (node.claimed or node.flights or node.actions or node.in_progress)


def sleep_blocker(node: NodeEntry, power: PowerSettings) -> str:
    """Return why the node must not be put to sleep ("": it may). A saved image of a managed VM prevents it: its job
    could not be resumed elsewhere."""
    if node.name in power.never:
        return "it is named among those that never are"
    if is_bound(node):
        return "an environment has it, or it changes hands"
    if not can_wake(node, power):
        return "it could not be woken"
    if not node.usable or node.last is None:
        return f"its condition is {node.condition}" if node.condition is not NodeCondition.UP else "its clock is off"
    if not is_empty(node) or node.vms:
        return "VMs or saved images are on it"
    if any(vm.state in LIVE_STATES or vm.state is VmState.INCOMING or vm.busy for vm in node.last.vms):
        return "VMs that are not ours run on it"
    return ""
