"""Entitlements, sliding windows and what is said of a request (statistical-assurance.txt, sections 5 and 6.5)."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.assurance.policing import (
    advanced,
    entitlement,
    horizontal_share,
    limits,
    opened,
    police,
    policed,
    share_pools,
    shortest_window,
    vertical_share,
)
from shared.base.errors import InvalidValue
from shared.policy_api.admission import Entitlement, Ledger, PoliceReason, SurplusUse, Window
from shared.policy_api.snapshot import Ints


def series(days: list[list[int]]) -> tuple[Ints, Ints]:
    """The demand of whole days, and which slot each was."""
    whole = np.array(days)
    return whole.reshape(-1), np.tile(np.arange(whole.shape[1]), len(whole))


DAYS = [[1, 2, 4], [3, 2, 1], [2, 2, 2]]


def test_shares_of_windows() -> None:
    """Peaks 3, 2, 4: in a row 2 + 4 of 6, and across midnight 4 + 3 of 7; of slot 0 five of six within two days."""
    days = np.array(DAYS)
    assert horizontal_share(days, 2) == pytest.approx(np.array([5 / 5, 6 / 6, 7 / 7]))
    assert horizontal_share(days, 3) == pytest.approx(np.array([7 / 9, 9 / 9, 9 / 9]))
    assert vertical_share(days, 2) == pytest.approx(np.array([5 / 6, 4 / 6, 5 / 7]))
    assert shortest_window(days, 0.5).tolist() == [1, 2, 1]
    assert shortest_window(days, 1.0).tolist() == [3, 3, 3]


def test_entitlement_is_what_was_observed_at_most() -> None:
    """Without head-room: windows in a row by their first slot, and the sum of all days."""
    found = entitlement(*series(DAYS), peaks=(3, 2, 4), headroom=0.0, horizontal=(2,))
    assert found.horizontal == (Window(2, (5.0, 6.0, 7.0)),)
    assert found.vertical == (Window(3, (6.0, 6.0, 7.0)),)
    assert (found.reserved, found.peaks) == (4, (3, 2, 4))


def test_headroom_counts_standard_deviations() -> None:
    """Two of them on the sum of three days of slot 0 (mean 2, variance 2/3), none on what never varies."""
    found = entitlement(*series(DAYS), peaks=(3, 2, 4), headroom=2.0, horizontal=())
    assert found.vertical[0].units == pytest.approx((6.0 + 2.0 * 2.0**0.5, 6.0, 7.0 + 2.0 * (14.0 / 3.0) ** 0.5))


def test_slots_seen_unequally_often_have_two_windows() -> None:
    """Five workdays and two days of a weekend: windows of two and of five instances; the longer says nothing of what
    was seen twice."""
    slots = np.array([0, 0, 0, 0, 0, 1, 1])
    found = entitlement(np.array([1, 2, 1, 2, 1, 4, 5]), slots, peaks=(2, 5), headroom=0.0, horizontal=())
    assert found.vertical == (Window(2, (3.0, 9.0)), Window(5, (7.0, 25.0)))


def test_a_window_begins_with_the_slot_that_came_first() -> None:
    """On a calendar of workdays the slot before a Saturday's first is a Friday's last, or the weekend's own."""
    entitled = Entitlement(9, (9, 9), (Window(2, (6.0, 15.0)),), ())
    assert police(entitled, Ledger(1, 0, (4,), (0,), ((), ())), 5)[0].entitled == 2  # after slot 0: 6 - 4
    assert police(entitled, Ledger(1, 0, (4,), (1,), ((), ())), 5)[0].entitled == 5  # after slot 1: 15 - 4


@pytest.mark.parametrize(
    ("requested", "entitled", "reason", "limit", "used", "width"),
    [
        (2, 2, PoliceReason.WITHIN, 5.0, 0, 0),
        (4, 3, PoliceReason.HORIZONTAL, 7.0, 4, 2),
        (6, 3, PoliceReason.HORIZONTAL, 7.0, 4, 2),
    ],
)
def test_verdicts_of_a_window_in_a_row(
    requested: int, entitled: int, reason: PoliceReason, limit: float, used: int, width: int
) -> None:
    whole = Entitlement(5, (5, 5), (Window(2, (7.0, 9.0)),), ())
    verdict, ledger = police(whole, Ledger(1, 0, (4,), (0,), ((), ())), requested)
    assert (verdict.entitled, verdict.reason, verdict.limit) == (entitled, reason, limit)
    assert (verdict.used, verdict.width, verdict.surplus) == (used, width, requested - entitled)
    assert ledger.used == entitled


def test_each_bound_has_its_reason() -> None:
    """The tightest is told; what is beyond it is best effort, or rejected."""
    ledger = Ledger(0, 0, (), (), ((3, 3),))
    by_days = Entitlement(9, (8,), (), (Window(3, (10.5,)),))
    verdict = police(by_days, ledger, 7, SurplusUse.REJECTED)[0]
    assert (verdict.entitled, verdict.surplus, verdict.rejected) == (4, 0, 3)
    assert (verdict.reason, verdict.used, verdict.width) == (PoliceReason.VERTICAL, 6, 3)
    free = Entitlement(9, (8,), (), ())
    assert police(free, ledger, 9)[0].reason is PoliceReason.BEYOND_PEAK
    assert police(Entitlement(5, (8,), (), ()), ledger, 8)[0].reason is PoliceReason.SURPLUS
    assert police(by_days, Ledger(0, 0, (), (), ((9, 9),)), 1)[0].entitled == 0


def test_what_was_entitled_counts_once_in_a_slot() -> None:
    """Two requests in one slot: the larger is what it used, and moves into the windows with the next slot."""
    entitled = Entitlement(9, (9, 9), (Window(3, (20.0, 20.0)),), (Window(3, (20.0, 20.0)),))
    ledger = opened(entitled, *series([[1, 2], [3, 4]]), 0)
    assert ledger == Ledger(0, 0, (3, 4), (0, 1), ((1, 3), (2, 4)))
    _, ledger = police(entitled, ledger, 6)
    _, ledger = police(entitled, ledger, 5)
    ledger = advanced(entitled, ledger, 1)
    assert ledger == Ledger(1, 0, (4, 6), (1, 0), ((3, 6), (2, 4)))


def test_pools_are_shared_by_priority() -> None:
    """The higher class takes 3 of the 5 that no promise needs, so the lower one is left with 2 of them."""
    served = share_pools(np.array([13, 30]), np.array([10, 20]), np.array([12, 23]))
    assert served.tolist() == [13, 22]
    assert share_pools(np.array([20, 30]), np.array([10, 20]), np.array([12, 23])).tolist() == [15, 20]
    assert share_pools(np.array([2, 30]), np.array([10, 20]), np.array([12, 23])).tolist() == [2, 25]


def test_headroom_spares_honest_applications_and_holds_back_bad_ones() -> None:
    """Demands drawn from the observed days: honest ones lose at most 0.5 %; of those that ask for their peak all the
    time the windows leave what others would have used, and a third of that."""
    rng = np.random.default_rng(3)
    observed = rng.choice([2, 3, 4, 6], p=[0.4, 0.3, 0.2, 0.1], size=(35, 6, 20))
    drawn = rng.integers(0, 35, size=(200, 20))
    honest = np.stack([observed[drawn[:, at], :, at] for at in range(20)], axis=2)
    allowed = limits(observed, horizontal=(3,))
    assert 1.0 - policed(honest, allowed, observed).sum() / honest.sum() <= 0.005
    bad = np.broadcast_to(observed.max(axis=0), honest.shape)
    assert policed(bad, allowed, observed)[50:].sum() <= 1.35 * honest[50:].sum()
    tight = limits(observed, headroom=0.0, horizontal=(3,))
    assert 1.0 - policed(honest, tight, observed).sum() / honest.sum() > 0.02


@pytest.mark.parametrize(
    ("demand", "slots", "key"),
    [
        ([1.5, 2.0], [0, 0], "observed"),
        ([-1, 2], [0, 0], "observed"),
        ([1, 2], [0, 3], "slots"),
        ([1], [0, 0], "slots"),
    ],
)
def test_bad_series_are_refused(demand: list[float], slots: list[int], key: str) -> None:
    with pytest.raises(InvalidValue, match=key):
        entitlement(np.array(demand), np.array(slots), peaks=(2, 2))


def test_bad_limits_are_refused() -> None:
    with pytest.raises(InvalidValue, match="width"):
        limits(np.ones((3, 2), dtype=int), vertical=(4,))
    with pytest.raises(InvalidValue, match="headroom"):
        limits(np.ones((3, 2), dtype=int), headroom=-1.0)


def test_without_observations_peaks_alone_bound() -> None:
    none = np.zeros(0, dtype=int)
    entitled = entitlement(none, none, peaks=(3, 2), horizontal=(2,))
    assert (entitled.vertical, entitled.horizontal) == ((), (Window(2, (6.0, 6.0)),))
    assert police(entitled, opened(entitled, none, none, 1), 5)[0].entitled == 2
