"""`trimtab nodes fit` against a real controller: where a new VM would go, what would move, and why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.operator_harness import Rig

VMS = {"n1": (("db-1", 1_000), ("www", 1_500)), "n2": (("db-2", 2_500),), "n3": (("mail", 1_700),)}


@pytest.fixture
def rig() -> Rig:
    """Three nodes of 4,000 MiB: 1,500 MiB are free on n1 and n2, 2,300 on n3."""
    made = Rig(3)
    made.run(30.0)
    for node, vms in VMS.items():
        for vm, mib in vms:
            made.loop.cluster.hypervisor(node).add_stranger(vm, mib, made.now_s())
    made.run(10.0)
    made.asked("vms", "adopt", "--all")
    made.run(20.0)
    return made


def asked(rig: Rig, *words: object, status: int = 0) -> dict[str, Any]:
    outcome = rig.trimtab("nodes", "fit", *words, "-o", "json")
    assert outcome.exit_code == status, outcome.output
    return dict(json.loads(outcome.stdout))


def said(rig: Rig, *words: object, status: int = 0) -> str:
    outcome = rig.trimtab("nodes", "fit", *words, env={"COLUMNS": "80"})
    assert outcome.exit_code == status, outcome.output
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    return outcome.stdout


def state(rig: Rig) -> tuple[Any, ...]:
    return rig.asked("vms", "list")["vms"], rig.asked("plan", "history")["total"], rig.asked("jobs", "list")["jobs"]


def test_the_node_with_the_least_memory_left_is_the_best(rig: Rig) -> None:
    before = state(rig)
    found = asked(rig, "--vcpus", 2, "--memory", "1GiB")
    (placement,) = found["placements"]
    assert placement == found["fits"][0]
    assert (placement["node"], placement["moves"]) == ("n1", [])
    free = [fit["free_memory_mib"] for fit in found["fits"]]
    assert free == sorted(free)
    assert (len(free), found["totals"]["misfits"], found["how_many"]) == (3, 0, 4)
    assert state(rig) == before
    text = said(rig, "--vcpus", 2, "--memory", "1024MiB")
    assert "a VM with 2 CPUs and 1,024 MiB fits on n1" in text
    assert "also fits on n2, n3" in text
    assert "4 such VMs fit without migrations" in text


def test_moves_are_named_and_accepted(rig: Rig) -> None:
    found = asked(rig, "--vcpus", 2, "--memory", "2400MiB")
    assert found["fits"] == []
    (placement,) = found["placements"]
    (move,) = placement["moves"]
    assert (move["vm"], move["node"], move["memory_mib"]) == ("db-1", "n1", 1_000)
    assert found["how_many"] == 0
    text = said(rig, "--vcpus", 2, "--memory", "2400MiB")
    assert "fits on n1 after 1 migration" in text
    assert "db-1" in text.split("live migrations first")[1].splitlines()[3]
    rig.asked("vms", "migrate", "db-1", move["to_node"])
    rig.run(60.0)
    assert asked(rig, "--vcpus", 2, "--memory", "2400MiB")["fits"][0]["node"] == "n1"


def test_where_it_fits_nowhere_every_node_says_why(rig: Rig) -> None:
    rig.asked("nodes", "drain", "n3")
    found = asked(rig, "--vcpus", 2, "--memory", "3900MiB", status=1)
    assert found["placements"] == []
    codes = {row["node"]: row["code"] for row in found["misfits"]}
    assert codes == {"n1": "no-memory", "n2": "no-memory", "n3": "node-not-schedulable"}
    text = said(rig, "--vcpus", 2, "--memory", "3900MiB", status=1)
    assert "fits on no node" in text
    assert "n3" in text
    assert "draining" in text
    assert "memory: needs 3,900 MiB" in text
    cores = asked(rig, "--vcpus", 8, "--memory", "100MiB", status=1)["misfits"]
    assert [row["text"] for row in cores[:2]] == ["CPU: needs 8 cores, has 4"] * 2


def test_several_go_one_after_the_other(rig: Rig) -> None:
    found = asked(rig, "--vcpus", 1, "--memory", "1GiB", "--count", 4)
    assert sorted(fit["node"] for fit in found["placements"]) == ["n1", "n2", "n3", "n3"]
    text = said(rig, "--vcpus", 1, "--memory", "1GiB", "--count", 40, status=1)
    assert "4 of 40 VMs with 1 CPU and 1,024 MiB fit" in text


def test_rules_and_labels_are_kept(rig: Rig, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[rules]\nvm_anti_affinity = ["db-1", "db-9"]\nnode_anti_affinity = ["n2"]\n')
    found = asked(rig, "--vcpus", 1, "--memory", "1GiB", "--rules", rules)
    assert [fit["node"] for fit in found["fits"]] == ["n3"]
    assert [fit["moves"][0]["vm"] for fit in found["with_moves"]] == ["db-1"]
    (misfit,) = found["misfits"]
    assert (misfit["node"], misfit["code"], misfit["rule"]) == ("n2", "constraint", "node_anti_affinity")
    assert found["unknown"] == ["db-9"]
    rules.write_text('[rules]\nanti_affinity = "one"\n')
    assert asked(rig, "--vcpus", 1, "--memory", "100MiB", "--rules", rules)["how_many"] == 3
    lacking = asked(rig, "--vcpus", 1, "--memory", "1GiB", "--label", "ssd", status=1)["misfits"]
    assert {row["text"] for row in lacking} == {"lacks labels: ssd"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--memory", "1GiB"), "--vcpus"),
        (("--vcpus", "0", "--memory", "1GiB"), "expected a whole number"),
        (("--vcpus", "1", "--memory", "1024"), "such as 32GiB"),
        (("--vcpus", "1", "--memory", "0GiB"), "such as 32GiB"),
        (("--vcpus", "1", "--memory", "nanGiB"), "such as 32GiB"),
        (("--vcpus", "1", "--memory", "1KiB"), "such as 32GiB"),
        (("--vcpus", "1", "--memory", "1GiB", "--count", "501"), "1 to 500"),
        (("--vcpus", "1", "--memory", "1GiB", "--cpu-mhz", "-1"), "expected a number"),
    ],
)
def test_mistakes_are_named(rig: Rig, words: tuple[str, ...], why: str) -> None:
    outcome = rig.trimtab("nodes", "fit", *words)
    assert outcome.exit_code == 2
    assert why in outcome.stderr


def test_an_unknown_node_in_the_rules_is_refused(rig: Rig, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[rules]\nnode_affinity = ["n7"]\n')
    error = rig.refused("nodes", "fit", "--vcpus", 1, "--memory", "1GiB", "--rules", rules)
    assert error["code"] == "unknown-node"
