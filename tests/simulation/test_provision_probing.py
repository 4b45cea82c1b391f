"""The thesis's own way to capacities and steps, by playing at random, beside exact figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemons.capacity.provisioning.file import Scenario
from daemons.capacity.provisioning.problem import problem_of
from daemons.capacity.provisioning.series import read_scenario
from daemons.models.deadline.capacity import capacity
from sim_backend.experiments.provisioning.probing import (
    capacity_by_chance,
    finished_share,
    jobs_after,
    largest_decreases,
    steps_by_chance,
)

GIVEN = read_scenario(Path(__file__).parents[2] / "examples/provision-thesis.toml")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """The thesis's."""
    return GIVEN.scenario


@pytest.mark.parametrize(
    ("begin", "jobs", "servers", "probability"), [(91, 1, 1, 0.527633), (85, 3, 5, 0.984340), (84, 9, 5, 0.9702)]
)
def test_finish_probabilities(scenario: Scenario, begin: int, jobs: int, servers: int, probability: float) -> None:
    """Within four deviations of the exact ones; nothing arrives so late."""
    runs = 20_000
    found = finished_share(scenario, begin, jobs, servers, runs, np.random.default_rng(1))
    assert found == pytest.approx(probability, abs=4 * (probability * (1 - probability) / runs) ** 0.5)


def test_one_interval(scenario: Scenario) -> None:
    """After submission the mean is that of the chain; steps are shares that add up to 1."""
    runs = 20_000
    after = jobs_after(scenario, (70, 71), 6, 2, runs, np.random.default_rng(2))
    assert after.mean() == pytest.approx(4.50310, abs=4 * after.std() / runs**0.5)
    steps = steps_by_chance(scenario, 70, 6, 2, runs, np.random.default_rng(2))
    assert steps.sum() == pytest.approx(1.0)
    assert steps @ np.arange(len(steps)) == pytest.approx(after.mean())


def test_capacities(scenario: Scenario) -> None:
    """Given 1,000 runs, which cannot see 99.99 %, then what is found is a little too much, and -1 where even no job is
    too many."""
    exact = capacity(problem_of(GIVEN))
    for begin, servers in ((64, 5), (72, 3), (80, 5)):
        found = capacity_by_chance(scenario, begin, servers, 1_000, np.random.default_rng(3))
        wanted = int(exact[begin, servers - scenario.servers.min])
        assert wanted <= found.jobs <= wanted + 8
        assert 6 <= found.tried <= 10
    assert capacity_by_chance(scenario, 0, 1, 200, np.random.default_rng(4)).jobs == -1


def test_decreases(scenario: Scenario) -> None:
    """More servers can finish more, and after submission more than during it."""
    few, many = (largest_decreases(scenario, servers, 500, np.random.default_rng(5)) for servers in (1, 5))
    assert few.shape == (92,)
    assert few.sum() < many.sum()
    assert many[70:].mean() > many[28:36].mean()
