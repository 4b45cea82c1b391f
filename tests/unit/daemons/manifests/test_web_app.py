"""Files of web applications: what is understood, and that every problem is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.web_app import goal_text, read_web, understood
from shared.base.errors import InvalidInput, Problem
from shared.values.health import Probe, ProbeKind
from shared.values.jobs import Rules
from shared.values.web_app import Distribution, Flow, ModelForm, Serving, WebApp
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

    assert app == WebApp("shop", (Flow("browse", mean_s=0.5),), 500, max_mhz=2_000.0)
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
    assert app.rules == Rules(node_anti_affinity=("n7",), anti_affinity="front")
    assert (app.min_instances, app.max_instances, app.metrics_url[:7]) == (1, 8, "http://")
    assert understood(app)["flows"][1]["percentile"] == 0.95
    assert app.serving == Serving(8080, 8001, Distribution.LEAST_CONNECTIONS, queue_max=200)
    assert app.probe == Probe(ProbeKind.HTTP, 8080, "/health")


# --- how it is served and watched ------------------------------------------------------------------------------------

SERVING = "[serving]\nport = 8080\nlisten = 80\n"


def test_what_a_file_says_of_serving_and_watching(tmp_path: Path) -> None:
    text = (
        'arguments = ["--fast", ""]\n'
        + FLOW
        + SERVING
        + 'distribution = "source"\nqueue_max = 9\n[probe]\nkind = "http"\n'
    )
    app = read(tmp_path, TOP + text)

    assert app.arguments == ("--fast", "")
    assert app.serving == Serving(8080, 80, Distribution.SOURCE, queue_max=9)
    assert app.probe == Probe(ProbeKind.HTTP, 8080)
    told = understood(app)
    assert told["serving"]["instance_max"] is None
    assert (told["probe"]["kind"], told["probe"]["port"], told["arguments"]) == ("http", 8080, ["--fast", ""])


def test_what_is_left_out_is_none(tmp_path: Path) -> None:
    app = read(tmp_path, TOP + FLOW)

    assert (app.serving, app.probe, understood(app)["serving"]) == (None, None, None)
    assert read(tmp_path, TOP + FLOW + SERVING).serving == Serving(8080, 80, None)


def test_every_kind_of_probe(tmp_path: Path) -> None:
    command = read(tmp_path, TOP + FLOW + SERVING + '[probe]\nkind = "command"\ncommand = "ask"\n').probe
    assert command == Probe(ProbeKind.COMMAND, command="ask")
    tcp = read(tmp_path, TOP + FLOW + '[probe]\nkind = "tcp"\nport = 25\nreplace_max = 0\n').probe
    assert tcp == Probe(ProbeKind.TCP, 25, replace_max=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('kind = "http"', "beside it a port, probe.port or serving.port"),
        ('kind = "command"', "beside it the name of a command, probe.command"),
        ('kind = "tcp"\nport = 5\ncommand = "ask"', "'command' beside probe.command"),
    ],
)
def test_a_probe_that_is_not_whole(tmp_path: Path, text: str, expected: str) -> None:
    assert {key: problem.expected for key, problem in problems(tmp_path, f"{TOP}{FLOW}[probe]\n{text}\n").items()} == {
        "probe.kind": expected
    }


def test_every_problem_of_serving_and_watching_at_once(tmp_path: Path) -> None:
    text = (
        f'{TOP}arguments = ["a", "\\u0000"]\n{FLOW}[serving]\nport = 0\ndistribution = \'best\'\nqueue_max = 0\n'
        "queue_limit_s = 0\n[probe]\nkind = 'http'\npath = 'health'\nport = 70000\nperiod_s = 0\nfall = 0\nrise = 1.5\n"
        "grace_s = -1\nreplace_max = -1\ncommand = 'rm -rf'\n"
    )
    assert set(problems(tmp_path, text)) == {
        "arguments[1]",
        "serving.port",
        "serving.listen",
        "serving.distribution",
        "serving.queue_max",
        "serving.queue_limit_s",
        *(f"probe.{key}" for key in ("path", "port", "period_s", "fall", "rise", "grace_s", "replace_max", "command")),
    }


def test_too_many_arguments(tmp_path: Path) -> None:
    text = f"{TOP}arguments = {['x'] * 101}\n{FLOW}"
    assert problems(tmp_path, text)["arguments"].expected == "at most 100 arguments"


def test_a_model_may_be_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, TOP + FLOW + 'model = "multi-server"\n').flows[0].model is ModelForm.MULTI_SERVER


def test_a_fitted_model_has_its_figures(tmp_path: Path) -> None:
    fitted = TOP + FLOW + 'model = "shifted-hyperbola"\nc_mhz_s = 900\nload_mhz = 0\n'
    throughput = TOP + '[[flows]]\nname = "b"\nthroughput_per_s = 5\nmodel = "shifted-hyperbola"\n'

    flow = read(tmp_path, fitted).flows[0]

    assert (flow.model, flow.c_mhz_s, flow.load_mhz) == (ModelForm.SHIFTED_HYPERBOLA, 900.0, 0.0)
    assert read(tmp_path, throughput).flows[0].c_mhz_s is None
    assert understood(read(tmp_path, fitted))["flows"][0]["c_mhz_s"] == 900.0


@pytest.mark.parametrize("keys", ['model = "shifted-hyperbola"', "c_mhz_s = 900", "load_mhz = 5"])
def test_figures_belong_to_the_fitted_model_alone(tmp_path: Path, keys: str) -> None:
    found = problems(tmp_path, TOP + FLOW + keys + "\n")
    assert found["flows[0].model"].expected.startswith("shifted-hyperbola with c_mhz_s, or another model")


def test_every_problem_at_once(tmp_path: Path) -> None:
    text = (
        'name = "a#1"\nmemory = 5\nmax_mhz = 0\nmin_instances = 3\nmax_instances = 2\nmetrics_url = "ftp://x"\n'
        '[rules]\nnode_affinity = ["n1", "n2"]\nnode_anti_affinity = ["n2"]\naffinity = "g"\nanti_affinity = "g"\n'
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
        "rules.node_anti_affinity": "nothing that rules.node_affinity has",
        "rules.anti_affinity": "nothing that rules.affinity has",
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
