"""A render farm: its jobs can wait a while, and who asks for nodes at the first of them pays for nodes that stand idle
between two scenes. So it asks for units only when a job has been patient for long enough, or will be late otherwise,
and keeps them until nothing has happened for a while."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from render_farm.numbers import Number, check, meanings, value_of
from shared.policy_api.coordination import Asked, InstancesView, ManagerView, WaitingJob
from shared.values.agreement import UNITS_MAX, Scheduling, WorkloadType
from shared.values.web_app import Distribution

TERMS = {
    "patience_s": Number(900.0, "s: a job that has waited so long, or is due within it, gets units", 0.0, 1e9),
    "cool_down_s": Number(1_800.0, "s: idle units are kept so long after the last job came or ended", 0.0, 1e9),
    "step_units": Number(8, "units: so many more at a time, at most", 1, UNITS_MAX, whole=True),
}


class Render:
    """Jobs by their deadlines; asks for units for those whose patience is over."""

    name = "render"
    workload = WorkloadType.BATCH
    scheduling = Scheduling("edf")
    distribution = Distribution.LEAST_CONNECTIONS
    terms: Mapping[str, str] = meanings(TERMS)
    more_waiting_asks_more = True

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """Numbers within their ranges."""
        check(self.name, TERMS, terms)

    def manage(self, view: ManagerView, terms: Mapping[str, Any]) -> Asked:
        """Enough for the jobs whose patience is over; without any waiting, after the cool-down, what is busy, and its
        lower bound."""
        party, patience_s = view.party, value_of(TERMS, terms, "patience_s")
        urgent = [job for job in view.waiting if _is_urgent(job, patience_s)]
        if urgent:
            needed = math.ceil(math.fsum(job.units for job in urgent))
            more = min(max(0, needed - party.idle), int(value_of(TERMS, terms, "step_units")), UNITS_MAX - party.owned)
            return Asked(
                party.owned + more, f"{len(urgent)} jobs have waited, {needed} units for them, {party.idle} idle"
            )
        busy = party.owned - party.idle
        cool_down_s = value_of(TERMS, terms, "cool_down_s")
        if not view.waiting and view.quiet_s >= cool_down_s and party.owned > max(busy, party.lower):
            return Asked(max(busy, party.lower), f"nothing has come or ended for {cool_down_s:g} s, {party.idle} idle")
        return Asked(party.owned)

    def adjust(self, view: InstancesView, terms: Mapping[str, Any]) -> int:
        """It has no instances."""
        del view, terms
        return 0


def _is_urgent(job: WaitingJob, patience_s: float) -> bool:
    late = job.goal_in_s is not None and job.goal_in_s <= patience_s
    return late or job.waited_s >= patience_s
