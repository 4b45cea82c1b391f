"""Section 6 of d-factor.txt on many sets of jobs: list scheduling by times, by vectors, by composed times, the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.dilation.list_scheduling import Rule, optimum_s, scheduled
from sim_backend.experiments.dilation.sets import JOBS, LOADS, NODES, SIZES, drawn
from sim_backend.experiments.experiment import Row, Tables, mean

SETS_PER_SEED = 20
GAIN_LEAST = 0.12  # of equal sizes and pure loads
ROUNDING = 1e-9
OPTIMUM = "optimum"

KINDS = tuple(product(SIZES, LOADS))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One set of jobs: its makespan in seconds by each rule, and the least of all assignments."""

    size: str
    load: str
    makespans_s: dict[str, float]


def work_scheduling(seeds: int) -> list[Work]:
    """Twenty sets of each kind for each seed."""
    return [(schedule, (seed, kind)) for seed in range(seeds) for kind in range(len(KINDS))]


def schedule(seed: int, kind: int, sets: int = SETS_PER_SEED) -> list[Scheduled]:
    """Sets of jobs that are all there from the begin, busy with two resources."""
    size, load = KINDS[kind]
    rng = np.random.default_rng([seed, kind])
    found = []
    for _set in range(sets):
        jobs = drawn(size, load, rng)
        makespans_s = {rule.value: scheduled(jobs.works(), NODES, rule).makespan_s for rule in Rule}
        found.append(Scheduled(size, load, makespans_s | {OPTIMUM: optimum_s(jobs.p, jobs.neutral_s, NODES)}))
    return found


def ratio(found: Sequence[Scheduled], rule: str) -> float:
    """Return the mean makespan under a rule divided by that of plain list scheduling."""
    return mean([each.makespans_s[rule] for each in found]) / mean([each.makespans_s[Rule.PLAIN] for each in found])


def of(results: Sequence[Sequence[Scheduled]], size: str, load: str) -> list[Scheduled]:
    """Return all sets of one size and load."""
    return [each for piece in results for each in piece if (each.size, each.load) == (size, load)]


def rows_scheduling(results: Sequence[Sequence[Scheduled]]) -> list[Row]:
    """Composed times against plain list scheduling, for each kind."""
    rows = []
    for size, load in KINDS:
        found = of(results, size, load)
        gain = 1.0 - ratio(found, Rule.COMPOSED)
        best = 1.0 - ratio(found, OPTIMUM)
        vectors = 1.0 - ratio(found, Rule.LOADING)
        least = GAIN_LEAST if (size, load) == ("equal", "pure") else -ROUNDING
        rows.append(
            Row(
                f"sets-{size}-{load}",
                f"{NODES} machines, {JOBS} jobs, {size} sizes, {load} loads: makespan below plain list (%)",
                "20.5 of four jobs" if (size, load) == KINDS[0] else None,
                float(f"{100.0 * gain:.4g}"),
                gain >= least,
                f"mean of {len(found)} sets; by vectors (eq. 15) {100.0 * vectors:.1f}, the best {100.0 * best:.1f}",
            )
        )
    return rows


def tables_scheduling(results: Sequence[Sequence[Scheduled]]) -> Tables:
    """Mean makespans."""
    lines = []
    for size, load in KINDS:
        found = of(results, size, load)
        line: dict[str, object] = {"sizes": size, "loads": load, "sets": len(found)}
        for rule in (*Rule, OPTIMUM):
            line[f"{rule} (s)"] = round(mean([each.makespans_s[rule] for each in found]), 1)
        lines.append(line)
    return {"Mean makespan of 12 jobs on 4 machines": lines}
