"""Utility has an inverse; the level against plain bisection in exact-enough arithmetic."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from daemons.models.level import JobDemand
from daemons.models.utility import unweighted, utility_at, weighted
from shared.policy_api.snapshot import Floats
from tests.extent import examples
from tests.support.utility import completion_at

steady = settings(max_examples=examples(100))
importances = st.floats(0.1, 10.0)
Row = tuple[float, float, float, float]


def _columns(jobs: list[Row]) -> tuple[Floats, Floats, Floats, Floats]:
    """Rows (a, b, r, tb) as four columns."""
    a, b, r, tb = (np.array(column) for column in zip(*jobs, strict=True))
    return a, b, r, tb


@steady
@given(t=st.floats(0.0, 1e7), start=st.floats(0.0, 1e6), span=st.floats(1.0, 1e6), importance=importances)
def test_completion_is_the_inverse_of_utility(t: float, start: float, span: float, importance: float) -> None:
    assume(t >= start)
    utility = utility_at(t, start, start + span, importance)

    back = float(completion_at(utility, start, start + span, importance))

    assert back == pytest.approx(t, rel=1e-8, abs=1e-8 * span)


@steady
@given(utility=st.floats(-1e9, 1.0), importance=importances)
def test_importance_keeps_sign_and_order_and_goes_back(utility: float, importance: float) -> None:
    assume(utility == 0.0 or abs(utility) > 1e-300)
    counted = weighted(utility, importance)

    assert np.sign(counted) == np.sign(utility)
    assert float(unweighted(counted, importance)) == pytest.approx(utility, rel=1e-15)
    assert float(weighted(utility, 1.0)) == float(unweighted(utility, 1.0)) == utility
    assert (counted <= utility) == (importance >= 1.0 or utility == 0.0 or counted == utility)


rows = st.tuples(
    st.floats(1.0, 1e9) | st.sampled_from([1000.0, 2000.0]),
    st.floats(-1e6, 1e6) | st.sampled_from([-100.0, 0.0, 100.0]),
    st.floats(1.0, 1e6) | st.sampled_from([100.0]),
    st.floats(0.1, 1e6) | st.sampled_from([50.0]),
)
cases = st.lists(rows, min_size=1, max_size=8)


def _bisect(total_at: object, wanted: object, low: float, high: float) -> float:
    """The smallest level seen whose sum reaches what is wanted; halving until two doubles are neighbours."""
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return high
        low, high = (low, middle) if total_at(middle) >= wanted else (middle, high)  # type: ignore[operator]


def _naive_level(jobs: list[Row], omega_g: float) -> float:
    """Bisection on the sum in 50 digits."""
    with localcontext() as context:
        context.prec = 50
        exact = [tuple(map(Decimal, job)) for job in jobs]

        def total(level: float) -> Decimal:
            return sum((a / max(b - r * Decimal(level), tb) for a, b, r, tb in exact), Decimal(0))

        return _bisect(total, Decimal(omega_g), -1e300, max((b - tb) / r for _, b, r, tb in jobs))


@steady
@given(jobs=cases, part=st.floats(1e-6, 0.999) | st.sampled_from([0.25, 0.5, 0.75]))
@example(jobs=[(1000.0, 100.0, 100.0, 50.0)] * 2, part=0.5)
@example(jobs=[(1.0, 0.0, 1.0, 0.5), (1e9, 1e6, 1.0, 1e6)], part=0.9)
def test_the_level_as_by_bisection(jobs: list[Row], part: float) -> None:
    arrays = _columns(jobs)
    demand = JobDemand(*arrays)
    omega_g = part * demand.full_mhz

    found = demand.solve(omega_g)
    naive = _naive_level(jobs, omega_g)

    # What the sum cannot tell apart in doubles, no solver can: a rounding of it and of the terms b / r.
    _, slope = demand.sum_and_slope(naive)
    blur = 1e-15 * omega_g / slope if slope > 0.0 else np.inf
    coarse = 1e-15 * float(np.abs(arrays[1] / arrays[2]).max())
    assert abs(found.level - naive) <= 1e-12 * max(1.0, abs(naive)) + 4.0 * (blur + coarse)
    lost = 1e-15 * float(np.abs(arrays[1]).max() / arrays[3].min())  # digits of b that b - r u does not have
    assert found.omegas().sum() == pytest.approx(omega_g, rel=1e-9 + lost)
    assert found.steps < 100


@steady
@given(jobs=cases, part=st.floats(1e-3, 0.999), data=st.data())
def test_any_importance_spends_just_what_is_given(jobs: list[Row], part: float, data: st.DataObject) -> None:
    arrays = _columns(jobs)
    weights = np.array(data.draw(st.lists(importances, min_size=len(jobs), max_size=len(jobs))))
    demand = JobDemand(*arrays, importance=weights)
    omega_g = part * demand.full_mhz

    found = demand.solve(omega_g, start=data.draw(st.none() | st.floats(-1e3, 1.0)))
    below, above = (demand.sum_and_slope(found.level + shift * (1.0 + abs(found.level)))[0] for shift in (-1e-9, 1e-9))

    assert below <= omega_g * (1.0 + 1e-9)
    assert above >= omega_g * (1.0 - 1e-9)
    assert (found.utilities() <= demand.utilities(np.inf)).all()
    assert (found.utilities() <= found.level).all()


@steady
@given(jobs=cases, level=st.floats(-1e4, 0.9), data=st.data())
def test_speeds_of_a_level_give_the_utility_of_that_level(jobs: list[Row], level: float, data: st.DataObject) -> None:
    arrays = a, b, r, _ = _columns(jobs)
    weights = np.array(data.draw(st.lists(importances, min_size=len(jobs), max_size=len(jobs))))
    demand = JobDemand(*arrays, importance=weights)

    reached = weighted((b - a / demand.omegas(level)) / r, weights)

    np.testing.assert_allclose(reached, demand.utilities(level), rtol=1e-6, atol=1e-6 * float((1.0 + abs(b / r)).max()))


@steady
@given(jobs=cases, low=st.floats(-1e4, 1.0), high=st.floats(-1e4, 1.0))
def test_a_higher_level_never_costs_less(jobs: list[Row], low: float, high: float) -> None:
    demand = JobDemand(*_columns(jobs))
    low, high = sorted((low, high))

    assert demand.sum_and_slope(low)[0] <= demand.sum_and_slope(high)[0] * (1.0 + 1e-14)
    assert demand.sum_and_slope(low)[1] >= 0.0


@steady
@given(jobs=cases, part=st.floats(1e-3, 1.5), data=st.data())
def test_jobs_that_want_nothing_change_nothing(jobs: list[Row], part: float, data: st.DataObject) -> None:
    plain = JobDemand(*_columns(jobs))
    idle = [(0.0, 5.0, 10.0, 0.0), (70.0, np.inf, np.inf, 7.0)]
    mixed = [*jobs, *idle]
    order = data.draw(st.permutations(range(len(mixed))))
    among = JobDemand(*_columns([mixed[i] for i in order]))
    omega_g = part * plain.full_mhz

    one, other = plain.solve(omega_g), among.solve(omega_g)

    assert other.level == pytest.approx(one.level, rel=1e-11, abs=1e-11)
    spread = dict(zip(order, other.omegas().tolist(), strict=True))
    np.testing.assert_allclose([spread[i] for i in range(len(jobs))], one.omegas(), rtol=1e-8)
    assert spread[len(jobs)] == 0.0
