"""The store in SQLite: bodies, columns, versions, a full disk, what it says when it cannot."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.store import Retention, SqlStore
from daemons.store.bodies import STRETCH_WEIGHT_MAX, from_body, to_body
from daemons.store.schema import SCHEMA
from daemons.store.sql import IMAGE_DECISIONS_MAX, IMAGE_ITEMS_MAX
from daemons.values.records.cluster import ControlRecord, DecisionRecord, Deleted, InstanceRecord, JobRecord
from shared.base.clock import ManualClock
from shared.base.errors import CodecError, ContractViolation, InvalidInput, StaleTerm, StoreUnavailable
from shared.policy_api.decision import Change, ChangeKind, Plan, Reason, ReasonCode, Step
from shared.values.actions import ActionKind as Kind
from shared.values.jobs import Allotment, JobPhase
from tests.extent import first
from tests.support.store_samples import CONTROL, decision_record, job_record, node_record, sqlite_url

LIMIT_BYTES = 512 * 1024
DAY_S = 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(sqlite_url(path), ManualClock(1000.0))) as made:
        yield made


def asked(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


# --- the file ----------------------------------------------------------------------------------------------------


def test_the_file_and_those_beside_it_are_for_their_owner_alone(store: SqlStore, path: Path) -> None:
    old = os.umask(0)
    try:
        store.take_lead("a")
    finally:
        os.umask(old)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_the_file_is_kept_as_a_file_that_must_not_be_lost(store: SqlStore) -> None:
    store.take_lead("a")

    with store.writing() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
        keys = connection.exec_driver_sql("PRAGMA foreign_keys").scalar()

    assert (found, keys) == (["wal", 2], 1)


def test_only_a_leader_or_an_upgrade_makes_a_file(store: SqlStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        store.write(1, ())

    assert not path.exists()


def test_plain_columns_answer_questions(store: SqlStore, path: Path) -> None:
    term = store.take_lead("a").term
    records = (job_record("x", 3), job_record("y", 4, JobPhase.COMPLETED, 700.0), node_record("n1"), CONTROL)
    store.write(term, (*records, decision_record(12, 50.0, 2, 3)))

    assert asked(path, "SELECT name, phase, is_over, idle, submission, goal_s, finished_s FROM jobs ORDER BY name") == [
        ("x", "running", 0, 0, 3, 5003.0, None),
        ("y", "completed", 1, 1, 4, 5004.0, 700.0),
    ]
    assert asked(path, "SELECT name, service, cores, memory_mib, off FROM nodes") == [("n1", "in-service", 4, 16384, 0)]
    assert asked(path, "SELECT number, at_s, policy, changes, refusals FROM decisions") == [
        (12, 50.0, "first-fit", 2, 3)
    ]
    assert asked(path, "SELECT term, controller, taken_s FROM terms") == [(1, "a", 1000.0)]


def test_an_index_serves_what_is_asked_often(store: SqlStore, path: Path) -> None:
    store.take_lead("a")

    plans = [
        asked(path, f"EXPLAIN QUERY PLAN {question}")[0][3]
        for question in (
            "SELECT * FROM jobs WHERE phase = 'running'",
            "SELECT * FROM events WHERE at_s < 5",
            "SELECT * FROM events WHERE subject = 'x' ORDER BY at_s",
            "SELECT * FROM actions WHERE vm = 'x#0'",
            "SELECT * FROM samples WHERE node = 'n1' AND from_s > 3",
        )
    ]

    assert [str(plan).partition(" USING ")[0] for plan in plans] == [
        "SEARCH jobs",
        "SEARCH events",
        "SEARCH events",
        "SEARCH actions",
        "SEARCH samples",
    ]


# --- the image ---------------------------------------------------------------------------------------------------


def test_a_leader_is_given_jobs_in_the_order_of_submission_and_the_newest_decisions(store: SqlStore) -> None:
    term = store.take_lead("a").term
    jobs = [job_record("zz", 1), job_record("a", 2), job_record("m", 3, JobPhase.CANCELLED, 5.0)]
    store.write(term, (*reversed(jobs), decision_record(9), decision_record(10), CONTROL, node_record("n1")))

    image = store.take_lead("b").image

    assert image == (CONTROL, node_record("n1"), *jobs, decision_record(9), decision_record(10))
    assert store.decision(9) == decision_record(9)
    assert store.decision(11) is None


def test_a_leader_is_given_the_jobs_that_the_next_prune_leaves(path: Path) -> None:
    """Given jobs that are wanted, that may be somewhere still, and that were over before and after what is kept, then a
    new leader knows what is there after a prune, and one that keeps everything knows all."""
    clock = ManualClock(10 * DAY_S)
    old_s, young_s = 6 * DAY_S - 1.0, 6 * DAY_S
    gone = [job_record("old", 2, JobPhase.COMPLETED, old_s), job_record("dropped", 3, JobPhase.CANCELLED, old_s)]
    somewhere = replace(job_record("left", 4, JobPhase.COMPLETED, old_s), instances=job_record("left").instances)
    kept = [job_record("wanted", 1), somewhere, job_record("young", 5, JobPhase.COMPLETED, young_s)]
    keep = Retention(jobs_days=4.0)
    with closing(SqlStore(sqlite_url(path), clock, keep=keep)) as store, closing(SqlStore(sqlite_url(path))) as whole:
        store.write(store.take_lead("a").term, (*gone, *kept))

        assert store.take_lead("b").image == tuple(kept)
        assert len(whole.take_lead("c").image) == len(gone) + len(kept)
        store.prune(keep)
        assert whole.take_lead("d").image == tuple(kept)


@pytest.mark.full
@pytest.mark.parametrize(
    ("sizes", "given"),
    [
        ([1] * (IMAGE_DECISIONS_MAX + 3), IMAGE_DECISIONS_MAX),
        ([1, 1, IMAGE_ITEMS_MAX], 1),
        ([1, 1, IMAGE_ITEMS_MAX - 1], 2),
        ([1, IMAGE_ITEMS_MAX, 1], 1),
    ],
)
def test_large_decisions_do_not_delay_a_leader(store: SqlStore, sizes: list[int], given: int) -> None:
    decisions = [decision_record(10 + at, 0.0, 0, size) for at, size in enumerate(sizes)]
    store.write(store.take_lead("a").term, tuple(decisions))

    assert store.take_lead("b").image == tuple(decisions[-given:])


def test_a_decision_can_be_deleted(store: SqlStore) -> None:
    term = store.take_lead("a").term
    store.write(term, (decision_record(3),))

    store.write(term, (Deleted(decision_record(3).key),))

    assert store.decision(3) is None


# --- bodies ------------------------------------------------------------------------------------------------------


def large_job(count: int) -> JobRecord:
    record = job_record("gang")
    instances = tuple(
        InstanceRecord(
            (f"n{at}",),
            at,
            1,
            ended=False,
            cpu_mhz=1.5,
            done_mcycles=2.5,
            counter_node=f"n{at}",
            counter_generation=at,
            counter_s=3.5,
        )
        for at in range(count)
    )
    allotments = tuple(Allotment(f"n{at}", float(at)) for at in range(count))
    return replace(record, job=replace(record.job, instances=count), instances=instances, allotments=allotments)


def wide_decision(count: int) -> DecisionRecord:
    wide = Change(
        "gang", 3, ChangeKind.START, tuple(Allotment(f"n{at}", 1.0) for at in range(count)), Reason(ReasonCode.DRAIN)
    )
    record = decision_record(5, 1.0, count, count)
    steps = tuple(Step(Kind.START, "gang", f"gang#{at}", node=f"n{at}", wave=at) for at in range(count))
    held = (wide, *record.changes)
    return replace(record, held=held, dropped=record.refusals[:3], plan=Plan(steps, record.refusals[3:]))


@pytest.mark.full
@pytest.mark.parametrize(
    "count", first([1, 2, STRETCH_WEIGHT_MAX, STRETCH_WEIGHT_MAX - 1, 3 * STRETCH_WEIGHT_MAX + 1], 3)
)
def test_long_records_come_back_whole(count: int) -> None:
    for record in (large_job(count), wide_decision(count)):
        assert from_body(to_body(record), type(record)) == record


@pytest.mark.full
def test_the_largest_gang_is_stored_though_no_message_could_carry_it(store: SqlStore) -> None:
    record = large_job(65_536)
    store.write(store.take_lead("a").term, (record,))

    assert store.take_lead("b").image == (record,)


def test_decisions_are_compressed() -> None:
    record = decision_record(1, 0.0, 1000, 4000)

    assert len(to_body(record)) < len(repr(record)) / 20


@pytest.mark.parametrize("spoil", [lambda body: body[:-1], lambda body: b"\x07" + body[1:], lambda _: b""])
@pytest.mark.parametrize("count", [1, 50])
def test_a_damaged_body_is_named(store: SqlStore, path: Path, count: int, spoil: object) -> None:
    assert callable(spoil)
    store.write(store.take_lead("a").term, (large_job(count),))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE jobs SET body = ?", (spoil(to_body(large_job(count))),))
        connection.commit()

    with pytest.raises(CodecError, match="job 'gang' in the store"):
        store.take_lead("b")

    assert asked(path, "SELECT term FROM lead") == [(1,)]  # nobody leads from an image that was not read


def test_what_cannot_be_stored_is_named(store: SqlStore) -> None:
    term = store.take_lead("a").term

    with pytest.raises(CodecError, match="job 'x'"):
        store.write(term, (job_record("y"), replace(job_record("x"), accepted_s=float("nan"))))
    with pytest.raises(ContractViolation, match="keeps no int"):
        store.write(term, (7,))
    assert store.take_lead("b").image == ()


# --- versions ----------------------------------------------------------------------------------------------------


def set_version(path: Path, version: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trimtab_schema SET version_num = ?", (version,))
        connection.commit()


def test_a_newer_store_is_refused(store: SqlStore, path: Path) -> None:
    store.take_lead("a")
    set_version(path, SCHEMA + 1)

    for call in (lambda: store.take_lead("b"), store.upgrade, lambda: SqlStore(sqlite_url(path)).write(1, ())):
        with pytest.raises(InvalidInput, match="a newer Trimtab made it"):
            call()


def test_an_older_store_says_what_to_run(store: SqlStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE trimtab_schema (version_num TEXT)")
        connection.execute("INSERT INTO trimtab_schema VALUES ('0')")
        connection.commit()
    # Version 0 has never been released; it stands for any that is older than this program's.
    with pytest.raises(InvalidInput, match="trimtab store upgrade"):
        store.write(1, ())


def test_a_database_of_others_is_left_alone(store: SqlStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.commit()

    for call in (lambda: store.take_lead("a"), store.upgrade):
        with pytest.raises(InvalidInput, match="customers"):
            call()

    assert asked(path, "SELECT name FROM sqlite_master") == [("customers",)]


def test_upgrade_says_from_what_to_what(store: SqlStore) -> None:
    assert store.upgrade() == (0, SCHEMA)
    assert store.upgrade() == (SCHEMA, SCHEMA)
    assert store.schema() == SCHEMA


# --- trouble -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://x/y", "sqlite:////x.db?mode=ro", "sqlite+other:///x"],
)
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="store URL"):
        SqlStore(url)


def test_a_password_is_never_said() -> None:
    store = SqlStore("postgresql://trimtab:hunter2@127.0.0.1:1/none")

    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        store.take_lead("a")

    assert "hunter2" not in str(caught.value) + store.where


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    store = SqlStore(sqlite_url(tmp_path / "gone" / "store.db"))

    with pytest.raises(StoreUnavailable, match="see that its folder is there"):
        store.take_lead("a")


def test_a_file_that_is_no_database(store: SqlStore, path: Path) -> None:
    path.write_text("not a database" * 100)

    with pytest.raises(StoreUnavailable, match="damaged or no store"):
        store.take_lead("a")


def test_another_process_that_closes_the_store_leaves_its_log_to_who_uses_it(store: SqlStore, path: Path) -> None:
    """Given a controller that takes the lead a second time, as when the store was held at the first, when somebody else
    opens the store and closes it, then what is written afterwards is seen by everybody."""
    store.take_lead("a")
    term = store.take_lead("a").term
    look = "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]); print(*base.execute(sys.argv[2]).fetchone())"

    def seen(query: str) -> str:
        command = [sys.executable, "-c", look, str(path), query]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60.0).stdout.strip()

    assert seen("SELECT term FROM lead") == str(term)
    store.write(term, (job_record("x"),))

    assert path.with_name(path.name + "-wal").exists()
    assert seen("SELECT name FROM jobs") == "x"


def test_a_store_held_by_another_process_says_so(store: SqlStore, path: Path) -> None:
    term = store.take_lead("a").term
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with store.reading() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 1")
        with pytest.raises(StoreUnavailable, match="another process holds it"):
            store.write(term, (job_record("x"),))
        other.execute("ROLLBACK")

    store.write(term, (job_record("x"),))


def fill(url: str, results: multiprocessing.SimpleQueue[tuple[str, int]]) -> None:
    """Write until the limit on the size of files is met; then say what was said and how many writes were taken."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqlStore(url)
    term = store.take_lead("filler").term
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
    taken = 0
    try:
        while taken < 10_000:
            store.write(term, tuple(job_record(f"job-{taken}-{at}", at) for at in range(20)))
            taken += 1
    except StoreUnavailable as problem:
        results.put((str(problem), taken))
    else:
        results.put(("never full", taken))


@pytest.mark.full
def test_a_full_disk_loses_nothing_that_was_taken(path: Path) -> None:
    """Given a process that may write no file larger than so much, when it is full, then every write that was answered
    is there, the one that was refused is not, and with room again the store goes on."""
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.SimpleQueue[tuple[str, int]] = context.SimpleQueue()
    process = context.Process(target=fill, args=(sqlite_url(path), results))
    process.start()
    process.join(120)
    said, taken = results.get()

    assert "disk" in said
    assert taken > 0
    with closing(SqlStore(sqlite_url(path))) as store:
        leader = store.take_lead("next")
        assert len(leader.image) == 20 * taken
        store.write(leader.term, (job_record("one-more"),))


def test_a_full_file_refuses_and_goes_on(store: SqlStore) -> None:
    """The same by SQLite's own limit: the error for a full disk, with its advice."""
    term = store.take_lead("a").term
    with store.writing() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")

    with pytest.raises(StoreUnavailable, match="its disk is full: free space"):
        store.write(term, tuple(job_record(f"job-{at}", at) for at in range(1000)))

    with store.writing() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    store.write(term, (job_record("x"),))
    assert store.take_lead("b").image == (job_record("x"),)


def killed_between(url: str, results: multiprocessing.SimpleQueue[int]) -> None:
    """Write numbered records until killed, saying each number once its write was answered."""
    store = SqlStore(url)
    term = store.take_lead("victim").term
    for number in range(1_000_000):
        store.write(term, (ControlRecord(True, number, number), job_record("x", number)))
        results.put(number)


def test_a_killed_writer_leaves_whole_writes(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    process = context.Process(target=killed_between, args=(sqlite_url(path), results))
    process.start()
    last = [results.get() for _ in range(50)][-1]
    process.kill()
    process.join(60)
    while not results.empty():
        last = results.get()

    with closing(SqlStore(sqlite_url(path))) as store:
        control, job = store.take_lead("next").image
        with pytest.raises(StaleTerm):
            store.write(1, ())

    assert control.decisions == job.order
    assert control.decisions in (last, last + 1)


# --- memory ------------------------------------------------------------------------------------------------------


def test_a_write_leaves_no_circles_of_objects_behind(store: SqlStore) -> None:
    term = store.take_lead("a").term
    store.write(term, (job_record("j", 1), node_record("n", 1)))
    gc.collect()
    gc.disable()
    try:
        for value in range(2, 52):
            store.write(term, (job_record("j", value), node_record("n", value)))
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 50  # statements made anew leave two hundred for each record
