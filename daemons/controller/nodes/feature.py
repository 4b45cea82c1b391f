"""Nodes on their way into service and out of it as a feature of the controller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from daemons.controller.contract.feature import Alarm, Feature, SnapshotPart
from daemons.controller.measure.reports import Measure
from daemons.controller.nodes.requests import NodeRequests
from daemons.controller.nodes.service import NodeLifecycle
from daemons.controller.nodes.snapshot import power_columns
from daemons.controller.nodes.views import durations_view, service_alarms, service_details
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import DurationRecord
from daemons.values.view_format import Row
from shared.ports.effects import PowerDone
from shared.protocol.messages import SetUpAnswer, SleepAnswer
from shared.values.nodes import NodeCondition, PowerOperation

TIMER = "deploy"


class NodesFeature(Feature):
    """Moves every node towards where it is wanted, and carries out what operators ask for of nodes."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, measure: Measure, lifecycle: NodeLifecycle) -> None:
        self._cluster, self._unit_of_work, self._measure = cluster, unit_of_work, measure
        self.lifecycle = lifecycle
        self.requests = NodeRequests(cluster, unit_of_work, measure, lifecycle).handlers
        self.messages = {SleepAnswer: lifecycle.sleep_answer, SetUpAnswer: lifecycle.handovers.answer}
        self.answers = {PowerDone: self._powered}
        self.records = {DurationRecord: lambda record, _now_s: lifecycle.durations.load(record)}
        self.timers = {TIMER: self._look}

    def restore(self, now_s: float) -> None:
        """Continue the transitions of nodes; their time limits restart."""
        self.lifecycle.loaded(now_s)

    def _look(self, _now_s: float) -> None:
        self._unit_of_work.deploy = True

    def _powered(self, event: PowerDone, now_s: float) -> None:
        if event.operation is not PowerOperation.FENCE:
            self.lifecycle.powered(event, now_s)
            return
        node = self._cluster.nodes.get(event.node)
        if node is None:
            return
        node.fencing = False
        if event.ok and node.condition is not NodeCondition.UP:
            self._measure.proven_off(node, now_s, event.detail)
        elif not event.ok:
            self._unit_of_work.emit(now_s, "fence-failed", node.name, event.detail)

    def prepare(self, now_s: float) -> None:
        """Take every step that may be taken now."""
        if self._unit_of_work.deploy or self.lifecycle.emptied():
            self._unit_of_work.wake(TIMER, max(self.lifecycle.run(now_s), now_s))

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return which nodes are in service, and what power they draw."""
        return SnapshotPart({"power": power_columns(self.lifecycle, nodes)})

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Return alarms for nodes that failed."""
        return service_alarms(self._cluster.nodes.values())

    def of_node(self, node: NodeEntry) -> Row:
        """Return the node's transition state and its power details."""
        return service_details(self.lifecycle, node)

    def facts(self) -> Row:
        """Return the learned durations of node transitions."""
        return {"durations": durations_view(self.lifecycle)}
