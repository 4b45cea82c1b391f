"""The remaining work of jobs whose declared work is wrong: the mean and an interval, given their progress.

The ratio r of a job's work to its declared work is assumed to follow one of two laws:

* that of its group (its class, or the account that submitted it): lognormal, from the ended jobs of the group, each
  with a weight of one;
* one without history, with the weight `PRIOR_JOBS`: the job does its declared work, and beyond that P(R > r) =
  (1 + (r - 1) / s)^-2 with s = `FIRST_STEP`. Work left then grows with the excess: its mean is the excess plus s
  (Lomax; the further beyond, the longer it may still take, as in Gott's argument for any process of unknown length).

A job that has reached q = done / declared without ending follows a law with a probability in proportion to the law's
weight times P(R > q). While it is within the range of its group, the group determines the remaining work. Beyond that
the other law takes over. No group whose jobs end on time is therefore ever "about to end" for hours.

The declared work is a prior: within it, a job follows its group only if the group's ended jobs exclude it (`is_off`).
D. Tsafrir, Y. Etsion and D. G. Feitelson found that the jobs of one account are alike (Backfilling using
system-generated predictions rather than user runtime estimates, 2007).
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
LEAST_RATIO = 1e-9  # a job has come at least so far
RATIO_MAX = 1e3  # further from what was declared nobody declares
EXCLUDES = 2.58  # standard errors (1 %) by which a group's ratios are not what was declared
TOLERATED = 0.05  # and at least so much more, or less
_SHRINK = 1.0  # the spread of `_SPREAD` counts like so many jobs
_SPREAD = 0.25
_SPREAD_MAX = 2.0
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class RatioHistory:
    """Ended jobs of a group: how many (at most `COUNT_MAX`), mean and variance of ln(work / declared work). Older ones
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


def is_off(history: RatioHistory) -> bool:
    """Return whether the actual work of a group's ended jobs excludes the declared work."""
    if not history.count:
        return False
    (middle,), (spread,) = _middle_and_spread(*np.array([[history.count], [history.mean], [history.variance]]))
    enough = max(EXCLUDES * spread / math.sqrt(history.count), math.log1p(TOLERATED))
    return bool(abs(middle) > enough)


def work_left(
    declared_mcycles: ArrayLike, done_mcycles: ArrayLike, count: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> WorkLeft:
    """Return the work left of jobs, float64[n] each, from their work declared (finite, above 0) and done (at least 0),
    and the histories of their groups as columns. O(n)."""
    declared, reached, law = _law_of(declared_mcycles, done_mcycles, count, mean, variance)
    low, high = (law.quantile(reached, quantile) * declared for quantile in QUANTILES)
    return WorkLeft(law.mean(reached) * declared, low, high)


def mean_left(
    declared_mcycles: ArrayLike, done_mcycles: ArrayLike, count: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> Floats:
    """Return the mean of `work_left` alone, float64[n], which takes a hundredth of the time."""
    declared, reached, law = _law_of(declared_mcycles, done_mcycles, count, mean, variance)
    return law.mean(reached) * declared


def _law_of(*columns: ArrayLike) -> tuple[Floats, Floats, _Law]:
    """Return the declared work, the ratio reached, and the law of each job."""
    declared, done, jobs, centre, square = np.broadcast_arrays(*(np.asarray(c, dtype=np.float64) for c in columns))
    reached = np.maximum(done / declared, LEAST_RATIO)
    return np.asarray(declared), reached, _Law(np.asarray(jobs), *_middle_and_spread(jobs, centre, square))


def _middle_and_spread(jobs: Floats, centre: Floats, square: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of ln r, float64[n] each, shrunk towards those of who does what it declared."""
    total = jobs + _SHRINK
    spread = np.sqrt((_SHRINK * _SPREAD**2 + jobs * square + _SHRINK * jobs * centre**2 / total) / total)
    return jobs * centre / total, np.minimum(spread, _SPREAD_MAX)


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """Both laws, float64[n] each: jobs of the group, mean and standard deviation of ln r."""

    jobs: Floats
    middle: Floats
    spread: Floats

    def _logs(self, ratio: Floats) -> tuple[Floats, Floats]:
        """Return ln of weight times P(R > ratio): for the group (-inf without jobs), and for the law without
        history."""
        with np.errstate(divide="ignore"):
            worth = np.log(self.jobs)
        own = worth + log_ndtr((self.middle - np.log(ratio)) / self.spread)
        return own, math.log(PRIOR_JOBS) - 2.0 * np.log1p(np.maximum(ratio - 1.0, 0.0) / FIRST_STEP)

    def _survival(self, ratio: Floats) -> Floats:
        """Return ln of the total weight of the jobs that reach this ratio."""
        found: Floats = np.logaddexp(*self._logs(ratio))
        return found

    def mean(self, reached: Floats) -> Floats:
        """Return the mean of the remaining ratio."""
        own, other = self._logs(reached)
        part = np.exp(own - np.logaddexp(own, other))
        z = (np.log(reached) - self.middle) / self.spread
        tail = log_ndtr(self.spread - z) - log_ndtr(-z) + self.middle + self.spread**2 / 2.0
        of_group = np.maximum(np.exp(np.minimum(tail, 700.0)) - reached, 0.0)
        found: Floats = np.where(part > 0.0, part * of_group, 0.0) + (1.0 - part) * (np.abs(reached - 1.0) + FIRST_STEP)
        return found

    def quantile(self, reached: Floats, quantile: float) -> Floats:
        """Return a quantile of the remaining ratio, by bisection of an interval that holds it."""
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
