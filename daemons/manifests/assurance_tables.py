"""The table [assurance] of an agreement: classes of service with their shares, and the demand that they are shares of,
declared slot by slot, read from a CSV file, or as it was measured (docs/explanation/assurance.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from daemons.manifests.demand import demand_of
from daemons.values.calendar import check_zone, local_text, moment, seconds_of_day
from shared.base.errors import InvalidValue
from shared.config.records import Form, Range
from shared.values.agreement import AssuranceTerms
from shared.values.reservation import DEMAND_MAX, SHARES_MAX, Calendar, ServiceClass, Share, SlotDemand, slots_in

HISTORY = "history"
CHANCES_ERROR_MAX = 1e-6
MOMENT = r"([0-9]{4}-[0-9]{2}-[0-9]{2}( ([01][0-9]|2[0-3]):[0-5][0-9])?)?"
Moment = Annotated[str, Form(MOMENT, "a local time such as 2026-12-01 08:00, or nothing")]
Units = Annotated[int, Range(0, DEMAND_MAX)]


@dataclass(frozen=True, slots=True)
class ShareTable:
    """A layer of the demand with its service class. Layers follow one another from the first unit."""

    class_: ServiceClass
    """Service class of the layer. Example: `"guaranteed"`."""
    units: Units | None = None
    """Units of the layer. Left out in the last share: all remaining units. Example: `2`."""
    theta: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Service probability of the class `predictable`: the mean part of the demand that is served. 0 for the other
    classes."""


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The demand in a range of slots of the calendar."""

    first: Annotated[int, Range(0, 100_000)]
    """First slot of the range. Slot 0 begins at midnight. Example: `0`."""
    units: tuple[Units, ...]
    """Possible numbers of units. Example: `[0, 1]`."""
    last: Annotated[int, Range(0, 100_000)] | None = None
    """Last slot of the range. Left out: the first slot alone. Example: `23`."""
    chances: tuple[Annotated[float, Range(0.0, 1.0)], ...] = ()
    """Probability of each number of units; they sum to 1. Empty: all are equally likely."""


@dataclass(frozen=True, slots=True)
class AssuranceTable:
    """The reservation of the environment. It has an effect where the provider has an admission policy."""

    share: tuple[ShareTable, ...]
    demand: Annotated[str, Form(r"[^\0]{0,1000}", "a CSV file, or history")] = ""
    """CSV file of the demand, beside this file, or `history` for the measured demand. Empty: tables
    `[[assurance.slot]]`."""
    slot: tuple[SlotTable, ...] = ()
    calendar: Calendar = Calendar.HOUR_OF_DAY
    """Slots that are alike: those of every day, of workdays and weekends, or of every week."""
    slot_s: Annotated[float, Range(60.0, 86_400.0)] = 3_600.0
    """Length of a slot."""
    timezone: Annotated[str, Form(r"[A-Za-z0-9_+/-]{1,64}", "a time zone such as Europe/Berlin")] = "UTC"
    """Time zone of the slots and of `start` and `end`."""
    start: Moment = ""
    """Local time at which the reservation begins. Empty: at once."""
    end: Moment = ""
    """Local time at which the reservation ends. Empty: never."""


# --- how keys relate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharesFit:
    """There are 1 to 8 tables `[[assurance.share]]`. Only the last may leave out `units`, and only the class
    `predictable` has `theta`."""

    key: str = "assurance.share"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        found: Sequence[ShareTable] | None = values.get(self.key)
        if found is None:
            return ""
        if not 1 <= len(found) <= SHARES_MAX:
            return f"1 to {SHARES_MAX} tables [[assurance.share]]"
        if any(share.units is None for share in found[:-1]):
            return "units in all shares but the last"
        try:
            _shares(found)
        except InvalidValue as problem:
            return f"{problem.field} {problem.expected}"
        return ""


@dataclass(frozen=True, slots=True)
class DemandGiven:
    """The demand is given by `assurance.demand` or by tables `[[assurance.slot]]`, not by both."""

    key: str = "assurance.demand"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        demand, slots = values.get(self.key), values.get("assurance.slot")
        if demand is None or slots is None or bool(demand) is not bool(slots):
            return ""
        return "nothing beside tables [[assurance.slot]]" if demand else 'a CSV file, "history", or [[assurance.slot]]'


@dataclass(frozen=True, slots=True)
class SlotsCover:
    """Tables `[[assurance.slot]]` cover every slot of the calendar, each once."""

    key: str = "assurance.slot"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        found = values.get(self.key)
        try:
            count = slots_in(values["assurance.calendar"], values["assurance.slot_s"])
        except (KeyError, InvalidValue):
            return ""
        return _uncovered(found, count) if found else ""


@dataclass(frozen=True, slots=True)
class WholeSlots:
    """`key` divides a day into a whole number of slots."""

    key: str = "assurance.slot_s"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        try:
            slots_in(Calendar.HOUR_OF_DAY, values.get(self.key, 3_600.0))
        except InvalidValue as problem:
            return problem.expected
        return ""


@dataclass(frozen=True, slots=True)
class KnownZone:
    """`key` is a time zone that this machine knows."""

    key: str = "assurance.timezone"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        try:
            check_zone(self.key, values.get(self.key, "UTC"))
        except InvalidValue as problem:
            return problem.expected
        return ""


@dataclass(frozen=True, slots=True)
class EndsLater:
    """`key` is after `assurance.start`, and both are days that exist."""

    key: str = "assurance.end"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        zone = values.get("assurance.timezone", "UTC")
        if KnownZone().broken(values):
            return ""
        try:
            start_s, end_s = (_moment_s(values.get(f"assurance.{each}") or "", zone) for each in ("start", "end"))
        except ValueError:
            return "days that there are"
        return "" if end_s is None or end_s > (start_s or 0.0) else "later than start"


RULES = (SharesFit(), DemandGiven(), SlotsCover(), WholeSlots(), KnownZone(), EndsLater())


# --- what it means --------------------------------------------------------------------------------------------------


def terms_of(table: AssuranceTable | None, folder: Path) -> AssuranceTerms | None:
    """Return the terms in a table; files are relative to `folder`. Raises `InvalidInput` for a file that cannot be used
    and `InvalidValue`."""
    if table is None:
        return None
    count = slots_in(table.calendar, table.slot_s)
    if table.slot:
        demand = _declared(table.slot, count)
    elif table.demand == HISTORY:
        demand = ()
    else:
        demand = demand_of(folder / table.demand, table.calendar, table.slot_s, table.timezone)
    start_s, end_s = _moment_s(table.start, table.timezone), _moment_s(table.end, table.timezone)
    return AssuranceTerms(
        _shares(table.share), demand, start_s or 0.0, end_s, table.calendar, table.slot_s, table.timezone
    )


def _shares(tables: Sequence[ShareTable]) -> tuple[Share, ...]:
    return tuple(Share(share.class_, share.units, share.theta) for share in tables)


def _moment_s(text: str, zone: str) -> float | None:
    """Return the absolute seconds of a local time; None for none. ValueError for a day that is not in the calendar."""
    if not text:
        return None
    day, _, time = text.partition(" ")
    return moment(date.fromisoformat(day), seconds_of_day(time or "00:00"), zone)


def _uncovered(tables: Sequence[SlotTable], count: int) -> str:
    """Return the problem with declared slots ("": none)."""
    seen = [0] * count
    for table in tables:
        last = table.first if table.last is None else table.last
        if not table.first <= last < count:
            return f"slots from 0 to {count - 1}, as the calendar has them"
        if not table.units or len(set(table.units)) < len(table.units):
            return f"units in slot {table.first}, each once"
        if table.chances and len(table.chances) != len(table.units):
            return f"as many chances as units in slot {table.first}"
        if table.chances and abs(math.fsum(table.chances) - 1.0) > CHANCES_ERROR_MAX:
            return f"chances that sum to 1 in slot {table.first}"
        for slot in range(table.first, last + 1):
            seen[slot] += 1
    wrong = [slot for slot, times in enumerate(seen) if times != 1]
    return f"every slot once: slot {wrong[0]} is there {seen[wrong[0]]} times" if wrong else ""


def _declared(tables: Sequence[SlotTable], count: int) -> tuple[SlotDemand, ...]:
    slots = [SlotDemand((1.0,))] * count
    for table in tables:
        chances = table.chances or (1.0 / len(table.units),) * len(table.units)
        pmf = [0.0] * (max(table.units) + 1)
        for units, chance in zip(table.units, chances, strict=True):
            pmf[units] += chance
        last = table.first if table.last is None else table.last
        slots[table.first : last + 1] = [SlotDemand(tuple(pmf))] * (last + 1 - table.first)
    return tuple(slots)


# --- as a file has it -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """Slots in a row that are alike."""

    first: int
    last: int
    chances: list[float] = field(default_factory=list)


def table_of_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file's table, from terms as plain data. Demand from a file or from history is written as
    declared slots."""
    zone = str(terms.get("timezone") or "UTC")
    shares = [
        {"class": share["service_class"], "units": share.get("units"), "theta": share.get("theta") or None}
        for share in terms.get("shares", ())
    ]
    table: dict[str, Any] = {
        "demand": "" if terms.get("demand") else HISTORY,
        "calendar": terms.get("calendar"),
        "slot_s": terms.get("slot_s"),
        "timezone": zone,
        "start": _local(terms.get("start_s"), zone),
        "end": _local(terms.get("end_s"), zone),
        "share": [{key: value for key, value in share.items() if value is not None} for share in shares],
        "slot": [_slot(run) for run in _runs(terms.get("demand") or ())],
    }
    return {key: value for key, value in table.items() if value not in (None, "", [])}


def _local(at_s: Any, zone: str) -> str:
    return local_text(float(at_s), zone)[:16] if at_s else ""


def _runs(slots: Sequence[Mapping[str, Any]]) -> list[_Run]:
    runs: list[_Run] = []
    for number, slot in enumerate(slots):
        chances = list(slot["probabilities"])
        if runs and runs[-1].chances == chances:
            runs[-1].last = number
        else:
            runs.append(_Run(number, number, chances))
    return runs


def _slot(run: _Run) -> dict[str, Any]:
    found = [(units, chance) for units, chance in enumerate(run.chances) if chance or units == len(run.chances) - 1]
    last = {} if run.last == run.first else {"last": run.last}
    units = [units for units, _ in found]
    return {"first": run.first, **last, "units": units, "chances": [chance for _, chance in found]}
