"""What was measured of environments' demand, day by day, and the profiles that are made of it
(statistical-assurance.txt section 3.1). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.models.assurance.build import UNOBSERVED, profile_of
from daemons.models.assurance.calendar import slot_of_instance, slots_per_day
from daemons.models.assurance.profile import to_demand
from daemons.values.records.assurance import DemandDay
from shared.policy_api.snapshot import Ints
from shared.values.agreement import AssuranceTerms
from shared.values.reservation import Calendar, SlotDemand

DAYS_KEPT = 90
MADE_DAYS = 30  # of a profile that was declared without saying of how many days it is
MADE_DAYS_MAX = 90


def slot_of(instance: int, calendar: Calendar, per_day: int) -> int:
    """Return the slot of one slot instance, see `daemons.models.assurance.calendar.slot_of_instance`."""
    day, within = divmod(instance, per_day)
    weekday = (day + 3) % 7  # 1970-01-01 was a Thursday
    if calendar is Calendar.HOUR_OF_DAY:
        return within
    if calendar is Calendar.HOUR_OF_WEEK:
        return weekday * per_day + within
    return within if weekday < 5 else per_day + within


def with_demand(days: Sequence[DemandDay], instance: int, per_day: int, asked: int) -> tuple[DemandDay, ...]:
    """Return the days with the largest demand of a slot instance added. An instance that occurred twice keeps the
    larger demand. The oldest days are dropped."""
    number, within = divmod(instance, per_day)
    known = {day.day: day for day in days}
    before = known[number].asked if number in known else (UNOBSERVED,) * per_day
    row = (*before[:within], max(before[within], asked), *before[within + 1 :])
    known[number] = DemandDay(number, row)
    kept = sorted(known)[-DAYS_KEPT:]
    return tuple(known[each] for each in kept)


def series(days: Sequence[DemandDay], per_day: int) -> tuple[Ints, Ints]:
    """Return the observed slot instances in ascending order, and the demand in each."""
    if not days:
        none = np.empty(0, dtype=np.int64)
        return none, none
    table = np.array([day.asked for day in days], dtype=np.int64)
    first = np.array([day.day for day in days], dtype=np.int64) * per_day
    instances = (first[:, None] + np.arange(per_day)).reshape(-1)
    demand = table.reshape(-1)
    seen = demand != UNOBSERVED
    return instances[seen], demand[seen]


def demand_from(days: Sequence[DemandDay], terms: AssuranceTerms) -> tuple[SlotDemand, ...]:
    """Return the demand that terms announce where they take it from history; empty where nothing was observed. A slot
    that was never observed counts as one at the peak."""
    instances, demand = series(days, slots_per_day(terms.slot_s))
    if not demand.size:
        return ()
    slots = slot_of_instance(instances, terms.calendar, terms.slot_s)
    profile, _ = profile_of(demand.astype(np.int32), slots, terms.slots)
    return to_demand(profile).slots


def made_series(demand: Sequence[SlotDemand]) -> tuple[Ints, Ints]:
    """Slot instances that a declared demand stands for, in the order of time: the demand in each, and its slot."""
    days = made_days(demand)
    return days.reshape(-1), np.tile(np.arange(days.shape[1]), len(days))


def made_days(demand: Sequence[SlotDemand]) -> Ints:
    """Days that a declared demand stands for [days, slots]: in each slot every value as often as its probability says,
    all slots high on the same days, and days with much and little demand in turn."""
    told = min((slot.observations for slot in demand), default=0)
    count = min(told, MADE_DAYS_MAX) if told >= MADE_DAYS else MADE_DAYS
    levels = (np.arange(count) + 0.5) / count
    order = np.argsort((np.arange(count) * _stride(count)) % count, kind="stable")
    columns = []
    for slot in demand:
        reached = np.cumsum(slot.probabilities)
        values = np.minimum(np.searchsorted(reached, levels - 1e-12), len(slot.probabilities) - 1)
        columns.append(values[order])
    return np.array(columns, dtype=np.int64).T.reshape(count, len(demand))


def _stride(count: int) -> int:
    """Return a step coprime with the count and near its golden section, which spreads sorted items."""
    step = max(1, round(count * 0.382))
    while np.gcd(step, count) != 1:
        step += 1
    return step
