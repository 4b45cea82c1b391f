"""What is computed of every policy beside many periods played at random."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.capacity.provisioning.file import PricedScenario
from daemons.capacity.provisioning.monte_carlo import Estimate, Outcome, simulate
from daemons.capacity.provisioning.problem import period_of, problem_of
from daemons.models.deadline.evaluation import Evaluation, evaluate
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import METHODS, TableSpec
from daemons.models.deadline.tables import size_table
from sim_backend.experiments.provisioning.settings import SHAPES, thesis
from tests.support.arrivals import poisson_arrivals

RUNS, FEWER_RUNS = 100_000, 20_000
THESIS = "increasing"  # the cost function under which there are as many runs as that
TAIL = 0.0005  # of a 99.9 % interval, on each side
RARE, RARE_SEEN = 1e-5, 5
DEVIATIONS = 4.0 / 1.96  # a 95 % interval is widened to four deviations


def agrees(missed: int, runs: int, probability: float) -> bool:
    """Whether so many misses are to be expected."""
    if probability < RARE:
        return missed <= RARE_SEEN
    return bool(binom.cdf(missed, runs, probability) >= TAIL and binom.sf(missed - 1, runs, probability) >= TAIL)


def near(estimate: Estimate, exact: float) -> bool:
    """Within four deviations."""
    half = (estimate.high - estimate.low) / 2.0 * DEVIATIONS
    return abs(estimate.mean - exact) <= half + 1e-9 * abs(exact)


def compare(given: PricedScenario, shape: str, names: Sequence[str], runs: int, seed: int) -> list[str]:
    """What differs between exact and played figures."""
    problem: DeadlineProblem = problem_of(given, shape)
    tables = {name: size_table(TableSpec(name, problem)) for name in names}
    played = simulate(period_of(problem), poisson_arrivals(given.scenario), tables, runs, seed)
    differing = []
    for name, table in tables.items():
        exact: Evaluation = evaluate(problem, table)
        seen: Outcome = played.outcomes[name]
        if not agrees(seen.missed, runs, exact.miss_probability):
            differing.append(f"{shape} {name}: {seen.missed} of {runs} missed, {exact.miss_probability:.3g} expected")
        for what, estimate, value in (
            ("cost", seen.cost, exact.expected_server_cost),
            ("points", seen.deployment_events, exact.deployments.events),
            ("added", seen.servers_deployed, exact.deployments.servers),
        ):
            if not near(estimate, value):
                differing.append(f"{shape} {name}: {what} {estimate}, {value:.6g} expected")
        apart = abs(seen.mean_jobs - exact.mean_jobs) - 4.5 * seen.sd_jobs / runs**0.5
        if (apart > 1e-3).any():
            differing.append(f"{shape} {name}: {apart.max():.3g} jobs too many or too few at {apart.argmax()}")
    return differing


def test_misses_are_judged() -> None:
    """What is too many or too few is found."""
    assert agrees(811, RUNS, 0.008107)
    assert not agrees(700, RUNS, 0.008107)
    assert not agrees(930, RUNS, 0.008107)
    assert agrees(5, RUNS, 1e-6)
    assert not agrees(6, RUNS, 1e-6)


@pytest.mark.accept
def test_some_policies() -> None:
    """Given a promise that is broken often enough to be seen, then 20,000 runs agree; so does the delayed policy."""
    names = ("static", "threshold", "delayed-threshold", "cost-aware", "cost-aware-fast", "lp")
    assert compare(thesis(confidence=0.95), "increasing", names, FEWER_RUNS, 1) == []


@pytest.mark.accept
def test_another_rule_is_found() -> None:
    """Given servers that take half an interval to deploy in one and none in the other, then the comparison says so."""
    given = thesis(confidence=0.95)
    problem = problem_of(given, "increasing")
    tables = {"cost-aware": size_table(TableSpec("cost-aware", problem))}
    played = simulate(period_of(problem), poisson_arrivals(given.scenario), tables, 5_000, 2).outcomes["cost-aware"]
    assert near(played.cost, evaluate(problem, tables["cost-aware"]).expected_server_cost)
    assert not near(played.cost, evaluate(problem, tables["cost-aware"], deploy=0.5).expected_server_cost)


@pytest.mark.accept
@pytest.mark.parametrize(("shape", "runs"), [(shape, RUNS if shape == THESIS else FEWER_RUNS) for shape in SHAPES])
def test_every_policy(shape: str, runs: int) -> None:
    """Given 100,000 runs of the thesis's day, fewer under the other cost functions, then misses are within the 99.9 %
    interval of what is computed, and costs, deployments and jobs agree."""
    assert compare(thesis(), shape, METHODS, runs, 3) == []


@pytest.mark.accept
@pytest.mark.parametrize("servers_max", [3, 8])
def test_other_clusters(servers_max: int) -> None:
    """Given fewer or more servers, arrivals to match and a weaker promise, then the same."""
    assert compare(thesis(servers_max, confidence=0.98), "quadratic-2", METHODS, FEWER_RUNS, 4) == []
