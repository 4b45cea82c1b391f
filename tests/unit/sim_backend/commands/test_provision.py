"""`trimtab sim provision`: what it prints and with which exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from daemons.models.deadline.rules import METHODS
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
THESIS = EXAMPLES / "provision-thesis.toml"
QUICK = "static,threshold,delayed-threshold,cost-aware-fast"
POLICY_KEYS = {"value_at_0", "expected_server_cost", "miss_probability", "deployments", "mean_servers"}


def run(*arguments: object) -> Any:
    """What the command printed and how it ended."""
    return CliRunner().invoke(main, ["sim", "provision", *map(str, arguments)])


def provisioned(*arguments: object, status: int = 0) -> Any:
    """The JSON of a run."""
    outcome = run(*arguments, "--output", "json")
    assert outcome.exit_code == status, outcome.output
    return json.loads(outcome.stdout)


def scenario(tmp_path: Path, *replacements: tuple[str, str]) -> Path:
    """A small one: two hours, up to three servers."""
    text = THESIS.read_text()
    small = (
        ("submission_end = 64", "submission_end = 5"),
        ("deadline = 92", "deadline = 12"),
        ("max = 5", "max = 3"),
        ("profile = [2.0, -1.04167e-4, 1.80845e-9]", "profile = [1.2]"),
        ("confidence = 0.9999", "confidence = 0.9"),
    )
    for old, new in (*small, *replacements):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return path


@pytest.mark.full
def test_the_keys_of_the_output(tmp_path: Path) -> None:
    """Every policy, exactly and at random."""
    found = provisioned(scenario(tmp_path), "--monte-carlo", 500)
    assert {"capacity", "policies", "wall_s", "monte_carlo"} <= set(found)
    assert list(found["policies"]) == list(found["monte_carlo"]) == list(METHODS)
    assert {"capacity", "policies"} <= set(found["wall_s"])
    assert (len(found["capacity"]), len(found["capacity"][0])) == (12, 3)
    for name, policy in found["policies"].items():
        assert set(policy) >= POLICY_KEYS
        assert set(policy["deployments"]) == {"events", "servers"}
        assert len(policy["mean_servers"]) == 12
        played = found["monte_carlo"][name]
        low, high = played["intervals_95"]["expected_server_cost"]
        assert low <= played["expected_server_cost"] <= high
        assert played["expected_server_cost"] == pytest.approx(policy["expected_server_cost"], rel=0.05)
        assert (policy["value_at_0"] is None) == (name not in found_values())
    optimal = found["policies"]["optimal"]
    assert optimal["lower_bound"] <= optimal["value_at_0"] * (1 + 1e-9)
    assert optimal["miss_probability"] <= 0.1


def found_values() -> set[str]:
    """Policies with a value function."""
    return {"cost-aware", "cost-aware-monotone", "cost-aware-fast", "optimal"}


@pytest.mark.full
def test_the_thesis() -> None:
    """Capacities, the static size and what two policies cost."""
    found = provisioned(THESIS, "--policies", "static, threshold")
    assert found["capacity"][0] == [None, None, None, 49, 108]
    assert found["capacity"][64] == [6, 18, 29, 40, 50]
    assert found["breach"]["3"] == pytest.approx(0.008107, abs=5e-7)
    assert list(found["policies"]) == ["static", "threshold"]
    assert found["policies"]["static"]["mean_servers"] == pytest.approx([4.0] * 92)
    assert found["policies"]["static"]["expected_server_cost"] == pytest.approx(368.0)
    assert found["policies"]["static"]["miss_probability"] == pytest.approx(3.38e-7, rel=2e-3)
    assert found["policies"]["threshold"]["expected_server_cost"] == pytest.approx(229.25, abs=5e-3)
    assert "monte_carlo" not in found


@pytest.mark.full
def test_real_prices() -> None:
    """Given a weekend on which power is given away around noon, then the cost-aware policy is cheaper by a quarter at
    least, and what it costs is in EUR."""
    found = provisioned(EXAMPLES / "provision-day-ahead.toml", "--policies", QUICK)
    cost = {name: each["expected_server_cost"] for name, each in found["policies"].items()}
    assert 0.0 < cost["cost-aware-fast"] < 0.75 * cost["threshold"] < cost["static"]
    assert cost["static"] < 4 * 23 * 0.25 * 0.25  # 4 servers, 23 hours, 0.25 kW, at less than 0.25 EUR per kWh


@pytest.mark.full
def test_guarded_sizes_keep_the_promise(tmp_path: Path) -> None:
    """Given the option, then a cost-aware policy keeps the promise that it otherwise breaks, at a cost."""
    found = []
    for guarded in ("false", "true"):
        text = THESIS.read_text().replace('"increasing"', '"uniform"')
        path = tmp_path / "scenario.toml"
        path.write_text(text.replace("confidence = 0.9999", f"confidence = 0.9999\nguarded = {guarded}"))
        found.append(provisioned(path, "--policies", "cost-aware-fast")["policies"]["cost-aware-fast"])
    assert found[1]["miss_probability"] <= 1e-4 < found[0]["miss_probability"]
    assert found[1]["expected_server_cost"] > found[0]["expected_server_cost"]


def test_a_promise_that_cannot_be_kept(tmp_path: Path) -> None:
    """Given too few servers, then exit status 1 with the figures nevertheless, and why."""
    path = scenario(tmp_path, ("max = 3", "max = 1"), ("mean_s = 480", "mean_s = 240"))
    found = provisioned(path, "--policies", QUICK, status=1)
    assert "1 servers" in found["infeasible"]
    assert found["policies"]["static"]["miss_probability"] > 0.1
    assert provisioned(scenario(tmp_path), "--policies", "static")["infeasible"] is None


def test_seeds(tmp_path: Path) -> None:
    """The same seed plays the same periods."""
    path = scenario(tmp_path)
    one, same, other = (
        provisioned(path, "--policies", "threshold", "--monte-carlo", 50, "--seed", seed)["monte_carlo"]
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_for_people(tmp_path: Path) -> None:
    """Tables with the names of all policies asked for."""
    outcome = run(scenario(tmp_path), "--policies", QUICK, "--monte-carlo", 50)
    assert outcome.exit_code == 0
    for word in (*QUICK.split(","), "miss probability", "95 % intervals", "most jobs", "PoB"):
        assert word in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policies", "greedy"), "greedy"),
        (("--policies", ""), "expected"),
        (("--monte-carlo", "0"), "--monte-carlo"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], said: str) -> None:
    """Exit status 2, naming what is wrong."""
    outcome = run(THESIS, *arguments)
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert "Traceback" not in outcome.output


def test_bad_files(tmp_path: Path) -> None:
    """Exit status 2 with every problem; in JSON too."""
    path = scenario(tmp_path, ("confidence = 0.9 ", "confidence = 1 "), ("min = 1", "min = 4"))
    found = provisioned(path, status=2)
    assert {each["where"].rpartition(": ")[2] for each in found["error"]["problems"]} == {
        "promise.confidence",
        "servers.max",
    }
    assert run(tmp_path / "gone.toml").exit_code == 2
