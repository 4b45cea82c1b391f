"""What `trimtab sim coordinate` plays and what comes out of it: frozen values.

Sizes count nodes. phoenixcloud.txt sections 5 and 6 is the source of all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.values.agreement import BatchTerms

SECONDS_PER_HOUR = 3600.0
FB, FLB_NUB, DEDICATED, ON_DEMAND = "fb", "flb-nub", "dedicated", "on-demand"


@dataclass(frozen=True, slots=True)
class WebDemand:
    """How many nodes the web side needs: `nodes[i]` from `times_s[i]` on (0 before the first), again every
    `period_s`, in which all times lie. Times increase."""

    times_s: Sequence[float]
    nodes: Sequence[int]
    period_s: float

    def changes(self, horizon_s: float) -> Iterator[tuple[float, int]]:
        """Yield each time in [0, horizon_s) at which it changes, with the new value; the first at 0."""
        known = -1
        steps = list(zip(self.times_s, self.nodes, strict=True))
        if not steps or steps[0][0] > 0.0:
            steps.insert(0, (0.0, 0))
        for turn in range(math.ceil(horizon_s / self.period_s)):
            begin_s = turn * self.period_s
            for from_s, nodes in steps:
                if begin_s + from_s >= horizon_s:
                    return
                if nodes != known:
                    known = nodes
                    yield begin_s + from_s, nodes

    def most(self, horizon_s: float) -> tuple[int, float]:
        """Return its maximum in [0, horizon_s), and the first time it is reached."""
        nodes, at_s = max(((nodes, -at_s) for at_s, nodes in self.changes(horizon_s)), default=(0, 0.0))
        return nodes, -at_s


@dataclass(frozen=True, slots=True)
class Setting:
    """What is played. model: of the group's agreements. batch_lower, web_lower: their lower bounds. lease_s: period of
    both timers, unit of leases. terms: of the batch side. suspend_s, resume_s: what suspending a job to disk and
    resuming it take, on all of its nodes. first_timer_s: when the timers tick first (None: after lease_s).
    """

    model: str
    batch_lower: int
    web_lower: int
    horizon_s: float
    lease_s: float = SECONDS_PER_HOUR
    terms: BatchTerms = field(default_factory=BatchTerms)
    suspend_s: float = 0.0
    resume_s: float = 0.0
    first_timer_s: float | None = None

    @property
    def web_most(self) -> int | None:
        """How many nodes the web side can have; None: as many as it needs."""
        return {FB: self.batch_lower + self.web_lower, DEDICATED: self.web_lower}.get(self.model)

    def batch_most(self, web_least: int) -> int | None:
        """Return how many nodes the batch side can have if the web side always has `web_least`; None: unlimited."""
        both = self.batch_lower + self.web_lower
        return {FB: both - web_least, DEDICATED: self.batch_lower}.get(self.model)


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The outcome. Means in seconds over the jobs that ended by the horizon, None if there is none.

    execution: on its nodes since its last begin from zero. peak_nodes: most nodes held, `on-demand` by clock hour over
    all leases that overlap it; peak_nodes_instant: at one moment. node_hours: held by both sides. lost_node_hours: size
    x run so far of every killed attempt; overhead_node_hours: jobs' nodes while being suspended and resumed;
    web_waited_node_hours: the quota of the web side for which it waited. adjustments: changes of a side's size.
    jobs_too_large: can never run, regardless of the others.
    """

    jobs_submitted: int
    jobs_completed: int
    mean_execution_s: float | None
    mean_turnaround_s: float | None
    peak_nodes: int
    peak_nodes_instant: int
    node_hours: float
    killed: int = 0
    suspended: int = 0
    lost_node_hours: float = 0.0
    overhead_node_hours: float = 0.0
    web_waited_node_hours: float = 0.0
    adjustments: int = 0
    jobs_too_large: int = 0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--output json`."""
        return {name: getattr(self, name) for name in self.__slots__}
