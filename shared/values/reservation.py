"""Reservations: the demand that an environment or application announces, and the probability with which it is served
(statistical-assurance.txt, sections 3 to 5). No numpy here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.scalars import check_name, not_negative, positive, whole

DAY_S = 86_400.0
SLOTS_MAX = 2_016  # a week in slots of five minutes
DEMAND_MAX = 100_000  # units
RESOURCES_MAX = 8
SHARES_MAX = 8
SUM_ERROR_MAX = 1e-6
TIME_S_MAX = 2.5e11  # times of day are told up to the year 9999


class ServiceClass(StrEnum):
    """Resource access class of service (section 4)."""

    GUARANTEED = "guaranteed"  # theta = 1
    PREDICTABLE = "predictable"  # best effort with a stated assurance 0 < theta < 1
    BEST_EFFORT = "best-effort"  # theta = 0: what happens to be left


class Calendar(StrEnum):
    """Which instants are alike (section 3.1)."""

    HOUR_OF_DAY = "hour-of-day"  # every day is like any other
    WORKDAYS = "workdays"  # Monday to Friday alike, Saturday and Sunday alike: two days of slots
    HOUR_OF_WEEK = "hour-of-week"  # seven days of slots, from Monday


DAYS = {Calendar.HOUR_OF_DAY: 1, Calendar.WORKDAYS: 2, Calendar.HOUR_OF_WEEK: 7}


def slots_in(calendar: Calendar, slot_s: float) -> int:
    """Return the number of slots of `slot_s` in a calendar. Raises `InvalidValue` unless a day has a whole number of
    them, and for more than SLOTS_MAX."""
    positive("slot_s", slot_s)
    per_day = DAY_S / slot_s
    if per_day != int(per_day):
        raise InvalidValue("slot_s", slot_s, "a whole number of slots in a day of 86,400 s")
    count = int(per_day) * DAYS[calendar]
    if count > SLOTS_MAX:
        raise InvalidValue("slot_s", slot_s, f"at most {SLOTS_MAX} slots in all")
    return count


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """The distribution of the demand in one slot: probabilities of 0, 1, 2, ... units, and of how many observations
    they are made (0: declared, or nothing was observed)."""

    probabilities: tuple[float, ...]
    observations: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.probabilities) <= DEMAND_MAX + 1:
            raise InvalidValue("probabilities", len(self.probabilities), f"1 to {DEMAND_MAX + 1} of them")
        for one in self.probabilities:
            not_negative("probabilities", one)
        if abs(math.fsum(self.probabilities) - 1.0) > SUM_ERROR_MAX:
            raise InvalidValue("probabilities", math.fsum(self.probabilities), "probabilities that sum to 1")
        whole("observations", self.observations, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """The demand profile for one resource: "servers", "cpu" or "memory"; one entry per slot of the calendar. `unit`: of
    what size one unit is, in whole servers, MHz or MiB. layers: of how many units of this resource each share is, where
    that is not what the shares say."""

    resource: str
    slots: tuple[SlotDemand, ...]
    unit: float = 1.0
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_name("resource", self.resource)
        positive("unit", self.unit)
        if not 1 <= len(self.slots) <= SLOTS_MAX:
            raise InvalidValue("slots", len(self.slots), f"1 to {SLOTS_MAX} slots")
        for units in self.layers:
            whole("layers", units, 0, DEMAND_MAX)

    @property
    def peak(self) -> int:
        """The largest demand that has a probability, over all slots."""
        return max(_peak(slot.probabilities) for slot in self.slots)


def _peak(probabilities: tuple[float, ...]) -> int:
    return next(units for units in range(len(probabilities) - 1, -1, -1) if probabilities[units] > 0.0)


@dataclass(frozen=True, slots=True)
class Share:
    """A layer of a demand, of one class of service: so many units above those of the shares before it (None: all that
    are left). theta: the assurance of class predictable, above 0 and below 1; else it goes without saying."""

    service_class: ServiceClass
    units: int | None = None
    theta: float = 0.0

    def __post_init__(self) -> None:
        if self.units is not None:
            whole("units", self.units, 0, DEMAND_MAX)
        if self.service_class is ServiceClass.PREDICTABLE:
            if not 0.0 < self.theta < 1.0:
                raise InvalidValue("theta", self.theta, "above 0 and below 1; 1 is class guaranteed")
        elif self.theta != 0.0:
            raise InvalidValue("theta", self.theta, "nothing, but for class predictable")

    @property
    def promised(self) -> float:
        """What it promises: the part of what is asked for within it that is served at least, 0..1."""
        return {ServiceClass.GUARANTEED: 1.0, ServiceClass.BEST_EFFORT: 0.0}.get(self.service_class, self.theta)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of one environment or application, `name`. It holds from `start_s` on until `end_s` (None: without
    end), absolute seconds. The calendar's days have slots of `slot_s` in `timezone`, slot 0 begins at midnight.
    shares: in their order from the first unit on; the same layers for each resource, of which each counts its own
    units; what no share covers is best effort."""

    name: str
    demands: tuple[ResourceDemand, ...]
    shares: tuple[Share, ...]
    start_s: float = 0.0
    end_s: float | None = None
    calendar: Calendar = Calendar.HOUR_OF_DAY
    slot_s: float = 3_600.0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        check_name("name", self.name)
        not_negative("start_s", self.start_s)
        if self.start_s >= TIME_S_MAX:
            raise InvalidValue("start_s", self.start_s, f"before {TIME_S_MAX:g}")
        if self.end_s is not None and not self.start_s < self.end_s <= TIME_S_MAX:
            raise InvalidValue("end_s", self.end_s, f"after start_s = {self.start_s:g}, {TIME_S_MAX:g} at most")
        slots = slots_in(self.calendar, self.slot_s)
        if not 1 <= len(self.demands) <= RESOURCES_MAX:
            raise InvalidValue("demands", len(self.demands), f"1 to {RESOURCES_MAX} resources")
        for demand in self.demands:
            if len(demand.slots) != slots:
                raise InvalidValue("slots", len(demand.slots), f"{slots}, as the calendar has them")
        if len({demand.resource for demand in self.demands}) < len(self.demands):
            raise InvalidValue("demands", [demand.resource for demand in self.demands], "each resource once")
        if len(self.shares) > SHARES_MAX:
            raise InvalidValue("shares", len(self.shares), f"at most {SHARES_MAX}")
        if any(share.units is None for share in self.shares[:-1]):
            raise InvalidValue("shares", "units left out", "a number of units in all but the last")
        for demand in self.demands:
            if demand.layers and len(demand.layers) != len(self.shares):
                raise InvalidValue("layers", len(demand.layers), f"{len(self.shares)}, as there are shares")
