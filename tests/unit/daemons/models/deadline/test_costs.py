"""Costs of the rules over the thesis's period, exactly, against the figures that are known for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from daemons.models.deadline.capacity import capacity
from daemons.models.deadline.costs import cost_steps, cost_table
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import METHODS, SizeTable, TableSpec
from daemons.models.deadline.shapes import SHAPES
from daemons.models.deadline.tables import size_table
from shared.base.errors import InvalidValue
from tests.extent import first
from tests.support.deadline_cases import INTERVALS, SUBMISSION_END, thesis_problem

VALUES = dict(zip(SHAPES, (208.638, 196.008, 187.918, 169.681, 214.087), strict=True))
MISSES = dict(zip(SHAPES, (2.8e-4, 5.2e-5, 4.3e-4, 4.2e-5, 2.8e-4), strict=True))
THRESHOLD_COSTS = dict(zip(SHAPES, (257.00, 229.25, 284.75, 246.66, 264.38), strict=True))
LOWER_BOUNDS = dict(zip(SHAPES, (208.095, 195.202, 192.114, 168.890, 216.984), strict=True))
PROBLEMS = {shape: thesis_problem(shape) for shape in SHAPES}


@cache
def table_of(shape: str) -> SizeTable:
    """The table of the cost-aware rule."""
    return cost_table(PROBLEMS[shape])


def changed(name: str, value: Any) -> DeadlineProblem:
    changes: dict[str, Any] = {name: value}
    return replace(PROBLEMS["uniform"], **changes)


def value(table: SizeTable) -> float:
    assert table.value_at_0 is not None
    return table.value_at_0


@pytest.mark.full
@pytest.mark.parametrize("shape", first(SHAPES))
def test_value_of_the_cost_aware_rule(shape: str) -> None:
    table = table_of(shape)
    monotone, fast = cost_table(PROBLEMS[shape], monotone=True), cost_table(PROBLEMS[shape], fast=True)

    assert value(table) == pytest.approx(VALUES[shape], abs=5e-4)
    # the same sizes are chosen by both where prices hardly fall: equal up to rounding
    assert value(fast) < value(table) <= value(monotone) + 1e-9


@pytest.mark.full
@pytest.mark.parametrize("shape", first(SHAPES))
@pytest.mark.parametrize("monotone", [False, True])
def test_cost_and_penalty_carried_out_are_the_value(shape: str, monotone: bool) -> None:
    problem = PROBLEMS[shape]
    table = cost_table(problem, monotone=monotone)

    done = evaluate(problem, table, deploy=0.0)

    assert done.expected_server_cost + problem.penalty * done.missed_jobs == pytest.approx(value(table), abs=1e-8)


@pytest.mark.parametrize("shape", first(SHAPES))
def test_the_cost_aware_rule_misses_by_the_capacity_of_its_own_interval(shape: str) -> None:
    assert evaluate(PROBLEMS[shape], table_of(shape)).miss_probability == pytest.approx(MISSES[shape], rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "shape"),
    first(
        [
            *(("cost-aware", shape) for shape in SHAPES),
            ("cost-aware-monotone", "decreasing"),
            ("cost-aware-fast", "uniform"),
            ("cost-aware-fast", "quadratic-2"),
        ]
    ),
)
def test_a_guarded_rule_keeps_the_promise_near_the_least_cost(method: str, shape: str) -> None:
    problem = PROBLEMS[shape]

    done = evaluate(problem, size_table(TableSpec(method, problem, guarded=True)))

    assert done.miss_probability <= 1.0 - problem.confidence
    assert LOWER_BOUNDS[shape] < done.expected_server_cost < 1.015 * LOWER_BOUNDS[shape]


@pytest.mark.full
@pytest.mark.parametrize("shape", first(SHAPES))
def test_cost_of_the_threshold_rules(shape: str) -> None:
    problem = PROBLEMS[shape]

    threshold = evaluate(problem, size_table(TableSpec("threshold", problem)))
    delayed = evaluate(problem, size_table(TableSpec("delayed-threshold", problem)))
    static = evaluate(problem, size_table(TableSpec("static", problem)))

    assert threshold.expected_server_cost == pytest.approx(THRESHOLD_COSTS[shape], abs=5e-3)
    assert delayed.deployments.events < threshold.deployments.events
    assert static.expected_server_cost == pytest.approx(4.0 * INTERVALS)
    assert static.miss_probability == pytest.approx(3.38e-7, abs=5e-10)
    assert static.deployments.events == 0.0
    assert static.mean_servers == pytest.approx(np.full(INTERVALS, 4.0), abs=1e-12)
    saved = evaluate(problem, table_of(shape)).expected_server_cost
    assert 0.14 <= 1.0 - saved / threshold.expected_server_cost <= 0.345
    assert 0.415 <= 1.0 - saved / static.expected_server_cost <= 0.545


def test_sizes_are_forced_above_the_capacity() -> None:
    problem, table = PROBLEMS["decreasing"], table_of("decreasing")
    capacities = capacity(problem)

    for interval in range(1, INTERVALS - 1):
        most = int(capacities[interval, -1])
        for jobs in (most, most + 1, most + 50, 10**6):
            forced = 5 if interval < SUBMISSION_END else problem.needed(jobs)
            assert [table.size(interval, servers, jobs) for servers in range(1, 6)] == [forced] * 5
    assert [table.size(INTERVALS - 1, 3, jobs) for jobs in range(8)] == [1, 1, 2, 3, 4, 5, 5, 5]


@pytest.mark.full
def test_the_monotone_rule_never_takes_fewer_for_more_jobs() -> None:
    problem = PROBLEMS["quadratic-2"]
    plain = [step.sizes for step in cost_steps(problem)][1:]
    monotone = [step.sizes for step in cost_steps(problem, monotone=True)][1:]

    assert any((np.diff(sizes, axis=1) < 0).any() for sizes in plain)
    most = capacity(problem)[1 : INTERVALS - 1, -1][::-1]
    assert all((np.diff(sizes[:, :m], axis=1) >= 0).all() for sizes, m in zip(monotone, most, strict=True))


@pytest.mark.parametrize("later_price", first([1e-12, 0.0]))
def test_costs_equal_up_to_rounding_change_nothing(later_price: float) -> None:
    price = np.where(np.arange(INTERVALS) > 0, later_price, 1.0)
    flat = thesis_problem(price=price, removal_price=np.zeros(INTERVALS), penalty=0.0)
    table = cost_table(flat)
    most = capacity(flat)[:, -1]

    for interval in range(1, SUBMISSION_END):
        assert (table.sizes[interval, :, : most[interval]] == np.arange(1, 6)[:, None]).all()


@pytest.mark.full
def test_another_start() -> None:
    problem, table = PROBLEMS["uniform"], table_of("uniform")

    later = evaluate(problem, table, servers=5, jobs=30)

    assert later.mean_servers[0] == 5.0
    assert later.mean_jobs[0] == 30.0
    assert later.mean_jobs[1] == pytest.approx(30.0 + problem.arrivals[0, 0] - 5.0 / problem.service, abs=1e-9)
    rest = evaluate(problem, table, servers=5, jobs=30, interval=60)
    assert rest.mean_jobs[:60].tolist() == [0.0] * 60
    assert rest.mean_jobs[60] == 30.0
    assert rest.expected_server_cost < later.expected_server_cost
    with pytest.raises(InvalidValue, match="interval"):
        evaluate(problem, table, interval=INTERVALS)
    for servers, jobs, deploy in ((6, 0, 0.1), (0, 0, 0.1), (5, -1, 0.1), (5, 0, 1.5), (5, 0, np.nan)):
        with pytest.raises(InvalidValue):
            evaluate(problem, table, deploy, servers, jobs)


@pytest.mark.full
def test_deployment_costs_more_and_misses_more() -> None:
    problem, table = PROBLEMS["uniform"], table_of("uniform")

    at_once, slow, slower = (evaluate(problem, table, deploy=deploy) for deploy in (0.0, 0.5, 1.0))

    assert at_once.expected_server_cost < slow.expected_server_cost < slower.expected_server_cost
    assert at_once.miss_probability < slow.miss_probability < slower.miss_probability


def test_sizes_outside_the_problem_are_refused() -> None:
    with pytest.raises(InvalidValue, match="sizes"):
        evaluate(PROBLEMS["uniform"], SizeTable(1, np.full((INTERVALS, 5, 1), 6, dtype=np.uint16)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_table(method: str) -> None:
    short = replace(PROBLEMS["uniform"], arrivals=np.full((6, 1), 0.3), price=np.ones(6), removal_price=np.zeros(6))

    table = size_table(TableSpec(method, short))

    assert table.sizes.shape[:2] == (6, 5)
    assert table.delayed == (method == "delayed-threshold")
    assert 0.0 <= evaluate(short, table).miss_probability <= 1.0


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InvalidValue, match="cost-aware"):
        size_table(TableSpec("cheapest", PROBLEMS["uniform"]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    problem = PROBLEMS["uniform"]
    for name in ("arrivals", "price", "removal_price"):
        array = np.array(getattr(problem, name))
        array.flat[3] = bad
        with pytest.raises(InvalidValue, match=name):
            changed(name, array)
    for name in ("service", "penalty", "confidence", "deploy"):
        with pytest.raises(InvalidValue, match=name):
            changed(name, bad)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arrivals", np.zeros((0, 0))),
        ("arrivals", np.full((INTERVALS, 1), -1.0)),
        ("arrivals", np.tile([1.0, 1.5], (INTERVALS, 1))),
        ("price", np.zeros(0)),
        ("confidence", 1.0),
        ("servers_min", 6),
        ("service", 0.0),
        ("slots", 0),
        ("deploy", 1.1),
    ],
)
def test_a_problem_that_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue):
        changed(name, value)


def test_equal_problems_have_one_name() -> None:
    assert PROBLEMS["uniform"].digest() == thesis_problem().digest()
    names = {problem.digest() for problem in PROBLEMS.values()} | {thesis_problem(penalty=1.0).digest()}
    assert len(names) == 6
    assert isinstance(PROBLEMS["uniform"], DeadlineProblem)
