"""What a trace of demand says of the servers that its applications need together, in one object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from daemons.capacity.assurance.file import CPUS, SERVERS, UTILISATION, Trace
from daemons.models.assurance import build, correlation, intervals
from daemons.models.assurance.aggregate import utility
from daemons.models.assurance.calendar import THURSDAY
from daemons.models.assurance.choice import Assurance, Method, assurance
from daemons.models.assurance.correlation import Measured
from daemons.models.assurance.normality import LEVEL
from daemons.models.assurance.resources import binding
from shared.base.clock import perf_s
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import Calendar

MONDAY = 0
FEW = 30  # observations in a slot


@dataclass(frozen=True, slots=True)
class AssureOptions:
    """What the options say. thetas: by their text as written; server: what one server has of other resources."""

    slot_s: float
    calendar: Calendar
    target: float
    thetas: dict[str, float]
    migration: bool
    method: Method
    server: dict[str, float]


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """One resource: rows of its slots, the largest Gamma of each theta, sums of peaks, and what was assumed."""

    static_peak: int
    slot_peak: int
    slots: list[dict[str, Any]]
    gamma: dict[str, int]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return it as an object."""
        return {name: getattr(self, name) for name in ("static_peak", "slot_peak", "slots", "gamma")}


@dataclass(frozen=True, slots=True)
class AssureReport:
    """Every resource of a trace, whole servers first, and by each theta which one needs the most servers."""

    applications: int
    method: Method
    resources: dict[str, ResourceReport]
    binding: dict[str, str]
    notes: list[str]
    wall_s: float

    def to_json(self) -> dict[str, Any]:
        """Return it as an object: the servers' values on top, the other resources by name."""
        others = {name: each.to_json() for name, each in self.resources.items() if name != SERVERS}
        found: dict[str, Any] = {"applications": self.applications, "method": self.method.value}
        found |= self.resources[SERVERS].to_json()
        if others:
            found |= {"resources": others, "binding": self.binding or None}
        return found | {"notes": self.notes, "wall_s": self.wall_s}


def report_of(trace: Trace, asked: AssureOptions) -> AssureReport:
    """Return the report of a trace. Raises `InvalidInput` for a resource of `asked` that the trace does not have, and
    `InvalidValue` for slots, times or demands that the models do not accept."""
    begun_s = perf_s()
    columns = _units(trace, asked.target)
    unknown = sorted(set(asked.server) - set(columns) | {SERVERS} & set(asked.server))
    if unknown:
        has = ", ".join(name for name in columns if name != SERVERS) or "no further column"
        raise InvalidInput(Problem("--server", f"the trace has no resource {unknown[0]}", f"one of: {has}"))
    notes = [] if trace.dated or asked.calendar is Calendar.HOUR_OF_DAY else ["day 0 is taken as a Monday"]
    above = int((trace.columns[UTILISATION] > 100.0).sum()) if UTILISATION in trace.columns else 0
    if above:
        notes.append(f"{above} samples are above 100 % of their CPUs and count as they are")
    reports = {name: _resource(trace, units, asked, name) for name, units in columns.items()}
    notes += reports[SERVERS].notes
    for name in columns:
        if name != SERVERS:
            notes += [f"{name}: rounded up to whole units", *(f"{name}: {note}" for note in reports[name].notes)]
    bound = _binding(reports, asked)
    return AssureReport(len(trace.applications), asked.method, reports, bound, notes, perf_s() - begun_s)


def _units(trace: Trace, target: float) -> dict[str, Ints]:
    """Whole units of each resource, servers first."""
    columns = dict(trace.columns)
    if SERVERS in columns:
        servers = columns.pop(SERVERS).astype(np.int64)
    else:
        servers = build.needed_units(columns.pop(UTILISATION), columns.pop(CPUS).astype(np.int64), target)
    return {SERVERS: servers} | {name: np.ceil(values).astype(np.int64) for name, values in columns.items()}


def _resource(trace: Trace, units: Ints, asked: AssureOptions, name: str) -> ResourceReport:
    weekday = THURSDAY if trace.dated else MONDAY
    count = len(trace.applications)
    plain = build.series(trace.local_s, trace.application, units, count, asked.calendar, asked.slot_s, weekday)
    static_peak = int(plain.demand.max(axis=1).astype(np.int64).sum())
    observed = plain.with_migration() if asked.migration else plain
    profiles = build.profiles(observed, name)
    whole = utility(profiles)
    measured = correlation.measure(observed)
    chosen = assurance(whole, measured, asked.method)
    seen = np.unique(observed.slot)
    widths = np.max([intervals.half_width(each.pmf, each.observations) for each in profiles], axis=0)
    gammas = {text: chosen.gamma(theta) for text, theta in asked.thetas.items()}
    rows = _rows(chosen, measured, gammas, widths, seen)
    largest = {text: int(found[seen].max()) for text, found in gammas.items()}
    unseen = int(sum((each.observations[seen] == 0).sum() for each in profiles))
    notes = _notes(observed, seen, unseen, measured, chosen)
    return ResourceReport(static_peak, int(whole.peaks[seen].max()), rows, largest, notes)


def _rows(
    chosen: Assurance, measured: Measured, gammas: dict[str, Ints], widths: Floats, seen: Ints
) -> list[dict[str, Any]]:
    whole = chosen.utility
    worst_rho = whole.worst_rho()
    spreads = {"sd_independent": whole.sd(), "sd_worst": whole.sd(worst_rho)}
    columns = {
        "mean": measured.mean,
        "sd": measured.sd,
        "rho": measured.rho,
        **spreads,
        "rho_worst": worst_rho,
        "normality_p": measured.normality_p,
        "independence_p": measured.independence_p,
        "wilson_half_width": widths,
    }
    return [
        {"slot": slot}
        | {name: _number(values[slot]) for name, values in columns.items()}
        | {
            "observations": int(measured.instances[slot]),
            "peak": int(whole.peaks[slot]),
            "method": chosen.methods[slot].value,
            "normal_rejected": bool(measured.normality_p[slot] < LEVEL),
            "gamma": {text: int(found[slot]) for text, found in gammas.items()},
        }
        for slot in seen.tolist()
    ]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _notes(observed: build.Series, seen: Ints, unseen: int, measured: Measured, chosen: Assurance) -> list[str]:
    """Return the assumptions, and what a reader must know about the figures."""
    found = []
    if len(seen) < observed.slots:
        found.append(f"{observed.slots - len(seen)} of {observed.slots} slots have no observation and are left out")
    if unseen:
        found.append(f"{unseen} slots of applications have no observation: their peak is assumed there")
    if observed.missing:
        total = observed.demand.size
        found.append(f"gaps: {observed.missing} of {total} demands are missing; each profile is made of what there is")
    fewest = int(measured.instances[seen].min())
    if fewest < FEW:
        most = float(intervals.wilson(np.zeros(1), np.array([fewest]))[1][0])
        found.append(f"as few as {fewest} observations in a slot: what was never seen may have {100.0 * most:.1f} %")
    if chosen.rejected[seen].any():
        count = int(chosen.rejected[seen].sum())
        found.append(f"the normal form is used as asked, though normality is rejected in {count} slots")
    untested = int(np.isnan(measured.independence_p[seen]).sum())
    if untested and any(chosen.methods[slot] is Method.WORST_CASE for slot in seen):
        found.append(f"{untested} slots have too few sums to measure correlation")
    return found


def _binding(reports: dict[str, ResourceReport], asked: AssureOptions) -> dict[str, str]:
    """Return, by theta, the resource that needs the most servers."""
    if not asked.server:
        return {}
    has = {SERVERS: 1.0} | asked.server
    return {text: binding({name: float(reports[name].gamma[text]) for name in has}, has)[0] for text in asked.thetas}
