"""`trimtab jobs submit --wait`: the phases of a job until it runs, ends otherwise, or the time is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.protocol.operator_messages import CancelJob, SetDeciding
from tests.support.operator_harness import Rig

JOB = """
name = "render"
[[stages]]
work_mcycles = 1_000_000
max_mhz = 1_000
memory_mib = {memory_mib}
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run(30.0)
    return made


@pytest.fixture
def job(rig: Rig, tmp_path: Path) -> Path:
    rig.loop.world.add_task("render", [(1_000_000.0, 1_000.0)], 1, 0.0)
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(memory_mib=1_000))
    return path


def test_a_job_is_followed_until_it_runs(rig: Rig, job: Path) -> None:
    rig.asked("pause")
    rig.loop.engine.at(rig.now_s() + 20.0, 0, lambda: rig.loop.operator.send(SetDeciding("go", True)))

    outcome = rig.trimtab("jobs", "submit", job, "--wait")

    assert outcome.exit_code == 0
    node = rig.asked("jobs", "show", "render")["job"]["nodes"][0]
    assert outcome.stdout == f"job render is running on {node}\n"
    assert outcome.stderr.splitlines() == [
        "job render is submitted, best effort",
        "job render is waiting: for the next decision",
        "next: trimtab jobs show render",
    ]


def test_json_is_one_object_at_the_end(rig: Rig, job: Path) -> None:
    found = rig.asked("jobs", "submit", job, "--wait")

    assert (found["done"], found["phase"], len(found["nodes"])) == (True, "running", 1)
    assert found["job"]["name"] == "render"


def test_without_a_terminal_nothing_is_waited_for(rig: Rig, job: Path) -> None:
    began_s = rig.now_s()

    for words in ((), ("--no-wait", "--name", "b"), ("-o", "json", "--name", "c")):
        assert rig.trimtab("jobs", "submit", job, *words).exit_code == 0

    assert rig.now_s() - began_s < 1.0


def test_a_job_that_is_cancelled_meanwhile_ends_the_wait(rig: Rig, job: Path) -> None:
    """Given that nothing is decided, then why it waits is said once, and its end is another than was asked for."""
    rig.asked("pause")
    rig.loop.engine.at(rig.now_s() + 20.0, 0, lambda: rig.loop.operator.send(CancelJob("end", "render")))

    outcome = rig.trimtab("jobs", "submit", job, "--wait", "-o", "json")

    assert outcome.exit_code == 1
    error = json.loads(outcome.stdout)["error"]
    assert (error["code"], error["message"]) == (
        "not-yet",
        "job render is cancelled: another request asked for that",
    )
    assert [line for line in outcome.stderr.splitlines() if "is waiting" in line] == [
        "job render is waiting: for the next decision"
    ]


def test_the_wait_ends_with_the_time_limit(rig: Rig, job: Path) -> None:
    rig.asked("pause")
    began_s = rig.now_s()

    error = rig.refused("jobs", "submit", job, "--wait", "--timeout", 20)

    assert 20.0 <= rig.now_s() - began_s < 22.0
    assert (error["code"], error["message"]) == ("not-yet", "job render is waiting: for the next decision")
    assert rig.asked("jobs", "show", "render")["job"]["phase"] == "waiting"


def test_a_refusal_is_not_waited_for(rig: Rig, job: Path) -> None:
    job.write_text(JOB.format(memory_mib=9_000))
    assert rig.refused("jobs", "submit", job, "--wait")["code"] == "fits-no-node"


def test_an_interruption_ends_the_wait_and_not_the_job(rig: Rig, job: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    rig.asked("pause")
    rig.loop.engine.at(rig.now_s() + 20.0, 0, interrupt)

    outcome = rig.trimtab("jobs", "submit", job, "--wait")

    assert outcome.exit_code == 130
    assert "stopped waiting; the job stays submitted: trimtab jobs show render" in outcome.stderr
    assert rig.asked("jobs", "show", "render")["job"]["phase"] == "waiting"
