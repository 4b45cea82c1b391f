"""Makes the desired state and the ledger again from the store, for a controller that takes the lead."""

from __future__ import annotations

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.values.records.cluster import (
    ControlRecord,
    DecisionRecord,
    EnvironmentRecord,
    JobRecord,
    NodeRecord,
    Record,
)
from shared.values.nodes import NodeService


def load(
    records: tuple[Record, ...], cluster: Cluster, deciding: DecisionCycle, features: FeatureSet, now_s: float
) -> None:
    """Take everything over, jobs last; nothing is known of any node until it reports."""
    loaders = features.handlers("records")
    decisions: list[DecisionRecord] = []
    for record in records:
        if isinstance(record, NodeRecord):
            _load_node(record, cluster, now_s)
        elif isinstance(record, ControlRecord):
            deciding.restore(record)
        elif isinstance(record, EnvironmentRecord):
            cluster.environments[record.agreement.name] = EnvironmentEntry.of(record)
        elif isinstance(record, DecisionRecord):
            decisions.append(record)
        elif (loader := loaders.get(type(record))) is not None:
            loader(record, now_s)
    for decision in sorted(decisions, key=lambda decision: decision.number):
        deciding.history.add(decision)
    for record in records:
        if isinstance(record, JobRecord):
            _load_job(record, cluster, deciding, now_s)
    deciding.approving.loaded(now_s)
    features.restore(now_s)


def _load_node(record: NodeRecord, cluster: Cluster, now_s: float) -> None:
    node = cluster.nodes[record.name] = NodeEntry.of(record, now_s)
    node.held = record.held or _was_drained(record)
    if node.asleep or node.service is NodeService.FAILED:
        node.silent_s = None  # nothing was on it: there is nothing to be told or proven
    elif not record.off_boot_id:
        cluster.nodes_not_reported.add(record.name)


def _was_drained(record: NodeRecord) -> bool:
    """Return whether an operator drained the node before records distinguished that from a decision to remove it from
    service."""
    return record.service is NodeService.DRAINING and record.wanted and record.linked


def _load_job(record: JobRecord, cluster: Cluster, deciding: DecisionCycle, now_s: float) -> None:
    entry = JobEntry.of(record, now_s)
    cluster.add_job(entry, record.instances)
    if entry.job.name in cluster.active:
        deciding.unit_of_work.enqueue(entry)
