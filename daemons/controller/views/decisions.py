"""Views of decisions: what changed, what was refused, how far each plan is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import structs

from daemons.controller.decide.progress import StepProgress, edges
from daemons.controller.views.context import ViewContext
from daemons.decision.gains import columns_of
from daemons.values.records.cluster import DecisionRecord, Provisioned
from daemons.values.view_format import Row, reason_view
from shared.policy_api.decision import Change, Refusal, Slowed, Step, WindowSize
from shared.protocol.operator_messages import Query


def plan(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """Return the pending decision, else the last one, or the one of a number; KeyError when that one is not kept."""
    deciding = tables.deciding
    record = deciding.pending or deciding.history.last
    if query.subject:
        record = deciding.history.find(int(query.subject))
        if record is None:
            raise KeyError(query.subject)
    if record is None:
        return {"decision": None, "waiting_approval": False, "approvals_needed": 0, "approvals_missing": 0}
    waiting = deciding.pending is not None and record.number == deciding.pending.number
    return {
        "decision": decision_view(record, query.limit, deciding.progress.of(record)),
        "waiting_approval": waiting,
        "approvals_needed": tables.settings.approvals if record.asks else 0,
        "approvals_missing": deciding.approving.missing if waiting else 0,
    }


def plan_history(tables: ViewContext, query: Query, _now_s: float) -> Row:
    """Return the kept decisions, newest first; only those that concern the workload that the subject names, if any."""
    kept = list(tables.deciding.history)
    scores = tables.deciding.scores
    if not query.subject:
        rows = [decision_row(record) for record in kept[: query.limit]]
        return {"total": len(kept), "decisions": rows, "scores": scores.rows(query.limit)}
    named = [(record, rows) for record in kept if (rows := named_rows(record, query.subject))]
    rows = [decision_row(record) | {"named": rows} for record, rows in named[: query.limit]]
    return {"total": len(named), "decisions": rows, "scores": scores.rows(query.limit, query.subject)}


def change_view(change: Change) -> Row:
    """Return a change, with its reason as text."""
    return {
        "workload": change.workload,
        "kind": change.kind.value,
        "allotments": [asdict(allotment) for allotment in change.allotments],
        "reason": reason_view(change.reason),
    }


def refusal_view(refusal: Refusal) -> Row:
    """Return a change that is not made, and why."""
    return {"workload": refusal.workload, "reason": reason_view(refusal.reason)}


def _step(step: Step) -> Row:
    return asdict(step) | {"kind": step.kind.value}


def _steps(steps: Sequence[Step], progress: Sequence[StepProgress], limit: int) -> list[Row]:
    """Return the steps with their numbers, those that each waits for, and their progress (absent when they are not
    followed)."""
    rows: list[Row] = []
    for at, (step, after) in enumerate(zip(steps[:limit], edges(steps[:limit]), strict=True)):
        row = _step(step) | {"id": at, "after": after}
        if progress:
            one = progress[at]
            row |= {"state": one.state.value, "since_s": one.since_s, "detail": one.detail}
        rows.append(row)
    return rows


def slowed_view(slowed: Slowed) -> Row:
    """Whom sharing slows, and that in words."""
    by = f" with {', '.join(slowed.by)}" if slowed.by else ""
    text = f"{slowed.node}: slowed {slowed.factor:.1f}x by {slowed.resource} sharing{by}"
    return asdict(slowed) | {"by": list(slowed.by), "text": text}


def _lists(record: DecisionRecord) -> Mapping[str, Sequence[Any]]:
    return {
        "changes": record.changes,
        "held": record.held,
        "refusals": record.refusals,
        "dropped": record.dropped,
        "steps": record.plan.steps,
        "blocked": record.plan.blocked,
        "gains": record.gains,
        "slowed": record.slowed,
    }


def _head(record: DecisionRecord) -> Row:
    return {
        "number": record.number,
        "decided_at_s": record.at_s,
        "term": record.term,
        "policy": record.policy,
        "counts": {key: len(items) for key, items in _lists(record).items()},
        "level": record.level,
        "measured_at_s": record.measured_s,
        "asks": record.asks,
        "approvals": [asdict(approval) for approval in record.approvals],
        "approved_at_s": record.approved_s,
        "rejected": None if record.rejected is None else asdict(record.rejected),
        "utility": columns_of(record.gains).summary() if len(record.gains) else None,
    }


def decision_row(record: DecisionRecord) -> Row:
    """Return a decision as a row of the list."""
    counts = provisioning_counts(record.provisioning)
    return _head(record) | {
        "provisioning": counts,
        "kinds": dict(Counter(change.kind.value for change in record.changes)),
    }


def named_rows(record: DecisionRecord, name: str) -> list[Row]:
    """Return what a decision says of a job, or of each instance of a web application, by name: changed, held (it waits
    for approval, or was not approved), dropped or refused, and why."""
    waits = {change.workload for change in record.held} if record.approved_s is None else set()
    dropped = {refusal.workload for refusal in record.dropped}
    rows = []
    for change in record.changes:
        if _is_of(change.workload, name) and change.workload not in dropped:
            became = "held" if change.workload in waits else "changed"
            nodes = [allotment.node for allotment in change.allotments]
            reason = reason_view(change.reason)
            row = {"workload": change.workload, "became": became, "kind": change.kind.value, "nodes": nodes}
            rows.append(row | {"reason": reason})
    for became, refusals in (("dropped", record.dropped), ("refused", record.refusals)):
        for refusal in refusals:
            if _is_of(refusal.workload, name):
                row = {"workload": refusal.workload, "became": became, "kind": "", "nodes": []}
                rows.append(row | {"reason": reason_view(refusal.reason)})
    return rows


def _is_of(workload: str, name: str) -> bool:
    return workload == name or workload.startswith(f"{name}#")


def last_change(history: Iterable[DecisionRecord], name: str) -> Row | None:
    """Return the newest change to a job among the kept decisions, also as text; None: there is none."""
    for record in history:
        for row in named_rows(record, name):
            if row["became"] == "changed":
                on = f" on {', '.join(row['nodes'])}" if row["nodes"] else ""
                text = f"decision {record.number}: {row['kind']}{on}, {row['reason']['text']}"
                return row | {"decision": record.number, "decided_at_s": record.at_s, "text": text}
    return None


def decision_view(record: DecisionRecord, limit: int, progress: Sequence[StepProgress] = ()) -> Row:
    """Return a decision in full detail, at most `limit` rows of each list. progress: of each step of its plan."""
    lists = {
        key: [_SHOWN[key](item) for item in items[:limit]] for key, items in _lists(record).items() if key in _SHOWN
    }
    lists["steps"] = _steps(record.plan.steps, progress, limit)
    return _head(record) | {"provisioning": provisioning_view(record.provisioning, limit)} | lists


_SHOWN: dict[str, Callable[[Any], Row]] = {
    "changes": change_view,
    "held": change_view,
    "refusals": refusal_view,
    "dropped": refusal_view,
    "blocked": refusal_view,
    "gains": structs.asdict,
    "slowed": slowed_view,
}


def provisioning_view(provisioned: Provisioned | None, limit: int) -> Row | None:
    """Return what a decision says of nodes, with at most `limit` names in each list."""
    if provisioned is None:
        return None
    return {
        "policy": provisioned.policy,
        "in_service": provisioned.in_service,
        "added": list(provisioned.added[:limit]),
        "removed": list(provisioned.removed[:limit]),
        "dropped": list(provisioned.dropped[:limit]),
        "held": provisioned.held,
        "reason": reason_view(provisioned.reason),
        "predicted_cost": provisioned.predicted_cost,
        "windows": [_window(size) for size in provisioned.windows],
        "refused": [{"nodes": nodes, "utility": utility} for nodes, utility in provisioned.refused[:limit]],
    }


def provisioning_counts(provisioned: Provisioned | None) -> Row | None:
    """Return the same in a few numbers."""
    if provisioned is None:
        return None
    return {
        "in_service": provisioned.in_service,
        "added": len(provisioned.added),
        "removed": len(provisioned.removed),
        "held": provisioned.held,
        "predicted_cost": provisioned.predicted_cost,
    }


def _window(size: WindowSize) -> Row:
    return {
        "window": size.window,
        "jobs": size.jobs,
        "nodes": size.nodes,
        "wanted": size.wanted,
        "breach": list(size.breach),
        "reason": str(size.reason),
        "predicted_cost": size.predicted_cost,
    }
