"""Windows, durations and what cycles cost in the store, and a store that the version before made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

import daemons.store.migrations
from daemons.store import Retention, SqlStore
from daemons.store.bodies import to_body
from daemons.store.retention import DAY_S
from daemons.store.schema import SCHEMA
from daemons.store.sql import COST_SPAN_S, IMAGE_COSTS_S
from daemons.values.records.cluster import CostRecord, DurationRecord, WindowRecord
from shared.base.clock import ManualClock
from shared.base.errors import InvalidInput
from tests.support.store_samples import CONTROL, decision_record, job_record, node_record, sqlite_url

NOW_S = 500 * DAY_S
DURATION = DurationRecord("exec", "big", "deploy", 3, 25.5, 1.25)
CYCLE = CostRecord(
    NOW_S,
    900.0,
    "EUR",
    kwh=1.5,
    cost=0.25,
    static_kwh=2.5,
    static_cost=0.5,
    in_service_node_s=1800.0,
    node_s=2700.0,
    node_starts=1,
    misses=2,
    penalty=3.5,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def open_store(path: Path) -> SqlStore:
    return SqlStore(sqlite_url(path), ManualClock(NOW_S))


def test_windows_and_durations_come_back_as_they_were_stored(path: Path) -> None:
    kept = (WindowRecord("night"), DURATION)
    with closing(open_store(path)) as store:
        term = store.take_lead("a").term
        store.write(term, (*kept, WindowRecord("night")))
        assert store.take_lead("b").image == kept


def test_what_cycles_cost_comes_back_with_short_cycles_put_together(path: Path) -> None:
    """Given cycles of a minute, and one in another currency, a new leader is given sums of quarter hours."""
    minutes = [replace(CYCLE, at_s=NOW_S + 60.0 * at, span_s=60.0) for at in range(30)]
    other = replace(CYCLE, at_s=NOW_S + 29.5, currency="CHF")
    with closing(open_store(path)) as store:
        term = store.take_lead("a").term
        store.write(term, (*minutes, other))
        store.write(term, (replace(minutes[0], misses=7),))  # the same cycle again
        image = store.take_lead("b").image
    assert sorted(image, key=lambda record: record.key[1]) == sorted(
        [
            replace(other),
            CostRecord(
                NOW_S,
                COST_SPAN_S,
                "EUR",
                kwh=22.5,
                cost=3.75,
                static_kwh=37.5,
                static_cost=7.5,
                in_service_node_s=27_000.0,
                node_s=40_500.0,
                node_starts=15,
                misses=35,
                penalty=52.5,
            ),
            CostRecord(
                NOW_S + COST_SPAN_S,
                COST_SPAN_S,
                "EUR",
                kwh=22.5,
                cost=3.75,
                static_kwh=37.5,
                static_cost=7.5,
                in_service_node_s=27_000.0,
                node_s=40_500.0,
                node_starts=15,
                misses=30,
                penalty=52.5,
            ),
        ],
        key=lambda record: record.key[1],
    )


def test_a_new_leader_is_given_no_more_days_than_it_shows(path: Path) -> None:
    ages_s = (0.0, IMAGE_COSTS_S - COST_SPAN_S, IMAGE_COSTS_S, IMAGE_COSTS_S + DAY_S)
    with closing(open_store(path)) as store:
        term = store.take_lead("a").term
        store.write(term, tuple(replace(CYCLE, at_s=NOW_S - age_s) for age_s in ages_s))
        assert [record.at_s for record in store.take_lead("b").image] == [NOW_S - ages_s[1], NOW_S]


def test_what_cycles_cost_is_forgotten_after_its_days(path: Path) -> None:
    with closing(open_store(path)) as store:
        term = store.take_lead("a").term
        store.write(term, tuple(replace(CYCLE, at_s=NOW_S - days * DAY_S) for days in (0.0, 9.0, 11.0, 12.0)))
        assert store.prune(Retention(costs_days=10.0)).costs == 2
        assert store.prune(Retention(costs_days=10.0)).costs == 0
        assert len(store.take_lead("b").image) == 2


def test_a_backup_has_everything_and_is_restored(path: Path, tmp_path: Path) -> None:
    kept = (WindowRecord("night"), DURATION, CYCLE)
    with closing(open_store(path)) as store, closing(open_store(tmp_path / "other.db")) as other:
        store.write(store.take_lead("a").term, kept)
        counts = store.backup(tmp_path / "backup.db")
        assert (counts["windows"], counts["durations"], counts["costs"]) == (1, 1, 1)
        other.restore(tmp_path / "backup.db")
        assert other.take_lead("b").image[-3:] == kept


def make_second_version(url: str) -> None:
    """The tables of version 2 with a node, a job and a decision in them."""
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(*daemons.store.migrations.__path__)))
    control, node, job, decision = (to_body(record) for record in SECOND)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "2")
        for row, body in (
            ("control VALUES ('', true, :body)", control),
            ("nodes VALUES ('n1', 'in-service', 'boot-1', false, 4, 16384, :body)", node),
            ("jobs VALUES ('x','running',false,false,'r',1,100.0,5001.0,NULL,1,4096,1,3,:body)", job),
            ("decisions VALUES (4, 0.0, 1, 'first-fit', 1, 1, 0, 0, :body, 0)", decision),
        ):
            columns = ""
            if row.startswith("decisions"):
                columns = "(number, at_s, term, policy, changes, refusals, dropped, held, body, gains)"
            table, values = row.split(" ", 1)
            connection.execute(text(f"INSERT INTO {table} {columns} {values}"), {"body": body})
    engine.dispose()


SECOND = (CONTROL, node_record("n1"), job_record("x"), decision_record(4))


def test_a_store_of_the_second_version_is_brought_up_to_date_and_loads(path: Path) -> None:
    """Given tables of version 2, then what is in them is all there after an upgrade, and there is room for costs."""
    make_second_version(f"sqlite:///{path}")
    with closing(open_store(path)) as store:
        with pytest.raises(InvalidInput, match="trimtab store upgrade"):
            store.take_lead("a")
        assert store.upgrade() == (2, SCHEMA)
        lead = store.take_lead("a")
        assert lead.image == SECOND
        store.write(lead.term, (CYCLE,))
        assert store.take_lead("b").image == (*SECOND, CYCLE)


def test_what_cycles_cost_can_be_asked_for_in_sql(path: Path) -> None:
    with closing(open_store(path)) as store:
        store.write(store.take_lead("a").term, (CYCLE,))
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT kwh, cost, static_cost, currency FROM costs").fetchone() == (1.5, 0.25, 0.5, "EUR")
