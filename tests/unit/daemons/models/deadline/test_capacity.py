"""Kernels, finish probabilities and capacities against the figures that are known for the thesis's period."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.capacity import breach, capacity
from daemons.models.deadline.kernels import Chain, count_bound
from daemons.models.deadline.threshold import static_size, static_table, threshold_table
from tests.support.deadline_cases import INTERVALS, thesis_problem
from tests.support.deadline_errors import error_bound

PROBLEM = thesis_problem()
CAPACITY = {
    0: [-1, -1, -1, 49, 108],
    16: [-1, -1, -1, 30, 78],
    32: [-1, -1, 6, 42, 78],
    48: [-1, 7, 31, 55, 78],
    64: [6, 18, 29, 40, 50],
    72: [3, 9, 14, 19, 23],
    76: [2, 5, 7, 8, 10],
    78: [1, 2, 3, 3, 3],
    79: [1, 1, 1, 1, 1],
    **{s: [0, 0, 0, 0, 0] for s in range(80, INTERVALS)},
}


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return capacity(PROBLEM)


@pytest.mark.parametrize("interval", CAPACITY)
def test_capacities_of_the_thesis(table: np.ndarray, interval: int) -> None:
    assert table[interval].tolist() == CAPACITY[interval]


def test_the_thesis_simulated_capacities_do_not_keep_the_promise() -> None:
    assert 1.0 - breach(PROBLEM, 84, 9)[4] == pytest.approx(0.9702, abs=5e-5)
    assert 1.0 - breach(PROBLEM, 85, 3)[4] == pytest.approx(0.984340, abs=5e-7)
    assert 1.0 - breach(PROBLEM, 91, 1)[0] == pytest.approx(0.527633, abs=5e-7)


def test_a_static_size_of_four_is_the_least_that_keeps_the_promise() -> None:
    missed = breach(PROBLEM, 0, 0)

    assert missed[2] == pytest.approx(0.008107, abs=5e-7)
    assert missed[3] == pytest.approx(3.38e-7, abs=5e-10)
    assert static_size(PROBLEM) == 4
    assert (static_table(PROBLEM).sizes == 4).all()


@pytest.mark.parametrize(
    ("interval", "servers", "jobs", "mean"), [(20, 3, 0, 1.94819), (32, 5, 40, 39.9964), (70, 2, 6, 4.50310)]
)
def test_mean_after_one_interval(interval: int, servers: int, jobs: int, mean: float) -> None:
    chain, counts = Chain(PROBLEM, 200), np.arange(201.0)
    start = (counts == jobs).astype(float)[None]

    after = chain.forward(interval, start, np.array([servers]))

    assert after.sum() == pytest.approx(1.0, abs=1e-14)
    assert (after @ counts)[0] == pytest.approx(mean, abs=0.6 * 10.0 ** -(6 - len(str(int(mean)))))
    assert chain.backward(interval, counts[None], np.array([servers]))[0, jobs] == pytest.approx((after @ counts)[0])
    assert 0.0 < error_bound(chain, interval, servers) < 1e-13


def test_more_than_the_table_has_is_not_finished() -> None:
    assert breach(PROBLEM, 90, 10**6).tolist() == [1.0] * 5


def test_a_table_for_chosen_sizes_only(table: np.ndarray) -> None:
    assert (capacity(PROBLEM, np.array([5, 2])) == table[:, [4, 1]]).all()


@pytest.mark.parametrize("mean", [1e-9, 0.3, 7.0, 400.0, 1e6])
def test_the_count_bound_holds(mean: float) -> None:
    assert poisson.sf(count_bound(mean, 1e-12), mean) <= 1e-12
    assert count_bound(mean, 1e-12) <= mean + 12.0 * np.sqrt(mean) + 30.0


def test_thresholds_take_the_fewest_servers_that_finish(table: np.ndarray) -> None:
    rule = threshold_table(PROBLEM)

    for interval in (1, 20, 48, 70, 91):
        for jobs in range(120):
            enough = np.flatnonzero(jobs <= table[interval])
            expected = 1 + int(enough[0]) if enough.size else 5
            assert {rule.size(interval, servers, jobs) for servers in range(1, 6)} == {expected}
    assert [rule.size(0, servers, 7) for servers in range(1, 6)] == [1, 2, 3, 4, 5]
    assert threshold_table(PROBLEM, delayed=True).delayed
