"""Environments in the store, and a store that the version before them made."""

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
from daemons.controller.state.environment import EnvironmentEntry
from daemons.store import Retention, SqlStore
from daemons.store.bodies import to_body
from daemons.store.retention import DAY_S
from daemons.store.schema import SCHEMA
from shared.base.clock import ManualClock
from shared.base.errors import InvalidInput
from shared.values.agreement import EnvironmentState, Granularity, Scheduling, VmTemplate
from shared.values.nodes import Handover
from tests.support.environment_cases import agreement, environment_record
from tests.support.store_samples import CONTROL, node_record, sqlite_url

NODE = node_record("n1")
FULL = environment_record(
    agreement=agreement(
        "shop",
        "web",
        2,
        upper=5,
        granularity=Granularity.VM,
        template=VmTemplate("small", 2, 2048, 2400.0),
        scheduling=Scheduling("apc", {"tolerance": 0.5, "order": ["a", {"b": 1}]}),
        users=("bob",),
    ),
    state=EnvironmentState.CREATED,
    detail="waits for n3",
    consents=("batch", "other"),
    partner="batch",
    parts_s=7200.5,
    size=3,
    started_s=1.0,
    provisioned_s=2.0,
    managed_s=3.0,
    adjustments=4,
    killed=5,
    suspended=6,
    lost_node_hours=7.25,
    setups=8,
    offered="other",
    declined=("third",),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_an_environment_comes_back_as_it_was_stored(path: Path) -> None:
    """Given a record with every field set, then a new leader reads it, and the entry made of it makes it again."""
    node = replace(NODE, environment="shop", given="batch", handover=Handover.RELEASING, setup_request="s1")
    with closing(SqlStore(sqlite_url(path))) as store:
        store.write(store.take_lead("a").term, (FULL, node))
        image = store.take_lead("b").image
    assert image == (node, FULL)
    assert EnvironmentEntry.of(FULL).record() == FULL


def test_environments_can_be_asked_for_in_sql(path: Path) -> None:
    ended = environment_record("old", state=EnvironmentState.DESTROYED, ended_s=50.0)
    with closing(SqlStore(sqlite_url(path))) as store:
        store.write(store.take_lead("a").term, (FULL, ended))
    with closing(sqlite3.connect(path)) as opened:
        rows = opened.execute("SELECT name, owner, state, ended_s FROM environments ORDER BY name").fetchall()
    assert rows == [("old", "anna", "destroyed", 50.0), ("shop", "anna", "created", None)]


def test_destroyed_environments_are_kept_as_long_as_jobs(path: Path) -> None:
    clock = ManualClock(100 * DAY_S)
    ended = [
        environment_record(name, state=EnvironmentState.DESTROYED, ended_s=at_s * DAY_S)
        for name, at_s in (("old", 69.0), ("new", 71.0))
    ]
    with closing(SqlStore(sqlite_url(path), clock)) as store:
        store.write(store.take_lead("a").term, (environment_record("living"), *ended))
        assert store.prune(Retention(jobs_days=30.0)).environments == 1
        assert [record.agreement.name for record in store.take_lead("b").image] == ["living", "new"]


def test_a_store_of_the_third_version_is_brought_up_to_date_and_loads(path: Path) -> None:
    """Given tables of version 3 with a node in them, then after an upgrade the node is there, settled with nobody, and
    there is room for environments."""
    engine = create_engine(sqlite_url(path))
    config = Config()
    config.set_main_option("script_location", str(Path(*daemons.store.migrations.__path__)))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "3")
        rows = (
            ("control VALUES ('', true, :body)", CONTROL),
            ("nodes VALUES ('n1', 'in-service', 'boot-1', false, 4, 16384, :body)", NODE),
        )
        for row, record in rows:
            connection.execute(text(f"INSERT INTO {row}"), {"body": to_body(record)})
    engine.dispose()
    with closing(SqlStore(sqlite_url(path))) as store:
        with pytest.raises(InvalidInput, match="trimtab store upgrade"):
            store.take_lead("a")
        assert store.upgrade() == (3, SCHEMA)
        lead = store.take_lead("a")
        assert lead.image == (CONTROL, NODE)
        assert (lead.image[1].given, lead.image[1].handover) == ("", Handover.SETTLED)
        store.write(lead.term, (FULL,))
        assert store.take_lead("b").image == (CONTROL, NODE, FULL)


def test_a_backup_has_environments_and_is_restored(path: Path, tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(path))) as store, closing(SqlStore(sqlite_url(tmp_path / "other.db"))) as other:
        store.write(store.take_lead("a").term, (FULL,))
        assert store.backup(tmp_path / "backup.db")["environments"] == 1
        other.restore(tmp_path / "backup.db")
        assert FULL in other.take_lead("b").image
