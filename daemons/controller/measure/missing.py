"""VMs that are out of sight: gone without a word on why, or taken by somebody else to where nobody has seen them.

None of them is started anew before it is proven gone (architecture, rule 5). One that is not there any more, and nobody
says why, may have been moved while its agent was away: every node that is up then must have told what is on it since.
One that is known to have left is unknown until it is seen or an operator says that it is gone.
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
    """Notes which VMs are out of sight, and from whom a word on them is awaited."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings

    def vanished(self, instance: Instance, node: NodeEntry, now_s: float) -> None:
        """It ran on the node and does not any more; why is not known."""
        ran = instance.counter_node == node.name and instance.counter_generation == instance.generation
        if not ran or instance.may_run_on or instance.left:
            return
        others = [other for other in self.cluster.nodes.values() if other is not node]
        instance.awaited = {other.name for other in others if other.condition is NodeCondition.UP}
        instance.missed_s = now_s
        if instance.awaited:
            self.cluster.missing[instance.vm] = instance

    def left(self, instance: Instance, node: NodeEntry, detail: str, now_s: float) -> None:
        """Somebody else has moved it away from the node; where to is known once it is seen there."""
        where = f"from {node.name}: {detail}" if detail else f"from {node.name}"
        self.unit_of_work.emit(now_s, "vm-left", instance.vm, where)
        flight = instance.in_flight
        if not instance.may_run_on and (flight is None or flight.node != node.name):
            self.cluster.lose(instance, where)
            instance.missed_s = now_s
        self.unit_of_work.change(instance.job)

    def reported(self, node: NodeEntry, report: Report) -> None:
        """A node has told what is on it: whoever waits for no other any more is gone, unless it runs somewhere as a VM
        that is not ours."""
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
        """A node on which a VM of that name runs that is not ours ("": none)."""
        for node in self.cluster.nodes.values():
            statuses = node.last.vms if node.last is not None and node.condition is NodeCondition.UP else ()
            if any(one.vm == vm and not one.managed and one.state in LIVE_STATES for one in statuses):
                return node.name
        return ""

    def gone(self, instance: Instance, now_s: float) -> None:
        """An operator's word that it is nowhere."""
        self.cluster.found(instance)
        self.unit_of_work.change(instance.job)
        self.unit_of_work.emit(now_s, "vm-confirmed-gone", instance.vm)
