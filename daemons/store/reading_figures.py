"""Figures over spans of the history, computed where the rows are."""

from __future__ import annotations

from sqlalchemy import Column, ColumnElement, Connection, Table, case, func, select

from daemons.store import schema
from daemons.store.reading_rows import ActionFigures, EventCount, JobFigures, StoredSpans


def event_counts(connection: Connection, from_s: float, to_s: float) -> tuple[EventCount, ...]:
    """Return the number of events of each kind, the most frequent first."""
    table = schema.events.c
    count = func.count()
    wanted = select(table.what, count, func.min(table.at_s), func.max(table.at_s))
    wanted = wanted.where(table.at_s >= from_s, table.at_s < to_s).group_by(table.what)
    return tuple(EventCount(*row) for row in connection.execute(wanted.order_by(count.desc(), table.what)))


def action_figures(connection: Connection, from_s: float, to_s: float) -> tuple[ActionFigures, ...]:
    """Actions by kind and outcome. The 95th percentile is the smallest duration that so many do not exceed."""
    table = schema.actions.c
    took_s = table.done_s - table.sent_s
    kind = (table.kind, table.outcome)
    ranked = (
        select(
            table.kind,
            table.outcome,
            took_s.label("took_s"),
            func.row_number().over(partition_by=kind, order_by=took_s.desc().nulls_last()).label("place"),
            func.count(took_s).over(partition_by=kind).label("known"),
        )
        .where(table.at_s >= from_s, table.at_s < to_s)
        .subquery()
    )
    # longest first: from the place on that one in twenty have reached, all are shorter; the longest of those
    fitting = case((20 * ranked.c.place > ranked.c.known, ranked.c.took_s))
    wanted = select(
        ranked.c.kind,
        ranked.c.outcome,
        func.count(),
        func.avg(ranked.c.took_s),
        func.max(fitting),
        func.max(ranked.c.took_s),
    )
    rows = connection.execute(wanted.group_by(ranked.c.kind, ranked.c.outcome))
    found = (ActionFigures(*row) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.kind, each.outcome or "")))


def job_figures(connection: Connection, from_s: float, to_s: float, condition: ColumnElement[bool]) -> JobFigures:
    """Return the figures of jobs that meet a condition, see `JobFigures`."""
    table = schema.jobs.c
    accepted = select(func.count()).where(table.accepted_s >= from_s, table.accepted_s < to_s, condition)
    late_s = table.finished_s - table.goal_s
    done = table.phase == "completed"
    missed = case((done & (late_s > 0), late_s))
    ended = select(
        func.count(case((done, 1))),
        func.count(case((table.phase == "cancelled", 1))),
        func.count(case((done & (late_s <= 0), 1))),
        func.count(missed),
        func.avg(missed),
        func.max(missed),
    ).where(table.finished_s >= from_s, table.finished_s < to_s, condition)
    return JobFigures(connection.execute(accepted).scalar_one(), *connection.execute(ended).one())


def kept(connection: Connection) -> StoredSpans:
    """Return the spans of the stored data."""

    def span(table: Table, column: Column[float]) -> tuple[float, float] | None:
        first = connection.execute(select(column).select_from(table).order_by(column).limit(1)).scalar()
        last = connection.execute(select(column).select_from(table).order_by(column.desc()).limit(1)).scalar()
        return None if first is None or last is None else (first, last)

    return StoredSpans(
        span(schema.events, schema.events.c.at_s),
        span(schema.actions, schema.actions.c.at_s),
        span(schema.decisions, schema.decisions.c.at_s),
        span(schema.snapshots, schema.snapshots.c.at_s),
        span(schema.cluster_use, schema.cluster_use.c.from_s),
        span(schema.costs, schema.costs.c.at_s),
    )
