"""The exact network by points and sums against every state written out, and against mean values over all subsets."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.dilation import formula, mean_value, product_form
from daemons.models.dilation.formula import Floats
from tests.extent import examples


def by_enumeration(p: Floats, servers: list[int]) -> Floats:
    """G(S) / G(S without j), from every place of every job."""
    jobs, resources = p.shape
    ways = np.column_stack((p, np.maximum(1.0 - p.sum(axis=1), 0.0)))

    def constant(members: list[int]) -> float:
        total = 0.0
        for places in product(range(resources + 1), repeat=len(members)):
            weight = math.prod(ways[job, place] for job, place in zip(members, places, strict=True))
            for resource in range(resources):
                there = places.count(resource)
                weight *= math.prod(k / min(k, servers[resource]) for k in range(1, there + 1))
            total += weight
        return total

    whole = constant(list(range(jobs)))
    return np.array([whole / constant([other for other in range(jobs) if other != job]) for job in range(jobs)])


def by_mean_values(p: Floats) -> Floats:
    """Exact mean value analysis over all subsets, one server each (the arrival theorem)."""
    jobs, resources = p.shape

    @cache
    def dilations(members: frozenset[int]) -> dict[int, float]:
        return {job: 1.0 + sum(p[job, i] * present(members - {job})[i] for i in range(resources)) for job in members}

    @cache
    def present(members: frozenset[int]) -> tuple[float, ...]:
        by = dilations(members)
        return tuple(
            sum(p[job, i] * (1.0 + present(members - {job})[i]) / by[job] for job in members) for i in range(resources)
        )

    found = dilations(frozenset(range(jobs)))
    return np.array([found[job] for job in range(jobs)])


def vectors(rng: np.random.Generator, jobs: int, resources: int, kind: str) -> Floats:
    """Vectors with and without an idle share, with zeros, some of them equal."""
    p = rng.dirichlet(np.ones(resources + 1), jobs)[:, :resources]
    if kind == "busy":
        p = rng.dirichlet(np.ones(resources), jobs)
    elif kind == "sparse":
        p = np.where(rng.random(p.shape) < 0.5, 0.0, p)
    elif kind == "equal":
        p = p[rng.integers(0, min(2, jobs), jobs)]
    elif kind == "pure":
        p = np.eye(resources)[rng.integers(0, resources, jobs)]
    return p


@pytest.mark.parametrize("kind", ["idle", "busy", "sparse", "equal", "pure"])
@pytest.mark.parametrize("servers", [(1, 1), (1, 2), (3, 2), (1, 1, 1), (1, 2, 1), (2, 1, 9)])
def test_every_state_written_out(kind: str, servers: tuple[int, ...]) -> None:
    """One to five jobs, to 1e-9."""
    rng = np.random.default_rng(12)
    for jobs in range(1, 6):
        p = vectors(rng, jobs, len(servers), kind)
        assert product_form.dilation(p, servers) == pytest.approx(by_enumeration(p, list(servers)), rel=1e-9)


@pytest.mark.parametrize("kind", ["idle", "busy", "sparse", "equal", "pure"])
def test_mean_values_over_all_subsets(kind: str) -> None:
    """Eight jobs on three resources, to 1e-9."""
    p = vectors(np.random.default_rng(13), 8, 3, kind)

    assert product_form.dilation(p) == pytest.approx(by_mean_values(p), rel=1e-9)


def test_one_server_by_points_and_by_counting() -> None:
    """Given thirty jobs, then a resource that is counted with as many servers as matter to none, and one that is
    integrated, agree with the network in which neither is shared."""
    rng = np.random.default_rng(14)
    p = vectors(rng, 30, 2, "idle")

    assert product_form.dilation(p, (1, 30)) == pytest.approx(product_form.dilation(p * (1.0, 0.0)), rel=1e-11)
    nearly = product_form.dilation(p, (1, 29))
    assert nearly == pytest.approx(product_form.dilation(p, (1, 30)), rel=1e-6)
    assert (nearly >= product_form.dilation(p, (1, 30)) * (1.0 - 1e-12)).all()


sets = st.integers(0, 10_000).flatmap(
    lambda seed: st.tuples(
        st.just(seed), st.integers(1, 12), st.integers(1, 3), st.lists(st.integers(1, 4), min_size=3)
    )
)


@settings(max_examples=examples(30))
@given(sets)
def test_what_holds_for_every_model(drawn: tuple[int, int, int, list[int]]) -> None:
    """No job is faster than alone or slower than in turn with all; the order of jobs and of resources does not matter.
    More servers and fewer jobs slow less by the formula; not always in the network, where who goes may have held back
    another."""
    seed, jobs, resources, servers = drawn
    rng = np.random.default_rng(seed)
    p, limits = vectors(rng, jobs, resources, "idle"), np.array(servers[:resources])
    order, columns = rng.permutation(jobs), rng.permutation(resources)
    for model in (formula, product_form, mean_value):
        found = model.dilation(p, limits)
        assert (found >= 1.0 - 1e-9).all()
        assert (found <= jobs + 1e-9).all()
        assert model.dilation(p[order][:, columns], limits[columns]) == pytest.approx(found[order], rel=1e-8)
    by_formula = formula.dilation(p, limits)
    assert (formula.dilation(p[1:], limits) <= by_formula[1:] + 1e-12).all()
    assert (formula.dilation(p, limits + 1) <= by_formula + 1e-12).all()
