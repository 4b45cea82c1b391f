"""A store as months of work leave it behind when nothing was ever deleted from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from daemons.store import ActionEntry, SqlStore, schema
from daemons.store.rows import KINDS, to_row
from daemons.store.samples import FINE_S, NodeUse
from daemons.values.records.cluster import ControlRecord, JobRecord, NodeRecord
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeService
from tests.support.store_samples import decision_record, job_record, node_record, sqlite_url

DAY_S = 86_400.0
SNAPSHOT_DAYS = 31
SNAPSHOT = b"\x5a" * 30_000
EVENTS_A_DAY = 96  # besides five of each job
JOB_EVENTS = ("job-accepted", "job-started", "vm-started", "job-completed", "vm-removed")
ORDERS = ("start", "stop")
WHOLE_RECORDS = 1_000  # of the newest decisions; the older ones are never unpacked


@dataclass(frozen=True, slots=True)
class Size:
    """How long a history is, and of what. All nodes are switched off by now."""

    days: int
    nodes: int
    jobs_a_day: int
    decisions_a_day: int

    @property
    def jobs(self) -> int:
        """How many there were."""
        return self.days * self.jobs_a_day

    @property
    def decisions(self) -> int:
        """How many there were; their numbers begin with 1."""
        return self.days * self.decisions_a_day


def make(path: Path, size: Size, now_s: float) -> dict[str, int]:
    """Make a store in a new file, whose history ends at `now_s`; returns the rows of its tables."""
    with closing(SqlStore(sqlite_url(path))) as store:
        store.upgrade()
        control = ControlRecord(True, size.decisions, size.jobs)
        store.write(store.take_lead("before").term, (control, *(_node(at) for at in range(size.nodes))))
    history = _History(size, now_s - size.days * DAY_S)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in ("journal_mode = MEMORY", "synchronous = OFF", "cache_size = -200000"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("BEGIN")
        rows = {table.name: _put(database, table, found) for table, found in history.tables().items()}
        database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
    return rows


def _put(database: sqlite3.Connection, table: Table, rows: Iterable[tuple[Any, ...]]) -> int:
    names, marks = ",".join(table.columns.keys()), ",".join("?" * len(table.columns))
    return database.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows).rowcount


def _node(at: int) -> NodeRecord:
    return replace(node_record(f"old-{at}"), service=NodeService.OFF, off_boot_id="boot", sleeping=True)


class _History:
    """Rows, in the order of their tables' columns."""

    def __init__(self, size: Size, begin_s: float) -> None:
        self._size, self._begin_s = size, begin_s

    def tables(self) -> dict[Table, Iterator[tuple[Any, ...]]]:
        return {
            schema.jobs: self._jobs(),
            schema.events: self._events(),
            schema.actions: self._actions(),
            schema.decisions: self._decisions(),
            schema.samples: self._samples(),
            schema.cluster_use: self._cluster_use(),
            schema.snapshots: self._snapshots(),
        }

    def _began(self) -> Iterator[tuple[int, float]]:
        """The number of each job and when it came."""
        every_s = DAY_S / self._size.jobs_a_day
        return ((at, self._begin_s + at * every_s) for at in range(self._size.jobs))

    def _jobs(self) -> Iterator[tuple[Any, ...]]:
        for at, at_s in self._began():
            made = job_record(job_name(at), at + 1, JobPhase.COMPLETED, at_s + 60.0)
            yield _packed("job", replace(made, accepted_s=at_s))

    def _events(self) -> Iterator[tuple[Any, ...]]:
        for at, at_s in self._began():
            for what in JOB_EVENTS:
                yield None, at_s, what, job_name(at), 1, "its detail"
        for at in range(self._size.days * EVENTS_A_DAY):
            yield None, self._begin_s + at * DAY_S / EVENTS_A_DAY, "prices-read", "c1", 1, ""

    def _actions(self) -> Iterator[tuple[Any, ...]]:
        assert [field.name for field in fields(ActionEntry)] == schema.actions.columns.keys()
        for at, at_s in self._began():
            node = f"old-{at % self._size.nodes}"
            for kind in ORDERS:
                vm = f"{job_name(at)}#0"
                yield f"old-{at}-{kind}", at_s, kind, vm, node, 1, None, at_s, at_s + 1.0, "ok", ""

    def _decisions(self) -> Iterator[tuple[Any, ...]]:
        body = len(schema.decisions.columns) - 1
        first = _packed("decision", decision_record(1))
        for number in range(1, self._size.decisions + 1):
            at_s = self._begin_s + number * DAY_S / self._size.decisions_a_day
            if number > self._size.decisions - WHOLE_RECORDS:
                yield _packed("decision", decision_record(number, at_s))
            else:
                yield number, at_s, *first[2:body], first[body]

    def _slots(self) -> Iterator[float]:
        first_s = self._begin_s // FINE_S * FINE_S
        return (first_s + at * FINE_S for at in range(self._size.days * int(DAY_S / FINE_S)))

    def _samples(self) -> Iterator[tuple[Any, ...]]:
        assert [field.name for field in fields(NodeUse)] == schema.samples.columns.keys()
        use = NodeUse(
            "",
            0.0,
            FINE_S,
            readings=30,
            cpu_frac=0.5,
            cpu_frac_max=0.7,
            iowait_frac=0.1,
            load_1min=1.5,
            memory_used_mib=4e3,
            memory_used_mib_max=5e3,
            swap_used_mib_max=0.0,
            disk_free_mib_min=9e4,
            disk_busy_s=1.5,
            disk_read_bytes=1 << 20,
            disk_write_bytes=1 << 21,
            net_rx_bytes=1 << 22,
            net_tx_bytes=9,
        )
        same = astuple(use)[2:]
        nodes = sorted(f"old-{at}" for at in range(self._size.nodes))
        return ((node, at_s, *same) for node in nodes for at_s in self._slots())

    def _cluster_use(self) -> Iterator[tuple[Any, ...]]:
        count = self._size.nodes
        return ((at_s, FINE_S, count, 0.5, 0.7, 0.1, 4e3 * count, 1e8, 2e8, 4e8, 900.0) for at_s in self._slots())

    def _snapshots(self) -> Iterator[tuple[Any, ...]]:
        count = min(self._size.days, SNAPSHOT_DAYS) * self._size.decisions_a_day
        for number in range(self._size.decisions - count + 1, self._size.decisions + 1):
            yield number, self._begin_s + number * DAY_S / self._size.decisions_a_day, 1, SNAPSHOT


def job_name(at: int) -> str:
    """Of the job that was submitted after so many others."""
    return f"job-{at + 1:06}"


def _packed(kind: str, record: JobRecord | Any) -> tuple[Any, ...]:
    row = to_row(record)
    return tuple(row[column.name] for column in KINDS[kind].table.columns)
