"""Fair shares of the nodes' links."""

from __future__ import annotations

import math

import pytest

from daemons.models.migration_bandwidth import NodeLink, Transfer, shares

LINKS = {name: NodeLink(100.0, 100.0) for name in "abcd"}


def test_a_source_s_link_is_divided() -> None:
    assert shares([Transfer("a", "b"), Transfer("a", "c")], LINKS) == pytest.approx([50.0, 50.0])


def test_both_directions_are_links_of_their_own() -> None:
    assert shares([Transfer("a", "b"), Transfer("b", "a")], LINKS) == pytest.approx([100.0, 100.0])


def test_what_one_cannot_use_is_the_others() -> None:
    moves = [Transfer("a", "b", 10.0), Transfer("a", "c"), Transfer("a", "d")]
    assert shares(moves, LINKS) == pytest.approx([10.0, 45.0, 45.0])


def test_a_full_target_leaves_the_rest_of_the_source() -> None:
    links = {**LINKS, "c": NodeLink(100.0, 20.0)}
    assert shares([Transfer("a", "b"), Transfer("a", "c")], links) == pytest.approx([80.0, 20.0])


def test_without_limits_there_is_no_share() -> None:
    assert shares([Transfer("x", "y"), Transfer("x", "b")], {"b": NodeLink(1.0, 30.0)}).tolist() == [math.inf, 30.0]
    assert len(shares([], LINKS)) == 0


@pytest.mark.parametrize("odd", [0.0, -1.0, math.nan])
def test_a_link_that_carries_nothing_gives_nothing(odd: float) -> None:
    found = shares([Transfer("a", "b"), Transfer("c", "d")], {**LINKS, "a": NodeLink(odd, odd)})
    assert found.tolist() == [0.0, 100.0]


def test_many_migrations_are_shared_out() -> None:
    links = {f"n{at}": NodeLink(1_000.0 + at, 1_000.0) for at in range(1_000)}
    moves = [Transfer(f"n{at % 1_000}", f"n{(7 * at + 1) % 1_000}", 10.0 + at) for at in range(2_000)]
    found = shares(moves, links)
    for name, link in links.items():
        assert sum(rate for rate, move in zip(found, moves, strict=True) if move.source == name) <= (
            link.sends_mib_per_s * (1.0 + 1e-6)
        )
    assert (found > 0.0).all()
