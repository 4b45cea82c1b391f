"""How migrations of the fake hypervisor go whose guests are known to change memory: by the course of
`sim_backend.world.migrating`, at the rate that is free when they begin."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from shared.values.actions import Outcome
from shared.values.migration_terms import (
    DEFAULT_BOUNDS,
    NOT_MEASURED,
    MigrationBounds,
    MigrationFigures,
    MigrationMethod,
    MigrationTerms,
)
from sim_backend.world.migrating import Course, GuestMemory

SWITCH_FRAC = 0.5  # of the limit


@dataclass(frozen=True, slots=True)
class Planned:
    """How a migration will end, and after how long."""

    duration_s: float
    outcome: Outcome
    figures: MigrationFigures
    detail: str = ""


@dataclass(slots=True)
class Migrations:
    """Guests, by VM, with what they change; migrations of other VMs take what `OperationCosts` say. A host's link
    carries `link_mib_per_s` each way."""

    memories: dict[str, GuestMemory] = field(default_factory=dict)
    link_mib_per_s: float = 1_000.0

    def plan(
        self,
        vm: str,
        terms: MigrationTerms | None,
        others: int,
        runs: bool,
        bounds: MigrationBounds = DEFAULT_BOUNDS,
    ) -> Planned | None:
        """Return how a migration beside `others` on the same links will go; None for a VM that is not known here.
        `bounds`: what its source allows."""
        memory = self.memories.get(vm)
        if memory is None:
            return None
        terms = terms or MigrationTerms()
        if not runs:
            memory = replace(memory, dirty_mib_per_s=0.0)
        limit_s = min(terms.limit_s or bounds.limit_s, bounds.limit_s)
        bandwidths = (terms.bandwidth_mib_per_s or math.inf, bounds.bandwidth_mib_per_s or math.inf)
        rate = min(self.link_mib_per_s / (others + 1), *bandwidths)
        downtime_s = min(terms.downtime_ms or bounds.downtime_ms, bounds.downtime_ms) / 1e3
        switch_s = math.inf
        if terms.may_switch and runs:
            switch_s = 0.0 if terms.method is MigrationMethod.POST_COPY else SWITCH_FRAC * limit_s
        course = Course(memory, 0.0, downtime_s, terms.method is MigrationMethod.AUTO_CONVERGE)
        took_s = course.run(rate, switch_s, most_s=limit_s if math.isinf(switch_s) else math.inf)
        ends = math.isfinite(took_s)
        method = MigrationMethod.AUTO_CONVERGE if course.throttle_frac > 0.0 else MigrationMethod.PRE_COPY
        figures = MigrationFigures(
            MigrationMethod.POST_COPY if course.switched else method,
            took_s if ends else limit_s,
            downtime_s=course.downtime_s if ends else NOT_MEASURED,
            transferred_mib=course.sent_mib,
            rounds=course.rounds,
            dirty_mib_per_s=course.dirty_mib_per_s,
            throttle_frac=course.throttle_frac,
        )
        if ends:
            return Planned(figures.duration_s, Outcome.OK, figures)
        why = f"after {course.rounds} rounds the guest changes {course.dirty_mib_per_s:.0f} MiB/s"
        return Planned(figures.duration_s, Outcome.NOT_CONVERGING, figures, why)
