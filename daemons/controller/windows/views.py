"""The view of deadline windows: what is expected, what is promised, and how that stands. docs/reference/views.md has
the keys."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from daemons.controller.decide.cycle import DecisionCycle
from daemons.controller.windows.snapshot import service_s, worth_now
from daemons.controller.windows.window import WindowEntry
from daemons.controller.windows.windows import WindowBook, breach_from, danger_words, endangered
from daemons.models.arrivals import WorkEstimate, count_band
from daemons.values.calendar import local_text
from shared.policy_api.decision import WindowSize
from shared.policy_api.snapshot import PriceView, WindowView

Row = dict[str, Any]


def forecast_row(
    book: WindowBook, deciding: DecisionCycle, entry: WindowEntry, seen: WindowView | None, now_s: float
) -> Row:
    """Return a window with its forecast; `seen` is what policies see of it (None while it opens in more than a day)."""
    settings = entry.settings
    zone = settings.periods.zone
    given = book.sizes.get(settings.name) if entry.is_open(now_s) else None
    return {
        "name": settings.name,
        "queue": settings.queue,
        "timezone": zone,
        "open": entry.is_open(now_s),
        "period": _period(entry, zone) if entry.has_period else None,
        "jobs": entry.jobs_at(),
        "jobs_waiting_for_jobs": sum(bool(job.awaits) for job in entry.live.values()),
        "arrivals": _arrivals(entry, now_s),
        "service": _service(book, entry, deciding),
        "margin": {"arrivals": entry.record.arrivals_margin, "service": entry.record.service_margin},
        "days_counted": len(entry.record.days),
        "confidence": settings.confidence,
        "interval": seen.interval if seen is not None else None,
        "intervals": entry.intervals if entry.has_period else None,
        "nodes": seen.nodes if seen is not None else None,
        "nodes_given": given.nodes if given is not None else None,
        "nodes_wanted": given.wanted if given is not None else None,
        "reason": str(given.reason) if given is not None else None,
        "predicted_cost": given.predicted_cost if given is not None else None,
        "breach": _breach(given, settings.nodes_min),
        "unavoidable": seen.unavoidable if seen is not None else None,
        "tables": _tables(deciding, given),
        "missed": {"jobs": entry.record.missed, "deadline_at_s": entry.record.missed_s or None},
    }


def _period(entry: WindowEntry, zone: str) -> Row:
    record = entry.record
    times = {"opens": record.opens_s, "submit_until": record.submit_until_s, "deadline": record.deadline_s}
    return {f"{key}_at_s": at_s for key, at_s in times.items()} | {
        f"{key}_local": local_text(at_s, zone) for key, at_s in times.items()
    }


def _arrivals(entry: WindowEntry, now_s: float) -> Row:
    """Return the jobs that came in since the forecast was made, and those that are still to come, each with its
    band."""
    record = entry.record
    so_far, low, high = entry.arrival_band(now_s) if entry.is_open(now_s) else (0.0, 0.0, 0.0)
    left = entry.expected(max(now_s, record.opens_s), record.submit_until_s)
    least, most = count_band(np.array([left]), np.array([record.spread]), 0.95)
    return {
        "counted": sum(entry.counts),
        "forecast_at_s": record.from_s or None,
        "since": entry.arrived_since,
        "since_expected": so_far,
        "since_low": low,
        "since_high": high,
        "left_expected": left,
        "left_low": float(least[0]),
        "left_high": float(most[0]),
        "releases_left": math.fsum(record.releases[entry.row_of(now_s) :]) if record.releases else 0.0,
        "raised_by": record.arrivals_factor,
        "slots": [
            {"from_at_s": from_s, "expected": mean, "low": low, "high": high, "came": came}
            for from_s, mean, low, high, came in entry.slot_bands()
        ],
    }


def _service(book: WindowBook, entry: WindowEntry, deciding: DecisionCycle) -> Row:
    nodes = [node for node in deciding.cluster.nodes.values() if node.inventory is not None]
    worth, record = worth_now(book, entry, nodes), entry.record
    mean_s = service_s(entry, worth)
    low_s, high_s = WorkEstimate(mean_s, record.mcycles_error, record.mcycles_cv, 0).band()
    return {
        "mean_s": mean_s,
        "low_s": low_s,
        "high_s": high_s,
        "variation": record.mcycles_cv,
        "phases": entry.phase_count(book.type_speeds(entry)),
        "jobs_measured": len(record.served),
        "raised_by": record.service_factor,
        "reference_node": worth.reference,
        "slots": worth.slots,
        "nodes_able": int(np.count_nonzero(worth.rate)),
    }


def _breach(given: WindowSize | None, nodes_min: int) -> list[Row]:
    """Return the probability to miss the deadline by number of nodes, as of the last decision."""
    if given is None:
        return []
    first = breach_from(given, nodes_min)
    return [{"nodes": first + index, "breach": chance} for index, chance in enumerate(given.breach)]


def _tables(deciding: DecisionCycle, given: WindowSize | None) -> str:
    if deciding.preparing.in_progress:
        return "being computed"
    return "not asked for" if given is None else "ready"


def price_rows(prices: PriceView | None, now_s: float) -> list[Row]:
    """Return the prices of the next intervals."""
    if prices is None:
        return []
    return [
        {
            "from_at_s": now_s + index * prices.interval_s,
            "per_kwh": float(price),
            "added": float(prices.added[index]),
            "known": index < prices.known,
            "currency": prices.currency,
        }
        for index, price in enumerate(prices.per_kwh)
    ]


def forecast(book: WindowBook, deciding: DecisionCycle, subject: str, limit: int, now_s: float) -> Row:
    """Windows whose names begin with the subject, and prices."""
    snapshot = deciding.builder.build(now_s)
    seen = {window.name: window for window in snapshot.windows}
    found = [entry for name, entry in book.entries.items() if name.startswith(subject)]
    return {
        "total": len(found),
        "windows": [
            forecast_row(book, deciding, entry, seen.get(entry.settings.name), now_s) for entry in found[:limit]
        ],
        "prices": price_rows(snapshot.prices, now_s)[:limit],
    }


def window_alarms(book: WindowBook, now_s: float) -> Iterable[tuple[str, str, float | None, str]]:
    """Yield the alarms of deadline windows: code, window, since when, text."""
    for name, entry in book.entries.items():
        record = entry.record
        size = book.sizes.get(name)
        if entry.is_open(now_s) and record.danger_s is not None:
            chance = endangered(size, entry.settings.nodes_min, entry.settings.confidence) if size else None
            words = danger_words(size, chance) if size and chance is not None else "nodes are too few"
            yield "deadline-at-risk", name, record.danger_s, f"{entry.jobs_at()} jobs; {words}"
        if record.missed:
            yield "deadline-missed", name, record.missed_s, f"{record.missed} jobs were not done"


def stranded_jobs(book: WindowBook) -> Iterable[tuple[str, str, float | None, str]]:
    """Yield the jobs that wait for one that will never be completed: code, job, since when (unknown), text."""
    for name, entry in book.successors.cluster.active.items():
        if entry.awaits and not entry.over and (lost := book.successors.stranded(entry)):
            yield "job-dependency-failed", name, None, f"{lost!r}, which it waits for, will never be completed"
