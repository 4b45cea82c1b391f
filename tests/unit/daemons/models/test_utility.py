"""Utility of jobs and their common level: known figures, and what is odd about the numbers given."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.level import JobDemand
from daemons.models.utility import unweighted, utility_at, weighted
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from tests.support.utility import completion_at, level_of

INF, NAN = float("inf"), float("nan")


def _arrays(*rows: tuple[float, float, float, float]) -> tuple[Floats, Floats, Floats, Floats]:
    """Rows (a, b, r, tb) as four columns."""
    a, b, r, tb = (np.array(column, dtype=np.float64) for column in np.reshape(rows, (-1, 4)).T)
    return a, b, r, tb


def test_utility_of_the_papers_jobs() -> None:
    """Experiment Two: 17,600 s at full speed, goal 2.7 times that; Experiment One, S2, J2 left waiting in cycle 2."""
    assert round(float(utility_at(17_600.0, 0.0, 47_520.0)), 4) == 0.6296
    assert float(utility_at(18.0 - 12.0, 1.0, 13.0)) == pytest.approx(7.0 / 12.0)
    assert utility_at(np.array([10.0, 20.0, 30.0]), 10.0, 20.0).tolist() == [1.0, 0.0, -1.0]


@pytest.mark.parametrize("goal", [INF, NAN])
def test_without_a_goal_nothing_is_missed(goal: float) -> None:
    assert utility_at(np.array([5.0, INF]), 0.0, goal, importance=3.0).tolist() == [1.0, 1.0]
    assert float(completion_at(0.5, 0.0, goal)) == INF


def test_a_job_that_never_completes() -> None:
    assert float(utility_at(INF, 0.0, 10.0)) == -INF


def test_importance_makes_the_more_important_the_unhappier() -> None:
    assert weighted(np.array([0.5, 0.0, -0.5]), 2.0).tolist() == [0.25, 0.0, -1.0]
    assert unweighted(np.array([0.25, 0.0, -1.0]), 2.0).tolist() == [0.5, 0.0, -0.5]


def test_experiment_one_cycle_two() -> None:
    """J1 and J2 after one more second: placed together (P1), and J1 alone (P2)."""
    # S1, P1: J1 has 4,000 - 1,000 - 500 left, J2 2,000 - 500; now = 2. S2 differs in J2's goal.
    both = level_of(*_arrays((2500.0, 18.0, 20.0, 2.5), (1500.0, 15.0, 16.0, 3.0)), 1000.0).utilities()
    alone = level_of(*_arrays((2000.0, 18.0, 20.0, 2.0), (2000.0, 15.0, 16.0, 4.0)), 1000.0).utilities()
    tight_both = level_of(*_arrays((2500.0, 18.0, 20.0, 2.5), (1500.0, 11.0, 12.0, 3.0)), 1000.0).utilities()
    tight_alone = level_of(*_arrays((2000.0, 18.0, 20.0, 2.0), (2000.0, 11.0, 12.0, 4.0)), 1000.0).utilities()

    assert both.round(4).tolist() == [0.6958, 0.6958]
    assert alone.round(4).tolist() == [0.7, 0.6875]
    assert tight_both.round(4).tolist() == [0.6581, 0.6581]
    assert tight_alone.round(4).tolist() == [0.7, 0.5833]


def test_one_job_by_hand() -> None:
    level = level_of(*_arrays((1000.0, 50.0, 100.0, 2.0)), 50.0)

    assert level.level == pytest.approx(0.3)  # 1,000 / 50 MHz = 20 s of 50 - 100 u
    assert level.omegas().tolist() == pytest.approx([50.0])


def test_nobody_wants_anything() -> None:
    none = level_of(*_arrays(), 1000.0)
    ended = level_of(*_arrays((0.0, 30.0, 100.0, 0.0)), 1000.0)

    assert (none.level, none.utilities().shape, none.omegas().shape) == (1.0, (0,), (0,))
    assert (ended.level, ended.utilities().tolist(), ended.omegas().tolist()) == (1.0, [0.3], [0.0])
    assert JobDemand(*_arrays()).sum_and_slope(0.5) == (0.0, 0.0)


@pytest.mark.parametrize("omega_g", [0.0, -5.0, 1e-320])
def test_no_cpu(omega_g: float) -> None:
    level = level_of(*_arrays((1000.0, 50.0, 100.0, 2.0), (0.0, 50.0, 100.0, 0.0)), omega_g)

    assert level.level == -INF
    assert level.utilities().tolist() == [-INF, 0.5]
    assert level.omegas().tolist() == [0.0, 0.0]


def test_more_cpu_than_all_can_use() -> None:
    arrays = _arrays((1000.0, 50.0, 100.0, 2.0), (3000.0, -20.0, 100.0, 10.0))

    for omega_g in (800.0, 1e9, INF):
        level = level_of(*arrays, omega_g)

        assert level.utilities().tolist() == JobDemand(*arrays).utilities(INF).tolist() == [0.48, -0.3]
        assert level.omegas().tolist() == [500.0, 300.0]


def test_a_goal_in_the_past_has_a_negative_level() -> None:
    level = level_of(*_arrays((1000.0, -500.0, 100.0, 2.0), (1000.0, -500.0, 100.0, 2.0)), 100.0)

    assert level.utilities().tolist() == pytest.approx([-5.2, -5.2])
    assert level.omegas().tolist() == pytest.approx([50.0, 50.0])


def test_best_effort_takes_what_is_left() -> None:
    arrays = _arrays((1000.0, 50.0, 100.0, 2.0), (600.0, INF, INF, 3.0), (100.0, NAN, NAN, 1.0), (0.0, INF, INF, 0.0))

    scarce, enough, plenty = (level_of(*arrays, omega_g) for omega_g in (400.0, 575.0, 1e6))

    assert scarce.omegas().tolist() == pytest.approx([400.0, 0.0, 0.0, 0.0])
    assert enough.omegas().tolist() == pytest.approx([500.0, 50.0, 25.0, 0.0])
    assert plenty.omegas().tolist() == [500.0, 200.0, 100.0, 0.0]
    assert plenty.utilities().tolist() == [0.48, 1.0, 1.0, 1.0]


def test_importance_one_changes_no_bit() -> None:
    arrays = _arrays((1000.0, 50.0, 100.0, 2.0), (3000.0, -20.0, 100.0, 10.0), (500.0, 9.0, 10.0, 1.0))
    plain, ones = JobDemand(*arrays), JobDemand(*arrays, importance=np.ones(3))

    assert ones.utilities(INF).tolist() == plain.utilities(INF).tolist()
    assert ones.omegas(-0.4).tolist() == plain.omegas(-0.4).tolist()
    assert ones.sum_and_slope(0.2) == plain.sum_and_slope(0.2)


def test_twice_as_important_is_twice_as_happy_in_the_end() -> None:
    arrays = _arrays((1000.0, 500.0, 1000.0, 1.0), (1000.0, 500.0, 1000.0, 1.0))

    short = level_of(*arrays, 3.0, importance=np.array([1.0, 2.0]))
    much = level_of(*arrays, 10.0, importance=np.array([1.0, 2.0]))

    for level in (short, much):
        own = (500.0 - 1000.0 / level.omegas()) / 1000.0
        assert level.omegas().sum() == pytest.approx(level.omega_g_mhz)
        assert own[1] == pytest.approx(own[0] * (2.0 if level.level > 0.0 else 0.5))


@pytest.mark.parametrize(
    ("column", "value"),
    [("a", -1.0), ("a", NAN), ("a", INF), ("r", 0.0), ("r", -1.0), ("tb", 0.0), ("tb", NAN), ("tb", -1.0)],
)
def test_numbers_outside_the_ranges_are_refused(column: str, value: float) -> None:
    values = {"a": 1000.0, "b": 50.0, "r": 100.0, "tb": 2.0} | {column: value}
    one = tuple(values.values())

    for beside in ((1000.0, 50.0, 100.0, 2.0), (0.0, INF, INF, 0.0)):  # all want CPU, or not
        with pytest.raises(InvalidValue, match=column):
            JobDemand(*_arrays(beside, one))  # type: ignore[arg-type]


def test_a_best_effort_job_without_a_best_time_is_refused() -> None:
    with pytest.raises(InvalidValue, match="tb"):
        JobDemand(*_arrays((1000.0, INF, INF, 0.0)))


@pytest.mark.parametrize("importance", [0.0, -1.0, NAN, INF])
def test_importance_outside_its_range_is_refused(importance: float) -> None:
    with pytest.raises(InvalidValue, match="importance"):
        JobDemand(*_arrays((1000.0, 50.0, 100.0, 2.0)), importance=np.array([importance]))


def test_nan_cpu_is_refused() -> None:
    with pytest.raises(InvalidValue, match="omega_g"):
        level_of(*_arrays((1000.0, 50.0, 100.0, 2.0)), NAN)


def test_from_a_level_near_by_it_takes_few_steps() -> None:
    rng = np.random.default_rng(7)
    work = rng.uniform(1e5, 1e8, 2000)
    best_s = work / rng.choice([1560.0, 2340.0, 3900.0], 2000)
    goal_s = best_s * rng.choice([1.3, 2.5, 4.0], 2000)
    demand = JobDemand(work, goal_s - rng.uniform(0.0, 2.0, 2000) * best_s, goal_s, best_s)

    for part in (0.05, 0.3, 0.6, 0.9, 0.99):
        cold = demand.solve(part * demand.full_mhz)
        warm = demand.solve(1.001 * part * demand.full_mhz, start=cold.level)

        assert cold.steps <= 10
        assert warm.steps <= 5
        assert cold.omegas().sum() == pytest.approx(cold.omega_g_mhz, rel=1e-12)


def test_the_arrays_given_are_not_changed() -> None:
    arrays = _arrays((1000.0, 50.0, 100.0, 2.0), (3000.0, INF, INF, 10.0), (0.0, 5.0, 10.0, 0.0))
    for array in arrays:
        array.setflags(write=False)

    first, second = (level_of(*arrays, omega_g, importance=np.ones(3)) for omega_g in (100.0, 200.0))
    kept = first.omegas()
    second.omegas()

    assert kept.tolist() == first.omegas().tolist()
