"""Rules on where workloads run: masks, relations and penalties are what the naive judge says, and every policy
obeys them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemons.models.placement_relations import Layout
from daemons.models.placement_rules import rules_of, running_places
from shared.policy_api.decision import ChangeKind
from shared.policy_api.snapshot import Snapshot
from shared.ports.plugins import find_policy
from shared.values.jobs import Constraint, ConstraintKind
from sim_backend.conformance.clusters import after, random_cluster
from sim_backend.conformance.verifier import verify
from tests.extent import examples, first
from tests.simulation.constraint_judge import Instance, broken, holds, newly_broken, penalty, running
from tests.simulation.place_instances import mixed_instance, with_rules
from tests.simulation.place_rules import judge_decision

POLICIES = ("first-fit", "edf", "apc")
RELATIONS = (ConstraintKind.TOGETHER, ConstraintKind.APART)
SEEDS = st.integers(0, 2**32)


def _cluster(seed: int) -> Snapshot:
    rng = np.random.default_rng(seed)
    seen = mixed_instance(seed, constrained=False) if seed % 2 else random_cluster(rng)
    return with_rules(seen, seed)


def _member(seen: Snapshot, row: int) -> str:
    app = seen.workloads.app.item(row)
    return seen.workloads.names[row] if app < 0 else seen.web.names[app]


def _required(seen: Snapshot, member: str) -> Iterator[Constraint]:
    for constraint in seen.constraints:
        named = member in (*constraint.members, *constraint.about)
        if named and not constraint.weight and constraint.kind is not ConstraintKind.KEEP:
            yield constraint


@settings(max_examples=examples(150))
@given(seed=SEEDS)
def test_one_instance_may_go_where_the_judge_lets_it(seed: int) -> None:
    seen = _cluster(seed)
    usable = np.ones(len(seen.nodes.names), dtype=np.bool_)
    rules, placed = rules_of(seen, usable), running(seen)
    assert running_places(seen) == placed
    for row in range(len(seen.workloads.names)):
        if seen.workloads.instances[row] > 1 or row in rules.no_migration:
            continue
        others = {other: place for other, place in placed.items() if other != row}
        open_ = rules.open_to(row, Layout(others.get))
        for node, labels in enumerate(seen.nodes.labels):
            one = Instance(_member(seen, row), row, 0, node)
            then = {**others, row: (node,)}
            held = all(holds(seen, each, one, then) for each in _required(seen, one.member))
            assert held is (not rules.broken(row, (node,), Layout(others.get)))
            assert open_[node] == (held and {*seen.workloads.required_labels[row]} <= {*labels})
            assert any(rules.misplaced(row, (node,), Layout(others.get))) is not held


@settings(max_examples=examples(150))
@given(seed=SEEDS)
def test_penalties_are_what_the_judge_adds_up(seed: int) -> None:
    seen = _cluster(seed)
    rules, placed = rules_of(seen, np.ones(len(seen.nodes.names), dtype=np.bool_)), running(seen)
    for row in range(len(seen.workloads.names)):
        others = {other: place for other, place in placed.items() if other != row}
        found, base = rules.penalty(row, Layout(others.get)), penalty(seen, others)
        for node in range(len(seen.nodes.names)):
            naive = penalty(seen, {**others, row: (node,)}) - base
            assert (0.0 if found is None else found[node]) == pytest.approx(naive)
            targets = {row: (node,)}
            moved = penalty(seen, {**placed, **targets}) - penalty(seen, placed)
            assert rules.added_penalty(targets, Layout(placed.get)) == pytest.approx(moved)


@settings(max_examples=examples(100))
@given(seed=SEEDS)
def test_penalties_of_several_moves_at_once(seed: int) -> None:
    seen, rng = _cluster(seed), np.random.default_rng(seed)
    nodes, rows = len(seen.nodes.names), len(seen.workloads.names)
    if not nodes or not rows:
        return
    rules, placed = rules_of(seen, np.ones(nodes, dtype=np.bool_)), running(seen)
    targets = {
        row: None
        if rng.random() < 0.3
        else tuple(rng.integers(0, nodes, max(0, seen.workloads.instances.item(row))).tolist())
        for row in rng.permutation(rows)[: int(rng.integers(1, 6))].tolist()
    }
    then = {row: place for row, place in (placed | targets).items() if place is not None}
    assert rules.added_penalty(targets, Layout(placed.get)) == pytest.approx(
        penalty(seen, then) - penalty(seen, placed)
    )


@settings(max_examples=examples(150))
@example(seed=9063)  # j0 with w1: of w1's instances one is where j0 is
@given(seed=SEEDS)
def test_offenders_are_those_that_the_judge_finds(seed: int) -> None:
    seen = _cluster(seed)
    rules, placed = rules_of(seen, seen.nodes.schedulable), running(seen)
    wrong = {one.row for constraint, one in broken(seen, placed) if constraint.kind in RELATIONS}
    assert rules.offending == wrong


@settings(max_examples=examples(150))
@given(seed=SEEDS)
def test_places_of_several_instances_keep_the_rules(seed: int) -> None:
    seen, rng = _cluster(seed), np.random.default_rng([seed, 9])
    rules, placed = rules_of(seen, np.ones(len(seen.nodes.names), dtype=np.bool_)), running(seen)
    for row in range(len(seen.workloads.names)):
        if row in rules.no_migration:
            continue
        others = {other: place for other, place in placed.items() if other != row}
        slots = rng.integers(0, 4, len(seen.nodes.names))
        count = seen.workloads.instances.item(row)
        place = rules.choose(row, slots, count, Layout(others.get))
        if place is None:
            continue
        assert len(place) == count
        assert (np.bincount(place, minlength=slots.size) <= slots).all()
        for index, node in enumerate(place):
            one = Instance(_member(seen, row), row, index, node)
            then = {**others, row: place}
            assert all(holds(seen, each, one, then) for each in _required(seen, one.member))


@pytest.mark.parametrize("name", first(POLICIES))
@settings(max_examples=examples(120))
@given(seed=SEEDS)
def test_no_decision_breaks_a_required_rule(name: str, seed: int) -> None:
    """Nothing comes to where a rule forbids it, and repairs do not leave more broken than they found; two decisions
    on."""
    seen = _cluster(seed)
    for _ in range(2):
        decision, _ = find_policy("placement", name).decide(seen, None, {})
        if name == "apc":
            judge_decision(seen, decision)
        elif not seen.web.names:
            assert verify(seen, decision) == []
        then = _with(seen, after(seen, decision))
        assert list(newly_broken(seen, running(seen), running(then))) == []
        stopped = any(change.kind is ChangeKind.STOP for change in decision.changes)
        if not stopped:
            assert len(list(broken(then, running(then)))) <= len(list(broken(seen, running(seen))))
        seen = then


def _with(seen: Snapshot, then: Snapshot) -> Snapshot:
    return replace(
        then,
        constraints=seen.constraints,
        web=seen.web,
        flows=seen.flows,
        cycle_s=seen.cycle_s,
        costs=seen.costs,
    )


@pytest.mark.parametrize("name", POLICIES)
def test_all_that_rules_can_do_occurs(name: str) -> None:
    """The random clusters make the policies move for rules and refuse for rules, so that the properties mean
    something."""
    said = set()
    for seed in range(120):
        seen = _cluster(seed)
        decision, _ = find_policy("placement", name).decide(seen, None, {})
        said |= {change.reason.code.value for change in decision.changes}
        said |= {refusal.reason.code.value for refusal in decision.refusals}
    assert {"rule", "constraint", "contradiction"} <= said
    assert ("preference" in said) is (name == "apc")
