"""Unreachable nodes: sends hello to nodes that have not confirmed this term, and requests proof that unreachable ones
are off. A node whose agent reports that its hypervisor does not answer, or does not know this leader yet, is
unreachable, but its host is alive: it is not fenced meanwhile."""

from __future__ import annotations

import math

from daemons.controller.measure.reports import Measure
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.fencing import heard_s, needs_no_fence
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings
from shared.ports.effects import Effect, Power, Publish
from shared.protocol import topology
from shared.protocol.messages import Hello
from shared.values.nodes import NodeCondition, NodeService, PowerOperation

HELLO_WAIT_MAX_S = 60.0


class Heartbeats:
    """Watches over the nodes' reports."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, measure: Measure, settings: ControllerSettings
    ) -> None:
        self.cluster, self.unit_of_work, self.measure, self.settings = cluster, unit_of_work, measure, settings

    def check(self, now_s: float) -> float:
        """Mark nodes as unreachable and request fencing after a while; return when the next check is due."""
        due_s = now_s + self.settings.unreachable_after_s
        for node in self.cluster.nodes.values():
            if node.condition is NodeCondition.UP:
                at_s = node.seen_s + self.settings.unreachable_after_s
                if at_s <= now_s:
                    self.measure.silent(node, now_s)
                else:
                    due_s = min(due_s, at_s)
            if node.condition is NodeCondition.UNKNOWN and not node.fencing:
                due_s = min(due_s, self._fence_when_due(node, now_s))
        return due_s

    def _fence_when_due(self, node: NodeEntry, now_s: float) -> float:
        after_s = self.settings.fence_after_s
        if not self.unit_of_work.acting or after_s is None or node.silent_s is None or not node.boot_id:
            return math.inf
        if needs_no_fence(self.cluster, node):
            node.silent_s = now_s  # undrained, it has the whole wait to report
            return math.inf
        silent_s = max(node.silent_s, heard_s(node))
        if now_s < silent_s + after_s:
            return silent_s + after_s
        node.fencing = True
        node.silent_s = now_s  # if the proof fails, ask again after the same wait
        self.unit_of_work.emit(now_s, "fencing", node.name)
        macs = node.inventory.mac_addresses if node.inventory is not None else ()
        self.unit_of_work.effects.append(Power(node.name, PowerOperation.FENCE, macs))
        return math.inf

    def send_hellos(self, now_s: float) -> bool:
        """Say hello to every node that has not echoed this term, less and less often; whether there still are any."""
        waiting = False
        for node in self.cluster.nodes.values():
            if node.echoed or node.condition is NodeCondition.OFF or node.service is NodeService.OFF:
                continue
            waiting = True
            if now_s >= node.hello_s + node.hello_wait_s:
                self.unit_of_work.effects.append(self.hello(node, now_s))
        return waiting

    def hello(self, node: NodeEntry, now_s: float) -> Effect:
        """Return the message that announces this term to a node."""
        node.hello_s = now_s
        node.hello_wait_s = min(HELLO_WAIT_MAX_S, max(self.settings.reconcile_s, 2 * node.hello_wait_s))
        return Publish(topology.ACTIONS, node.name, Hello(self.unit_of_work.term, node.events_seen))
