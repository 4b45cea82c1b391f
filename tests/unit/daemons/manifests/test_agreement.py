"""Files of agreements: what is understood, and that every problem is told at once with its place and what would do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.manifests.agreement import AgreementFile, read_agreement, understood
from shared.base.errors import InvalidInput, Problem
from shared.config.records import keys
from shared.values.agreement import (
    Agreement,
    BatchTerms,
    Granularity,
    OnReclaim,
    Relationship,
    Scheduling,
    VmTemplate,
    WebTerms,
    WorkloadType,
)
from shared.values.host_setup import Setup, SetupPolicy
from tests.architecture.sources import ROOT

TOP = 'name = "night"\nowner = "kim"\nworkload = "batch"\nlower = 2\n'
WEB = TOP.replace("batch", "web")


def read(tmp_path: Path, text: str) -> Agreement:
    path = tmp_path / "env.toml"
    path.write_text(text, "utf-8")
    return read_agreement(path)


def problems(tmp_path: Path, text: str) -> dict[str, Problem]:
    """By key."""
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    return {problem.where.rpartition(": ")[2]: problem for problem in caught.value.problems}


def test_the_least_that_an_agreement_needs(tmp_path: Path) -> None:
    """What is left out is as an Agreement has it by itself."""
    assert read(tmp_path, TOP) == Agreement("night", "kim", WorkloadType.BATCH, lower=2)
    assert read(tmp_path, WEB) == Agreement("night", "kim", WorkloadType.WEB, lower=2)
    assert read(tmp_path, TOP + "[batch]\n") == read(tmp_path, TOP)
    assert read(tmp_path, WEB + "[web]\n") == read(tmp_path, WEB)


def test_every_key_is_read(tmp_path: Path) -> None:
    text = """
upper = 8
model = "flb-nub"
relationship = "business"
resource = "node"
os_type = "debian"
os_version = "12"
lease_s = 1800
coordinated_with = "front"
shares = true
notice_s = 60
users = ["joe", "ann"]
[setup]
policy = "exec"
command = "image"
limit_s = 90
acquire = false
release = true
[scheduling]
policy = "edf"
[scheduling.params]
preempt = false
[batch]
request_ratio = 1.5
release_ratio = 0.3
elastic_factor = 0.25
on_reclaim = "kill"
"""
    expected = Agreement(
        "night",
        "kim",
        WorkloadType.BATCH,
        lower=2,
        upper=8,
        model="flb-nub",
        relationship=Relationship.BUSINESS,
        resource="node",
        os_type="debian",
        os_version="12",
        lease_s=1800.0,
        coordinated_with="front",
        shares=True,
        notice_s=60.0,
        users=("joe", "ann"),
        setup=Setup(SetupPolicy.EXEC, "image", 90.0, acquire=False),
        scheduling=Scheduling("edf", {"preempt": False}),
        batch=BatchTerms(1.5, 0.3, 0.25, OnReclaim.KILL),
    )
    assert read(tmp_path, TOP + text) == expected
    vms = 'granularity = "vm"\n[template]\nname = "small"\nvcpus = 2\nmemory_mib = 2048\nmax_mhz = 5000\n'
    of_vms = read(tmp_path, WEB + vms + "[web]\nadd_above = 0.7\nremove_below = 0.6\nover_s = 30\n")
    assert (of_vms.granularity, of_vms.template) == (Granularity.VM, VmTemplate("small", 2, 2048, 5000.0))
    assert of_vms.web == WebTerms(0.7, 0.6, 30.0)


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        (TOP.replace("lower = 2\n", ""), "lower", "a whole number from 0"),
        (TOP.replace('"kim"', '"k.im"'), "owner", "1 to 128 ASCII letters"),
        (TOP.replace('"batch"', '"both"'), "workload", "one of batch, web"),
        (TOP + "upper = 1\n", "upper", "at least 2, or nothing"),
        (TOP.replace("2", "0") + "upper = 0\n", "upper", "at least 1, or nothing"),
        (TOP + 'model = "fbb"\n', "model", "one of dedicated, fb, flb-nub, on-demand"),
        (TOP + "upper = 9\n", "lower", "bounds that its model takes: the model fb has one bound: leave upper out"),
        (TOP + 'model = "on-demand"\n', "lower", "bounds that its model takes: the model on-demand sets nothing aside"),
        (TOP + 'granularity = "vm"\n', "granularity", "node, or a table [template]"),
        (TOP + '[template]\nname = "s"\nvcpus = 1\nmemory_mib = 1\nmax_mhz = 1\n', "granularity", "vm, or no table"),
        (TOP + 'resource = "vm"\n', "resource", "node, as granularity says, or nothing"),
        (TOP + 'resource = "gpu"\n', "resource", "node or vm, or nothing"),
        (TOP + 'os_version = "12"\n', "os_version", "nothing, unless os_type is given"),
        (TOP + 'coordinated_with = "night"\n', "coordinated_with", "nothing that name has"),
        (TOP + "lease_s = 0\n", "lease_s", "a number from 1"),
        (TOP + 'users = ["joe", "joe"]\n', "users", "at most 1000 names, each once"),
        (TOP + 'users = ["user.joe"]\n', "users[0]", "1 to 128 ASCII letters"),
        (TOP + "[setup]\npolicy = 'exec'\n", "setup.command", "a command that agents know, for policy exec"),
        (TOP + "[setup]\ncommand = 'wipe'\n", "setup.command", "nothing, unless policy is exec"),
        (TOP + "[setup]\nlimit = 3\n", "setup.limit", "setup.limit_s"),
        (TOP + "[scheduling]\npolicy = 'fcfs'\n", "scheduling.policy", "one of apc, edf, first-fit"),
        (TOP + "[scheduling.params]\nx = 1\n", "scheduling.params", "policy first-fit: x: there is no such parameter"),
        (TOP + "[web]\n", "workload", "web, or no table [web]"),
        (WEB + "[batch]\n", "workload", "batch, or no table [batch]"),
        (TOP + "[batch]\nrelease_ratio = 1.2\n", "batch.request_ratio", "more than batch.release_ratio = 1.2"),
        (TOP + "[batch]\nelastic_factor = 1\n", "batch.elastic_factor", "a number from 1e-06 to 0.999999"),
        (TOP + "[batch]\non_reclaim = 'stop'\n", "batch.on_reclaim", "one of suspend, kill"),
        (WEB + "[web]\nadd_above = 0.5\n", "web.add_above", "at least web.remove_below = 0.8"),
        (WEB + "[web]\nover_s = -1\n", "web.over_s", "a number from 1"),
    ],
)
def test_single_problems(tmp_path: Path, text: str, key: str, expected: str) -> None:
    found = problems(tmp_path, text)

    assert set(found) == {key}
    assert found[key].expected.startswith(expected)


def test_all_problems_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """name = "night shift"
owner = "kim"
workload = "web"
lower = 5
upper = 3
model = "fib"
granularity = "vm"
os_version = "12"
user = ["joe"]
[setup]
policy = "wipe"
command = "x"
[scheduling]
policy = "edf"
[scheduling.params]
preemt = true
[batch]
request_ratio = -1
"""
    found = problems(tmp_path, text)

    lines = {key: problem.where.split(": ")[0].rpartition(":")[2] for key, problem in found.items()}
    assert lines == {
        "name": "1",
        "workload": "3",
        "upper": "5",
        "model": "6",
        "granularity": "7",
        "os_version": "8",
        "user": "9",
        "setup.policy": "11",
        "setup.command": "12",
        "scheduling.params": "15",
        "batch.request_ratio": "18",
    }
    assert found["user"].expected == "users"
    assert found["setup.policy"].expected == "noop, since each VM starts fresh from its template"
    assert "preemt" in found["scheduling.params"].expected


def test_what_is_understood_is_plain_and_has_the_terms_of_its_type(tmp_path: Path) -> None:
    batch, web = understood(read(tmp_path, TOP)), understood(read(tmp_path, WEB))
    assert json.loads(json.dumps(batch)) == batch
    assert (batch["upper"], batch["template"], batch["users"]) == (None, None, [])
    assert ("web" in batch, "batch" in batch) == (False, True)
    assert ("web" in web, "batch" in web) == (True, False)
    assert {*batch, "web"} == {field.split(".")[0] for field in (key.name for key in keys(AgreementFile))}


def test_the_examples_are_agreements_that_go_together() -> None:
    batch, web = (read_agreement(ROOT / "examples" / f"env-{kind}.toml") for kind in ("batch", "web"))
    assert (batch.workload, web.workload) == (WorkloadType.BATCH, WorkloadType.WEB)
    assert (batch.coordinated_with, web.shares) == (web.name, True)
    assert batch.model == web.model
    assert replace(batch, name="x").batch.on_reclaim is OnReclaim.SUSPEND
