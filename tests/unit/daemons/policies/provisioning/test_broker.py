"""Who gets nodes when they are short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from daemons.policies.provisioning.broker import Claim, share


def split(claims: Sequence[Claim], nodes: int) -> tuple[int, ...]:
    return share(claims, lambda sizes: sum(sizes) <= nodes)


def test_all_get_what_they_want_where_it_fits() -> None:
    assert split([Claim(3, 1.0), Claim(2, 1.0)], 5) == (3, 2)
    assert split([], 5) == ()


def test_the_next_node_goes_where_the_probability_falls_most() -> None:
    steep, flat = Claim(3, 1.0, (1.0, 0.25, 0.125, 0.0)), Claim(3, 1.0, (1.0, 0.75, 0.5, 0.375))
    assert [split([flat, steep], nodes) for nodes in range(6)] == [
        (0, 0),
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),  # an eighth for each: the first of equals
        (3, 2),
    ]


def test_weight_counts() -> None:
    steep, flat = Claim(3, 1.0, (1.0, 0.2, 0.1, 0.0)), Claim(3, 10.0, (1.0, 0.7, 0.5, 0.4))
    assert split([flat, steep], 2) == (2, 0)


def test_a_fall_that_needs_several_nodes_is_not_passed_over() -> None:
    """Given a window that one node does not help, when another gains little by each, then it gets both its nodes."""
    late = Claim(2, 1.0, (1.0, 1.0, 0.0))
    slow = Claim(3, 1.0, (1.0, 0.9, 0.8, 0.7))
    assert split([slow, late], 2) == (0, 2)


def test_without_probabilities_all_fall_alike() -> None:
    assert split([Claim(4, 1.0), Claim(2, 1.0)], 3) == (1, 2)


def test_what_a_window_cannot_have_goes_to_another() -> None:
    """Given nodes that only the second may use, when the first cannot get more, then the second does."""
    claims = [Claim(3, 9.0), Claim(3, 1.0)]
    assert share(claims, lambda sizes: sizes[0] <= 1 and sum(sizes) <= 4) == (1, 3)


@pytest.mark.parametrize("nodes", range(8))
def test_best_of_all_splits_for_convex_probabilities(nodes: int) -> None:
    claims = [Claim(4, w, tuple(b**n for n in range(5))) for w, b in ((1.0, 0.5), (2.0, 0.3), (0.5, 0.8))]
    given = split(claims, nodes)

    def loss(sizes: Sequence[int]) -> float:
        return sum(claim.weight * claim.at(size) for claim, size in zip(claims, sizes, strict=True))

    best = min(loss(sizes) for sizes in product(range(5), repeat=3) if sum(sizes) <= nodes)
    assert loss(given) == pytest.approx(best)
