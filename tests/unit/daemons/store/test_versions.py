"""A store that an older program made: backed up as it is, upgraded, and taken from whoever leads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemons.store import SqlStore
from daemons.store.database import UPGRADER
from daemons.store.schema import SCHEMA
from shared.base.errors import InvalidInput, StaleTerm, StoreUnavailable
from tests.support.store_samples import job_record, sqlite_url
from tests.unit.daemons.store.test_rows_costs import SECOND, make_second_version


@pytest.fixture
def older(tmp_path: Path) -> Iterator[SqlStore]:
    """A store whose tables have version 2."""
    url = sqlite_url(tmp_path / "store.db")
    make_second_version(url)
    with closing(SqlStore(url)) as opened:
        yield opened


def test_an_older_store_is_backed_up_as_it_is(older: SqlStore, tmp_path: Path) -> None:
    """Given tables of version 2, then so are the backup's, and a restore brings them up to date."""
    made = older.backup_before_upgrade(tmp_path)

    assert made == tmp_path / "version-2-1.db"
    with closing(sqlite3.connect(made)) as opened:
        assert opened.execute("SELECT version_num FROM trimtab_schema").fetchall() == [("2",)]
        assert opened.execute("SELECT name FROM jobs").fetchall() == [("x",)]
    with closing(SqlStore(sqlite_url(tmp_path / "other.db"))) as other:
        other.restore(made)
        assert other.take_lead("a").image[1:] == SECOND[1:]  # but for control: it only observes


def test_every_backup_has_a_name_of_its_own(older: SqlStore, tmp_path: Path) -> None:
    names = [older.backup_before_upgrade(tmp_path) for _ in range(2)]

    assert names == [tmp_path / "version-2-1.db", tmp_path / "version-2-2.db"]


def test_what_needs_no_upgrade_is_not_backed_up(older: SqlStore, tmp_path: Path) -> None:
    older.upgrade()

    with closing(SqlStore(sqlite_url(tmp_path / "new.db"))) as new:
        assert (older.backup_before_upgrade(tmp_path), new.backup_before_upgrade(tmp_path)) == (None, None)
    assert not list(tmp_path.glob("version-*"))


def test_a_folder_that_is_not_there_upgrades_nothing(older: SqlStore, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="gone"):
        older.backup_before_upgrade(tmp_path / "gone")

    assert older.schema() == 2


def test_an_empty_store_and_a_newer_one_are_not_backed_up(tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "empty.db"))) as store:
        store.make_file()
        with pytest.raises(InvalidInput, match="it is empty"):
            store.backup(tmp_path / "b.db")
        store.upgrade()
    with closing(sqlite3.connect(tmp_path / "empty.db")) as opened, opened:
        opened.execute(f"UPDATE trimtab_schema SET version_num = '{SCHEMA + 1}'")
    newer = SqlStore(sqlite_url(tmp_path / "empty.db"))
    with closing(newer), pytest.raises(InvalidInput, match="a newer Trimtab made it"):
        newer.backup(tmp_path / "b.db")
    assert not list(tmp_path.glob("b.db*"))


def test_an_upgrade_takes_the_lead_from_whoever_has_it(older: SqlStore, tmp_path: Path) -> None:
    """Given a controller that leads on the older tables, when they are upgraded, then it can write nothing more."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as opened, opened:
        opened.execute("UPDATE lead SET term = 7, controller = 'old'")

    assert older.upgrade() == (2, SCHEMA)

    with pytest.raises(StaleTerm, match=f"the store is at 8, held by '{UPGRADER}'"):
        older.write(7, (job_record("y"),))
    assert older.take_lead("new").term == 9


def test_an_upgrade_that_changes_nothing_leaves_the_lead(tmp_path: Path) -> None:
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"))) as store:
        term = store.take_lead("a").term
        assert store.upgrade() == (SCHEMA, SCHEMA)
        store.write(term, (job_record("y"),))
