"""Which version of the tables a store has, and bringing it to this program's."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, text

import daemons.store.migrations
from daemons.store.schema import SCHEMA, VERSION_TABLE
from shared.base.errors import InvalidInput, Problem

EMPTY = 0
_UPGRADE_LOCK = 0x7472696D  # of PostgreSQL's advisory locks: one upgrade at a time


def schema_of(connection: Connection, where: str) -> int:
    """Return the version of a store's tables, `EMPTY` when it has none. Raises `InvalidInput` if the database is not
    Trimtab's."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE not in tables:
        if tables:
            what = f"it holds tables that are not Trimtab's ({', '.join(sorted(tables)[:3])})"
            raise InvalidInput(Problem(where, what, "a database of Trimtab's own"))
        return EMPTY
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    try:
        return int(found)  # type: ignore[arg-type]
    except (TypeError, ValueError) as problem:
        raise InvalidInput(Problem(where, f"version {found!r} of its tables is not known")) from problem


def check(found: int, where: str) -> None:
    """Raises `InvalidInput` unless the tables are of this program's version (an empty store is an older one)."""
    if found > SCHEMA:
        what = f"a newer Trimtab made it: its tables have version {found}, this program knows {SCHEMA}"
        raise InvalidInput(Problem(where, what, "a Trimtab at least as new as the store"))
    if found < SCHEMA:
        what = "it is empty" if found == EMPTY else f"its tables have version {found}, this program needs {SCHEMA}"
        raise InvalidInput(Problem(where, what, "run `trimtab store upgrade`, after `trimtab store backup`"))


def check_known(found: int, where: str) -> None:
    """Raises `InvalidInput` for a newer store and for an empty one; an older one is known."""
    if found == EMPTY or found > SCHEMA:
        check(found, where)


def upgrade(connection: Connection, where: str, to: int = SCHEMA) -> int:
    """Upgrade the tables to version `to`, by default this program's, within the current transaction; return the version
    found.

    Raises `InvalidInput` for a newer store and for a database that is not Trimtab's.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
    found = schema_of(connection, where)
    if found < to:
        config = Config()
        config.set_main_option("script_location", str(Path(*daemons.store.migrations.__path__)).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, str(to))
    else:
        check(found, where)
    return found
