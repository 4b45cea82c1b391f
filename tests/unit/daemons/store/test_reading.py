"""The history, read: spans, filters and limits, figures, and a store that is left as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from daemons.store import ActionEntry, Batch, Retention, SqlStore
from daemons.store.reading import Reading, reading
from daemons.store.reading_rows import ActionFigures, JobFigures, NodeStep
from daemons.store.retention import DAY_S
from daemons.store.samples import merge
from daemons.store.schema import audit, notifications, snapshots
from daemons.values.records.cluster import CostRecord, Gain, Provisioned
from shared.base.clock import ManualClock
from shared.base.errors import InvalidValue, StoreUnavailable
from shared.policy_api.decision import Reason, ReasonCode
from shared.protocol.messages import Happened
from shared.values.jobs import JobPhase
from tests.support.store_samples import decision_record, job_record, made_url, node_record, sqlite_url
from tests.unit.daemons.store.test_history import use

NOW_S = 500 * DAY_S


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a little of everything."""
    made = made_url(tmp_path_factory.mktemp("reading") / "store.db")
    with closing(SqlStore(made, ManualClock(NOW_S))) as store:
        term = store.take_lead("a").term
        store.append(
            Batch(events=tuple(Happened(at_s, what, f"s{at_s:g}") for at_s in (1.0, 2.0, 3.0) for what in ("x", "y")))
        )
        store.append(Batch(actions=tuple(_action(number) for number in range(100))))
        store.write(term, (node_record("n1"), _late("late", 40.0), _late("later", 60.0), _late("shop#0", 90.0)))
        store.write(term, (_late("early", -1.0), job_record("runs"), _decision(1, 900.0), _decision(2, 1_800.0)))
        store.write(
            term,
            (CostRecord(900.0, 900.0, "EUR", kwh=1.0, cost=0.5), CostRecord(1_800.0, 900.0, "EUR", kwh=2.0, cost=1.0)),
        )
        store.append(
            Batch(uses=tuple(use(name, 300.0 * slot, 0.25 * slot) for slot in range(4) for name in ("n1", "n2")))
        )
        _fill_tables(store)
    return made


def _action(number: int) -> ActionEntry:
    sent = ActionEntry(f"a{number}", 10.0 + number, "start", f"vm{number % 2}", "n1", 1, sent_s=0.0)
    return replace(sent, done_s=float(number + 1), outcome="ok", detail="") if number < 40 else sent


def _late(name: str, late_s: float) -> object:
    record = job_record("x", phase=JobPhase.COMPLETED)
    app = name.partition("#")[0] if "#" in name else ""
    record = replace(record, job=replace(record.job, name=name, app=app))
    return replace(record, finished_s=(record.job.goal_s or 0.0) + late_s)


def _decision(number: int, at_s: float) -> object:
    provisioning = Provisioned(("n1",), (), False, reason=Reason(ReasonCode.NEEDED), in_service=7)
    gains = (Gain("a", 0.0, 0.5, 1.0, 0.25), Gain("b", 0.5, 0.75, 1.0, None))
    return replace(decision_record(number, at_s, 2, 3), gains=gains, provisioning=provisioning)


def _fill_tables(store: SqlStore) -> None:
    told = {"channel": "mail", "what": "w", "subject": "s", "detail": "", "tries": 1, "error": "refused"}
    asked = {
        "via": "portal.web",
        "request": "r",
        "kind": "drain",
        "subject": "n1",
        "done": True,
        "code": "",
        "detail": "",
    }
    with store.writing() as connection:
        connection.execute(insert(snapshots), [{"number": 1, "at_s": 900.0, "term": 1, "body": b"12345"}])
        people = enumerate(("operator.jane", "user.bob"))
        rows = [{"at_s": float(at), "account": name, "why": f"100% of {name}", **asked} for at, name in people]
        connection.execute(insert(audit), rows)
        rows = [{"id": state, "at_s": 5.0, "state": state, "next_s": None, **told} for state in ("dead", "sent")]
        connection.execute(insert(notifications), rows)


@pytest.fixture
def history(url: str) -> Iterator[Reading]:
    with closing(reading(url)) as opened:
        yield opened


def test_a_span_begins_with_its_first_moment_and_ends_before_its_last(history: Reading) -> None:
    assert [(row.at_s, row.what) for row in history.events(1.0, 3.0)] == [
        (2.0, "y"),
        (2.0, "x"),
        (1.0, "y"),
        (1.0, "x"),
    ]
    assert [row.number for row in history.decisions(900.0, 1_800.0)] == [1]
    assert [cost.at_s for cost in history.costs(900.0, 1_800.0)] == [900.0]
    assert [use.from_s for use in history.node_use("n2", 300.0, 900.0, 300.0)] == [300.0, 600.0]


def test_limits_and_filters_keep_the_newest_of_what_was_asked_for(history: Reading) -> None:
    assert [row.at_s for row in history.events(0.0, 9.0, ("x",), limit=2)] == [3.0, 2.0]
    assert [row.what for row in history.events(0.0, 9.0, subject="s2")] == ["y", "x"]
    assert [row.id for row in history.actions(0.0, 999.0, vm="vm1", outcomes=("ok",), limit=2)] == ["a39", "a37"]
    assert history.actions(0.0, 999.0, node="n2") == ()
    assert history.events(0.0, 9.0, limit=0) == ()
    with pytest.raises(InvalidValue, match="limit"):
        history.events(0.0, 9.0, limit=-1)


def test_actions_have_figures_by_kind_and_outcome(history: Reading) -> None:
    """Given 40 answered actions that took 1 to 40 s, then 38 of them, 95 in 100, took at most 38 s."""
    assert history.action_figures(0.0, 999.0) == (
        ActionFigures("start", None, 60, None, None, None),
        ActionFigures("start", "ok", 40, 20.5, 38.0, 40.0),
    )
    assert [(row.what, row.count, row.first_s, row.last_s) for row in history.event_counts(0.0, 3.0)] == [
        ("x", 2, 1.0, 2.0),
        ("y", 2, 1.0, 2.0),
    ]


def test_a_decision_has_its_figures_beside_it_and_all_of_it_by_its_number(history: Reading) -> None:
    row = history.decisions(0.0, 1_000.0)[0]

    assert (row.predicted_min, row.predicted_mean, row.measured_min, row.measured_mean) == (0.5, 0.5, 0.25, 0.25)
    assert (row.now_min, row.nodes_wanted, row.gains) == (0.0, 7, 2)
    assert row.reasons == (("change", "arrival-order", 2), ("refusal", "no-memory", 3))
    found = history.decision(1)
    assert found is not None
    assert (found.number, len(found.refusals)) == (1, 3)
    assert history.decision(9) is None


def test_snapshots_are_listed_by_size_and_read_one_by_one(history: Reading) -> None:
    assert [(row.number, row.size_bytes) for row in history.snapshots(0.0, 1_000.0)] == [(1, 5)]
    assert (history.snapshot(1), history.snapshot(2)) == (b"12345", None)


def test_jobs_are_those_accepted_or_ended_in_the_span_and_no_instances(history: Reading) -> None:
    assert {row.name for row in history.jobs(100.0, 101.0)} == {"late", "later", "early", "runs"}
    assert [(row.name, row.late_s) for row in history.late_jobs(0.0, NOW_S)] == [("later", 60.0), ("late", 40.0)]
    assert history.job_figures(0.0, NOW_S) == JobFigures(4, 3, 0, 1, 2, 50.0, 60.0)
    assert history.job_figures(0.0, 1.0) == JobFigures(0, 0, 0, 0, 0, None, None)
    late = history.job("late")
    assert late is not None
    assert late.job.name == "late"


def test_the_use_of_all_nodes_is_put_together_in_steps(history: Reading) -> None:
    fine = history.use(0.0, 1_200.0, 300.0)
    coarse = history.use(300.0, 1_200.0, 600.0)

    assert [(use.from_s, use.nodes, use.cpu_frac) for use in fine] == [
        (300.0 * slot, 2, 0.25 * slot) for slot in range(4)
    ]
    assert [(use.from_s, use.span_s, use.cpu_frac, use.cpu_frac_max) for use in coarse] == [
        (300.0, 600.0, 0.375, 0.5),
        (900.0, 300.0, 0.75, 0.75),
    ]
    assert coarse[0].memory_used_mib == 20.0
    with pytest.raises(InvalidValue, match="step_s"):
        history.use(0.0, 1.0, 0.0)


def test_nodes_may_say_any_number_of_bytes(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    url = sqlite_url(tmp_path / "store.db")
    with closing(SqlStore(url, ManualClock(NOW_S))) as store, closing(reading(url)) as opened:
        store.take_lead("a")
        store.append(Batch(uses=tuple(replace(use(name, 300.0), disk_read_bytes=most) for name in ("n1", "n2"))))

        assert opened.use(0.0, 900.0, 300.0)[0].disk_read_bytes == pytest.approx(2.0 * most)


def test_the_use_of_a_node_is_put_together_in_steps(history: Reading) -> None:
    fine = history.node_use("n2", 0.0, 1_200.0, 1.0)
    coarse = history.node_use("n2", 300.0, 1_200.0, 600.0)

    assert [(use.from_s, use.span_s, use.cpu_frac) for use in fine] == [
        (300.0 * slot, 300.0, 0.25 * slot) for slot in range(4)
    ]
    assert [(use.from_s, use.span_s, use.cpu_frac, use.cpu_frac_max) for use in coarse] == [
        (300.0, 600.0, 0.375, 0.5),
        (900.0, 300.0, 0.75, 0.75),
    ]
    assert history.node_use("n3", 0.0, 1_200.0, 300.0) == ()
    with pytest.raises(InvalidValue, match="step_s"):
        history.node_use("n2", 0.0, 1.0, 0.0)


def test_a_step_of_a_node_is_what_its_parts_merge_to(tmp_path: Path) -> None:
    """SQL's means, weighted by readings, beside those of `merge`."""
    chance = random.Random(3)
    uses = [use("n1", 300.0 * slot, chance.random(), chance.randint(1, 30)) for slot in range(24)]
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(DAY_S))) as store:
        store.take_lead("a")
        store.append(Batch(uses=tuple(uses)))
        with closing(reading(sqlite_url(tmp_path / "store.db"))) as opened:
            found = opened.node_use("n1", 0.0, DAY_S, 3_600.0)

    assert len(found) == 2
    for at, each in enumerate(found):
        whole = merge(uses[12 * at : 12 * at + 12], 3_600.0 * at, 3_600.0)
        for field in fields(NodeStep):
            assert getattr(each, field.name) == pytest.approx(getattr(whole, field.name)), field.name


def test_who_asked_and_who_was_told(history: Reading) -> None:
    assert [row.account for row in history.audit(0.0, 9.0)] == ["user.bob", "operator.jane"]
    assert [row.account for row in history.audit(0.0, 9.0, text="100% OF user")] == ["user.bob"]
    assert [row.account for row in history.audit(0.0, 9.0, account="operator.jane", kind="drain")] == ["operator.jane"]
    assert history.audit(0.0, 9.0, text="100_") == ()
    assert [row.id for row in history.notifications("dead")] == ["dead"]
    assert len(history.notifications(from_s=5.0, to_s=6.0)) == 2
    assert history.notifications(from_s=6.0) == ()


def test_reading_leaves_the_store_as_it_is(url: str, history: Reading) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    before = path.read_bytes()

    assert history.kept().first_s() == 0.0
    assert [node.name for node in history.nodes()] == ["n1"]
    assert (history.web(), history.environments(), history.assurances()) == ((), (), ())

    assert path.read_bytes() == before


def test_a_store_that_is_not_there_is_said_and_not_made(tmp_path: Path) -> None:
    with (
        closing(reading(sqlite_url(tmp_path / "none.db"))) as nothing,
        pytest.raises(StoreUnavailable, match=r"none\.db"),
    ):
        nothing.events(0.0, 1.0)

    assert not (tmp_path / "none.db").exists()


def test_all_nodes_use_is_the_sum_of_the_nodes_whenever_they_came_and_outlives_them(tmp_path: Path) -> None:
    """Given samples that came in parts, in any order, and became hourly, then all nodes' five minutes are there."""
    chance = random.Random(7)
    uses = [use(f"n{node}", 300.0 * slot, chance.random()) for node in range(5) for slot in range(24)]
    shuffled = chance.sample(uses, len(uses))
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"), ManualClock(9 * DAY_S))) as store:
        store.take_lead("a")
        for at in range(0, len(shuffled), 7):
            store.append(Batch(uses=tuple(shuffled[at : at + 7])))
        assert store.prune(Retention()).samples_thinned == len(uses)
        with closing(reading(sqlite_url(tmp_path / "store.db"))) as opened:
            found = opened.use(0.0, DAY_S, 300.0)

        assert len(found) == 24
        for slot, each in enumerate(found):
            parts = [part.cpu_frac for part in uses if part.from_s == 300.0 * slot]
            assert each.cpu_frac == pytest.approx(sum(parts) / 5)
            assert each.cpu_frac_max == max(parts)
        store.prune(Retention(samples_days=1.0, fine_samples_days=0.5))
        with closing(reading(sqlite_url(tmp_path / "store.db"))) as opened:
            assert opened.use(0.0, DAY_S, 300.0) == ()
