"""Insert or replace, with the syntax that SQLite and PostgreSQL share.

Each statement is made once. SQLAlchemy copies all columns of a table for one, into objects with circular references.
Statements made for every write would accumulate until the garbage collector runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, func
from sqlalchemy.dialects import postgresql, sqlite

from daemons.store.rows import Row


def put(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows, all with the same columns; one whose primary key is there replaces it."""
    if rows:
        connection.execute(_replacing(connection.dialect.name, table, tuple(rows[0])), rows)


def fill_in(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows; of one whose primary key is there, only what is not known yet is taken."""
    if rows:
        connection.execute(_filling_in(connection.dialect.name, table), rows)


@cache
def _replacing(dialect: str, table: Table, columns: tuple[str, ...]) -> Any:
    statement = _insert(dialect, table)
    keys = _keys(table)
    others = {name: statement.excluded[name] for name in columns if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=others)


@cache
def _filling_in(dialect: str, table: Table) -> Any:
    statement = _insert(dialect, table)
    known = {
        column.name: func.coalesce(column, statement.excluded[column.name])
        for column in table.columns
        if column.nullable
    }
    return statement.on_conflict_do_update(index_elements=_keys(table), set_=known)


def _insert(dialect: str, table: Table) -> Any:
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def _keys(table: Table) -> list[str]:
    return [column.name for column in table.primary_key.columns]
