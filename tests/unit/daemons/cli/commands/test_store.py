"""`trimtab store`: what it prints, refuses and leaves behind."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daemons.cli.commands.store import URL_VARIABLE, store
from daemons.store import Batch, SqlStore
from daemons.store.schema import SCHEMA
from shared.protocol.messages import Happened
from tests.support.store_samples import job_record, sqlite_url
from tests.unit.daemons.store.test_rows_costs import make_second_version


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = sqlite_url(tmp_path / "store.db")
    with closing(SqlStore(made)) as opened:
        opened.write(opened.take_lead("a").term, (job_record("x"),))
        opened.append(Batch(events=(Happened(5.0, "long-ago", "x"),)))
    return made


def called(*words: object, **variables: str) -> Result:
    return CliRunner().invoke(store, [str(word) for word in words], env=variables)


def shown(outcome: Result) -> dict[str, Any]:
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr == ""
    return dict(json.loads(outcome.stdout))


def test_backup_and_restore(url: str, tmp_path: Path) -> None:
    other, file = sqlite_url(tmp_path / "other.db"), tmp_path / "b.db"

    backed_up = shown(called("backup", file, "--url", url, "--output", "json"))
    restored = shown(called("restore", file, "--url", other, "--output", "json"))
    again = called("restore", file, "--url", other)
    forced = called("restore", file, "--url", other, "--force")

    assert (backed_up["file"], backed_up["rows"]["jobs"]) == (str(file), 1)
    assert restored["rows"]["jobs"] == 1
    assert (again.exit_code, forced.exit_code) == (1, 0)
    assert "only --force replaces all of it" in again.stderr
    assert "restored from" in forced.stdout


def test_prune(url: str) -> None:
    kept = shown(called("prune", "--url", url, "--events-days", 1e6, "--output", "json"))
    deleted = shown(called("prune", "--url", url, "--output", "json"))

    assert (kept["deleted"]["events"], deleted["deleted"]["events"]) == (0, 1)
    assert called("prune", "--url", url, "--jobs-days", -1).exit_code == 2
    impossible = called("prune", "--url", url, "--samples-days", 1)
    assert (impossible.exit_code, "fine_samples_days" in impossible.stderr) == (2, True)


def test_prune_keeps_as_long_as_the_configuration_says_unless_an_option_does(url: str, tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(f'[store]\nurl = "{url}"\n[store.retention]\nevents_days = 36500\n')
    words = ("prune", "--config", config, "--output", "json")

    by_file = shown(called(*words, "--actions-days", 1))
    by_option = shown(called(*words, "--events-days", 30))

    assert (by_file["deleted"]["events"], by_option["deleted"]["events"]) == (0, 1)


def test_upgrade_makes_a_store(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "new.db")

    assert shown(called("upgrade", "--url", url, "--output", "json")) == {"from": 0, "to": SCHEMA}
    assert "before" in called("upgrade", "--url", url).stdout


def test_upgrade_makes_a_backup_where_tables_change(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "old.db")
    make_second_version(url)
    words = ("upgrade", "--url", url, "--backup-folder", tmp_path, "--output", "json")

    assert shown(called(*words)) == {"from": 2, "to": SCHEMA, "backup": str(tmp_path / "version-2-1.db")}
    assert shown(called(*words)) == {"from": SCHEMA, "to": SCHEMA}
    assert called(*words[:4], tmp_path / "gone").exit_code == 2


def test_which_store_comes_from_the_configuration_the_variable_or_the_option(url: str, tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    words = ("upgrade", "--output", "json")

    assert shown(called(*words, "--config", config))["from"] == SCHEMA
    assert shown(called(*words, **{URL_VARIABLE: url}))["from"] == SCHEMA
    missing = called("upgrade", "--config", tmp_path / "gone.toml")
    assert (missing.exit_code, "gone.toml" in missing.stderr) == (2, True)


def test_mistakes_are_said_without_a_traceback(url: str, tmp_path: Path) -> None:
    mistyped = tmp_path / "mistyped.db"
    (tmp_path / "text").write_text("text")

    outcomes = [
        called("backup", tmp_path / "b.db", "--url", sqlite_url(mistyped)),
        called("backup", tmp_path / "text", "--url", url),
        called("restore", tmp_path / "text", "--url", url, "--output", "json"),
        called("prune", "--url", "mysql://x"),
    ]

    assert [outcome.exit_code for outcome in outcomes] == [1, 2, 2, 2]
    assert not any("Traceback" in outcome.output for outcome in outcomes)
    assert not mistyped.exists()
    assert json.loads(outcomes[2].stdout)["error"]["code"] == "invalid-input"
