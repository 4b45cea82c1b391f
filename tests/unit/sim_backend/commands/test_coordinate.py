"""`trimtab sim coordinate`: what it prints, what it refuses, and with which exit status."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.capacity.coordination.file import read
from daemons.capacity.coordination.leases import on_demand
from daemons.capacity.coordination.values import Setting, WebDemand
from daemons.cli.main import main
from shared.values.replay_job import ReplayJob
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "coordinate.toml"
KEYS = {
    *("jobs_submitted", "jobs_completed", "mean_execution_s", "mean_turnaround_s", "peak_nodes", "peak_nodes_instant"),
    *("node_hours", "killed", "suspended", "lost_node_hours", "adjustments", "wall_s"),
}


def run(*arguments: object) -> Any:
    """What the command printed and how it ended."""
    return CliRunner().invoke(main, ["sim", "coordinate", *map(str, arguments)])


def coordinated(path: Path, status: int = 0) -> Any:
    """The JSON of a run."""
    outcome = run(path, "--output", "json")
    assert outcome.exit_code == status, outcome.output
    return json.loads(outcome.stdout)


def scenario(folder: Path, *replacements: tuple[str, str], log: str = "", demand: str = "") -> Path:
    """The example with other words, and another log or demand where one is given."""
    text = EXAMPLE.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (folder / "scenario.toml").write_text(text)
    for name, content in (("coordinate-jobs.swf", log), ("coordinate-demand.csv", demand)):
        (folder / name).write_text(content or (EXAMPLE.parent / name).read_text())
    return folder / "scenario.toml"


def problems(path: Path) -> list[tuple[str, str]]:
    """Where and what, of a scenario that cannot be used."""
    found = coordinated(path, 2)["error"]["problems"]
    assert all(each["expected"] for each in found)
    return [(Path(each["where"]).name, each["what"]) for each in found]


def job(number: int, submit_s: object, run_s: object, processors: object) -> str:
    """A line of a log."""
    return f"{number} {submit_s} -1 {run_s} {processors} " + " ".join(["-1"] * 13)


def test_the_example() -> None:
    """Every key, and suspending instead of killing."""
    found = coordinated(EXAMPLE)
    assert set(found) >= KEYS
    assert found["jobs_submitted"] == 114
    assert found["suspended"] > 0 == found["killed"]
    assert (found["node_hours"], found["peak_nodes"]) == (768.0, 32)
    assert 0.0 < found["web_waited_node_hours"] < found["overhead_node_hours"]


@pytest.mark.parametrize(
    ("model", "sizes", "killed"),
    [
        ("fb", "size = 32", True),
        ("flb-nub", "lower_bound = 10", False),
        ("flb-nub", "size = 10", False),
        ("dedicated", "batch_nodes = 16\nweb_nodes = 20", False),
        ("on-demand", "", False),
    ],
)
def test_every_model(tmp_path: Path, model: str, sizes: str, killed: bool) -> None:
    """Only under fixed bounds is anything taken from running jobs, and then nobody waits for it."""
    edits = (('"fb" ', f'"{model}" '), ("size = 32 ", f"{sizes} "), ('"suspend"', '"kill"'))
    found = coordinated(scenario(tmp_path, *edits))
    assert (found["killed"] > 0, found["lost_node_hours"] > 0) == (killed, killed)
    assert found["suspended"] == found["web_waited_node_hours"] == 0
    assert (found["adjustments"] > 0) is (model != "dedicated")
    assert found["jobs_completed"] > 90


def test_without_costs_nobody_waits(tmp_path: Path) -> None:
    """Given suspends that take no time, then no node is held for them."""
    found = coordinated(scenario(tmp_path, ('"paper"', '"none"')))
    assert found["suspended"] > 0
    assert found["overhead_node_hours"] == found["web_waited_node_hours"] == 0.0


def test_for_people() -> None:
    """A table with a title."""
    outcome = run(EXAMPLE)
    assert outcome.exit_code == 0
    for word in ("fb, 32 nodes", "jobs completed", "lost node hours"):
        assert word in outcome.stdout


def test_every_problem_at_once(tmp_path: Path) -> None:
    """Given keys, log and demand that cannot be used, then each is told with its place."""
    path = scenario(
        tmp_path,
        ("request_ratio = 1.2", "request_ratio = 0.1"),
        ("lease_s = 3600", "lease_s = nan"),
        ("scale = 1", "scale = -2"),
        ("size = 32", "sise = 32"),
        log=job(1, "nan", 5, 1) + "\n1 2 3\n",
        demand="t_s,vms\n0,nan\n5\n10,-1\n10,2\n9,2\n",
    )
    assert problems(path) == [
        ("scenario.toml:14: web.scale", "is -2"),
        ("scenario.toml:19: cluster.sise", "no such key"),
        ("scenario.toml:20: cluster.lease_s", "is nan"),
        ("scenario.toml:22: cluster.request_ratio", "is 0.1"),
        ("scenario.toml: cluster.size", "is missing"),
        ("coordinate-jobs.swf:1", "field 2 is 'nan'"),
        ("coordinate-jobs.swf:2", "3 fields"),
        ("coordinate-demand.csv:2", "vms is 'nan'"),
        ("coordinate-demand.csv:3", "1 columns"),
        ("coordinate-demand.csv:4", "vms is '-1'"),
        ("coordinate-demand.csv:6", "t_s 9 after 10"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "fb"', 'model = "fbb"', "is 'fbb'"),
        ('model = "fb"', 'model = "dedicated"', "is missing"),
        ("size = 32", "size = -1", "is -1"),
        ("size = 32", "size = 3.5", "is 3.5"),
        ("elastic_factor = 0.5", "elastic_factor = 1.0", "is 1.0"),
        ("horizon_s = 86400", "horizon_s = 0", "is 0"),
        ("horizon_s = 86400", "horizon_s = 1e10\n", "is 60.0"),
        ("skip_jobs = []", "skip_jobs = [1, 'x']", "is 'x'"),
        ('"coordinate-jobs.swf"', '"gone.swf"', "No such file"),
        ('"coordinate-demand.csv"', '"gone.csv"', "No such file"),
        ("# period_s = 86400", "period_s = 3600", "goes on until 82800 s"),
        ('model = "fb"', "model = [", "Invalid"),
        ('model = "fb"', "model = 3", "is 3"),
        ("[batch]", "batch = 5\n[others]", "is not a table"),
        ('model = "fb"', 'model = "flb-nub"\nlower_bound = 5', "is not lower_bound"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Exit status 2 and what is wrong, without a traceback."""
    edits = [(old, new)] + ([("lease_s = 3600", "lease_s = 60")] if "1e10" in new else [])
    outcome = run(scenario(tmp_path, *edits))
    assert outcome.exit_code == 2, outcome.output
    assert said in outcome.output
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "columns ''"),
        (b"t_s,vms\n", "no row"),
        (b"time,vms\n0,1\n", "'time, vms'"),
        (b"t_s,vms\n\xff,1\n", "not UTF-8"),
        (gzip.compress(b"t_s,vms\n0,1\n", mtime=0)[:-6], "broken gzip"),
        (b"t_s,vms\n1_0,3\n", "'1_0'"),
        (b"t_s,vms\n0,1e300\n", "'1e300'"),
    ],
)
def test_demands_that_cannot_be_used(tmp_path: Path, content: bytes, said: str) -> None:
    """The file, the line where there is one, and what was expected."""
    path = scenario(tmp_path)
    (tmp_path / "coordinate-demand.csv").write_bytes(content)
    outcome = run(path)
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert "coordinate-demand.csv" in outcome.output


def test_logs_without_jobs(tmp_path: Path) -> None:
    """Given an empty log, then exit status 2; given jobs after the horizon or without run time only, then no means."""
    assert "there is no job" in run(scenario(tmp_path, log="; nothing\n")).output
    log = "\n".join([job(1, 90_000, 5, 1), job(2, 10, -1, 1), job(3, 10, 5, -1)])
    found = coordinated(scenario(tmp_path, log=log))
    assert (found["jobs_submitted"], found["jobs_completed"]) == (0, 0)
    assert found["mean_execution_s"] is found["mean_turnaround_s"] is None
    assert found["node_hours"] == 768.0


def test_jobs_larger_than_the_cluster(tmp_path: Path) -> None:
    """Given a job of 33 nodes and one of 31 beside a web side of two at least, then both wait for ever and are counted,
    and the others run."""
    log = "\n".join([job(1, 0, 5, 33), job(2, 0, 5, 31), job(3, 0, 5, 4)])
    found = coordinated(scenario(tmp_path, log=log))
    assert (found["jobs_submitted"], found["jobs_completed"], found["jobs_too_large"]) == (3, 1, 2)


def test_a_demand_above_the_cluster(tmp_path: Path) -> None:
    """Exit status 1, with how many, when and where."""
    outcome = run(scenario(tmp_path, ("size = 32", "size = 19")))
    assert outcome.exit_code == 1
    assert "scenario.toml: web.demand: the web side needs 20 nodes at 64800 s, fb has 19 for it" in outcome.output


def test_a_demand_begins_anew(tmp_path: Path) -> None:
    """Given a series that ends within its second day, then it begins anew after two, or as the scenario says; values
    are rounded up, but not for a rounding error."""
    demand = "vms,t_s\n1,0\n\n3,90000\n"
    given = read(scenario(tmp_path, ("scale = 1", "scale = 0.1"), demand=demand))
    assert list(given.demand.changes(400_000.0)) == [(0.0, 1)]
    given = read(scenario(tmp_path, ("scale = 1", "scale = 2.1"), demand=demand))
    assert list(given.demand.changes(300_000.0)) == [(0.0, 3), (90_000.0, 7), (172_800.0, 3), (262_800.0, 7)]
    edits = (("scale = 1", "scale = 0.1"), ("# period_s = 86400", "period_s = 100000"))
    given = read(scenario(tmp_path, *edits, demand="t_s,vms\n50,30\n60,3\n"))
    assert list(given.demand.changes(100_055.0)) == [(0.0, 0), (50.0, 3), (60.0, 1), (100_000.0, 0), (100_050.0, 3)]
    assert given.demand.most(100_055.0) == (3, 50.0)
    given = read(scenario(tmp_path, ("scale = 1", "scale = 0.07"), demand="t_s,vms\n0,100\n"))
    assert 0.07 * 100 > 7
    assert list(given.demand.changes(1.0)) == [(0.0, 7)]


def test_leases_by_the_clock_hour() -> None:
    """Given a lease of the first hour, one that overlaps the second and third, and one that begins with the third, then
    the third has most by the hour, and a moment in it too once both are there."""
    jobs = [ReplayJob(1, 0.0, 3_600.0, 9, 1), ReplayJob(2, 7_000.0, 5.0, 5, 2), ReplayJob(3, 7_200.0, 5.0, 6, 3)]
    found = on_demand(jobs, WebDemand((0.0, 3_600.0), (1, 0), 86_400.0), Setting("on-demand", 0, 0, horizon_s=14_400.0))
    assert (found.peak_nodes, found.peak_nodes_instant, found.node_hours) == (11, 11, 21.0)
    found = on_demand(jobs[:2], WebDemand((0.0,), (0,), 86_400.0), Setting("on-demand", 0, 0, horizon_s=14_400.0))
    assert (found.peak_nodes, found.node_hours, found.adjustments) == (9, 14.0, 4)
