"""Max-min fair division beside its definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.models.max_min import max_min

AMOUNT = st.floats(0.0, 1e9)


@pytest.mark.parametrize(
    ("limits", "capacity", "shares"),
    [
        ([], 5.0, []),
        ([10.0, 10.0], 4.0, [2.0, 2.0]),
        ([1.0, 10.0], 4.0, [1.0, 3.0]),
        ([1.0, 2.0], 100.0, [1.0, 2.0]),
        ([math.nan, -1.0, 5.0], 4.0, [0.0, 0.0, 4.0]),
        ([math.inf, 1.0], 4.0, [3.0, 1.0]),
        ([math.inf, 1.0], math.inf, [math.inf, 1.0]),
        ([1.0], math.nan, [0.0]),
        ([1.0], -1.0, [0.0]),
        ([0.0, 0.0], 4.0, [0.0, 0.0]),
    ],
)
def test_division(limits: list[float], capacity: float, shares: list[float]) -> None:
    assert max_min(limits, capacity) == shares


@given(st.lists(AMOUNT, max_size=30), AMOUNT)
def test_nobody_could_have_more_but_from_one_with_no_more(limits: list[float], capacity: float) -> None:
    shares = max_min(limits, capacity)
    assert all(0.0 <= share <= limit for share, limit in zip(shares, limits, strict=True))
    assert sum(shares) <= capacity * (1 + 1e-9)
    level = max(shares, default=0.0)
    for share, limit in zip(shares, limits, strict=True):
        assert share == limit or share >= level * (1 - 1e-9)
    if sum(limits) > capacity:
        assert sum(shares) == pytest.approx(capacity)
