"""Whether a migration gets ahead of its guest."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agents.hypervisors.libvirt.convergence import (
    ROUNDS_STUCK,
    STUCK_S,
    SWITCH_FRAC,
    THROTTLING_S,
    Convergence,
    JobSample,
    Step,
    sample_of,
)
from agents.hypervisors.libvirt.migration_watch import bounded
from shared.config.agent import LibvirtMigration
from shared.values.migration_terms import NOT_MEASURED, MigrationMethod, MigrationTerms

PRE, AUTO, POST = MigrationMethod
LIMIT_S = 100.0


def run(
    left_mib: Any, method: MigrationMethod = PRE, may_switch: bool = False, round_s: float = 2.0, throttle: Any = None
) -> tuple[Step, int]:
    """The first step that is not to go on, and its round; each round begins with what `left_mib` says of it."""
    judge = Convergence(MigrationTerms(method), LIMIT_S, may_switch)
    for number in range(1, 200):
        for part in (1.0, 0.6, 0.2):
            at_s = round_s * (number - part / 2)
            taken = throttle(number) if throttle else 0.0
            step = judge.judge(JobSample(at_s, number, part * left_mib(number), 0.0, throttle_frac=taken), at_s)
            if step is not Step.GO_ON:
                return step, number
    return Step.GO_ON, 200


def test_less_each_round_goes_on_to_the_limit() -> None:
    step, number = run(lambda number: 1_000.0 * 0.9**number)
    assert (step, number) == (Step.ABORT_STUCK, 51)  # 100 s of 2 s each


def test_no_less_for_some_rounds_is_stuck() -> None:
    step, number = run(lambda _number: 1_000.0)
    assert step is Step.ABORT_STUCK
    assert ROUNDS_STUCK <= number <= ROUNDS_STUCK + 4


def test_a_little_less_is_no_less() -> None:
    assert run(lambda number: 1_000.0 - number)[1] <= ROUNDS_STUCK + 4


def test_short_rounds_are_given_some_time() -> None:
    _, number = run(lambda _number: 1_000.0, round_s=0.1)
    assert number >= STUCK_S / 0.1


def test_auto_converge_is_not_given_up_while_it_throttles_more() -> None:
    step, number = run(lambda _number: 1_000.0, AUTO, throttle=lambda number: min(0.99, 0.1 * (number // 3)))
    assert step is Step.ABORT_STUCK
    assert number > 30  # when it takes no more
    _, waiting = run(lambda _number: 1_000.0, AUTO)
    assert 2.0 * waiting >= THROTTLING_S


def test_post_copy_begins_after_the_first_round() -> None:
    assert run(lambda _number: 1_000.0, POST, may_switch=True) == (Step.SWITCH, 2)


def test_one_that_is_stuck_or_late_switches_where_it_may() -> None:
    assert run(lambda _number: 1_000.0, may_switch=True)[0] is Step.SWITCH
    step, number = run(lambda number: 1_000.0 * 0.9**number, may_switch=True)
    assert step is Step.SWITCH
    assert 2.0 * number == pytest.approx(SWITCH_FRAC * LIMIT_S, abs=3.0)


def test_without_a_second_round_nothing_is_said_of_convergence() -> None:
    judge = Convergence(MigrationTerms(POST), LIMIT_S, may_switch=True)
    assert judge.judge(None, 1.0) is Step.GO_ON
    assert judge.judge(JobSample(99.0, 1, 5.0, 0.0), 99.0) is Step.GO_ON
    assert judge.judge(JobSample(100.0, 1, 5.0, 0.0), 100.0) is Step.ABORT_LATE
    assert judge.judge(None, 1e9) is Step.ABORT_LATE


def test_libvirt_s_statistics_are_read() -> None:
    mib = 1 << 20
    stats = {"type": 2, "time_elapsed": 1_500, "memory_iteration": 3, "memory_remaining": 7 * mib}
    stats |= {"memory_dirty_rate": 512, "memory_page_size": 4096, "auto_converge_throttle": 30, "downtime": 250}
    found = sample_of({**stats, "data_processed": 9 * mib})
    assert found == JobSample(1.5, 3, 7.0, 9.0, 2.0, 0.3, 0.25)
    assert sample_of({**stats, "memory_processed": 4 * mib, "disk_processed": mib}) == JobSample(
        1.5, 3, 7.0, 5.0, 2.0, 0.3, 0.25
    )


def test_without_a_job_there_is_no_sample() -> None:
    assert sample_of({}) is None
    assert sample_of({"type": 0}) is None
    first = sample_of({"type": 1})
    assert first is not None
    assert (first.rounds, first.dirty_mib_per_s) == (0, NOT_MEASURED)


@pytest.mark.parametrize(
    ("terms", "rate", "downtime_ms", "limit_s"),
    [
        (None, 50, 300, 60.0),
        (MigrationTerms(), 50, 300, 60.0),
        (MigrationTerms(bandwidth_mib_per_s=20, downtime_ms=100, limit_s=10.0), 20, 100, 10.0),
        (MigrationTerms(bandwidth_mib_per_s=90, downtime_ms=900, limit_s=900.0), 50, 300, 60.0),
    ],
)
def test_the_node_s_configuration_bounds_the_terms(
    terms: MigrationTerms | None, rate: int, downtime_ms: int, limit_s: float
) -> None:
    keys = LibvirtMigration(bandwidth_mib_per_s=50, downtime_ms=300, limit_s=60.0)
    found = bounded(terms, keys)
    assert (found.bandwidth_mib_per_s, found.downtime_ms, found.limit_s) == (rate, downtime_ms, limit_s)
    unlimited = bounded(terms, LibvirtMigration()).bandwidth_mib_per_s
    assert unlimited == (terms.bandwidth_mib_per_s if terms is not None else 0)
    assert math.isfinite(found.limit_s)
