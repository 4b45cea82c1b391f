"""Decisions with their reasons, actions, and events."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from daemons.report.charts import Chart, Series, Style, Table, X
from daemons.report.report import Section
from daemons.report.spans import OK, History, duration_text
from daemons.values.text_format import time_text

T = TypeVar("T")
NO_ANSWER = "no answer yet"
# Events that report a problem.
TROUBLE = frozenset(
    {
        "action-failed",
        "adopted-vm-off",
        "adoption-failed",
        "assurance-missed",
        "balancer-unreachable",
        "clock-skewed",
        "decision-failed",
        "decision-skipped",
        "drain-failed",
        "environment-short",
        "fence-failed",
        "guest-crashed",
        "job-stalled",
        "job-requeued",
        "job-dependency-failed",
        "node-failed",
        "node-off",
        "node-rebooted",
        "node-unreachable",
        "off-node-reports",
        "power-failed",
        "prices-stale",
        "deadline-at-risk",
        "setup-failed",
        "sleep-failed",
        "standard-job-failed",
        "unknown-type",
        "vm-disappeared",
        "web-instance-lost",
        "web-instance-unhealthy",
        "web-not-measured",
        "work-lost",
    }
)


def decisions_section(history: History) -> Section:
    """Return the section on decisions: their number, their changes, and their reasons."""
    rows = history.decisions
    counts = Counter[tuple[str, str]]()
    for row in rows:
        for what, code, count in row.reasons:
            counts[what, code] += count
    given = tuple((code, what, count) for (what, code), count in _most(counts))
    note = "Each decision gives a reason for each change and each unsatisfied request."
    reasons = Table("reasons", "Reasons", ("reason", "given for", "count"), given, note)
    times = [row.at_s for row in rows]
    lines = (
        Series("changes", times, [row.changes for row in rows], style=Style.LINE),
        Series("unsatisfied", times, [row.refusals for row in rows], style=Style.LINE),
        Series("held back", times, [row.held for row in rows], style=Style.LINE),
        Series("dropped", times, [row.dropped for row in rows], style=Style.LINE),
    )
    chart = Chart(
        "decisions",
        "Decisions",
        "workloads",
        series=lines,
        x_min=history.from_s,
        x_max=history.to_s,
        y_min=0.0,
        zone=history.zone,
        empty="no decisions",
    )
    policies = Counter(row.policy for row in rows)
    words = (f"{len(rows):,} decisions" + "".join(f", {count:,} by {name}" for name, count in _most(policies)) + ".",)
    return Section("decisions", "Decisions", words, (chart,), (reasons,))


def actions_section(history: History) -> Section:
    """Actions by kind and outcome, how long they took, and the newest that failed."""
    kinds = sorted({each.kind for each in history.actions})
    outcomes = sorted({each.outcome or NO_ANSWER for each in history.actions}, key=lambda name: (name != OK, name))
    counts = {(each.kind, each.outcome or NO_ANSWER): each.count for each in history.actions}
    bars = tuple(
        Series(
            outcome, range(len(kinds)), [counts.get((kind, outcome)) for kind in kinds], style=Style.BAR, stacked=at > 0
        )
        for at, outcome in enumerate(outcomes)
    )
    done = [each for each in history.actions if each.outcome == OK]
    took = (
        Series("mean", range(len(done)), [each.mean_s for each in done], style=Style.BAR),
        Series("95th percentile", range(len(done)), [each.p95_s for each in done], style=Style.BAR),
    )
    empty = "no actions"
    charts = (
        Chart("actions", "Actions", "actions", series=bars, x=X.CATEGORY, x_names=tuple(kinds), empty=empty),
        Chart(
            "durations",
            "Duration of successful actions",
            "seconds",
            series=took,
            x=X.CATEGORY,
            x_names=tuple(each.kind for each in done),
            empty=empty,
        ),
    )
    return Section("actions", "Actions", (), charts, (_actions_table(history), _failed_table(history)))


def _actions_table(history: History) -> Table:
    rows = tuple(
        (
            each.kind,
            each.outcome or NO_ANSWER,
            each.count,
            duration_text(each.mean_s),
            duration_text(each.p95_s),
            duration_text(each.max_s),
        )
        for each in history.actions
    )
    columns = ("action", "outcome", "count", "duration, mean", "95th percentile", "maximum")
    return Table("actions", "Actions by kind and outcome", columns, rows)


def _failed_table(history: History) -> Table:
    rows = tuple(
        (
            time_text(each.at_s, history.zone),
            each.kind,
            each.vm,
            each.node + (f" to {each.to_node}" if each.to_node else ""),
            each.outcome,
            each.detail,
        )
        for each in history.failed
    )
    failed = sum(each.count for each in history.actions if each.outcome not in (None, OK))
    note = f"Showing the newest {len(rows)} of {failed:,}." if failed > len(rows) else ""
    return Table("failed", "Failed actions", ("time", "action", "VM", "node", "outcome", "detail"), rows, note)


def events_section(history: History) -> Section:
    """Return the section on the frequency of events, with trouble in a separate table."""

    def table(id: str, caption: str, is_trouble: bool) -> Table:
        own = [each for each in history.events if (each.what in TROUBLE) == is_trouble]
        rows = tuple(
            (each.what, each.count, time_text(each.first_s, history.zone), time_text(each.last_s, history.zone))
            for each in own
        )
        return Table(id, caption, ("event", "count", "first", "last"), rows)

    total = sum(each.count for each in history.events)
    trouble = sum(each.count for each in history.events if each.what in TROUBLE)
    words = (f"{total:,} events, {trouble:,} of them problems.",)
    tables = (table("trouble", "Problems", True), table("events", "Other events", False))
    return Section("events", "Events", words, (), tables)


def _most(counts: Counter[T]) -> list[tuple[T, int]]:
    """Return the most frequent first; equal numbers by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
