"""The controller's shell and history: what passes through it reaches the store, while it leads, and goes in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.service.main import BOUND_S, FIRST_PRUNE_S, HISTORY_S, PRUNE_S
from daemons.store import Batch, Retention, SqlStore, Steps
from daemons.values.records.cluster import Deleted
from shared.base.clock import SystemClock
from shared.base.errors import StoreUnavailable
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import Report
from shared.protocol.operator_messages import AddNode, SubmitJob
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.nodes import NodeSample
from sim_backend.fakes.store import MemoryStore
from tests.support.shell_harness import RealRig, wait_for
from tests.support.store_samples import job_record, sqlite_url

JOB = Job("j1", (Stage(100.0, 1000.0, memory_mib=100),))


class HurriedClock(SystemClock):
    """The machine's clocks, but that hours can be skipped by the one that nobody sets."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.skipped_s


class ArchiveStore(MemoryStore):
    """A store in memory that also keeps history. `history_available` false: of that it takes nothing. Pruning has so
    many `steps`, each of which says that it has begun (`stepped`) and waits for its turn (`turns`)."""

    def __init__(self) -> None:
        super().__init__(Deleted)
        self.history_available = True
        self.batches: list[Batch] = []
        self.refused: list[Batch] = []
        self.pruned: list[Retention] = []
        self.bounded: list[Retention] = []
        self.steps, self.pruned_s = 0, 0.0
        self.stepped, self.turns = threading.Semaphore(0), threading.Semaphore(0)

    def append(self, batch: Batch) -> None:
        if not self.history_available:
            self.refused.append(batch)
            raise StoreUnavailable("no history today")
        self.batches.append(batch)

    def prune_steps(self, keep: Retention, now_s: float) -> Steps:
        if not self.history_available:
            raise StoreUnavailable("no history today")
        self.pruned.append(keep)
        self.pruned_s = now_s
        for _ in range(self.steps):
            self.stepped.release()
            assert self.turns.acquire(timeout=20.0)
            yield "events", 1
        yield "samples_thinned", 6

    def bound_steps(self, keep: Retention) -> Steps:
        if not self.history_available:
            raise StoreUnavailable("no history today")
        self.bounded.append(keep)
        yield "", 0
        yield "snapshots", 7

    def what(self) -> list[str]:
        """What happened, as stored."""
        return [event.what for batch in self.batches for event in batch.events]

    def readings(self, node: str) -> int:
        """How many of a node's samples are stored."""
        return sum(use.readings for batch in self.batches for use in batch.uses if use.node == node)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path)
    made.clock = HurriedClock()
    yield made
    made.end()


@pytest.fixture
def store(rig: RealRig) -> ArchiveStore:
    rig.store = ArchiveStore()
    return rig.store


def skip(rig: RealRig, seconds: float) -> None:
    assert isinstance(rig.clock, HurriedClock)
    rig.clock.skipped_s += seconds


def run_job(rig: RealRig) -> None:
    with rig.lock:
        rig.world.add_task("j1", [(100.0, 1000.0)], 1, 0.0)
    assert rig.ask(SubmitJob("submit-j1", JOB)).done
    wait_for(lambda: [line for line in rig.lines("happened") if line["what"] == "job-completed"])


def send_report(rig: RealRig, seq: int, sample: NodeSample, node: str = "n1", named: str = "") -> None:
    """A report of a node's agent, in which it names itself, or another node."""
    with closing(rig.bus.connect(topology.agent_user(node))) as agent:
        report = Report(named or node, "boot-1", seq, clock_s=rig.clock.now_s(), term=0, sample=sample, vms=())
        agent.publish(topology.REPORTS, topology.report_key(node), encode(report))


def test_what_a_job_went_through_is_in_the_tables_afterwards(rig: RealRig, tmp_path: Path) -> None:
    """Given real shells on a real store, when a job has run, then events, actions and samples tell of it."""
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"))) as kept:
        store: Any = kept
        rig.store = store
        rig.start()
        run_job(rig)
        wait_for(lambda: len(rig.lines("result received")) == len({it["action"] for it in rig.lines("order sent")}))
        rig.end()

        assert {"leading", "job-completed"} <= {event.what for event in kept.events(100)}
        assert [event.subject for event in kept.events(100) if event.what == "job-completed"] == ["j1"]
        actions = kept.actions(100)
        assert {entry.id for entry in actions} == {line["action"] for line in rig.lines("order sent")}
        assert {(entry.vm, entry.outcome) for entry in actions} == {("j1#0", "ok")}
        assert all(entry.sent_s is not None and entry.done_s is not None for entry in actions)
        assert all(kept.samples(node.name, 0.0, 1e12) for node in rig.nodes)


def test_history_goes_to_the_store_while_the_controller_runs(rig: RealRig, store: ArchiveStore) -> None:
    rig.controller()
    wait_for(lambda: store.term)
    assert store.batches == []

    skip(rig, HISTORY_S)

    wait_for(lambda: "leading" in store.what())


def test_who_has_asked_for_what_is_stored_at_once(rig: RealRig, store: ArchiveStore) -> None:
    rig.controller()
    wait_for(lambda: store.term)
    assert rig.ask(AddNode("add-n1", "n1")).done

    wait_for(lambda: [each.subject for batch in store.batches for each in batch.audits] == ["n1"])
    assert "node-added" in store.what()


def test_history_that_cannot_be_stored_is_stored_later(rig: RealRig, store: ArchiveStore) -> None:
    rig.controller()
    wait_for(lambda: store.term)
    store.history_available = False
    for _ in range(2):
        refused = len(store.refused)
        skip(rig, HISTORY_S)
        wait_for(lambda before=refused: len(store.refused) > before)  # type: ignore[misc]
    assert rig.lines("history not stored yet")[0]["error"] == "no history today"

    store.history_available = True
    rig.end()

    assert store.what().count("leading") == 1
    assert store.refused[0].events[0] == store.batches[0].events[0]


def test_who_does_not_lead_stores_no_history(rig: RealRig, store: ArchiveStore) -> None:
    """Given a standby that hears the same reports, when both end, then only the leader's count."""
    rig.controller()
    wait_for(lambda: store.term)
    rig.store = idle = ArchiveStore()
    standby = rig.controller("b")
    wait_for(lambda: standby.shell.status().endswith(", connected"))
    send_report(rig, 1, NodeSample(cpu_frac=0.5))
    assert rig.ask(AddNode("add-n1", "n1")).done
    skip(rig, HISTORY_S + FIRST_PRUNE_S)
    wait_for(lambda: store.pruned and store.batches)
    assert standby.shell.status() == "standby, connected"

    standby.stop()
    rig.end()

    assert (idle.batches, idle.refused, idle.pruned, idle.term) == ([], [], [], 0)
    assert store.readings("n1") == 1


def test_readings_that_no_node_has_and_those_that_another_tells_do_not_count(rig: RealRig, store: ArchiveStore) -> None:
    controller = rig.controller()
    wait_for(lambda: store.term)
    impossible = NodeSample(cpu_frac=1.7e308), NodeSample(disk_read_bytes=(1 << 63) - 1), NodeSample(load_1min=-1.0)

    for seq, sample in enumerate((*impossible, *impossible)):
        send_report(rig, seq, sample)
    for seq in range(2):
        send_report(rig, seq, NodeSample(cpu_frac=0.5), "n2")
        send_report(rig, seq, NodeSample(cpu_frac=0.5), "n2", named="n1")  # nobody speaks for another
    assert rig.ask(AddNode("add-n1", "n1")).done
    rig.end()

    assert (controller.error, controller.exit_status) == (None, 0)
    assert (store.readings("n1"), store.readings("n2")) == (0, 2)


def test_old_history_goes_after_the_start_and_every_day(rig: RealRig, store: ArchiveStore) -> None:
    rig.controller()
    wait_for(lambda: store.term)
    assert store.pruned == []
    skip(rig, FIRST_PRUNE_S)
    wait_for(lambda: rig.lines("history pruned"))
    assert rig.lines("history pruned")[0]["samples_thinned"] == 6

    store.history_available = False
    skip(rig, PRUNE_S)
    wait_for(lambda: rig.lines("history not pruned"))
    store.history_available = True
    skip(rig, PRUNE_S)

    wait_for(lambda: len(rig.lines("history pruned")) == 2)
    assert store.pruned == [Retention(), Retention()]


def test_the_core_hears_what_was_deleted(rig: RealRig, tmp_path: Path) -> None:
    """Given a controller that knows a job of 2001, when its first prune is over, then the job is gone in store and
    memory, and its name free."""
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"))) as kept:
        store: Any = kept
        kept.write(
            kept.take_lead("b").term,
            (replace(job_record("j1"), finished_s=1e9, phase=JobPhase.COMPLETED, instances=()),),
        )
        rig.store = store
        rig.controller()
        assert rig.ask(SubmitJob("s1", JOB)).code == "duplicate-name"

        skip(rig, FIRST_PRUNE_S)
        wait_for(lambda: rig.lines("history pruned"))

        assert rig.lines("history pruned")[0]["jobs"] == 1
        assert rig.ask(SubmitJob("s2", JOB)).done
        rig.end()


def test_snapshots_that_are_too_many_go_every_hour(rig: RealRig, store: ArchiveStore) -> None:
    rig.controller()
    wait_for(lambda: store.term)
    skip(rig, FIRST_PRUNE_S)
    wait_for(lambda: store.pruned)
    assert store.bounded == []
    store.history_available = False
    skip(rig, BOUND_S)
    wait_for(lambda: rig.lines("snapshots not pruned"))
    store.history_available = True
    skip(rig, BOUND_S)
    wait_for(lambda: rig.lines("snapshots pruned"))

    assert rig.lines("snapshots pruned")[0]["snapshots"] == 7
    assert (len(store.bounded), len(store.pruned)) == (1, 1)


def test_whoever_writes_waits_for_a_step_of_pruning_and_not_for_its_end(rig: RealRig, store: ArchiveStore) -> None:
    """Given a prune of a thousand steps, when a node is added in the middle, then it is stored a few steps later."""
    store.steps = 1000
    rig.controller()
    wait_for(lambda: store.term)
    skip(rig, FIRST_PRUNE_S)
    assert store.stepped.acquire(timeout=20.0)

    with ThreadPoolExecutor() as asker:
        reply, begun = asker.submit(rig.ask, AddNode("add-n1", "n1")), 1
        while not reply.done():
            store.turns.release()
            assert store.stepped.acquire(timeout=20.0)
            begun += 1
            rig.clock.sleep(0.02)
    store.turns.release(store.steps)

    assert reply.result().done
    assert begun < store.steps / 2
    wait_for(lambda: rig.lines("history pruned"))
    assert rig.lines("history pruned")[0]["events"] == store.steps


def test_a_store_without_history_is_left_alone(rig: RealRig) -> None:
    rig.controller()
    wait_for(lambda: rig.store.term)

    skip(rig, FIRST_PRUNE_S)
    wait_for(lambda: rig.ask(AddNode("add-n1", "n1")).done)
    rig.end()

    assert [running.exit_status for running in rig.running] == [0]
    assert rig.lines("history pruned") == []
