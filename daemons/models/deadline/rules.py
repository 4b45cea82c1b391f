"""Rules for sizes as tables: what is done at every decision point, for every size and every number of jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.models.deadline.problem import DeadlineProblem

METHODS = (
    "static",
    "threshold",
    "delayed-threshold",
    "cost-aware",
    "cost-aware-monotone",
    "cost-aware-fast",
    "lp",
    "optimal",
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Which table is meant: a method of `METHODS` on a problem. `guarded`: sizes after which the next state can fall
    above what `servers_max` servers finish in time are left out. `begin`: of a problem with phases, the interval from
    which on the table is computed."""

    method: str
    problem: DeadlineProblem
    guarded: bool = False
    begin: int = 0


@dataclass(frozen=True, slots=True)
class SizeTable:
    """The sizes that a rule chooses. sizes: uint16[d, P, N + 1], at decision point s with p = servers_min + i servers
    and n jobs; more than N jobs are decided on as N. Row 0 is the size at time 0 (no decision: p itself, or what a
    static rule has from the start). delayed: servers are removed only when the decision point before wanted that too
    (algorithm 2). value_at_0: expected cost and penalty from time 0 on (None: the rule has no value function)."""

    servers_min: int
    sizes: NDArray[np.uint16]
    delayed: bool = False
    value_at_0: float | None = None

    def size(self, interval: int, servers: int, jobs: int) -> int:
        """Return the size at decision point `interval`; servers outside the table count as the nearest inside."""
        row = min(max(servers - self.servers_min, 0), self.sizes.shape[1] - 1)
        return int(self.sizes[interval, row, min(jobs, self.sizes.shape[2] - 1)])
