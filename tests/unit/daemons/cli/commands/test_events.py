"""`trimtab events`: past events, from the controller's store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.store import Batch, SqlStore
from shared.base.clock import SystemClock
from shared.protocol.messages import Happened


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with three events: a day, an hour and a minute ago."""
    made = f"sqlite:///{tmp_path}/controller.db"
    now_s = SystemClock().now_s()
    store = SqlStore(made)
    store.take_lead("a")
    ages = ((86_400.0, "old"), (3_600.0, "node-unreachable"), (60.0, "adopted-vm-off"))
    store.append(Batch(events=tuple(Happened(now_s - age_s, what, "n1", 1, "why") for age_s, what in ages)))
    store.close()
    return made


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["events", *words])
    return done.exit_code, done.output


def test_the_past_is_printed_oldest_first(url: str) -> None:
    status, said = run("--since", "2h", "--store", url)
    assert (status, [line.split("  ")[1] for line in said.splitlines()]) == (0, ["node-unreachable", "adopted-vm-off"])


def test_it_is_an_object_a_line_in_json(url: str) -> None:
    status, said = run("--since", "2d", "--store", url, "--count", "1", "--output", "json")
    assert (status, json.loads(said)["what"]) == (0, "old")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--since", "yesterday"), 2, "--since"),
        (("--since", "nan"), 2, "--since"),
        (("--since", "2026-01-01T00:00:00"), 2, "without an offset"),
    ],
)
def test_what_cannot_be_is_refused_in_words(words: tuple[str, ...], status: int, told: str, url: str) -> None:
    ended, said = run(*words, "--store", url)
    assert (ended, told in said) == (status, True), said


@pytest.fixture
def long_url(tmp_path: Path) -> str:
    """A store with 25 events, e0 to e24."""
    made = f"sqlite:///{tmp_path}/controller.db"
    store = SqlStore(made)
    store.take_lead("a")
    store.append(Batch(events=tuple(Happened(1e9 + at, "decided", f"e{at}", 1, "") for at in range(25))))
    store.close()
    return made


@pytest.mark.parametrize(("words", "first"), [((), 5), (("--count", "3"), 22), (("-o", "json"), 5)])
def test_without_a_time_the_last_events_are_printed_oldest_first(
    words: tuple[str, ...], first: int, long_url: str
) -> None:
    status, said = run("--store", long_url, *words)
    as_json = "json" in words
    subjects = [json.loads(line)["subject"] if as_json else line.split("  ")[2] for line in said.splitlines()]
    assert (status, subjects) == (0, [f"e{at}" for at in range(first, 25)])


def test_a_machine_without_the_store_is_told_what_it_can_do(tmp_path: Path) -> None:
    status, said = run("--controller", str(tmp_path / "none.toml"))
    assert status == 2
    assert "none.toml does not exist" in said
    assert "trimtab events --follow" in said
