"""Makes the desired state and the ledger again from the store, for a controller that takes the lead."""

from __future__ import annotations

from daemons.deciding import Deciding
from daemons.records import ControlRecord, DecisionRecord, JobRecord, NodeRecord, Record, WebRecord
from daemons.state import Cluster, JobEntry, NodeEntry
from daemons.web import WebApps
from shared.model import JobPhase, NodeCondition


def load(records: tuple[Record, ...], cluster: Cluster, deciding: Deciding, web: WebApps, now_s: float) -> None:
    """Take everything over; nothing is known of any node until it reports."""
    decisions: list[DecisionRecord] = []
    for record in records:
        if isinstance(record, NodeRecord):
            _load_node(record, cluster, now_s)
        elif isinstance(record, ControlRecord):
            deciding.enabled, deciding.decisions = record.deciding, record.decisions
            deciding.submissions, deciding.agenda.acting = record.submissions, record.acting
        elif isinstance(record, DecisionRecord):
            decisions.append(record)
        elif isinstance(record, WebRecord):
            web.load(record)
    for decision in sorted(decisions, key=lambda decision: decision.number):
        deciding.history.add(decision)
    for record in records:
        if isinstance(record, JobRecord):
            _load_job(record, cluster, deciding, now_s)
    web.loaded()


def _load_node(record: NodeRecord, cluster: Cluster, now_s: float) -> None:
    if not record.off_boot_id:
        cluster.untold.add(record.name)
    cluster.nodes[record.name] = NodeEntry(
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
    )


def _load_job(record: JobRecord, cluster: Cluster, deciding: Deciding, now_s: float) -> None:
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
    )
    cluster.add_job(entry, record.instances)
    if entry.job.name in cluster.active:
        deciding.agenda.touch(entry)
