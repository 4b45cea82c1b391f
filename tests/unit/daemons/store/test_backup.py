"""Backup and restore of the store in SQLite; tests/integration has the other database, and from one to the other."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.store import Batch, SqlStore
from daemons.store.backup import CHECKSUM_AT, CHECKSUM_BYTES, TERM_STRIDE
from daemons.store.schema import SCHEMA, VERSION_TABLE
from shared.base.clock import ManualClock
from shared.base.errors import Infeasible, InvalidInput, StaleTerm, StoreUnavailable
from shared.ports.effects import LeadTaken
from shared.protocol.messages import Happened
from tests.support.store_samples import CONTROL, decision_record, job_record, made_url, node_record, sqlite_url

STATE = (node_record("n1"), job_record("x", 1), job_record("y", 2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(made_url(tmp_path / "store.db"), ManualClock(1000.0))) as made:
        made.write(made.take_lead("a").term, (CONTROL, *STATE, decision_record(4)))
        made.append(Batch(events=(Happened(1.0, "job-submitted", "x", 1, "by ann"), Happened(2.0, "leading", "a"))))
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(sqlite_url(tmp_path / "other.db"), ManualClock(5000.0))) as made:
        yield made


def test_a_backup_is_one_file_for_its_owner_that_any_client_reads(store: SqlStore, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    counts = store.backup(folder / "b.db")

    assert [file.name for file in folder.iterdir()] == ["b.db"]
    assert stat.S_IMODE((folder / "b.db").stat().st_mode) == 0o600
    with closing(sqlite3.connect(folder / "b.db")) as opened:
        assert opened.execute("SELECT name FROM jobs ORDER BY name").fetchall() == [("x",), ("y",)]
    assert counts == {
        "actions": 0,
        "assurances": 0,
        "audit": 0,
        "cluster_use": 0,
        "control": 1,
        "costs": 0,
        "decisions": 1,
        "durations": 0,
        "environments": 0,
        "events": 2,
        "jobs": 2,
        "lead": 1,
        "loadings": 0,
        "nodes": 1,
        "notifications": 0,
        "operation_times": 0,
        "work_ratios": 0,
        "paces": 0,
        "samples": 0,
        "snapshots": 0,
        "terms": 1,
        "web": 0,
        "windows": 0,
    }


def test_what_was_backed_up_is_restored_and_only_observes(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")

    restored = other.restore(tmp_path / "b.db")

    leader = other.take_lead("b")
    control, *rest = leader.image
    assert control == replace(CONTROL, acting=False)
    assert tuple(rest) == (*STATE, decision_record(4))
    assert other.events(10) == store.events(10)
    assert (restored.rows["jobs"], restored.term) == (2, 1 + TERM_STRIDE)
    assert leader.term == restored.term + 1


@pytest.mark.full
def test_a_backup_of_a_store_without_control_also_only_observes(other: SqlStore, tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "bare.db"))) as bare:
        bare.take_lead("a")
        bare.backup(tmp_path / "b.db")

    other.restore(tmp_path / "b.db")

    (control,) = other.take_lead("b").image
    assert not control.acting


def test_a_store_that_holds_something_is_replaced_only_by_force(
    store: SqlStore, other: SqlStore, tmp_path: Path
) -> None:
    store.backup(tmp_path / "b.db")
    term = other.take_lead("c").term
    kept = job_record("kept")
    other.write(term, (kept,))

    with pytest.raises(Infeasible, match="1 jobs"):
        other.restore(tmp_path / "b.db")
    other.write(term, (kept,))
    assert other.restore(tmp_path / "b.db", force=True).rows["jobs"] == 2

    with pytest.raises(StaleTerm, match="restore"):
        other.write(term, (kept,))
    assert STATE[1] in (image := other.take_lead("d").image)
    assert kept not in image


def test_a_store_that_was_led_is_not_empty(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")
    other.take_lead("c")

    with pytest.raises(Infeasible, match="not empty"):
        other.restore(tmp_path / "b.db")


def test_a_restore_into_the_store_itself_keeps_terms_growing(store: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")
    terms = [store.take_lead("b").term for _ in range(3)]

    store.restore(tmp_path / "b.db", force=True)

    assert store.take_lead("c").term > max(terms) + TERM_STRIDE


def test_a_restore_by_force_replaces_the_tables_of_a_newer_version(store: SqlStore, tmp_path: Path) -> None:
    """Given a store whose tables an upgrade has changed, when the backup made before is put back, then all is as it was
    and terms go on growing; without force nothing is touched."""
    store.backup(tmp_path / "b.db")
    last = [store.take_lead("c").term for _ in range(3)][-1]
    store.close()
    newer(tmp_path / "store.db")

    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(5000.0))) as upgraded:
        with pytest.raises(InvalidInput, match="a newer Trimtab made it"):
            upgraded.restore(tmp_path / "b.db")
        assert upgraded.schema() == SCHEMA + 1
        upgraded.restore(tmp_path / "b.db", force=True)

        taken = upgraded.take_lead("d")
        assert STATE[1] in taken.image
        assert (taken.term > last + TERM_STRIDE, upgraded.schema()) == (True, SCHEMA)


def newer(path: Path) -> None:
    """Make the tables those of the next version: one has a column more, and there is a table more."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("ALTER TABLE nodes ADD COLUMN remark TEXT")
        opened.execute("CREATE TABLE remarks (name TEXT)")
        opened.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{SCHEMA + 1}'")
        opened.commit()


def test_a_backup_that_fails_leaves_nothing(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("mine")

    with pytest.raises(InvalidInput, match="is there already"):
        store.backup(tmp_path / "there.db")
    with pytest.raises(StoreUnavailable, match="see that its folder is there"):
        store.backup(tmp_path / "gone" / "b.db")
    for odd in ("", ".", "/", os.fsdecode(b"b\xff.db")):
        with pytest.raises(InvalidInput, match="expected a new file"):
            store.backup(Path(odd))
    with closing(SqlStore(sqlite_url(tmp_path / "missing.db"))) as missing, pytest.raises(StoreUnavailable):
        missing.backup(tmp_path / "b.db")

    assert (tmp_path / "there.db").read_text() == "mine"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("b.db", "missing"))]


def test_what_is_no_backup_changes_nothing(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")
    whole = (tmp_path / "b.db").read_bytes()
    (tmp_path / "text").write_text("no backup")
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with closing(sqlite3.connect(tmp_path / "foreign")) as foreign:
        foreign.execute("CREATE TABLE customers (name TEXT)")
    with closing(sqlite3.connect(tmp_path / "empty")) as empty:
        empty.execute("CREATE TABLE t (x)")
        empty.execute("DROP TABLE t")
        empty.commit()

    for name in ("text", "cut", "foreign", "empty", "gone"):
        with pytest.raises((InvalidInput, StoreUnavailable), match=name):
            other.restore(tmp_path / name)

    assert other.take_lead("b") == LeadTaken(1, ())


def test_no_damage_to_a_backup_goes_unnoticed(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    store.backup(path)
    whole = path.read_bytes()
    rng = random.Random(1)

    for size in (1, 1, 1, 30, 30, 30, 3_000) * 5:
        at = rng.randrange(CHECKSUM_AT + CHECKSUM_BYTES, len(whole) - size)
        change = bytes([whole[at] ^ 1]) if size == 1 else rng.randbytes(size)
        path.write_bytes(whole[:at] + change + whole[at + size :])
        with pytest.raises(InvalidInput, match=r"b\.db"):
            other.restore(path)

    path.write_bytes(whole)
    assert other.restore(path).rows["jobs"] == 2


def test_a_backup_without_a_checksum_is_taken(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as opened:
        opened.execute("PRAGMA application_id = 0")

    assert other.restore(tmp_path / "b.db").rows["jobs"] == 2


def test_a_backup_with_names_that_are_no_text_is_damaged(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    store.backup(path)
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("PRAGMA application_id = 0")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE nodes", b"CREATE TABL\xdc nodes"))

    with pytest.raises(InvalidInput, match="is damaged"):
        other.restore(path)


def test_a_newer_backup_is_refused(store: SqlStore, other: SqlStore, tmp_path: Path) -> None:
    store.backup(tmp_path / "b.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as opened:
        opened.execute("UPDATE trimtab_schema SET version_num = ?", (SCHEMA + 1,))
        opened.execute("PRAGMA application_id = 0")
        opened.commit()

    with pytest.raises(InvalidInput, match="a newer Trimtab made it"):
        other.restore(tmp_path / "b.db")


@pytest.mark.full
def test_a_backup_is_of_one_moment_while_writes_go_on(store: SqlStore, tmp_path: Path) -> None:
    """Every write puts the same number into two records; no backup may show two numbers."""
    term = store.take_lead("a").term
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.write(term, (job_record("x", number), job_record("y", number)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for at in range(20):
            store.backup(tmp_path / f"b{at}.db")
    finally:
        stop.set()
        writer.join(60)

    seen = set()
    for at in range(20):
        with closing(SqlStore(sqlite_url(tmp_path / f"b{at}.db"))) as made:
            orders = {record.order for record in made.take_lead("b").image if record.key[0] == "job"}
        seen |= orders
        assert len(orders) == 1 or orders == {1, 2}  # the records that were there before the writer began
    assert len(seen) > 2
