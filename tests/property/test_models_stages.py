"""Stages of many jobs at once against a plain loop over one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.stages import (
    JobStages,
    cycle_needs,
    finish_s,
    job_stages,
    left_by_stage,
    left_mcycles,
    outlook,
    stage_work_left,
    with_work_left,
)
from tests.extent import examples

steady = settings(max_examples=examples(100))
Stage = tuple[float, float, float, float]
Case = tuple[float, list[Stage]]

speeds = st.floats(1.0, 1e5) | st.sampled_from([100.0, 200.0])
stages = st.tuples(
    st.floats(1e-3, 1e9) | st.sampled_from([0.0, 1000.0, 2000.0]), speeds, st.floats(0.0, 1e3), st.floats(0.0, 1e6)
)
jobs_lists = st.lists(
    st.tuples(st.floats(0.0, 1e9) | st.sampled_from([0.0, 1000.0, 3000.0]), st.lists(stages, max_size=4)), max_size=6
) | st.lists(st.tuples(st.floats(0.0, 1e9), st.tuples(stages).map(list)), min_size=1, max_size=6)


def _jobs(cases: list[Case]) -> JobStages:
    rows = np.array([row for _, job in cases for row in job], dtype=np.float64).reshape(-1, 4)
    first = np.array([0, *np.cumsum([len(job) for _, job in cases])], dtype=np.int64)
    return job_stages(
        np.array([done for done, _ in cases], dtype=np.float64), first, *[rows[:, k].copy() for k in range(4)]
    )


def _left(case: Case) -> list[float]:
    done, left = case[0], []
    for work, *_ in case[1]:
        used = min(done, work)
        left.append(work - used)
        done -= used
    return left


def _finish(case: Case, mhz: float) -> float:
    total = 0.0
    for left, (_, most, *_) in zip(_left(case), case[1], strict=True):
        if left > 0.0:
            speed = min(mhz, most)
            total += left / speed if speed > 0.0 else np.inf
    return total


def _needs(case: Case, cycle_s: float) -> list[float]:
    """The largest figures of the stages entered; the last with work where none is left."""
    left = _left(case)
    if not any(left):
        last = [stage for stage in case[1] if stage[0] > 0.0][-1:]
        return list(last[0][1:]) if last else [0.0, 0.0, 0.0]
    entered: list[Stage] = []
    passed = 0.0
    for rest, stage in zip(left, case[1], strict=True):
        if rest > 0.0:
            if not entered or passed < cycle_s:
                entered.append(stage)
            passed += rest / stage[1]
    return [max(stage[k] for stage in entered) for k in (1, 2, 3)]


def _run(case: Case, for_s: float, mhz: float) -> tuple[float, float]:
    """Work left afterwards, time it ran."""
    remaining, time = 0.0, for_s
    for left, (_, most, *_) in zip(_left(case), case[1], strict=True):
        speed = min(mhz, most)
        need = 0.0 if left == 0.0 else left / speed if speed > 0.0 else np.inf
        if need <= time:
            time -= need
        else:
            remaining += left - min(left, speed * time)
            time = 0.0
    return remaining, for_s - time


@steady
@given(cases=jobs_lists, mhz=st.floats(0.0, 1e5), cycle_s=st.floats(0.0, 1e5), for_s=st.floats(0.0, 1e6))
def test_as_a_loop_over_one_job(cases: list[Case], mhz: float, cycle_s: float, for_s: float) -> None:
    jobs = _jobs(cases)

    needs, after = cycle_needs(jobs, cycle_s), outlook(jobs, for_s, mhz)

    assert left_by_stage(jobs).tolist() == [left for case in cases for left in _left(case)]
    assert left_mcycles(jobs).tolist() == [sum(_left(case)) for case in cases]
    assert finish_s(jobs, mhz).tolist() == [_finish(case, mhz) for case in cases]
    assert np.transpose([needs.req_mhz, needs.min_mhz, needs.memory_mib]).tolist() == [
        _needs(case, cycle_s) for case in cases
    ]
    assert list(zip(after.left_mcycles.tolist(), after.ran_s.tolist(), strict=True)) == [
        _run(case, for_s, mhz) for case in cases
    ]


@steady
@given(cases=jobs_lists, mhz=st.floats(0.0, 1e5), for_s=st.floats(0.0, 1e6))
def test_running_in_two_parts_is_running_in_one(cases: list[Case], mhz: float, for_s: float) -> None:
    jobs = _jobs(cases)

    once = outlook(jobs, for_s, mhz)
    twice = outlook(replace(jobs, done_mcycles=outlook(jobs, for_s / 2, mhz).done_mcycles), for_s / 2, mhz)

    np.testing.assert_allclose(twice.left_mcycles, once.left_mcycles, rtol=1e-9, atol=1e-6 * (1.0 + for_s))


@steady
@given(cases=jobs_lists, for_s=st.floats(0.0, 1e6), slow=st.floats(0.0, 1e5), fast=st.floats(0.0, 1e5))
def test_more_speed_and_more_time_never_leave_more(cases: list[Case], for_s: float, slow: float, fast: float) -> None:
    jobs, (slow, fast) = _jobs(cases), sorted((slow, fast))

    less, more = outlook(jobs, for_s, slow), outlook(jobs, for_s, fast)

    # A stage's end may be missed by a rounding: then a last bit is left.
    assert (more.left_mcycles <= less.left_mcycles + 1e-9 * left_mcycles(jobs)).all()
    assert (finish_s(jobs, fast) <= finish_s(jobs, slow)).all()
    assert (outlook(jobs, for_s / 2, slow).left_mcycles >= less.left_mcycles - 1e-9 * left_mcycles(jobs)).all()


@steady
@given(jobs_lists, st.floats(1e-3, 1e9), st.data())
def test_what_is_left_is_spread_as_of_each(cases: list[Case], left: float, data: st.DataObject) -> None:
    """Of jobs that have work: so much is left, in the stages that were not done or the last one; others stay."""
    jobs = _jobs(cases)
    rows = [at for at, (_, job) in enumerate(cases) if sum(row[0] for row in job) > 0.0 and data.draw(st.booleans())]
    found = with_work_left(jobs, rows, np.full(len(rows), left))
    for at, (done, job) in enumerate(cases):
        works = [row[0] for row in job]
        mine = found.work_mcycles[jobs.first_stage[at] : jobs.first_stage[at + 1]]
        wanted = stage_work_left(works, done, left) if at in rows else works
        scale = max(1.0, left, done, *works) if works else 1.0
        np.testing.assert_allclose(mine, wanted, rtol=1e-6, atol=1e-6 * scale)
        if at in rows:
            assert abs(sum(wanted) - done - left) <= 1e-9 * scale
