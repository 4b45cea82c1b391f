"""What is known of service times from a history: the distribution with unfinished jobs counted (Kaplan-Meier), the time
that a job of some age still takes, whether an exponential will do, and else the phases that come nearest.

Beyond a high quantile the excess is exponential with its mean (peaks over threshold: J. Pickands, Statistical inference
using extreme order statistics, 1975, with a shape of 0), made larger by its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.models.deadline.phases import PHASES_MAX, Phases, fitted, hyperexponential
from shared.base.errors import InvalidValue

Floats = NDArray[np.float64]

JOBS_LEAST = 30  # completed ones, before anything but an exponential is concluded
UNLIKE = 3.29  # standard errors (0.1 %) by which a coefficient of variation speaks against an exponential
LONG_SHARE = 0.05  # of the jobs, whose excess is fitted
LONG_LEAST = 10  # completed jobs that are needed for that
ALIKE = 1e-6  # of a time: the excess over it where no job took longer
PIECES = 8  # moments in an interval at which arrivals are looked at


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """times: float64[m], ascending, of completed jobs, the last one where the tail begins; left: float64[m],
    probability to take longer than each; tail: mean excess beyond the last. jobs: completed ones; mean, cv: of the
    distribution."""

    times: Floats
    left: Floats
    tail: float
    jobs: int
    mean: float
    cv: float

    def survival(self, times: Floats) -> Floats:
        """Return float64[n]: the probability to take longer than each of `times` (>= 0). O(n log m)."""
        times = np.asarray(times, dtype=np.float64)
        place = np.searchsorted(self.times, times, side="right") - 1
        steps = np.where(place < 0, 1.0, self.left[np.maximum(place, 0)])
        excess = np.maximum(times - self.times[-1], 0.0)
        return np.asarray(np.where(excess > 0.0, self.left[-1] * np.exp(-excess / self.tail), steps))

    def residual(self, ages: Floats, times: Floats) -> Floats:
        """Return float64[n]: the probability that a job of each age (>= 0) takes longer than each further time (>=
        0)."""
        ages = np.asarray(ages, dtype=np.float64)
        far = np.exp(-np.minimum(np.asarray(times, dtype=np.float64), 700.0 * self.tail) / self.tail)  # no memory
        now = self.survival(ages)
        near = self.survival(ages + times) / np.where(now > 0.0, now, 1.0)
        return np.asarray(np.where((ages >= self.times[-1]) | (now <= 0.0), far, near))

    @property
    def is_exponential(self) -> bool:
        """Whether the data do not speak against an exponential; also where there are few of them."""
        return self.jobs < JOBS_LEAST or abs(self.cv - 1.0) <= UNLIKE / math.sqrt(self.jobs)

    def phases(self) -> Phases:
        """Return phases with the same mean. Times that vary more than an exponential also have the same share and mean
        of long jobs. The variance is the same if no such distribution exists, or if they vary less."""
        if self.cv > 1.0:
            long_share = float(self.left[-1]) * math.exp(min(float(self.times[-1]) / self.tail, 700.0))
            try:
                return hyperexponential(self.mean, long_share, self.tail)
            except InvalidValue:
                pass
        return fitted(self.mean, max(self.cv, 1.0 / math.sqrt(PHASES_MAX)))


def service_times(done: Sequence[float], running: Sequence[float]) -> ServiceTimes | None:
    """Return the service times from those of completed jobs (> 0) and the times so far of unfinished ones (> 0). None
    if no job is completed. O(n log n)."""
    if not len(done):
        return None
    ended = np.concatenate((np.ones(len(done)), np.zeros(len(running))))
    times = np.concatenate((np.asarray(done, dtype=np.float64), np.asarray(running, dtype=np.float64)))
    order = np.lexsort((-ended, times))  # at the same time those that were completed come first
    times, ended = times[order], ended[order]
    after = np.asarray(np.cumprod(1.0 - ended / np.arange(times.size, 0, -1.0)), dtype=np.float64)
    start = _tail_begin(after, ended)
    tail, long = _mean_excess(times, ended, start)
    tail *= 1.0 + 1.0 / math.sqrt(long)
    kept = np.flatnonzero(ended[: start + 1] > 0.0) if ended[: start + 1].any() else np.array([start])
    steps, left = times[kept], after[kept]
    if steps[-1] < times[start]:
        steps, left = np.append(steps, times[start]), np.append(left, after[start])
    mean, cv = _moments(steps, left, tail)
    return ServiceTimes(steps, left, tail, len(done), mean, cv)


def _tail_begin(after: Floats, ended: Floats) -> int:
    """Return the index beyond which the tail is fitted: the share `LONG_SHARE`, or enough that `LONG_LEAST` are
    left."""
    later = np.cumsum(ended[::-1])[::-1] - ended
    enough = np.flatnonzero((after <= LONG_SHARE) & (later >= LONG_LEAST))
    if enough.size:
        return int(enough[0])
    enough = np.flatnonzero(later >= min(LONG_LEAST, int(ended.sum()) - 1))
    return int(enough[-1]) if enough.size else 0


def _mean_excess(times: Floats, ended: Floats, start: int) -> tuple[float, float]:
    """Mean excess over the time at `start` (total time beyond it by completions, so that unfinished jobs count), and of
    how many completed jobs."""
    long = max(1.0, float(ended[start + 1 :].sum()))
    total = float((times[start + 1 :] - times[start]).sum())
    if total > 0.0:
        return total / long, long
    return float(times[start]) * (1.0 if ended.sum() < 2.0 else ALIKE), long  # one job, or all took the same


def _moments(times: Floats, left: Floats, tail: float) -> tuple[float, float]:
    before = np.concatenate(([1.0], left[:-1]))
    begins = np.concatenate(([0.0], times[:-1]))
    last, rest = float(times[-1]), float(left[-1])
    mean = float((before * (times - begins)).sum()) + rest * tail
    square = float((before * (times**2 - begins**2)).sum()) + 2.0 * rest * tail * (last + tail)
    return mean, math.sqrt(max(0.0, square - mean**2)) / mean


def unavoidable(
    times: ServiceTimes, ages: Floats, waiting: int, left: float, arrivals: Floats, lengths: Floats
) -> float:
    """Probability (0..1) that a job is left at the deadline however many nodes there are: each begins at once and runs
    without a stop, exactly so for independent jobs and Poisson arrivals.

    ages: float64[b], what begun jobs have had; waiting: jobs that were not begun; left: time to the deadline (>= 0);
    arrivals: float64[m], expected in each coming interval, the last one ends at the deadline; lengths: float64[m], of
    them. Times in the unit of `times`. O((b + m) log n).
    """
    if left <= 0.0:
        return 1.0 if waiting or np.size(ages) else 0.0
    kept = np.log1p(-np.minimum(times.residual(ages, np.full(np.size(ages), left)), 1.0 - 1e-15)).sum()
    fresh = min(float(times.survival(np.array([left]))[0]), 1.0 - 1e-15)
    kept += waiting * math.log1p(-fresh)
    ends = np.cumsum(np.asarray(lengths)[::-1])[::-1]
    shares = (np.arange(PIECES) + 0.5) / PIECES
    rests = ends[:, None] - np.asarray(lengths)[:, None] * shares
    kept -= float((np.asarray(arrivals) * times.survival(np.maximum(rests, 0.0)).mean(axis=1)).sum())
    return float(-np.expm1(kept))
