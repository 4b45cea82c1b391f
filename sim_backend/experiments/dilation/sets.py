"""Job sets drawn from seeds, scheduled by each rule of d-factor.txt section 6, beside the best assignment there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from daemons.models.dilation.completion import Stage, Work
from daemons.models.dilation.formula import Floats
from daemons.models.dilation.list_scheduling import Rule, optimum_s, scheduled

MEAN_S = 100.0
NODES = 4
JOBS = 12
SETS = 100
TAIL = 1.5  # of the heavy-tailed sizes: their variance is infinite
Draw = Callable[[np.random.Generator, int], Floats]

SIZES: Mapping[str, Draw] = {
    "equal": lambda _, count: np.full(count, MEAN_S),
    "uniform": lambda rng, count: rng.uniform(0.1 * MEAN_S, 1.9 * MEAN_S, count),
    "heavy-tailed": lambda rng, count: MEAN_S * (TAIL - 1.0) / TAIL * (1.0 + rng.pareto(TAIL, count)),
}
"""Neutral times in s, all of mean `MEAN_S`."""
LOADS: Mapping[str, Draw] = {
    "pure": lambda rng, count: rng.integers(0, 2, count).astype(np.float64),
    "mixed": lambda rng, count: rng.random(count),
}
"""The part of the first of two resources; the rest is of the second."""


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs that are all there from the begin. p: float64[n, 2]; neutral_s: float64[n]."""

    p: Floats
    neutral_s: Floats

    def works(self) -> list[Work]:
        """Return the jobs of the set as work of one stage each."""
        rows = zip(self.neutral_s.tolist(), self.p.tolist(), strict=True)
        return [Work(0.0, (Stage(alone_s, tuple(row)),)) for alone_s, row in rows]


@dataclass(frozen=True, slots=True)
class Compared:
    """Mean makespans over sets of one kind, in s; optimum: None where it was not asked for. `wins` of the sets end
    earlier by composed times than by the list, `losses` later."""

    sizes: str
    loads: str
    makespan_s: dict[Rule, float]
    optimum_s: float | None
    wins: int
    losses: int

    @property
    def gain(self) -> float:
        """How much earlier the last job ends by composed times than by the list, as a part of the latter."""
        return 1.0 - self.makespan_s[Rule.COMPOSED] / self.makespan_s[Rule.PLAIN]


def drawn(sizes: str, loads: str, rng: np.random.Generator, jobs: int = JOBS) -> JobSet:
    """Return the next set of a generator. Raises KeyError for an unknown kind."""
    neutral_s, first = SIZES[sizes](rng, jobs), LOADS[loads](rng, jobs)
    return JobSet(np.column_stack((first, 1.0 - first)), neutral_s)


def compared(sizes: str, loads: str, sets: int = SETS, nodes: int = NODES, optimum: bool = True) -> Compared:
    """Sets of seeds 0 to `sets` - 1, by the formula's rates; the optimum takes 30 ms for each."""
    drawn_sets = [drawn(sizes, loads, np.random.default_rng(seed)) for seed in range(sets)]
    found = {rule: np.array([scheduled(each.works(), nodes, rule).makespan_s for each in drawn_sets]) for rule in Rule}
    best_s = [optimum_s(each.p, each.neutral_s, nodes) for each in drawn_sets] if optimum else []
    earlier = found[Rule.PLAIN] - found[Rule.COMPOSED]
    return Compared(
        sizes,
        loads,
        {rule: float(makespans_s.mean()) for rule, makespans_s in found.items()},
        float(np.mean(best_s)) if best_s else None,
        int((earlier > 1e-6).sum()),
        int((earlier < -1e-6).sum()),
    )
