"""Records to rows and back: which table keeps which kind, and what its plain columns say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Column, Table

from daemons.controller.state.jobs import OVER
from daemons.decision.gains import columns_of
from daemons.store import schema
from daemons.store.bodies import from_body, to_body
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.records.cluster import (
    ControlRecord,
    CostRecord,
    DecisionRecord,
    Deleted,
    DurationRecord,
    EnvironmentRecord,
    JobRecord,
    LoadingRecord,
    NodeRecord,
    OperationRecord,
    PaceRecord,
    WebRecord,
    WindowRecord,
    WorkRatioRecord,
)
from daemons.values.records.notifications import NotificationRecord
from shared.base.errors import CodecError, ContractViolation
from shared.values.agreement import EnvironmentState

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordKind:
    """Where records of one class are kept. `columns` gives the plain columns, `key` the primary key from the name.
    `packed`: there is a body beside them."""

    cls: type[Any]
    table: Table
    columns: Callable[[Any], Row]
    key: Callable[[str], Any] = str
    packed: bool = True

    @property
    def key_column(self) -> Column[Any]:
        """The primary key."""
        column: Column[Any] = self.table.primary_key.columns[0]
        return column


@dataclass(slots=True)
class Sorted:
    """What a write comes to in one table: rows to put, keys to delete; no key is in both."""

    rows: list[Row] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)


def _node(record: NodeRecord) -> Row:
    node = record.inventory
    return {
        "name": record.name,
        "service": record.service.value,
        "boot_id": record.boot_id,
        "off": bool(record.off_boot_id),
        "cores": node.cores if node else None,
        "memory_mib": node.memory_mib if node else None,
    }


def _job(record: JobRecord) -> Row:
    over = record.phase in OVER
    return {
        "name": record.job.name,
        "phase": record.phase.value,
        "is_over": over,
        "idle": over and not record.instances,
        "request": record.request,
        "submission": record.order,
        "accepted_s": record.accepted_s,
        "goal_s": record.job.goal_s,
        "finished_s": record.finished_s if over else None,
        "instances": record.job.instances,
        "memory_mib": record.job.memory_mib,
        "attempt": record.attempt,
        "revision": record.revision,
    }


def _decision(record: DecisionRecord) -> Row:
    figures = columns_of(record.gains).summary()
    changes = Counter(("change", change.reason.code.value) for change in record.changes)
    refusals = Counter(("refusal", refusal.reason.code.value) for refusal in record.refusals)
    reasons = [[*what, count] for what, count in (*sorted(changes.items()), *sorted(refusals.items()))]
    return {
        "number": record.number,
        "at_s": record.at_s,
        "term": record.term,
        "policy": record.policy,
        "changes": len(record.changes),
        "refusals": len(record.refusals),
        "dropped": len(record.dropped),
        "held": len(record.held),
        "gains": len(record.gains),
        **{f"{of}_{how}": figures[how][of] for of in ("now", "predicted", "measured") for how in ("min", "mean")},
        "nodes_wanted": record.provisioning.in_service if record.provisioning else None,
        "reasons": json.dumps(reasons, separators=(",", ":")),
    }


def _web(record: WebRecord) -> Row:
    return {
        "name": record.app.name,
        "accepted_s": record.accepted_s,
        "removed": record.removed,
        "min_instances": record.app.min_instances,
        "max_instances": record.app.max_instances,
    }


def _environment(record: EnvironmentRecord) -> Row:
    destroyed = record.state is EnvironmentState.DESTROYED
    return {
        "name": record.agreement.name,
        "owner": record.agreement.owner,
        "state": record.state.value,
        "ended_s": record.ended_s if destroyed else None,
    }


def _control(record: ControlRecord) -> Row:
    return {"name": record.key[1], "deciding": record.deciding}


Named = WindowRecord | DurationRecord | LoadingRecord | PaceRecord | WorkRatioRecord | OperationRecord | AssuranceRecord


def _named(record: Named) -> Row:
    return {"name": record.name}


KINDS: Mapping[str, RecordKind] = {
    "node": RecordKind(NodeRecord, schema.nodes, _node),
    "job": RecordKind(JobRecord, schema.jobs, _job),
    "web": RecordKind(WebRecord, schema.web, _web),
    "environment": RecordKind(EnvironmentRecord, schema.environments, _environment),
    "window": RecordKind(WindowRecord, schema.windows, _named),
    "duration": RecordKind(DurationRecord, schema.durations, _named),
    "loading": RecordKind(LoadingRecord, schema.loadings, _named),
    "pace": RecordKind(PaceRecord, schema.paces, _named),
    "work-ratio": RecordKind(WorkRatioRecord, schema.work_ratios, _named),
    "operation": RecordKind(OperationRecord, schema.operation_times, _named),
    "assurance": RecordKind(AssuranceRecord, schema.assurances, _named),
    "control": RecordKind(ControlRecord, schema.control, _control),
    "decision": RecordKind(DecisionRecord, schema.decisions, _decision, int),
    "cost": RecordKind(CostRecord, schema.costs, asdict, float, packed=False),
    "notification": RecordKind(NotificationRecord, schema.notifications, asdict, packed=False),
}


def to_row(record: Any) -> Row:
    """Return the row of a record. Raises `CodecError`, naming the record, for a value that the codec refuses."""
    name = record.key[1]
    kind = KINDS[record.key[0]]
    try:
        return kind.columns(record) | ({"body": to_body(record)} if kind.packed else {})
    except CodecError as problem:
        raise CodecError(f"{record.key[0]} {name!r}: {problem}") from problem


def from_row(kind: str, name: Any, body: bytes) -> Any:
    """Return the record in a row. Raises `CodecError`, naming the record, when the body is not one of this version."""
    try:
        return from_body(body, KINDS[kind].cls)
    except CodecError as problem:
        raise CodecError(f"{kind} {name!r} in the store: {problem}") from problem


def sort_out(records: tuple[Any, ...]) -> dict[str, Sorted]:
    """Return the resulting changes of a write, by kind; the last record of a key counts.

    Raises ContractViolation for anything that is not a record of the controller, `CodecError` for anything that cannot
    be packed.
    """
    newest = {record.key: record for record in records if _is_known(record)}
    sorted_out: dict[str, Sorted] = {}
    for (kind, name), record in newest.items():
        change = sorted_out.setdefault(kind, Sorted())
        if isinstance(record, Deleted):
            change.gone.append(KINDS[kind].key(name))
        else:
            change.rows.append(to_row(record))
    return sorted_out


def _is_known(record: Any) -> bool:
    kind = KINDS.get(record.key[0]) if hasattr(record, "key") else None
    if kind is None or not isinstance(record, kind.cls | Deleted):
        raise ContractViolation(f"the store keeps no {type(record).__name__}")
    return True
