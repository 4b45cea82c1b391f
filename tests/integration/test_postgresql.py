"""The store in PostgreSQL, on a private cluster in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from daemons.decision.recording import SnapshotEntry
from daemons.store import ActionEntry, Batch, Retention, SqlStore
from daemons.store.retention import DAY_S, MIB, counted
from daemons.store.schema import SCHEMA, VERSION_TABLE, metadata
from daemons.values.records.cluster import WindowRecord
from shared.base.clock import ManualClock, SystemClock
from shared.base.errors import InvalidInput, StaleTerm, StoreUnavailable
from shared.protocol.messages import Happened
from sim_backend.conformance.store_checks import CHECKS
from sim_backend.conformance.store_harness import StoreHarness
from tests.integration.debian import go_without, missing
from tests.support.store_samples import CONTROL, SqlStoreHarness, decision_record, job_record, node_record, sqlite_url
from tests.unit.daemons.store.test_history import use
from tests.unit.daemons.store.test_rows_costs import CYCLE, DURATION, SECOND, make_second_version

PACKAGE = "postgresql"
USER = "postgres"
PATIENCE_S = 30.0
NOW_S = 500 * DAY_S


def binaries() -> Path | None:
    """The folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    elsewhere = shutil.which("initdb")
    return found[-1].parent if found else Path(elsewhere).parent if elsewhere else None


class Cluster:
    """A private server on a socket in a folder of its own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.number = 0
        root = os.geteuid() == 0
        self._as_user = ["runuser", "-u", USER, "--"] if root else []
        if root:
            account = pwd.getpwnam(USER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=40"
        self._control("start", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def new_url(self) -> str:
        """A new, empty database."""
        self.number += 1
        with psycopg.connect(host=str(self.folder), user=USER, dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE trimtab{self.number}".encode())
        return f"postgresql://{USER}@/trimtab{self.number}?host={self.folder}"

    def _control(self, *words: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", *words)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as_user, str(self.programs / program), *words]
        subprocess.run(command, check=True, cwd="/", timeout=120, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = missing(lambda: binaries() is not None, (PACKAGE,))
    programs = binaries()
    if programs is None:
        go_without(reason)
    with tempfile.TemporaryDirectory(prefix="trimtab-pg-") as name:
        made = Cluster(programs, Path(name))
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.new_url()


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    with closing(SqlStore(url, ManualClock(NOW_S))) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_postgresql_store(check: Callable[[StoreHarness], None], cluster: Cluster, url: str) -> None:
    """Every check holds."""
    with closing(SqlStoreHarness(url=url, stopper=cluster.stop, starter=cluster.start)) as harness:
        check(harness)


# --- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_migrations_make_the_tables_that_the_store_uses(kind: str, url: str, tmp_path: Path) -> None:
    with closing(SqlStore(url if kind == "postgresql" else sqlite_url(tmp_path / "store.db"))) as store:
        assert store.upgrade() == (0, SCHEMA)
        with store.writing() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, metadata) == []


def test_a_store_of_the_second_version_is_brought_up_to_date_and_loads(url: str) -> None:
    make_second_version(url.replace("postgresql://", "postgresql+psycopg://"))
    with closing(SqlStore(url, ManualClock(NOW_S))) as store:
        with pytest.raises(InvalidInput, match="trimtab store upgrade"):
            store.take_lead("a")
        assert store.upgrade() == (2, SCHEMA)
        assert store.take_lead("a").image == SECOND


def test_a_store_of_the_second_version_is_backed_up_as_it_is(url: str, tmp_path: Path) -> None:
    make_second_version(url.replace("postgresql://", "postgresql+psycopg://"))
    with closing(SqlStore(url, ManualClock(NOW_S))) as store:
        made = store.backup_before_upgrade(tmp_path)
    assert made is not None

    with closing(SqlStore(sqlite_url(made), ManualClock(NOW_S))) as copy:
        assert copy.schema() == 2
        assert copy.upgrade() == (2, SCHEMA)
        assert copy.take_lead("a").image == SECOND


def test_costs_are_the_same_in_both_databases(store: SqlStore, tmp_path: Path) -> None:
    """Short cycles, of which some begin just when a quarter of an hour does, are put together alike."""
    cycles = tuple(replace(CYCLE, at_s=NOW_S + 150.0 * at, span_s=150.0) for at in range(40))
    kept = (DURATION, WindowRecord("night"), *cycles)
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(NOW_S))) as lite:
        for one in (store, lite):
            one.write(one.take_lead("a").term, kept)
        image = store.take_lead("b").image
        assert image == lite.take_lead("b").image
        assert len(image) == 2 + 7
        assert store.prune(Retention(costs_days=0.0)).costs == lite.prune(Retention(costs_days=0.0)).costs == 0


def test_controllers_that_meet_an_empty_store_make_its_tables_once(url: str) -> None:
    stores = [SqlStore(url) for _ in range(4)]
    terms: list[int] = []
    threads = [threading.Thread(target=lambda one=one: terms.append(one.take_lead("a").term)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for one in stores:
        one.close()

    assert sorted(terms) == [1, 2, 3, 4]


def test_a_database_of_others_is_left_alone(store: SqlStore, cluster: Cluster) -> None:
    with psycopg.connect(host=str(cluster.folder), user=USER, dbname=f"trimtab{cluster.number}") as connection:
        connection.execute("CREATE TABLE customers (name text)")

    with pytest.raises(InvalidInput, match="customers"):
        store.take_lead("a")


# --- the term ----------------------------------------------------------------------------------------------------


def wait_for_a_waiter(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Until some session of the database waits for a lock."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + PATIENCE_S
    question = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while connection.execute(question).fetchone() == (0,):
        assert clock.monotonic_s() < until_s
        clock.sleep(0.01)


def test_a_write_that_waited_for_a_change_of_leader_is_refused(store: SqlStore, cluster: Cluster) -> None:
    """Given a change of leader that is not yet committed, when the earlier leader writes, then it waits, and loses."""
    term = store.take_lead("a").term
    said: list[Exception | None] = []

    def write() -> None:
        try:
            store.write(term, (job_record("late"),))
        except StaleTerm as problem:
            said.append(problem)
        else:
            said.append(None)

    database = f"trimtab{cluster.number}"
    with psycopg.connect(host=str(cluster.folder), user=USER, dbname=database) as other:
        other.execute("UPDATE lead SET term = term + 1, controller = 'b'")
        writer = threading.Thread(target=write)
        writer.start()
        wait_for_a_waiter(other)
        other.commit()
        writer.join(PATIENCE_S)

    assert [type(problem) for problem in said] == [StaleTerm]
    assert store.take_lead("c").image == ()


def test_a_lock_that_is_held_too_long_is_said(store: SqlStore, cluster: Cluster) -> None:
    term = store.take_lead("a").term
    with store.writing() as connection:
        connection.exec_driver_sql("SET lock_timeout = '50ms'")
    database = f"trimtab{cluster.number}"
    with psycopg.connect(host=str(cluster.folder), user=USER, dbname=database) as other:
        other.execute("SELECT * FROM lead FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="another process holds it"):
            store.write(term, ())

    store.write(term, ())


def limit_s(connection: Connection, name: str) -> int:
    """A limit of a session's, 0 for none."""
    question = f"SELECT setting::int / 1000 FROM pg_settings WHERE name = '{name}'"
    return int(connection.exec_driver_sql(question).scalar_one())


def test_a_leader_that_is_frozen_in_the_middle_of_a_write_does_not_hold_the_lead(store: SqlStore, url: str) -> None:
    """Nor does one that is cut off: the server ends its transaction before another has given up waiting."""
    idle = "idle_in_transaction_session_timeout"
    with store.writing(check=False) as connection:
        assert 0 < limit_s(connection, idle) < limit_s(connection, "lock_timeout")
    store.take_lead("a")
    with store.reading() as connection:
        assert limit_s(connection, idle) == 0
    with closing(SqlStore(url)) as frozen, ExitStack() as writing:
        connection = writing.enter_context(frozen.writing())
        connection.exec_driver_sql(f"SET {idle} = '100ms'")
        frozen.locked_lead(connection)
        assert store.take_lead("b").term == 2
        with pytest.raises(StoreUnavailable):
            writing.close()


def test_what_was_answered_survives_a_crash_of_the_server(store: SqlStore, cluster: Cluster) -> None:
    """An immediate stop loses what was not durable; and a session cannot be set up to answer earlier than that."""
    term = store.take_lead("a").term
    with psycopg.connect(host=str(cluster.folder), user=USER, dbname="postgres", autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET synchronous_commit = 'off'")
        admin.execute("SELECT pg_reload_conf()")
    try:
        store.close()
        with store.reading() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        store.write(term, (job_record("x"),))
        cluster.stop()
        cluster.start()
    finally:
        with psycopg.connect(host=str(cluster.folder), user=USER, dbname="postgres", autocommit=True) as admin:
            admin.execute("ALTER SYSTEM RESET synchronous_commit")
            admin.execute("SELECT pg_reload_conf()")

    assert store.take_lead("b").image == (job_record("x"),)


# --- history and backup ------------------------------------------------------------------------------------------


def filled(store: SqlStore) -> None:
    """A store with something in every table, some of it old."""
    jobs = tuple(job_record(f"job-{at}", at) for at in range(5000))
    store.write(store.take_lead("a").term, (CONTROL, node_record("n1"), *jobs, decision_record(3, NOW_S)))
    store.append(Batch(events=tuple(Happened(NOW_S + at, "decided", f"{at}", 1, "\0 \ud800") for at in range(3))))
    store.append(Batch(events=(Happened(NOW_S - 40 * DAY_S, "old", "x"),)))
    store.append(Batch(actions=(ActionEntry("1-1", NOW_S, "start", "x#0", "n1", 1, "n2", sent_s=1.0),)))
    store.append(
        Batch(actions=(ActionEntry("1-1", NOW_S, "start", "x#0", "n1", 1, done_s=2.0, outcome="ok", detail=""),))
    )
    store.append(Batch(uses=tuple(use("n1", NOW_S - 9 * DAY_S + at * 300.0) for at in range(12))))
    store.append(Batch(uses=(use("n1", NOW_S), use("n1", NOW_S))))
    store.append(Batch(snapshots=tuple(SnapshotEntry(number, NOW_S, 1, bytes(MIB // 100)) for number in range(60))))


def shown(store: SqlStore) -> dict[str, object]:
    """Everything that can be read of a store."""
    return {
        "events": store.events(100),
        "actions": store.actions(100),
        "samples": store.samples("n1", 0.0, 2 * NOW_S),
        "decision": store.decision(3),
        "image": [record for record in store.take_lead("reader").image if record.key[0] != "control"],
    }


def test_history_is_the_same_in_both_databases(store: SqlStore, tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(NOW_S))) as lite:
        for one in (store, lite):
            filled(one)
        assert shown(store) == shown(lite)
        few = Retention(snapshots_mib=0.025)
        assert store.prune(few) == lite.prune(few)
        assert counted(store.bound_steps(few)).snapshots == counted(lite.bound_steps(few)).snapshots == 0
        assert counted(store.bound_steps(Retention(snapshots_mib=0.015))).snapshots == 1  # two were left of sixty
        assert shown(store) == shown(lite)
    assert len(store.events(100)) == 3
    assert store.samples("n1", NOW_S, NOW_S + 1)[0].readings == 120


@pytest.mark.parametrize("turned", [False, True])
def test_a_backup_of_one_is_restored_into_the_other(store: SqlStore, tmp_path: Path, turned: bool) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(NOW_S))) as lite:
        source, target = (lite, store) if turned else (store, lite)
        filled(source)
        counts = source.backup(tmp_path / "b.db")
        restored = target.restore(tmp_path / "b.db")

        assert {"lead": 1, **restored.rows} == counts
        assert shown(target) == shown(source)
        assert target.take_lead("b").term > restored.term
        assert not target.take_lead("b").image[0].acting
        target.append(Batch(events=(Happened(NOW_S, "after", "x"),)))  # numbers given by the database go on


def test_many_jobs_come_back_in_their_order(store: SqlStore) -> None:
    term = store.take_lead("a").term
    records = tuple(job_record(f"job-{at}", at) for at in range(5000))
    for at in range(0, 5000, 1000):
        store.write(term, records[at : at + 1000])
    assert store.take_lead("b").image == records
