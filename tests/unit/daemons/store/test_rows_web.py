"""Web applications and predictions in the store, and a store that an earlier version made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

import daemons.store.migrations
from daemons.store import SqlStore
from daemons.store.bodies import to_body
from daemons.store.schema import SCHEMA
from daemons.store.sql import GAINS_PER_ITEM, IMAGE_ITEMS_MAX
from daemons.values.records.cluster import Deleted, FlowFactor, FlowWork, Gain, WebRecord, WorkWindow
from shared.base.errors import InvalidInput
from shared.values.jobs import Rules
from shared.values.web_app import Flow, ModelForm, WebApp
from tests.support.store_samples import CONTROL, decision_record, job_record, node_record, sqlite_url

APP = WebApp(
    "shop",
    (
        Flow("browse", mean_s=0.2, model=ModelForm.MULTI_SERVER),
        Flow("buy", percentile=0.95, percentile_s=1.5, work_mcycles=7.5),
        Flow("feed", throughput_per_s=10.0),
    ),
    2048,
    max_mhz=3900.0,
    min_instances=1,
    max_instances=4,
    metrics_url="http://lb/metrics",
    rules=Rules(node_anti_affinity=("n1",), anti_affinity="db", no_migration=True),
)
WINDOWS = tuple(
    WorkWindow(60.0 + at, 1e6 * at, 3, (FlowWork("browse", 100 * at), FlowWork("buy", at))) for at in range(64)
)
FACTORS = (FlowFactor("browse", -31.5, 0.25, 240.0), FlowFactor("buy", 0.0, 0.0, 120.0))
RECORD = WebRecord(APP, "request", 7, accepted_s=100.0, removed=False, windows=WINDOWS, factors=FACTORS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_an_application_comes_back_as_it_was_stored(path: Path) -> None:
    with closing(SqlStore(sqlite_url(path))) as store:
        term = store.take_lead("a").term
        store.write(term, (RECORD, job_record("shop")))
        store.write(term, (replace(RECORD, removed=True),))
        image = store.take_lead("b")
        assert set(image.image) == {replace(RECORD, removed=True), job_record("shop")}
        store.write(image.term, (Deleted(RECORD.key),))
        assert store.take_lead("c").image == (job_record("shop"),)


def test_a_store_of_the_first_version_is_brought_up_to_date_and_loads(path: Path) -> None:
    """Given tables of version 1 with a node, a job and a decision, then these are all there after an upgrade."""
    first = (CONTROL, node_record("n1"), job_record("x"), decision_record(4))
    engine = create_engine(f"sqlite:///{path}")
    config = Config()
    config.set_main_option("script_location", str(Path(*daemons.store.migrations.__path__)))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "1")
    engine.dispose()
    control, node, job, decision = (to_body(record) for record in first)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("INSERT INTO control VALUES ('', 1, ?)", (control,))
        raw.execute("INSERT INTO nodes VALUES ('n1', 'in-service', 'boot-1', 0, 4, 16384, ?)", (node,))
        raw.execute("INSERT INTO jobs VALUES ('x','running',0,0,'r',1,100.0,5001.0,NULL,1,4096,1,3,?)", (job,))
        raw.execute("INSERT INTO decisions VALUES (4, 0.0, 1, 'first-fit', 1, 1, 0, 0, ?)", (decision,))
        raw.commit()
    with closing(SqlStore(sqlite_url(path))) as store:
        with pytest.raises(InvalidInput, match="trimtab store upgrade"):
            store.take_lead("a")
        assert store.upgrade() == (1, SCHEMA)
        assert store.take_lead("a").image == first


@pytest.mark.full
def test_predictions_count_in_what_a_new_leader_is_given(path: Path) -> None:
    """Decisions on thousands of workloads are few in the image, so that taking over stays quick."""
    gains = tuple(Gain(f"job-{at}", 0.5, 0.5, 0.5) for at in range(5_000))
    with closing(SqlStore(sqlite_url(path))) as store:
        term = store.take_lead("a").term
        store.write(term, tuple(replace(decision_record(number), gains=gains) for number in range(1, 21)))
        image = store.take_lead("b").image
    assert [record.number for record in image][-1] == 20
    assert len(image) == IMAGE_ITEMS_MAX // (len(gains) // GAINS_PER_ITEM + 2)
