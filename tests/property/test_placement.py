"""First-fit and EDF decide what their naive forms decide, on random clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.placement_rules import rules_of
from shared.policy_api.decision import PlacementDecision
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from shared.values.jobs import Constraint, ConstraintKind
from sim_backend.conformance.clusters import after, random_cluster
from sim_backend.conformance.verifier import verify
from tests.extent import examples, first
from tests.property.naive_placement import Naive, earliest_goal_first, first_fit
from tests.simulation.constraint_judge import broken, running
from tests.simulation.place_instances import with_rules

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


def _simple(seen: Snapshot, seed: int) -> Snapshot:
    """With rules that hold now, do not contradict each other and ask for no search: jobs of several instances neither
    have to be in one domain nor have preferences about others, and nothing that is moved off a node takes others
    along."""
    work, ruled = seen.workloads, with_rules(seen, seed)
    several = {work.names[row] for row in (work.instances > 1).nonzero()[0].tolist()}
    placed, draining = running(seen), seen.nodes.draining
    leaves = {work.names[row] for row, nodes in placed.items() if draining[[n for n in nodes if n >= 0]].any()}
    kept: tuple[Constraint, ...] = ()
    for each in ruled.constraints:
        named = {*each.members, *each.about}
        related = each.kind in (ConstraintKind.TOGETHER, ConstraintKind.APART)
        if related and each.weight and named & several:
            continue
        if each.kind is ConstraintKind.TOGETHER and not each.weight and named & (several | leaves):
            continue
        tried = replace(ruled, constraints=(*kept, each))
        contradicts = rules_of(tried, seen.nodes.schedulable).contradictions
        if not contradicts and not list(broken(tried, placed)):
            kept = tried.constraints
    return replace(ruled, constraints=kept)


@pytest.mark.parametrize("name", first(FORMS))
@settings(max_examples=examples(250))
@given(seed=st.integers(0, 2**32), workloads=st.integers(0, 24))
def test_same_as_naive_with_rules(name: str, seed: int, workloads: int) -> None:
    """Required and preferred rules on nodes in racks and zones; two decisions on."""
    form: Callable[[Snapshot], Naive] = FORMS[name]
    seen = _simple(random_cluster(np.random.default_rng(seed), workloads=workloads), seed)
    for _ in range(2):
        decision, _ = find_policy("placement", name).decide(seen, None, {})
        _agree(seen, decision, form(seen))
        seen = _simple(after(seen, decision), seed)


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
