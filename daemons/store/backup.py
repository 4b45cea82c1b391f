"""Backup and restore. A backup is one SQLite file with the tables of the store, whichever database it was made of, so
that a backup of one can be restored into the other, and be looked into with any SQLite client.

SQLite notices damage to its structure alone, not to what a row holds. So a backup carries the CRC-32 of its bytes, in
the field of its header that SQLite leaves to applications.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sqlalchemy import URL, Connection, MetaData, Table, delete, func, insert, select, update

from daemons.store import schema, versions
from daemons.store.database import Database
from daemons.store.engine import absolute, in_words, make_file, parse_url
from daemons.store.rows import from_row, to_row
from daemons.store.upsert import put
from daemons.values.records.cluster import ControlRecord
from shared.base.errors import Infeasible, InvalidInput, Problem, StoreUnavailable
from shared.base.read_file import opened

ROWS_AT_ONCE = 2_000
# Terms after a restore begin so far above the backup's that no controller since the backup can have reached them:
# agents refuse older terms than they have seen. Twice that is beyond any term that agents take from a forger, and once
# no further than they take (TERMS_SKIPPED_MAX in agents/core/agent.py).
TERM_STRIDE = 1 << 31
RESTORER = "restore"
SQLITE_MAGIC = b"SQLite format 3\x00"
CHECKSUM_AT, CHECKSUM_BYTES = 68, 4  # the application id (sqlite.org/fileformat.html, section 1.3); 0: there is none
BYTES_AT_ONCE = 1 << 20

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: rows by table, and the term from which the next leader goes on."""

    rows: Counts
    term: int


def backup(store: Database, path: Path) -> Counts:
    """Write a backup as it is at one moment, while the store is in use; returns rows by table.

    An older program's store is backed up with the tables that it has. Raises `InvalidInput` when `path` exists and for
    a newer store, `StoreUnavailable` when it cannot be written.
    """
    try:
        os.fspath(path).encode()  # what SQLite opens is a URL in UTF-8
        part = path.with_name(path.name + ".part")
        part.exists()  # the longer name of the two
        taken = path.exists()
    except (OSError, ValueError) as problem:
        what = getattr(problem, "strerror", None) or str(problem)
        raise InvalidInput(Problem(str(path), what, "a new file")) from problem
    if taken:
        raise InvalidInput(Problem(str(path), "is there already", "a new file"))
    with _in_words(part):
        part.unlink(missing_ok=True)
    make_file(part)
    try:
        with store.reading(check=False) as connection:
            found = versions.schema_of(connection, store.where)
            versions.check_known(found, store.where)
            if store.path is not None:
                _copy_file(connection, part)
            else:
                _copy_rows(connection, part, found)
        with _in_words(part):
            counts = _finish(part)
            part.replace(path)
            _sync(path.parent)
    finally:
        for name in (part.name, f"{part.name}-wal", f"{part.name}-shm", f"{part.name}-journal"):
            part.with_name(name).unlink(missing_ok=True)
    return counts


def backup_before_upgrade(store: Database, folder: Path) -> Path | None:
    """Write a backup named after the version of the tables into `folder`, and return where it is; None where there is
    nothing to upgrade. Raises as `backup` does."""
    if store.path is not None and not store.path.exists():
        return None
    found = store.schema()
    if not versions.EMPTY < found < schema.SCHEMA:
        return None
    taken = sum(1 for _ in folder.glob(f"version-{found}-*.db"))
    path = folder / f"version-{found}-{taken + 1}.db"
    backup(store, path)
    return path


def restore(store: Database, path: Path, force: bool, now_s: float) -> Restored:
    """Put a backup in the place of everything in the store, in one transaction.

    The control record is set so that the next leader only observes. A controller that leads meanwhile loses its term.
    Raises `Infeasible` when the store is not empty and not `force`, `InvalidInput` when `path` is not a backup or a
    newer Trimtab made it. An older backup is brought to this version on a copy. With `force` tables of a newer version
    are replaced, too: this is the way back after an upgrade.
    """
    with _opened(path) as source, source.reading() as read, _made(store), store.writing(check=False) as write:
        newer = store.drop_newer_tables(write) if force else 0
        store.make_tables(write)
        term = max(newer, store.locked_lead(write)[0])
        if not force:
            _refuse_unless_empty(write, term, store.where)
        for table in schema.metadata.sorted_tables:
            if table is not schema.lead:
                write.execute(delete(table))
        counts = _copy_tables(read, write, schema.metadata.sorted_tables)
        _observe(write)
        backed_up = read.execute(select(schema.lead.c.term)).scalar_one()
        next_term = max(term, backed_up) + TERM_STRIDE
        store.set_lead(write, next_term, RESTORER, now_s)
    return Restored(counts, next_term)


@contextmanager
def _made(store: Database) -> Iterator[None]:
    """Create a file for the store; remove an empty one after a failure."""
    was_there = store.path is None or store.path.exists()
    store.make_file()
    try:
        yield
    except BaseException:
        if not was_there and store.path is not None:
            store.close()
            store.path.unlink(missing_ok=True)
        raise


# --- backup ------------------------------------------------------------------------------------------------------


def _copy_file(connection: Connection, part: Path) -> None:
    """SQLite's own online backup, in one step: writers go on in the meantime."""
    with _in_words(part), closing(sqlite3.connect(part)) as target:
        source = connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        source.backup(target)


def _copy_rows(connection: Connection, part: Path, version: int) -> None:
    target = Database(_file_url(part))
    try:
        target.upgrade_tables(version)
        with target.writing(check=False) as write:
            _copy_tables(connection, write, _tables_of(write))
            lead = connection.execute(select(schema.lead)).mappings().one()
            write.execute(update(schema.lead).values(dict(lead)))
    finally:
        target.close()


def _finish(part: Path) -> Counts:
    """Make one file of it that needs no others beside it, look whether it is whole, and get it onto the disk."""
    with closing(sqlite3.connect(part)) as made:
        made.execute("PRAGMA journal_mode = DELETE")
        (verdict,) = made.execute("PRAGMA quick_check").fetchone()
        if verdict != "ok":
            raise StoreUnavailable(f"backup {part}: it is damaged ({verdict}): look at the disk, then try again")
        counts = {}
        for (name,) in made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            if name != schema.VERSION_TABLE and not name.startswith("sqlite_"):
                (counts[name],) = made.execute(f"SELECT count(*) FROM {name}").fetchone()
    with part.open("r+b") as file:
        checksum = _checksum(file)
        file.seek(CHECKSUM_AT)
        file.write(checksum)
    _sync(part)
    return counts


def _checksum(file: IO[bytes]) -> bytes:
    """Return the CRC-32 of a file except for the place where it is kept; never 0, which means none."""
    file.seek(0)
    found = zlib.crc32(file.read(CHECKSUM_AT) + bytes(CHECKSUM_BYTES))
    file.seek(CHECKSUM_AT + CHECKSUM_BYTES)
    while some := file.read(BYTES_AT_ONCE):
        found = zlib.crc32(some, found)
    return (found or 1).to_bytes(CHECKSUM_BYTES, "big")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- restore -----------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[Database]:
    """Open the backup for reading; an older one as an upgraded copy."""
    _check_file(path)
    with tempfile.TemporaryDirectory(prefix="trimtab-restore-") as folder:
        source = Database(_file_url(path), read_only=True)
        try:
            found = source.schema()
            if versions.EMPTY < found < schema.SCHEMA:
                copy = Path(folder) / "copy.db"
                with _in_words(copy):
                    shutil.copyfile(path, copy)
                source.close()
                source = Database(_file_url(copy))
                source.upgrade_tables()
            elif found == versions.EMPTY:
                raise InvalidInput(Problem(str(path), "holds no tables of Trimtab", "a backup"))
            yield source
        finally:
            source.close()


def _check_file(path: Path) -> None:
    with opened(path, "a backup") as file:
        head = file.read(CHECKSUM_AT + CHECKSUM_BYTES)
        if not head.startswith(SQLITE_MAGIC):
            raise InvalidInput(Problem(str(path), "is not a SQLite file", "a backup"))
        kept = head[CHECKSUM_AT:]
        if any(kept) and kept != _checksum(file):
            raise InvalidInput(Problem(str(path), "is damaged (its checksum)", "a backup that is whole"))
    uri = f"{absolute(path).as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as backup:
            (verdict,) = backup.execute("PRAGMA quick_check").fetchone()
    except sqlite3.DatabaseError as problem:
        verdict = str(problem)
    except UnicodeDecodeError:  # SQLite's message quotes a damaged name
        verdict = "a name in it is not valid UTF-8"
    if verdict != "ok":
        raise InvalidInput(Problem(str(path), f"is damaged ({verdict})", "a backup that is whole"))


def _refuse_unless_empty(connection: Connection, term: int, where: str) -> None:
    counts = {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in schema.metadata.sorted_tables
        if table is not schema.lead
    }
    held = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if held or term:
        raise Infeasible(f"{where} is not empty ({held or f'term {term}'}): only --force replaces all of it")


def _tables_of(connection: Connection) -> list[Table]:
    """Return the tables of a store, which may be of an older version."""
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != schema.VERSION_TABLE]


def _copy_tables(read: Connection, write: Connection, tables: Iterable[Table]) -> Counts:
    """Copy every row except the leader's; numbers that the database assigns are assigned again."""
    counts: Counts = {}
    for table in tables:
        if table.name == schema.lead.name:
            continue
        is_numbered = table.name in (schema.events.name, schema.audit.name)
        columns = [column for column in table.columns if not (is_numbered and column.primary_key)]
        wanted = select(*columns).order_by(*table.primary_key.columns)
        result = read.execute(wanted, execution_options={"yield_per": ROWS_AT_ONCE})
        counts[table.name] = 0
        for rows in result.mappings().partitions():
            write.execute(insert(table), [dict(row) for row in rows])
            counts[table.name] += len(rows)
    return counts


def _observe(connection: Connection) -> None:
    """Stop all actions after a restore: the backup may be out of date, and an operator must confirm first."""
    row = connection.execute(select(schema.control.c.name, schema.control.c.body)).one_or_none()
    record = ControlRecord(True, 0, 0) if row is None else from_row("control", row.name, bytes(row.body))
    put(connection, schema.control, [to_row(observing(record))])


def observing(record: ControlRecord) -> ControlRecord:
    """Return the switches of a controller that sends no orders and decides nothing until an operator activates it."""
    return replace(record, acting=False)


# --- files -------------------------------------------------------------------------------------------------------


def _file_url(path: Path) -> str:
    return URL.create("sqlite", database=str(absolute(path))).render_as_string()


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turn what writing a file raises into `StoreUnavailable`."""
    try:
        with in_words(parse_url(_file_url(path))):
            yield
    except OSError as problem:
        raise StoreUnavailable(f"{path}: {problem.strerror}: see that its folder is there and has room") from problem
