"""Nodes as agents describe them."""

from __future__ import annotations

from shared.values.nodes import Ability, Node


def test_an_agent_that_says_nothing_of_its_abilities_cannot_fail_over() -> None:
    """It is older than that ability; whoever has it says so."""
    node = Node("n1", 1, 1_000.0, memory_mib=1_000)
    assert node.abilities == (Ability.SAVE, Ability.MIGRATE)
    assert not node.freezes
