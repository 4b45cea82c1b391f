"""`trimtab demo` as a command: it starts without a word, and fails clearly where no demo runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from daemons.cli.main import main
from sim_backend.demo.command import default_folder, short
from sim_backend.demo.layout import Layout


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["demo", *words])


def test_without_a_command_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thesis.txt").touch()
    monkeypatch.setenv("TRIMTAB_DEMO_FOLDER", str(tmp_path))

    assert "has other files" in run().stderr
    assert "has other files" in run("--hosts", "3").stderr


def test_help_is_of_the_group() -> None:
    assert "kill-host" in run("--help").output


@pytest.mark.parametrize("words", [("stop",), ("status",), ("kill-host", "host1"), ("start-host", "host1")])
def test_no_demo_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run(*words, "--folder", str(tmp_path), "--output", "json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == "no-demo"


def test_stop_removes_what_a_killed_demo_has_left(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "demo")
    os.close(layout.take())
    layout.write()

    result = run("stop", "--folder", str(layout.folder))

    assert result.exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_start_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()

    result = run("--folder", str(tmp_path))

    assert (result.exit_code, "has other files" in result.stderr) == (2, True)


@pytest.mark.parametrize("words", [("--hosts", "0"), ("--hosts", "51"), ("--port", "0"), ("--port", "65536")])
def test_numbers_out_of_range_are_refused(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.parametrize(
    ("state", "folder"),
    [
        ("", "~/.local/state/trimtab/demo"),
        ("relative", "~/.local/state/trimtab/demo"),
        ("/run/x", "/run/x/trimtab/demo"),
    ],
)
def test_where_a_demo_lies(monkeypatch: pytest.MonkeyPatch, state: str, folder: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)

    assert short(default_folder()) == folder
