"""`trimtab env` and what owners and users do with it, against a real controller over the bus in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import DeactivateEnvironment
from tests.support.operator_harness import USER, Rig

BATCH = 'name = "night"\nowner = "kim"\nworkload = "batch"\nlower = 2\nusers = ["joe"]\n'
WEB = 'name = "front"\nowner = "lee"\nworkload = "web"\nlower = 1\nshares = true\nnotice_s = 100\n'
JOB = 'name = "sum"\n[[stages]]\nwork_mcycles = 1_000_000\nmax_mhz = 1_000\nmemory_mib = 500\n'


@pytest.fixture
def rig() -> Rig:
    made = Rig(nodes=4, placement=PolicyChoice("first-fit"))
    made.run(30.0)
    return made


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """By what they are of."""
    made = {}
    for name, text in (("batch", BATCH), ("web", WEB), ("job", JOB)):
        made[name] = tmp_path / f"{name}.toml"
        made[name].write_text(text, "utf-8")
    return made


def as_user(rig: Rig, user: str) -> Rig:
    rig.user = user
    return rig


def only(data: dict[str, Any], key: str) -> dict[str, Any]:
    """The one row of a list."""
    (row,) = data[key]
    return dict(row)


def test_an_environment_lives_from_its_creation_to_its_end(rig: Rig, files: dict[str, Path]) -> None:
    as_user(rig, "owner.kim")
    created = rig.asked("env", "create", files["batch"])
    assert (created["done"], created["note"], created["agreement"]["name"]) == (True, "", "night")
    rig.run(1.0)
    assert only(rig.asked("env", "list"), "environments")["state"] == "created"

    running = rig.asked("env", "activate", "night", "--wait", 300)
    assert (running["environment"]["state"], running["environment"]["owned"]) == ("running", 2)
    view = rig.asked("env", "show", "night")["environment"]
    assert (len(view["nodes"]), view["agreement"]["users"]) == (2, ["joe"])

    resized = rig.asked("env", "resize", "night", "--lower", 1)
    assert (resized["lower"], resized["upper"]) == (1, None)
    stopped = rig.asked("env", "deactivate", "night", "--wait", 300)
    assert (stopped["environment"]["state"], stopped["environment"]["owned"]) == ("deactivated", 0)
    ended = rig.asked("env", "destroy", "night", "--yes", "--wait", 300)
    assert ended["environment"]["state"] == "destroyed"


def test_a_bound_that_is_left_out_stays(rig: Rig, files: dict[str, Path]) -> None:
    files["batch"].write_text(BATCH + 'model = "flb-nub"\nupper = 3\n', "utf-8")
    rig.asked("env", "create", files["batch"])
    for words, bounds in (
        (("--upper", 4), (2, 4)),
        (("--lower", 1), (1, 4)),
        (("--upper", "none"), (1, None)),
        (("--lower", 2, "--upper", 2), (2, 2)),
    ):
        resized = rig.asked("env", "resize", "night", *words)
        view = rig.asked("env", "show", "night")["environment"]
        assert (view["lower"], view["upper"]) == (resized["lower"], resized["upper"]) == bounds


def test_waiting_has_an_end_and_tells_what_holds_it_up(rig: Rig, files: dict[str, Path]) -> None:
    rig.asked("env", "create", files["batch"])
    rig.asked("nodes", "drain", "n1", "n2", "n3")
    before_s = rig.now_s()

    outcome = rig.trimtab("env", "activate", "night", "--wait", 20, "--output", "json")

    assert outcome.exit_code == 1
    error = json.loads(outcome.stdout)["error"]
    assert (error["code"], rig.now_s() - before_s >= 20.0) == ("not-yet", True)
    assert "environment night is created, requested running: " in outcome.stderr
    rig.asked("nodes", "undrain", "n1", "n2", "n3")
    assert rig.asked("env", "activate", "night", "--wait", 100)["environment"]["state"] == "running"


def test_two_owners_bring_their_environments_together_and_part_them(rig: Rig, files: dict[str, Path]) -> None:
    as_user(rig, "owner.lee").asked("env", "create", files["web"])
    rig.asked("env", "activate", "front", "--wait", 100)
    as_user(rig, "owner.kim").asked("env", "create", files["batch"])
    rig.asked("env", "activate", "night", "--wait", 100)
    assert rig.asked("env", "show", "night")["environment"]["offered"] == "front"

    assert rig.asked("env", "consent", "night", "front")["done"]
    rig.run(5.0)
    assert rig.asked("env", "show", "night")["environment"]["partner"] == "front"

    as_user(rig, "owner.lee").asked("env", "consent", "front", "night", "--withdraw")
    rig.run(90.0)
    assert rig.asked("env", "show", "front")["environment"]["partner"] == "night"
    rig.run(20.0)
    assert rig.asked("env", "show", "front")["environment"]["partner"] == ""


def test_a_user_submits_to_the_environment_that_names_it(rig: Rig, files: dict[str, Path]) -> None:
    """And sees its own jobs there, and nothing of anything else."""
    as_user(rig, "owner.kim").asked("env", "create", files["batch"])
    rig.asked("env", "activate", "night", "--wait", 100)

    as_user(rig, "user.joe").asked("jobs", "submit", files["job"], "--env", "night")
    rig.run(20.0)
    assert rig.asked("env", "list")["environments"] == [{"name": "night", "state": "running"}]
    mine = only(rig.asked("jobs", "list"), "jobs")
    assert (mine["name"], mine["environment"], mine["user"]) == ("sum", "night", "user.joe")
    assert mine["nodes"][0] in [node["name"] for node in _nodes(rig, "night")]
    as_user(rig, "user.ann")
    assert rig.asked("jobs", "list")["jobs"] == []
    assert rig.refused("jobs", "submit", files["job"], "--env", "night", "--name", "x")["code"] == "unknown-environment"
    assert rig.refused("jobs", "submit", files["job"], "--name", "x")["code"] == "not-allowed"
    assert rig.refused("jobs", "show", "sum")["code"] == "unknown-job"
    assert rig.refused("nodes", "list")["code"] == "not-allowed"
    as_user(rig, "user.joe").asked("jobs", "cancel", "sum")


def _nodes(rig: Rig, name: str) -> list[dict[str, Any]]:
    before, rig.user = rig.user, "owner.kim"
    nodes: list[dict[str, Any]] = rig.asked("env", "show", name)["environment"]["nodes"]
    rig.user = before
    return nodes


def test_an_owner_submits_web_applications_to_her_environment(rig: Rig, files: dict[str, Path], tmp_path: Path) -> None:
    """In an environment one needs no goal."""
    as_user(rig, "owner.lee").asked("env", "create", files["web"])
    rig.asked("env", "activate", "front", "--wait", 100)
    file = tmp_path / "shop.toml"
    file.write_text('name = "shop"\nmemory_mib = 500\nmax_mhz = 1_000\n', "utf-8")
    assert rig.asked("web", "submit", file, "--env", "front")["app"]["environment"] == "front"
    rig.run(60.0)
    assert only(rig.asked("web", "list"), "apps")["running"] == 1
    assert as_user(rig, "owner.kim").asked("web", "list")["apps"] == []
    assert rig.refused("web", "submit", file, "--env", "front")["code"] == "duplicate-name"
    removed = json.loads(rig.trimtab("web", "remove", "shop", "--output", "json").stdout)
    assert only(removed, "refused")["code"] == "unknown-web-app"


def test_an_owner_leads_no_other_environment(rig: Rig, files: dict[str, Path]) -> None:
    as_user(rig, "owner.kim").asked("env", "create", files["batch"])
    as_user(rig, "owner.lee")
    assert rig.refused("env", "create", files["batch"])["code"] == "not-allowed"
    for words in (
        ("activate", "night"),
        ("deactivate", "night"),
        ("destroy", "night", "--yes"),
        ("resize", "night", "--lower", 1),
        ("resize", "night", "--lower", 1, "--upper", "none"),
        ("consent", "night", "front"),
        ("show", "night"),
    ):
        assert rig.refused("env", *words)["code"] == "unknown-environment"
    assert rig.asked("env", "list") == rig.asked("env", "list") | {"total": 0, "environments": []}
    assert only(as_user(rig, USER).asked("env", "list"), "environments")["name"] == "night"


def test_wrong_usage_is_told_before_anything_is_sent(rig: Rig, files: dict[str, Path]) -> None:
    sent = rig.published
    files["batch"].write_text(BATCH + 'colour = "red"\n[web]\n', "utf-8")
    problems = rig.refused("env", "create", files["batch"], status=2)["problems"]
    assert [problem["where"].rpartition(": ")[2] for problem in problems] == ["colour", "workload"]
    assert rig.refused("env", "resize", "night", status=2)["problems"][0]["where"] == "--lower"
    for words in (("resize", "night", "--upper", "few"), ("resize", "night", "--upper", "0"), ("activate", "a b")):
        assert rig.trimtab("env", *words).exit_code == 2
    assert rig.trimtab("env", "destroy", "night", input="n\n").exit_code == 1
    assert rig.published == sent
    dry = rig.asked("env", "create", files["web"], "--dry-run")
    assert (dry["done"], dry["agreement"]["name"], rig.published) == (False, "front", sent)


def test_people_read_words(rig: Rig, files: dict[str, Path]) -> None:
    understood = rig.trimtab("env", "create", files["batch"], "--dry-run").output
    assert "specification of environment night" in understood
    assert "is created" in rig.trimtab("env", "create", files["batch"]).output
    rig.run(1.0)
    assert "environment night will be running" in rig.trimtab("env", "activate", "night").output
    rig.run(60.0)
    assert "night" in rig.trimtab("env", "list").output
    shown = rig.trimtab("env", "show", "night").output
    assert "on reclaim suspend" in shown
    assert "add above" not in shown  # the terms of web environments
    assert "bounds 1 and none" in rig.trimtab("env", "resize", "night", "--lower", 1).output
    assert "consents" in rig.trimtab("env", "consent", "night", "night2", "--withdraw").output
    assert "is destroyed" in rig.trimtab("env", "destroy", "night", "--wait", 100, input="y\n").output


def test_waiting_ends_when_somebody_wants_something_else(rig: Rig, files: dict[str, Path]) -> None:
    rig.asked("env", "create", files["batch"])
    rig.asked("nodes", "drain", "n1", "n2", "n3")
    began_s = rig.now_s()
    rig.loop.engine.at(began_s + 10.0, 0, lambda: rig.loop.operator.send(DeactivateEnvironment("stop", "night")))

    error = rig.refused("env", "activate", "night", "--wait", 500)

    assert error["code"] == "not-yet"
    assert "will be deactivated: another request asked for that" in error["message"]
    assert rig.now_s() < began_s + 20.0
