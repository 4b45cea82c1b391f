"""The history, for who only looks: reports, pages, replays. Nothing is ever written through it.

Times are UTC seconds since the epoch, spans half-open: `from_s` belongs to them, `to_s` does not. Where rows may be
many, `limit` bounds them and the newest are given, newest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Select, Table, cast, func, or_, select

from daemons.store import schema
from daemons.store.database import Database
from daemons.store.history import ActionEntry
from daemons.store.reading_figures import action_figures, event_counts, job_figures, kept
from daemons.store.reading_rows import (
    ActionFigures,
    ClusterUse,
    DecisionRow,
    EventCount,
    EventRow,
    JobFigures,
    JobRow,
    NodeStep,
    SnapshotRow,
    StoredSpans,
)
from daemons.store.rows import KINDS, from_row
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.records.cluster import (
    CostRecord,
    DecisionRecord,
    EnvironmentRecord,
    JobRecord,
    NodeRecord,
    WebRecord,
)
from daemons.values.records.notifications import NotificationRecord
from shared.base.errors import InvalidValue
from shared.ports.audit import Audited

LIMIT = 1_000

T = TypeVar("T")
Condition = ColumnElement[bool]


def reading(url: str) -> Reading:
    """Open the store of a URL for reading. Raises `InvalidInput` for a URL that is none; nothing is connected yet."""
    return Reading(url)


class Reading:
    """A store's history. Threads may share it; `close` ends its connections, and the next call makes new ones.

    Every method raises `StoreUnavailable`, saying what to do, when the store does not answer or is not there, and
    `InvalidInput` when its tables are not of this program's version; those that unpack records also `CodecError`, when
    one is damaged.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._database = Database(url, read_only=True)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection."""
        self._database.close()

    @property
    def where(self) -> str:
        """The store's URL without its password, for messages."""
        return self._database.where

    def kept(self) -> StoredSpans:
        """Return the spans of the stored data."""
        return self._ask(kept)

    # --- what happened and what was ordered ---------------------------------------------------------------------

    def events(
        self, from_s: float, to_s: float, what: Sequence[str] = (), subject: str = "", limit: int = LIMIT
    ) -> tuple[EventRow, ...]:
        """Return the events, newest first; only of some kinds, or about one subject."""
        table = schema.events.c
        conditions = [*_within(table.at_s, from_s, to_s)]
        if what:
            conditions.append(table.what.in_(tuple(what)))
        if subject:
            conditions.append(table.subject == subject)
        return self._rows(EventRow, schema.events, conditions, (table.at_s.desc(), table.id.desc()), limit)

    def event_counts(self, from_s: float, to_s: float) -> tuple[EventCount, ...]:
        """Return the number of events of each kind, the most frequent first."""
        return self._ask(lambda connection: event_counts(connection, from_s, to_s))

    def actions(
        self, from_s: float, to_s: float, vm: str = "", node: str = "", outcomes: Sequence[str] = (), limit: int = LIMIT
    ) -> tuple[ActionEntry, ...]:
        """Actions first heard of in the span, newest first; only on one VM or node, or with some outcomes."""
        table = schema.actions.c
        conditions = [*_within(table.at_s, from_s, to_s)]
        conditions += [column == text for column, text in ((table.vm, vm), (table.node, node)) if text]
        if outcomes:
            conditions.append(table.outcome.in_(tuple(outcomes)))
        return self._rows(ActionEntry, schema.actions, conditions, (table.at_s.desc(), table.id), limit)

    def action_figures(self, from_s: float, to_s: float) -> tuple[ActionFigures, ...]:
        """Actions first heard of in the span by kind and outcome, with their durations."""
        return self._ask(lambda connection: action_figures(connection, from_s, to_s))

    # --- decisions ----------------------------------------------------------------------------------------------

    def decisions(self, from_s: float, to_s: float, limit: int = LIMIT) -> tuple[DecisionRow, ...]:
        """Return the decisions of the span, newest first, without their packed data."""
        table = schema.decisions.c
        names = [field.name for field in fields(DecisionRow)]
        wanted = select(*(table[name] for name in names)).where(*_within(table.at_s, from_s, to_s))
        wanted = wanted.order_by(table.at_s.desc(), table.number.desc()).limit(_bound(limit))
        rows = self._ask(lambda connection: connection.execute(wanted).mappings().all())
        return tuple(DecisionRow(**{**row, "reasons": _reasons(row["reasons"])}) for row in rows)

    def decision(self, number: int) -> DecisionRecord | None:
        """Return the whole of a decision; None when it is not (or no longer) kept."""
        return self._record("decision", number, DecisionRecord)

    def snapshots(self, from_s: float, to_s: float, limit: int = LIMIT) -> tuple[SnapshotRow, ...]:
        """Return the decisions with stored snapshots, newest first."""
        table = schema.snapshots.c
        wanted = select(table.number, table.at_s, table.term, func.length(table.body).label("size_bytes"))
        wanted = wanted.where(*_within(table.at_s, from_s, to_s)).order_by(table.number.desc()).limit(_bound(limit))
        return self._ask(lambda connection: tuple(SnapshotRow(**row) for row in connection.execute(wanted).mappings()))

    def snapshot(self, number: int) -> bytes | None:
        """Return the bytes from which a decision was computed; None when they are not kept."""
        wanted = select(schema.snapshots.c.body).where(schema.snapshots.c.number == number)
        body = self._ask(lambda connection: connection.execute(wanted).scalar())
        return None if body is None else bytes(body)

    # --- use and costs ------------------------------------------------------------------------------------------

    def use(self, from_s: float, to_s: float, step_s: float) -> tuple[ClusterUse, ...]:
        """Return the use of all nodes together in steps of `step_s` (above 0) from `from_s` on, oldest first; a step
        without reports is left out. Steps shorter than the stored ones (five minutes) return the stored ones."""
        return self._ask(lambda connection: _use(connection, from_s, to_s, _above_0(step_s)))

    def node_use(self, node: str, from_s: float, to_s: float, step_s: float) -> tuple[NodeStep, ...]:
        """Return the same of one node."""
        return self._ask(lambda connection: _node_use(connection, node, from_s, to_s, _above_0(step_s)))

    def costs(self, from_s: float, to_s: float) -> tuple[CostRecord, ...]:
        """Return the costs of the cycles that began in the span, oldest first."""
        table = schema.costs
        wanted = select(table).where(*_within(table.c.at_s, from_s, to_s)).order_by(table.c.at_s)
        return self._ask(lambda connection: tuple(CostRecord(**row) for row in connection.execute(wanted).mappings()))

    # --- workloads, nodes, environments -------------------------------------------------------------------------

    def jobs(self, from_s: float, to_s: float, limit: int = LIMIT) -> tuple[JobRow, ...]:
        """Return the jobs accepted or ended in the span, the last accepted first; without instances of web
        applications."""
        table = schema.jobs.c
        touched = or_(*(_both(_within(column, from_s, to_s)) for column in (table.accepted_s, table.finished_s)))
        order = (table.accepted_s.desc(), table.name)
        return self._rows(JobRow, schema.jobs, [touched, _IS_JOB], order, limit)

    def late_jobs(self, from_s: float, to_s: float, limit: int = LIMIT) -> tuple[JobRow, ...]:
        """Return the jobs completed in the span after their goals, the latest first."""
        table = schema.jobs.c
        late_s = table.finished_s - table.goal_s
        conditions = [*_within(table.finished_s, from_s, to_s), table.phase == "completed", late_s > 0, _IS_JOB]
        return self._rows(JobRow, schema.jobs, conditions, (late_s.desc(), table.name), limit)

    def job_figures(self, from_s: float, to_s: float) -> JobFigures:
        """Return the numbers of jobs that were accepted, ended, and met their goals."""
        return self._ask(lambda connection: job_figures(connection, from_s, to_s, _IS_JOB))

    def job(self, name: str) -> JobRecord | None:
        """Return the whole of a job; None when it is not (or no longer) kept."""
        return self._record("job", name, JobRecord)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return every registered node, by name."""
        return self._records("node")

    def web(self) -> tuple[WebRecord, ...]:
        """Return every web application, by name."""
        return self._records("web")

    def environments(self) -> tuple[EnvironmentRecord, ...]:
        """Return every environment that is kept, by name."""
        return self._records("environment")

    def assurances(self) -> tuple[AssuranceRecord, ...]:
        """Return the known demand of each environment and its measured service, by name."""
        return self._records("assurance")

    # --- who asked, and who was told ----------------------------------------------------------------------------

    def audit(
        self, from_s: float, to_s: float, account: str = "", kind: str = "", text: str = "", limit: int = LIMIT
    ) -> tuple[Audited, ...]:
        """Return the audited requests, newest first; only of one account or kind, or with a text in subject, why or
        detail."""
        table = schema.audit.c
        conditions = [*_within(table.at_s, from_s, to_s)]
        conditions += [column == value for column, value in ((table.account, account), (table.kind, kind)) if value]
        if text:
            places = (table.account, table.subject, table.why, table.detail)
            conditions.append(or_(*(column.icontains(text, autoescape=True) for column in places)))
        return self._rows(Audited, schema.audit, conditions, (table.at_s.desc(), table.id.desc()), limit)

    def notifications(
        self, state: str = "", from_s: float | None = None, to_s: float | None = None, limit: int = LIMIT
    ) -> tuple[NotificationRecord, ...]:
        """Return the notifications, newest first; only in one state, or of a span."""
        table = schema.notifications.c
        conditions: list[Condition] = [table.state == state] if state else []
        conditions += [table.at_s >= from_s] if from_s is not None else []
        conditions += [table.at_s < to_s] if to_s is not None else []
        return self._rows(NotificationRecord, schema.notifications, conditions, (table.at_s.desc(), table.id), limit)

    # --- asking -------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Connection], T]) -> T:
        with self._database.reading() as connection:
            return question(connection)

    def _rows(
        self, cls: type[T], table: Table, conditions: Iterable[Condition], order: Any, limit: int
    ) -> tuple[T, ...]:
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        wanted = select(*(table.c[name] for name in names)).where(*conditions).order_by(*order).limit(_bound(limit))
        return self._ask(lambda connection: tuple(cls(*row) for row in connection.execute(wanted).all()))

    def _record(self, kind: str, key: Any, cls: type[T]) -> T | None:
        table, column = KINDS[kind].table, KINDS[kind].key_column
        wanted: Select[Any] = select(table.c.body).where(column == key)
        body = self._ask(lambda connection: connection.execute(wanted).scalar())
        if body is None:
            return None
        record = from_row(kind, key, bytes(body))
        return record if isinstance(record, cls) else None

    def _records(self, kind: str) -> tuple[Any, ...]:
        table, column = KINDS[kind].table, KINDS[kind].key_column
        wanted = select(column, table.c.body).order_by(column)
        rows = self._ask(lambda connection: connection.execute(wanted).all())
        return tuple(from_row(kind, name, bytes(body)) for name, body in rows)


_IS_JOB: Condition = schema.jobs.c.name.not_like("%#%")  # instances of web applications have names such as shop#0


def _within(column: Column[float], from_s: float, to_s: float) -> tuple[Condition, Condition]:
    return (column >= from_s, column < to_s)


def _both(conditions: tuple[Condition, Condition]) -> Condition:
    return conditions[0] & conditions[1]


def _bound(limit: int) -> int:
    if limit < 0:
        raise InvalidValue("limit", limit, "0 or above")
    return limit


def _above_0(step_s: float) -> float:
    if not step_s > 0:
        raise InvalidValue("step_s", step_s, "above 0")
    return step_s


def _reasons(text: str | None) -> tuple[tuple[str, str, int], ...]:
    return tuple((what, code, count) for what, code, count in json.loads(text)) if text else ()


def _step(connection: Connection, column: Column[float], from_s: float, step_s: float) -> ColumnElement[Any]:
    """Return the step of a time at or after `from_s`."""
    quotient = (column - from_s) / step_s
    # not every SQLite knows `floor`, and a cast rounds in PostgreSQL
    return cast(quotient, BigInteger) if connection.dialect.name == "sqlite" else func.floor(quotient)


def _use(connection: Connection, from_s: float, to_s: float, step_s: float) -> tuple[ClusterUse, ...]:
    table = schema.cluster_use.c
    span_s, node_s = func.sum(table.span_s), func.sum(table.span_s * table.nodes)
    wanted = select(
        func.min(table.from_s),
        span_s,
        node_s / span_s,
        func.sum(table.cpu_frac * table.span_s * table.nodes) / node_s,
        func.max(table.cpu_frac_max),
        func.sum(table.iowait_frac * table.span_s * table.nodes) / node_s,
        func.sum(table.memory_used_mib * table.span_s) / span_s,
        *(func.sum(table[name]) for name in ("disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")),
    )
    step = _step(connection, table.from_s, from_s, step_s)
    wanted = wanted.where(*_within(table.from_s, from_s, to_s)).group_by(step).order_by(func.min(table.from_s))
    return tuple(ClusterUse(*row) for row in connection.execute(wanted).all())


def _node_use(connection: Connection, node: str, from_s: float, to_s: float, step_s: float) -> tuple[NodeStep, ...]:
    table = schema.samples.c
    readings = func.sum(table.readings)
    wanted = select(
        func.min(table.from_s),
        func.sum(table.span_s),
        func.sum(table.cpu_frac * table.readings) / readings,
        func.max(table.cpu_frac_max),
        func.sum(table.iowait_frac * table.readings) / readings,
        func.sum(table.memory_used_mib * table.readings) / readings,
        func.max(table.memory_used_mib_max),
    )
    step = _step(connection, table.from_s, from_s, step_s)
    wanted = wanted.where(table.node == node, *_within(table.from_s, from_s, to_s)).group_by(step)
    return tuple(NodeStep(*row) for row in connection.execute(wanted.order_by(func.min(table.from_s))).all())
