"""The `trimtab` command: exit statuses, one JSON object, no traceback for a user's mistake, the doctor's findings."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from packaging.specifiers import SpecifierSet

from daemons.cli.commands import doctor as doctors
from daemons.cli.main import main
from daemons.cli.output import CommandGroup, emit, exit_status, output_option, two_columns
from shared.base.errors import ContractViolation, Infeasible, InvalidInput, InvalidValue, Problem, StoreUnavailable
from shared.values.jobs import Job, Stage
from sim_backend.cli import sim

LINE = "{number} {submit} -1 {run} {size} -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1"


def log_line(number: int, submit: int = 0, run: object = 10, size: int = 1) -> str:
    return LINE.format(number=number, submit=submit, run=run, size=size)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    lines = ["; a comment", log_line(1), log_line(2, 5, 20, 4), log_line(3, 6, 5, 2), log_line(4, 7, -1, 2)]
    path.write_text("\n".join(lines) + "\n")
    return path


def trimtab(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def refused(outcome: Result, status: int) -> str:
    """The message of a command that failed as it should: no traceback, nothing for people on standard output."""
    assert isinstance(outcome.exception, SystemExit)
    assert outcome.exit_code == status, outcome.output
    assert "Traceback" not in outcome.output
    return outcome.stderr


# --- sim replay --------------------------------------------------------------------------------------------------


def test_replay_prints_exactly_one_json_object(log: Path) -> None:
    """Node by node: job 1 0..10 on one node, job 2 needs all four and runs 11..31, job 3 slips in at 6..11."""
    outcome = trimtab("sim", "replay", log, "--nodes", 4, "--window", 100, "--output", "json")
    assert outcome.exit_code == 0
    found = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    assert found.pop("wall_s") > 0
    assert found["operations"] == {"start": 3}
    assert {
        "jobs_submitted": 3,
        "jobs_completed": 3,
        "mean_execution_s": pytest.approx(35 / 3),
        "mean_turnaround_s": pytest.approx((10 + 26 + 5) / 3),
        "mean_wait_s": 2.0,
        "peak_nodes": 4,
        "node_hours": pytest.approx(100 / 3_600),
        "utilisation": pytest.approx(100 / 400),
    }.items() <= found.items()


def test_replay_options(log: Path) -> None:
    def replayed(*words: object) -> dict[str, Any]:
        outcome = trimtab("sim", "replay", log, "--output", "json", *words)
        assert outcome.exit_code == 0, outcome.output
        return dict(json.loads(outcome.stdout))

    assert replayed("--nodes", 2, "--divide-sizes", 2)["mean_execution_s"] == pytest.approx(35 / 3)
    assert replayed("--nodes", 4, "--skip-jobs", "2, 3")["jobs_submitted"] == 1
    assert replayed("--nodes", 4, "--window", 5)["jobs_submitted"] == 1
    assert replayed("--nodes", 4, "--policy", "edf")["jobs_completed"] == 3
    assert replayed("--nodes", 4, "--costs", "paper")["mean_execution_s"] == pytest.approx(35 / 3 + 3.6)
    noisy = [replayed("--nodes", 4, "--noise", 0.5, "--seed", seed)["mean_execution_s"] for seed in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2]
    nothing = replayed("--nodes", 4, "--window", 0.5, "--skip-jobs", 1)
    assert (nothing["jobs_submitted"], nothing["mean_wait_s"]) == (0, None)


@pytest.mark.parametrize("window", [["--window", 60], []])
def test_both_engines_agree(log: Path, window: list[Any]) -> None:
    figures = []
    for engine in ("direct", "closed-loop"):
        outcome = trimtab("sim", "replay", log, "--nodes", 4, *window, "--engine", engine, "--output", "json")
        assert outcome.exit_code == 0, outcome.output
        found = json.loads(outcome.stdout)
        figures.append(
            [found[name] for name in ("jobs_completed", "mean_execution_s", "mean_turnaround_s", "node_hours")]
        )
    assert figures[0] == pytest.approx(figures[1])


def test_replay_for_people(log: Path) -> None:
    outcome = trimtab("sim", "replay", log, "--nodes", 4)
    assert outcome.exit_code == 0
    assert "jobs completed" in outcome.stdout


def test_a_broken_line_is_named_on_both_ways_out(log: Path) -> None:
    log.write_text(log.read_text() + log_line(5, run="soon") + "\n" + log_line(6, run=-7) + "\n")
    outcome = trimtab("sim", "replay", log, "--nodes", 4, "--output", "json")
    said = refused(outcome, 2)
    assert f"{log}:6: field 4 is 'soon' (expected a finite number)" in said
    assert f"{log}:7: field 4 (run time) is '-7'" in said
    error = json.loads(outcome.stdout)["error"]
    assert error["code"] == "invalid-input"
    assert [problem["where"] for problem in error["problems"]] == [f"{log}:6", f"{log}:7"]
    quiet = trimtab("sim", "replay", log, "--nodes", 4)
    assert quiet.stdout == ""
    assert refused(quiet, 2) == said


def test_an_unknown_policy_lists_those_there_are(log: Path) -> None:
    said = refused(trimtab("sim", "replay", log, "--nodes", 4, "--policy", "best-fit"), 2)
    assert "best-fit" in said
    assert "edf, first-fit" in said


def test_a_job_larger_than_the_cluster_is_infeasible(log: Path) -> None:
    outcome = trimtab("sim", "replay", log, "--nodes", 3, "--output", "json")
    assert f"{log}:3: job 2 needs 4 nodes, there are 3" in refused(outcome, 1)
    assert json.loads(outcome.stdout)["error"]["code"] == "infeasible"
    assert trimtab("sim", "replay", log, "--nodes", 3, "--skip-jobs", 2).exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "0"],
        ["--nodes", "-3"],
        ["--nodes", "many"],
        ["--nodes", "99999999"],
        [],
        ["--nodes", "4", "--window", "0"],
        ["--nodes", "4", "--window", "nan"],
        ["--nodes", "4", "--window", "inf"],
        ["--nodes", "4", "--window", "-1"],
        ["--nodes", "4", "--divide-sizes", "0"],
        ["--nodes", "4", "--skip-jobs", "1,x"],
        ["--nodes", "4", "--skip-jobs", "9" * 5_000],
        ["--nodes", "4", "--costs", "cheap"],
        ["--nodes", "4", "--engine", "steam"],
        ["--nodes", "4", "--seed", "-1"],
        ["--nodes", "4", "--noise", "nan"],
        ["--nodes", "4", "--output", "xml"],
    ],
)
def test_wrong_usage(log: Path, words: list[str]) -> None:
    assert refused(trimtab("sim", "replay", log, *words), 2)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refused(trimtab("sim", "replay", tmp_path / "none.swf", "--nodes", 4), 2)
    assert "is a directory" in refused(trimtab("sim", "replay", tmp_path, "--nodes", 4), 2)


def test_commands_and_groups_that_are_not_there() -> None:
    refused(trimtab("simulate"), 2)
    refused(trimtab("sim", "rewind"), 2)


def test_every_sim_command_loads_and_has_help() -> None:
    context = click.Context(sim)
    names = sim.list_commands(context)
    assert "replay" in names
    for name in names:
        command = sim.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()
        assert trimtab("sim", name, "--help").exit_code == 0


def test_help_and_version() -> None:
    shown = trimtab("--help")
    assert shown.exit_code == 0
    assert {"doctor", "sim"} <= set(shown.stdout.split())
    assert trimtab("--version").stdout.startswith("trimtab, version ")


def test_it_works_from_any_folder(log: Path, tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("trimtab")
    outcome = subprocess.run(
        [command, "sim", "replay", log.name, "--nodes", "4", "--output", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)["jobs_completed"] == 3


# --- errors of the model and everything else ---------------------------------------------------------------------


@click.group(cls=CommandGroup)
def sample() -> None:
    """Stand in for any group."""


@sample.command()
@click.option("--goal", type=float, default=50.0)
@click.option("--work", type=float, default=1.0)
@output_option
def submit(goal: float, work: float) -> None:
    """Make a job the way a command that reads one would."""
    job = Job("a", (Stage(work, 1_000),), submit_s=10, desired_start_s=10, goal_s=goal)
    emit({"name": job.name}, lambda: two_columns("job", {"name": job.name, "goal_s": job.goal_s, "none": None}))


@sample.command()
def broken() -> None:
    """Fail in a way that is our fault."""
    raise ContractViolation("ours")


def test_values_that_the_model_refuses() -> None:
    early = CliRunner().invoke(sample, ["submit", "--goal", "5"])
    assert "goal_s = 5.0: expected after desired_start_s = 10" in refused(early, 2)
    negative = CliRunner().invoke(sample, ["submit", "--work", "-3", "--output", "json"])
    assert "work_mcycles = -3.0: expected a finite number, 0 or above" in refused(negative, 2)
    assert json.loads(negative.stdout)["error"]["code"] == "invalid-value"
    assert "50.00" in CliRunner().invoke(sample, ["submit"]).stdout


def test_our_own_mistakes_are_not_hidden() -> None:
    assert isinstance(CliRunner().invoke(sample, ["broken"]).exception, ContractViolation)


def test_exit_statuses() -> None:
    assert exit_status(InvalidInput(Problem("here", "wrong"))) == 2
    assert exit_status(InvalidValue("x", 1, "2")) == 2
    assert exit_status(Infeasible("no")) == 1
    assert exit_status(StoreUnavailable("later")) == 1


# --- doctor ------------------------------------------------------------------------------------------------------


def test_doctor_json() -> None:
    outcome = trimtab("doctor", "--output", "json")
    found = json.loads(outcome.stdout)
    failed = [check for check in found["checks"] if not check["ok"]]
    assert found["ok"] is (not failed)
    assert outcome.exit_code == (1 if failed else 0), failed
    names = {check["name"] for check in found["checks"]}
    expected = {"python", "dependency numpy", "import name shared", "one installation", "policies.placement first-fit"}
    assert expected | {"commands sim", "hypervisors fake", "data", "working folder"} <= names
    assert {"name", "ok", "detail", "fix"} <= set(found["checks"][0])
    assert "first-fit" in trimtab("doctor").stdout


def test_doctor_on_dependencies() -> None:
    assert doctors.dependency("click", SpecifierSet(">=8.1,<99")).ok
    assert doctors.dependency("click", SpecifierSet()).ok
    assert not doctors.dependency("click", SpecifierSet("<8")).ok
    old = doctors.dependency("click", SpecifierSet(">=99.1"))
    assert (old.ok, old.fix) == (False, "pip install --upgrade 'click>=99.1'")
    assert doctors.dependency("no-such-distribution-of-trimtab", SpecifierSet(">=1")).detail == "not installed"


def test_doctor_on_plugins() -> None:
    def found(value: str) -> doctors.Check:
        return doctors.plugin(EntryPoint("x", value, "trimtab.hypervisors"))

    assert found("json:loads").ok
    broken = found("no_such_module:thing")
    assert (broken.ok, broken.name) == (False, "hypervisors x")
    assert "ModuleNotFoundError" in broken.detail
    assert not found("json:no_such_attribute").ok
    optional = found("no_such_module:thing [libvirt]")
    assert (optional.ok, optional.warning, optional.fix) == (True, True, "pip install 'trimtab[libvirt]'")
    assert not found("json:no_such_attribute [libvirt]").ok


def test_doctor_on_import_names() -> None:
    owners = {"agents": ["trimtab"], "shared": ["trimtab", "someone-else"], "daemons": ["Trimtab"], "sim_backend": []}
    checks = {check.name: check for check in doctors.import_names(owners)}
    assert not checks["import name shared"].ok
    assert "someone-else" in checks["import name shared"].fix
    assert checks["import name agents"].ok
    assert checks["import name daemons"].ok
    assert checks["one installation"].ok


def test_doctor_on_data_and_folder(tmp_path: Path) -> None:
    assert not doctors.data(str(tmp_path)).warning
    for missing in ("", str(tmp_path / "none")):
        assert (doctors.data(missing).ok, doctors.data(missing).warning) == (True, True)
    assert doctors.working_folder(tmp_path).ok
    gone = doctors.working_folder(tmp_path / "none")
    assert not gone.ok
    assert gone.fix


@pytest.mark.full
def test_doctor_fails_when_a_check_fails(tmp_path: Path) -> None:
    """In an interpreter where a folder of someone else's shadows one of our packages."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("")
    code = "import sys; sys.path.insert(0, sys.argv.pop()); from daemons.cli.main import main; main()"
    outcome = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--output", "json", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert outcome.returncode == 1, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found["ok"] is False
    (failed,) = [check for check in found["checks"] if check["name"] == "one installation"]
    assert not failed["ok"]
    assert str(tmp_path) in failed["detail"]


# --- logs that cannot be played ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["direct", "closed-loop"])
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([log_line(1, 0, "1e12")], "small.swf:1: job 1 ends 1e+12 s after the log's begin"),
        ([log_line(1), log_line(2, 10**12)], "small.swf:2: job 2 ends 1e+12 s after the log's begin"),
        ([log_line(each, 0, 30_000_000) for each in range(1, 9)], "keep 1 nodes busy for 2.4e+08 s"),
    ],
)
def test_no_entry_makes_a_replay_run_for_ever(engine: str, lines: list[str], said: str, log: Path) -> None:
    """What would be played for hours is refused at once, with the line and what helps."""
    log.write_text("\n".join(lines) + "\n")

    text = refused(trimtab("sim", "replay", log, "--nodes", 1, "--engine", engine), 2)

    assert said in text
    assert "--window" in text


def test_a_window_that_the_closed_loop_would_wait_out(log: Path) -> None:
    """It goes on to the end of the window, also where nothing is left to do; the direct engine does not."""
    assert "--window: is 1e+11 s" in refused(
        trimtab("sim", "replay", log, "--nodes", 4, "--engine", "closed-loop", "--window", 1e11), 2
    )
    assert trimtab("sim", "replay", log, "--nodes", 4, "--window", 1e11).exit_code == 0


def test_a_window_lets_a_long_job_be_played(log: Path) -> None:
    """The run ends with the window."""
    log.write_text(log_line(1, 0, "1e12") + "\n")
    for engine in ("direct", "closed-loop"):
        done = trimtab("sim", "replay", log, "--nodes", 1, "--engine", engine, "--window", 1_000, "--output", "json")
        assert json.loads(done.stdout)["jobs_submitted"] == 1, done.output


def test_more_jobs_than_memory_holds(log: Path) -> None:
    """They are counted before anything is made of them."""
    log.write_text("\n".join(log_line(number, number) for number in range(1, 250_002)))

    assert "has 250,001 jobs (expected at most 250,000" in refused(trimtab("sim", "replay", log, "--nodes", 4), 2)
