"""Connections: SQLite as Trimtab needs it, PostgreSQL as Trimtab needs it, and what went wrong in words that help."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from shared.base.errors import InvalidInput, Problem, StoreUnavailable

BUSY_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 10
IDLE_TIMEOUT_S = 8  # between two statements: who is frozen or cut off holds the lead no longer than others wait for it
STATEMENT_TIMEOUT_S = 60
DEAD_PEER_S = 15  # how long a server may be silent in the middle of a conversation
LOOK_AFTER_PEER_S = 5
FILE_MODE = 0o600
ADVICE_LENGTH_MAX = 300
EXPECTED = "sqlite:////absolute/path/controller.db or postgresql://user:password@host/database"

# What a driver says, and what to do about it. The first that fits is given.
_ADVICE = (
    (("disk is full", "no space left", "could not extend", "diskfull"), "its disk is full: free space, then try again"),
    (("is locked", "lock timeout", "lock not available"), "another process holds it: end that one, or try again later"),
    (("readonly", "read-only"), "it cannot be written: give the user that runs Trimtab the right to write it"),
    (("unable to open", "permission denied"), "it cannot be opened: see that folder and rights are as they should be"),
    (("not a database", "malformed"), "it is damaged or no store: put a backup in its place (`trimtab store restore`)"),
    (("disk i/o error",), "its disk fails, is full or limits the size of files: look at the system's log"),
    (("password", "authentication", "role "), "it refuses the user: see user and password in its URL"),
    (("does not exist",), "it is not there: create the database, or correct the URL"),
    (("connection", "timeout", "server closed", "terminating"), "it cannot be reached: see that the server runs"),
)
# Faults of ours, not of the store.
_OURS = (exc.IntegrityError, exc.DataError, exc.NotSupportedError)


def parse_url(text: str) -> URL:
    """Parse a store's URL. Raises `InvalidInput` if it is neither a SQLite file nor a PostgreSQL database."""
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError) as problem:
        raise InvalidInput(Problem("store URL", "cannot be read", EXPECTED)) from problem
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        if url.drivername != "sqlite" or not url.database or url.database == ":memory:" or url.query or url.host:
            raise InvalidInput(Problem(f"store URL {url}", "names no file", EXPECTED))
        return url
    if backend != "postgresql":
        raise InvalidInput(Problem(f"store URL {url}", f"no store is kept in {backend}", EXPECTED))
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def make_engine(url: URL, read_only: bool = False) -> Engine:
    """Return an engine that connects when it is first used. Raises `InvalidInput` when the driver is not installed."""
    if url.drivername == "sqlite":
        return _sqlite(Path(url.database or ""), read_only)
    try:
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",  # a writer that waited for the term must see the new one
            pool_size=2,
            max_overflow=2,
            pool_pre_ping=True,
            execution_options={"postgresql_readonly": True} if read_only else {},
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "application_name": "trimtab",
                "keepalives_idle": LOOK_AFTER_PEER_S,
                "keepalives_interval": LOOK_AFTER_PEER_S,
                "tcp_user_timeout": DEAD_PEER_S * 1000,
            },
        )
    except ImportError as problem:
        fix = "pip install 'trimtab[postgresql]'"
        raise InvalidInput(Problem(f"store URL {url}", "its driver is not installed", fix)) from problem
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_postgresql(connection: object, _: ConnectionPoolEntry) -> None:
    statements = (
        f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'",
        f"SET statement_timeout = '{STATEMENT_TIMEOUT_S}s'",
        f"SET idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'",
        # what is answered as written must survive a crash of the server
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
    )
    cursor = connection.cursor()  # type: ignore[attr-defined]
    for statement in statements:
        cursor.execute(statement)
    cursor.close()
    connection.commit()  # type: ignore[attr-defined]


def _sqlite(path: Path, read_only: bool) -> Engine:
    # neither mode makes a file: a mistyped path is an error
    uri = f"file:{quote(str(absolute(path)))}?mode={'ro' if read_only else 'rw'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=2, max_overflow=2)
    if not read_only:
        event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def absolute(path: Path) -> Path:
    """Return the absolute path. Raises InvalidInput for a relative one if the current folder was deleted."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise InvalidInput(Problem(str(path), "is in the current folder, which is gone", "an absolute path")) from error


def _set_up_sqlite(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; a writer takes the write lock first, so data it has read cannot change meanwhile."""
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def make_file(path: Path) -> None:
    """Make an empty file for its owner alone; one that is there stays as it is. Raises `StoreUnavailable`.

    One that is there is not opened: closing it would end every lock that connections of this process have on it. The
    next process to close the store would then take itself for the last one and delete the log that they still write.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        return
    except OSError as problem:
        raise StoreUnavailable(f"store {path}: {problem.strerror}: see that its folder is there and writable") from None


@contextmanager
def in_words(url: URL) -> Iterator[None]:
    """Convert the errors of a database driver to `StoreUnavailable` with advice; Trimtab's own errors pass
    unchanged."""
    try:
        yield
    except _OURS:
        raise
    except (exc.DBAPIError, sqlite3.DatabaseError, exc.TimeoutError) as problem:
        raise StoreUnavailable(explain(url, problem)) from problem


def explain(url: URL, problem: Exception) -> str:
    """Return one line: the store, the advice, and the driver's message. Passwords are left out."""
    original = getattr(problem, "orig", None) or problem
    said = " ".join(str(original).split())[:ADVICE_LENGTH_MAX]
    known = f"{type(original).__name__} {said}".lower()
    advice = next((advice for marks, advice in _ADVICE if any(mark in known for mark in marks)), "")
    return f"store {url.render_as_string(hide_password=True)}: {advice or 'it does not answer as it should'} ({said})"
