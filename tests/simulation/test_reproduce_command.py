"""`trimtab sim reproduce`: rows, pictures, wrong use, and claims that do not hold."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from daemons.capacity.process_pool import Work, run_all
from daemons.cli.main import main
from shared.base.errors import InvalidInput, Problem
from sim_backend.commands.reproduce import command_of
from sim_backend.experiments import catalogue
from sim_backend.experiments.experiment import Experiment, Paper, Row, within

KEYS = {"id", "what", "paper", "ours", "holds", "why"}


def run(*arguments: str, command: click.Command = main) -> Any:
    """What the command printed and how it ended."""
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.accept
def test_experiment_one_as_json(tmp_path: Path) -> None:
    """Rows with the agreed keys, the table of every cycle, and the pictures."""
    outcome = run(
        *("sim", "reproduce", "apc", "--experiment", "1", "--plots", str(tmp_path / "new")), "--output", "json"
    )
    assert outcome.exit_code == 0, outcome.output
    values = json.loads(outcome.stdout)
    assert set(values) == {"paper", "rows", "tables", "pictures", "wall_s"}
    assert values["paper"] == "apc"
    assert all(set(row) == KEYS for row in values["rows"])
    assert {row["holds"] for row in values["rows"]} == {True, None}
    assert set(values["tables"]) == {"Experiment One, S1", "Experiment One, S2"}
    drawn = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert drawn == ["apc-figure-1.png", "apc-figure-2.png", "apc-figure-5.png"]
    assert sorted(Path(path).name for path in values["pictures"]) == drawn


@pytest.mark.accept
def test_experiment_one_for_people() -> None:
    """The same as tables."""
    outcome = run("sim", "reproduce", "apc", "--experiment", "1")
    assert outcome.exit_code == 0
    assert "Experiment One, S2" in outcome.stdout
    assert "10 of 10 claims hold" in outcome.stdout


@pytest.mark.parametrize(
    "arguments",
    [("nobody",), ("apc", "--experiment", "6"), ("apc", "--seeds", "0"), ("apc", "--seeds", "x")],
)
def test_wrong_use(arguments: Sequence[str]) -> None:
    """Exit status 2, and no traceback."""
    outcome = run("sim", "reproduce", *arguments)
    assert outcome.exit_code == 2
    assert "Traceback" not in outcome.output


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Given a file in its place, then exit status 2 before anything is played."""
    (tmp_path / "file").write_text("")
    outcome = run("sim", "reproduce", "apc", "--plots", str(tmp_path / "file" / "folder"))
    assert outcome.exit_code == 2
    assert "--plots" in outcome.output


def double(value: int) -> int:
    """Work for the pool."""
    return 2 * value


def _paper() -> Paper:
    def work(seeds: int) -> list[Work]:
        return [(double, (seed,)) for seed in range(seeds)]

    def rows(results: Sequence[int]) -> list[Row]:
        values = [float(value) for value in results]
        return [
            within("small", "never above 2", 1.0, values, 0.0, 2.0),
            Row("unknown", "nothing to judge", None, math.nan),
        ]

    def draw(results: Sequence[int], folder: Path) -> list[Path]:
        raise AssertionError(f"no pictures of {results} were asked for in {folder}")

    return Paper("toy", "A paper", {"a": Experiment("", work, rows, draw)})


@pytest.mark.accept
def test_a_claim_that_does_not_hold_is_told_and_no_error() -> None:
    """Given values 0, 2, 4 where 2 is the most, then the row says no, with the spread, and the exit status is 0."""
    outcome = run("--seeds", "3", "--output", "json", command=command_of(_paper()))
    assert outcome.exit_code == 0, outcome.output
    first, second = json.loads(outcome.stdout)["rows"]
    assert (first["ours"], first["holds"]) == (2.0, False)
    assert first["why"] == "0 to 4 in 3 runs; asked for 0 to 2"
    assert (second["ours"], second["holds"]) == (None, None)


@pytest.mark.accept
def test_a_claim_that_does_not_hold_is_told_to_people() -> None:
    assert "0 of 1 claims hold" in run("--seeds", "3", command=command_of(_paper())).stdout


@pytest.mark.accept
def test_the_pool_keeps_the_order() -> None:
    """With one process and with two; and it tells how far it is."""
    work: list[Work] = [(double, (value,)) for value in range(7)]
    told: list[int] = []
    assert run_all(work, 1, told.append) == run_all(work, 2) == [0, 2, 4, 6, 8, 10, 12]
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert run_all([]) == []


def test_what_fails_in_the_pool_is_raised() -> None:
    """Given work that cannot be done, then its error comes out, from one process and from two."""
    for workers in (1, 2):
        with pytest.raises(TypeError):
            run_all([(double, ("a", "b")), (double, (1,))], workers)


def test_all_papers_and_one_without_its_data() -> None:
    """Given a paper whose data are not there between others, when all are played, then the others' rows are there under
    their names, and one row says what is missing."""

    def lacks(seeds: int) -> list[Work]:
        del seeds
        raise InvalidInput(Problem("TRIMTAB_DATA", "is not set", "the folder of the data"))

    good = _paper()
    poor = Paper("poor", "Without data", {"a": replace(good.experiments["a"], work=lacks)})
    found = catalogue.reproduce_all([poor, good], 2, workers=1)
    assert [(row.id, row.holds) for row in found.rows] == [("poor:", None), ("toy:small", True), ("toy:unknown", None)]
    assert "TRIMTAB_DATA" in found.rows[0].why
    assert found.to_json()["paper"] == "all"


def test_all_is_a_command() -> None:
    assert "every paper" in run("sim", "reproduce", "all", "--help").output
