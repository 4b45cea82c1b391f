"""Profiles learnt by the real controller and agents, of jobs whose true use of the disk only the simulated world knows,
and the commands by which an operator has them learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.values.jobs import JobPhase
from tests.support import parts
from tests.support.operator_harness import Rig

TRUE_IO = 0.6
JOB = """
name = "pack"
class = "sort"
[[stages]]
work_mcycles = 48_000
max_mhz = 400
memory_mib = 500
"""


@pytest.fixture
def rig() -> Rig:
    """Two nodes whose agents run standard jobs; decisions every two minutes."""
    made = Rig(decide_s=120.0)
    made.run(30.0)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def core(rig: Rig) -> Any:
    """The controller that leads."""
    return rig.loop.controllers["a"].core


def row(rig: Rig, name: str = "sort") -> dict[str, Any]:
    """The profile of a class."""
    return dict(rig.asked("profile", "show", name)["profiles"][0])


def test_copies_that_an_operator_has_run_tell_the_part_at_the_disk(rig: Rig, job: Path) -> None:
    """Given a class that is truly at the disk 0.6 of its time, then 1, 2 and 3 copies of a job of it, one batch after
    the other on one node, tell that, as samples of the same runs do."""
    batches = [["pack-1-1"], ["pack-2-1", "pack-2-2"], ["pack-3-1", "pack-3-2", "pack-3-3"]]
    for name in (each for batch in batches for each in batch):
        rig.loop.world.add_task(name, [(48_000.0, 400.0)], 1, 0.0, TRUE_IO)
    assert rig.asked("profile", "run", job, "--node", "n1", "--copies", 3)["batches"] == batches
    rig.run(2_400.0)

    phases = {entry.phase for entry in core(rig).cluster.jobs.values()}
    assert phases == {JobPhase.COMPLETED}
    history = parts.profiles(core(rig)).history("sort", "")
    assert sorted(round(time.copies) for time in history.copies) == [1, 2, 2, 3, 3, 3]
    learnt = row(rig)
    assert (learnt["source"]["io"], learnt["status"]) == ("copies", "measured")
    assert learnt["loading"]["io"] == pytest.approx(TRUE_IO, abs=0.06)
    assert history.samples.mean[1] == pytest.approx(TRUE_IO, abs=0.06)


def test_standard_jobs_tell_how_fast_a_node_is_and_what_a_job_does(rig: Rig, job: Path) -> None:
    """Given a pace of an empty node, then a standard job beside a job tells the part of its time that it is at the disk
    truly."""
    told = rig.asked("profile", "run", "n2", "--standard", "io", "--seconds", 10)
    assert (told["done"], told["run"]["node"], told["run"]["ok"]) == (True, "n2", True)
    rig.loop.world.add_task("pack", [(1e9, 400.0)], 1, 0.0, TRUE_IO)
    rig.asked("jobs", "submit", job)
    rig.run(130.0)
    node = next(name for name in ("n1", "n2") if core(rig).cluster.nodes[name].claimed)
    beside = rig.asked("profile", "run", node, "--standard", "io", "--seconds", 10, "--job", "pack")

    assert "job pack: io" in beside["run"]["detail"]
    assert row(rig)["source"]["io"] == "probe"
    assert row(rig)["loading"]["io"] == pytest.approx(TRUE_IO, abs=0.1)
    types = rig.asked("profile", "show")["node_types"]
    assert types[0]["units_per_s"]["io"] > 0.0
    text = rig.trimtab("profile", "show").stdout
    assert "sort" in text
    assert "node types" in text


def test_what_cannot_be_run_is_refused_with_the_reason(rig: Rig, job: Path) -> None:
    assert rig.refused("profile", "run", "n9", "--standard", "io")["code"] == "unknown-node"
    assert rig.refused("profile", "run", "n1", "--standard", "io", "--job", "gone")["code"] == "unknown-job"
    for words in (
        ("n1",),
        (job,),
        ("n1", "--standard", "io", "--class", "sort"),
        (job, "--node", "n1", "--job", "pack"),
        (job, "--node", "n1", "--copies", "17"),
    ):
        assert rig.trimtab("profile", "run", *words).exit_code == 2
