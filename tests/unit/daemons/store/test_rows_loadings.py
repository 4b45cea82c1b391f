"""Profiles and paces in the store: a new leader has them, backups too, and older stores get room for them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

import daemons.store.migrations
from daemons.models.loading_history import CopyTime, LoadingHistory, PaceSample, ProbePart, Running, Shares
from daemons.store import SqlStore
from daemons.store.schema import SCHEMA
from daemons.values.records.cluster import LoadingRecord, PaceRecord

FULL = LoadingHistory(
    Running(9, 2_000.0, 500_000.0, (0.5, 0.25, 0.0), (1.5, 2.5, 0.0)),
    (0.0, 4.5, 0.0),
    (0.0, 0.0, 0.25),
    held=(Shares((0.5, 0.75, 0.0), 300.0),),
    copies=(CopyTime(2.0, 0.001, 4.0),),
    probes=(ProbePart("io", 0.5, 5.0),),
    measured_s=6.0,
    drifted_s=3.0,
    drifts=1,
)
KEPT = (
    LoadingRecord("compress", "", LoadingHistory()),
    LoadingRecord("compress", "big disk", FULL, 7.0),
    PaceRecord("", (PaceSample("io", 1, 250.0, 2.0), PaceSample("io", 4, 900.0, 3.0))),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_a_new_leader_has_what_was_learnt(url: str) -> None:
    """Given profiles of one class on two node types and the paces of one, then a successor reads the last ones."""
    with closing(SqlStore(url)) as store:
        term = store.take_lead("a").term
        store.write(term, (*KEPT, replace(KEPT[1], used_s=1.0), KEPT[1]))

        assert store.take_lead("b").image == KEPT


@pytest.mark.full
def test_a_backup_has_what_was_learnt(url: str, tmp_path: Path) -> None:
    with closing(SqlStore(url)) as store, closing(SqlStore(f"sqlite:///{tmp_path / 'other.db'}")) as other:
        store.write(store.take_lead("a").term, KEPT)
        counts = store.backup(tmp_path / "backup.db")
        other.restore(tmp_path / "backup.db")

        assert (counts["loadings"], counts["paces"]) == (2, 1)
        assert [each for each in other.take_lead("b").image if each in KEPT] == list(KEPT)


def test_a_store_of_the_fourth_version_is_given_room_for_profiles(url: str) -> None:
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(*daemons.store.migrations.__path__)))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "4")
    engine.dispose()
    with closing(SqlStore(url)) as store:
        assert store.upgrade() == (4, SCHEMA)
        store.write(store.take_lead("a").term, KEPT)
        assert store.take_lead("b").image == KEPT
