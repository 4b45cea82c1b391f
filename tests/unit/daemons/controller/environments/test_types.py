"""The controller asks types of other packages as it asks its own; one that fails, or is not there, changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.controller.environments.types import without_type
from daemons.environment_types.registry import distribution_of, replica_step
from daemons.manifests.agreement import read_agreement
from daemons.manifests.type_rules import type_rows
from shared.base.errors import InvalidInput, InvalidValue, UnknownType
from shared.policy_api.coordination import InstancesView
from shared.ports import plugins
from shared.protocol.operator_messages import Query
from shared.values.agreement import BatchTerms, WebTerms
from shared.values.web_app import Distribution, Serving
from tests.support import planted_types
from tests.support.coordination_harness import LEASE_S, CoordinationHarness
from tests.support.environment_cases import agreement
from tests.support.environment_harness import EnvironmentHarness
from tests.support.installed_types import installed
from tests.support.planted_types import PLANTED, SEEN

POINTS = {
    "jobs": "tests.support.planted_types:Jobs",
    "site": "tests.support.planted_types:Site",
    "gone": "tests.support.planted_types:Nowhere",
    "bare": "tests.support.planted_types:Bare",
    "sideless": "tests.support.planted_types:Sideless",
}
IMPOSSIBLE = [ValueError("out of luck"), math.nan, -1, 65_537, True]


@pytest.fixture(autouse=True)
def types(tmp_path: Path) -> Iterator[None]:
    """The planted types are installed; `gone` cannot be loaded."""
    PLANTED.clear()
    SEEN.clear()
    PLANTED.update(units=3, spare=0, step=0)
    with installed(tmp_path / "site", POINTS):
        yield


@pytest.fixture
def harness() -> CoordinationHarness:
    return CoordinationHarness(8).begin()


def mixed(harness: CoordinationHarness, **fields: Any) -> None:
    """Environments `hpc` of the type `jobs` and `shop` of the type `site`, coordinated; lower bounds 2 and 1."""
    common = {"model": "flb-nub"} | fields
    harness.environment("hpc", "batch", 2, "shop", type="jobs", **common)
    harness.environment("shop", "web", 1, "hpc", type="site", **common)
    harness.look()


# --- managers --------------------------------------------------------------------------------------------------------


def test_units_follow_the_managers_of_both_sides(harness: CoordinationHarness) -> None:
    """At the batch manager's timer, and when the web environment's instances fill another number, with the reason."""
    mixed(harness)
    PLANTED.update(units=5, reason="five will do")
    harness.pass_time(LEASE_S)
    assert harness.sizes() == {"hpc": 5, "shop": 0}
    PLANTED["spare"] = 1
    assert harness.happenings("environment-sized")[-1].detail == "3 to 5: manage: five will do"
    harness.app("site", 2)
    assert harness.sizes() == {"hpc": 5, "shop": 3}
    assert harness.happenings("environment-sized")[-1].detail.endswith("to 3: demand: one to spare")


def test_what_a_manager_sees(harness: CoordinationHarness) -> None:
    """The environment and its terms, its waiting jobs in their order with how long they have waited, and how long
    nothing has come or ended."""
    mixed(harness, batch=BatchTerms(1.5))
    harness.pass_time(100.0)
    for name, goal_s in (("wide", None), ("urgent", 5_000.0)):
        harness.submit(name, 4, goal_s=goal_s)
    harness.pass_time(LEASE_S - 100.0)
    view = SEEN[-1] if SEEN[-1].party.name == "hpc" else SEEN[-2]
    assert (view.party.batch, view.party.queued, view.party.biggest) == (BatchTerms(1.5), 8, 4)
    assert [(job.units, round(job.waited_s)) for job in view.waiting] == [(4.0, 500), (4.0, 500)]
    assert view.waiting[0].goal_in_s is None
    assert view.waiting[1].goal_in_s == pytest.approx(5_000.0 - harness.now_s)
    assert view.quiet_s == pytest.approx(500.0)
    PLANTED["units"] = 8
    harness.pass_time(LEASE_S)
    assert set(harness.phases().values()) == {"running"}
    harness.finish("wide")
    harness.pass_time(LEASE_S)
    views = [one for one in SEEN if one.party.name == "hpc"]
    assert (views[-1].waiting, views[-1].quiet_s) == ((), pytest.approx(LEASE_S, abs=1.0))


def test_a_new_leader_knows_how_long_it_has_been_quiet(harness: CoordinationHarness) -> None:
    mixed(harness)
    harness.submit("brief")
    harness.finish("brief")
    harness.pass_time(LEASE_S / 2.0)
    later = harness.successor()
    later.pass_time(LEASE_S)
    quiet_s = [view.quiet_s for view in SEEN if view.party.name == "hpc"][-1]
    assert LEASE_S / 2.0 < quiet_s < math.inf


@pytest.mark.parametrize("answer", IMPOSSIBLE, ids=str)
def test_a_manager_that_fails_changes_nothing(harness: CoordinationHarness, answer: Any) -> None:
    """And its partner goes on: units come with its instances."""
    mixed(harness)
    PLANTED["units"] = answer
    harness.pass_time(LEASE_S)
    (event,) = harness.happenings("coordination-failed")
    assert (event.subject, event.detail.startswith("flb-nub, jobs, site: ")) == ("hpc+shop", True)
    assert harness.sizes() == {"hpc": 3, "shop": 0}
    harness.app("site", 2)
    assert harness.sizes() == {"hpc": 3, "shop": 2}


@pytest.mark.parametrize("answer", [ValueError("out of luck"), -5, 65_536])
def test_a_manager_of_web_applications_that_fails_changes_nothing(harness: CoordinationHarness, answer: Any) -> None:
    mixed(harness)
    PLANTED["spare"] = answer
    harness.app("site", 2)
    assert harness.sizes() == {"hpc": 3, "shop": 0}
    assert harness.happenings("coordination-failed")


# --- instances and requests ------------------------------------------------------------------------------------------


def test_steps_of_a_type_hold_within_the_bounds() -> None:
    agreed = agreement("shop", "web", 1, type="site")
    view = InstancesView(2, 0.7, WebTerms(), 1, 3)
    for step in (1, 0, -1):
        PLANTED["step"] = step
        assert replica_step(agreed, view) == step
    assert replica_step(agreed, replace(view, utilisation=math.nan)) == 0
    PLANTED["step"] = -1
    with pytest.raises(InvalidValue, match="instances"):
        replica_step(agreed, replace(view, instances=1))
    for answer in (2, 0.5, math.nan, True, None):
        PLANTED["step"] = answer
        with pytest.raises(InvalidValue, match="adjust"):
            replica_step(agreed, view)


def test_requests_are_distributed_as_the_application_says_else_as_the_type_does(harness: CoordinationHarness) -> None:
    mixed(harness)
    harness.app("site", 1)
    cluster = harness.controller.cluster
    app = cluster.web["site"].app
    said = replace(app, serving=Serving(80, 80, Distribution.ROUND_ROBIN))
    agreed = cluster.environments["shop"].agreement
    assert distribution_of(app, agreed) is Distribution.SOURCE
    assert distribution_of(said, agreed) is Distribution.ROUND_ROBIN
    assert distribution_of(app, None) is Distribution.LEAST_CONNECTIONS
    for kind in ("web", "other"):
        assert distribution_of(app, replace(agreed, type=kind)) is Distribution.LEAST_CONNECTIONS


# --- types that are not there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"type": "other"}, "unknown-type", "there is no 'other' (expected one of bare, batch, gone, jobs, "),
        ({"type": "gone"}, "unknown-type", "cannot be loaded"),
        ({"type": "bare"}, "unknown-type", "is none: Bare (expected an `EnvironmentType`)"),
        ({"type": "sideless"}, "unknown-type", "is none: workload (expected an `EnvironmentType`)"),
        ({"type": "site"}, "unknown-type", "is for web workloads, not batch"),
        ({"type": "jobs", "terms": {"a": 1, "b": 2}}, "invalid-value", "a: is not known\nb: is not known"),
        ({"terms": {"a": 1}}, "invalid-value", "type batch: a: there is no such term (expected none)"),
    ],
)
def test_agreements_that_are_refused(fields: dict[str, Any], code: str, said: str) -> None:
    harness = EnvironmentHarness()
    harness.lead()
    harness.hear()
    reply = harness.create("hpc", "batch", 1, **fields)
    assert (reply.done, reply.code) == (False, code)
    assert said in reply.detail
    assert not harness.controller.cluster.environments
    assert harness.create("hpc", "batch", 1, type="jobs", terms={"speed": 3}).done


def test_a_type_that_cannot_check_its_terms_takes_no_agreement() -> None:
    harness = EnvironmentHarness()
    harness.lead()
    harness.hear()
    PLANTED["check"] = KeyError("speed")
    assert harness.create("hpc", "batch", 1, type="jobs").code == "invalid-value"


def test_environments_of_a_type_that_is_gone_keep_what_they_have(harness: CoordinationHarness, tmp_path: Path) -> None:
    """After an upgrade, with an alarm; the others go on."""
    with installed(tmp_path / "more", {"early": POINTS["jobs"], "late": POINTS["site"]}):
        harness.environment("hpc", "batch", 2, "shop", type="early", model="flb-nub")
        harness.environment("shop", "web", 1, "hpc", type="late", model="flb-nub")
        harness.environment("other", "batch", 1, model="flb-nub")
        harness.look()
        harness.app("site", 1)
        harness.pass_time(LEASE_S)
    before, held = harness.sizes(), harness.held()
    assert before == {"hpc": 3, "shop": 1, "other": 1}
    PLANTED["units"] = 6
    later = harness.successor()
    later.pass_time(LEASE_S)
    assert (later.sizes(), later.held()) == (before, held)
    failed = {event.subject: event.detail for event in later.happenings("coordination-failed")}
    assert failed.keys() == {"hpc"}
    assert "there is no 'early'" in failed["hpc"]
    assert without_type(later.controller.cluster).keys() == {"hpc", "shop"}
    alarms = later.ask(Query("look", "status")).data["alarms"]
    assert [one["subject"] for one in alarms if one["what"] == "unknown-type"] == ["hpc", "shop"]
    later.submit("more", 4, environment="other")
    later.pass_time(LEASE_S)
    assert later.sizes() == before | {"other": 4}


def test_names_and_what_is_wrong_with_a_type() -> None:
    assert plugins.names(plugins.ENVIRONMENTS) == ("bare", "batch", "gone", "jobs", "sideless", "site", "web")
    with pytest.raises(UnknownType, match="'gone': cannot be loaded"):
        plugins.find_environment_type("gone")
    assert isinstance(plugins.find_environment_type("jobs"), planted_types.Jobs)
    rows = {row["name"]: row for row in type_rows()}
    assert {name for name, row in rows.items() if row["detail"]} == {"bare", "gone", "sideless"}
    assert (rows["jobs"]["terms"], rows["site"]["distribution"]) == ({"speed": "any"}, "source")


def test_a_type_that_cannot_be_loaded_is_tried_once(tmp_path: Path) -> None:
    """The controller asks for types again and again; a package that fails late would hold it up each time."""
    tried = tmp_path / "tried"
    with installed(tmp_path / "late", {"late": "late_types:Late"}):
        lines = (f"with open({str(tried)!r}, 'a') as file:", "    file.write('.')", "raise OSError('no disk')")
        (tmp_path / "late" / "late_types.py").write_text("\n".join(lines), "utf-8")
        for _ in range(3):
            with pytest.raises(UnknownType, match="'late': cannot be loaded: no disk"):
                plugins.find_environment_type("late")
    assert tried.read_text("utf-8") == "."


def test_files_of_agreements_of_types_that_cannot_be_used(tmp_path: Path) -> None:
    """What is wrong is told with the key, whatever the type raises."""
    top = 'name = "night"\nowner = "kim"\nlower = 1\nworkload = '
    for kind, rest, key, said in (
        ("gone", "", "workload", "a type that can be loaded"),
        ("bare", "", "workload", "is none: Bare"),
        ("jobs", "[terms]\na = 1\nb = 2\n", "terms", "a: is not known; b: is not known"),
        ("jobs", "[web]\n", "workload", "site or web, or no table [web]"),
    ):
        (tmp_path / "env.toml").write_text(f'{top}"{kind}"\n{rest}', "utf-8")
        with pytest.raises(InvalidInput) as caught:
            read_agreement(tmp_path / "env.toml")
        (problem,) = caught.value.problems
        assert (problem.where.rpartition(": ")[2], said in problem.expected) == (key, True)
    PLANTED["check"] = KeyError("speed")
    (tmp_path / "env.toml").write_text(f'{top}"jobs"\n', "utf-8")
    with pytest.raises(InvalidInput, match="terms that its type can check: KeyError"):
        read_agreement(tmp_path / "env.toml")
