"""Retention of history. Deletes in short steps, so a writer waits for one of them at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, delete, func, not_, or_, select

from daemons.store import schema
from daemons.store.history import USES, put_uses, uses_of
from daemons.store.samples import COARSE_S, merge, slot_s
from shared.base.errors import InvalidValue
from shared.values.scalars import not_negative

DAY_S = 86_400.0
STEP_S = 0.05  # how long a step is to take, with as many rows as that allows:
STEP_ROWS_FIRST = 50
STEP_ROWS_MIN = 5
STEP_ROWS = 5_000
STEP_SIZES = 500  # snapshots whose sizes are read at a time
STEP_NODES = 50  # whose samples of an hour are put together at a time
MIB = 1 << 20
TERMS_KEPT = 1_000

Transaction = Callable[[], AbstractContextManager[Connection]]
Steps = Iterator[tuple[str, int]]  # after each step: what went (a field of `Pruned`, or ""), and how many rows


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

    def jobs_before_s(self, now_s: float) -> float:
        """Return the time before which a job must have ended for it to be deleted at `now_s`."""
        return now_s - self.jobs_days * DAY_S

    def __post_init__(self) -> None:
        for name in self.__slots__:
            not_negative(name, getattr(self, name))
        if self.fine_samples_days > self.samples_days:
            expected = f"at most samples_days = {self.samples_days}"
            raise InvalidValue("fine_samples_days", self.fine_samples_days, expected)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows went. `samples_thinned` counts the rows of five minutes that became part of an hour."""

    events: int = 0
    actions: int = 0
    decisions: int = 0
    jobs: int = 0
    samples: int = 0
    samples_thinned: int = 0
    costs: int = 0
    environments: int = 0
    snapshots: int = 0
    audit: int = 0
    notifications: int = 0


class Pruner:
    """Deletes what is older or more than `keep` says at `now_s`. `monotonic_s` measures how long a step takes.

    Each step is a transaction of its own, so that one half of the work is no harm."""

    def __init__(
        self,
        writing: Transaction,
        reading: Transaction,
        keep: Retention,
        now_s: float,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._writing, self._reading, self._keep, self._now_s = writing, reading, keep, now_s
        self._monotonic_s = monotonic_s

    def steps(self) -> Steps:
        """Do one step at each turn."""
        keep, events, actions, decisions, jobs = (
            self._keep,
            schema.events,
            schema.actions,
            schema.decisions,
            schema.jobs,
        )
        newest = select(func.max(decisions.c.number)).scalar_subquery()
        with self._writing() as connection:
            _delete_terms(connection)
        yield "", 0
        yield from self._old("", schema.cluster_use.c.from_s, keep.samples_days)
        yield from self._old("events", events.c.at_s, keep.events_days)
        yield from self._old("actions", actions.c.at_s, keep.actions_days)
        yield from self._old("decisions", decisions.c.at_s, keep.decisions_days, decisions.c.number < newest)
        before_s = keep.jobs_before_s(self._now_s)
        yield from self._delete("jobs", jobs.c.finished_s, jobs.c.finished_s < before_s, jobs.c.idle)
        yield from self._old("samples", schema.samples.c.from_s, keep.samples_days)
        yield from self._thin(slot_s(self._now_s - keep.fine_samples_days * DAY_S, COARSE_S))
        yield from self._old("costs", schema.costs.c.at_s, keep.costs_days)
        yield from self._old("environments", schema.environments.c.ended_s, keep.jobs_days)
        yield from self._old("snapshots", schema.snapshots.c.at_s, keep.snapshots_days)
        yield from self.bound_snapshots()
        yield from self._old("audit", schema.audit.c.at_s, keep.audit_days)
        yield from self._old("notifications", schema.notifications.c.at_s, keep.notifications_days)

    def bound_snapshots(self) -> Steps:
        """Delete the oldest snapshots beyond the limit, a step at each turn."""
        if self._keep.snapshots_mib <= 0.0:
            return
        number, body = schema.snapshots.c.number, schema.snapshots.c.body
        most_bytes, total_bytes, least = self._keep.snapshots_mib * MIB, 0, None
        while True:
            # both databases know the length of a body without reading it
            sizes = select(number, func.length(body)).order_by(number.desc()).limit(STEP_SIZES)
            with self._reading() as connection:
                rows = connection.execute(sizes if least is None else sizes.where(number < least)).all()
            yield "", 0
            for found, size_bytes in rows:
                total_bytes += size_bytes
                if least is not None and total_bytes > most_bytes:
                    yield from self._delete("snapshots", number, number <= found)
                    return
                least = found
            if len(rows) < STEP_SIZES:
                return

    def _old(self, name: str, column: Column[Any], days: float, *conditions: ColumnElement[bool]) -> Steps:
        return self._delete(name, column, column < self._now_s - days * DAY_S, *conditions)

    def _delete(self, name: str, column: Column[Any], *conditions: ColumnElement[bool]) -> Steps:
        """Delete the rows that meet all conditions in the order of an indexed column, as many at a time as can be in
        `STEP_S`; those of one value go together."""
        table, step_rows = column.table, STEP_ROWS_FIRST
        last = select(column).where(*conditions).order_by(column)
        while True:
            begun_s = self._monotonic_s()
            with self._writing() as connection:
                bound = connection.execute(last.limit(1).offset(step_rows - 1)).scalar()
                among = () if bound is None else (column <= bound,)
                rows = connection.execute(delete(table).where(*conditions, *among)).rowcount
            step_rows = _next_rows(step_rows, self._monotonic_s() - begun_s)
            yield name, rows
            if bound is None:
                return

    def _thin(self, before_s: float) -> Steps:
        """Put the rows of five minutes of whole hours before `before_s` together, an hour of some nodes at a time."""
        with self._reading() as connection:
            at_s = connection.execute(select(func.min(schema.samples.c.from_s))).scalar()
        while at_s is not None and at_s < before_s:
            with self._writing() as connection:
                at_s, thinned = _thin_some(connection, slot_s(at_s, COARSE_S), before_s)
            yield "samples_thinned", thinned


def keeps_job(before_s: float) -> ColumnElement[bool]:
    """Return the condition for jobs that stay when those that ended before then are deleted."""
    return or_(not_(schema.jobs.c.idle), schema.jobs.c.finished_s >= before_s)


def counted(steps: Steps) -> Pruned:
    """Run the steps and return the number of deleted rows."""
    counts: Counter[str] = Counter()
    for name, rows in steps:
        counts[name] += rows
    counts.pop("", None)
    return Pruned(**counts)


def _next_rows(rows: int, took_s: float) -> int:
    """Return the number of rows for the next step, from the size and duration of the last."""
    if took_s > STEP_S:
        return max(STEP_ROWS_MIN, rows // 2)
    return min(STEP_ROWS, 2 * rows) if took_s < STEP_S / 2 else rows


def _delete_terms(connection: Connection) -> None:
    last = connection.execute(select(func.max(schema.terms.c.term))).scalar() or 0
    kept = select(schema.terms.c.term).order_by(schema.terms.c.term.desc()).limit(TERMS_KEPT).scalar_subquery()
    connection.execute(delete(schema.terms).where(schema.terms.c.term < last, schema.terms.c.term.not_in(kept)))


def _thin_some(connection: Connection, at_s: float, before_s: float) -> tuple[float | None, int]:
    """Thin the first hour from `at_s` on that has rows of five minutes, of `STEP_NODES` nodes, looking no further than
    a day; returns from when on to look next (None: nothing is left), and how many rows became part of an hour."""
    table, until_s = schema.samples.c, min(at_s + DAY_S, before_s)
    fine = (table.span_s < COARSE_S, table.from_s >= at_s, table.from_s < until_s)
    first_s = connection.execute(select(func.min(table.from_s)).where(*fine)).scalar()
    if first_s is None:
        return connection.execute(select(func.min(table.from_s)).where(table.from_s >= until_s)).scalar(), 0
    hour_s = slot_s(first_s, COARSE_S)
    hour = (table.from_s >= hour_s, table.from_s < hour_s + COARSE_S)
    some = select(table.node).where(*hour, table.span_s < COARSE_S).distinct().order_by(table.node).limit(STEP_NODES)
    nodes = connection.execute(some).scalars().all()
    thinned = _thin_hour(connection, hour_s, nodes)
    return hour_s + (COARSE_S if len(nodes) < STEP_NODES else 0.0), thinned


def _thin_hour(connection: Connection, from_s: float, nodes: Sequence[str]) -> int:
    table = schema.samples
    hour = (table.c.from_s >= from_s, table.c.from_s < from_s + COARSE_S, table.c.node.in_(nodes))
    uses = uses_of(connection, USES.where(*hour).order_by(table.c.node))
    merged = [merge(parts, from_s, COARSE_S) for _, parts in groupby(uses, lambda use: use.node)]
    connection.execute(delete(table).where(*hour))
    put_uses(connection, merged)
    return sum(use.span_s < COARSE_S for use in uses)
