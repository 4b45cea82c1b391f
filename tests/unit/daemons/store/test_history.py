"""Events, actions and samples: gathered from what passes through a shell, stored, thinned and forgotten."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from daemons.decision.recording import SnapshotEntry
from daemons.store import ActionEntry, Batch, History, NodeUse, Retention, SampleBook, SqlStore
from daemons.store.history import PENDING_MAX
from daemons.store.reading import reading
from daemons.store.retention import DAY_S, MIB, STEP_NODES, STEP_ROWS, Pruner, counted
from daemons.store.samples import COARSE_S, FINE_S, merge
from shared.base.clock import ManualClock
from shared.base.errors import InvalidValue
from shared.ports.effects import Acknowledge, Publish, Received, TimerFired
from shared.protocol import topology
from shared.protocol.messages import Happened, Order, Report, Result
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeSample
from tests.support.store_samples import decision_record, job_record, made_url, sqlite_url

NOW_S = 500 * DAY_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(SqlStore(made_url(tmp_path / "store.db"), ManualClock(NOW_S))) as made:
        made.take_lead("a")
        yield made


def order(id: str = "1-1", to_node: str = "") -> Publish:
    action = Action(id, ActionKind.START, "n1", vm="x#0", term=1, boot_id="boot", expires_at_s=99.0, to_node=to_node)
    return Publish(topology.ACTIONS, "n1", Order(action), 1)


def result(id: str = "1-1", outcome: Outcome = Outcome.OK) -> Received:
    return Received(
        1,
        "agent.n1",
        Result("n1", "boot", 3, clock_s=0.0, term=1, action=id, kind=ActionKind.START, vm="x#0", outcome=outcome),
    )


def report(sample: NodeSample, node: str = "n1") -> Received:
    return Received(None, f"agent.{node}", Report(node, "boot", 1, clock_s=0.0, term=1, sample=sample, vms=()))


def use(node: str, from_s: float, cpu_frac: float = 0.5, readings: int = 60, span_s: float = FINE_S) -> NodeUse:
    return NodeUse(node, from_s, span_s, readings, cpu_frac, cpu_frac, 0.0, 1.0, 10.0, 10.0, 0.0, 5.0, 2.0, 1, 2, 3, 4)


# --- gathering ---------------------------------------------------------------------------------------------------


def test_what_passes_through_the_shell_is_gathered_once() -> None:
    history = History()
    happened = Happened(5.0, "decided", "1", 1, "2 changes")
    history.effect(Publish(topology.EVENTS, "decided", happened), 5.0)
    history.effect(order(to_node="n2"), 6.0)
    history.effect(Acknowledge(3), 6.0)
    history.input(result(), 8.0)
    history.input(TimerFired("settle"), 8.0)

    batch = history.take(9.0)

    sent = ActionEntry("1-1", 6.0, "start", "x#0", "n1", 1, "n2", 6.0)
    answered = ActionEntry("1-1", 8.0, "start", "x#0", "n1", 1, None, None, 8.0, "ok", "")
    assert batch == Batch((happened,), (sent, answered), ())
    assert not history.take(9.0)


def test_what_could_not_be_stored_comes_again_before_the_rest() -> None:
    history = History()
    first, second = Happened(1.0, "a", "x"), Happened(2.0, "b", "x")
    history.effect(Publish(topology.EVENTS, "a", first), 1.0)
    history.input(report(NodeSample(cpu_frac=0.5)), 1.0)
    batch = history.take(math.inf)
    history.give_back(batch)
    history.effect(Publish(topology.EVENTS, "b", second), 2.0)

    again = history.take(math.inf)

    assert again.events == (first, second)
    assert again.uses == batch.uses
    assert len(batch.uses) == 1


@pytest.mark.full
def test_a_store_that_is_long_away_costs_bounded_memory() -> None:
    history = History()
    for number in range(PENDING_MAX + 5):
        history.effect(Publish(topology.EVENTS, "a", Happened(float(number), "a", "x")), 0.0)

    assert history.dropped == 5
    assert [event.at_s for event in history.take(0.0).events[:1]] == [5.0]


def test_samples_become_one_row_per_five_minutes() -> None:
    book = SampleBook()
    for number in range(60):
        sample = NodeSample(
            cpu_frac=0.25 if number % 2 else 0.75, memory_used_mib=100.0 + number, disk_free_mib=500.0 - number
        )
        book.add(
            "n1", structs.replace(sample, disk_busy_s=10.0 + number, net_rx_bytes=1000 * number), 300.0 + 5 * number
        )

    assert book.take(599.0) == ()
    (row,) = book.take(600.0)

    assert (row.node, row.from_s, row.span_s, row.readings) == ("n1", 300.0, 300.0, 60)
    assert [row.cpu_frac, row.cpu_frac_max] == pytest.approx([0.5, 0.75])
    assert [row.memory_used_mib, row.memory_used_mib_max] == pytest.approx([129.5, 159.0])
    assert [row.disk_free_mib_min, row.disk_busy_s, row.net_rx_bytes] == pytest.approx([441.0, 59.0, 59_000])


def test_a_counter_that_begins_anew_adds_what_it_shows() -> None:
    book = SampleBook()
    for at, busy_s in enumerate((100.0, 110.0, 4.0)):
        book.add("n1", NodeSample(disk_busy_s=busy_s), float(at))

    assert book.take(math.inf)[0].disk_busy_s == pytest.approx(14.0)


def test_merging_in_any_order_is_merging_at_once() -> None:
    rng = random.Random(7)
    for _ in range(50):
        parts = [use("n1", at * FINE_S, rng.random(), rng.randint(1, 60)) for at in range(6)]
        whole = merge(parts, 0.0, COARSE_S)
        cut = rng.randint(1, 5)
        halves = (merge(parts[cut:], 0.0, COARSE_S), merge(reversed(parts[:cut]), 0.0, COARSE_S))
        again = merge(halves, 0.0, COARSE_S)
        assert again.cpu_frac == pytest.approx(whole.cpu_frac)
        assert again.cpu_frac == pytest.approx(
            sum(part.cpu_frac * part.readings for part in parts) / sum(part.readings for part in parts)
        )
        assert (again.cpu_frac_max, again.readings, again.disk_busy_s) == (
            whole.cpu_frac_max,
            whole.readings,
            whole.disk_busy_s,
        )


# --- storing -----------------------------------------------------------------------------------------------------


def test_events_are_read_newest_first(store: SqlStore) -> None:
    events = [Happened(float(at), "job-completed", f"job-{at % 2}", 1, "late \0 \ud800") for at in range(6)]
    store.append(Batch(events=tuple(events[:3])))
    store.append(Batch(events=tuple(events[3:])))

    stored = [replace(event, detail="late ? ?") for event in events]
    assert store.events(2) == (stored[5], stored[4])
    assert store.events(10, "job-1") == (stored[5], stored[3], stored[1])


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_an_action_is_one_row_whichever_is_heard_first(store: SqlStore, together: bool, turned: bool) -> None:
    sent = ActionEntry("1-1", 6.0, "start", "x#0", "n1", 1, "n2", sent_s=6.0)
    answered = ActionEntry("1-1", 8.0, "start", "x#0", "n1", 1, done_s=8.0, outcome="failed", detail="why")
    repeated = replace(answered, done_s=9.0, outcome="ok", detail="")
    heard = [answered, sent, repeated] if turned else [sent, answered, repeated]
    for batch in [heard] if together else [[one] for one in heard]:
        store.append(Batch(actions=tuple(batch)))

    found = store.actions(5, "x#0")

    assert found == (ActionEntry("1-1", heard[0].at_s, "start", "x#0", "n1", 1, "n2", 6.0, 8.0, "failed", "why"),)


def test_two_controllers_in_one_slot_make_one_row(store: SqlStore) -> None:
    store.append(Batch(uses=(use("n1", 0.0, 0.2, 10), use("n2", 0.0, 0.9, 10))))
    store.append(Batch(uses=(use("n1", 0.0, 0.8, 30),)))

    (row,) = store.samples("n1", 0.0, 300.0)

    assert [row.readings, row.cpu_frac, row.cpu_frac_max] == pytest.approx([40, 0.65, 0.8])
    assert store.samples("n2", 0.0, 300.0) == (use("n2", 0.0, 0.9, 10),)


def test_an_empty_batch_does_not_even_ask_the_store(tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "missing.db"))) as missing:
        missing.append(Batch())


# --- forgetting --------------------------------------------------------------------------------------------------


def test_what_is_old_goes_and_what_is_young_or_needed_stays(store: SqlStore) -> None:
    old_s, young_s = NOW_S - 31 * DAY_S, NOW_S - 29 * DAY_S
    still_there = replace(
        job_record("still-there", 4, JobPhase.CANCELLED, old_s), instances=job_record("any").instances
    )
    kept = (
        job_record("young", 1, JobPhase.COMPLETED, young_s),
        job_record("running", 2),
        still_there,
    )
    store.write(1, (*kept, job_record("old", 3, JobPhase.COMPLETED, old_s)))
    store.write(1, tuple(decision_record(number, NOW_S - 100 * DAY_S) for number in (1, 2, 3)))
    store.append(Batch(events=tuple(Happened(at_s, "leading", "a") for at_s in (old_s, young_s))))
    store.append(
        Batch(actions=tuple(ActionEntry(f"{at_s}", at_s, "start", "x#0", "n1", 1) for at_s in (old_s, young_s)))
    )

    pruned = store.prune(Retention())

    assert (pruned.events, pruned.actions, pruned.decisions, pruned.jobs) == (1, 1, 2, 1)
    assert set(store.take_lead("b").image) == {*kept, decision_record(3, NOW_S - 100 * DAY_S)}
    assert [event.at_s for event in store.events(5)] == [young_s]
    assert [entry.at_s for entry in store.actions(5)] == [young_s]


@pytest.mark.parametrize(("kept_mib", "left"), [(1.0, 100), (0.049, 4), (1e-9, 1), (0.0, 150), (1e9, 150)])
def test_of_snapshots_that_are_too_many_the_oldest_go(
    store: SqlStore, tmp_path: Path, kept_mib: float, left: int
) -> None:
    """Given 150 of a hundredth of a MiB, when fewer are to be kept, then the newest stay, and one in any case."""
    body = bytes(MIB // 100)
    store.append(Batch(snapshots=tuple(SnapshotEntry(number, NOW_S, 1, body) for number in range(1, 151))))
    keep = Retention(snapshots_mib=kept_mib)

    gone = counted(store.bound_steps(keep)).snapshots

    assert (gone, counted(store.bound_steps(keep)).snapshots) == (150 - left, 0)
    with closing(reading(sqlite_url(tmp_path / "store.db"))) as history:
        rows = history.snapshots(0.0, 2 * NOW_S, 200)
    assert [row.number for row in rows] == list(range(150, 150 - left, -1))


def test_pruning_counts_the_snapshots_that_are_too_old_and_too_many(store: SqlStore) -> None:
    times_s = (NOW_S - 31 * DAY_S, NOW_S - 2.0, NOW_S - 1.0, NOW_S)
    store.append(
        Batch(snapshots=tuple(SnapshotEntry(at, at_s, 1, bytes(MIB // 100)) for at, at_s in enumerate(times_s)))
    )

    assert store.prune(Retention(snapshots_mib=0.02)).snapshots == 2


def test_thousands_go_in_steps(store: SqlStore) -> None:
    count = 2 * STEP_ROWS + 7
    store.append(Batch(events=tuple(Happened(float(at), "leading", "a") for at in range(count))))
    store.append(Batch(uses=tuple(use("n1", at * FINE_S) for at in range(STEP_ROWS + 3))))

    pruned = store.prune(Retention())

    assert (pruned.events, pruned.samples) == (count, STEP_ROWS + 3)
    assert store.events(1) == ()


def test_a_slow_store_has_shorter_steps_and_what_is_written_between_them_stays(store: SqlStore) -> None:
    """Given a store that takes 10 ms for each row, when 300 old rows go, then no step takes more than 0.5 s, the later
    ones a tenth, and whatever is written meanwhile is there."""
    store.append(Batch(events=tuple(Happened(float(at), "leading", "a") for at in range(300))))
    gone = 0

    def monotonic_s() -> float:
        return 0.01 * (300 - sum(event.subject == "a" for event in store.events(1000)))

    steps = []
    for at, (_, rows) in enumerate(Pruner(store.writing, store.reading, Retention(), NOW_S, monotonic_s).steps()):
        steps.append(rows)
        gone += rows
        store.append(Batch(events=(Happened(NOW_S + at, "leading", "b"),)))

    assert gone == 300
    assert max(steps) <= 50
    assert sum(rows > 10 for rows in steps) <= 4
    assert len(store.events(1000)) == len(steps)


def test_samples_of_many_nodes_become_hourly_in_parts(store: SqlStore) -> None:
    """Given an hour of more nodes than a step takes, and others long before and after, then all become hourly."""
    names = [f"n{number:03}" for number in range(2 * STEP_NODES + 50)]
    times_s = [NOW_S - days * DAY_S for days in (399, 40, 39, 8)]
    for from_s in times_s:
        store.append(Batch(uses=tuple(use(name, from_s + at * FINE_S) for at in range(2) for name in names)))

    assert store.prune(Retention()).samples_thinned == 2 * len(names) * len(times_s)
    assert store.prune(Retention()).samples_thinned == 0
    for name in (names[0], names[-1]):
        assert [row.from_s for row in store.samples(name, 0.0, NOW_S)] == times_s


def test_samples_become_hourly_after_a_week(store: SqlStore) -> None:
    hours_s = [NOW_S - days * DAY_S for days in (9, 8)]
    for from_s in hours_s:
        store.append(
            Batch(uses=tuple(use(node, from_s + at * FINE_S, at / 12) for at in range(12) for node in ("n1", "n2")))
        )
    week_s = NOW_S - 7 * DAY_S
    fresh = [use("n1", week_s + at * FINE_S) for at in range(3)]
    store.append(Batch(uses=tuple(fresh)))

    pruned = store.prune(Retention())
    again = store.prune(Retention())

    assert (pruned.samples_thinned, again.samples_thinned, pruned.samples) == (48, 0, 0)
    rows = store.samples("n1", 0.0, NOW_S)
    assert [(row.from_s, row.span_s, row.readings) for row in rows[:2]] == [(at_s, 3600.0, 720) for at_s in hours_s]
    assert rows[0].cpu_frac == pytest.approx(5.5 / 12)
    assert rows[0].cpu_frac_max == pytest.approx(11 / 12)
    assert rows[2:] == tuple(fresh)


def test_what_comes_late_into_an_hour_is_added_to_it(store: SqlStore) -> None:
    from_s = NOW_S - 9 * DAY_S
    store.append(Batch(uses=tuple(use("n1", from_s + at * FINE_S, 0.5) for at in range(4))))
    store.prune(Retention())
    store.append(Batch(uses=(use("n1", from_s + 6 * FINE_S, 1.0),)))

    assert store.prune(Retention()).samples_thinned == 1

    (row,) = store.samples("n1", 0.0, NOW_S)
    assert [row.span_s, row.readings, row.cpu_frac] == pytest.approx([3600.0, 300, 0.6])


@pytest.mark.parametrize("wrong", [{"jobs_days": -1.0}, {"events_days": math.nan}, {"fine_samples_days": 401.0}])
def test_impossible_retention_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        Retention(**wrong)


@pytest.mark.full
def test_old_leads_are_forgotten_but_not_the_term(store: SqlStore) -> None:
    for _ in range(1005):
        store.take_lead("a")

    store.prune(Retention())

    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*), max(term) FROM terms").one() == (1000, 1006)
    assert store.take_lead("b").term == 1007
