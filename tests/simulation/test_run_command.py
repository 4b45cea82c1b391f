"""`trimtab sim run`: what it prints, saves and draws."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.report.draw import can_draw
from daemons.report.pictures import RunSeries, draw_run
from sim_backend.cli import sim

SMALL = ["run", "--nodes", "3", "--jobs", "6", "--output", "json"]
PNG = b"\x89PNG\r\n\x1a\n"


def test_it_ends_in_figures_a_report_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "folder"
    answer = CliRunner().invoke(sim, [*SMALL, "--output-folder", str(folder)])

    assert answer.exit_code == 0, answer.output
    values = json.loads(answer.stdout)
    assert (values["jobs_submitted"], values["jobs_completed"], values["goals"]) == (6, 6, 6)
    assert values["actions"]["start"] >= 7  # six jobs, an instance of the web application
    assert values["web_peak_instances"] >= 1
    assert values["web_served_per_s"] > 0
    assert values["web_least_utility"] <= values["web_mean_utility"] <= 1
    assert values["decisions"] >= 6
    assert "3 nodes up" in answer.stderr
    saved = json.loads((folder / "report.json").read_text("utf-8"))
    assert {name: saved[name] for name in values} == values
    series = saved["series"]
    assert len({len(values) for name, values in series.items() if name != "capacity_mhz"}) == 1
    assert {"web_mhz", "web_utility", "jobs_level"} < set(series)
    assert None in series["jobs_level"]
    assert max(level for level in series["jobs_level"] if level is not None) <= 1
    assert series["completed"][-1] == 6
    assert max(series["allotted_mhz"]) <= series["capacity_mhz"] == 3 * 4 * 3_900.0
    assert (folder / "run.png").read_bytes().startswith(PNG)


@pytest.mark.full
def test_the_same_seed_gives_the_same_run_and_another_another(tmp_path: Path) -> None:
    def values(seed: str) -> dict[str, object]:
        arguments = [*SMALL, "--seed", seed, "--policy", "edf", "--output-folder", str(tmp_path)]
        found: dict[str, object] = json.loads(CliRunner().invoke(sim, arguments).stdout)
        return found | {"wall_s": 0, "seed": 0}

    first = values("1")
    assert values("1") == first
    assert values("2") != first


@pytest.mark.full
def test_without_matplotlib_it_says_so_and_saves_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = CliRunner().invoke(sim, [*SMALL, "--output-folder", str(tmp_path)])

    assert answer.exit_code == 0
    assert not can_draw()
    assert "trimtab[plots]" in answer.stderr
    assert (tmp_path / "report.json").exists()
    assert not (tmp_path / "run.png").exists()


def test_a_folder_that_cannot_be_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    answer = CliRunner().invoke(sim, [*SMALL, "--output-folder", str(tmp_path / "file" / "below")])

    assert answer.exit_code == 2
    assert "--output-folder" in answer.stderr


def test_a_policy_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    answer = CliRunner().invoke(sim, [*SMALL, "--policy", "nonesuch", "--output-folder", str(tmp_path)])

    assert answer.exit_code == 2
    assert "nonesuch" in answer.stderr


@pytest.mark.full
def test_without_a_web_application(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = CliRunner().invoke(sim, [*SMALL, "--web-load", "0", "--output-folder", str(tmp_path)])

    values = json.loads(answer.stdout)
    assert values["actions"]["start"] == 6
    assert not any(name.startswith("web_") and name not in ("web_load", "web_shape") for name in values)
    saved = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert saved["series"]["web_utility"] == []
    assert (tmp_path / "run.png").read_bytes().startswith(PNG)


def test_a_run_without_any_work_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    assert draw_run(
        RunSeries([0.0], [0], [0], completed=[0], allotted_mhz=[0.0], capacity_mhz=1_000.0), "nothing"
    ).startswith(PNG)


@pytest.mark.full
def test_several_seeds_are_run_and_drawn_as_a_band(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answer = CliRunner().invoke(sim, [*SMALL, "--seeds", "3-4", "--output-folder", str(tmp_path)])

    assert answer.exit_code == 0, answer.output
    values = json.loads(answer.stdout)
    assert [run["seed"] for run in values["runs"]] == [3, 4]
    assert all(0.0 <= run["web_below_frac"] <= 1.0 for run in values["runs"])
    saved = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert len(saved["runs"][1]["series"]["web_utility"]) == len(saved["runs"][1]["series"]["times_s"])
    assert (tmp_path / "run.png").read_bytes().startswith(PNG)


@pytest.mark.full
def test_a_seed_is_the_same_run_alone_and_among_others(tmp_path: Path) -> None:
    alone = CliRunner().invoke(sim, [*SMALL, "--seed", "3", "--output-folder", str(tmp_path)])
    among = CliRunner().invoke(sim, [*SMALL, "--seeds", "3", "--output-folder", str(tmp_path)])

    (run,) = json.loads(among.stdout)["runs"]
    assert run | {"wall_s": 0} == json.loads(alone.stdout) | {"wall_s": 0}


@pytest.mark.full
@pytest.mark.parametrize("shape", ["constant", "step", "spike"])
def test_a_load_of_any_shape_is_run(shape: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(sim, [*SMALL, "--web-shape", shape, "--output-folder", str(tmp_path)])

    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["web_shape"] == shape


@pytest.mark.full
@pytest.mark.parametrize("arguments", [["--work-error", "0.3"], ["--undeclared-work"]])
def test_work_may_be_declared_wrongly_or_not_at_all(arguments: list[str], tmp_path: Path) -> None:
    answer = CliRunner().invoke(sim, [*SMALL, *arguments, "--output-folder", str(tmp_path)])

    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["jobs_completed"] == 6


def test_work_that_is_not_declared_cannot_be_declared_wrongly(tmp_path: Path) -> None:
    arguments = ["--work-error", "0.3", "--undeclared-work", "--output-folder", str(tmp_path)]
    answer = CliRunner().invoke(sim, [*SMALL, *arguments])

    assert answer.exit_code == 2
    assert "--undeclared-work" in answer.stderr


def test_a_wrong_response_model_is_named_within_three_cycles(tmp_path: Path) -> None:
    """Given requests that take twice as long as their model says, when a cluster runs, then an alarm says so."""
    answer = CliRunner().invoke(sim, [*SMALL, "--response-factor", "2", "--output-folder", str(tmp_path)])

    assert answer.exit_code == 0, answer.output
    values = json.loads(answer.stdout)
    assert values["alarms"]["web-model-wrong"]["first_s"] <= 3 * 900.0
    assert values["web_below_frac"] <= 0.02


def test_a_right_model_raises_no_alarm_and_predicts_what_comes(tmp_path: Path) -> None:
    answer = CliRunner().invoke(sim, [*SMALL, "--output-folder", str(tmp_path)])

    values = json.loads(answer.stdout)
    assert not {"web-model-wrong", "prediction-missed", "cluster-too-small"} & set(values["alarms"])
    assert values["predicted_within_frac"] >= 0.9


@pytest.mark.full
def test_an_oracle_is_hardly_better_off(tmp_path: Path) -> None:
    """Head-room for a load that is not known may not be bought by starving jobs."""
    seed = ["run", "--seed", "33", "--output", "json", "--output-folder", str(tmp_path)]
    known = json.loads(CliRunner().invoke(sim, [*seed, "--oracle"]).stdout)
    guessed = json.loads(CliRunner().invoke(sim, seed).stdout)

    assert 0.0 < known["level_mean"] - guessed["level_mean"] <= 0.05
    assert known["jobs_level_mean"] - guessed["jobs_level_mean"] <= 0.05


def test_an_oracle_does_not_go_with_work_that_is_not_known(tmp_path: Path) -> None:
    answer = CliRunner().invoke(sim, [*SMALL, "--oracle", "--undeclared-work", "--output-folder", str(tmp_path)])

    assert answer.exit_code == 2
    assert "--oracle" in answer.stderr
