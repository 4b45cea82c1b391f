"""`trimtab vms adopt`, `set`, `start` and `shutdown` against a real controller: what is chosen, refused and changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.values.jobs import JobPhase
from shared.values.vms import VmState
from tests.support.operator_harness import Rig
from tests.unit.daemons.controller.views.test_nodes_operator import submit

TERMS = """
[[vms]]
match = "db-*"
importance = 4
automation = "confirm"
moves_per_day = 2
[vms.rules]
anti_affinity = "db"

[[vms]]
match = "*"
on_shutdown = "restart"
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    for node, vm in (("n1", "db-1"), ("n2", "db-2"), ("n2", "www.example.org")):
        made.loop.cluster.hypervisor(node).add_stranger(vm, 64, made.now_s())
    made.loop.cluster.hypervisor("n2").owner_stops("www.example.org", made.now_s())
    made.run(10.0)
    return made


def asked(rig: Rig, *words: object, status: int = 0) -> dict[str, Any]:
    outcome = rig.trimtab(*words, "-o", "json")
    assert outcome.exit_code == status, outcome.output
    return dict(json.loads(outcome.stdout))


def jobs(rig: Rig) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in asked(rig, "jobs", "list")["jobs"]}


def state(rig: Rig, node: str, vm: str) -> VmState:
    return rig.loop.cluster.hypervisor(node).domains[vm].state


def said(rig: Rig, *words: object) -> str:
    """What is said of a mistake that changes nothing."""
    before = jobs(rig)
    outcome = rig.trimtab(*words)
    assert outcome.exit_code in (1, 2), outcome.output
    assert jobs(rig) == before
    return " ".join(outcome.stderr.split())


def test_all_are_adopted_with_their_terms_and_let_go_again(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "vms.toml").write_text(TERMS)
    dry = asked(rig, "vms", "adopt", "--all", "--terms", tmp_path / "vms.toml", "--dry-run")
    assert [row["vm"] for row in dry["done"]] == ["db-1", "db-2", "www.example.org"]
    assert jobs(rig) == {}

    found = asked(rig, "vms", "adopt", "--all", "--terms", tmp_path / "vms.toml")
    assert [row["job"] for row in found["done"]] == ["db-1", "db-2", "www-example-org"]
    rig.run(20.0)
    rows = jobs(rig)
    assert {name: row["phase"] for name, row in rows.items()} == {
        "db-1": JobPhase.RUNNING,
        "db-2": JobPhase.RUNNING,
        "www-example-org": JobPhase.SHUT_OFF,
    }
    assert (rows["db-1"]["importance"], rows["db-1"]["terms"]["automation"]) == (4.0, "confirm")
    assert rows["www-example-org"]["terms"]["on_shutdown"] == "restart"
    assert rows["db-2"]["terms"]["moves_left"] == 2

    rig.asked("vms", "release", *rows)
    rig.run(20.0)
    for node in ("n1", "n2"):
        assert not any(domain.managed for domain in rig.loop.cluster.hypervisor(node).domains.values())


def test_a_pattern_and_a_node_choose(rig: Rig) -> None:
    assert [row["vm"] for row in asked(rig, "vms", "adopt", "--match", "db-*", "--node", "n2")["done"]] == ["db-2"]
    assert [row["vm"] for row in asked(rig, "vms", "adopt", "db-1")["done"]] == ["db-1"]


def test_what_cannot_be_chosen_is_said_and_nothing_changes(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "vms.toml").write_text(TERMS + '[[vms]]\nmatch = "mail-*"\n')
    assert "give --all, --match or --node" in said(rig, "vms", "adopt")
    assert "matches none of 3 unmanaged VMs" in said(rig, "vms", "adopt", "--match", "x*")
    assert "'nobody'" in said(rig, "vms", "adopt", "nobody")
    assert "--job names one VM" in said(rig, "vms", "adopt", "--all", "--job", "one")
    assert "'mail-*', which matches none of the VMs" in said(
        rig, "vms", "adopt", "--all", "--terms", tmp_path / "vms.toml"
    )
    assert "unknown-node" in said(rig, "vms", "adopt", "--node", "n7")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[[vms]]\nmatch = "db-*"\nmoves_per_day = 0\n', "moves_per_day"),
        ('[[vms]]\nmatch = "db-*"\nautomation = "never"\n', "automation"),
        ('[[vms]]\nmatch = "db-*"\nrules = { affinity = "a", anti_affinity = "a" }\n', "anti_affinity"),
        ('[[vms]]\nmatch = "db-*"\nimportans = 1\n', "importans"),
        ("vms = []\n", "vms"),
    ],
)
def test_terms_that_cannot_be_are_said_with_their_key(rig: Rig, tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "vms.toml").write_text(text)
    assert word in said(rig, "vms", "adopt", "--all", "--terms", tmp_path / "vms.toml")


def test_terms_are_changed_one_by_one(rig: Rig, tmp_path: Path) -> None:
    rig.asked("vms", "adopt", "db-1", "db-2")
    rig.run(20.0)
    rig.asked("vms", "set", "db-1", "--automation", "off", "--moves-per-day", "3", "--importance", "2")
    rig.asked("vms", "set", "db-1", "--suspend", "--moves-per-day", "none", "--on-shutdown", "leave-off")
    row = jobs(rig)["db-1"]
    terms = row["terms"]
    assert (row["importance"], terms["automation"], terms["moves_per_day"]) == (2.0, "off", None)
    assert (terms["suspend"], terms["on_shutdown"], terms["running"]) == (True, "leave-off", True)
    rig.asked("vms", "set", "db-1", "--automation", "cluster")
    assert jobs(rig)["db-1"]["terms"]["automation"] is None
    (tmp_path / "rules.toml").write_text('[rules]\nvm_anti_affinity = ["db-2"]\n')
    rig.asked("vms", "set", "db-1", "--rules", tmp_path / "rules.toml")
    assert asked(rig, "jobs", "show", "db-1")["job"]["spec"]["rules"]["vm_anti_affinity"] == ["db-2"]
    assert "Nothing to change" in said(rig, "vms", "set", "db-1")
    assert "moves-per-day" in said(rig, "vms", "set", "db-1", "--moves-per-day", "0")
    assert "unknown-job" in said(rig, "vms", "set", "db-7", "--importance", "2")


# --- dry runs -------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_what_would_be_set(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "vms.toml"
    file.write_text(TERMS)
    rows = {row["vm"]: row for row in asked(rig, "vms", "adopt", "--all", "--terms", file, "--dry-run")["done"]}
    first, other = rows["db-1"], rows["www.example.org"]
    assert (first["importance"], first["rules"]) == (4.0, {"anti_affinity": "db"})
    assert first["terms"]["automation"] == "confirm"
    assert first["terms"]["moves_per_day"] == 2
    assert first["terms"]["text"] == "automation confirm; at most 2 migrations a day"
    assert first["table"] == {"index": 0, "match": "db-*", "text": "vms[0]: db-*"}
    assert (other["importance"], other["rules"], other["table"]["index"]) == (1.0, {}, 1)
    assert other["terms"]["text"] == "restarted after its guest's shutdown"

    text = rig.trimtab("vms", "adopt", "--all", "--terms", file, "--dry-run", env={"COLUMNS": "200"}).stdout
    (line,) = [line for line in text.splitlines() if line.startswith("db-1 ")]
    for word in ("automation confirm; at most 2 migrations a day", "anti affinity db", "vms[0]: db-*", "4"):
        assert word in line
    plain = rig.trimtab("vms", "adopt", "--all", "--dry-run").stdout
    assert plain.splitlines()[1].split() == ["vm", "node", "state", "job", "result"]
    assert jobs(rig) == {}


def test_a_dry_run_finds_what_the_controller_would_refuse(rig: Rig, tmp_path: Path) -> None:
    """Given a name that is taken and a bad one, then the dry run refuses these VMs as the adoption does."""
    submit(rig, tmp_path, "db-1")
    file = tmp_path / "vms.toml"
    file.write_text('[[vms]]\nmatch = "db-*"\nrules = { anti_affinity = "db" }\n')
    for dry in (("--dry-run",), ()):
        found = asked(rig, "vms", "adopt", "--all", "--terms", file, *dry, status=1)
        assert [row["vm"] for row in found["done"]] == ["db-2", "www.example.org"]
        assert [(row["name"], row["code"]) for row in found["refused"]] == [("db-1", "duplicate-name")]
        assert list(jobs(rig)) == (["db-1"] if dry else ["db-1", "db-2", "www-example-org"])
    rig.loop.cluster.hypervisor("n1").add_stranger("db-4", 64, rig.now_s())
    rig.run(10.0)
    found = asked(rig, "vms", "adopt", "db-4", "--job", "no name", "--dry-run", status=1)
    assert [(row["name"], row["code"]) for row in found["refused"]] == [("db-4", "invalid-value")]


@pytest.mark.parametrize(
    ("first", "second", "name", "code", "word"),
    [
        ('node_affinity = ["n7"]', "", "db-1", "unknown-node", "no node 'n7'"),
        ('label_affinity = ["gpu"]', "", "db-1", "fits-no-node", "labels ['gpu']"),
        (
            'affinity = "g"',
            'affinity = "g"\nvm_anti_affinity = ["db-1"]',
            "db-1",
            "invalid-value",
            "vm_anti_affinity of 'db-2' names 'db-1'",
        ),
        (
            'vm_affinity = ["www-example-org"]\nnode_affinity = ["n1"]',
            'vm_affinity = ["www-example-org"]\nnode_affinity = ["n2"]',
            "db-1",
            "invalid-value",
            "no node suits all of them: 'db-1': node_affinity ['n1'], 'db-2': node_affinity ['n2']",
        ),
    ],
)
def test_rules_of_one_file_that_cannot_be_change_nothing(
    rig: Rig, tmp_path: Path, first: str, second: str, name: str, code: str, word: str
) -> None:
    """Given several VMs of which one cannot have its rules, or that cannot have theirs all at once, then neither the
    dry run nor the adoption would adopt any."""
    file = tmp_path / "vms.toml"
    file.write_text(f'[[vms]]\nmatch = "db-1"\n[vms.rules]\n{first}\n[[vms]]\nmatch = "db-2"\n[vms.rules]\n{second}\n')
    for dry in (("--dry-run",), ()):
        found = asked(rig, "vms", "adopt", "--all", "--terms", file, *dry, status=1)
        assert found["done"] == []
        assert [(row["name"], row["code"]) for row in found["refused"]] == [(name, code)]
        assert word in found["refused"][0]["detail"]
        text = said(rig, "vms", "adopt", "--all", "--terms", file, *dry)
        assert f"nothing {'would be' if dry else 'was'} changed: 1 of 3 VMs cannot have their rules" in text
        rig.run(20.0)
        assert jobs(rig) == {}


def test_a_dry_run_says_why_a_vm_cannot_be_adopted(rig: Rig) -> None:
    rig.loop.cluster.hypervisor("n1").add_stranger("www.example.org", 64, rig.now_s())
    rig.run(10.0)
    found = asked(rig, "vms", "adopt", "--all", "--dry-run", status=1)
    assert [row["vm"] for row in found["done"]] == ["db-1", "db-2"]
    assert [(row["name"], row["code"]) for row in found["refused"]] == [("www.example.org", "vm-not-adoptable")] * 2


def test_patterns_may_be_for_vms_that_are_not_selected(rig: Rig, tmp_path: Path) -> None:
    """Given a file for VMs that are managed already, or on another node, then it is one for the rest too."""
    file = tmp_path / "vms.toml"
    file.write_text(TERMS.replace('"*"', '"www*"') + '[[vms]]\nmatch = "db-1"\n')
    rig.asked("vms", "adopt", "db-1", "--terms", file)
    rig.run(20.0)
    rig.asked("vms", "adopt", "--node", "n2", "--match", "db-*", "--terms", file)
    rig.asked("vms", "adopt", "--all", "--terms", file)
    assert {name: row["importance"] for name, row in jobs(rig).items()} == {
        "db-1": 4.0,
        "db-2": 4.0,
        "www-example-org": 1.0,
    }


# --- changes --------------------------------------------------------------------------------------------------------


def test_a_vm_is_shut_down_and_started(rig: Rig) -> None:
    rig.asked("vms", "adopt", "db-1")
    rig.run(20.0)
    rig.asked("vms", "shutdown", "db-1")
    rig.run(60.0)
    assert state(rig, "n1", "db-1") is VmState.ENDED
    rig.asked("vms", "start", "db-1")
    rig.run(60.0)
    assert state(rig, "n1", "db-1") is VmState.RUNNING
    assert jobs(rig)["db-1"]["phase"] == JobPhase.RUNNING
    assert "unknown-job" in said(rig, "vms", "start", "db-7")


def test_a_job_is_changed(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path, "one")
    rig.asked("jobs", "set", "one", "--importance", "3", "--goal-at", "2100-01-31T12:00:00Z")
    row = jobs(rig)["one"]
    assert (row["importance"], row["goal_at_s"]) == (3.0, 4105080000.0)
    rig.asked("jobs", "set", "one", "--best-effort")
    assert jobs(rig)["one"]["goal_at_s"] is None
    assert "one of --goal-at" in said(rig, "jobs", "set", "one", "--goal-within", "5", "--best-effort")
    assert "not-a-vm" in said(rig, "vms", "set", "one", "--automation", "off")
    assert "'tomorrow': expected a time" in said(rig, "jobs", "set", "one", "--goal-at", "tomorrow")


def test_a_decision_is_made_now_and_shown(rig: Rig) -> None:
    before = asked(rig, "plan", "history")["decisions"]
    found = asked(rig, "decide", "--now")
    assert found["decision"]["number"] == (before[0]["number"] if before else 0) + 1
    assert "--dry-run or --now" in said(rig, "decide", "--now", "--dry-run")
