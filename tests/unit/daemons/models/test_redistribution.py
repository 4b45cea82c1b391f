"""CPU that is shared anew among what runs."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from daemons.models.level import JobDemand
from daemons.models.redistribution import Running, outlook_of, redistribute
from daemons.models.response import MultiServer
from daemons.models.web_utility import AppColumns, AppUtility, flow_utility

NODE_MHZ, CORE_MHZ = 8_000.0, 2_000.0


def app(load_mhz: float, goal_s: float = 0.2) -> AppUtility:
    """An application with so much load."""
    return AppUtility((flow_utility(MultiServer(40.0, load_mhz, CORE_MHZ), goal_s, 0.02),), math.inf, 1.0)


def running(seed: int, nodes: int, jobs: int, apps: int, load_frac: float) -> Running:
    """Jobs anywhere, and an instance of each application on every node."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(1e5, 4e7, jobs)
    span_s = rng.uniform(1e3, 3e4, jobs)
    at = np.repeat(np.arange(apps), nodes)
    return Running(
        np.full(nodes, NODE_MHZ),
        np.arange(jobs),
        rng.integers(0, nodes, jobs),
        count=np.ones(jobs, dtype=np.int64),
        least_mhz=np.ones(jobs),
        most_mhz=np.full(jobs, CORE_MHZ),
        replica_app=at,
        replica_node=np.tile(np.arange(nodes), apps),
        replica_least_mhz=np.ones(len(at)),
        replica_most_mhz=np.full(len(at), NODE_MHZ),
        demand=JobDemand(left, span_s * rng.uniform(0.2, 1.0, jobs), span_s, left / CORE_MHZ),
        apps=AppColumns.of([app(load_frac * nodes * NODE_MHZ / apps) for _ in range(apps)]),
        fixed_mhz=np.zeros(apps),
    )


def smallest(level: float, utilities: tuple[float, ...]) -> float:
    return min((level, *utilities))


@pytest.mark.parametrize("seed", range(12))
def test_nobody_gets_more_than_there_is_or_than_it_can_use(seed: int) -> None:
    what = running(seed, 6, 30, 1 + seed % 3, 0.2 + 0.05 * (seed % 8))
    found = redistribute(what)
    used = np.bincount(what.node, found.mhz, 6) + np.bincount(what.replica_node, found.replica_mhz, 6)
    assert (used <= what.cpu_mhz * (1.0 + 1e-9)).all()
    assert (found.mhz <= what.most_mhz * (1.0 + 1e-9)).all()
    assert (found.mhz > 0.0).all()
    assert (found.replica_mhz <= what.replica_most_mhz * (1.0 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(12))
def test_no_random_sharing_is_better_for_who_has_least(seed: int) -> None:
    """A naive search: CPU is shared at random two thousand times."""
    what = running(seed, 3, 9, 1, 0.45)
    found = redistribute(what)
    rng = Random(seed)
    best = -math.inf
    for _ in range(2_000):
        weight = rng.uniform(0.0, 1.0)
        mhz, replicas = np.zeros(9), np.zeros(3)
        for node in range(3):
            here = np.flatnonzero(what.node == node)
            shares = np.array([rng.random() for _ in here])
            room = NODE_MHZ * (1.0 - weight)
            if len(here):
                mhz[here] = np.minimum(shares / shares.sum() * room, what.most_mhz[here])
            replicas[node] = NODE_MHZ - mhz[here].sum()
        told = outlook_of(what, mhz, replicas)
        best = max(best, smallest(told.level, told.utilities))
    assert smallest(found.level, found.utilities) >= best - 0.01


def test_both_sides_have_the_same_where_both_can() -> None:
    found = redistribute(running(3, 6, 40, 1, 0.5))
    assert found.utilities[0] == pytest.approx(found.level, abs=0.02)


def test_jobs_get_what_an_application_does_not_need() -> None:
    what = running(1, 6, 40, 1, 0.01)
    found = redistribute(what)
    assert found.mhz.sum() >= 0.9 * min(6 * NODE_MHZ, what.most_mhz.sum())


def test_an_application_gets_what_jobs_cannot_use() -> None:
    what = running(1, 6, 2, 1, 0.5)
    found = redistribute(what)
    assert found.mhz == pytest.approx(what.most_mhz)
    assert found.replica_mhz.sum() == pytest.approx(6 * NODE_MHZ - what.most_mhz.sum())


def test_without_jobs_applications_have_everything() -> None:
    what = running(1, 4, 0, 2, 0.3)
    found = redistribute(what)
    assert found.replica_mhz.sum() == pytest.approx(4 * NODE_MHZ)
    assert found.utilities[0] == pytest.approx(found.utilities[1])


def test_near_its_best_an_application_takes_nothing_from_jobs_that_are_better_off() -> None:
    """The last 0.01 of its utility would take the jobs from 0.52 down to 0.30: no CPU is enough for its best."""
    left = np.full(20, 4e6)
    demand = JobDemand(left, np.full(20, 6e3), np.full(20, 6e3), left / CORE_MHZ)
    slow = AppUtility((flow_utility(MultiServer(40.0, 0.3 * 6 * NODE_MHZ, CORE_MHZ), 0.2, 0.12),), math.inf, 1.0)
    found = redistribute(replace(running(3, 6, 20, 1, 0.3), apps=AppColumns.of([slow]), demand=demand))
    assert found.utilities[0] == pytest.approx(slow.best - 0.01, abs=0.001)
    assert found.level > 0.5


def test_jobs_of_several_instances_keep_one_speed() -> None:
    """What is left on one node alone is no use to a job that runs on two."""
    what = running(5, 2, 2, 1, 0.2)
    gang = Running(
        **{
            **{name: getattr(what, name) for name in what.__slots__},
            "row": np.array([0, 0]),
            "node": np.array([0, 1]),
            "count": np.array([2, 2]),
        }
    )
    found = redistribute(gang)
    assert found.mhz[0] == pytest.approx(found.mhz[1])
