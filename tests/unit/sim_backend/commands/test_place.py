"""`trimtab sim place`: what it prints and with which exit status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shared.ports.plugins import names, policy_group
from tests.support.place_cases import case, example, experiment_one, job, node, place, placed, web

KEYS = ["placement", "utilities", "level", "changes", "refusals", "evaluations", "wall_s"]
POLICIES = names(policy_group("placement"))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_keys_of_the_output(tmp_path: Path, policy: str) -> None:
    """The example under every registered policy: exactly the keys, everything finite, what runs fits."""
    raw = example()
    del raw["limits"]
    found = placed(tmp_path, raw, "--policy", policy)
    assert list(found) == KEYS
    assert set(found["utilities"]) == {each["name"] for each in raw["jobs"] + raw["web_apps"]}
    assert {key for each in found["utilities"].values() for key in each} == {"predicted", "best"}
    for change in found["changes"]:
        assert list(change)[:5] == ["action", "name", "from", "to", "reason"]
    for refusal in found["refusals"]:
        assert list(refusal) == ["name", "code", "detail"]
    capacity = {each["name"]: each["cpu_mhz"] for each in raw["nodes"]}
    for name, mhz in capacity.items():
        assert sum(each["cpu_mhz"] for each in found["placement"].values() if each["node"] == name) <= mhz * (1 + 1e-9)
    assert found["wall_s"] > 0


@pytest.mark.parametrize(
    ("goal_s", "running", "utilities"),
    [
        (17, {"J1": 1000.0}, {"J1": 0.7, "J2": 0.6875}),
        (13, {"J1": 500.0, "J2": 500.0}, {"J1": 0.6581, "J2": 0.6581}),
    ],
)
def test_experiment_one_second_cycle(
    tmp_path: Path, goal_s: float, running: dict[str, float], utilities: dict[str, float]
) -> None:
    """The decisions that apc.txt states, by the policy that is asked when none is named."""
    found = placed(tmp_path, experiment_one(goal_s))
    assert {name: held["cpu_mhz"] for name, held in found["placement"].items()} == running
    assert {name: each["predicted"] for name, each in found["utilities"].items()} == pytest.approx(utilities, abs=5e-5)
    assert [each["name"] for each in found["refusals"]] == sorted({"J1", "J2"} - set(running))


def test_a_utility_is_told_of_what_has_a_goal_only(tmp_path: Path) -> None:
    """Two of three have no goal."""
    raw = case(jobs=[job("aims", desired_start_s=0, goal_s=40, max_mhz=300), job("a", max_mhz=300), job("b")])
    found = placed(tmp_path, raw)
    assert found["utilities"]["a"] == found["utilities"]["b"] == {"predicted": None, "best": None}
    assert found["utilities"]["aims"]["predicted"] is not None
    assert re.search(r"^a +- +- +n1 ", place(tmp_path, raw).stdout, re.MULTILINE)


def test_whom_sharing_slows_is_told(tmp_path: Path) -> None:
    """Two that must share a disk, and one that goes elsewhere; blind, all is packed onto the first node."""
    disk = {"loading": {"io": 0.8}, "memory_mib": 900, "max_mhz": 400}
    raw = case(
        nodes=[node("n1"), node("n2")],
        jobs=[job("a", **disk), job("b", **disk), job("c", **disk)],
        constraints=[{"kind": "together", "members": ["a", "b"]}],
    )
    found = placed(tmp_path, raw)
    assert list(found) == [*KEYS, "slowed"]
    together = found["placement"]["a"]["node"]
    assert found["placement"]["c"]["node"] != together
    assert [each["text"] for each in found["slowed"]] == [
        f"{together}: slowed 1.6x by io sharing with b",
        f"{together}: slowed 1.6x by io sharing with a",
    ]
    assert any("slowed=1.64" in change["reason"] for change in found["changes"])
    shown = place(tmp_path, raw, "--output", "text").output
    assert "slowed 1.6x by io sharing with b" in shown


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_the_simple_policies_look_at_disks_when_told_to(tmp_path: Path, policy: str) -> None:
    disk = {"loading": {"io": 0.8}, "memory_mib": 900, "max_mhz": 400}
    raw = case(nodes=[node("n1"), node("n2")], jobs=[job("a", **disk), job("b", **disk)])
    blind = placed(tmp_path, raw, "--policy", policy)
    assert len({each["node"] for each in blind["placement"].values()}) == 1
    assert len(blind["slowed"]) == 2
    seeing = placed(tmp_path, raw, "--policy", policy, "--sharing", "composed")
    assert len({each["node"] for each in seeing["placement"].values()}) == 2
    assert seeing["slowed"] == []
    assert place(tmp_path, raw, "--policy", "apc", "--sharing", "composed").exit_code == 2


def test_names_and_places_in_the_output(tmp_path: Path) -> None:
    """A gang by instance, a web application by node, an image that is fetched from elsewhere."""
    raw = case(
        nodes=[node("n1", cpu_mhz=10), node("n2", cpu_mhz=4000)],
        jobs=[
            job("gang", instances=2),
            job("saved", state="suspended", image_node="n1"),
            job("runs", state="running", node="n2"),
        ],
        web_apps=[web("w", memory_mib=1, max_mhz=5)],
    )
    found = placed(tmp_path, raw, "--policy", "first-fit")
    assert set(found["placement"]) == {"gang#0", "gang#1", "saved", "runs", "w@n1"} or "w@n2" in found["placement"]
    changes = {each["name"]: (each["action"], each["from"], each["to"]) for each in found["changes"]}
    assert changes["gang#0"] == ("start", None, "n2")
    assert changes["saved"] == ("resume", "n1", "n2")
    assert changes["w"][:2] == ("start", None)
    assert "runs" not in changes


def test_what_gives_way_goes_nowhere(tmp_path: Path) -> None:
    jobs = [job("late", state="running", node="n1", goal_s=900), job("soon", goal_s=20)]
    found = placed(tmp_path, case(jobs=jobs), "--policy", "edf")
    first, second = found["changes"]
    assert (first["action"], first["name"], first["from"], first["to"], first["cpu_mhz"]) == (
        "suspend", "late", "n1", None, None
    )  # fmt: skip
    assert (second["action"], second["name"], second["cpu_mhz"]) == ("start", "soon", 1000.0)


def test_a_limit_on_changes_is_kept(tmp_path: Path) -> None:
    """Two urgent jobs could displace two that run; a file that allows one change gets one."""
    runs = {"state": "running", "node": "n1", "max_mhz": 500, "work_mcycles": 5000, "goal_s": 10_000}
    jobs = [job("a", **runs), job("b", **runs), *(job(name, max_mhz=500, goal_s=12) for name in ("c", "d"))]
    raw = case(nodes=[node(memory_mib=1000)], jobs=[each | {"work_mcycles": 5000} for each in jobs])
    free = placed(tmp_path, raw)
    assert sum(each["action"] == "suspend" for each in free["changes"]) == 2
    kept = placed(tmp_path, raw | {"limits": {"changes_max": 1}})
    assert sum(each["action"] == "suspend" for each in kept["changes"]) == 1


@pytest.mark.parametrize("policy", ["first-fit", "edf", "apc"])
def test_constraints_are_kept(tmp_path: Path, policy: str) -> None:
    """Jobs that would all fit on one node, and would rather be in another rack."""
    raw = case(
        nodes=[
            *(node(name, cpu_mhz=4000, labels=["rack=1"]) for name in ("n1", "n2")),
            node("n3", cpu_mhz=4000, labels=["rack=2", "old"]),
            node("n4", cpu_mhz=4000, labels=["rack=2"]),
        ],
        jobs=[job(name, goal_s=50) for name in "abcd"],
        constraints=[
            {"kind": "apart", "members": ["a", "b"]},
            {"kind": "pin", "members": ["c"], "nodes": ["n2"]},
            {"kind": "apart", "members": ["d"], "about": ["c"], "scope": "rack", "weight": 7},
            {"kind": "forbid", "members": ["d"], "labels": ["old"]},
        ],
    )
    found = placed(tmp_path, raw, "--policy", policy)["placement"]
    assert found["a"]["node"] != found["b"]["node"]
    assert found["c"]["node"] == "n2"
    assert found["d"]["node"] == "n4"


def test_nothing_placed_is_status_1_with_the_same_json(tmp_path: Path) -> None:
    """And no utility where nothing runs: there is no level."""
    found = placed(tmp_path, case(jobs=[job(memory_mib=9000, goal_s=50)]), "--policy", "first-fit", status=1)
    assert found["placement"] == {}
    assert found["level"] is None
    assert found["utilities"]["j"] == {"predicted": None, "best": 0.8}
    assert found["refusals"][0]["code"] == "fits-no-node"


def test_refusals_beside_something_placed_are_status_0(tmp_path: Path) -> None:
    found = placed(tmp_path, case(jobs=[job("a"), job("b", memory_mib=9000)]), "--policy", "first-fit")
    assert list(found["placement"]) == ["a"]
    assert [each["name"] for each in found["refusals"]] == ["b"]


def test_nothing_to_place_is_status_0(tmp_path: Path) -> None:
    assert placed(tmp_path, case(), "--policy", "first-fit")["placement"] == {}


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (case(jobs=[job(), job()]), (), "the name of jobs[0] too"),
        ('{"nodes": [{"name": "n", "cpu_mhz": NaN, "memory_mib": 1}]}', (), "nodes[0].cpu_mhz: is NaN"),
        ("{", (), ":1:2: "),
        (case(), ("--policy", "none"), "there is no 'none'"),
        (case(), ("--policy", "edf", "--heads", 2), "--heads: policy edf has no such parameter"),
        (case(limits={"changes_max": 1}), ("--policy", "edf"), "cannot keep a limit on changes"),
    ],
)
def test_wrong_input_is_status_2(tmp_path: Path, content: Any, words: tuple[object, ...], said: str) -> None:
    outcome = place(tmp_path, content, *words, "--output", "json")
    assert outcome.exit_code == 2, outcome.output
    assert said in outcome.stderr
    assert '"invalid-input"' in outcome.stdout or '"unknown-policy"' in outcome.stdout


@pytest.mark.parametrize("words", [("--tolerance", "nan"), ("--heads", 0), ("--guard", "maybe"), ("--tolerance", -1)])
def test_wrong_usage_is_status_2(tmp_path: Path, words: tuple[object, ...]) -> None:
    assert place(tmp_path, case(), *words).exit_code == 2


def test_the_options_reach_the_policy(tmp_path: Path) -> None:
    """With a tolerance of nothing the exact optimum is chosen, which differs by 0.0083."""
    found = placed(tmp_path, experiment_one(17), "--tolerance", 0.001, "--heads", 1, "--guard", "off")
    assert set(found["placement"]) == {"J1", "J2"}


def test_for_people(tmp_path: Path) -> None:
    raw = example() | {"limits": None}
    outcome = place(tmp_path, raw, "--policy", "edf")
    assert outcome.exit_code == 0
    words = re.sub(r"\s+", " ", outcome.stdout)
    for said in (
        "nightly",
        "n1 3,900 MHz",
        "0.6044",
        "resume",
        "earlier-goal",
        "index",
        "constraint",
        "level of the jobs",
    ):
        assert said in words
