"""The cheapest rule against a dynamic program written out over dense matrices, and against every rule there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.costs import cost_table
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.lp import lp_table
from daemons.models.deadline.optimal import optimal
from daemons.models.deadline.problem import DeadlineProblem, Floats
from daemons.models.deadline.rules import SizeTable
from daemons.models.deadline.threshold import threshold_table
from tests.extent import examples
from tests.support.deadline_multiplier import best_for

JOBS_MAX = 40
steady = settings(max_examples=examples(30))


@st.composite
def problems(draw: st.DrawFn, intervals_max: int = 5) -> DeadlineProblem:
    """Few intervals with steady arrivals, prices of either sign, and any time to deploy."""
    count = draw(st.integers(2, intervals_max))
    means = draw(st.lists(st.floats(0.0, 2.0), min_size=count, max_size=count))
    submission_end = draw(st.integers(0, count))
    servers_min = draw(st.integers(1, 2))
    return DeadlineProblem(
        arrivals=np.where(np.arange(count) < submission_end, means, 0.0)[:, None],
        service=draw(st.floats(0.1, 2.0)),
        servers_min=servers_min,
        servers_max=servers_min + draw(st.integers(0, 3)),
        confidence=draw(st.sampled_from([0.3, 0.8, 0.95, 0.999])),
        price=np.array(draw(st.lists(st.floats(-0.5, 3.0), min_size=count, max_size=count))),
        removal_price=np.array(draw(st.lists(st.floats(-0.1, 0.5), min_size=count, max_size=count))),
        deploy=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0])),
        penalty=draw(st.sampled_from([0.0, 2.0])),
        slots=draw(st.integers(1, 2)),
    )


def moved(problem: DeadlineProblem, interval: int, servers: int, share: float) -> Floats:
    """float64[n, m]: from n to m jobs in a share of an interval, as the exponential of the generator."""
    jobs = np.arange(JOBS_MAX + 1)
    leave = np.minimum(jobs, problem.slots * servers) / problem.service
    come = np.full(JOBS_MAX, problem.arrivals[interval, 0])
    generator = np.diag(come, 1) + np.diag(leave[1:], -1)
    return np.asarray(expm(share * (generator - np.diag(generator.sum(axis=1)))))


def naive_value(problem: DeadlineProblem, multiplier: float) -> float:
    """Least expected server cost + penalty + multiplier x miss probability: state by state, size by size."""
    sizes = range(problem.servers_min, problem.servers_max + 1)
    jobs = np.arange(JOBS_MAX + 1)
    values = dict.fromkeys(sizes, problem.penalty * jobs + multiplier * (jobs > 0))
    for s in range(problem.intervals - 1, 0, -1):
        early = {p: moved(problem, s, p, problem.deploy) for p in sizes}
        late = {q: moved(problem, s, q, 1.0 - problem.deploy) @ values[q] for q in sizes}
        values = {
            p: np.min(
                [
                    q * problem.price[s] + max(p - q, 0) * problem.removal_price[s] + early[min(p, q)] @ late[q]
                    for q in sizes
                ],
                axis=0,
            )
            for p in sizes
        }
    first = problem.servers_min
    return float(first * problem.price[0] + (moved(problem, 0, first, 1.0) @ values[first])[0])


@steady
@given(problem=problems(), multiplier=st.sampled_from([0.0, 0.5, 3.0, 40.0, 1e4]))
def test_the_dynamic_program_finds_what_the_naive_one_does(problem: DeadlineProblem, multiplier: float) -> None:
    found = best_for(problem, multiplier)
    value = found.expected_server_cost + found.expected_penalty + multiplier * found.miss_probability
    assert value == pytest.approx(naive_value(problem, multiplier), rel=1e-7, abs=1e-7)


@steady
@given(problem=problems(), multiplier=st.sampled_from([0.0, 3.0, 40.0]))
def test_the_rule_brings_what_it_says(problem: DeadlineProblem, multiplier: float) -> None:
    found = best_for(problem, multiplier)
    brought = evaluate(problem, found.table)
    assert brought.expected_server_cost == pytest.approx(found.expected_server_cost, rel=1e-9, abs=1e-9)
    assert brought.miss_probability == pytest.approx(found.miss_probability, rel=1e-8, abs=1e-12)
    assert problem.penalty * brought.missed_jobs == pytest.approx(found.expected_penalty, rel=1e-8, abs=1e-10)


@settings(steady, max_examples=examples(15))
@given(problem=problems())
def test_the_promise_is_kept_wherever_all_servers_keep_it_and_no_policy_is_below_the_bound(
    problem: DeadlineProblem,
) -> None:
    result = optimal(problem)
    allowed = 1.0 - problem.confidence
    all_servers = np.full_like(result.table.sizes, problem.servers_max)
    all_servers[0] = result.table.sizes[0]
    least = evaluate(problem, SizeTable(problem.servers_min, all_servers)).miss_probability
    assert evaluate(problem, result.table).miss_probability <= (allowed if result.keeps else least + 0.01 * allowed)
    assert result.keeps or least > 0.99 * allowed
    total = result.expected_server_cost + result.expected_penalty
    assert not result.keeps or result.lower_bound <= total + 1e-9
    for table in (threshold_table(problem), cost_table(problem), lp_table(problem)):
        other = evaluate(problem, table)
        if other.miss_probability <= allowed:
            assert other.expected_server_cost + problem.penalty * other.missed_jobs >= result.lower_bound - 1e-9


def every_rule() -> list[SizeTable]:
    """All rules of three intervals for two sizes that tell 0, 1 and more jobs apart."""
    rules = []
    for chosen in itertools.product((1, 2), repeat=9):
        sizes = np.ones((3, 2, 3), dtype=np.uint16)
        sizes[0, 1] = 2
        sizes[1, 0] = chosen[:3]
        sizes[2] = np.array(chosen[3:]).reshape(2, 3)
        rules.append(SizeTable(1, sizes))
    return rules


@pytest.mark.full
@pytest.mark.parametrize("deploy", [0.0, 0.2])
def test_no_rule_at_all_is_better(deploy: float) -> None:
    problem = DeadlineProblem(
        arrivals=np.array([[0.9], [0.4], [0.0]]),
        service=0.6,
        servers_min=1,
        servers_max=2,
        confidence=0.75,
        price=np.array([1.0, 1.3, 0.8]),
        removal_price=np.array([0.1, 0.1, 0.1]),
        deploy=deploy,
    )
    best = {multiplier: best_for(problem, multiplier) for multiplier in (0.0, 1.0, 4.0, 30.0)}
    cheapest = np.inf
    for rule in every_rule():
        found = evaluate(problem, rule)
        for multiplier, least in best.items():
            value = least.expected_server_cost + multiplier * least.miss_probability
            assert found.expected_server_cost + multiplier * found.miss_probability >= value - 1e-9
        if found.miss_probability <= 1.0 - problem.confidence:
            cheapest = min(cheapest, found.expected_server_cost)
    result = optimal(problem)
    assert result.keeps
    assert result.lower_bound <= cheapest + 1e-9
    assert result.expected_server_cost <= cheapest + 1e-9
