"""The cheapest rule that keeps the promise: the thesis's five prices against their known lower bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.models.deadline.costs import cost_table
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.lp import lp_table
from daemons.models.deadline.optimal import optimal, optimal_table
from daemons.models.deadline.problem import DeadlineProblem, Floats, arrivals_from_rate
from daemons.models.deadline.shapes import shape_prices
from daemons.models.deadline.threshold import threshold_table
from shared.base.errors import InvalidValue
from tests.extent import first
from tests.support.deadline_multiplier import best_for

DEADLINE, SUBMISSION_END, INTERVAL_S = 92, 64, 900.0
BOUNDS = {  # of NOTES.md, and a multiplier at which the bound is tight
    "uniform": (208.095, 13_800.0),
    "increasing": (195.202, 13_400.0),
    "decreasing": (192.114, 33_090.0),
    "quadratic-1": (168.890, 8_600.0),
    "quadratic-2": (216.984, 30_850.0),
}


def thesis(shape: str, servers_max: int = 5, penalty: float = 0.0, deploy: float = 25.0 / 900.0) -> DeadlineProblem:
    """Section 5.1 with r2 = 30 s and prices between 1.5 and 0.5 (ratio 3); more arrivals for more servers."""

    def rate(moment: Floats) -> Floats:
        x = moment * INTERVAL_S
        return servers_max / 5.0 * INTERVAL_S / (480.0 * (2.0 - 1.04167e-4 * x + 1.80845e-9 * x * x))

    price, removal, _ = shape_prices(shape, 3.0, DEADLINE, 30.0 / INTERVAL_S)
    arrivals = arrivals_from_rate(rate, DEADLINE, SUBMISSION_END)
    return DeadlineProblem(
        arrivals,
        1200.0 / INTERVAL_S,
        1,
        servers_max=servers_max,
        confidence=0.9999,
        price=price,
        removal_price=removal,
        deploy=deploy,
        penalty=penalty,
    )


def small(**changes: object) -> DeadlineProblem:
    """Eight intervals with jobs of half an interval, prices that fall, and six servers at most."""
    price = np.linspace(1.4, 0.6, 8)
    arrivals = np.array([2.0, 3.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0])[:, None]
    problem = DeadlineProblem(
        arrivals, 0.5, 1, servers_max=6, confidence=0.95, price=price, removal_price=0.1 * price, deploy=0.1
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.parametrize("shape", first(list(BOUNDS)))
def test_known_lower_bounds(shape: str) -> None:
    bound, multiplier = BOUNDS[shape]
    assert best_for(thesis(shape), multiplier).lower_bound == pytest.approx(bound, abs=6e-4)


@pytest.mark.full
@pytest.mark.parametrize("shape", ["uniform", "quadratic-2"])
def test_the_rule_keeps_the_promise_and_costs_nearly_the_bound(shape: str) -> None:
    problem = thesis(shape)
    result = optimal(problem)
    assert result.keeps
    assert result.lower_bound <= result.expected_server_cost <= result.lower_bound * (1.0 + 2e-4)
    found = evaluate(problem, result.table)
    assert found.miss_probability <= 1e-4
    assert found.miss_probability == pytest.approx(result.miss_probability, rel=1e-8)
    assert found.expected_server_cost == pytest.approx(result.expected_server_cost, rel=1e-10)


@pytest.mark.full
@pytest.mark.parametrize("confidence", first([0.9, 0.6, 0.99, 0.999]))
def test_no_other_policy_that_keeps_the_promise_is_cheaper(confidence: float) -> None:
    problem = small(confidence=confidence)
    result = optimal(problem)
    assert result.keeps
    others = [threshold_table(problem), cost_table(problem), cost_table(problem, guarded=True), lp_table(problem)]
    for table in others:
        other = evaluate(problem, table)
        if other.miss_probability <= 1.0 - confidence:
            assert result.expected_server_cost <= other.expected_server_cost + 1e-9


def test_more_multiplier_means_fewer_misses_at_more_cost() -> None:
    found = [best_for(small(), multiplier) for multiplier in (0.0, 1.0, 5.0, 20.0, 100.0, 1e4)]
    misses = [each.miss_probability for each in found]
    costs = [each.expected_server_cost for each in found]
    assert misses == sorted(misses, reverse=True)
    assert costs == sorted(costs)
    assert misses[0] > 10.0 * misses[-1]
    assert costs[0] < costs[-1]


@pytest.mark.full
def test_a_penalty_counts_beside_the_promise() -> None:
    problem = small(penalty=1.4)
    result = optimal(problem)
    found = evaluate(problem, result.table)
    assert result.expected_penalty == pytest.approx(1.4 * found.missed_jobs, rel=1e-8)
    assert result.table.value_at_0 == pytest.approx(result.expected_server_cost + result.expected_penalty)
    assert result.expected_server_cost >= optimal(small(penalty=0.0)).lower_bound


def test_a_penalty_alone_can_keep_the_promise() -> None:
    result, alone = optimal(small(penalty=1e4)), best_for(small(penalty=1e4), 0.0)
    assert result.keeps
    assert alone.keeps
    total = result.expected_server_cost + result.expected_penalty
    assert alone.lower_bound == pytest.approx(alone.expected_server_cost + alone.expected_penalty, rel=1e-12)
    assert alone.lower_bound - 1e-9 <= total <= alone.lower_bound + 5e-5 * 48.0


@pytest.mark.full
def test_with_a_penalty_the_rule_works_on_when_the_promise_is_lost() -> None:
    assert optimal_table(small(penalty=3.0)).size(7, 1, 20) == 6
    assert optimal_table(small(penalty=0.0)).size(7, 1, 20) == 1


@pytest.mark.full
def test_an_impossible_promise_gets_the_rule_that_misses_least() -> None:
    problem = small(confidence=0.9999)
    result = optimal(problem)
    assert not result.keeps
    assert result.lower_bound == -np.inf
    assert result.miss_probability > 1e-4
    forced = np.full_like(result.table.sizes, 6)
    forced[0] = result.table.sizes[0]
    least = evaluate(problem, replace(result.table, sizes=forced)).miss_probability
    assert result.miss_probability == pytest.approx(least, rel=1e-3)


def test_a_price_below_nothing_takes_all_servers() -> None:
    price = np.array([1.0, 1.0, 1.0, 0.8, -0.5, -0.5, 0.9, 1.0])
    table = optimal_table(small(price=price, removal_price=0.05 * price))
    assert [table.size(4, 2, jobs) for jobs in (0, 1, 6)] == [6, 6, 6]


def test_servers_that_do_not_cost_are_left_alone() -> None:
    zero = np.zeros(8)
    table = optimal_table(small(price=zero, removal_price=zero, arrivals=np.zeros((8, 1))))
    assert [table.size(interval, 4, 0) for interval in range(1, 8)] == [4] * 7


def test_one_size_to_choose_from() -> None:
    result = optimal(small(servers_min=6))
    assert (result.table.sizes == 6).all()
    assert result.keeps


@pytest.mark.full
def test_more_slots_need_fewer_servers() -> None:
    one, two = optimal(small()), optimal(small(slots=2))
    assert two.expected_server_cost < one.expected_server_cost


@pytest.mark.full
@pytest.mark.parametrize("deploy", first([1.0, 0.0]))
def test_deployment_at_once_and_for_a_whole_interval(deploy: float) -> None:
    problem = small(deploy=deploy)
    result = optimal(problem)
    found = evaluate(problem, result.table)
    assert found.expected_server_cost == pytest.approx(result.expected_server_cost, rel=1e-10)
    assert found.miss_probability == pytest.approx(result.miss_probability, rel=1e-9)


@pytest.mark.full
def test_many_sizes_follow_the_time_to_deploy_nearly() -> None:
    problem = small(servers_max=30, arrivals=5.0 * small().arrivals)
    result = optimal(problem)
    found = evaluate(problem, result.table)
    assert result.keeps
    assert found.miss_probability <= 1.0 - problem.confidence
    assert result.expected_server_cost == pytest.approx(found.expected_server_cost, rel=1e-12)
    at_once = optimal(replace(problem, deploy=0.0))
    assert at_once.lower_bound < result.lower_bound <= result.expected_server_cost + 1e-4
    assert result.expected_server_cost <= 1.002 * result.lower_bound


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidValue, match="gap"):
        optimal(small(), gap=0.0)
