"""What operators ask for of nodes: added, removed, drained, repaired, confirmed off."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.controller.contract.feature import DONE, Caller, Refused, RequestHandler
from daemons.controller.measure.reports import Measure
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import last_node
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.replies import unknown
from shared.ports.effects import Declare, StartTimer
from shared.protocol import topology
from shared.protocol.operator_messages import AddNode, ConfirmOff, DrainNode, RemoveNode, RepairNode
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover, NodeCondition, NodeService


class NodeRequests:
    """Carries them out; each checks everything first. `handlers`: by request."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, measure: Measure, lifecycle: NodeLifecycle) -> None:
        self.cluster, self.unit_of_work, self.measure, self.lifecycle = cluster, unit_of_work, measure, lifecycle
        self.handlers: Mapping[type, RequestHandler] = {
            AddNode: self._add,
            RemoveNode: self._remove,
            DrainNode: self._drain,
            RepairNode: self._repair,
            ConfirmOff: self._confirm_off,
        }

    def _node(self, name: str) -> tuple[NodeEntry | None, Refused]:
        node = self.cluster.nodes.get(name)
        return node, DONE if node is not None else ("unknown-node", unknown("node", name, self.cluster.nodes))

    def _add(self, request: AddNode, _caller: Caller, now_s: float) -> Refused:
        if request.node not in self.cluster.nodes:
            node = self.cluster.nodes[request.node] = NodeEntry(request.node)
            self.unit_of_work.effects += [Declare(topology.agent_queue(request.node)), StartTimer("hello", now_s)]
            self.unit_of_work.change_node(node)
            self.unit_of_work.emit(now_s, "node-added", request.node)
        return DONE

    def _remove(self, request: RemoveNode, _caller: Caller, now_s: float) -> Refused:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.claimed or node.vms or node.wanted_mib > 0 or node.flights:
            images = len(node.vms.keys() - node.claimed.keys())
            return "node-not-empty", f"{len(node.claimed)} VMs and {images} images may be on it; drain it first"
        if (node.environment or not node.in_hand) and node.condition is not NodeCondition.OFF:
            whose = node.environment or node.given
            failed = node.handover is Handover.FAILED
            way = "its setup has failed: repair it, or power it off and confirm that" if failed else "drain it first"
            return "node-in-environment", f"node {request.node!r} is environment {whose!r}'s; {way}"
        self._leave(node)
        del self.cluster.nodes[request.node]
        self.lifecycle.forget(request.node)
        self.unit_of_work.removed_nodes.append(request.node)
        for entry in self.cluster.first_report(request.node):
            self.unit_of_work.enqueue(entry)
        self.unit_of_work.emit(now_s, "node-removed", request.node)
        return DONE

    def _leave(self, node: NodeEntry) -> None:
        """Note of adopted VMs that stopped with a node which is removed while it is off: they may restart elsewhere."""
        for entry in self.cluster.adopted.values() if node.condition is NodeCondition.OFF else ():
            if entry.phase is JobPhase.SHUT_OFF and last_node(entry.instances[0]) == node.name:
                entry.left_on = tuple(sorted({*entry.left_on, node.name}))
                self.unit_of_work.change(entry)

    def _drain(self, request: DrainNode, _caller: Caller, now_s: float) -> Refused:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        self.lifecycle.hold(node, request.on, now_s)
        return DONE

    def _repair(self, request: RepairNode, _caller: Caller, now_s: float) -> Refused:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.service is not NodeService.FAILED and node.handover is not Handover.FAILED:
            return "not-failed", f"node {request.node!r} has not failed, it is {node.service}"
        self.lifecycle.repair(node, now_s)
        return DONE

    def _confirm_off(self, request: ConfirmOff, _caller: Caller, now_s: float) -> Refused:
        node, refused = self._node(request.node)
        if node is None:
            return refused
        if node.condition is NodeCondition.UP:
            return "node-up", f"node {request.node!r} reports; it is not off"
        if node.condition is not NodeCondition.OFF:
            self.measure.proven_off(node, now_s)
        return DONE
