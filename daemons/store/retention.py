"""How long history is kept. Deletes in steps, so that nobody waits long for the lock on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, func, select

from daemons.store import schema
from daemons.store.history import USES, put_uses, uses_of
from daemons.store.samples import COARSE_S, merge, slot_s
from shared.errors import InvalidValue
from shared.model import not_negative

DAY_S = 86_400.0
STEP_ROWS = 5_000
STEP_SNAPSHOTS = 50  # of some hundreds of kB each
MIB = 1 << 20
TERMS_KEPT = 1_000

Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Retention:
    """Days (0 or above) that history is kept, and MiB of `snapshots` (0: any number), of which the oldest go first.

    Jobs count from when they were over, and stay while a VM or image of theirs is or may be anywhere; destroyed
    environments are kept as long as jobs; the newest decision always stays. Samples of five minutes become hourly ones
    after `fine_samples_days`.
    """

    events_days: float = 30.0
    actions_days: float = 30.0
    decisions_days: float = 90.0
    jobs_days: float = 30.0
    fine_samples_days: float = 7.0
    samples_days: float = 400.0
    costs_days: float = 400.0
    snapshots_days: float = 30.0
    snapshots_mib: float = 20_480.0
    audit_days: float = 400.0
    notifications_days: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            not_negative(name, getattr(self, name))
        if self.fine_samples_days > self.samples_days:
            expected = f"at most samples_days = {self.samples_days}"
            raise InvalidValue("fine_samples_days", self.fine_samples_days, expected)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows went. `samples_thinned` counts the rows of five minutes that became part of an hour."""

    events: int
    actions: int
    decisions: int
    jobs: int
    samples: int
    samples_thinned: int
    costs: int = 0
    environments: int = 0
    snapshots: int = 0
    audit: int = 0
    notifications: int = 0


def prune(transaction: Transaction, reading: Transaction, retention: Retention, now_s: float) -> Pruned:
    """Delete what is older or more than `retention` says at `now_s`; each step is a transaction of its own."""
    events, actions, decisions, jobs = schema.events, schema.actions, schema.decisions, schema.jobs

    def gone(table: Table, column: Column[float], days: float, *conditions: ColumnElement[bool]) -> int:
        return _delete(transaction, table, column < now_s - days * DAY_S, *conditions)

    newest = select(func.max(decisions.c.number)).scalar_subquery()
    _delete_terms(transaction)
    gone(schema.cluster_use, schema.cluster_use.c.from_s, retention.samples_days)
    return Pruned(
        gone(events, events.c.at_s, retention.events_days),
        gone(actions, actions.c.at_s, retention.actions_days),
        gone(decisions, decisions.c.at_s, retention.decisions_days, decisions.c.number < newest),
        gone(jobs, jobs.c.finished_s, retention.jobs_days, jobs.c.idle),
        gone(schema.samples, schema.samples.c.from_s, retention.samples_days),
        _thin(transaction, slot_s(now_s - retention.fine_samples_days * DAY_S, COARSE_S)),
        gone(schema.costs, schema.costs.c.at_s, retention.costs_days),
        gone(schema.environments, schema.environments.c.ended_s, retention.jobs_days),
        gone(schema.snapshots, schema.snapshots.c.at_s, retention.snapshots_days)
        + bound_snapshots(transaction, reading, retention),
        gone(schema.audit, schema.audit.c.at_s, retention.audit_days),
        gone(schema.notifications, schema.notifications.c.at_s, retention.notifications_days),
    )


def bound_snapshots(transaction: Transaction, reading: Transaction, retention: Retention) -> int:
    """Delete the oldest snapshots that are more than is to be kept, never the newest one; how many."""
    table = schema.snapshots
    # both databases know the length of a body without reading it; nobody who writes waits meanwhile
    sizes = select(table.c.number, func.length(table.c.body)).order_by(table.c.number.desc())
    with reading() as connection:
        rows = connection.execute(sizes) if retention.snapshots_mib > 0.0 else ()
        last = _first_beyond(rows, retention.snapshots_mib * MIB)
    return 0 if last is None else _delete(transaction, table, table.c.number <= last)


def _first_beyond(rows: Iterable[Any], most_bytes: float) -> int | None:
    """The number of the first row, but the very first, with which the sizes of all are more; None: they are not."""
    total_bytes = 0
    for place, (number, size_bytes) in enumerate(rows):
        total_bytes += size_bytes
        if place and total_bytes > most_bytes:
            return int(number)
    return None


def _delete(transaction: Transaction, table: Table, *conditions: ColumnElement[bool]) -> int:
    """Delete the rows that meet all conditions, some thousands at a time."""
    step_rows = STEP_SNAPSHOTS if table is schema.snapshots else STEP_ROWS
    key = table.primary_key.columns[0]  # samples: a node at a time
    deleted = 0
    while True:
        with transaction() as connection:
            chosen = select(key).where(*conditions).order_by(key).limit(step_rows).scalar_subquery()
            rows = connection.execute(delete(table).where(key.in_(chosen), *conditions)).rowcount
        deleted += rows
        if rows < step_rows:
            return deleted


def _delete_terms(transaction: Transaction) -> None:
    with transaction() as connection:
        last = connection.execute(select(func.max(schema.terms.c.term))).scalar() or 0
        kept = select(schema.terms.c.term).order_by(schema.terms.c.term.desc()).limit(TERMS_KEPT).scalar_subquery()
        connection.execute(delete(schema.terms).where(schema.terms.c.term < last, schema.terms.c.term.not_in(kept)))


def _thin(transaction: Transaction, before_s: float) -> int:
    """Put the rows of five minutes of whole hours before `before_s` together, an hour at a time."""
    table = schema.samples
    fine = select(func.min(table.c.from_s)).where(table.c.span_s < COARSE_S, table.c.from_s < before_s)
    thinned = 0
    while True:
        with transaction() as connection:
            first_s = connection.execute(fine).scalar()
            if first_s is None:
                return thinned
            thinned += _thin_hour(connection, slot_s(first_s, COARSE_S))


def _thin_hour(connection: Connection, from_s: float) -> int:
    table = schema.samples
    hour = (table.c.from_s >= from_s, table.c.from_s < from_s + COARSE_S)
    uses = uses_of(connection, USES.where(*hour).order_by(table.c.node))
    merged = [merge(parts, from_s, COARSE_S) for _, parts in groupby(uses, lambda use: use.node)]
    connection.execute(delete(table).where(*hour))
    put_uses(connection, merged)
    return sum(use.span_s < COARSE_S for use in uses)
