"""The cheapest classes of service for a demand (section 4: an application partitions its requests across the classes to
achieve what it needs while minimising its own costs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daemons.models.assurance.calendar import DAY_S
from daemons.models.assurance.loss import SLACK
from daemons.models.assurance.params import Params
from daemons.models.assurance.profile import Profile, from_demand
from shared.base.errors import InvalidValue
from shared.policy_api.admission import ClassPrice, Split, SplitShare
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import Calendar, ResourceDemand

_HOUR_S = 3_600.0
_WORKDAYS = 5


def cheapest_split(
    demand: ResourceDemand, calendar: Calendar, slot_s: float, assured: float, params: Mapping[str, Any]
) -> Split:
    """Return the cheapest split of one resource: guaranteed up to one bound, predictable with one of the thetas that
    have a price up to another, best effort above. In each slot, `assured` (above 0, at most 1) of the demand is served
    on average if every class meets its service level. The cost is the expected cost of a day (calendar workdays or
    hour-of-week: of a week).

    Exact: for each first bound the least sufficient second one is used; a later one costs no less, since prices fall
    with the service probability. Of splits with the same cost, the one that guarantees most. O(thetas x slots x units
    log units). Raises `InvalidValue` for `assured`, `InvalidInput` for the prices.
    """
    if not 0.0 < assured <= 1.0:
        raise InvalidValue("assured", assured, "above 0, at most 1")
    prices = Params.of(params).prices()
    profile, hours = from_demand(demand), _hours(calendar, slot_s, len(demand.slots))
    served, used = _served(profile), hours @ _used(profile)
    first, last = prices[0], prices[-1]
    found: list[tuple[float, int, int, ClassPrice]] = []
    for middle in prices[1:-1] or (first,):
        theta = middle.theta or 1.0
        ends = _least_ends(served, theta, assured)
        starts = np.flatnonzero(ends >= 0)
        cost = first.price * used[starts] + middle.price * (used[ends[starts]] - used[starts])
        cost = cost + last.price * (used[-1] - used[ends[starts]])
        near = np.flatnonzero(cost <= cost.min() + 1e-9 * max(1.0, abs(float(cost.min()))))
        best = int(near[-1])
        found.append((float(cost[best]), int(starts[best]), int(ends[starts[best]]), middle))
    _, start, end, middle = min(found, key=lambda one: (round(one[0], 9), -one[1], -one[3].theta))
    cuts = ((first, 0, start), (middle, start, end), (last, end, demand.peak))
    shares = tuple(
        SplitShare(price.service_class, price.theta, low, high - low, hours_used, price.price * hours_used)
        for price, low, high in cuts
        for hours_used in (float(used[high] - used[low]),)
    )
    theta = middle.theta or 1.0
    least = float(((1.0 - theta) * served[:, start] + theta * served[:, end]).min())
    return Split(demand.resource, shares, least, sum(share.cost for share in shares), first.price * float(used[-1]))


def _hours(calendar: Calendar, slot_s: float, slots: int) -> Floats:
    """Return the length of each slot, in hours of a day (hour-of-day) or of a week."""
    hours = np.full(slots, slot_s / _HOUR_S)
    if calendar is Calendar.WORKDAYS:
        per_day = int(DAY_S / slot_s)
        hours[:per_day] *= _WORKDAYS
        hours[per_day:] *= 7 - _WORKDAYS
    return hours


def _used(profile: Profile) -> Floats:
    """E[min(X, k)] for k = 0 .. units, float64[slots, units + 1]."""
    beyond = 1.0 - profile.pmf.cumsum(axis=1)[:, :-1]
    return np.concatenate([np.zeros((profile.slots, 1)), np.maximum(beyond, 0.0).cumsum(axis=1)], axis=1)


def _served(profile: Profile) -> Floats:
    """E[min(X, k) / X] for k = 0 .. units, no demand being served in full; float64[slots, units + 1]."""
    values = np.arange(1.0, profile.units + 1.0)
    per_unit = (profile.pmf[:, 1:] / values)[:, ::-1].cumsum(axis=1)[:, ::-1]
    served = np.concatenate([profile.pmf[:, :1], per_unit], axis=1).cumsum(axis=1)
    return np.asarray(np.minimum(served, 1.0), dtype=np.float64)


def _least_ends(served: Floats, theta: float, assured: float) -> Ints:
    """Return, for each first bound, the least second one with which every slot reaches `assured`; -1: none suffices."""
    units = served.shape[1]
    ends = np.arange(units)
    for row in served:
        wanted = (assured - SLACK - (1.0 - theta) * row) / theta
        ends = np.maximum(ends, np.searchsorted(row, wanted))
    return np.where(ends < units, ends, -1)
