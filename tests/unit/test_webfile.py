"""Files of web applications: what is understood, and that every problem is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.cli.webfile import goal_text, read_web, understood
from shared.errors import InvalidInput, Problem
from shared.model import Rules
from shared.webapp import Flow, ModelForm, WebApp
from tests.architecture.sources import ROOT

TOP = 'name = "shop"\nmemory_mib = 500\nmax_mhz = 2_000\n'
FLOW = '[[flows]]\nname = "browse"\nmean_s = 0.5\n'


def read(tmp_path: Path, text: str, name: str = "") -> WebApp:
    path = tmp_path / "web.toml"
    path.write_text(text)
    return read_web(path, name)


def problems(tmp_path: Path, text: str) -> dict[str, Problem]:
    """By key."""
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    return {problem.where.rpartition(": ")[2]: problem for problem in caught.value.problems}


def test_the_least_that_an_application_needs(tmp_path: Path) -> None:
    app = read(tmp_path, TOP + FLOW)

    assert app == WebApp("shop", (Flow("browse", mean_s=0.5),), 500, 2_000.0)
    assert read(tmp_path, TOP + FLOW, "other").name == "other"


def test_the_example_shows_all_of_it() -> None:
    app = read_web(ROOT / "examples" / "web.toml")

    assert [goal_text(flow) for flow in app.flows] == [
        "answered within 0.25 s on average",
        "95 % answered within 1 s",
        "40 requests answered a second",
    ]
    assert app.flows[0] == Flow("browse", mean_s=0.25, work_mcycles=60.0, t_min_s=0.05)
    assert app.flows[1].work_mcycles is None
    assert app.rules == Rules(forbid=("n7",), apart="front")
    assert (app.min_instances, app.max_instances, app.metrics_url[:7]) == (1, 8, "http://")
    assert understood(app)["flows"][1]["percentile"] == 0.95


def test_a_model_may_be_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, TOP + FLOW + 'model = "multi-server"\n').flows[0].model is ModelForm.MULTI_SERVER


def test_every_problem_at_once(tmp_path: Path) -> None:
    text = (
        'name = "a#1"\nmemory = 5\nmax_mhz = 0\nmin_instances = 3\nmax_instances = 2\nmetrics_url = "ftp://x"\n'
        '[rules]\npin = ["n1", "n2"]\nforbid = ["n2"]\ntogether = "g"\napart = "g"\n'
        '[[flows]]\nname = "none"\n'
        '[[flows]]\nname = "two"\nmean_s = 1\nthroughput_per_s = 3\n'
        '[[flows]]\nname = "half"\npercentile = 0.9\n'
        '[[flows]]\nname = "odd"\npercentile_s = 1\nmodel = "guess"\n'
    )

    found = problems(tmp_path, text)

    goal = "exactly one goal"
    assert {key: problem.expected.split(":")[0].split(",")[0] for key, problem in found.items()} == {
        "name": "1 to 128 ASCII letters",
        "memory": "memory_mib",
        "memory_mib": "a whole number from 0 to 1099511627776",
        "max_mhz": "a number from 0.001 to 1e+15",
        "max_instances": "at least min_instances = 3",
        "metrics_url": "a URL http",
        "rules.forbid": "nothing that rules.pin has",
        "rules.apart": "nothing that rules.together has",
        "flows[0].name": goal,
        "flows[1].name": goal,
        "flows[2].name": goal,
        "flows[3].name": goal,
        "flows[3].model": "one of shifted-hyperbola",
    }
    assert found["flows[1].name"].where.endswith("web.toml:15: flows[1].name")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        (TOP, "flows", "1 to 100 tables [[flows]], or none in an environment"),
        (TOP + "flows = []\n", "flows", "1 to 100 tables [[flows]]"),
        (TOP + FLOW + FLOW, "flows", "flows under names that differ"),
        (TOP + FLOW + "work_mcycles = 0\n", "flows[0].work_mcycles", "a number from 1e-06"),
        (TOP + FLOW + "persentile = 0.9\n", "flows[0].persentile", "flows[0].percentile"),
        (TOP + FLOW.replace("0.5", "0"), "flows[0].mean_s", "a number from 1e-06"),
        (TOP + "min_instances = -1\n" + FLOW, "min_instances", "a whole number from 0"),
    ],
)
def test_single_problems(tmp_path: Path, text: str, key: str, expected: str) -> None:
    found = problems(tmp_path, text)

    assert set(found) == {key}
    assert found[key].expected.startswith(expected)


def test_an_application_of_an_environment_may_have_no_goal(tmp_path: Path) -> None:
    """The environment is in the file, or goes before what is there."""
    path = tmp_path / "web.toml"
    path.write_text(TOP, "utf-8")
    assert read_web(path, environment="front").environment == "front"
    path.write_text(TOP + 'environment = "back"\n', "utf-8")
    assert (read_web(path).flows, read_web(path).environment) == ((), "back")
    assert read_web(path, environment="front").environment == "front"
    assert understood(read_web(path))["environment"] == "back"
