"""Stages of jobs: the figures of a few by hand, and what is odd about them."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.stages import (
    JobStages,
    cycle_needs,
    finish_s,
    job_stages,
    left_by_stage,
    left_mcycles,
    outlook,
    stages_of,
)
from shared.base.errors import InvalidValue
from shared.values.jobs import Stage
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot


def _jobs(done: list[float], stages: list[list[tuple[float, float, float, float]]]) -> JobStages:
    """Stages as (work, max, min, memory)."""
    rows = np.array([row for job in stages for row in job], dtype=np.float64).reshape(-1, 4)
    first = np.concatenate([[0], np.cumsum([len(job) for job in stages], dtype=np.int64)]).astype(np.int64)
    columns = [rows[:, k].copy() for k in range(4)]
    return job_stages(np.array(done, dtype=np.float64), first, *columns)


THREE = [(1000.0, 100.0, 10.0, 512.0), (4000.0, 200.0, 50.0, 2048.0), (600.0, 300.0, 20.0, 1024.0)]


def test_what_is_left_of_three_stages_and_how_long_it_takes() -> None:
    jobs = _jobs([0.0, 1500.0, 1000.0, 5600.0, 9000.0], [THREE] * 5)

    assert left_by_stage(jobs).reshape(5, 3).tolist() == [
        [1000.0, 4000.0, 600.0],
        [0.0, 3500.0, 600.0],
        [0.0, 4000.0, 600.0],
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0],
    ]
    assert left_mcycles(jobs).tolist() == [5600.0, 4100.0, 4600.0, 0.0, 0.0]
    assert finish_s(jobs).tolist() == [10.0 + 20.0 + 2.0, 17.5 + 2.0, 22.0, 0.0, 0.0]
    assert finish_s(jobs, 150.0).tolist() == [
        10.0 + 4000.0 / 150.0 + 4.0,
        3500.0 / 150.0 + 4.0,
        4000.0 / 150.0 + 4.0,
        0.0,
        0.0,
    ]
    assert finish_s(jobs, 0.0).tolist() == [np.inf, np.inf, np.inf, 0.0, 0.0]


@pytest.mark.parametrize(
    ("cycle_s", "wanted"),
    [
        (0.0, (100.0, 10.0, 512.0)),
        (10.0, (100.0, 10.0, 512.0)),  # the next stage begins with the next cycle
        (10.001, (200.0, 50.0, 2048.0)),  # entered, not completed, within the cycle
        (30.0, (200.0, 50.0, 2048.0)),
        (31.0, (300.0, 50.0, 2048.0)),
        (600.0, (300.0, 50.0, 2048.0)),
    ],
)
def test_a_cycle_needs_the_most_of_every_stage_entered(cycle_s: float, wanted: tuple[float, float, float]) -> None:
    needs = cycle_needs(_jobs([0.0], [THREE]), cycle_s)

    assert wanted == (needs.req_mhz[0], needs.min_mhz[0], needs.memory_mib[0])


def test_stages_done_ask_for_nothing_and_the_last_one_lasts_until_the_job_ends() -> None:
    needs = cycle_needs(_jobs([5000.0, 5600.0, 9999.0], [THREE] * 3), 600.0)

    assert needs.req_mhz.tolist() == [300.0] * 3
    assert needs.min_mhz.tolist() == [20.0] * 3
    assert needs.memory_mib.tolist() == [1024.0] * 3


def test_a_stage_without_work_is_never_entered() -> None:
    idle = (0.0, 9000.0, 8000.0, 1e6)
    needs = cycle_needs(_jobs([0.0, 0.0, 2000.0], [[idle, THREE[0], idle], [idle], [THREE[0], idle]]), 600.0)

    assert needs.req_mhz.tolist() == [100.0, 0.0, 100.0]
    assert needs.memory_mib.tolist() == [512.0, 0.0, 512.0]


def test_running_across_stages() -> None:
    jobs = _jobs([500.0], [THREE])

    after = outlook(jobs, 15.0, 150.0)

    assert after.done_mcycles.tolist() == [1000.0 + 10.0 * 150.0]
    assert after.left_mcycles.tolist() == [3100.0]
    assert after.best_s.tolist() == [2500.0 / 200.0 + 2.0]
    assert after.ran_s.tolist() == [15.0]


def test_a_job_that_ends_within_the_while_tells_when() -> None:
    after = outlook(_jobs([0.0, 0.0], [THREE, [(1000.0, 100.0, 0.0, 1.0)]]), np.array([100.0, 600.0]), 1e9)

    assert after.left_mcycles.tolist() == [0.0, 0.0]
    assert after.ran_s.tolist() == [32.0, 10.0]
    assert after.best_s.tolist() == [0.0, 0.0]


def test_no_jobs_and_jobs_without_stages() -> None:
    none, bare = _jobs([], []), _jobs([0.0, 0.0], [[], [THREE[0]]])

    assert len(none) == 0
    assert outlook(none, 600.0, 1.0).left_mcycles.shape == cycle_needs(none, 600.0).req_mhz.shape == (0,)
    assert finish_s(bare).tolist() == [0.0, 10.0]
    assert cycle_needs(bare, 600.0).memory_mib.tolist() == [0.0, 512.0]


def test_the_columns_given_are_not_changed() -> None:
    jobs = _jobs([500.0], [[THREE[0]]])
    for column in (jobs.done_mcycles, jobs.work_mcycles, jobs.max_mhz):
        column.setflags(write=False)

    outlook(jobs, 5.0, 50.0)
    cycle_needs(jobs, 5.0)

    assert left_mcycles(jobs).tolist() == [500.0]


@pytest.mark.parametrize("first", [[0], [0, 2], [1, 1], [0, 1, 1]])
def test_offsets_that_do_not_fit_are_refused(first: list[int]) -> None:
    one = np.ones(1)

    with pytest.raises(InvalidValue):
        job_stages(one, np.array(first, dtype=np.int64), one, one, one, one)


def test_jobs_of_a_snapshot() -> None:
    """Rows are picked in any order; what an instance can be given cuts speeds; web instances have no stages."""
    two = (Stage(1000.0, 3000.0, 200.0, 512), Stage(500.0, 500.0, 0.0, 1024))
    work = [
        WorkRow("plain", work_mcycles=4000.0, done_mcycles=1000.0, max_mhz=1000.0),
        WorkRow("web#0", app=0),
        WorkRow("staged", stages=two, work_mcycles=1500.0, done_mcycles=200.0, vcpus=2),
    ]
    seen = snapshot([NodeRow("n")], work)
    rows = np.array([2, 0])

    whole = stages_of(seen.workloads, seen.stages, rows)
    cut = stages_of(seen.workloads, seen.stages, rows, np.array([2000.0, 750.0]))

    assert finish_s(whole).tolist() == [800.0 / 3000.0 + 1.0, 3.0]
    assert finish_s(cut).tolist() == [0.4 + 1.0, 4.0]
    assert cycle_needs(cut, 900.0).min_mhz.tolist() == [200.0, 0.0]
    assert left_mcycles(stages_of(seen.workloads, seen.stages, np.array([1]))).tolist() == [0.0]
