"""Jobs that go on beyond their declared work: what decisions and views take to be left, and what is kept of classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from daemons.controller.state.job_lengths import GROUPS_MAX, JobLengths
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.models.work_left import FIRST_STEP, NO_HISTORY
from daemons.store.bodies import from_body, to_body
from daemons.values.records.cluster import Deleted, WorkRatioRecord
from shared.protocol.operator_messages import SubmitJob
from shared.values.actions import GuestChange
from shared.values.jobs import Job, JobPhase, Stage
from tests.support.controller_harness import ControllerHarness
from tests.unit.daemons.controller.views.test_registry import view


def _job(name: str, *stages: Stage, job_class: str = "render", **more: Any) -> Job:
    return Job(name, stages or (Stage(1e4, 1000.0, memory_mib=1000),), job_class=job_class, **more)


def _ended(name: str, work_mcycles: float, finished_s: float = 1.0, job_class: str = "render") -> JobEntry:
    entry = JobEntry(_job(name, job_class=job_class), "r", 1, accepted_s=0.0, phase=JobPhase.COMPLETED)
    entry.measured_mcycles, entry.finished_s = work_mcycles, finished_s
    return entry


def _running(harness: ControllerHarness, job: Job, cpu_time_s: float) -> dict[str, Any]:
    """The view of a job whose VM has used so much CPU of a core of 1,000 MHz."""
    harness.ask(SubmitJob("r" + job.name, job))
    harness.obey()
    harness.wait(100.0, reporting=["n1", "n2"])
    (node,) = [name for name, vms in harness.vms.items() if f"{job.name}#0" in vms]
    harness.now_s += 5.0
    harness.change(node, f"{job.name}#0", cpu_time_s=cpu_time_s)
    harness.report(node)
    row: dict[str, Any] = view(harness, "job", job.name)["job"]
    return row


def test_a_job_beyond_its_declared_work_is_not_about_to_end() -> None:
    harness = ControllerHarness().lead()
    row = _running(harness, _job("a", Stage(1e4, 1000.0, memory_mib=1000)), 14.0)
    assert row["done_mcycles"] == pytest.approx(14_000.0)
    assert row["left_mcycles"] == pytest.approx(1e4 * (0.4 + FIRST_STEP))
    ends = [row[f"predicted_end{when}_at_s"] for when in ("_early", "", "_late")]
    assert ends[1] == pytest.approx(harness.now_s + 4500.0 / row["cpu_mhz"], abs=1.0)
    assert ends[0] < ends[1] < ends[2]
    assert row["progress_pct"] == pytest.approx(100.0 * 14.0 / 18.5)


def test_a_job_within_its_declared_work_is_as_declared() -> None:
    row = _running(ControllerHarness().lead(), _job("a"), 9.0)
    assert (row["left_mcycles"], row["predicted_end_early_at_s"]) == (None, None)
    assert row["progress_pct"] == pytest.approx(90.0)


def test_decisions_count_with_what_is_left_in_the_last_stage_with_work() -> None:
    harness = ControllerHarness().lead()
    stages = Stage(4e3, 500.0, memory_mib=1000), Stage(6e3, 1000.0, memory_mib=1000), Stage(0.0, 700.0, memory_mib=1000)
    _running(harness, _job("a", *stages), 14.0)
    seen = harness.controller.deciding.builder.build(harness.now_s)
    assert seen.workloads.work_mcycles.tolist() == pytest.approx([14_000.0 + 4_500.0])
    assert seen.workloads.done_mcycles.tolist() == pytest.approx([14_000.0])
    assert seen.stages.work_mcycles.tolist() == pytest.approx([4e3, 14_500.0, 0.0])


def test_a_class_that_takes_twice_what_it_declares_is_known_to_the_next_leader() -> None:
    harness = ControllerHarness().lead()
    _running(harness, _job("a"), 20.0)
    (node,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    harness.guest(node, "a#0", GuestChange.ENDED)
    record = harness.store.get(("work-ratio", "render"))
    assert isinstance(record, WorkRatioRecord)
    assert record.history.count == 1
    assert math.exp(record.history.mean) == pytest.approx(2.0)
    assert from_body(to_body(record), WorkRatioRecord) == record


def test_what_an_earlier_controller_has_learnt_is_taken_over() -> None:
    first, second = JobLengths(), JobLengths()
    for at in range(20):
        (record,) = first.ended(_ended(f"j{at}", 2e4))
        assert isinstance(record, WorkRatioRecord)
        second.load(record)
    assert [*second] == [*first]
    assert second.history("render").count == 20
    alike = JobEntry(_job("on"), "r", 2, accepted_s=0.0, phase=JobPhase.RUNNING)
    other = JobEntry(_job("other", job_class="encode"), "r", 3, accepted_s=0.0, phase=JobPhase.RUNNING)
    (left,) = second.left([alike, other]).values()
    assert left.low_mcycles < left.mean_mcycles < left.high_mcycles
    assert left.mean_mcycles == pytest.approx(2e4, rel=0.1)


def test_declared_work_stands_until_history_excludes_it() -> None:
    """Given jobs of one account that take 0.77 of what they declare, then the next ones go by that after a few."""
    lengths = JobLengths()
    entry = JobEntry(_job("next", job_class=""), "r", 9, accepted_s=0.0, phase=JobPhase.RUNNING, user="user.tom")
    took = []
    for at in range(10):
        ended = _ended(f"j{at}", 7_700.0, job_class="")
        ended.user = "user.tom"
        took.append(lengths.left([entry]).get("next"))
        lengths.ended(ended)
    assert took[:3] == [None] * 3
    assert took[-1] is not None
    assert took[-1].mean_mcycles == pytest.approx(8_000.0, rel=0.05)
    entry.user = "user.ann"
    assert lengths.left([entry]) == {}


def test_many_at_once_are_as_each() -> None:
    lengths = JobLengths()
    for at in range(20):
        lengths.ended(_ended(f"j{at}", 7_000.0 + 50.0 * at))
    entries = [JobEntry(_job(f"k{at}"), "r", at, accepted_s=0.0, phase=JobPhase.RUNNING) for at in range(30)]
    done = [400.0 * at for at in range(30)]
    for entry, mcycles in zip(entries, done, strict=True):
        entry.instances = [Instance(f"{entry.job.name}#0", entry, 1000)]
        entry.instances[0].done_mcycles = mcycles
    left = np.array([entry.job.work_mcycles for entry in entries]) - done
    rows, means = lengths.means_left(entries, np.array(done), left)
    assert rows == list(range(30))
    assert means.tolist() == [one.mean_mcycles for one in lengths.left(entries).values()]


def test_jobs_that_teach_nothing_are_left_out() -> None:
    lengths = JobLengths()
    assert lengths.ended(_ended("none", 2e4, job_class="")) == ()
    assert lengths.ended(_ended("unmeasured", 0.0)) == ()
    cancelled = _ended("cancelled", 2e4)
    cancelled.phase = JobPhase.CANCELLED
    assert lengths.ended(cancelled) == ()
    assert lengths.history("render") == NO_HISTORY


def test_the_class_of_which_no_job_has_ended_for_longest_goes() -> None:
    lengths = JobLengths()
    for at in range(GROUPS_MAX):
        lengths.ended(_ended("j", 1e4, 100.0 - at if at < 50 else 100.0 + at, job_class=f"c{at}"))
    _, gone = lengths.ended(_ended("j", 1e4, 1e6, job_class="new"))
    assert gone == Deleted(("work-ratio", "c49"))
    assert len([*lengths]) == GROUPS_MAX
