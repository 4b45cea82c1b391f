"""Insert or replace, in the words that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from daemons.store.rows import Row


def upsert(connection: Connection, table: Table) -> Any:
    """An insert to which the dialect's `on_conflict_do_update` can be added."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


def put(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows; one whose primary key is there replaces it."""
    if not rows:
        return
    statement = upsert(connection, table)
    keys = [column.name for column in table.primary_key.columns]
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)
