"""Rules of several workloads that cannot hold together: by names and groups, in both directions, through others, and by
the nodes that they leave each other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from daemons.models.rule_contradictions import Ruled, contradictions
from shared.values.jobs import Rules

NODES: Mapping[str, frozenset[str] | None] = {
    "n1": frozenset({"rack=r1", "ssd"}),
    "n2": frozenset({"rack=r1"}),
    "n3": frozenset({"rack=r2", "ssd"}),
    "n4": frozenset(),
}


def found(rules: Mapping[str, Rules], *about: str, nodes: Mapping[str, frozenset[str] | None] = NODES) -> list[str]:
    ruled = {name: Ruled(each) for name, each in rules.items()}
    return [each.text for each in contradictions(ruled, about or tuple(rules), nodes)]


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"a": Rules(vm_affinity=("b",)), "b": Rules(vm_anti_affinity=("a",))}, "vm_anti_affinity of 'b' names 'a'"),
        ({"a": Rules(affinity="g"), "b": Rules(affinity="g", vm_anti_affinity=("a",))}, "affinity of both 'a' and 'b'"),
        (
            {"a": Rules(affinity="g", anti_affinity="h"), "b": Rules(vm_affinity=("a",), anti_affinity="h")},
            "anti_affinity of both 'a' and 'b' is 'h'",
        ),
        (
            {"a": Rules(vm_affinity=("b",)), "b": Rules(vm_affinity=("c",)), "c": Rules(vm_anti_affinity=("a",))},
            "'c' and 'a' must share a node (vm_affinity of 'b' names 'c'; vm_affinity of 'a' names 'b')",
        ),
        (
            {
                "a": Rules(vm_affinity=("b",), affinity_scope="rack"),
                "b": Rules(vm_anti_affinity=("a",), anti_affinity_scope="rack"),
            },
            "must share a rack",
        ),
        (
            {"a": Rules(vm_affinity=("b",)), "b": Rules(vm_anti_affinity=("a",), anti_affinity_scope="rack")},
            "must share a rack",
        ),
        (
            {"a": Rules(vm_affinity=("b",), node_affinity=("n1",)), "b": Rules(node_affinity=("n2", "n3"))},
            "no node suits all of them: 'a': node_affinity ['n1'], 'b': node_affinity ['n2', 'n3']",
        ),
        (
            {"a": Rules(affinity="g", label_affinity=("ssd",)), "b": Rules(affinity="g", label_anti_affinity=("ssd",))},
            "'a': label_affinity ['ssd'], 'b': label_anti_affinity ['ssd']",
        ),
        (
            {
                "a": Rules(affinity="g", affinity_scope="rack", node_affinity=("n1",)),
                "b": Rules(affinity="g", affinity_scope="rack", label_affinity=("rack=r2",)),
            },
            "no rack suits all of them",
        ),
        (
            {
                "a": Rules(vm_affinity=("b",), node_affinity=("n1", "n2")),
                "b": Rules(vm_affinity=("c",), node_affinity=("n2", "n3")),
                "c": Rules(node_affinity=("n1", "n3")),
            },
            "no node suits all of them: 'a'",
        ),
    ],
)
def test_what_cannot_be_is_found_from_each_of_them(rules: Mapping[str, Rules], word: str) -> None:
    assert word in found(rules)[0]
    for name in rules:
        assert len(found(rules, name)) == 1


@pytest.mark.parametrize(
    "rules",
    [
        {"a": Rules(vm_affinity=("b",), affinity_scope="rack"), "b": Rules(vm_anti_affinity=("a",))},
        {"a": Rules(vm_affinity=("gone", "a")), "b": Rules(vm_anti_affinity=("gone", "b"))},
        {"a": Rules(affinity="g"), "b": Rules(anti_affinity="g", vm_anti_affinity=("a",))},
        {"a": Rules(affinity="g", node_affinity=("n1", "n2")), "b": Rules(affinity="g", node_affinity=("n2", "n3"))},
        {
            "a": Rules(vm_affinity=("b",), affinity_scope="rack", node_affinity=("n1",)),
            "b": Rules(node_affinity=("n2",)),
        },
        {
            "a": Rules(affinity="g", label_affinity=("no node has it",)),
            "b": Rules(affinity="g", label_affinity=("ssd",)),
        },
        {"a": Rules(anti_affinity="g"), "b": Rules(anti_affinity="g"), "c": Rules(vm_affinity=("a",))},
    ],
)
def test_what_can_be_is_no_contradiction(rules: Mapping[str, Rules]) -> None:
    assert found(rules) == []


def test_only_what_concerns_those_in_question_is_told_once_for_each_set() -> None:
    rules = {
        "a": Rules(vm_affinity=("b",)),
        "b": Rules(vm_anti_affinity=("a",)),
        "x": Rules(affinity="g", node_affinity=("n1",)),
        "y": Rules(affinity="g", node_affinity=("n2",)),
        "z": Rules(),
    }
    assert found(rules, "z") == []
    assert len(found(rules, "b", "z")) == 1
    assert len(found(rules)) == 2


def test_required_labels_count_and_unknown_nodes_may_have_any_label() -> None:
    ruled = {"a": Ruled(Rules(vm_affinity=("b",)), ("ssd",)), "b": Ruled(Rules(label_anti_affinity=("ssd",)))}
    (told,) = contradictions(ruled, ("b",), NODES)
    assert (told.name, "'b': label_anti_affinity ['ssd'], 'a': required_labels ['ssd']" in told.text) == ("b", True)
    assert contradictions(ruled, ("b",), {**NODES, "n5": None}) == []
    racks = {
        "a": Rules(vm_affinity=("b",), affinity_scope="rack", node_affinity=("n1",)),
        "b": Rules(node_affinity=("n3", "n5")),
    }
    assert len(found(racks)) == 1
    assert found(racks, nodes={**NODES, "n5": None}) == []


def test_a_long_chain_is_cut() -> None:
    names = [f"v{number}" for number in range(10)]
    rules = {name: Rules(vm_affinity=(other,)) for name, other in pairwise(names)}
    (text,) = found({**rules, "v9": Rules(vm_anti_affinity=("v0",))})
    assert text.count("vm_affinity of") == 4
    assert "; ...)" in text
