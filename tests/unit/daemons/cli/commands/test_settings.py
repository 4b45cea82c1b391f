"""`trimtab jobs set`, `vms set` and `web set` against a real controller: what is asked for, which names are meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.operator_harness import Rig
from tests.unit.daemons.controller.views.test_nodes_operator import submit

WEB = """
name = "shop"
memory_mib = 500
max_mhz = 2_000
max_instances = 2
[[flows]]
name = "buy"
mean_s = 0.5
work_mcycles = 50
"""


@pytest.fixture
def rig() -> Rig:
    """Three adopted VMs; one has an own name that no job can have. Deciding is paused."""
    made = Rig()
    made.run(30.0)
    for node, vm in (("n1", "db-1"), ("n2", "db-2"), ("n2", "www.example.org"), ("n2", "spare")):
        made.loop.cluster.hypervisor(node).add_stranger(vm, 64, made.now_s())
    made.run(10.0)
    made.asked("pause")
    made.asked("vms", "adopt", "db-1", "db-2", "www.example.org")
    made.run(20.0)
    return made


def jobs(rig: Rig) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rig.asked("jobs", "list")["jobs"]}


def terms(rig: Rig, job: str) -> dict[str, Any]:
    return dict(jobs(rig)[job]["terms"])


def published(rig: Rig, *words: object) -> int:
    """How many messages a command sends."""
    before = rig.published
    outcome = rig.trimtab(*words)
    assert outcome.exit_code == 0, outcome.output
    return rig.published - before


def wanted(rig: Rig) -> dict[str, tuple[Any, ...]]:
    """What operators can set of each job."""
    rows = jobs(rig).values()
    return {row["name"]: (row["phase"], row["importance"], row["goal_at_s"], row["terms"]) for row in rows}


def wrong(rig: Rig, *words: object) -> list[tuple[str, str]]:
    """The names that are refused, with their codes, by a command that must change nothing."""
    before = wanted(rig)
    outcome = rig.trimtab(*words, "-o", "json")
    assert outcome.exit_code == 1, outcome.output
    rig.run(20.0)
    assert wanted(rig) == before
    found = json.loads(outcome.stdout)
    assert found["done"] == []
    for row in found["refused"]:
        assert f"error: {row['name']}: {row['code']}" in outcome.stderr
    return [(row["name"], row["code"]) for row in found["refused"]]


def said(rig: Rig, *words: object) -> str:
    """What is said of a command line that cannot be carried out."""
    before = wanted(rig)
    outcome = rig.trimtab(*words)
    assert outcome.exit_code == 2, outcome.output
    assert wanted(rig) == before
    return " ".join(outcome.stderr.split())


# --- terms ----------------------------------------------------------------------------------------------------------


def test_a_change_of_one_name_is_one_request_and_leaves_other_terms(rig: Rig) -> None:
    assert published(rig, "vms", "set", "db-1", "--moves-per-day", "3", "--failover") == 1
    assert published(rig, "vms", "set", "db-1", "--automation", "off") == 1
    assert published(rig, "jobs", "set", "db-1", "--importance", "2") == 1

    found = terms(rig, "db-1")
    assert (found["moves_per_day"], found["failover"], found["automation"]) == (3, True, "off")

    assert published(rig, "vms", "set", "db-1", "--moves-per-day", "none") == 1
    assert (terms(rig, "db-1")["moves_per_day"], terms(rig, "db-1")["automation"]) == (None, "off")


def test_a_file_sets_all_terms_but_whether_the_vm_runs(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "vms.toml"
    file.write_text('[[vms]]\nmatch = "db-*"\nsuspend = true\n')
    rig.asked("vms", "set", "db-1", "--automation", "off", "--moves-per-day", "3", "--failover")
    rig.asked("vms", "shutdown", "db-1")
    rig.run(60.0)

    rig.asked("vms", "set", "db-1", "--terms", file)

    found = terms(rig, "db-1")
    assert (found["automation"], found["moves_per_day"], found["failover"]) == (None, None, False)
    assert (found["suspend"], found["running"]) == (True, False)


def test_importance_of_a_job_that_is_no_vm_is_refused(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path, "one")
    assert wrong(rig, "vms", "set", "one", "--importance", "5") == [("one", "not-a-vm")]


# --- names ----------------------------------------------------------------------------------------------------------


def test_patterns_match_own_names_and_may_be_for_other_vms(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "vms.toml"
    file.write_text(
        '[[vms]]\nmatch = "www.*"\nimportance = 3\n[[vms]]\nmatch = "spare"\n[[vms]]\nmatch = "db-*"\nimportance = 2\n'
    )
    rig.asked("vms", "set", "www-example-org", "--terms", file)
    rig.asked("vms", "set", "www.example.org", "db-1", "--terms", file)
    found = jobs(rig)
    assert [found[name]["importance"] for name in ("www-example-org", "db-1", "db-2")] == [3.0, 2.0, 1.0]

    file.write_text('[[vms]]\nmatch = "bd-*"\n[[vms]]\nmatch = "db-1"\n')
    text = said(rig, "vms", "set", "db-1", "--terms", file)
    assert f"{file}: vms[0].match: is 'bd-*', which matches none of the VMs (expected a name such as 'db-" in text
    file.write_text('[[vms]]\nmatch = "spare"\n[[vms]]\nmatch = "db-1"\n')
    assert "no pattern matches 'db-2', 'www.example.org'" in said(
        rig, "vms", "set", "db-1", "db-2", "www.example.org", "--terms", file
    )
    assert wrong(rig, "vms", "set", "nope", "--terms", file) == [("nope", "unknown-job")]
    assert wrong(rig, "vms", "set", "db-1", "nope", "--terms", file) == [("nope", "unknown-job")]


def test_a_file_is_read_before_anybody_is_asked(rig: Rig, tmp_path: Path) -> None:
    rig.unreachable = "no broker"
    for command in (("set", "db-1"), ("adopt", "--all")):
        outcome = rig.trimtab("vms", *command, "--terms", tmp_path / "none.toml")
        assert (outcome.exit_code, "none.toml" in outcome.stderr) == (2, True), outcome.output


@pytest.mark.parametrize("name", ["www.example.org", "www-example-org"])
def test_a_vm_is_meant_by_either_name(rig: Rig, name: str) -> None:
    """Given its own name or that of its job, alone or beside another, then it is changed, started and released."""
    rig.asked("vms", "set", name, "--importance", "2")
    rig.asked("vms", "set", name, "db-1", "--suspend")
    row = jobs(rig)["www-example-org"]
    assert (row["importance"], row["terms"]["suspend"]) == (2.0, True)
    for others in ((), ("db-1",)):
        rig.asked("vms", "shutdown", name, *others)
        rig.run(60.0)
        assert jobs(rig)["www-example-org"]["phase"] == "shut-off"
        rig.asked("vms", "start", name, *others)
        rig.run(60.0)
        assert jobs(rig)["www-example-org"]["phase"] == "running"
    rig.asked("vms", "release", name, "db-1")
    rig.run(20.0)
    assert {row["phase"] for row in jobs(rig).values() if row["name"] != "db-2"} == {"forgotten"}


def test_one_wrong_name_of_several_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path, "one")
    submit(rig, tmp_path, "two")
    rig.asked("jobs", "cancel", "two")
    rig.run(20.0)
    unknown = ("nope", "unknown-job")
    assert wrong(rig, "vms", "set", "db-1", "nope", "one", "two", "--importance", "2") == [
        unknown,
        ("one", "not-a-vm"),
        ("two", "job-over"),
    ]
    assert wrong(rig, "jobs", "set", "one", "nope", "two", "--importance", "2") == [unknown, ("two", "job-over")]
    assert wrong(rig, "jobs", "set", "www-example-org", "www.example.org", "--importance", "2") == [
        ("www.example.org", "unknown-job")
    ]
    assert wrong(rig, "vms", "shutdown", "db-1", "nope", "one") == [unknown, ("one", "not-a-vm")]
    assert wrong(rig, "vms", "start", "spare", "db-1") == [("spare", "unknown-job")]
    assert wrong(rig, "vms", "release", "one#0", "db-1") == [("one#0", "unknown-job")]
    text = rig.trimtab("vms", "shutdown", "db-1", "db-9").stderr
    assert "nothing was changed: 1 of 2 names cannot be used" in text
    assert "nearest: 'db-" in text
    assert rig.asked("jobs", "set", "one", "db-1", "--importance", "2")["done"] == ["one", "db-1"]


def test_released_jobs_are_no_wrong_names_of_a_release(rig: Rig) -> None:
    rig.asked("vms", "release", "db-1")
    rig.run(20.0)
    assert rig.asked("vms", "release", "db-1", "db-2")["done"] == ["db-1", "db-2"]


# --- rules ----------------------------------------------------------------------------------------------------------


def rules_of(rig: Rig, job: str) -> dict[str, Any]:
    return dict(rig.asked("jobs", "show", job)["job"]["spec"]["rules"])


def test_rules_of_several_are_changed_all_at_once_or_not_at_all(rig: Rig, tmp_path: Path) -> None:
    """Given VMs that are together, then both are told to be apart by one command, although the first could not be
    alone; and rules that cannot all hold change nothing."""
    file, terms_file = tmp_path / "rules.toml", tmp_path / "vms.toml"
    file.write_text('[rules]\nvm_affinity = ["db-2"]\n')
    rig.asked("vms", "set", "db-1", "--rules", file)
    file.write_text('[rules]\nvm_affinity = ["db-1"]\n')
    rig.asked("vms", "set", "db-2", "--rules", file)

    tables = [
        '[[vms]]\nmatch = "db-1"\nrules = { vm_anti_affinity = ["db-2"] }\n',
        '[[vms]]\nmatch = "db-2"\nrules = { vm_anti_affinity = ["db-1"] }\n',
    ]
    terms_file.write_text(tables[0])
    assert wrong(rig, "vms", "set", "db-1", "--terms", terms_file) == [("db-1", "invalid-value")]
    terms_file.write_text("".join(tables))
    assert rig.asked("vms", "set", "db-1", "db-2", "--terms", terms_file)["done"] == ["db-1", "db-2"]
    assert rules_of(rig, "db-1")["vm_anti_affinity"] == ["db-2"]
    assert rules_of(rig, "db-2")["vm_affinity"] == []

    terms_file.write_text(tables[0] + '[[vms]]\nmatch = "*"\nrules = { vm_affinity = ["db-1"] }\n')
    before = {name: rules_of(rig, name) for name in ("db-1", "db-2", "www-example-org")}
    assert wrong(rig, "vms", "set", "db-1", "db-2", "www.example.org", "--terms", terms_file) == [
        ("db-1", "invalid-value")
    ]
    for command in ("vms", "jobs"):
        file.write_text('[rules]\nlabel_affinity = ["gpu"]\n')
        assert wrong(rig, command, "set", "db-1", "db-2", "--rules", file) == [
            ("db-1", "fits-no-node"),
            ("db-2", "fits-no-node"),
        ]
        file.write_text('[rules]\naffinity = "g"\nanti_affinity = "h"\n')
        text = rig.trimtab(command, "set", "db-1", "db-2", "--rules", file).stderr
        assert "nothing was changed: 1 of 2 names cannot have these rules" in text
        assert "anti_affinity of both 'db-1' and 'db-2' is 'h'" in text
    assert {name: rules_of(rig, name) for name in before} == before


# --- command lines --------------------------------------------------------------------------------------------------


def test_options_that_cannot_be_are_named(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    file.write_text(WEB)
    rig.asked("web", "submit", file)
    assert "'--goal-at': 'tomorrow': expected a time" in said(rig, "jobs", "set", "one", "--goal-at", "tomorrow")
    assert "'--goal': 'buy': expected FLOW=VALUE" in said(rig, "web", "set", "shop", "--goal", "buy")
    twice = said(rig, "web", "set", "shop", "--goal", "buy=0.3", "--goal", "buy=0.4")
    assert "'--goal': 'buy=0.4': expected each flow once, and 'buy' has a goal already" in twice
    assert "--terms cannot be combined with other options" in said(
        rig, "vms", "set", "db-1", "--terms", file, "--suspend"
    )
    rig.asked("web", "set", "shop", "--goal", "buy=0.4")
    (flow,) = rig.asked("web", "show", "shop")["app"]["flows"]
    assert flow["mean_goal_s"] == 0.4
