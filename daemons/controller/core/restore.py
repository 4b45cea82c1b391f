"""Makes the desired state and the ledger again from the store, for a controller that takes the lead."""

from __future__ import annotations

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.entries import JobEntry, NodeEntry
from daemons.controller.state.environment import EnvironmentEntry
from daemons.values.records.cluster import (
    ControlRecord,
    DecisionRecord,
    EnvironmentRecord,
    JobRecord,
    NodeRecord,
    Record,
)
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeCondition, NodeService


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
    node = cluster.nodes[record.name] = NodeEntry(
        record.name,
        record.service,
        NodeCondition.OFF if record.off_boot_id else NodeCondition.UNKNOWN,
        record.inventory,
        record.boot_id,
        record.off_boot_id,
        events_seen=record.events_seen,
        seen_s=now_s,
        silent_s=now_s,
        off_s=now_s,
        wanted=record.wanted,
        held=record.held or _was_drained(record),
        since_s=record.since_s,
        detail=record.detail,
        sleeping=record.sleeping,
        linked=record.linked,
        woken_s=record.woken_s,
        environment=record.environment,
        given=record.given,
        handover=record.handover,
        setup_request=record.setup_request,
    )
    if node.asleep or node.service is NodeService.FAILED:
        node.silent_s = None  # nothing was on it: there is nothing to be told or proven
    elif not record.off_boot_id:
        cluster.untold.add(record.name)


def _was_drained(record: NodeRecord) -> bool:
    """Whether an operator had it emptied when that was not yet told from leaving service by a decision."""
    return record.service is NodeService.DRAINING and record.wanted and record.linked


def _load_job(record: JobRecord, cluster: Cluster, deciding: DecisionCycle, now_s: float) -> None:
    entry = JobEntry(
        record.job,
        record.request,
        record.order,
        record.accepted_s,
        record.revision,
        record.phase,
        record.attempt,
        record.released,
        record.allotments,
        not_before_s=record.not_before_s,
        failures=record.failures,
        resuming=record.resuming,
        begun_s=now_s if record.phase is JobPhase.RUNNING and not record.released else None,
        wanted_s=now_s,
        progress_s=now_s,
        finished_s=record.finished_s,
        held=record.held,
        adopted=record.adopted,
        profile=record.profile,
        measured_mcycles=record.measured_mcycles,
        measured_mhz=record.measured_mhz,
        awaits=record.awaits,
        ran_mcycles=record.ran_mcycles,
        runs_since_s=record.runs_since_s,
        ran_on=record.ran_on,
        user=record.user,
        hands_off=record.hands_off,
        definition=record.definition,
        definition_digest=record.definition_digest,
    )
    cluster.add_job(entry, record.instances)
    if entry.job.name in cluster.active:
        deciding.unit_of_work.touch(entry)
