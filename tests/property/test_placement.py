"""First-fit and EDF decide what their naive forms decide, on random clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.policy_api.decision import PlacementDecision
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from sim_backend.conformance.clusters import after, random_cluster
from sim_backend.conformance.verifier import verify
from tests.extent import examples, first
from tests.property.naive_placement import Naive, earliest_goal_first, first_fit

FORMS = {"first-fit": first_fit, "edf": earliest_goal_first}


def _agree(seen: Snapshot, decision: PlacementDecision, naive: Naive) -> None:
    node_of = {name: row for row, name in enumerate(seen.nodes.names)}
    said = [
        (change.workload, change.kind.value, tuple((node_of[given.node], given.cpu_mhz) for given in change.allotments))
        for change in decision.changes
    ]
    assert said == naive.changes
    assert {refusal.workload for refusal in decision.refusals} == naive.refused


@pytest.mark.parametrize("name", first(FORMS))
@settings(max_examples=examples(250))
@given(seed=st.integers(0, 2**32), workloads=st.integers(0, 40))
def test_same_as_naive(name: str, seed: int, workloads: int) -> None:
    """The same changes in the same order with the same allotments, and the same refusals; two decisions on."""
    form: Callable[[Snapshot], Naive] = FORMS[name]
    seen = random_cluster(np.random.default_rng(seed), workloads=workloads)
    for _ in range(2):
        decision, _ = find_policy("placement", name).decide(seen, None, {})
        _agree(seen, decision, form(seen))
        assert verify(seen, decision) == []
        seen = after(seen, decision)


@pytest.mark.parametrize("name", FORMS)
def test_every_kind_of_change_occurs(name: str) -> None:
    """The random clusters make the policies do all that they can do, so that the comparison means something."""
    rng = np.random.default_rng(3)
    kinds = {
        change.kind.value
        for _ in range(120)
        for change in find_policy("placement", name).decide(random_cluster(rng), None, {})[0].changes
    }
    assert kinds == {"start", "resume", "migrate"} | ({"suspend"} if name == "edf" else set())
