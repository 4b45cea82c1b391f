"""One database: its transactions, its version, and the row that names the leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, insert, select, update

from daemons.store import schema, versions
from daemons.store.engine import in_words, make_engine, make_file, parse_url
from shared.base.errors import InvalidInput, Problem

UPGRADER = "upgrade"


class Database:
    """A SQLite file or a PostgreSQL database. Nothing is connected before the first call; threads may share it.

    `read_only`: no transaction can write, and a SQLite file is left exactly as it is.
    """

    def __init__(self, url: str, read_only: bool = False) -> None:
        self._url = parse_url(url)
        self._engine = make_engine(self._url, read_only)
        self._checked = False

    def close(self) -> None:
        """End every connection; the next call makes new ones."""
        self._engine.dispose()

    @property
    def where(self) -> str:
        """The store's URL without its password, for messages."""
        return f"store {self._url.render_as_string(hide_password=True)}"

    @property
    def path(self) -> Path | None:
        """The file, None for PostgreSQL."""
        return Path(self._url.database or "") if self._url.drivername == "sqlite" else None

    # --- tables -------------------------------------------------------------------------------------------------

    def upgrade_tables(self, to: int = schema.SCHEMA, raise_term_at_s: float | None = None) -> int:
        """Make the tables, or bring them to a version; returns the version before (0: none).

        With `raise_term_at_s`, the time, changing tables also raises the term: a controller of an older program that
        leads can write nothing more.
        """
        self.make_file()
        with self.writing(check=False) as connection:
            found = versions.upgrade(connection, self.where, to)
            if versions.EMPTY < found < to and raise_term_at_s is not None:
                self.set_lead(connection, self.locked_lead(connection)[0] + 1, UPGRADER, raise_term_at_s)
        return found

    def schema(self) -> int:
        """Return the version of the tables, 0 when there are none."""
        with self.reading(check=False) as connection:
            return versions.schema_of(connection, self.where)

    def make_file(self) -> None:
        """Make an empty file, readable by its owner alone, where there is none."""
        if self.path is not None:
            make_file(self.path)

    def make_tables(self, connection: Connection) -> None:
        """Give an empty store its tables. Raises `InvalidInput` unless they are then of this program's version."""
        found = versions.schema_of(connection, self.where)
        if found == versions.EMPTY:
            versions.upgrade(connection, self.where)
        else:
            versions.check(found, self.where)

    def drop_newer_tables(self, connection: Connection) -> int:
        """Drop the tables that a newer program made, within the current transaction; return their term, 0 if the tables
        are not newer."""
        if versions.schema_of(connection, self.where) <= schema.SCHEMA:
            return 0
        term, _ = self.locked_lead(connection)
        found = MetaData()
        found.reflect(connection)
        found.drop_all(connection)
        return term

    # --- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, check: bool = True) -> Iterator[Connection]:
        """Open a transaction that may write; it is rolled back when anything is raised."""
        with in_words(self._url), self._engine.begin() as connection:
            if check:
                self._check_schema(connection)
            yield connection

    @contextmanager
    def reading(self, check: bool = True) -> Iterator[Connection]:
        """Open a transaction that sees the store as it was at one moment."""
        options: dict[str, Any] = {"reading": True}
        if self.path is None:
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with in_words(self._url), self._engine.connect() as fresh:
            connection = fresh.execution_options(**options)
            with connection.begin():
                if self.path is None:
                    # holds nobody up, however long a backup takes over what it has read
                    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
                if check:
                    self._check_schema(connection)
                yield connection

    def _check_schema(self, connection: Connection) -> None:
        if not self._checked:
            versions.check(versions.schema_of(connection, self.where), self.where)
            self._checked = True

    # --- who leads ----------------------------------------------------------------------------------------------

    def locked_lead(self, connection: Connection) -> tuple[int, str]:
        """Return the term and its holder, locked until the end of this transaction."""
        row = connection.execute(select(schema.lead.c.term, schema.lead.c.controller).with_for_update()).one_or_none()
        if row is None:
            raise InvalidInput(Problem(self.where, "its table `lead` is empty", "a store that is whole"))
        return row.term, row.controller

    def set_lead(self, connection: Connection, term: int, controller: str, now_s: float) -> None:
        """Record the leader; `locked_lead` has been called in this transaction."""
        values = {"term": term, "controller": controller, "taken_s": now_s}
        connection.execute(update(schema.lead).values(values))
        connection.execute(insert(schema.terms).values(values))
