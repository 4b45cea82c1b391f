"""Sizes by the linear program of mean numbers of jobs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.capacity import capacity
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.lp import jobs_to_leave, lp_table
from daemons.models.deadline.problem import DeadlineProblem
from tests.extent import first


def small(price: list[float], arrivals: list[float] | None = None, **changes: object) -> DeadlineProblem:
    """A period as long as the prices, in which jobs of half an interval arrive until two intervals before its end."""
    count = len(price)
    rates = arrivals if arrivals is not None else [2.0] * (count - 3) + [0.0] * 3
    problem = DeadlineProblem(
        arrivals=np.array(rates)[:, None],
        service=0.5,
        servers_min=1,
        servers_max=6,
        confidence=0.9,
        price=np.array(price),
        removal_price=0.02 * np.array(price),
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


def dense_first_size(problem: DeadlineProblem, interval: int, jobs: int) -> float | None:
    """The program of section 6.3 written out for one state as dense matrices, x = (q, b) from `interval` on; the first
    size, or None where there is no solution."""
    d, s = problem.intervals, interval
    count, finished = d - s, 1.0 - math.exp(-1.0 / problem.service)
    arrived = problem.arrivals[:, 0]
    upper, right = [], []
    for j in range(count):
        # jobs at s + j: those at s and the arrivals since, less what is finished of all served before
        before = jobs + arrived[s : s + j].sum()
        row = np.zeros(2 * count)
        row[count : count + j] = finished
        row[count + j] = 1.0
        upper.append(row)
        right.append(before)
        row = np.zeros(2 * count)
        row[count + j], row[j] = 1.0, -problem.slots
        upper.append(row)
        right.append(0.0)
    row = np.zeros(2 * count)
    row[count:] = -finished
    upper.append(row)
    right.append(1.0 - problem.confidence - jobs - arrived[s:].sum())
    scale = np.abs(problem.price).max()
    cost = np.concatenate([problem.price[s:] / scale + 1e-7 * np.arange(s, d), np.zeros(count)])
    bounds = [(problem.servers_min, problem.servers_max)] * count + [(0.0, None)] * count
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(cost, np.array(upper), np.array(right), bounds=bounds, method="highs", options=options)
    return float(found.x[0]) if found.status == 0 else None


PRICES: dict[str, list[float]] = {
    "uniform": [1.0] * 12,
    "increasing": np.linspace(0.5, 1.5, 12).tolist(),
    "decreasing": np.linspace(1.5, 0.5, 12).tolist(),
    "peak": [0.5, 0.5, 0.7, 1.0, 2.0, 2.5, 2.0, 1.0, 0.7, 0.6, 0.5, 0.5],
    "negative": [1.0, 0.8, -0.4, -0.4, 0.9, 1.2, 1.0, -0.1, 0.6, 0.6, 0.9, 1.0],
}


@pytest.mark.parametrize("name", first(list(PRICES)))
@pytest.mark.parametrize("slots", first([1, 2]))
def test_the_first_size_is_that_of_the_program_written_out_for_each_state(name: str, slots: int) -> None:
    problem = small(PRICES[name], slots=slots)
    table = lp_table(problem)
    most = capacity(problem)[:, -1]
    compared = 0
    for interval in range(1, problem.intervals):
        for jobs in range(interval % 3, int(most[interval]), 3):
            size = dense_first_size(problem, interval, jobs)
            if size is None:
                continue
            expected = max(problem.servers_min, math.ceil(size - 1e-6))
            assert table.size(interval, 1, jobs) == expected, (interval, jobs, size)
            compared += 1
    assert compared > 20


def test_with_equal_prices_jobs_are_served_at_once() -> None:
    problem = small([1.0] * 12)
    table = lp_table(problem)
    assert [table.size(3, 1, jobs) for jobs in range(8)] == [1, 1, 2, 3, 4, 5, 6, 6]


def test_service_waits_only_where_prices_fall() -> None:
    early, late = jobs_to_leave(small(PRICES["increasing"])), jobs_to_leave(small(PRICES["decreasing"]))
    assert (late[1:8] >= early[1:8]).all()
    assert late[1] > early[1] + 2.0


def test_where_the_capacity_is_reached_all_servers_are_wanted() -> None:
    problem = small([1.0] * 12)
    table, most = lp_table(problem), capacity(problem)[:, -1]
    for interval in range(1, problem.intervals):
        jobs = max(0, int(most[interval]))
        forced = problem.needed(jobs) if interval >= problem.submission_end else problem.servers_max
        assert table.size(interval, 3, jobs) == forced


def test_a_price_below_nothing_takes_all_servers() -> None:
    table = lp_table(small(PRICES["negative"]))
    assert [table.size(2, 1, jobs) for jobs in (0, 1, 5)] == [6, 6, 6]


def test_without_a_solution_as_much_as_possible_is_served() -> None:
    problem = small([1.0] * 6, confidence=0.9999, service=3.0)
    assert jobs_to_leave(problem).max() < 1e-3
    assert lp_table(problem).size(4, 1, 9) == 6


def test_one_size_to_choose_from_is_chosen() -> None:
    table = lp_table(small([1.0, 0.5, 0.2, 0.1, 0.1, 0.1], servers_min=4, servers_max=4))
    assert (table.sizes == 4).all()


def test_sizes_never_fall_with_more_jobs() -> None:
    for prices in PRICES.values():
        problem = small(prices)
        sizes = lp_table(problem).sizes[1 : problem.submission_end].astype(int)
        assert (np.diff(sizes, axis=2) >= 0).all()


@pytest.mark.parametrize("name", ["decreasing", "peak"])
def test_guarded_sizes_keep_the_promise(name: str) -> None:
    problem = small(PRICES[name], confidence=0.97, servers_max=8)
    allowed = 1.0 - problem.confidence
    assert evaluate(problem, lp_table(problem, guarded=True)).miss_probability <= allowed


def test_a_promise_that_cannot_be_kept_gets_the_table_that_misses_least() -> None:
    problem = small([1.0] * 6, confidence=0.999999, service=2.0)
    plain, guarded = lp_table(problem), lp_table(problem, guarded=True)
    missed = evaluate(problem, guarded).miss_probability
    assert 1e-6 < missed <= evaluate(problem, plain).miss_probability + 1e-12
