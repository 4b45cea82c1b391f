"""The views of a real controller as commands print them, and VMs taken in hand."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from daemons.values.settings import Automation
from tests.support.operator_harness import Rig

JOB = """
name = "render"
{head}
[[stages]]
work_mcycles = 1_000_000
max_mhz = 1_000
memory_mib = {memory_mib}
"""


WEB = """
name = "shop"
memory_mib = 100
max_mhz = 500
[[flows]]
name = "all"
mean_s = 0.5
work_mcycles = 5
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


def submit(rig: Rig, folder: Path, name: str = "render", *, memory_mib: int = 1_000, head: str = "") -> None:
    """Submit a job that runs for 1,000 s, and let it begin."""
    path = folder / "job.toml"
    path.write_text(JOB.format(memory_mib=memory_mib, head=head))
    rig.loop.world.add_task(name, [(1_000_000.0, 1_000.0)], 1, 0.0)
    rig.asked("jobs", "submit", path, "--name", name)
    rig.run(30.0)


def words(rig: Rig, *command: object) -> str:
    """What a command prints for people."""
    outcome = rig.trimtab(*command)
    assert outcome.exit_code == 0, outcome.output
    return " ".join(outcome.stdout.split())


def node_of(rig: Rig, job: str) -> str:
    (row,) = [row for row in rig.asked("jobs", "list")["jobs"] if row["name"] == job]
    (node,) = row["nodes"]
    return str(node)


def test_status(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path)
    found = rig.asked("status")
    assert (found["leader"], found["deciding"], found["nodes"]["total"]) == ("a", True, 2)
    assert found["jobs"]["phase"]["running"] == 1
    rig.loop.host_dies("n2")
    rig.run(60.0)
    (alarm,) = rig.asked("status")["alarms"]
    assert (alarm["what"], alarm["subject"]) == ("node-unreachable", "n2")
    told = words(rig, "status")
    assert told.startswith("alarms what subject since detail")
    assert told.index("node-unreachable") < told.index("controller")


def test_nodes(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path)
    found = rig.asked("nodes", "list")
    assert [row["name"] for row in found["nodes"]] == ["n1", "n2"]
    assert sum(row["memory"]["committed_mib"] for row in found["nodes"]) == 1_000
    assert [row["name"] for row in rig.asked("nodes", "list", "--prefix", "n2")["nodes"]] == ["n2"]
    assert rig.asked("nodes", "list", "--limit", 1)["total"] == 2
    assert "1,000/4,000 MiB" in words(rig, "nodes", "list")
    name = node_of(rig, "render")
    shown = rig.asked("nodes", "show", name)["node"]
    assert [vm["vm"] for vm in shown["vm_list"]] == ["render#0"]
    assert "render#0" in words(rig, "nodes", "show", name)
    assert rig.refused("nodes", "show", "n9")["code"] == "unknown-node"


def test_a_node_is_shown_without_what_is_empty_or_twice(rig: Rig, tmp_path: Path) -> None:
    """Given a shown node that is not on a terminal, then no line is wide, no value empty and no key there twice."""
    submit(rig, tmp_path)
    lines = rig.trimtab("nodes", "show", node_of(rig, "render")).stdout.splitlines()
    table = list(takewhile(lambda line: line.startswith(" "), lines[1:]))
    pairs = [line.strip().split("  ", 1) for line in table]
    keys = [pair[0] for pair in pairs]
    assert len(set(keys)) == len(keys) > 10
    assert not [pair for pair in pairs if pair[1:] and pair[1].strip() == "-"]
    assert max(len(line.rstrip()) for line in lines) < 140


def test_jobs_and_why_one_waits(rig: Rig, tmp_path: Path) -> None:
    """Given a cluster that is full of memory, then the job that finds no room shows the numbers."""
    for name in ("one", "two"):
        submit(rig, tmp_path, name, memory_mib=3_500)
    submit(rig, tmp_path, "late", memory_mib=3_000)
    found = {row["name"]: row for row in rig.asked("jobs", "list")["jobs"]}
    assert [found[name]["phase"] for name in ("one", "two", "late")] == ["running", "running", "waiting"]
    assert [row["name"] for row in rig.asked("jobs", "list", "--phase", "waiting")["jobs"]] == ["late"]
    shown = rig.asked("jobs", "show", "late")["job"]
    assert shown["waits_for"]["code"] == "no-memory"
    told = "memory: needs 3,000 MiB, most free 500"
    assert shown["waits_for"]["words"] == told
    assert f"it waits: {told} (no-memory needed_mib=3000" in words(rig, "jobs", "show", "late")
    one = rig.asked("jobs", "show", "one")["job"]
    assert 0 < one["progress_pct"] < 100
    assert (one["last_change"]["kind"], one["last_change"]["nodes"]) == ("start", one["nodes"])
    assert shown["last_change"] is None
    assert f"decision {one['last_change']['decision']}: start on {one['nodes'][0]}" in words(rig, "jobs", "show", "one")
    listed = words(rig, "jobs", "list")
    assert told in listed
    assert "needed_mib" not in listed
    assert rig.refused("jobs", "show", "lat")["code"] == "unknown-job"


def test_a_drain_says_what_is_still_there_and_why(rig: Rig, tmp_path: Path) -> None:
    """Given two jobs of which each fills a node, when one is drained, then the command says what blocks that."""
    for name in ("one", "two"):
        submit(rig, tmp_path, name, memory_mib=3_500)
    node = node_of(rig, "one")
    told = words(rig, "nodes", "drain", node)
    assert told.startswith(f"node {node} is draining one#0: memory: needs 3,500 MiB, most free 500 (no-memory)")
    assert rig.asked("nodes", "drain", node)["still_there"] == {node: [told.partition("draining ")[2]]}


def test_suspend_and_resume(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path)
    assert rig.asked("vms", "suspend", "render")["done"] == ["render"]
    rig.run(60.0)
    (row,) = rig.asked("vms", "list")["vms"]
    assert (row["vm"], row["state"]) == ("render#0", "suspended")
    assert "an operator holds it" in words(rig, "jobs", "show", "render")
    rig.asked("vms", "resume", "render")
    rig.run(60.0)
    assert rig.asked("jobs", "show", "render")["job"]["phase"] == "running"


def test_migrate(rig: Rig, tmp_path: Path) -> None:
    submit(rig, tmp_path)
    here = node_of(rig, "render")
    there = "n2" if here == "n1" else "n1"
    assert rig.asked("vms", "migrate", "render#0", there)["done"] is True
    rig.run(60.0)
    assert [(row["vm"], row["node"]) for row in rig.asked("vms", "list")["vms"]] == [("render#0", there)]
    assert rig.asked("vms", "list", "--node", here)["vms"] == []
    assert rig.refused("vms", "migrate", "render#0", "n9")["code"] == "unknown-node"
    assert "VMs" in words(rig, "vms", "list")


def test_instances_are_listed_with_their_application(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "web.toml").write_text(WEB)
    rig.asked("web", "submit", tmp_path / "web.toml")
    rig.run(60.0)
    (row,) = rig.asked("vms", "list")["vms"]
    assert (row["vm"], row["job"], row["app"]) == ("shop#0", "", "shop")
    assert re.search(r"shop#0 +n[12] +running +- +yes +shop ", rig.trimtab("vms", "list").stdout)


def test_forget_and_adopt(rig: Rig, tmp_path: Path) -> None:
    """A VM that was let go runs on as nobody's, and can be taken over under another name."""
    submit(rig, tmp_path)
    node = node_of(rig, "render")
    rig.asked("vms", "release", "render")
    rig.run(60.0)
    (row,) = rig.asked("vms", "list")["vms"]
    assert (row["managed"], row["state"]) == (False, "running")
    listed = {row["name"]: row for row in rig.asked("nodes", "list")["nodes"]}
    assert listed[node]["memory"]["unmanaged_mib"] == 1_000
    assert "1,000 MiB" in words(rig, "nodes", "list").partition("memory of others")[2]
    (done,) = rig.asked("vms", "adopt", row["vm"], "--node", node, "--job", "taken")["done"]
    assert (done["vm"], done["job"]) == (row["vm"], "taken")
    rig.run(60.0)
    found: dict[str, Any] = rig.asked("jobs", "show", "taken")["job"]
    assert (found["phase"], found["adopted"]) == ("running", True)


def test_plans(tmp_path: Path) -> None:
    rig = Rig(automation=Automation.CONFIRM, hold_starts=True, decide_s=60.0, decide_limit_s=5.0)
    rig.run(30.0)
    assert "decided" in words(rig, "plan", "show")
    submit(rig, tmp_path)
    rig.run(120.0)
    found = rig.asked("plan", "show")
    assert found["waiting_approval"] is True
    number = found["decision"]["number"]
    assert [change["workload"] for change in found["decision"]["held"]] == ["render"]
    assert "render" in words(rig, "plan", "show", "--decision", number)
    rig.asked("plan", "approve", number)
    rig.run(60.0)
    assert rig.asked("jobs", "show", "render")["job"]["phase"] == "running"
    history = rig.asked("plan", "history", "--limit", 1)
    assert len(history["decisions"]) == 1
    assert history["total"] >= 1
    assert str(history["decisions"][0]["number"]) in words(rig, "plan", "history")


def test_the_history_of_one_workload(rig: Rig, tmp_path: Path) -> None:
    """Given decisions on several jobs, then those on one are told with what became of it, where and why."""
    for name in ("one", "two"):
        submit(rig, tmp_path, name, memory_mib=3_500)
    submit(rig, tmp_path, "late", memory_mib=3_000)
    found = rig.asked("plan", "history", "--workload", "one")
    (started,) = [row for each in found["decisions"] for row in each["named"]]
    assert (started["workload"], started["became"], started["kind"]) == ("one", "changed", "start")
    assert started["nodes"] == [node_of(rig, "one")]
    late = rig.asked("plan", "history", "--workload", "late")["decisions"]
    assert {row["became"] for each in late for row in each["named"]} <= {"refused"}
    assert rig.asked("plan", "history", "--workload", "on")["total"] == 0
    assert "one changed start" in words(rig, "plan", "history", "--workload", "one")


def test_a_dry_run_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    rig.asked("pause")
    submit(rig, tmp_path)
    found = rig.asked("decide", "--dry-run")
    assert [change["workload"] for change in found["decision"]["changes"]] == ["render"]
    assert "render" in words(rig, "decide", "--dry-run")
    rig.run(60.0)
    assert rig.asked("jobs", "show", "render")["job"]["phase"] == "waiting"
