"""Assurance as plain data: promises beside what was served, demand as measured, verdicts on requests, and what the
promises leave. docs/reference/views.md lists the keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from daemons.controller.admission.admission import Admission
from daemons.controller.admission.demand_history import slot_of
from daemons.controller.admission.policing import verdict_text
from daemons.controller.admission.promises import AssuranceEntry, holds, layers_of
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from shared.policy_api.admission import SlotFigures
from shared.values.reservation import DAYS, Share, SlotDemand

Row = dict[str, Any]


def assurance_view(admission: Admission, cluster: Cluster, subject: str, limit: int, now_s: float) -> Row:
    """Return all environments, or the one that the subject names, and what the promises leave for best effort."""
    names = [subject] if subject else sorted(cluster.environments)
    entries = [cluster.environments[name] for name in names]
    found = [entry for entry in entries if subject or not entry.destroyed]
    rows = [_row(admission, entry, now_s) for entry in found[:limit]]
    if subject and rows:
        rows[0] |= _details(admission, found[0])
    choice = admission.settings.admission
    return {
        "policy": None if choice is None else choice.name,
        "total": len(found),
        "environments": rows,
        "forecast": [] if admission.figures is None else [_figures(row) for row in admission.figures[1]],
        "forecast_at_s": admission.figures_s,
        "trouble": admission.trouble,
    }


def best_effort(admission: Admission) -> dict[str, int] | None:
    """Return the least and the most units that promises leave in a slot; None where that is unknown."""
    if admission.figures is None or not admission.figures[1]:
        return None
    left = [row.best_effort for row in admission.figures[1]]
    return {"least": min(left), "most": max(left)}


def missed(admission: Admission) -> Iterable[tuple[str, str, float, str]]:
    """Alarms: of which environment a promise is not kept, since when, and the numbers."""
    for name, entry in sorted(admission.assurance.entries.items()):
        for layer, each in sorted(entry.missed.items()):
            share = entry.terms.shares[layer - 1]
            mean, count = entry.over_slots(layer)
            words = f"{share.service_class.value} {share.promised:g}: {mean:.4f} served in {count} slots"
            yield "assurance-missed", name, each.since_s, f"{words}, first seen in slot {each.slot}"


def _figures(figures: SlotFigures) -> Row:
    return {
        "resource": figures.resource,
        "slot": figures.slot,
        "from_s": figures.from_s,
        "units": figures.units,
        "needed": figures.needed,
        "best_effort": figures.best_effort,
        "classes": [{**asdict(one), "service_class": one.service_class.value} for one in figures.classes],
    }


def _row(admission: Admission, environment: EnvironmentEntry, now_s: float) -> Row:
    entry = admission.assurance.entry_of(environment)
    terms, reserved = entry.terms, environment.agreement.assurance is not None
    asked, entitled, served = entry.units
    return {
        "name": environment.name,
        "owner": environment.owner,
        "state": environment.state.value,
        "reserved": reserved,
        "holds": holds(terms, now_s),
        "start_s": terms.start_s,
        "end_s": terms.end_s,
        "calendar": terms.calendar.value,
        "slot_s": terms.slot_s,
        "timezone": terms.timezone,
        "asked": asked,
        "entitled": entitled,
        "served": served,
        "days": len(entry.days),
        "coupling": entry.coupling[0] if entry.coupling[1] else None,
        "shares": [_share(entry, layer, share) for layer, share in enumerate(terms.shares, 1)],
        "served_frac": entry.over_slots(0)[0] if entry.over_slots(0)[1] else None,
        "missed": any(True for _ in entry.missed),
    }


def _share(entry: AssuranceEntry, layer: int, share: Share) -> Row:
    mean, count = entry.over_slots(layer)
    recent = entry.recent(layer)
    since = entry.missed.get(layer)
    lower, upper = layers_of(entry.terms.shares, 0)[layer - 1]
    return {
        "class": share.service_class.value,
        "first": lower,
        "units": None if share.units is None else upper - lower,
        "promised": share.promised,
        "measured": mean if count else None,
        "recently": recent.mean if recent is not None else None,
        "observations": count,
        "missed_since_s": None if since is None else since.since_s,
    }


def _details(admission: Admission, environment: EnvironmentEntry) -> Row:
    entry = admission.assurance.entry_of(environment)
    policing = admission.assurance.settings.police and environment.agreement.assurance is not None
    return {
        "slots": [_slot(entry, slot) for slot in range(entry.terms.slots)],
        "entitlement": asdict(admission.assurance.policing.entitled(entry)) if policing else None,
        "requests": [{**_request(each), "text": verdict_text(each)} for each in reversed(entry.policed)],
    }


def _request(each: Any) -> Row:
    return {field: getattr(each, field) for field in each.__struct_fields__}


def _slot(entry: AssuranceEntry, slot: int) -> Row:
    """Return one slot of the calendar: the announced demand, the measured demand, and what was served of each share."""
    announced = entry.terms.demand[slot] if entry.terms.demand else None
    asked = _measured(entry, slot)
    rows = [entry.served.get((layer, slot)) for layer in range(1, len(entry.terms.shares) + 1)]
    return {
        "slot": slot,
        "declared": None if announced is None else {"mean": _mean(announced), "peak": len(announced.probabilities) - 1},
        "asked": None if not asked else {"mean": sum(asked) / len(asked), "peak": max(asked), "instances": len(asked)},
        "served": [None if row is None else {"mean": row.mean, "count": row.count} for row in rows],
    }


def _mean(slot: SlotDemand) -> float:
    return sum(units * chance for units, chance in enumerate(slot.probabilities))


def _measured(entry: AssuranceEntry, slot: int) -> list[int]:
    """Return the demand in every observed instance of a slot."""
    within, per_day = slot % entry.per_day, entry.per_day
    calendar = entry.terms.calendar
    days = [day for day in entry.days if day.asked[within] >= 0]
    if DAYS[calendar] == 1:
        return [day.asked[within] for day in days]
    return [day.asked[within] for day in days if slot_of(day.day * per_day + within, calendar, per_day) == slot]
