"""What the cluster's own history teaches, as a feature of the controller: how much work jobs have left."""

from __future__ import annotations

from daemons.controller.contract.feature import Feature
from daemons.controller.state.cluster import Cluster
from daemons.values.records.cluster import OverrunRecord


class LearningFeature(Feature):
    """Restores what earlier controllers have learnt."""

    def __init__(self, cluster: Cluster) -> None:
        self.records = {OverrunRecord: lambda record, _now_s: cluster.lengths.load(record)}
