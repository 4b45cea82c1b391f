"""The chain of jobs against dense generators, exponentiated in small steps: slow, and easy to believe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import legendre
from scipy.linalg import expm  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.deadline.capacity import breach, capacity
from daemons.models.deadline.costs import cost_steps, cost_table
from daemons.models.deadline.evaluation import evaluate
from daemons.models.deadline.kernels import Chain
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints, arrivals_from_rate
from daemons.models.deadline.rules import SizeTable
from daemons.models.deadline.shapes import SHAPES, shape_price, shape_prices
from daemons.models.deadline.threshold import threshold_table
from tests.extent import examples, first
from tests.support.deadline_errors import error_bound

JOBS_MAX = 45
steady = settings(max_examples=examples(25))


@st.composite
def problems(draw: st.DrawFn) -> DeadlineProblem:
    """Few intervals, few jobs: everything can be written out. Submission may end at once or at the deadline."""
    intervals = draw(st.integers(2, 4))
    means = draw(st.lists(st.floats(0.0, 2.5) | st.just(0.0) | st.just(1e-9), min_size=intervals, max_size=intervals))
    submission_end = draw(st.integers(0, intervals))
    slopes = draw(st.lists(st.floats(-0.6, 0.6), min_size=intervals, max_size=intervals))
    curves = draw(st.lists(st.floats(-0.3, 0.3), min_size=intervals, max_size=intervals))
    mean = np.where(np.arange(intervals) < submission_end, means, 0.0)
    servers_min = draw(st.integers(1, 2))
    return DeadlineProblem(
        arrivals=np.stack([mean, mean * slopes, mean * curves], axis=1),
        service=draw(st.floats(0.05, 3.0) | st.just(100.0)),
        servers_min=servers_min,
        servers_max=servers_min + draw(st.integers(0, 2)),
        confidence=draw(st.sampled_from([0.5, 0.9, 0.999])),
        price=np.array(draw(st.lists(st.floats(-1.0, 3.0), min_size=intervals, max_size=intervals))),
        removal_price=np.array(draw(st.lists(st.floats(-0.2, 0.5), min_size=intervals, max_size=intervals))),
        deploy=draw(st.sampled_from([0.0, 0.3, 1.0])),
        penalty=draw(st.floats(0.0, 20.0)),
        slots=draw(st.integers(1, 3)),
    )


def naive_kernel(problem: DeadlineProblem, interval: int, servers: int, begin: float = 0.0, end: float = 1.0) -> Floats:
    """k(n, m) by products of exponentials with the rate at the middle of each step, extrapolated to no step at all."""
    coarse, fine = (_steps(problem, interval, servers, begin, end, steps) for steps in (24, 48))
    return (4.0 * fine - coarse) / 3.0


def _steps(problem: DeadlineProblem, interval: int, servers: int, begin: float, end: float, steps: int) -> Floats:
    jobs = np.arange(JOBS_MAX + 1)
    busy = np.minimum(jobs, problem.slots * servers) / problem.service
    leaving = np.diag(busy[1:], -1) - np.diag(busy)
    coming = np.eye(JOBS_MAX + 1, k=1) - np.eye(JOBS_MAX + 1)
    coming[-1] = 0.0
    step = (end - begin) / steps
    kernel = np.eye(JOBS_MAX + 1)
    if not problem.arrivals[interval].any():
        return np.asarray(expm(leaving * (end - begin)))
    for place in range(steps):
        rate = legendre.legval(2.0 * (begin + step * (place + 0.5)) - 1.0, problem.arrivals[interval])
        kernel = kernel @ expm((leaving + rate * coming) * step)
    return kernel


@pytest.mark.full
@steady
@given(problem=problems(), data=st.data())
def test_one_interval_is_the_exponential_of_the_generator(problem: DeadlineProblem, data: st.DataObject) -> None:
    interval = data.draw(st.integers(0, problem.intervals - 1))
    begin, end = data.draw(st.sampled_from([(0.0, 1.0), (0.0, 0.3), (0.3, 1.0)]))
    values = np.array(data.draw(st.lists(st.floats(-5.0, 5.0), min_size=12, max_size=12)))
    mass = np.pad(
        np.abs(values), (0, JOBS_MAX + 1 - values.size)
    )  # so few jobs that the dense chain has no end for them
    values = np.interp(np.arange(JOBS_MAX + 1), np.arange(12), values)
    sizes = np.arange(problem.servers_min, problem.servers_max + 1)
    chain = Chain(problem, JOBS_MAX)

    after = chain.backward(interval, np.tile(values, (sizes.size, 1)), sizes, begin, end)
    moved = chain.forward(interval, np.tile(mass, (sizes.size, 1)), sizes, begin, end)

    for row, servers in enumerate(sizes.tolist()):
        kernel = naive_kernel(problem, interval, servers, begin, end)
        assert after[row, : JOBS_MAX - 15] == pytest.approx((kernel @ values)[: JOBS_MAX - 15], abs=2e-7)
        assert moved[row] == pytest.approx(mass @ kernel, abs=2e-6)
        assert moved[row].sum() == pytest.approx(mass.sum(), rel=1e-12)


@pytest.mark.full
@settings(steady, max_examples=examples(6))
@given(problem=problems())
def test_capacities_are_those_of_the_dense_chain(problem: DeadlineProblem) -> None:
    table = capacity(problem)

    for row, servers in enumerate(range(problem.servers_min, problem.servers_max + 1)):
        finish = np.eye(JOBS_MAX + 1)[0]
        for interval in range(problem.intervals - 1, -1, -1):
            finish = _kernel(problem, interval, servers, 0.0, 1.0) @ finish
            inside = min(int(table[interval, row]), JOBS_MAX)
            assert (finish[: inside + 1] >= problem.confidence - 1e-6).all()
            assert (finish[inside + 1 : 20] < problem.confidence + 1e-6).all()
            assert 1.0 - breach(problem, interval, 3)[row] == pytest.approx(finish[3], abs=1e-6)


def naive_evaluation(problem: DeadlineProblem, table: SizeTable) -> tuple[float, Floats, float, float]:
    """Cost, distribution at the deadline, deployments (events, servers), state by state."""
    states = {(problem.servers_min, False): np.eye(JOBS_MAX + 1)[0]}
    cost = events = added = 0.0
    for interval in range(problem.intervals):
        after: dict[tuple[int, bool], Floats] = {}
        for (servers, waited), mass in states.items():
            for jobs in np.flatnonzero(mass).tolist():
                wanted = table.size(interval, servers, jobs)
                size = servers if table.delayed and wanted < servers and not waited else wanted
                price = size * problem.price[interval]
                if interval:
                    price += max(servers - size, 0) * problem.removal_price[interval]
                    events += mass[jobs] * (size > servers)
                    added += mass[jobs] * max(size - servers, 0)
                cost += mass[jobs] * price
                moved = np.eye(JOBS_MAX + 1)[jobs] * mass[jobs]
                late = problem.deploy if interval and size > servers else 0.0
                moved = (
                    moved @ _kernel(problem, interval, servers, 0.0, late) @ _kernel(problem, interval, size, late, 1.0)
                )
                key = (size, wanted < servers)
                after[key] = after.get(key, np.zeros(JOBS_MAX + 1)) + moved
        states = after
    return cost, np.asarray(sum(states.values())), events, added


def _kernel(problem: DeadlineProblem, interval: int, servers: int, begin: float, end: float) -> Floats:
    key = (problem.digest(), interval, servers, begin, end)
    if key not in _KERNELS:
        _KERNELS[key] = naive_kernel(problem, interval, servers, begin, end) if end > begin else np.eye(JOBS_MAX + 1)
    return _KERNELS[key]


_KERNELS: dict[tuple[str, int, int, float, float], Floats] = {}


@pytest.mark.full
@settings(steady, max_examples=examples(12))
@given(problem=problems(), delayed=st.booleans(), data=st.data())
def test_what_a_rule_brings_is_what_every_state_brings(
    problem: DeadlineProblem, delayed: bool, data: st.DataObject
) -> None:
    count = problem.servers_max - problem.servers_min + 1
    size = st.integers(problem.servers_min, problem.servers_max)
    cells = data.draw(st.lists(size, min_size=problem.intervals * count * 4, max_size=problem.intervals * count * 4))
    table = SizeTable(
        problem.servers_min, np.array(cells, dtype=np.uint16).reshape(problem.intervals, count, 4), delayed
    )

    done = evaluate(problem, table)

    cost, left, events, added = naive_evaluation(problem, table)
    assert done.expected_server_cost == pytest.approx(cost, abs=1e-5)
    assert done.miss_probability == pytest.approx(left[1:].sum(), abs=1e-6)
    assert done.missed_jobs == pytest.approx(left @ np.arange(JOBS_MAX + 1), abs=1e-5)
    assert done.deployments.events == pytest.approx(events, abs=1e-5)
    assert done.deployments.servers == pytest.approx(added, abs=1e-5)


@settings(steady, max_examples=examples(15))
@given(problem=problems(), monotone=st.booleans(), fast=st.booleans())
def test_costs_follow_the_printed_recursion(problem: DeadlineProblem, monotone: bool, fast: bool) -> None:
    following = np.tile(problem.penalty * np.arange(JOBS_MAX + 1.0), (len(_sizes(problem)), 1))
    table = capacity(problem)
    for step in cost_steps(problem, monotone, fast):
        costs = _costs(problem, step.interval, following)
        removal = 0.0 if fast else float(problem.removal_price[step.interval])
        for row, servers in enumerate(_sizes(problem)):
            lowest = problem.servers_min
            for jobs in range(min(25, step.sizes.shape[1])):
                by_size = {q: costs[q][jobs] + max(servers - q, 0) * removal for q in costs}
                free = _free(problem, step.interval, table[step.interval], jobs, lowest if monotone else 0)
                size = int(step.sizes[row, jobs])
                assert size in free
                assert by_size[size] <= min(by_size[q] for q in free) + 1e-5
                value = step.values[0 if fast else row, jobs]
                if not fast:
                    assert value == pytest.approx(by_size[size], abs=1e-5)
                lowest = size
        following = _continued(np.broadcast_to(step.values, step.sizes.shape))


def _costs(problem: DeadlineProblem, interval: int, following: Floats) -> dict[int, Floats]:
    """By size: for one interval and what follows, for each number of jobs."""
    price = problem.price[interval]
    return {
        q: q * price + _kernel(problem, interval, q, 0.0, 1.0) @ following[row] for row, q in enumerate(_sizes(problem))
    }


def _free(problem: DeadlineProblem, interval: int, capacities: Ints, jobs: int, lowest: int) -> list[int]:
    """The sizes to choose from, as printed in equations 4.9 and 4.14 to 4.19."""
    largest = problem.servers_max if interval < problem.submission_end else problem.needed(jobs)
    if interval == problem.intervals - 1:
        enough = [q for q, most in zip(_sizes(problem), capacities.tolist(), strict=True) if jobs <= most]
        return [min(largest, *enough[:1] or [problem.servers_max])]
    if jobs >= capacities[-1]:
        return [largest]
    return [q for q in _sizes(problem) if lowest <= q <= largest]


def _continued(values: Floats) -> Floats:
    """In a straight line up to the jobs of the dense chain."""
    beyond = np.arange(1, max(0, JOBS_MAX + 1 - values.shape[1]) + 1)
    lines = values[:, -1:] + (values[:, -1:] - values[:, -2:-1]) * beyond
    return np.concatenate([values, lines], axis=1)[:, : JOBS_MAX + 1]


def _sizes(problem: DeadlineProblem) -> range:
    return range(problem.servers_min, problem.servers_max + 1)


@steady
@given(problem=problems(), monotone=st.booleans(), guarded=st.booleans())
def test_the_value_is_what_the_rule_costs(problem: DeadlineProblem, monotone: bool, guarded: bool) -> None:
    table = cost_table(replace(problem, deploy=0.0), monotone=monotone, guarded=guarded)

    done = evaluate(problem, table, deploy=0.0)

    assert table.value_at_0 is not None
    paid = done.expected_server_cost + problem.penalty * done.missed_jobs
    assert paid == pytest.approx(table.value_at_0, rel=1e-10, abs=1e-8)


@pytest.mark.parametrize("rate", first([1e-12, 1e-6, 300.0, 1000.0]))
@settings(steady, max_examples=examples(4))
@given(problem=problems())
def test_very_small_and_very_large_rates(problem: DeadlineProblem, rate: float) -> None:
    shape = np.zeros_like(problem.arrivals)
    shape[:-1] = [rate, 0.5 * rate, 0.1 * rate]
    extreme = replace(problem, arrivals=shape, service=1.0 / max(rate, 1e-3))
    chain = Chain(extreme, 6_000)
    counts = np.arange(6_001.0)
    start = np.zeros((1, 6_001))
    start[0, 4_000] = 1.0
    servers = np.array([extreme.servers_max])

    after = chain.forward(0, start, servers)
    mean = chain.backward(0, counts[None], servers)[0, 4_000]

    busy = extreme.slots * extreme.servers_max * max(rate, 1e-3)
    if busy < 3_000:
        assert mean == pytest.approx(4_000 + rate - busy, abs=1e-7)
    assert (after @ counts)[0] == pytest.approx(mean, rel=1e-9)
    assert after.sum() == pytest.approx(1.0, abs=1e-12)
    assert after.min() >= 0.0
    assert error_bound(chain, 0, int(servers[0])) < 1e-9


@steady
@given(problem=problems())
def test_a_threshold_never_takes_less_than_it_needs(problem: DeadlineProblem) -> None:
    table, sizes = capacity(problem), threshold_table(problem).sizes

    for interval in range(1, problem.intervals):
        for jobs in range(12):
            size = int(sizes[interval, 0, min(jobs, sizes.shape[2] - 1)])
            place = size - problem.servers_min
            assert size == problem.servers_max or jobs <= table[interval, place]
            assert size == problem.servers_min or jobs > table[interval, place - 1]


@steady
@given(
    shape=st.sampled_from(SHAPES), ratio=st.floats(1.0, 50.0), intervals=st.integers(2, 300), remove=st.floats(0.0, 3.0)
)
def test_prices_have_mean_one_and_their_ratio(shape: str, ratio: float, intervals: int, remove: float) -> None:
    price, removed, highest = shape_prices(shape, ratio, intervals, remove)
    at = shape_price(shape, ratio, intervals)(np.linspace(0.0, intervals, 2001))

    assert price.sum() == pytest.approx(intervals)
    assert at.max() == pytest.approx(highest)
    assert at.max() / at.min() == pytest.approx(1.0 if shape == "uniform" else ratio, rel=1e-6)
    assert removed[-1] == pytest.approx(price[-1] if remove >= 1.0 else removed[-1])
    assert (removed >= 0.0).all()
    assert removed[0] == pytest.approx(price[: int(remove)].sum() + 0.0, abs=highest)


@steady
@given(base=st.floats(0.1, 50.0), wave=st.floats(0.0, 1.0), submission_end=st.integers(0, 5))
def test_a_smooth_rate_is_met_within_every_interval(base: float, wave: float, submission_end: int) -> None:
    def rate(moments: Floats) -> Floats:
        return np.asarray(base * (1.0 + wave * np.sin(moments)))

    arrivals = arrivals_from_rate(rate, 5, submission_end, order=12)

    inside = np.linspace(0.0, 1.0, 11)
    for interval in range(submission_end):
        met = legendre.legval(2.0 * inside - 1.0, arrivals[interval])
        assert met == pytest.approx(rate(interval + inside), abs=1e-11 * base) or not arrivals[interval, 1:].any()
    assert not arrivals[submission_end:].any()
