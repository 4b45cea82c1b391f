"""Admission against what is written out: sums, splits, windows."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.assurance.params import Params
from daemons.models.assurance.policing import Limits, WindowLimits, advanced, limits, opened, police, policed
from daemons.models.assurance.profile import Profile
from daemons.models.assurance.splits import cheapest_split
from daemons.policies.admission.sums import PeakSum, StatisticalSum
from shared.policy_api.admission import Entitlement, Window
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import Calendar, ResourceDemand, SlotDemand
from tests.extent import examples

SEEDS = st.integers(0, 1 << 30)
DAY_S = 86_400.0


def profiles(rng: np.random.Generator, count: int, slots: int = 2, units: int = 4) -> list[Profile]:
    """Random ones, some of which never vary."""
    found = []
    for _ in range(count):
        pmf = rng.dirichlet(np.full(int(rng.integers(1, units + 1)), 0.6), size=slots)
        found.append(Profile(pmf / pmf.sum(axis=1, keepdims=True), np.zeros(slots, dtype=np.int64)))
    return found


def by_hand(every: list[Profile], couplings: list[float], slot: int) -> tuple[Floats, float]:
    """theta of 0, 1, 2 .. units, and the variance that the couplings say, from joint distributions written out."""
    rows = [each.pmf[slot] for each in every]
    peak = sum(len(row) - 1 for row in rows)
    apart = np.zeros(peak + 1)
    for demands in product(*(range(len(row)) for row in rows)):
        apart[sum(demands)] += np.prod([row[demand] for row, demand in zip(rows, demands, strict=True)])
    edges = sorted({0.0, 1.0, *(min(1.0, float(at)) for row in rows for at in row.cumsum())})
    together = np.zeros(peak + 1)
    draws = [(low + (high - low) / 2.0, high - low) for low, high in pairwise(edges)]
    demands_at = np.array([[min(int((row.cumsum() < at).sum()), len(row) - 1) for row in rows] for at, _ in draws])
    for demand, (_, chance) in zip(demands_at.sum(axis=1), draws, strict=True):
        together[demand] += chance
    chances = np.array([chance for _, chance in draws])
    apart_from_mean = demands_at - chances @ demands_at
    covariances = (apart_from_mean * chances[:, None]).T @ apart_from_mean
    pairs = 2.0 * np.triu(covariances, 1)
    coupled = float((pairs * np.maximum.outer(couplings, couplings)).sum())
    most = float(pairs.sum())
    weight = coupled / most if most > 1e-9 else 1.0
    units = np.arange(peak + 1)
    thetas = [_thetas(pmf, units) for pmf in (apart, together)]
    return (1.0 - weight) * thetas[0] + weight * np.minimum(*thetas), coupled


def _thetas(pmf: Floats, units: Ints) -> Floats:
    served = np.minimum(1.0, units[:, None] / np.maximum(np.arange(len(pmf)), 1))
    served[:, 0] = 1.0
    found: Floats = served @ pmf
    return found


@settings(max_examples=examples(40))
@given(SEEDS, st.floats(0.05, 0.999))
def test_sums_are_what_is_written_out(seed: int, theta: float) -> None:
    """Added one by one, all at once, and with other couplings first: theta of any units, the least units of theta."""
    rng = np.random.default_rng(seed)
    every = profiles(rng, int(rng.integers(1, 5)))
    couplings = rng.choice([0.0, 0.25, 0.5, 1.0], size=len(every)).tolist()
    whole = StatisticalSum.of(2, every, couplings)
    others = StatisticalSum.of(2, every, [1.0] * len(every)).recoupled(couplings)
    grown = StatisticalSum.of(2, [], [])
    for each, coupling in zip(every, couplings, strict=True):
        grown = grown.added(each, coupling)
        grown.needed(theta)
    for slot in range(2):
        expected, coupled = by_hand(every, couplings, slot)
        for found in (whole, others, grown):
            assert found.coupled[slot] == pytest.approx(coupled, abs=1e-9)
            for units in range(len(expected)):
                assert found.reached(np.full(2, units))[slot] == pytest.approx(expected[units], abs=1e-9)
            needed = int(found.needed(theta)[slot])
            assert expected[needed] >= theta - 1e-9
            assert needed == 0 or expected[needed - 1] < theta + 1e-9


@settings(max_examples=examples(40))
@given(SEEDS)
def test_more_demand_never_needs_less(seed: int) -> None:
    """One application more, of which nothing is known, and never more than the sum of peaks."""
    rng = np.random.default_rng(seed)
    every = profiles(rng, 4)
    found = StatisticalSum.of(2, every[:3], [0.25, 0.0, 0.5])
    more = found.added(every[3], 1.0)
    for theta in (0.5, 0.9, 0.999):
        assert (more.needed(theta) >= found.needed(theta)).all()
        assert (more.needed(theta) <= PeakSum.of(2, every, ()).needed(theta)).all()


@settings(max_examples=examples(60))
@given(SEEDS, st.floats(0.3, 1.0), st.sampled_from(list(Calendar)))
def test_splits_are_the_cheapest(seed: int, assured: float, calendar: Calendar) -> None:
    """Against all pairs of bounds and all thetas."""
    rng = np.random.default_rng(seed)
    slots = {Calendar.HOUR_OF_DAY: 2, Calendar.WORKDAYS: 4, Calendar.HOUR_OF_WEEK: 14}[calendar]
    pmf = rng.dirichlet(np.full(int(rng.integers(1, 7)), 0.7), size=slots)
    pmf /= pmf.sum(axis=1, keepdims=True)
    demand = ResourceDemand("servers", tuple(SlotDemand(tuple(map(float, row))) for row in pmf))
    params = {"guaranteed": 1.0, "predictable": [[0.9, float(rng.uniform(0.3, 1.0))], [0.5, 0.3]], "best_effort": 0.1}
    found = cheapest_split(demand, calendar, DAY_S / 2, assured, params)
    days = np.repeat([5.0, 2.0], 2) if calendar is Calendar.WORKDAYS else np.ones(slots)
    units = np.arange(pmf.shape[1])
    prices, best = Params.of(params), float("inf")
    for (theta, price), low, high in product(prices.predictable, units, units):
        guaranteed, reserved = np.minimum(units, low), np.minimum(units, max(low, high))
        served = (guaranteed + theta * (reserved - guaranteed)) / np.maximum(units, 1)
        served[0] = 1.0
        if (pmf @ served).min() >= assured - 1e-9:
            hourly = prices.guaranteed * guaranteed + price * (reserved - guaranteed)
            best = min(best, float(days @ pmf @ (hourly + prices.best_effort * (units - reserved))) * 12.0)
    assert found.cost == pytest.approx(best, abs=1e-6)
    assert found.assured >= assured - 1e-9
    assert sum(share.unit_hours for share in found.shares) == pytest.approx(float(days @ pmf @ units) * 12.0)


@settings(max_examples=examples(40))
@given(SEEDS)
def test_windows_are_recounted(seed: int) -> None:
    """Day after day: all at once, request after request with a ledger, and by adding up whatever was granted before."""
    rng = np.random.default_rng(seed)
    days, slots = int(rng.integers(3, 7)), int(rng.integers(1, 4))
    observed, demand = rng.integers(0, 5, size=(days, slots)), rng.integers(0, 6, size=(9, slots))
    rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, days + 1))
    found = limits(observed, float(rng.uniform(0.0, 2.0)), (min(rows, days * slots),), (columns,))
    whole = policed(demand, found, observed)
    entitled = _entitled(found)
    ledger = opened(entitled, observed.reshape(-1), np.tile(np.arange(slots), days), 0)
    granted = [int(units) for units in observed.reshape(-1)]
    for at, wanted in enumerate(demand.reshape(-1).tolist()):
        verdict, ledger = police(entitled, ledger, wanted)
        assert verdict.entitled == whole.reshape(-1)[at] == _naive(found, granted, slots, wanted)
        granted.append(verdict.entitled)
        ledger = advanced(entitled, ledger, (at + 1) % slots)


def _entitled(found: Limits) -> Entitlement:
    def windows(every: tuple[WindowLimits, ...]) -> tuple[Window, ...]:
        return tuple(Window(one.width, tuple(one.units.tolist())) for one in every)

    return Entitlement(99, tuple(found.peaks.tolist()), windows(found.horizontal), windows(found.vertical))


def _naive(found: Limits, granted: list[int], slots: int, wanted: int) -> int:
    """The most that may be granted now, tried from above."""
    slot = len(granted) % slots
    for units in range(min(wanted, int(found.peaks[slot])), 0, -1):
        series = [*granted, units]
        row, column = found.horizontal[0], found.vertical[0]
        first = (len(series) - row.width) % slots
        in_a_row = sum(series[len(series) - row.width :]) <= row.units[first] + 1e-9
        if in_a_row and sum(series[slot::slots][-column.width :]) <= column.units[slot] + 1e-9:
            return units
    return 0
