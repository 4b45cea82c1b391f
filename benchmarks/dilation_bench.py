"""What the dilation of jobs costs: 100,000 candidates for nodes by the formula beside a loop, and the exact network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np

from benchmarks.runner import Bench, Case, Figure, cpu_time_s
from daemons.models.dilation import choice, formula, mean_value, product_form
from daemons.models.dilation.formula import Floats, Ints, Servers
from daemons.models.dilation.list_scheduling import optimum_s
from sim_backend.experiments.dilation.sets import NODES, drawn

JOBS, HOSTS, RESOURCES = 100, 1_000, 3  # 100,000 pairs
PER_HOST = 8
ROUNDS = 9
NETWORKS: tuple[tuple[int, int, Servers], ...] = (
    (8, 2, None),
    (8, 3, None),
    (20, 2, None),
    (20, 3, None),
    (50, 2, None),
    (20, 4, None),
    (8, 2, (1, 4)),
    (20, 2, (1, 4)),
)


def bench(_: object) -> Bench:
    """The dilation of every candidate on every node."""
    rng = np.random.default_rng(1)
    candidates = rng.dirichlet(np.ones(RESOURCES + 1), JOBS)[:, :RESOURCES]
    totals = rng.dirichlet(np.ones(RESOURCES + 1), HOSTS * PER_HOST)[:, :RESOURCES]
    totals = totals.reshape(HOSTS, PER_HOST, RESOURCES).sum(axis=1)
    servers = np.array([1, 4, 1])
    cases = (
        Case("plain loop", lambda: _digest(np.array(plain(candidates, totals, servers)))),
        Case("formula", lambda: _digest(formula.added(candidates, totals, servers))),
    )
    return Bench(f"dilation of {JOBS * HOSTS:,} candidates", cases)


def plain(candidates: Floats, totals: Floats, servers: Ints) -> list[list[float]]:
    """Pair by pair, resource by resource."""
    nodes, limits = totals.tolist(), servers.tolist()
    found = []
    for vector in candidates.tolist():
        row = []
        for total in nodes:
            by = 1.0
            for part, others, limit in zip(vector, total, limits, strict=True):
                by += part * max(others + 1.0 - limit, 0.0) / limit
            row.append(by)
        found.append(row)
    return found


def _digest(found: Floats) -> tuple[tuple[int, ...], float]:
    return found.shape, round(float(found.sum()), 6)


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """CPU times of one process."""
    say("dilation: 100,000 candidates, networks of several sizes, the best assignment of a set")
    rng = np.random.default_rng(1)
    candidates, totals = rng.random((JOBS, RESOURCES)) / RESOURCES, rng.random((HOSTS, RESOURCES))
    several: tuple[tuple[Servers, str], ...] = ((None, "one server each"), ((1, 4, 1), "several servers"))
    for servers, what in several:
        taken_ms = _ms(partial(formula.added, candidates, totals, servers))
        yield Figure("dilation", f"{JOBS * HOSTS:,} candidates by the formula, {what}", taken_ms, "ms", most=50.0)
    for jobs, resources, servers in NETWORKS:
        p = rng.dirichlet(np.ones(resources + 1), jobs)[:, :resources]
        size = f"{jobs} jobs, {resources} resources, servers {servers or 'one each'}"
        chosen = choice.chosen(p, servers=servers)
        most = 2.0 if chosen is choice.Model.PRODUCT_FORM else None
        yield Figure(
            "dilation", f"exact network, {size}", _ms(partial(product_form.dilation, p, servers)), "ms", most=most
        )
        yield Figure("dilation", f"mean values, {size}", _ms(partial(mean_value.dilation, p, servers)), "ms")
        yield from _errors(size, jobs, resources, servers)
    each = drawn("uniform", "mixed", np.random.default_rng(0))
    yield Figure("dilation", "best of 12 jobs on 4 nodes", _ms(partial(optimum_s, each.p, each.neutral_s, NODES)), "ms")


def _errors(size: str, jobs: int, resources: int, servers: Servers) -> Iterator[Figure]:
    """Mean relative errors against the exact network, over ten sets."""
    rng = np.random.default_rng(2)
    apart: dict[str, list[float]] = {"formula": [], "mean values": []}
    for _ in range(10):
        p = rng.dirichlet(np.ones(resources + 1), jobs)[:, :resources]
        exact = product_form.dilation(p, servers)
        for name, model in (("formula", formula), ("mean values", mean_value)):
            apart[name].append(float(np.abs(model.dilation(p, servers) / exact - 1.0).mean()))
    for name, errors in apart.items():
        yield Figure("dilation", f"mean error of {name}, {size}", float(np.mean(errors)) * 100.0, "%")


def _ms(work: Callable[[], object]) -> float:
    work()
    return 1e3 * median(cpu_time_s(work) for _ in range(ROUNDS))
