"""What came of a span, in figures and over time: the same from the store's history and from a simulated one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daemons.models.outlook import Forecast, unchanged
from daemons.models.utility import utility_at
from daemons.store.reading import Reading
from daemons.values.records.cluster import CostRecord, DecisionRecord, JobRecord
from shared.policy_api.snapshot import Snapshot
from shared.ports import effects as fx
from shared.protocol.messages import Result
from shared.values.actions import Outcome
from shared.values.jobs import JobPhase
from sim_backend.fakes.store import MemoryStore
from sim_backend.history.values import Log, Utilities

ROWS_MAX = 1_000_000
HOUR_S = 3_600.0

# The figures that are told of each side, and what each is in.
FIGURES: Mapping[str, str] = {
    "mean_utility": "mean over cycles of that of all workloads as they stand then",
    "min_utility": "the lowest of any workload at any cycle",
    "jobs": "jobs that were there",
    "jobs_completed": "of them completed in the span",
    "goals": "completed jobs with a goal",
    "goals_met": "of them in time",
    "mean_job_utility": "of completed jobs with a goal",
    "mean_turnaround_s": "from submission to completion",
    "node_hours": "of nodes in service",
    "kwh": "energy",
    "cost": "its price",
    "node_starts": "nodes that came into service",
    "decisions": "that changed something, or of a cycle",
    "actions": "carried out on VMs",
}


@dataclass(slots=True, eq=False)
class Tally:
    """Gathers what happens in a span; nothing of a decision or cycle is kept but its figures."""

    begin_s: float
    end_s: float
    decisions: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    ends: dict[str, tuple[str, float]] = field(default_factory=dict)
    utilities: list[Utilities] = field(default_factory=list)
    costs: dict[float, CostRecord] = field(default_factory=dict)

    def cost(self, record: CostRecord) -> None:
        """Record the cost of a cycle."""
        if self.begin_s <= record.at_s < self.end_s:
            self.costs[record.at_s] = record

    # --- what is told -----------------------------------------------------------------------------------------------

    def figures(self, log: Log) -> dict[str, Any]:
        """Return the values of `FIGURES`, None where there is no data, and the actions by kind."""
        job_figures = self._jobs(log)
        costs = list(self.costs.values())
        return {
            "mean_utility": _mean([mean for _, mean, _ in self.utilities]),
            "min_utility": min((least for _, _, least in self.utilities), default=None),
            **job_figures,
            "node_hours": math.fsum(each.in_service_node_s for each in costs) / HOUR_S if costs else None,
            "kwh": math.fsum(each.kwh for each in costs) if costs else None,
            "cost": math.fsum(each.cost for each in costs) if costs else None,
            "node_starts": sum(each.node_starts for each in costs) if costs else None,
            "decisions": self.decisions,
            "actions": sum(self.actions.values()),
            "actions_by_kind": dict(sorted(self.actions.items())),
        }

    def _jobs(self, log: Log) -> dict[str, Any]:
        utilities, turnarounds, met = [], [], 0
        for logged in log.jobs:
            phase, finished_s = self.ends.get(logged.job.name, ("", 0.0))
            if phase != JobPhase.COMPLETED.value or finished_s >= self.end_s:
                continue
            turnarounds.append(finished_s - logged.accepted_s)
            job = logged.job
            if job.goal_s is not None:
                met += finished_s <= job.goal_s
                utilities.append(float(utility_at(finished_s, job.desired_start_s, job.goal_s, job.importance)))
        return {
            "jobs": len(log.jobs),
            "jobs_completed": len(turnarounds),
            "goals": len(utilities),
            "goals_met": met,
            "mean_job_utility": _mean(utilities),
            "mean_turnaround_s": _mean(turnarounds),
        }

    def series(self) -> dict[str, list[Any]]:
        """Over time, by cycle: `at_s` with utilities; `cost_at_s` with nodes in service, kW and cost per hour."""
        utilities = sorted(self.utilities)
        costs = sorted((each for each in self.costs.values() if each.span_s > 0.0), key=lambda each: each.at_s)
        ends = sorted(at_s for phase, at_s in self.ends.values() if phase == JobPhase.COMPLETED.value)
        return {
            "at_s": [at_s for at_s, _, _ in utilities],
            "mean_utility": [mean for _, mean, _ in utilities],
            "min_utility": [least for _, _, least in utilities],
            "cost_at_s": [each.at_s for each in costs],
            "nodes_in_service": [each.in_service_node_s / each.span_s for each in costs],
            "kw": [each.kwh * HOUR_S / each.span_s for each in costs],
            "cost_per_hour": [each.cost * HOUR_S / each.span_s for each in costs],
            "completed_at_s": [at_s for at_s in ends if self.begin_s <= at_s < self.end_s],
        }


def utilities_of(seen: Snapshot) -> list[Utilities]:
    """Return the utilities of the workloads at a snapshot's time, according to the utility models: for jobs the level
    that all reach with their current CPU, for web applications from the measured demand. Empty if no workload has a
    goal."""
    if not seen.workloads.names:
        return []
    forecast = Forecast(replace(seen, cycle_s=0.0))
    utilities, _ = forecast.predict(unchanged(seen))
    known = utilities[np.isfinite(utilities) & forecast.aims()]
    return [(seen.now_s, float(known.mean()), float(known.min()))] if len(known) else []


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


# --- from the history --------------------------------------------------------------------------------------------


def measured(reader: Reading, log: Log) -> Tally:
    """Return the figures that the store has of the span."""
    tally = Tally(log.from_s, log.to_s)
    for record in reader.costs(log.from_s, log.to_s):
        tally.cost(record)
    tally.utilities += log.utilities
    tally.decisions = len(reader.decisions(log.from_s, log.to_s, ROWS_MAX))
    for figures in reader.action_figures(log.from_s, log.to_s):
        if figures.outcome == Outcome.OK.value:
            tally.actions[figures.kind] += figures.count
    for job in reader.jobs(log.from_s, log.to_s, ROWS_MAX):
        if job.finished_s is not None:
            tally.ends[job.name] = (job.phase, job.finished_s)
    return tally


# --- from a simulation -------------------------------------------------------------------------------------------


class SpanStore(MemoryStore):
    """A store for one run: of decisions and costs it keeps what `tally` makes of them, so that a month fits."""

    def __init__(self, deleted: Any, tally: Tally) -> None:
        super().__init__(deleted)
        self.tally = tally

    def write(self, term: int, records: tuple[Any, ...]) -> None:
        """Write records, but count decisions and costs in `tally` instead of keeping them."""
        super().write(term, tuple(self._kept(records)))

    def _kept(self, records: Iterable[Any]) -> Iterable[Any]:
        tally = self.tally
        for record in records:
            if isinstance(record, CostRecord):
                tally.cost(record)
            elif isinstance(record, DecisionRecord):
                tally.decisions = max(tally.decisions, record.number)
            else:
                if isinstance(record, JobRecord) and record.phase in (JobPhase.COMPLETED, JobPhase.CANCELLED):
                    tally.ends[record.job.name] = (record.phase.value, record.finished_s)
                yield record


def count_actions(tally: Tally, event: fx.Input) -> None:
    """Note what an agent answers a controller."""
    if isinstance(event, fx.Received) and isinstance(event.message, Result) and event.message.outcome is Outcome.OK:
        tally.actions[event.message.kind.value] += 1
