"""`trimtab explain`: every meaning of a code, or the nearest codes."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from daemons.cli.main import main


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def test_every_meaning_of_a_code_is_printed() -> None:
    shown = explain("over-quota")

    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["over-quota (reason)", "over-quota (refusal)"]
    assert "  lifted by: Its environment has more units, or other jobs of it end." in lines
    assert "  run: trimtab jobs list" in lines


def test_meanings_in_json() -> None:
    found = json.loads(explain("alarm:node-off", "-o", "json").stdout)

    assert found["code"] == "node-off"
    (meaning,) = found["meanings"]
    assert set(meaning) == {"kind", "meaning", "action", "command", "about", "page"}
    assert (meaning["kind"], meaning["command"]) == ("alarm", "trimtab nodes remove NODE")


@pytest.mark.parametrize("status", ["0", "1", "2", "70", "75", "130", "143"])
def test_exit_statuses_are_explained(status: str) -> None:
    assert f"{status} (exit status)" in explain(status).stdout


def test_an_unknown_code_is_refused_with_the_nearest() -> None:
    refused = explain("node-unreachabel", "-o", "json")

    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["code"] == "unknown-code"
    assert "there is no code 'node-unreachabel'; nearest: node-unreachable" in refused.stderr
    assert "nearest" not in explain("xyzzy").stderr


def test_codes_are_completed() -> None:
    shell = ShellComplete(main, {}, "trimtab", "_TRIMTAB_COMPLETE")

    assert [item.value for item in shell.get_completions(["explain"], "clock")] == ["clock-good", "clock-skewed"]
