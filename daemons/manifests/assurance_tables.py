"""The table [assurance] of an agreement: classes of service with their shares, and the demand that they are shares of,
declared slot by slot, read from a CSV file, or as it was measured (docs/assurance.md)."""

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
    """A layer of the demand, of one class of service, see `shared.values.reservation.Share`."""

    class_: ServiceClass
    units: Units | None = None
    theta: Annotated[float, Range(0.0, 1.0)] = 0.0


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The demand in the slots from `first` to `last` (left out: in that one alone): each of `units` has the chance
    beside it (left out: all have the same)."""

    first: Annotated[int, Range(0, 100_000)]
    units: tuple[Units, ...]
    last: Annotated[int, Range(0, 100_000)] | None = None
    chances: tuple[Annotated[float, Range(0.0, 1.0)], ...] = ()


@dataclass(frozen=True, slots=True)
class AssuranceTable:
    """What is reserved for an environment, see `shared.values.agreement.AssuranceTerms`."""

    share: tuple[ShareTable, ...]
    demand: Annotated[str, Form(r"[^\0]{0,1000}", "a CSV file, or history")] = ""
    slot: tuple[SlotTable, ...] = ()
    calendar: Calendar = Calendar.HOUR_OF_DAY
    slot_s: Annotated[float, Range(60.0, 86_400.0)] = 3_600.0
    timezone: Annotated[str, Form(r"[A-Za-z0-9_+/-]{1,64}", "a time zone such as Europe/Berlin")] = "UTC"
    start: Moment = ""
    end: Moment = ""


# --- how keys relate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharesFit:
    """Shares have the units and the assurance that go with their class."""

    key: str = "assurance.share"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
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
    """The demand is given in one way."""

    key: str = "assurance.demand"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        demand, slots = values.get(self.key), values.get("assurance.slot")
        if demand is None or slots is None or bool(demand) is not bool(slots):
            return ""
        return "nothing beside tables [[assurance.slot]]" if demand else 'a CSV file, "history", or [[assurance.slot]]'


@dataclass(frozen=True, slots=True)
class SlotsCover:
    """Every slot of the calendar has its demand, once."""

    key: str = "assurance.slot"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        found = values.get(self.key)
        try:
            count = slots_in(values["assurance.calendar"], values["assurance.slot_s"])
        except (KeyError, InvalidValue):
            return ""
        return _uncovered(found, count) if found else ""


@dataclass(frozen=True, slots=True)
class WholeSlots:
    """A day has a whole number of slots."""

    key: str = "assurance.slot_s"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        try:
            slots_in(Calendar.HOUR_OF_DAY, values.get(self.key, 3_600.0))
        except InvalidValue as problem:
            return problem.expected
        return ""


@dataclass(frozen=True, slots=True)
class KnownZone:
    """The time zone is known here."""

    key: str = "assurance.timezone"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        try:
            check_zone(self.key, values.get(self.key, "UTC"))
        except InvalidValue as problem:
            return problem.expected
        return ""


@dataclass(frozen=True, slots=True)
class EndsLater:
    """It ends after it has begun, both at days that there are."""

    key: str = "assurance.end"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
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
    """What a table says; files are relative to `folder`. Raises `InvalidInput` for a file that cannot be used and
    `InvalidValue`."""
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
    """The absolute seconds of a local time; None for none. ValueError for a day that is not in the calendar."""
    if not text:
        return None
    day, _, time = text.partition(" ")
    return moment(date.fromisoformat(day), seconds_of_day(time or "00:00"), zone)


def _uncovered(tables: Sequence[SlotTable], count: int) -> str:
    """What is wrong with declared slots ("": nothing)."""
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
    """The keys of a file's table, from terms as plain data. What was made from a file or from history is declared."""
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
