"""The exact network against a discrete-event simulation of shared resources."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.dilation import formula, product_form
from daemons.models.dilation.formula import Floats, Ints
from tests.simulation.processor_sharing import simulated

SEEDS = range(20)
WITHIN = 0.01


def drawn(seed: int) -> tuple[Floats, Ints]:
    """2 to 8 jobs on 2 or 3 resources, every other set with idle shares, every third with several servers."""
    rng = np.random.default_rng(seed)
    jobs, resources = int(rng.integers(2, 9)), int(rng.integers(2, 4))
    p = rng.dirichlet(np.ones(resources + seed % 2), jobs)[:, :resources]
    return p, rng.integers(1, 4, resources) if seed % 3 == 0 else np.ones(resources, dtype=np.int64)


def apart(seed: int, copies: int, events: int) -> float:
    """The largest relative difference of any job's dilation."""
    p, servers = drawn(seed)
    found = simulated(p, servers, np.random.default_rng((seed, 1)), copies, events)
    return float(np.abs(product_form.dilation(p, servers) / found - 1.0).max())


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_the_network_is_what_happens(seed: int) -> None:
    """Given 2 to 8 jobs on 2 or 3 resources, then every dilation is within 1 % of what a long simulation shows."""
    assert apart(seed, 4_000, 800) < WITHIN


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_the_network_is_what_happens_briefly(seed: int) -> None:
    """The same of a shorter simulation, two of the sets with several servers, two with idle shares."""
    assert apart(seed, 2_000, 400) < WITHIN


def test_the_simulation_tells_models_apart() -> None:
    """Given jobs that differ, then the formula is further from the simulation than the network is allowed to be."""
    p = np.array([(0.9, 0.1), (0.9, 0.1), (0.9, 0.1), (0.1, 0.9), (0.5, 0.5)])
    found = simulated(p, np.array([1, 1]), np.random.default_rng(1), 1_000, 300)

    assert np.abs(formula.dilation(p) / found - 1.0).max() > 5.0 * WITHIN
    assert np.abs(product_form.dilation(p) / found - 1.0).max() < 2.0 * WITHIN
