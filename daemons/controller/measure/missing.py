"""Missing VMs: gone without an explanation, or moved externally to an unknown place.

None of them is restarted before it is proven gone (architecture, rule 5). A VM that disappeared without an explanation
may have been moved while its agent was away: every node that is up must first report its VMs again. A VM that is known
to have left is unknown until it is seen, or an operator confirms that it is gone.
"""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.protocol.messages import Report
from shared.values.nodes import NodeCondition
from shared.values.vms import LIVE_STATES


class Missing:
    """Tracks missing VMs, and the nodes whose reports about them are awaited."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings

    def vanished(self, instance: Instance, node: NodeEntry, now_s: float) -> None:
        """Note that a VM no longer runs on the node for an unknown reason."""
        ran = instance.counter_node == node.name and instance.counter_generation == instance.generation
        if not ran or instance.may_run_on or instance.left:
            return
        others = [other for other in self.cluster.nodes.values() if other is not node]
        instance.awaited = {other.name for other in others if other.condition is NodeCondition.UP}
        instance.missed_s = now_s
        if instance.awaited:
            self.cluster.missing[instance.vm] = instance

    def left(self, instance: Instance, node: NodeEntry, detail: str, now_s: float) -> None:
        """Note that a VM was moved away from the node externally; its target is known once it is seen there."""
        where = f"from {node.name}: {detail}" if detail else f"from {node.name}"
        self.unit_of_work.emit(now_s, "vm-disappeared", instance.vm, where)
        flight = instance.in_flight
        if not instance.may_run_on and (flight is None or flight.node != node.name):
            self.cluster.lose(instance, where)
            instance.missed_s = now_s
        self.unit_of_work.change(instance.job)

    def reported(self, node: NodeEntry, report: Report) -> None:
        """Handle a node's report of its VMs. A missing VM that awaits no further node is gone, unless it runs somewhere
        as an unmanaged VM."""
        for vm, instance in list(self.cluster.missing.items()):
            if report.clock_s > instance.missed_s + self.settings.max_skew_s:
                instance.awaited.discard(node.name)
            instance.awaited = {name for name in instance.awaited if self._is_to_tell(name)}
            if instance.awaited:
                continue
            del self.cluster.missing[vm]
            stranger = self._stranger(vm)
            if stranger and not instance.may_run_on:
                self.cluster.lose(instance, f"a VM of that name that is not ours runs on {stranger}")
                self.unit_of_work.change(instance.job)
            self.unit_of_work.enqueue(instance.job)

    def _is_to_tell(self, name: str) -> bool:
        node = self.cluster.nodes.get(name)
        return node is not None and node.condition is not NodeCondition.OFF and not node.asleep

    def _stranger(self, vm: str) -> str:
        """Return a node on which an unmanaged VM of that name runs ("": none)."""
        for node in self.cluster.nodes.values():
            statuses = node.last.vms if node.last is not None and node.condition is NodeCondition.UP else ()
            if any(one.vm == vm and not one.managed and one.state in LIVE_STATES for one in statuses):
                return node.name
        return ""

    def gone(self, instance: Instance, now_s: float) -> None:
        """Record an operator's confirmation that the VM exists nowhere."""
        self.cluster.found(instance)
        self.unit_of_work.change(instance.job)
        self.unit_of_work.emit(now_s, "vm-confirmed-gone", instance.vm)
