"""The store in SQLite or PostgreSQL: the controller's records under its term, and the history beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, bindparam, cast, delete, func, select, true

from daemons.store import backup as backups
from daemons.store import history, notices, retention, schema
from daemons.store.backup import Restored
from daemons.store.database import Database
from daemons.store.history import ActionEntry, Batch
from daemons.store.rows import KINDS, from_row, sort_out
from daemons.store.samples import NodeUse
from daemons.store.upsert import put
from daemons.values.records.cluster import CostRecord, DecisionRecord
from shared.base.clock import SystemClock
from shared.base.errors import StaleTerm
from shared.ports.core import Clock
from shared.ports.effects import LeadTaken
from shared.protocol.messages import Happened

# The newest decisions that a new leader is given: so many, or fewer when they hold more changes and refusals than this.
IMAGE_DECISIONS_MAX = 50
IMAGE_ITEMS_MAX = 10_000
GAINS_PER_ITEM = 4  # a row of what was predicted is so much smaller than a change
# What cycles cost is given for so long, short cycles put together.
IMAGE_COSTS_S = 100 * 86_400.0
COST_SPAN_S = 900.0


class SqlStore(Database):
    """Implements `shared.ports.controller.Store` on a SQLite file or a PostgreSQL database.

    `url` is `sqlite:////absolute/path` or `postgresql://user:password@host/database`: `InvalidInput` for anything else.
    Every method raises `StoreUnavailable`, saying what to do, when the store does not answer, is locked or its disk is
    full (nothing is stored then, unless the connection broke while the database was answering), and `InvalidInput` when
    the tables are not of this program's version. `clock` stamps leads and measures the age of history. What `keep`
    does not keep is not given to a new leader either (None: it is given every job).
    """

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        read_only: bool = False,
        keep: retention.Retention | None = None,
    ) -> None:
        super().__init__(url, read_only)
        self._clock = clock or SystemClock()
        self._keep = keep

    # --- the port -----------------------------------------------------------------------------------------------

    def take_lead(self, controller: str) -> LeadTaken:
        """Raise the term by one for this controller and read what a leader needs, in one transaction.

        The image holds control, every node, environment, web application and window, every job but those that the next
        prune deletes, the newest decisions, at least one, and what the last `IMAGE_COSTS_S` cost, cycles within one
        span of `COST_SPAN_S` as one. An empty store is given its tables first.
        """
        self.make_file()
        with self.writing(check=False) as connection:
            self.make_tables(connection)
            term = self.locked_lead(connection)[0] + 1
            now_s = self._clock.now_s()
            self.set_lead(connection, term, controller, now_s)
            jobs = None if self._keep is None else retention.keeps_job(self._keep.jobs_before_s(now_s))
            image = _image(connection, jobs) + _costs(connection) + notices.standing(connection)
        return LeadTaken(term, image)

    def write(self, term: int, records: tuple[Any, ...]) -> None:
        """Store all records or none. Raises `StaleTerm` when the term was raised since."""
        changes = sort_out(records)
        with self.writing() as connection:
            found, controller = self.locked_lead(connection)
            if term != found:
                raise StaleTerm(f"term {term}: the store is at {found}, held by {controller!r}")
            for kind, change in changes.items():
                put(connection, KINDS[kind].table, change.rows)
                if change.gone:
                    statement = delete(KINDS[kind].table).where(KINDS[kind].key_column == bindparam("gone"))
                    connection.execute(statement, [{"gone": key} for key in change.gone])

    def decision(self, number: int) -> DecisionRecord | None:
        """Return a decision, None when it is not (or no longer) kept."""
        wanted = select(schema.decisions.c.body).where(schema.decisions.c.number == number)
        with self.reading() as connection:
            body = connection.execute(wanted).scalar()
        return None if body is None else from_row("decision", number, bytes(body))

    # --- history ------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Store what the shell has gathered, all or nothing. Not conditional on the term: history harms nobody."""
        if batch:
            with self.writing() as connection:
                history.append(connection, batch)

    def events(self, limit: int, subject: str = "") -> tuple[Happened, ...]:
        """Return the newest events, newest first; with a subject only those about it."""
        with self.reading() as connection:
            return history.events(connection, limit, subject)

    def actions(self, limit: int, vm: str = "") -> tuple[ActionEntry, ...]:
        """Return the newest actions, newest first; with a VM only those on it."""
        with self.reading() as connection:
            return history.actions(connection, limit, vm)

    def samples(self, node: str, from_s: float, to_s: float) -> tuple[NodeUse, ...]:
        """Return a node's use from `from_s` (inclusive) to `to_s` (exclusive), oldest first."""
        with self.reading() as connection:
            return history.samples(connection, node, from_s, to_s)

    def prune(self, keep: retention.Retention) -> retention.Pruned:
        """Delete history that is older or more than `keep` allows."""
        return retention.counted(self.prune_steps(keep, self._clock.now_s()))

    def prune_steps(self, keep: retention.Retention, now_s: float) -> retention.Steps:
        """Delete the same in steps, each of which keeps the store busy for about `retention.STEP_S`."""
        pruner = retention.Pruner(self.writing, self.reading, keep, now_s, SystemClock().monotonic_s)
        return pruner.steps()

    def bound_steps(self, keep: retention.Retention) -> retention.Steps:
        """Delete the oldest snapshots beyond the limit, a step at each turn."""
        pruner = retention.Pruner(self.writing, self.reading, keep, 0.0, SystemClock().monotonic_s)
        return pruner.bound_snapshots()

    # --- versions and backup ------------------------------------------------------------------------------------

    def upgrade(self) -> tuple[int, int]:
        """Create the tables, or upgrade them to this program's version; return the versions before (0: none) and after.

        If that changes tables, the current leader loses its leadership.
        """
        return self.upgrade_tables(raise_term_at_s=self._clock.now_s()), schema.SCHEMA

    def backup_before_upgrade(self, folder: str | Path) -> Path | None:
        """Create a backup in `folder` of a store that will be upgraded; return None if there is nothing to upgrade."""
        return backups.backup_before_upgrade(self, Path(folder))

    def backup(self, path: str | Path) -> dict[str, int]:
        """Write a backup while the store is in use; returns rows by table. See `daemons.store.backup`."""
        return backups.backup(self, Path(path))

    def restore(self, path: str | Path, force: bool = False) -> Restored:
        """Put a backup in the place of everything in the store, which must be empty unless `force`."""
        return backups.restore(self, Path(path), force, self._clock.now_s())


def _image(connection: Connection, of_jobs: ColumnElement[bool] | None) -> tuple[Any, ...]:
    """Return the records for a new leader. They are control, nodes, environments, web applications, windows, durations,
    resource profiles, baseline throughputs, and learnt data of jobs and operations. Then follow known demand, jobs in
    the order of submission (the selected ones, or all), and decisions oldest first. Rows are unpacked one by one: tens
    of thousands at once would fragment memory."""
    control, nodes, jobs, decisions, web = schema.control, schema.nodes, schema.jobs, schema.decisions, schema.web
    environments = schema.environments
    found = {
        "control": select(control.c.name, control.c.body),
        "node": select(nodes.c.name, nodes.c.body).order_by(nodes.c.name),
        "environment": select(environments.c.name, environments.c.body).order_by(environments.c.name),
        "web": select(web.c.name, web.c.body).order_by(web.c.name),
        "window": select(schema.windows).order_by(schema.windows.c.name),
        "duration": select(schema.durations).order_by(schema.durations.c.name),
        "loading": select(schema.loadings).order_by(schema.loadings.c.name),
        "pace": select(schema.paces).order_by(schema.paces.c.name),
        "work-ratio": select(schema.work_ratios).order_by(schema.work_ratios.c.name),
        "operation": select(schema.operation_times).order_by(schema.operation_times.c.name),
        "assurance": select(schema.assurances).order_by(schema.assurances.c.name),
        "job": select(jobs.c.name, jobs.c.body)
        .where(true() if of_jobs is None else of_jobs)
        .order_by(jobs.c.submission, jobs.c.name),
        "decision": select(decisions.c.number, decisions.c.body)
        .where(decisions.c.number >= _first_decision(connection))
        .order_by(decisions.c.number),
    }
    return tuple(
        from_row(kind, name, bytes(body))
        for kind, statement in found.items()
        for name, body in connection.execute(statement)
    )


def _costs(connection: Connection) -> tuple[CostRecord, ...]:
    """Return the costs of the last stored days, oldest first."""
    costs = schema.costs.c
    newest_s = connection.execute(select(func.max(costs.at_s))).scalar()
    if newest_s is None:
        return ()
    sums = [func.sum(column).label(name) for name, column in costs.items() if name not in ("at_s", "currency")]
    # not every SQLite knows `floor`, and a cast rounds in PostgreSQL
    quotient = costs.at_s / COST_SPAN_S
    span = cast(quotient, BigInteger) if connection.dialect.name == "sqlite" else func.floor(quotient)
    names = ["at_s", "currency", *(column.name for column in sums)]
    wanted = select(func.min(costs.at_s), costs.currency, *sums).where(costs.at_s > newest_s - IMAGE_COSTS_S)
    rows = connection.execute(wanted.group_by(span, costs.currency).order_by(func.min(costs.at_s)))
    return tuple(CostRecord(**dict(zip(names, row, strict=True))) for row in rows)


def _first_decision(connection: Connection) -> int:
    """Return the number of the oldest decision in the image."""
    decisions = schema.decisions
    sizes = select(decisions.c.number, decisions.c.changes + decisions.c.refusals, decisions.c.gains)
    first, items = 0, 0
    for number, size, gains in connection.execute(sizes.order_by(decisions.c.number.desc()).limit(IMAGE_DECISIONS_MAX)):
        items += size + gains // GAINS_PER_ITEM
        if first and items > IMAGE_ITEMS_MAX:
            break
        first = number
    return first
