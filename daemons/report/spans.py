"""The data of a report: one span of the history, read once, and the figures at its start."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from daemons.report.charts import Cell
from daemons.report.report import Figure
from daemons.store.history import ActionEntry
from daemons.store.reading import Reading
from daemons.store.reading_rows import (
    ActionFigures,
    ClusterUse,
    DecisionRow,
    EventCount,
    JobFigures,
    JobRow,
    StoredSpans,
)
from daemons.values import text_format
from daemons.values.records.assurance import AssuranceRecord
from daemons.values.records.cluster import CostRecord, EnvironmentRecord

DECISIONS_MAX = 50_000
JOBS_MAX = 100_000
ROWS_MAX = 20  # of a table of the worst or the newest
LOOKED_AT_MAX = 12  # decisions of which every workload is looked at
STEPS_MAX = 336
FINE_S = 300.0
OK = "ok"

# durations in tables are words in the JSON of a report too, so that they stay as programs know them
duration_text = partial(text_format.duration_text, minutes_from_s=60.0)


@dataclass(frozen=True, slots=True)
class Worst:
    """A workload's measured utilities in the decisions that were looked at."""

    workload: str
    seen: int
    smallest: float
    mean: float
    predicted_mean: float


@dataclass(frozen=True, slots=True)
class History:
    """One span of the history; everything oldest first. worst: of `looked_at` decisions, the lowest first."""

    from_s: float
    to_s: float
    zone: str
    kept: StoredSpans
    decisions: tuple[DecisionRow, ...]
    looked_at: int
    worst: tuple[Worst, ...]
    costs: tuple[CostRecord, ...]
    use: tuple[ClusterUse, ...]
    use_step_s: float
    jobs: JobFigures
    ended: tuple[JobRow, ...]
    late: tuple[JobRow, ...]
    actions: tuple[ActionFigures, ...]
    failed: tuple[ActionEntry, ...]
    events: tuple[EventCount, ...]
    environments: tuple[EnvironmentRecord, ...]
    assurances: tuple[AssuranceRecord, ...]


def gather(reading: Reading, from_s: float, to_s: float, zone: str) -> History:
    """Read a span. What `Reading` raises."""
    decisions = tuple(reversed(reading.decisions(from_s, to_s, DECISIONS_MAX)))
    numbers = _spread([row.number for row in decisions if row.measured_mean is not None], LOOKED_AT_MAX)
    step_s = FINE_S * max(1, math.ceil((to_s - from_s) / STEPS_MAX / FINE_S))
    jobs = reading.jobs(from_s, to_s, JOBS_MAX)
    figures = reading.action_figures(from_s, to_s)
    outcomes = [each.outcome for each in figures if each.outcome not in (None, OK)]
    failed = reading.actions(from_s, to_s, outcomes=outcomes, limit=ROWS_MAX) if outcomes else ()
    return History(
        from_s,
        to_s,
        zone,
        kept=reading.kept(),
        decisions=decisions,
        looked_at=len(numbers),
        worst=_worst(reading, numbers),
        costs=reading.costs(from_s, to_s),
        use=reading.use(from_s, to_s, step_s),
        use_step_s=step_s,
        jobs=reading.job_figures(from_s, to_s),
        ended=tuple(job for job in jobs if job.finished_s is not None and from_s <= job.finished_s < to_s),
        late=reading.late_jobs(from_s, to_s, ROWS_MAX),
        actions=figures,
        failed=failed,
        events=reading.event_counts(from_s, to_s),
        environments=reading.environments(),
        assurances=reading.assurances(),
    )


def _spread(numbers: list[int], most: int) -> list[int]:
    """Return at most `most` numbers, evenly spread, including the last one."""
    if len(numbers) <= most:
        return numbers
    return [numbers[(place + 1) * len(numbers) // most - 1] for place in range(most)]


def _worst(reading: Reading, numbers: Iterable[int]) -> tuple[Worst, ...]:
    """Return the workloads with the lowest measured utilities in some decisions."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number in numbers:
        record = reading.decision(number)
        for gain in record.gains if record else ():
            if gain.measured is not None:
                found.setdefault(gain.workload, []).append((gain.measured, gain.predicted))
    rows = [
        Worst(
            name,
            len(pairs),
            min(measured for measured, _ in pairs),
            mean(measured for measured, _ in pairs) or 0.0,
            mean(predicted for _, predicted in pairs) or 0.0,
        )
        for name, pairs in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.smallest, row.mean, row.workload))[:ROWS_MAX])


# --- figures ------------------------------------------------------------------------------------------------------


def figures_of(history: History) -> tuple[Figure, ...]:
    """Return the figures at the start of the report."""
    jobs = history.jobs
    judged = jobs.met + jobs.missed
    met = None if not judged else f"{jobs.met:,} of {judged:,} ({100.0 * jobs.met / judged:.1f} %)"
    smallest = [row.measured_min for row in history.decisions if row.measured_min is not None]
    means = [row.measured_mean for row in history.decisions if row.measured_mean is not None]
    counts = Counter[str]()
    for each in history.actions:
        counts["done" if each.outcome == OK else "open" if each.outcome is None else "failed"] += each.count
    return (
        Figure("Jobs completed", jobs.completed, note=f"{jobs.accepted:,} accepted, {jobs.cancelled:,} cancelled"),
        Figure("Goals met", met),
        Figure("Mean utility, measured", mean(means)),
        Figure("Lowest utility, measured", min(smallest, default=None)),
        Figure("Nodes in service, mean", _in_service(history), note=_of_nodes(history)),
        Figure("CPU use, mean", percent(weighted((each.cpu_frac, each.span_s) for each in history.use)), "%"),
        *cost_figures(history.costs),
        Figure(
            "Actions carried out",
            counts["done"],
            note=f"{counts['failed']:,} failed, {counts['open']:,} without result",
        ),
        Figure("Decisions", len(history.decisions)),
    )


def cost_figures(costs: tuple[CostRecord, ...]) -> tuple[Figure, ...]:
    """Return energy and its price, beside that with all nodes always on; one figure for each currency."""
    if not costs:
        return (Figure("Energy", None),)
    found = [Figure("Energy", sum(cost.kwh for cost in costs), "kWh")]
    for currency in sorted({cost.currency for cost in costs if cost.currency}):
        paid = sum(cost.cost for cost in costs if cost.currency == currency)
        static = sum(cost.static_cost for cost in costs if cost.currency == currency)
        saved = "" if not static else f", {100.0 * (1.0 - paid / static):.1f} % saved"
        found.append(Figure("Cost", round(paid, 2), currency, f"{static:,.2f} with all nodes always on{saved}"))
    return tuple(found)


def _in_service(history: History) -> float | None:
    spans_s = sum(cost.span_s for cost in history.costs)
    return sum(cost.in_service_node_s for cost in history.costs) / spans_s if spans_s else None


def _of_nodes(history: History) -> str:
    spans_s = sum(cost.span_s for cost in history.costs)
    return f"of {sum(cost.node_s for cost in history.costs) / spans_s:,.1f}" if spans_s else ""


def mean(values: Iterable[float]) -> float | None:
    """Return the mean; None without values."""
    found = list(values)
    return math.fsum(found) / len(found) if found else None


def weighted(values: Iterable[tuple[float, float]]) -> float | None:
    """Return the mean of (value, weight); None without any weight."""
    found = list(values)
    weight = math.fsum(each for _, each in found)
    return math.fsum(value * each for value, each in found) / weight if weight else None


def percent(part: float | None) -> Cell:
    """Return a part of 1 in percent, with one decimal."""
    return None if part is None else round(100.0 * part, 1)
