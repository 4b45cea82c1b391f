"""Environments on real processes: an owner each, users, setups that are programs, and nodes that follow the load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.environment_scene import (
    ANN,
    BATCH,
    BUSY_MHZ,
    CALM_MHZ,
    JOE,
    KIM,
    LEE,
    PROVIDER,
    WEB,
    Estate,
    estate,
)
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, SOON_S


@pytest.mark.accept
def test_a_day_of_two_partners(broker: PrivateBroker, tmp_path: Path) -> None:
    """Load grows and falls, nodes go from one to the other and back with every setup, and no work is lost."""
    with estate(broker, tmp_path) as town:
        town.open(WEB)
        town.open(BATCH, lower=2, coordinated_with="front")
        town.until_environment("night", size=3, owned=3, partner="front")
        town.submit_to(JOE, "night", "wide", work_s=600.0, instances=2)
        town.submit_to(JOE, "night", "thin", work_s=600.0)
        homes = town.running("wide#0", "wide#1", "thin#0")
        town.serve()
        town.running("shop#0")
        (served,) = town.nodes_of("front")
        assert served not in homes.values()  # the idle one came first
        assert town.setups.done(served)[-3:] == [
            "acquire night wipe",
            "release night wipe",
            "acquire front web-image",
        ]

        town.lab.fake.load("shop", BUSY_MHZ)
        town.running("shop#1")
        both = town.nodes_of("front")
        (left,) = town.nodes_of("night")
        assert len(both) == 2
        assert town.environment("night")["suspended"] >= 1
        saved = done_of(town)
        assert min(saved.values()) > 0.0
        town.lab.fake.load("shop", CALM_MHZ)
        town.until_environment("front", LIMIT_S, size=1, owned=1)
        town.until_environment("night", LIMIT_S, size=2, owned=2)
        (back,) = set(town.until_nodes("night", 2)) - {left}
        assert town.setups.done(back)[-3:] == [
            "acquire front web-image",
            "release front web-image",
            "acquire night wipe",
        ]

        town.running("wide#0", "wide#1", "thin#0")
        assert all(done >= saved[job] for job, done in done_of(town).items())
        town.done_by(KIM, "env", "deactivate", "night", "--wait", "30")
        saved = done_of(town)
        assert town.nodes_of("night") == []
        assert all(vm.startswith("shop#") for vm in town.homes())
        town.done_by(KIM, "env", "activate", "night", "--wait", "30")
        town.running("wide#0", "wide#1", "thin#0")
        assert all(done >= saved[job] for job, done in done_of(town).items())
        town.nothing_doubled()

        town.done_by(LEE, "env", "destroy", "front", "--yes", "--wait", "30")
        town.done_by(KIM, "env", "destroy", "night", "--yes", "--wait", "30")
        assert town.states() == {"front": ("destroyed",) * 2, "night": ("destroyed",) * 2}
        assert town.homes() == {}
        every_setup_in_order(town)


def done_of(town: Estate) -> dict[str, float]:
    """The work of each job that its guests have truly done."""
    return {task["job"]: task["done_mcycles"] for task in town.lab.fake.state()["tasks"]}


def every_setup_in_order(town: Estate) -> None:
    """On each node whoever acquired it has released it before anybody else acquires it, each with its own command."""
    for node in town.lab.nodes:
        done = town.setups.done(node)
        assert [line.split()[0] for line in done] == ["acquire", "release"] * (len(done) // 2), done
        holders = [tuple(line.split()[1:]) for line in done]
        assert holders[::2] == holders[1::2], done
        assert set(holders) <= {("night", "wipe"), ("front", "web-image")}
        given = [(one["subject"], one["detail"]) for one in town.heard("node-acquired", node)]
        assert [(node, name) for name, _ in holders[::2]] == given


# --- what somebody may not -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def town(broker: PrivateBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    """Kim's environment with a job of Joe's, and Lee's with an application: what is refused leaves both as they are."""
    with estate(broker, tmp_path_factory.mktemp("hosts")) as made:
        made.open(BATCH)
        made.open(WEB, shares=False)
        made.submit_to(JOE, "night", "mine", work_s=600.0)
        made.serve()
        made.running("mine#0", "shop#0")
        yield made


def as_it_is(town: Estate) -> tuple[Any, ...]:
    """All that must not change while everything is refused."""
    volatile = ("provision_s", "manage_s", "next_provision_s", "next_manage_s")
    rows = [town.environment(name) for name in ("night", "front")]
    kept = [{key: value for key, value in row.items() if key not in volatile} for row in rows]
    jobs = town.look("jobs", "list")["jobs"]
    apps = town.look("web", "list")["apps"]
    return kept, [(job["name"], job["phase"]) for job in jobs], [app["name"] for app in apps], town.homes()


def others_commands(town: Estate, environment: str, job: str, app: str) -> list[tuple[str, ...]]:
    """Every command that names something of an environment."""
    late = town.job_file("late", 1.0)
    return [
        ("env", "show", environment),
        ("env", "activate", environment),
        ("env", "deactivate", environment),
        ("env", "destroy", environment, "--yes"),
        ("env", "resize", environment, "--lower", "0", "--upper", "none"),
        ("env", "resize", environment, "--lower", "0"),
        ("env", "consent", environment, "front"),
        ("env", "consent", environment, "front", "--withdraw"),
        ("jobs", "submit", str(late), "--env", environment),
        ("jobs", "show", job),
        ("jobs", "cancel", job),
        ("vms", "suspend", job),
        ("vms", "resume", job),
        ("web", "submit", town.app_file("other"), "--env", environment),
        ("web", "show", app),
        ("web", "remove", app),
    ]


def providers_commands(town: Estate) -> list[tuple[str, ...]]:
    """What only the provider may do."""
    return [
        ("nodes", "list"),
        ("nodes", "show", "n1"),
        ("nodes", "drain", "n1"),
        ("nodes", "repair", "n1"),
        ("vms", "list"),
        ("status",),
        ("plan", "show"),
        ("pause",),
        ("jobs", "submit", str(town.job_file("late", 1.0))),
        ("decide", "--dry-run"),
    ]


@pytest.mark.parametrize(
    ("account", "real"),
    [
        (LEE, ("night", "mine", "nothing")),
        (KIM, ("front", "nobodys", "shop")),
        (ANN, ("night", "mine", "shop")),
    ],
)
def test_what_is_of_others_looks_as_if_it_were_not_there(
    town: Estate, account: str, real: tuple[str, str, str]
) -> None:
    """Every command on it is refused in the words in which one on nothing is, and changes nothing."""
    before = as_it_is(town)
    nothing = ("nowhere", "nobodys", "nothing")
    for words, likewise in zip(others_commands(town, *real), others_commands(town, *nothing), strict=True):
        said, as_said = town.here(account, *words), town.here(account, *likewise)
        assert said.status == as_said.status == 1, (words, said, as_said)
        expected = as_said.err
        for none, name in zip(nothing, real, strict=True):
            expected = expected.replace(none, name)
        assert said.out == as_said.out == "", words
        assert said.err == expected, words
    assert as_it_is(town) == before


@pytest.mark.parametrize("account", [KIM, LEE, JOE])
def test_what_only_the_provider_may(town: Estate, account: str) -> None:
    """Refused by name, with what the account may ask for instead."""
    before = as_it_is(town)
    for words in providers_commands(town):
        said = town.here(account, *words)
        assert (said.status, said.out) == (1, ""), (words, said)
        assert "not-allowed" in said.err, (words, said.err)
        assert "only" in said.err, (words, said.err)
    follow = town.here(account, "events", "--follow", "--count", "1")
    assert (follow.status, "ACCESS_REFUSED" in follow.err) == (1, True)
    assert as_it_is(town) == before


def test_what_each_sees(town: Estate) -> None:
    """The lists of each account."""
    for account, environments, jobs in (
        (KIM, ["night"], ["mine"]),
        (LEE, ["front"], []),
        (JOE, ["night"], ["mine"]),
        (ANN, [], []),
    ):
        rows = town.here(account, "env", "list", "--output", "json").data
        assert ([row["name"] for row in rows["environments"]], rows["total"]) == (environments, len(environments))
        rows = town.here(account, "jobs", "list", "--output", "json").data
        assert ([row["name"] for row in rows["jobs"]], rows["total"]) == (jobs, len(jobs))
    joes = town.done_by(JOE, "env", "list", "--output", "json").data["environments"]
    assert joes == [{"name": "night", "state": "running"}]


# --- what cannot be ---------------------------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "ranges": (
        {"lower": -1, "lease_s": 0, "setup": {"policy": "exec"}, "batch": {"elastic_factor": 2}, "colour": "red"},
        ["colour: no such key", "lower: is -1", "lease_s: is 0", "batch.elastic_factor: is 2", "setup.command: is ''"],
    ),
    "bounds of its model": (
        {"upper": 2},
        ["lower: is 1 (expected bounds that its model takes: the model fb has one bound: leave upper out"],
    ),
    "policies": (
        {"model": "fbb", "scheduling": {"policy": "fist-fit"}},
        ["model: is 'fbb' (expected one of dedicated, fb, flb-nub, on-demand)", "scheduling.policy: is 'fist-fit'"],
    ),
    "kinds": (
        {"workload": "bach", "granularity": "core", "resource": "gpu", "coordinated_with": "a b"},
        ["workload: is 'bach'", "granularity: is 'core'", "resource: is 'gpu'", "coordinated_with: is 'a b'"],
    ),
}
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "above the cluster": (
        {"lower": 4},
        "infeasible: environment 'more' needs 4 nodes, 3 are there, of which 1 is promised to 'night' and 1",
    ),
    "another system": ({"os_type": "plan9"}, "infeasible: environment 'more' needs 1 nodes running plan9, 0 are there"),
    "a partner of the same kind": ({"coordinated_with": "night"}, "coordination: "),
    "a name that is taken": ({"name": "night"}, "duplicate-name: "),
    "another owner": ({"owner": "lee"}, "not-allowed: owner is 'lee', but owner.kim may only create environments of"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_agreement_that_cannot_be_read(town: Estate, case: str) -> None:
    """Exit status 2, every key that is wrong with what would be right, nothing sent."""
    keys, problems = UNREADABLE[case]
    said = town.here(KIM, "env", "create", town.agreement(BATCH, {"name": "more"}, keys))
    assert (said.status, said.out) == (2, "")
    assert all(problem in said.err for problem in problems), said.err
    assert len(said.err.splitlines()) == len(problems)
    assert all("expected" in line for line in said.err.splitlines())
    assert set(town.states()) == {"night", "front"}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_agreement_that_cannot_be_kept(town: Estate, case: str) -> None:
    """Exit status 1, the reason, and everything is as it was."""
    keys, why = IMPOSSIBLE[case]
    before = as_it_is(town)
    said = town.here(KIM, "env", "create", town.agreement(BATCH, {"name": "more"}, keys))
    assert (said.status, said.out) == (1, "")
    assert f"error: {why}" in said.err
    assert as_it_is(town) == before


def test_partners_that_go_round_in_circles(town: Estate) -> None:
    """The second that names a partner somebody else has already named is refused."""
    before = as_it_is(town)
    first = town.agreement(BATCH, {"name": "one", "lower": 0, "coordinated_with": "two", "owner": "kim"})
    assert town.here(KIM, "env", "create", first).status == 0
    web = {"name": "two", "owner": "kim", "lower": 0, "coordinated_with": "three"}
    said = town.here(KIM, "env", "create", town.agreement(WEB, web))
    assert (said.status, said.out) == (1, "")
    assert "error: coordination: " in said.err
    assert "'one'" in said.err
    town.done_by(KIM, "env", "destroy", "one", "--yes", "--wait", "30")
    assert as_it_is(town) == before


def test_steps_that_cannot_be_taken(town: Estate) -> None:
    """Of an environment's life, by its owner and the provider."""
    before = as_it_is(town)
    steps = {
        ("env", "resize", "night", "--lower", "99"): "infeasible: environment 'night' needs 99 nodes, 3 are there",
        ("env", "resize", "night", "--lower", "3", "--upper", "2"): "invalid-value: upper",
        ("env", "activate", "nihgt"): "unknown-environment: there is no environment 'nihgt'; nearest: 'night'",
        ("env", "consent", "night", "night"): "coordination: ",
        ("jobs", "submit", str(town.job_file("vast", 1.0, 9, spread=True)), "--env", "night"): "fits-no-environment",
        ("web", "submit", town.app_file("other"), "--env", "night"): "wrong-workload: ",
        ("env", "show", "two words"): "NAME = 'two words': expected 1 to 128 ASCII letters",
    }
    for words, why in steps.items():
        said = town.here(KIM, *words)
        assert (said.status, said.out) == (2 if "two words" in words else 1, ""), (words, said)
        assert why in said.err, (words, said.err)
    assert town.here(PROVIDER, "env", "activate", "night").status == 0  # it is so already
    assert town.here(PROVIDER, "nodes", "remove", town.nodes_of("night")[0]).status == 1  # its job is there
    assert as_it_is(town) == before


# --- a setup that fails -----------------------------------------------------------------------------------------------


def test_a_setup_that_fails(town: Estate) -> None:
    """The node is handed to nobody, with what its program said, until it is repaired; all setups begin anew then."""
    (node,) = set(town.lab.nodes) - set(town.nodes_of("night")) - set(town.nodes_of("front"))
    town.setups.break_(node, "disk is full")
    town.here(KIM, "env", "create", town.agreement(BATCH, {"name": "third"}))
    town.here(KIM, "env", "activate", "third")
    failed = town.until_heard("setup-failed", node)
    assert "acquire of third: wipe, try 1 of 1" in failed["detail"]
    assert "disk is full" in failed["detail"]
    row = town.node(node)
    assert (row["handover"], "disk is full" in str(row)) == ("failed", True)
    waiting = town.by(KIM, "env", "activate", "third", "--wait", "1")
    assert (waiting.status, "its setup has failed: acquire of third: wipe" in waiting.err) == (1, True)
    assert town.setups.done(node) == []

    town.setups.mend(node)
    town.do("nodes", "repair", node)
    town.until_environment("third", state="running", owned=1)
    assert town.setups.done(node) == ["release third wipe", "acquire third wipe"]
    town.do("env", "destroy", "third", "--yes", "--wait", f"{SOON_S:g}")
    assert town.setups.done(node)[2:] == ["release third wipe"]
