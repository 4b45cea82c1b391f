"""`trimtab sim dilation`: what it prints, what it refuses, and with which exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from tests.support.paths import ROOT
from tests.unit.daemons.models.dilation.test_formula import CASES

EXAMPLE = ROOT / "examples" / "dilation.json"
GOOD = {"name": "a", "loading": [0.5, 0.5], "neutral_s": 10}


def run(path: Path, *options: str) -> Any:
    """What the command printed and how it ended."""
    return CliRunner().invoke(main, ["sim", "dilation", str(path), *options])


def reported(folder: Path, content: Any, *options: str, status: int = 0) -> Any:
    """The JSON for a file with that content."""
    path = folder / "jobs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    outcome = run(path, "--output", "json", *options)
    assert outcome.exit_code == status, outcome.output
    return json.loads(outcome.stdout)


def jobs(*rows: Any, **more: Any) -> dict[str, Any]:
    """A file of jobs on two resources."""
    return {"resources": ["cpu", "io"], "jobs": list(rows)} | more


def problems(folder: Path, content: Any) -> list[tuple[str, str]]:
    """Where and what, of a file that cannot be used."""
    found = reported(folder, content, status=2)["error"]["problems"]
    assert all(each["expected"] for each in found)
    return [(each["where"].partition(".json: ")[2], each["what"]) for each in found]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", ["formula", "product-form"])
def test_worked_cases(tmp_path: Path, case: dict[str, Any], model: str) -> None:
    """Dilations, their sum and the ends, with the keys of the format."""
    found = reported(tmp_path, case["input"], "--model", model)
    expected = case["expected"][model]

    assert list(found) == ["model", "jobs", "total_dilation", "makespan_s", "wall_s"]
    assert found["model"] == model
    assert [job["name"] for job in found["jobs"]] == [job["name"] for job in case["input"]["jobs"]]
    assert [job["dilation"] for job in found["jobs"]] == pytest.approx(expected["dilation"], abs=1e-7)
    assert found["total_dilation"] == pytest.approx(sum(job["dilation"] for job in found["jobs"]))
    assert found["makespan_s"] == max(job["completion_s"] for job in found["jobs"])
    if model == "formula":
        assert [job["completion_s"] for job in found["jobs"]] == pytest.approx(expected["completion_s"], abs=1e-5)


def test_the_model_is_chosen(tmp_path: Path) -> None:
    """A few jobs by the exact network, many that differ by mean values; both say which."""
    few = reported(tmp_path, jobs(GOOD, GOOD | {"name": "b"}))
    rows = [{"name": f"j{n}", "loading": [0.001 * n, 0.5], "neutral_s": 10 + n} for n in range(1, 201)]
    many = reported(tmp_path, jobs(*rows))

    assert (few["model"], many["model"]) == ("product-form", "mean-value")
    assert reported(tmp_path, jobs(*rows, *({**r, "name": f"{r['name']}x"} for r in rows)), "--model", "formula")
    refused = reported(
        tmp_path, jobs(*rows, *({**r, "name": f"{r['name']}x"} for r in rows)), "--model", "product-form", status=2
    )
    assert refused["error"]["code"] == "invalid-value"


def test_servers_stages_and_machines(tmp_path: Path) -> None:
    """Two readers do not wait for a disk that serves two; stages are gone through; who is elsewhere slows nobody."""
    read = {"name": "r", "loading": [0, 1], "neutral_s": 10}
    two = reported(tmp_path, jobs(read, read | {"name": "s"}, servers={"io": 2}))
    stage = {"name": "t", "stages": [{"loading": [1, 0], "neutral_s": 5}, {"loading": [0, 1], "neutral_s": 5}]}
    staged = reported(tmp_path, jobs(stage, {"name": "u", "loading": [0, 1], "neutral_s": 5}))
    both = [read | {"machines": ["x", "y"]}, read | {"name": "s", "machines": ["y"]}]
    apart = reported(tmp_path, jobs(*both))
    instances = reported(tmp_path, jobs(read | {"instances": 3}))

    assert [job["completion_s"] for job in two["jobs"]] == pytest.approx([10.0, 10.0])
    assert [job["completion_s"] for job in staged["jobs"]] == pytest.approx([10.0, 5.0])
    assert staged["jobs"][0]["dilation"] == pytest.approx(1.5)
    assert [job["completion_s"] for job in apart["jobs"]] == pytest.approx([20.0, 20.0])
    assert apart["total_dilation"] == pytest.approx(5.0)
    assert instances["jobs"] == [{"name": "r", "dilation": pytest.approx(3.0), "completion_s": pytest.approx(30.0)}]


def test_the_example_for_people() -> None:
    """It is good, and the table has every job."""
    outcome = run(EXAMPLE)

    assert outcome.exit_code == 0, outcome.output
    assert all(
        name in outcome.stdout for name in ("compress", "compute", "read", "index", "product-form", "the last ends")
    )


def test_names_are_no_markup(tmp_path: Path) -> None:
    """Brackets and colons in the name of a job are printed as they are."""
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(jobs(GOOD | {"name": "[/x] [bold] :smile:"})))
    outcome = run(path)
    assert outcome.exit_code == 0, outcome.output
    assert "[/x] [bold] :smile:" in outcome.output


def loading(*parts: Any) -> dict[str, Any]:
    """A file with one job of that vector."""
    return jobs(GOOD | {"loading": list(parts)})


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (loading(0.7, 0.4), "jobs[0] (a).loading", "sums to 1.1"),
        (loading(-0.1, 0.4), "jobs[0] (a).loading[0]", "is -0.1"),
        (loading(float("nan"), 0.4), "jobs[0] (a).loading[0]", "is NaN"),
        (loading(float("inf"), 0.4), "jobs[0] (a).loading[0]", "is Infinity"),
        (loading("much", 0.4), "jobs[0] (a).loading[0]", "is 'much'"),
        (loading(True, 0.0), "jobs[0] (a).loading[0]", "is true"),
        (loading(), "jobs[0] (a).loading", "has 0 parts"),
        (loading(0.1, 0.1, 0.1), "jobs[0] (a).loading", "has 3 parts"),
        (jobs(GOOD | {"loading": 0.5}), "jobs[0] (a).loading", "is 0.5"),
        (jobs(GOOD | {"neutral_s": 0}), "jobs[0] (a).neutral_s", "is 0"),
        (jobs(GOOD | {"neutral_s": float("inf")}), "jobs[0] (a).neutral_s", "is Infinity"),
        (jobs(GOOD | {"arrival_s": float("nan")}), "jobs[0] (a).arrival_s", "is NaN"),
        (jobs({"name": "a", "loading": [0.5, 0.5]}), "jobs[0] (a).neutral_s", "is missing"),
        (jobs({"loading": [0.5, 0.5], "neutral_s": 1}), "jobs[0].name", "is missing"),
        (jobs(GOOD | {"name": " a"}), "jobs[0].name", "is ' a'"),
        (jobs(GOOD | {"size": 1}), "jobs[0] (a).size", "no such key"),
        (jobs(GOOD, GOOD), "jobs", "2 jobs have the name 'a'"),
        (jobs(), "jobs", "is a list of 0"),
        (jobs(4), "jobs[0]", "is 4"),
        (jobs(GOOD | {"stages": []}), "jobs[0] (a).stages", "is a list of 0"),
        (jobs(GOOD | {"instances": 0}), "jobs[0] (a).instances", "is 0"),
        (jobs(GOOD | {"instances": 2, "machines": ["x"]}), "jobs[0] (a).machines", "1 for 2 instances"),
        (jobs(GOOD | {"machines": [""]}), "jobs[0] (a).machines[0]", "is ''"),
        (jobs(GOOD | {"machines": ["x"]}, GOOD | {"name": "b"}), "jobs", "some have machines, others none"),
        (jobs(GOOD, servers={"io": 0}), "servers.io", "is 0"),
        (jobs(GOOD, servers={"disk": 2}), "servers.disk", "no such key"),
        (jobs(GOOD) | {"resources": []}, "resources", "is a list of 0"),
        (jobs(GOOD) | {"resources": ["cpu", "cpu"]}, "resources", "has 'cpu' 2 times"),
        (jobs(GOOD) | {"resources": ["cpu", 7]}, "resources[1]", "is 7"),
        ([], "", "is a list of 0"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, content: Any, where: str, what: str) -> None:
    """Exit status 2, with the job and the key."""
    assert (where, what) in problems(tmp_path, content)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    """Two bad jobs are two problems, and nothing else is said of them."""
    content = jobs(GOOD | {"loading": [0.9, 0.2], "neutral_s": -1}, GOOD | {"name": "b 2", "loading": []})

    found = problems(tmp_path, content)

    assert [where for where, _ in found] == ["jobs[0] (a).neutral_s", "jobs[0] (a).loading", "jobs[1] (b 2).loading"]


def test_too_many_jobs(tmp_path: Path) -> None:
    """More instances than are computed are refused."""
    assert problems(tmp_path, jobs(GOOD | {"instances": 999}, GOOD | {"name": "b", "instances": 2})) == [
        ("jobs", "1001 instances")
    ]


def test_what_is_no_json(tmp_path: Path) -> None:
    """A file that is none, and one that is not there."""
    assert reported(tmp_path, "{", status=2)["error"]["problems"]
    assert run(tmp_path / "none.json").exit_code == 2
