"""Work that is left of jobs that have used more than they declared: the mean and an interval, given how far they are.

The ratio r of a job's work to what it declared is taken to be of one of two laws:

* that of its class: lognormal, from the ended jobs of the class, each worth one;
* one for whom history says nothing, worth `PRIOR_JOBS`: beyond what was declared, P(R > r) = (1 + (r - 1) / s)^-2 with
  s = `FIRST_STEP`. Work left then grows with the excess: its mean is the excess plus s (Lomax; the further beyond, the
  longer it may still take, as Gott's argument has it of anything whose length is not known).

A job that has come to q = done / declared >= 1 without ending is of a law with a probability in proportion to the
law's worth times P(R > q). While it is within what its class took, its class tells what is left; beyond that the other
law takes over, so that no class whose jobs end on time is ever "about to end" for hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr  # type: ignore[import-untyped]  # scipy has no types of its own

from shared.policy_api.snapshot import Floats

PRIOR_JOBS = 1.0
FIRST_STEP = 0.05
QUANTILES = (0.1, 0.9)
COUNT_MAX = 50  # an ended job counts for at least one part in so many
RATIO_MAX = 1e3  # further from what was declared nobody declares
_SHRINK = 1.0  # the spread of `_SPREAD` counts like so many jobs
_SPREAD = 0.25
_SPREAD_MAX = 2.0
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class RatioHistory:
    """Ended jobs of a class: how many (at most `COUNT_MAX`), mean and variance of ln(work / declared work). Older ones
    count less and less."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0


NO_HISTORY = RatioHistory()


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Work left in Mcycles per instance, float64[n] each: the mean, and the quantiles `QUANTILES`."""

    mean: Floats
    low: Floats
    high: Floats


def with_ended(history: RatioHistory, declared_mcycles: float, work_mcycles: float) -> RatioHistory:
    """Return the history with one more job; unchanged for amounts that are not finite or not above 0."""
    if not (0.0 < declared_mcycles < math.inf and 0.0 < work_mcycles < math.inf):
        return history
    most = math.log(RATIO_MAX)
    found = min(max(math.log(work_mcycles) - math.log(declared_mcycles), -most), most)
    count = min(history.count + 1, COUNT_MAX)
    step = (found - history.mean) / count
    variance = (1.0 - 1.0 / count) * (history.variance + step * (found - history.mean))
    return RatioHistory(count, history.mean + step, max(variance, 0.0))


def work_left(
    declared_mcycles: ArrayLike, done_mcycles: ArrayLike, count: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> WorkLeft:
    """Work left of jobs that have used up what they declared, float64[n] each: what they declared (finite, above 0) and
    have done (at least that; less is taken for that), and the histories of their classes as columns. O(n)."""
    columns = (declared_mcycles, done_mcycles, count, mean, variance)
    declared, done, jobs, centre, square = np.broadcast_arrays(*(np.asarray(c, dtype=np.float64) for c in columns))
    reached = np.maximum(done / declared, 1.0)
    total = jobs + _SHRINK
    middle = jobs * centre / total
    spread = np.sqrt((_SHRINK * _SPREAD**2 + jobs * square + _SHRINK * jobs * centre**2 / total) / total)
    law = _Law(np.asarray(jobs), middle, np.minimum(spread, _SPREAD_MAX))
    low, high = (law.quantile(reached, quantile) * declared for quantile in QUANTILES)
    return WorkLeft(law.mean(reached) * declared, low, high)


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """Both laws, float64[n] each: jobs of the class, mean and standard deviation of ln r."""

    jobs: Floats
    middle: Floats
    spread: Floats

    def _logs(self, ratio: Floats) -> tuple[Floats, Floats]:
        """ln of worth times P(R > ratio): of the class (-inf without jobs), and where history says nothing."""
        with np.errstate(divide="ignore"):
            worth = np.log(self.jobs)
        own = worth + log_ndtr((self.middle - np.log(ratio)) / self.spread)
        return own, math.log(PRIOR_JOBS) - 2.0 * np.log1p((ratio - 1.0) / FIRST_STEP)

    def _survival(self, ratio: Floats) -> Floats:
        """ln of the worth of all jobs that come so far."""
        found: Floats = np.logaddexp(*self._logs(ratio))
        return found

    def mean(self, reached: Floats) -> Floats:
        """Of the ratio that is left."""
        own, other = self._logs(reached)
        part = np.exp(own - np.logaddexp(own, other))
        z = (np.log(reached) - self.middle) / self.spread
        tail = log_ndtr(self.spread - z) - log_ndtr(-z) + self.middle + self.spread**2 / 2.0
        of_class = np.maximum(np.exp(np.minimum(tail, 700.0)) - reached, 0.0)
        found: Floats = np.where(part > 0.0, part * of_class, 0.0) + (1.0 - part) * (reached - 1.0 + FIRST_STEP)
        return found

    def quantile(self, reached: Floats, quantile: float) -> Floats:
        """Of the ratio that is left: halves an interval that holds it."""
        target = self._survival(reached) + math.log1p(-quantile)
        low, high = np.zeros(reached.shape), np.full(reached.shape, FIRST_STEP)
        for _ in range(_HALVINGS):
            short = self._survival(reached + high) > target
            if not short.any():
                break
            high = np.where(short, 2.0 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            beyond = self._survival(reached + middle) > target
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        found: Floats = (low + high) / 2.0
        return found
