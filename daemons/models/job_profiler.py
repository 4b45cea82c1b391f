"""What a job of a class will need, from the jobs of that class that have ended (apc.txt section 3.1, the job workload
profiler).

Work is a quantile of what the jobs did. The highest speed that a job was seen at is only a lower bound of what it can
use, since others held it back: a high quantile stands for it. Memory is the most that any needed. Newer jobs weigh
more: the weight halves with every `half_life` further jobs. Intervals assume nothing of the distribution: they are the
quantiles at the ends of Wilson's 95 % interval around the share below, for the effective number of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from shared.values.scalars import not_negative

JOBS_MAX = 200
_Z = 1.959963984540054  # 95 %


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A completed job: work done per instance in Mcycles, the highest speed seen in MHz and the most memory
    used in MiB, per instance."""

    work_mcycles: float
    max_mhz: float
    memory_mib: float

    def __post_init__(self) -> None:
        for name in ("work_mcycles", "max_mhz", "memory_mib"):
            not_negative(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class ProfileParams:
    """work_quantile, speed_quantile, memory_quantile: within 0..1. half_life: in jobs, above 0 (inf: all alike).
    jobs_min: fewer are not enough."""

    work_quantile: float = 0.5
    speed_quantile: float = 0.9
    memory_quantile: float = 1.0
    half_life: float = 50.0
    jobs_min: int = 5

    def __post_init__(self) -> None:
        for name in ("work_quantile", "speed_quantile", "memory_quantile"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidValue(name, getattr(self, name), "a number from 0 to 1")
        if not self.half_life > 0.0:
            raise InvalidValue("half_life", self.half_life, "a number of jobs above 0")
        if self.jobs_min < 1:
            raise InvalidValue("jobs_min", self.jobs_min, "a whole number, 1 or above")


class JobProfileStatus(StrEnum):
    """Whether there is an estimate."""

    ESTIMATED = "estimated"
    NOT_ENOUGH = "not-enough"  # fewer jobs than `jobs_min`; the figures are NaN


@dataclass(frozen=True, slots=True)
class Quantity:
    """An estimate and its 95 % interval, cut to what was seen."""

    value: float
    low: float
    high: float

    @property
    def half_width_frac(self) -> float:
        """Half the interval as a part of the value; 0 for an interval of no width."""
        if self.high == self.low:
            return 0.0
        return (self.high - self.low) / 2.0 / self.value if self.value > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class JobProfile:
    """What a job of the class needs per instance, from so many jobs, worth `effective` of equal weight."""

    standing: JobProfileStatus
    work_mcycles: Quantity
    max_mhz: Quantity
    memory_mib: Quantity
    jobs: int
    effective: float


NOTHING_KNOWN = Quantity(math.nan, math.nan, math.nan)


def profile_of(jobs: Sequence[FinishedJob], params: ProfileParams | None = None) -> JobProfile:
    """Return the profile of a class from its jobs, oldest first; `NOT_ENOUGH` with their number if there are too
    few."""
    params = params or ProfileParams()
    if len(jobs) < params.jobs_min:
        return JobProfile(
            JobProfileStatus.NOT_ENOUGH, NOTHING_KNOWN, NOTHING_KNOWN, NOTHING_KNOWN, len(jobs), float(len(jobs))
        )
    weights = 0.5 ** (np.arange(len(jobs) - 1, -1, -1) / params.half_life)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    columns = np.array([(job.work_mcycles, job.max_mhz, job.memory_mib) for job in jobs])
    wanted = (params.work_quantile, params.speed_quantile, params.memory_quantile)
    work, speed, memory = (_quantity(columns[:, k], weights, quantile, effective) for k, quantile in enumerate(wanted))
    return JobProfile(JobProfileStatus.ESTIMATED, work, speed, memory, len(jobs), effective)


def _quantity(values: Floats, weights: Floats, quantile: float, effective: float) -> Quantity:
    centre = quantile + _Z**2 / (2.0 * effective)
    spread = _Z * math.sqrt(quantile * (1.0 - quantile) / effective + (_Z / (2.0 * effective)) ** 2)
    scale = 1.0 + _Z**2 / effective
    low, high = (centre - spread) / scale, (centre + spread) / scale
    ends = (quantile, min(low, quantile), max(high, quantile))
    return Quantity(*(weighted_quantile(values, weights, end) for end in ends))


def weighted_quantile(values: Floats, weights: Floats, quantile: float) -> float:
    """Return the least value with at least the part `quantile` (0..1) of the weight (> 0) at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # A sum of weights is exact but for roundings: a part met within these is met.
    row = int(np.searchsorted(reached, quantile * reached[-1] * (1.0 - 1e-12)))
    return float(values[order[min(row, len(values) - 1)]])
