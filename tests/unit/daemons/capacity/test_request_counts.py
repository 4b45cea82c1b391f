"""`trimtab sim demand`: a series of instances from counts of requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.request_counts import by_hour, by_minute
from daemons.cli.main import main
from daemons.models.adjustment import adjusted


def ran(*words: object, status: int = 0) -> str:
    outcome = CliRunner().invoke(main, ["sim", "demand", *map(str, words)])
    assert outcome.exit_code == status, outcome.output
    return outcome.stdout


@pytest.mark.parametrize(("step", "series"), [("hour", "hourly"), ("minute", "minute")])
def test_the_demand_of_figure_9(step: str, series: str, data_folder: Path) -> None:
    """Given the real requests, then both series of 64 VMs come out as they are published beside them, row by row."""
    folder = data_folder / "worldcup98"
    words = ("--start", "1998-06-06T22:00Z", "--window", 1_209_600, "--step", step)
    made = ran(folder / "requests_per_minute.csv.gz", *words)
    assert made.splitlines() == (folder / f"ws_demand_{series}_64vm.csv").read_text("utf-8").splitlines()


def test_hours() -> None:
    """Given a load of a quarter, of nothing, and of all in the busiest hour, then as much of the peak, at least one."""
    assert by_hour([100.0] * 60 + [0.0] * 60 + [400.0] * 60 + [399.0] * 30, 4) == [(0.0, 1), (7_200.0, 4)]


def test_minutes() -> None:
    """Given a minute of no load, then of all, then of none again, then one instance more or less every 20 s."""
    made = by_minute([0.0, 900.0, 900.0, 0.0, 0.0], 4, adjusted)
    assert made == [(0.0, 2), (20.0, 1), (80.0, 2), (100.0, 3), (120.0, 4), (200.0, 3), (220.0, 2), (240.0, 1)]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """Given seconds and gaps, then what comes out can be read as a demand."""
    file, made = tmp_path / "requests.csv", tmp_path / "demand.csv"
    file.write_text("t_s,bytes,requests\n3600,1,50\n3660,1,10\n10800,1,100\n", "utf-8")
    rows = json.loads(ran(file, "--peak", 2, "--output", "json"))["rows"]
    assert rows == [{"t_s": 0.0, "vms": 1}, {"t_s": 7_200.0, "vms": 2}]
    made.write_text(ran(file, "--peak", 2, "--start", "1970-01-01T00:00"), "utf-8")
    demand = read_steps(made, 1.0)
    assert (demand.times_s, demand.nodes) == ([0.0, 10_800.0], [1, 2])


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("t_s,hits\n0,1\n", ":1", "columns"),
        ("t_s,requests\n0,1\n60\n", ":3", "1 columns"),
        ("t_s,requests\nnoon,1\n", ":2", "the time is 'noon'"),
        ("t_s,requests\n0,-1\n", ":2", "requests is '-1'"),
        ("t_s,requests\n0,1\n0,1\n", ":3", "not later"),
        ("t_s,requests\n0,1\n90,1\n", ":3", "not at a whole minute"),
        ("t_s,requests\n0,0\n", "", "no request"),
    ],
)
def test_what_cannot_be_read(text: str, where: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(text, "utf-8")
    (problem,) = json.loads(ran(file, "--output", "json", status=2))["error"]["problems"]
    assert (problem["where"], what in problem["what"]) == (f"{file}{where}", True)


def test_wrong_words(tmp_path: Path) -> None:
    ran(tmp_path / "none.csv", status=2)
    ran(tmp_path / "none.csv", "--start", "noon", status=2)
    ran(tmp_path / "none.csv", "--window", 1e10, status=2)
