"""The tables of the portal's own store: accounts, sessions, and a log of both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    false,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.schema import CreateColumn

from daemons.store.engine import in_words, make_engine, make_file, parse_url
from shared.base.errors import InvalidInput, Problem

VERSION = 2

metadata = MetaData()

schema = Table("portal_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

# `link`: the hash of a one-time link with which a password is set, until `link_until_s`. `address`: where it was asked
# for. `factor`: the secret of the second factor, `factor_new` one that was shown and not confirmed, both in base32;
# `factor_step`: the step of the last code that was used.
accounts = Table(
    "portal_accounts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("password", Text, nullable=False),
    Column("made_s", Double, nullable=False),
    Column("contact", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("link", Text, nullable=False),
    Column("link_until_s", Double, nullable=False),
    Column("address", Text, nullable=False, server_default=""),
    Column("factor", Text, nullable=False, server_default=""),
    Column("factor_new", Text, nullable=False, server_default=""),
    Column("factor_step", Integer, nullable=False, server_default="0"),
)

# `id`: the hash of what the cookie holds. `strong`: begun with a second factor, or by a proxy that answers for it.
sessions = Table(
    "portal_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("made_s", Double, nullable=False),
    Column("used_s", Double, nullable=False),
    Column("strong", Boolean, nullable=False, server_default=false()),
    Index("portal_sessions_account", "account"),
)

SINCE_2 = (*(accounts.c[name] for name in ("address", "factor", "factor_new", "factor_step")), sessions.c.strong)

# Logins, and what was done to accounts.
log = Table(
    "portal_log",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("account", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("done", Boolean, nullable=False),
    Column("detail", Text, nullable=False),
    Index("portal_log_at_s", "at_s"),
    Index("portal_log_account", "account", "address", "at_s"),
)


class Base:
    """The portal's store: a SQLite file (made when it is not there) or a PostgreSQL database of its own.

    Every method may raise `StoreUnavailable`, and is for worker threads: it blocks.
    """

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self._engine = make_engine(self.url)

    def open(self) -> None:
        """Make file and tables where they are missing. Raises `InvalidInput` for those of a newer Trimtab."""
        if self.url.drivername == "sqlite":
            _make_file(Path(self.url.database or ""))
        with self.writing() as connection:
            if not inspect(connection).has_table(schema.name):
                metadata.create_all(connection)
                connection.execute(insert(schema).values(version=VERSION))
            found = connection.execute(select(schema.c.version)).scalar()
            if found == 1:
                found = _to_2(connection)
        if found != VERSION:
            where = self.url.render_as_string(hide_password=True)
            what = f"its tables have version {found}, this program knows {VERSION}"
            raise InvalidInput(Problem(f"store {where}", what, "a Trimtab at least as new as the store"))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes."""
        with in_words(self.url), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads."""
        with in_words(self.url), self._engine.connect().execution_options(reading=True) as connection:
            yield connection

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


def _to_2(connection: Connection) -> int:
    """Add what version 2 has more."""
    for column in SINCE_2:
        made = CreateColumn(column).compile(connection)
        connection.execute(text(f"ALTER TABLE {column.table.name} ADD COLUMN {made}"))
    connection.execute(update(schema).values(version=2))
    return 2


def _make_file(path: Path) -> None:
    """Create the file of a store; if root, who creates accounts, runs this, the file gets the owner of the folder."""
    missing = not path.exists()
    make_file(path)
    if missing and os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid)
