"""Utilities and goals of workloads, and the service probability of environments."""

from __future__ import annotations

import math
from collections import Counter

from daemons.report.charts import Chart, Mark, Series, Style, Table
from daemons.report.report import Section
from daemons.report.spans import History, duration_text, mean, percent
from daemons.store.reading_rows import DecisionRow
from daemons.values.records.assurance import RECENT, AssuranceRecord
from daemons.values.records.cluster import EnvironmentRecord
from daemons.values.text_format import time_text
from shared.values.agreement import EnvironmentState

LOWEST_SHOWN = -2.0  # lower values are drawn here: a longer axis would make the rest unreadable
BINS_MAX = 31
HOUR_S, DAY_S = 3_600.0, 86_400.0


def utilities_section(history: History) -> Section:
    """Utilities over time, and what was predicted against what was measured."""
    rows = history.decisions
    times = [row.at_s for row in rows]
    lines = (
        Series("mean, measured", times, _shown(rows, "measured_mean"), style=Style.STEP),
        Series("mean, predicted", times, _shown(rows, "predicted_mean"), style=Style.STEP),
        Series("lowest, measured", times, _shown(rows, "measured_min"), style=Style.STEP),
        Series("lowest, predicted", times, _shown(rows, "predicted_min"), style=Style.STEP),
    )
    chart = Chart(
        "utilities",
        "Utility of workloads",
        "utility",
        series=lines,
        marks=(Mark("goal met exactly", 0.0),),
        x_min=history.from_s,
        x_max=history.to_s,
        zone=history.zone,
        empty="no decision of this period has predictions",
    )
    words = (
        "A utility of 1 is best, 0 means that the goal is met exactly, and negative values mean that it is missed."
        " Each decision predicts the utilities for the end of its scheduling cycle. The values measured then are shown"
        f" at the time of the decision. Values below {LOWEST_SHOWN:g} are drawn at {LOWEST_SHOWN:g}.",
    )
    return Section("utilities", "Utilities", words, (chart,), (_against(rows), _worst(history)))


def _shown(rows: tuple[DecisionRow, ...], name: str) -> list[float | None]:
    values = [getattr(row, name) for row in rows]
    return [None if value is None else max(value, LOWEST_SHOWN) for value in values]


def _against(rows: tuple[DecisionRow, ...]) -> Table:
    found = []
    for what in ("mean", "min"):
        pairs = [(getattr(row, f"predicted_{what}"), getattr(row, f"measured_{what}")) for row in rows]
        known = [(said, seen) for said, seen in pairs if said is not None and seen is not None]
        found.append(
            (
                "lowest" if what == "min" else "mean",
                len(known),
                mean(said for said, _ in known),
                mean(seen for _, seen in known),
                mean(seen - said for said, seen in known),
                mean(abs(seen - said) for said, seen in known),
                max((abs(seen - said) for said, seen in known), default=None),
            )
        )
    columns = ("utility", "decisions", "predicted", "measured", "difference", "error, mean", "error, maximum")
    return Table("predicted", "Predicted and measured utility", columns, tuple(found))


def _worst(history: History) -> Table:
    rows = tuple((row.workload, row.smallest, row.mean, row.predicted_mean, row.seen) for row in history.worst)
    columns = ("workload", "lowest measured", "mean measured", "mean predicted", "decisions")
    measured = sum(row.measured_mean is not None for row in history.decisions)
    note = f"From {history.looked_at} of {measured:,} measured decisions, evenly spread over the period."
    return Table("worst", "Workloads with the lowest utility", columns, rows, note)


# --- goals --------------------------------------------------------------------------------------------------------


def goals_section(history: History) -> Section:
    """Return the section on jobs that met or missed their goals, over time, and the misses of deadline windows."""
    jobs, misses = history.jobs, sum(cost.misses for cost in history.costs)
    words = [f"{jobs.accepted:,} jobs were accepted, {jobs.completed:,} completed and {jobs.cancelled:,} cancelled."]
    if jobs.missed:
        late = f"{duration_text(jobs.late_mean_s)} on average, {duration_text(jobs.late_max_s)} at most"
        words.append(f"{jobs.missed:,} of the completed jobs missed their goals, by {late}.")
    if misses:
        words.append(f"{misses:,} jobs of deadline windows missed their deadlines.")
    rows = tuple(
        (
            job.name,
            time_text(job.accepted_s, history.zone),
            time_text(job.goal_s, history.zone),
            time_text(job.finished_s, history.zone),
            duration_text(job.late_s),
        )
        for job in history.late
    )
    columns = ("job", "accepted", "goal", "completed", "late by")
    table = Table("late", "Jobs with the largest delays", columns, rows)
    return Section("goals", "Goals", tuple(words), (_ended_chart(history),), (table,))


def _ended_chart(history: History) -> Chart:
    span_s = history.to_s - history.from_s
    bin_s = next((each for each in (HOUR_S, 6 * HOUR_S) if span_s / each <= BINS_MAX), 0.0)
    bin_s = bin_s or DAY_S * math.ceil(span_s / DAY_S / BINS_MAX)
    counts = Counter[tuple[int, str]]()
    for job in history.ended:
        if job.phase == "completed" and job.finished_s is not None:
            how = "no goal" if job.late_s is None else "missed" if job.late_s > 0 else "met"
            counts[int((job.finished_s - history.from_s) / bin_s), how] += 1
    places = range(math.ceil(span_s / bin_s))
    middles = [history.from_s + (place + 0.5) * bin_s for place in places]
    named = {"goal met": "met", "goal missed": "missed", "without a goal": "no goal"}
    bars = tuple(
        Series(name, middles, [counts[place, how] for place in places], style=Style.BAR, stacked=at > 0)
        for at, (name, how) in enumerate(named.items())
    )
    return Chart(
        "goals",
        f"Jobs completed per {duration_text(bin_s)}",
        "jobs",
        series=bars if counts else (),
        x_min=history.from_s,
        x_max=history.to_s,
        zone=history.zone,
        empty="no completed jobs",
    )


# --- environments -------------------------------------------------------------------------------------------------


def environments_section(history: History) -> tuple[Section, ...]:
    """Return the section on environments and their service probability; nothing without environments."""
    shown = [each for each in history.environments if each.state is not EnvironmentState.DESTROYED]
    if not shown:
        return ()
    rows = tuple(
        (each.agreement.name, each.agreement.owner, each.state.value, each.size, *_counts(each)) for each in shown
    )
    columns = ("environment", "owner", "state", "units", "resizes", "jobs killed", "jobs suspended", "node-hours lost")
    lives = Table("environments", "Current environments", columns, rows, "Counts since the environment was created.")
    books = {each.name: each for each in history.assurances}
    kept = tuple(row for each in shown for row in _promises(each, books.get(each.agreement.name)))
    heads = ("environment", "class", "units", "target (%)", "served (%)", "slots observed")
    note = "Over all observed slots; older ones have less weight."
    promises = Table("promises", "Service probability: target and measured", heads, kept, note)
    return (Section("environments", "Environments", (), (), (promises, lives)),)


def _counts(each: EnvironmentRecord) -> tuple[int | float, ...]:
    return (each.adjustments, each.killed, each.suspended, round(each.lost_node_hours, 2))


def _promises(each: EnvironmentRecord, book: AssuranceRecord | None) -> list[tuple[str | int | float | None, ...]]:
    terms = each.agreement.assurance
    found: list[tuple[str | int | float | None, ...]] = []
    for layer, share in enumerate(terms.shares if terms else (), 1):
        slots = [row for row in (book.served if book else ()) if row.layer == layer and row.slot != RECENT]
        weight = sum(row.weight for row in slots)
        served = sum(row.mean * row.weight for row in slots) / weight if weight else None
        units = "all other units" if share.units is None else share.units
        promised, seen = percent(share.promised), sum(row.count for row in slots)
        found.append((each.agreement.name, share.service_class.value, units, promised, percent(served), seen))
    return found
