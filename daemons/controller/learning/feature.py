"""What the cluster's own history teaches, as a feature of the controller: how much work jobs have left, and how long
operations on VMs take."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.controller.contract.feature import Feature, SnapshotPart
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.records.cluster import OperationRecord, WorkRatioRecord
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.protocol.operator_messages import Query


class LearningFeature(Feature):
    """Restores what earlier controllers have learnt, and has decisions count with it."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings) -> None:
        self._cluster, self._settings = cluster, settings
        self.records = {
            WorkRatioRecord: lambda record, _now_s: cluster.lengths.load(record),
            OperationRecord: lambda record, _now_s: cluster.operation_times.load(record),
        }
        self.views = {"operations": self._operations}

    def columns(
        self, nodes: Sequence[NodeEntry], jobs: Sequence[JobEntry], now_s: float, at_cycle: bool
    ) -> SnapshotPart:
        """Return the costs of operations."""
        return SnapshotPart({"costs": self._cluster.operation_times.costs_now(self._settings)})

    def _operations(self, _query: Query, _cluster: Cluster, _now_s: float) -> Row:
        """Return how long operations take, as planned and as measured."""
        costs, rows = self._cluster.operation_times.costs_now(self._settings), []
        for kind, count, memory_mib, seconds in self._cluster.operation_times.medians():
            fixed_s, s_per_mib = costs.line(kind)
            rows.append(
                {
                    "kind": kind.value,
                    "fixed_s": fixed_s,
                    "s_per_mib": s_per_mib,
                    "measured": count,
                    "median_mib": memory_mib,
                    "median_s": seconds,
                    "expected_s": None if memory_mib is None else costs.duration_s(kind, memory_mib),
                }
            )
        return {"learns": self._settings.learn_costs, "operations": rows}
