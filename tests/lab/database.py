"""A PostgreSQL of a lab's own, on the machine's address in the lab: the store of controllers on hosts of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.integration.debian import go_without, missing
from tests.integration.test_postgresql import PACKAGE, USER, Cluster, binaries
from tests.ports import free_ports

LAB_NETWORKS = "10.99.0.0/16"
DATABASE = "trimtab"


class Database(Cluster):
    """A server that can be stopped and started. `port` is where it listens, from `begin` on."""

    def __init__(self, programs: Path, folder: Path) -> None:
        super().__init__(programs, folder)
        self.port, self._address = free_ports(1)[0], ""
        with (folder / "data/pg_hba.conf").open("a") as file:
            file.write(f"host all all {LAB_NETWORKS} trust\n")

    def begin(self, address: str) -> str:
        """Start on an address of this machine, with an empty database; its URL."""
        self._address = address
        self.start()
        with self.session("postgres") as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        return f"postgresql://{USER}@{address}:{self.port}/{DATABASE}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        where = f"-k {self.folder} -p {self.port} -c listen_addresses={self._address}"
        self._control("start", "-l", str(self.folder / "log"), "-o", f"{where} -c fsync=off -c max_connections=40")

    def session(self, name: str = DATABASE) -> psycopg.Connection[tuple[object, ...]]:
        """A session by the server's socket; every statement is a transaction."""
        return psycopg.connect(host=str(self.folder), port=self.port, user=USER, dbname=name, autocommit=True)


@contextmanager
def database() -> Iterator[Database]:
    """A server that is not yet started, gone at the end. Skips the test, or fails it when CI=true, where there can be
    none."""
    reason = missing(lambda: binaries() is not None, (PACKAGE,))
    programs = binaries()
    if programs is None:
        go_without(reason)
    with tempfile.TemporaryDirectory(prefix="trimtab-pg-") as name:
        made = Database(programs, Path(name))
        try:
            yield made
        finally:
            if (made.folder / "data/postmaster.pid").exists():
                made.stop()
