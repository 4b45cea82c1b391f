"""What sharing costs the instances of a placement."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.dilation import choice, formula, product_form
from daemons.models.neighbours import Crowd, exact, of_instances, of_workloads, slowed
from shared.policy_api.snapshot import LoadingColumns
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot
from tests.simulation.sharing_instances import with_io

SERVERS = np.array([[1.0, 1.0], [2.0, 3.0]])


def _drawn(seed: int) -> tuple[LoadingColumns, Crowd]:
    rng = np.random.default_rng(seed)
    parts = rng.dirichlet((1.0, 1.0, 1.0), (2, 9))[:, :, :2] * (rng.random((9, 1)) < 0.8)
    loading = LoadingColumns(("io", "net"), parts, np.array([0, 1, 0, 1]), SERVERS)
    return loading, Crowd(np.array([0, 1, 1, 2, 3, 4, 5, 6, 7, 8]), rng.integers(-1, 4, 10))


@pytest.mark.parametrize("model", ["formula", "product-form", "auto"])
@pytest.mark.parametrize("seed", range(10))
def test_every_node_is_weighed_as_if_it_were_alone(seed: int, model: str) -> None:
    loading, crowd = _drawn(seed)
    slow = of_instances(loading, crowd, model)
    assert (slow[crowd.node < 0] == 1.0).all()
    for node in range(4):
        there = np.flatnonzero(crowd.node == node)
        kind = loading.node_type[node]
        p = loading.parts[kind, crowd.owner[there]]
        np.testing.assert_allclose(slow[there], choice.dilation(p, model, SERVERS[kind].astype(int)), rtol=1e-9)
    worst = of_workloads(loading, crowd, 10, model)
    assert worst[1] == slow[1:3].max()
    assert worst[9] == 1.0


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_many_groups_at_once_are_what_each_is(count: int) -> None:
    p = np.random.default_rng(count).dirichlet((1.0, 2.0, 0.5, 1.0), (6, count))[:, :, :3]
    p[0, 0] = (1.0, 0.0, 0.0)
    servers = np.array([[1, 1, 1], [2, 1, 1], [1, 3, 2], [4, 4, 4], [1, 1, 2], [2, 2, 9]])
    for group, limits, found in zip(p, servers, exact(p, servers), strict=True):
        np.testing.assert_allclose(found, product_form.dilation(group, limits), rtol=1e-11)


def test_what_makes_no_sense_slows_nobody() -> None:
    parts = np.array([[[np.nan], [-1.0], [7.0], [np.inf], [0.5], [0.5]]])
    loading = LoadingColumns(("io",), parts, np.zeros(1, dtype=np.int64), np.array([[np.nan]]))
    crowd = Crowd(np.arange(6), np.zeros(6, dtype=np.int64))
    assert of_instances(loading, crowd).tolist() == pytest.approx([1.0] * 4 + [1.25] * 2)
    assert of_instances(loading, crowd, "no such model").tolist() == pytest.approx([1.0] * 4 + [1.25] * 2)


def test_who_is_slowed_by_what_and_with_whom() -> None:
    nodes = [NodeRow("n1", 4, 1000.0, memory_mib=8000.0), NodeRow("n2", 4, 1000.0, memory_mib=8000.0)]
    jobs = [WorkRow(name) for name in ("heavy", "light", "idle", "alone")]
    seen = with_io(snapshot(nodes, jobs, 0.0), {"heavy": 0.9, "light": 0.2, "alone": 0.9})
    found = slowed(seen, Crowd(np.array([0, 1, 2, 3]), np.array([1, 1, 1, 0])))
    assert [(one.workload, one.node, one.resource, one.by) for one in found] == [
        ("heavy", "n2", "io", ("light",)),
        ("light", "n2", "io", ("heavy",)),
    ]
    assert [one.factor for one in found] == pytest.approx(formula.dilation([[0.9], [0.2]]).tolist())
    assert slowed(seen, Crowd(np.array([0, 1]), np.array([0, 1]))) == ()
