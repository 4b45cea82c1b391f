"""Records and harnesses that the tests of the store share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from daemons.store import SqlStore
from daemons.values.records.cluster import ControlRecord, DecisionRecord, Deleted, InstanceRecord, JobRecord, NodeRecord
from shared.base.clock import ManualClock
from shared.policy_api.decision import Change, ChangeKind, Plan, Reason, ReasonCode, Refusal
from shared.ports.controller import Store
from shared.values.jobs import Allotment, Job, JobPhase, Stage
from shared.values.nodes import Node, NodeService
from sim_backend.fakes.store import MemoryStore


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


@cache
def _with_tables() -> bytes:
    """Making the tables, by every step since the first version, takes longer than most tests do."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with closing(SqlStore(sqlite_url(path))) as store:
            store.upgrade()
        return path.read_bytes()


def made_url(path: Path) -> str:
    """Of a new store that has its tables."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_with_tables())
    return sqlite_url(path)


def job_record(name: str, value: int = 1, phase: JobPhase = JobPhase.RUNNING, finished_s: float = 0.0) -> JobRecord:
    job = Job(name, (Stage(1000.0 * value + 1, 3000.0, 0.0, 4096),), goal_s=5000.0 + value)
    over = phase in (JobPhase.COMPLETED, JobPhase.CANCELLED)
    instances = (
        InstanceRecord(
            (f"n{value % 100}",),
            4,
            1,
            ended=False,
            cpu_mhz=2400.0,
            done_mcycles=12345.5,
            counter_node=f"n{value % 100}",
            counter_generation=4,
            counter_s=99.5,
            left="",
            address="10.0.0.1",
            address_generation=4,
        ),
    )
    return JobRecord(
        job,
        f"request-{name}",
        value,
        revision=3,
        phase=phase,
        attempt=1,
        released=True,
        resuming=False,
        allotments=() if over else (Allotment(f"n{value % 100}", 2400.0),),
        not_before_s=0.0,
        failures=0,
        accepted_s=100.0,
        finished_s=finished_s,
        instances=() if over else instances,
    )


def node_record(name: str, value: int = 1) -> NodeRecord:
    inventory = Node(name, 4, 2500.0, memory_mib=16384, reserve_mib=512, labels=("ssd",)) if value % 2 else None
    return NodeRecord(name, NodeService.IN_SERVICE, value, boot_id=f"boot-{value}", off_boot_id="", inventory=inventory)


def decision_record(number: int, at_s: float = 0.0, changes: int = 1, refusals: int = 1) -> DecisionRecord:
    reason = Reason(ReasonCode.NO_MEMORY, (("needed_mib", 4320.0), ("largest_free_mib", 3040.0)))
    return DecisionRecord(
        number,
        at_s,
        1,
        policy="first-fit",
        changes=tuple(
            Change(f"job-{at}", 3, ChangeKind.START, (Allotment(f"n{at}", 100.0),), Reason(ReasonCode.ARRIVAL_ORDER))
            for at in range(changes)
        ),
        refusals=tuple(Refusal(f"job-{at}", reason) for at in range(refusals)),
        dropped=(),
        held=(),
        plan=Plan(()),
    )


@dataclass
class RecordMaker:
    """Makes the records of the conformance suite."""

    kinds: tuple[str, ...] = ("job", "node")

    def record(self, kind: str, name: str, value: int) -> Any:
        return job_record(name, value) if kind == "job" else node_record(name, value)

    def deleted(self, record: Any) -> Any:
        return Deleted(record.key)


@dataclass
class MemoryStoreHarness(RecordMaker):
    """A `StoreHarness` over the store in memory."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(Deleted))

    def open(self) -> Store:
        return self.store

    def unstorable(self) -> Any:
        return object()  # it has no key

    def stop(self) -> None:
        self.store.available = False

    def start(self) -> None:
        self.store.available = True


@dataclass
class SqlStoreHarness(RecordMaker):
    """A `StoreHarness` over a database; `stopper` and `starter` make it unreachable and reachable."""

    url: str = ""
    stopper: Callable[[], None] = lambda: None
    starter: Callable[[], None] = lambda: None
    stores: list[SqlStore] = field(default_factory=list)

    def open(self) -> Store:
        self.stores.append(SqlStore(self.url, ManualClock(1000.0)))
        return self.stores[-1]

    def unstorable(self) -> Any:
        return NodeRecord("n1", NodeService.IN_SERVICE, 1 << 70, boot_id="", off_boot_id="", inventory=None)

    def stop(self) -> None:
        self.stopper()

    def start(self) -> None:
        self.starter()

    def close(self) -> None:
        for store in self.stores:
            store.close()


CONTROL = ControlRecord(True, 5, 9)
