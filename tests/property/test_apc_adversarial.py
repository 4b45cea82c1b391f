"""APC takes any snapshot: numbers that are none, or out of range, cost at most the workload they are about."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from daemons.policies.placement.apc import Apc
from shared.policy_api.snapshot import Snapshot, WorkloadState
from sim_backend.conformance.clusters import random_cluster
from tests.extent import first
from tests.simulation.place_instances import mixed_instance

SPECIAL = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, 1e-300, -1e300)
COUNTS = ("vcpus", "revision", "min_instances", "max_instances", "cores")


def _spoilt(rng: np.random.Generator, columns: Any, times: int) -> Any:
    """Some entries of some columns are something else."""
    values: dict[str, np.ndarray[Any, Any]] = {}
    names = [
        field.name
        for field in fields(columns)
        if isinstance(getattr(columns, field.name), np.ndarray) and getattr(columns, field.name).size
    ]
    for _ in range(times if names else 0):
        name = names[int(rng.integers(len(names)))]
        column = values.get(name, getattr(columns, name)).copy()
        at = int(rng.integers(column.size))
        if column.dtype == np.float64:
            column[at] = SPECIAL[int(rng.integers(len(SPECIAL)))]
        elif column.dtype == np.bool_:
            column[at] = not column[at]
        elif name in COUNTS:
            column[at] = rng.choice([0, -1, 1, 1000])
        values[name] = column
    return replace(columns, **values)


def _spoilt_snapshot(seed: int) -> Snapshot:
    rng = np.random.default_rng(seed)
    seen = mixed_instance(seed) if seed % 2 else random_cluster(rng)
    return replace(
        seen,
        at_cycle=bool(rng.random() < 0.8),
        nodes=_spoilt(rng, seen.nodes, int(rng.integers(0, 3))),
        workloads=_spoilt(rng, seen.workloads, int(rng.integers(0, 4))),
        stages=_spoilt(rng, seen.stages, int(rng.integers(0, 2))),
        instances=_spoilt(rng, seen.instances, int(rng.integers(0, 2))),
        flows=_spoilt(rng, seen.flows, int(rng.integers(0, 2))),
        web=_spoilt(rng, seen.web, int(rng.integers(0, 2))),
    )


@pytest.mark.parametrize("block", first(range(10)))
def test_anything_gives_a_decision_in_finite_numbers(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        seen = _spoilt_snapshot(seed)
        decision, _ = Apc().decide(seen, None, {})
        about = [(change.workload, change.reason) for change in decision.changes]
        about += [(refusal.workload, refusal.reason) for refusal in decision.refusals]
        wrong = [
            (name, reason) for name, reason in about if not all(math.isfinite(value) for _, value in reason.numbers)
        ]
        assert not wrong, f"seed {seed}"
        given = [given for change in decision.changes for given in change.allotments]
        assert all(math.isfinite(one.cpu_mhz) and one.cpu_mhz > 0.0 for one in given), f"seed {seed}"
        told = {name for name, _ in about}
        waits = (seen.workloads.state != WorkloadState.RUNNING).nonzero()[0].tolist()
        assert {seen.workloads.names[row] for row in waits} <= told, f"seed {seed}"
