"""What views tell of what is to come: the next decision, when jobs end and how content they will be."""

from __future__ import annotations

from typing import Any

from daemons.controller.decide.predictions import job_utility, predicted_end_s
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.models.utility import utility_at
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import SetDeciding, SubmitJob
from shared.values.jobs import Allotment, Job, JobPhase, Stage
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.views.test_registry import lively, view


def test_the_status_says_when_is_decided_next_unless_deciding_is_paused() -> None:
    harness = lively()
    due_s = view(harness, "status")["next_decision_at_s"]
    assert harness.now_s < due_s <= harness.now_s + 900.0
    harness.wait(due_s - harness.now_s, reporting=["n1", "n2"])
    assert view(harness, "status")["next_decision_at_s"] == due_s + 900.0
    harness.ask(SetDeciding("p", False))
    assert view(harness, "status")["next_decision_at_s"] is None


def test_a_job_that_runs_ends_when_its_cpu_brings_it_there() -> None:
    """Given 20,000 Mcycles of which 5 s are done at 1,000 MHz, then 15 s are left from its last report on; a job that
    does not run, or whose work is not declared, has no end that is known."""
    harness = lively()
    rows = {row["name"]: row for row in view(harness, "jobs")["jobs"]}
    assert rows["a"]["cpu_mhz"] == 1000.0
    left_s = (rows["a"]["work_mcycles"] - rows["a"]["done_mcycles"]) / 1000.0
    assert rows["a"]["predicted_end_at_s"] == round(harness.now_s + left_s)
    assert rows["big"]["predicted_end_at_s"] is None
    before = view(harness, "job", "a")["job"]["predicted_end_at_s"]
    harness.now_s += 3.0
    assert view(harness, "job", "a")["job"]["predicted_end_at_s"] == before


def test_each_stage_is_passed_at_its_own_speed() -> None:
    def ends_s(done_mcycles: float, cpu_mhz: float = 1000.0, **more: Any) -> float | None:
        stages = (Stage(1e5, 500.0), Stage(2e5, 2000.0))
        entry = JobEntry(
            Job("j", stages), "r", 1, accepted_s=0.0, phase=JobPhase.RUNNING, released=True, progress_s=50.0
        )
        entry.allotments, entry.instances = (Allotment("n1", cpu_mhz),), [Instance("j#0", entry, 0, cpu_mhz=100)]
        entry.instances[0].done_mcycles = done_mcycles
        for name, value in more.items():
            setattr(entry, name, value)
        return predicted_end_s(entry)

    assert ends_s(0.0) == 50.0 + 200.0 + 200.0
    assert ends_s(2e5) == 50.0 + 100.0
    assert ends_s(9e5) == 50.0
    assert (ends_s(0.0, 0.0), ends_s(0.0, stalled=True), ends_s(0.0, released=False)) == (None, None, None)


def test_utility_is_as_predicted_else_that_of_the_end_and_of_a_complete_job_as_it_was() -> None:
    late = JobEntry(
        Job("late", (Stage(1.0, 1.0),), desired_start_s=100.0, goal_s=200.0, importance=2.0), "r", 1, accepted_s=0.0
    )
    for end_s in (150.0, 200.0, 250.0):
        assert job_utility(late, {}, end_s) == float(utility_at(end_s, 100.0, 200.0, 2.0))
    assert job_utility(late, {"late": 0.25, "other": 1.0}, 150.0) == 0.25
    assert job_utility(late, {}, None) is None
    assert job_utility(JobEntry(Job("free", (Stage(1.0, 1.0),)), "r", 1, accepted_s=0.0), {}, 150.0) is None
    late.phase, late.finished_s = JobPhase.COMPLETED, 150.0
    assert job_utility(late, {"late": 0.75}, None) == 0.25
    late.phase = JobPhase.CANCELLED
    assert job_utility(late, {"late": 0.75}, 150.0) is None


def test_what_the_last_cycle_predicted_is_told_of_a_job() -> None:
    harness = ControllerHarness(placement=PolicyChoice("apc")).lead()
    for name, goal_s in (("soon", 3_000.0), ("later", 9_000.0)):
        harness.ask(SubmitJob(f"r-{name}", job(name, goal_s=goal_s)))
    assert [row["utility"] for row in view(harness, "jobs")["jobs"]] == [None, None]
    harness.obey()
    harness.wait(905.0, reporting=["n1", "n2"])
    (record,) = [each for each in harness.controller.deciding.history if len(each.gains)]
    predicted = {gain.workload: gain.predicted for gain in record.gains}
    assert {row["name"]: row["utility"] for row in view(harness, "jobs")["jobs"]} == predicted
    assert set(predicted) == {"soon", "later"}
    assert view(harness, "job", "soon")["job"]["utility"] == predicted["soon"]
