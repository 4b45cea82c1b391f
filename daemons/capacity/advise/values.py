"""What `trimtab env advise` is asked, what it plays and what comes out: frozen values. Sizes count nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daemons.capacity.coordination.values import DEDICATED, FB, FLB_NUB, ON_DEMAND, Coordinated, Setting, WebDemand
from shared.values.agreement import BatchTerms
from shared.values.replay_job import ReplayJob

MODELS = (DEDICATED, FB, FLB_NUB, ON_DEMAND)  # the simpler ones first


@dataclass(frozen=True, slots=True)
class Load:
    """An owner's load: jobs in order of arrival, submitted in [0, horizon_s), and the web side's demand. nodes: of a
    batch cluster of its own, at least what the largest job needs."""

    jobs: Sequence[ReplayJob]
    demand: WebDemand
    horizon_s: float
    nodes: int

    @property
    def largest(self) -> int:
        """What the largest job needs."""
        return max((job.nodes for job in self.jobs), default=0)

    @property
    def web_peak(self) -> int:
        """The most that the web side needs."""
        return self.demand.most(self.horizon_s)[0]


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """What the owner asks for. max_turnaround_factor: the mean turnaround as a multiple of that on dedicated nodes;
    max_web_wait: node-hours that the web side waits for; max_nodes: held at a time (None: no limit)."""

    max_turnaround_factor: float = 1.5
    max_web_wait: float = 0.0
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """A model with its parameters, and what came of it."""

    setting: Setting
    outcome: Coordinated

    @property
    def wasted(self) -> float:
        """Node-hours of attempts that were killed, and of suspending and resuming."""
        return self.outcome.lost_node_hours + self.outcome.overhead_node_hours


@dataclass(frozen=True, slots=True)
class Miss:
    """Something asked for that is not so: what, in words, and by what part it is missed (0 or above)."""

    what: str
    by: float


@dataclass(frozen=True, slots=True)
class Judged:
    """An option, held against what was asked."""

    option: Option
    misses: tuple[Miss, ...]

    @property
    def meets(self) -> bool:
        """It has all that was asked for."""
        return not self.misses

    def to_json(self, price: float | None) -> dict[str, Any]:
        """Plain values; `cost` at a price per node-hour, null without."""
        setting, outcome = self.option.setting, self.option.outcome
        return {
            "model": setting.model,
            **parameters(setting),
            "node_hours": outcome.node_hours,
            "cost": None if price is None else price * outcome.node_hours,
            "peak_nodes": outcome.peak_nodes,
            "jobs_completed": outcome.jobs_completed,
            "mean_turnaround_s": outcome.mean_turnaround_s,
            "web_waited_node_hours": outcome.web_waited_node_hours,
            "adjustments": outcome.adjustments,
            "wasted_node_hours": self.option.wasted,
            "meets": self.meets,
            "misses": [miss.what for miss in self.misses],
        }


def parameters(setting: Setting) -> dict[str, Any]:
    """Return the parameters of a model, null for those that it ignores."""
    terms: BatchTerms | None = setting.terms if setting.model in (FB, FLB_NUB) else None
    asks = terms if setting.model == FLB_NUB else None
    return {
        "batch_lower": setting.batch_lower,
        "web_lower": setting.web_lower,
        "lease_s": None if setting.model == DEDICATED else setting.lease_s,
        "request_ratio": asks.request_ratio if asks else None,
        "release_ratio": asks.release_ratio if asks else None,
        "elastic_factor": asks.elastic_factor if asks else None,
        "on_reclaim": terms.on_reclaim.value if terms and setting.model == FB else None,
    }
