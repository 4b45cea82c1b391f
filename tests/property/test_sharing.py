"""Both fast forms of processor sharing against a deliberately naive one in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim_backend.world.cpu_sharing import FEW, shares, shares_few, shares_many

Form = Callable[[Sequence[float], Sequence[float], float], list[float]]
FORMS = [shares_few, shares_many, shares]


def _naive(weights: list[float], caps: list[float], capacity: float) -> list[float]:
    """Fill in proportion; whoever would get more than its cap gets its cap, and the others begin again."""
    given_to: dict[int, Fraction] = {}
    left = Fraction(capacity)
    while len(given_to) < len(caps):
        rest = [i for i in range(len(caps)) if i not in given_to]
        total = sum(Fraction(weights[i]) for i in rest)
        fair = {i: left * Fraction(weights[i]) / total for i in rest}
        over = [i for i in rest if Fraction(caps[i]) <= fair[i]]
        for i in over or rest:
            given_to[i] = Fraction(caps[i]) if over else fair[i]
        if not over:
            break
        left -= sum(given_to[i] for i in over)
    return [float(given_to[i]) for i in range(len(caps))]


guests = st.lists(
    st.tuples(
        st.floats(1e-3, 1e6) | st.sampled_from([500.0, 1000.0]),
        st.floats(0.0, 1e6) | st.sampled_from([500.0, 1000.0]),
    ),
    max_size=12,
)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@given(guests=guests, capacity=st.floats(1e-3, 1e6) | st.sampled_from([0.0, 1000.0, 4000.0]))
@example(guests=[(1000.0, 1000.0)] * 4, capacity=4000.0)
@example(guests=[(1.0, 1000.0), (3.0, 1000.0)], capacity=1000.0)
def test_as_the_naive_form(form: Form, guests: list[tuple[float, float]], capacity: float) -> None:
    """The same shares up to rounding; within caps and capacity."""
    weights, caps = [g[0] for g in guests], [g[1] for g in guests]
    got = form(weights, caps, capacity)
    assert got == pytest.approx(_naive(weights, caps, capacity), rel=1e-9, abs=1e-6)
    assert all(0.0 <= share <= cap for share, cap in zip(got, caps, strict=True))
    assert math.fsum(got) <= capacity * (1 + 1e-12)


@pytest.mark.full
@given(st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(0.0, 1e6)), min_size=FEW - 3, max_size=FEW + 40), st.data())
def test_few_and_many_agree(guests: list[tuple[float, float]], data: st.DataObject) -> None:
    """Beyond the size at which the form changes too."""
    weights, caps = [g[0] for g in guests], [g[1] for g in guests]
    capacity = data.draw(st.floats(0.0, math.fsum(caps)))
    few, many = shares_few(weights, caps, capacity), shares_many(weights, caps, capacity)
    assert few == pytest.approx(many, rel=1e-9, abs=1e-6)
    assert shares(weights, caps, capacity) == (few if len(caps) <= FEW else many)


odd = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -1.0, 5e-324, 1e308, math.inf, math.nan])


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.tuples(odd, odd), max_size=8), odd)
def test_any_numbers(form: Form, guests: list[tuple[float, float]], capacity: float) -> None:
    """Whatever comes in, no share is NaN, negative or above its cap, and they never add up to more than there is."""
    weights, caps = [g[0] for g in guests], [g[1] for g in guests]
    got = form(weights, caps, capacity)
    limit = capacity if capacity > 0 else 0.0
    for share, cap in zip(got, caps, strict=True):
        assert 0.0 <= share <= (cap if cap > 0 else 0.0)
    if limit < math.inf:
        assert sum(map(Fraction, got)) <= Fraction(limit) * Fraction(1 + 1e-9) + Fraction(1e-300)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("weights", "caps", "capacity", "wanted"),
    [
        ([], [], 1000.0, []),
        ([1.0], [500.0], 0.0, [0.0]),
        ([1.0], [500.0], math.nan, [0.0]),
        ([1.0, 1.0], [math.inf, math.inf], 1000.0, [500.0, 500.0]),
        ([1.0, 3.0], [math.nan, 1000.0], 500.0, [0.0, 500.0]),
        ([0.0, 1.0], [1000.0, 600.0], 1000.0, [400.0, 600.0]),  # weight 0 gets what the others leave
        ([0.0, 1.0], [1000.0, 1000.0], 1000.0, [0.0, 1000.0]),
        ([math.inf, 5.0], [400.0, 1000.0], 1000.0, [400.0, 600.0]),  # infinite weight comes first
        ([1.0, 1.0, 2.0], [100.0, 1000.0, 1000.0], 1000.0, [100.0, 300.0, 600.0]),
        ([1e300, 1e300], [1.0, 1.0], 1.0, [0.5, 0.5]),
    ],
)
def test_by_hand(form: Form, weights: list[float], caps: list[float], capacity: float, wanted: list[float]) -> None:
    """Worked out by hand."""
    assert form(weights, caps, capacity) == pytest.approx(wanted)
