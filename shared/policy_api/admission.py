"""What admission policies and policing see and answer: frozen values, pure Python (statistical-assurance.txt, sections
3 to 5). Units are those of the resource: servers, MHz or MiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.reservation import Calendar, Reservation, ServiceClass
from shared.values.scalars import check_name, not_negative, positive, whole

POOL_STEPS_MAX = 10_000
WINDOWS_MAX = 8  # widths of sliding windows, of each kind
UTC_OFFSET_MAX_S = 86_400.0


@dataclass(frozen=True, slots=True)
class PoolStep:
    """From `from_s` on (absolute seconds) a pool has `units`."""

    from_s: float
    units: int

    def __post_init__(self) -> None:
        if math.isnan(self.from_s):
            raise InvalidValue("from_s", self.from_s, "absolute seconds")
        whole("units", self.units, 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is of one resource, in units of size `unit`, over time: steps in their order; nothing before the first
    of them, the last one has no end."""

    resource: str
    steps: tuple[PoolStep, ...]
    unit: float = 1.0

    def __post_init__(self) -> None:
        check_name("resource", self.resource)
        positive("unit", self.unit)
        if not 1 <= len(self.steps) <= POOL_STEPS_MAX:
            raise InvalidValue("steps", len(self.steps), f"1 to {POOL_STEPS_MAX} of them")
        if any(after.from_s <= one.from_s for one, after in zip(self.steps, self.steps[1:], strict=False)):
            raise InvalidValue("steps", self.resource, "steps that each begin after the one before")

    def units_at(self, at_s: float) -> int:
        """Return the units available at an instant. O(steps)."""
        return next((step.units for step in reversed(self.steps) if step.from_s <= at_s), 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """A reservation and the related data. utc_offset_s: how far its local time is ahead of UTC. coupling: how far its
    demand was observed to vary with the others', the largest over the slots. It is the sum of its covariances with them
    divided by the sum of the largest that their profiles allow (comonotone); a value below 0 counts as 0. observations:
    the number of instances of a slot behind it (0: nothing is known, and the worst is assumed)."""

    reservation: Reservation
    utc_offset_s: float = 0.0
    coupling: float = 0.0
    observations: int = 0

    def __post_init__(self) -> None:
        if not abs(self.utc_offset_s) <= UTC_OFFSET_MAX_S:
            raise InvalidValue("utc_offset_s", self.utc_offset_s, "within a day")
        if not 0.0 <= self.coupling <= 1.0:
            raise InvalidValue("coupling", self.coupling, "from 0 to 1")
        whole("observations", self.observations, 0, 1 << 40)


class AdmissionOutcome(StrEnum):
    """What becomes of a reservation that is asked for."""

    ADMITTED = "admitted"
    OFFERED = "offered"  # not as it is; the largest share that fits is in the offer
    REFUSED = "refused"  # nothing of it fits


class AdmissionReason(StrEnum):
    """Why."""

    FITS = "fits"  # every promise holds with it
    NEEDS_NOTHING = "needs-nothing"  # it reserves nothing: all of it is best effort
    POOL_TOO_SMALL = "pool-too-small"  # with it a promise would be broken in the binding slot
    NO_POOL = "no-pool"  # there is no pool of a resource that it reserves
    OVER = "over"  # it is over before now
    CALENDARS = "calendars"  # its slots and those of the others have no common grid that is not too fine


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One class of service in one slot. theta: what it promises (1: guaranteed). needed: the least units with which it
    holds. left: what classes before it, by falling theta, leave it of the pool. reached: theta with these."""

    service_class: ServiceClass
    theta: float
    needed: int
    left: int
    reached: float


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """One resource in one slot of the grid, from `from_s` on until reservations or the pool change. units: the pool's.
    classes: by falling theta."""

    resource: str
    slot: int
    from_s: float
    units: int
    classes: tuple[ClassFigures, ...]

    @property
    def needed(self) -> int:
        """Units that all promises together need."""
        return sum(one.needed for one in self.classes)

    @property
    def best_effort(self) -> int:
        """Units that no promise needs."""
        return max(0, self.units - self.needed)


@dataclass(frozen=True, slots=True)
class Grid:
    """The slots that figures count: those of `calendar`, `slot_s` each, from midnight (of Monday, where the calendar
    knows days) of clocks `utc_offset_s` ahead of UTC. They suit every reservation that counts."""

    calendar: Calendar
    slot_s: float
    utc_offset_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a request fits least: the slot in which `needed` units, all promises together, exceed the `units` of the
    pool the most, or come nearest to them. service_class, theta: the lowest class that needs any there."""

    resource: str
    slot: int
    from_s: float
    service_class: ServiceClass
    theta: float
    needed: int
    units: int


@dataclass(frozen=True, slots=True)
class OfferedUnits:
    """How many units of each share, in their order, are offered of one resource, and how many were asked for: none
    counts more than the largest demand."""

    resource: str
    offered: tuple[int, ...]
    asked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """The largest share that fits: of each resource the first units of the demand, as many as fit; the rest is best
    effort. reservation: what to ask for, to have that."""

    reservation: Reservation
    units: tuple[OfferedUnits, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a request, and why. figures: of every resource and slot of the stretch of time that binds, with
    the request in it as far as it is admitted (ADMITTED: all of it, else nothing of it). binding: with all of it; None
    where it needs nothing or no pool could be asked. first_start_s: unless ADMITTED the first start at which all of it
    fits for as long as it is to last, None where there is none."""

    outcome: AdmissionOutcome
    reason: AdmissionReason
    grid: Grid
    figures: tuple[SlotFigures, ...] = ()
    binding: Binding | None = None
    offer: Offer | None = None
    first_start_s: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClassPrice:
    """The price of a server-hour of a class, in any currency. theta: of class predictable."""

    service_class: ServiceClass
    price: float
    theta: float = 0.0

    def __post_init__(self) -> None:
        not_negative("price", self.price)


@dataclass(frozen=True, slots=True)
class SplitShare:
    """One layer of a split: its class and bounds (units `first` to `first + units` of the demand), the unit-hours that
    it is expected to use in one period of the calendar, and what they cost."""

    service_class: ServiceClass
    theta: float
    first: int
    units: int
    unit_hours: float
    cost: float


@dataclass(frozen=True, slots=True)
class Split:
    """The cheapest way to share out one resource's demand among the classes. assured: the least mean part of its demand
    that is served, over the slots, when every class keeps its promise (best effort: nothing). peak_cost: what all of it
    guaranteed would cost."""

    resource: str
    shares: tuple[SplitShare, ...]
    assured: float
    cost: float
    peak_cost: float


class PoliceReason(StrEnum):
    """Why a request is entitled to no more units than it is (section 5)."""

    WITHIN = "within"  # all of it is entitled
    SURPLUS = "surplus"  # more than its shares reserve: the rest of its profile is best effort
    BEYOND_PEAK = "beyond-peak"  # more than its profile has in this slot
    HORIZONTAL = "horizontal"  # more than its slots together may use in a row
    VERTICAL = "vertical"  # more than this slot may use over its last instances


class SurplusUse(StrEnum):
    """What becomes of what a request is not entitled to."""

    BEST_EFFORT = "best-effort"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window of `width` slots, or of `width` instances of one slot. units[t]: how many may be used in it:
    horizontally by the window that begins with slot t, vertically by any window of instances of slot t."""

    width: int
    units: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What one application may use of one resource, by its observed days, head-room included. reserved: up to how many
    units its shares reserve; peaks: the largest demand of its profile in each slot."""

    reserved: int
    peaks: tuple[int, ...]
    horizontal: tuple[Window, ...]
    vertical: tuple[Window, ...]

    def __post_init__(self) -> None:
        whole("reserved", self.reserved, 0, 1 << 40)
        for windows, key in ((self.horizontal, "horizontal"), (self.vertical, "vertical")):
            if len(windows) > WINDOWS_MAX:
                raise InvalidValue(key, len(windows), f"at most {WINDOWS_MAX} windows")
            for window in windows:
                whole("width", window.width, 1, 1 << 20)
                if len(window.units) != len(self.peaks):
                    raise InvalidValue(key, len(window.units), f"{len(self.peaks)} slots, as there are peaks")


@dataclass(frozen=True, slots=True)
class Ledger:
    """What one application has used, as its windows need it; plain data. slot: where it is; used: its entitled units in
    this slot so far; recent: those of the slots before, and which `slots` they were, newest last; instances[t]: those
    of the instances of slot t before, newest last."""

    slot: int
    used: int
    recent: tuple[int, ...]
    slots: tuple[int, ...]
    instances: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class PoliceVerdict:
    """A request for `requested` units in all: `entitled` of its class, `surplus` as best effort, `rejected`. Where the
    reason is a window, `width` slots or instances may use `limit` units and have used `used` before this slot;
    otherwise `limit` is the bound that binds."""

    slot: int
    requested: int
    entitled: int
    surplus: int
    rejected: int
    reason: PoliceReason
    limit: float
    used: int = 0
    width: int = 0
