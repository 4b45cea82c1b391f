"""Verdicts on reservations: classes, offers, first starts, calendars, what is learnt, prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.models.assurance.coupling import LEVELS, measured, upper
from daemons.models.assurance.params import Params
from daemons.models.assurance.splits import cheapest_split
from daemons.policies.admission.peak import Peak
from daemons.policies.admission.statistical import Statistical
from shared.base.errors import InvalidInput, InvalidValue
from shared.policy_api.admission import (
    AdmissionOutcome,
    AdmissionReason,
    Binding,
    ClassFigures,
    OfferedUnits,
    Pool,
    PoolStep,
    Standing,
    Verdict,
)
from shared.values.reservation import Calendar, Reservation, ResourceDemand, ServiceClass, Share, SlotDemand
from tests.support.splits import reserved_by

HOUR_S = 3_600.0
DAY_S = 86_400.0
GUARANTEED = Share(ServiceClass.GUARANTEED)
PBE_90 = Share(ServiceClass.PREDICTABLE, None, 0.9)
PBE_99 = Share(ServiceClass.PREDICTABLE, None, 0.99)
EVEN = (0.0, 0.5, 0.5)  # one unit or two


def application(
    name: str,
    *slots: tuple[float, ...],
    shares: tuple[Share, ...] = (PBE_90,),
    start_s: float = 0.0,
    end_s: float | None = None,
    resource: str = "servers",
) -> Reservation:
    """With as many slots in its day as are given."""
    demand = ResourceDemand(resource, tuple(map(SlotDemand, slots)))
    return Reservation(name, (demand,), shares, start_s=start_s, end_s=end_s, slot_s=DAY_S / len(slots))


def pool(units: int, resource: str = "servers", *later: tuple[float, int]) -> Pool:
    """Of so many units, others later."""
    return Pool(resource, (PoolStep(0.0, units), *(PoolStep(*step) for step in later)))


def admitted(units: int, request: Reservation, *standing: Reservation, now_s: float = 0.0) -> Verdict:
    """The verdict of the statistical policy."""
    beside = [Standing(one) for one in standing]
    return Statistical().admit(Standing(request), beside, [pool(units)], now_s, {})[0]


def test_guaranteed_is_the_sum_of_peaks() -> None:
    """Two applications of at most two units: four, not what eq. 8 says at theta = 1."""
    mine = application("mine", EVEN, shares=(GUARANTEED,))
    other = application("other", EVEN, shares=(GUARANTEED,))
    verdict = admitted(4, mine, other)
    assert (verdict.outcome, verdict.reason) == (AdmissionOutcome.ADMITTED, AdmissionReason.FITS)
    assert verdict.figures[0].classes == (ClassFigures(ServiceClass.GUARANTEED, 1.0, 4, 4, 1.0),)
    verdict = admitted(3, mine, other)
    assert verdict.outcome is AdmissionOutcome.OFFERED
    assert verdict.offer is not None
    assert verdict.offer.units == (OfferedUnits("servers", (1,), (2,)),)
    assert verdict.binding == Binding("servers", 0, 0.0, ServiceClass.GUARANTEED, 1.0, 4, 3)


def test_what_is_new_is_taken_to_vary_with_all_others() -> None:
    """One unit or two each. Three units serve E[min(3 / Y, 1)] = 7/8 of both when they peak together, 15/16 when they
    are independent, as after many days side by side."""
    mine, other = Standing(application("mine", EVEN)), Standing(application("other", EVEN))
    verdict = Statistical().admit(mine, [other], [pool(3)], 0.0, {})[0]
    assert verdict.outcome is AdmissionOutcome.OFFERED
    known = [replace(each, observations=1_000) for each in (mine, other)]
    verdict = Statistical().admit(known[0], known[1:], [pool(3)], 0.0, {})[0]
    assert verdict.outcome is AdmissionOutcome.ADMITTED
    reached = verdict.figures[0].classes[1].reached
    assert reached == pytest.approx(15 / 16 - (1 / LEVELS) * (15 / 16 - 7 / 8))


def test_the_bound_of_a_coupling_falls_with_observations() -> None:
    """Wilson's: the worst without any, 9.9 % after 35 days without a trace of it, in steps."""
    assert upper(0.3, 0) == 1.0
    assert upper(0.0, 35) == 2 / LEVELS
    assert [upper(0.1, count) for count in (0, 5, 20, 100, 10_000)] == sorted(
        (upper(0.1, count) for count in (0, 5, 20, 100, 10_000)), reverse=True
    )
    assert upper(1.0, 10_000) == 1.0


def test_measured_coupling() -> None:
    """1 for those that rise and fall together, 0 for one that never varies or runs against the others."""
    together = np.array([[1, 2, 3, 4], [2, 4, 6, 8], [5, 5, 5, 5]])
    assert measured(together, np.zeros(4, dtype=int)) == pytest.approx(np.array([1.0, 1.0, 0.0]))
    against = np.array([[1, 2, 3, 4], [4, 3, 2, 1]])
    assert measured(against, np.zeros(4, dtype=int)).tolist() == [0.0, 0.0]
    by_slot = np.array([[1, 2, 1, 2], [1, 2, 2, 1]])  # together in the first slot alone
    assert measured(by_slot, np.array([0, 0, 1, 1])) == pytest.approx(np.array([1.0, 1.0]))


def test_higher_assurance_comes_first() -> None:
    """Of five units the guaranteed class needs one, theta 0.99 two, and 0.9 the two that are left."""
    high = application("high", (0.0, 0.0, 1.0), shares=(Share(ServiceClass.GUARANTEED, 1), PBE_99))
    low = application("low", (0.0, 0.0, 1.0))
    figures = admitted(5, low, high).figures[0]
    assert [(one.theta, one.needed, one.left) for one in figures.classes] == [(1.0, 1, 5), (0.99, 1, 4), (0.9, 2, 3)]
    assert (figures.needed, figures.best_effort) == (4, 1)
    assert admitted(3, low, high).offer is not None


def test_the_largest_share_is_cut_from_the_outside() -> None:
    """Of two guaranteed units and four predictable ones five fit: the layer above is cut, not the one below."""
    shares = (Share(ServiceClass.GUARANTEED, 2), PBE_99)
    request = application("mine", (0.0,) * 6 + (1.0,), shares=shares)
    verdict = admitted(5, request)
    assert verdict.offer is not None
    assert verdict.offer.units == (OfferedUnits("servers", (2, 3), (2, 4)),)
    assert admitted(5, verdict.offer.reservation).outcome is AdmissionOutcome.ADMITTED
    assert admitted(1, request).offer is not None
    assert admitted(0, request).outcome is AdmissionOutcome.REFUSED


def test_only_slots_that_it_asks_for_bind() -> None:
    """What is over the pool at night is no obstacle to what runs by day."""
    night = application("night", (0.0, 0.0, 0.0, 1.0), (1.0,), shares=(GUARANTEED,))
    day = application("day", (1.0,), (0.0, 0.0, 1.0), shares=(GUARANTEED,))
    verdict = admitted(2, day, night)
    assert verdict.outcome is AdmissionOutcome.ADMITTED
    assert verdict.binding is not None
    assert (verdict.binding.slot, verdict.binding.needed) == (1, 2)


def test_the_first_start_is_when_others_end_or_the_pool_grows() -> None:
    busy = application("busy", (0.0, 0.0, 1.0), shares=(GUARANTEED,), end_s=3 * DAY_S)
    request = application("mine", (0.0, 0.0, 1.0), shares=(GUARANTEED,), end_s=DAY_S)
    assert admitted(2, request, busy).first_start_s == 3 * DAY_S
    grows = pool(2, "servers", (2 * DAY_S, 4))
    verdict = Statistical().admit(Standing(request), [Standing(busy)], [grows], 0.0, {})[0]
    assert verdict.first_start_s == 2 * DAY_S
    assert admitted(1, request, busy).first_start_s is None


def test_a_short_request_waits_for_the_end_of_the_slot() -> None:
    """Six hours fit at night, between busy days: at 18:00, and not for ever."""
    busy = application("busy", (1.0,), (0.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0,), shares=(GUARANTEED,))
    short = application("mine", (0.0, 0.0, 1.0), shares=(GUARANTEED,), start_s=7 * HOUR_S, end_s=13 * HOUR_S)
    assert admitted(3, short, busy).first_start_s == 18 * HOUR_S
    assert admitted(3, replace(short, end_s=20 * HOUR_S), busy).first_start_s is None


def test_a_reservation_of_the_future_leaves_room_before_it() -> None:
    later = application("later", (0.0, 0.0, 1.0), shares=(GUARANTEED,), start_s=2 * DAY_S)
    request = application("mine", (0.0, 0.0, 1.0), shares=(GUARANTEED,), end_s=2 * DAY_S)
    assert admitted(2, request, later).outcome is AdmissionOutcome.ADMITTED
    assert admitted(2, replace(request, end_s=2 * DAY_S + 1.0), later).outcome is not AdmissionOutcome.ADMITTED


def test_calendars_and_clocks_differ() -> None:
    """Busy on workdays from midnight until noon, two hours ahead of UTC: there is room from Friday 10:00 UTC on."""
    slots = tuple(map(SlotDemand, [(0.0, 0.0, 1.0), (1.0,), (1.0,), (1.0,)]))
    demand = ResourceDemand("servers", slots)
    shares = (GUARANTEED,)
    week = Reservation("busy", (demand,), shares, calendar=Calendar.WORKDAYS, slot_s=DAY_S / 2)
    request = application("mine", *[(0.0, 0.0, 1.0)] * 24, shares=shares, start_s=0.0, end_s=2 * DAY_S)
    verdict = Statistical().admit(Standing(request), [Standing(week, 7_200.0)], [pool(3)], 0.0, {})[0]
    assert verdict.grid.calendar is Calendar.WORKDAYS
    assert verdict.first_start_s == DAY_S + 10 * HOUR_S  # 1970-01-02 was a Friday


def test_no_common_grid_is_too_fine() -> None:
    request = application("mine", *[(0.0, 1.0)] * 24)
    verdict = Statistical().admit(Standing(request), [Standing(request, 7.0)], [pool(9)], 0.0, {})[0]
    assert (verdict.outcome, verdict.reason) == (AdmissionOutcome.REFUSED, AdmissionReason.CALENDARS)


def test_what_reserves_nothing_is_welcome() -> None:
    best = application("mine", EVEN, shares=(Share(ServiceClass.BEST_EFFORT),))
    assert admitted(0, best).reason is AdmissionReason.NEEDS_NOTHING


def test_what_cannot_be_judged_is_refused() -> None:
    assert admitted(9, application("mine", EVEN, end_s=5.0), now_s=5.0).reason is AdmissionReason.OVER
    memory = application("mine", EVEN, resource="memory")
    verdict = admitted(9, memory)
    assert (verdict.reason, verdict.detail) == (AdmissionReason.NO_POOL, "memory")


def test_each_resource_has_its_own_share_and_unit() -> None:
    """Memory in units of 512 MiB from a pool of GiB: half as many, rounded up. It binds; servers do not."""
    servers = ResourceDemand("servers", (SlotDemand((0.0, 0.0, 1.0)),), layers=(2,))
    memory = ResourceDemand("memory", (SlotDemand((0.0,) * 5 + (1.0,)),), unit=512.0, layers=(5,))
    request = Reservation("mine", (servers, memory), (GUARANTEED,), slot_s=DAY_S)
    pools = [pool(2), Pool("memory", (PoolStep(0.0, 2),), 1_024.0)]
    verdict = Statistical().admit(Standing(request), [], pools, 0.0, {})[0]
    assert verdict.binding is not None
    assert (verdict.binding.resource, verdict.binding.needed) == ("memory", 3)
    assert verdict.offer is not None
    assert [one.offered for one in verdict.offer.units] == [(2,), (4,)]


def test_peaks_are_never_overbooked() -> None:
    """Ten applications that seldom peak: the statistical policy needs less than the sum of peaks, the other that."""
    seldom = (0.0, 0.9, 0.0, 0.0, 0.1)
    every = [Standing(application(f"a{at}", seldom), observations=1_000) for at in range(11)]
    found = {}
    for policy in (Statistical(), Peak()):
        figures = policy.admit(every[0], every[1:], [pool(99)], 0.0, {})[0].figures
        found[policy.name] = figures[0].needed
    assert found["peak"] == 44
    assert found["statistical"] < 22


def test_figures_of_what_stands() -> None:
    """As it is at an instant, with what is left for best effort; nothing stands: all is left."""
    mine = Standing(application("mine", EVEN, (1.0,), end_s=DAY_S))
    policy = Statistical()
    (grid, figures), memory = policy.figures([mine], [pool(3)], 0.0, {})
    assert grid.slot_s == DAY_S / 2
    assert [(one.needed, one.best_effort) for one in figures] == [(2, 1), (0, 3)]
    again, _ = policy.figures([mine], [pool(3)], 0.0, {}, memory)
    assert again == (grid, figures)
    (_, later), _ = policy.figures([mine], [pool(3)], DAY_S, {})
    assert {one.best_effort for one in later} == {3}


def test_cheapest_split() -> None:
    """One unit nine times of ten, else five. 0.96 of it is to be served: one unit guaranteed serves 0.92; that and one
    with theta 0.5 serve 0.93, with two 0.94, with four 0.96."""
    demand = ResourceDemand("servers", (SlotDemand((0.0, 0.9, 0.0, 0.0, 0.0, 0.1)),))
    prices = {"guaranteed": 1.0, "predictable": [[0.5, 0.2]], "best_effort": 0.1}
    split = cheapest_split(demand, Calendar.HOUR_OF_DAY, DAY_S, 0.96, prices)
    assert [(share.first, share.units) for share in split.shares] == [(0, 1), (1, 4), (5, 0)]
    assert [share.unit_hours for share in split.shares] == pytest.approx([24.0, 9.6, 0.0])
    assert split.assured == pytest.approx(0.96)
    assert split.cost == pytest.approx(24.0 + 0.2 * 9.6)
    assert split.peak_cost == pytest.approx(33.6)
    less = cheapest_split(demand, Calendar.HOUR_OF_DAY, DAY_S, 0.9, prices)
    assert [share.units for share in less.shares] == [1, 0, 4]  # 0.92 is served without any promise above it


def test_a_split_becomes_a_reservation() -> None:
    request = application("mine", (0.0, 0.9, 0.0, 0.0, 0.0, 0.1))
    prices = {"guaranteed": 1.0, "predictable": [[0.5, 0.2]], "best_effort": 0.1}
    split = cheapest_split(request.demands[0], request.calendar, request.slot_s, 0.96, prices)
    made = reserved_by(request, (split,))
    assert made.shares == (Share(ServiceClass.GUARANTEED, 1), Share(ServiceClass.PREDICTABLE, 4, 0.5))
    assert admitted(5, made).outcome is AdmissionOutcome.ADMITTED
    other = replace(split, shares=(split.shares[0], replace(split.shares[1], theta=0.9), split.shares[2]))
    two = replace(request, demands=(*request.demands, replace(request.demands[0], resource="memory")))
    with pytest.raises(InvalidValue, match="theta"):
        reserved_by(two, (split, other))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"cheap": 1}, "there is no such parameter"),
        ({"predictable": [[1.0, 0.5]]}, "predictable: theta: 1.0 cannot be promised"),
        ({"predictable": [[0.9]]}, "a list of"),
        ({"predictable": [[0.9, 0.5], [0.9, 0.4]]}, "each theta once"),
        ({"predictable": [[0.9, -1.0]]}, "price"),
        ({"guaranteed": float("nan")}, "guaranteed"),
        ({"best_effort": 0.9}, "prices that do not rise"),
    ],
)
def test_bad_prices_are_refused(params: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Statistical().check_params(params)


def test_prices_are_sorted() -> None:
    prices = Params.of({"predictable": [[0.9, 0.4], [0.99, 0.5]]}).prices()
    assert [(one.theta, one.price) for one in prices] == [(0.0, 1.0), (0.99, 0.5), (0.9, 0.4), (0.0, 0.2)]


def test_a_promise_of_one_is_no_class_predictable() -> None:
    with pytest.raises(InvalidValue, match="theta"):
        Share(ServiceClass.PREDICTABLE, 1, 1.0)
    with pytest.raises(InvalidValue, match="assured"):
        cheapest_split(application("mine", EVEN).demands[0], Calendar.HOUR_OF_DAY, DAY_S, 1.5, {})
    with pytest.raises(InvalidValue, match="layers"):
        Reservation("mine", (ResourceDemand("servers", (SlotDemand((1.0,)),), layers=(1, 2)),), (PBE_90,), slot_s=DAY_S)
    with pytest.raises(InvalidValue, match="steps"):
        Pool("servers", (PoolStep(1.0, 1), PoolStep(1.0, 2)))
    with pytest.raises(InvalidValue, match="coupling"):
        Standing(application("mine", EVEN), coupling=-0.5)
