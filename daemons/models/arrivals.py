"""The objective analyser's estimates for deadline windows: how many jobs come in when, and how much work each is.

Arrivals: a Gamma-Poisson model for each slot of a day. Counts of a weekday's slot are shrunk towards the slot's mean
over all weekdays, times how much busier that weekday is; slots' means towards the mean of all slots, that towards what
is declared. Days differ by a factor of mean 1 beyond Poisson; its variance is the `spread`. Work: Kaplan-Meier, so that
unfinished jobs count with what they have got.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]  # scipy has no types of its own

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HALF_LIFE_DAYS = 28.0  # a day that is so old counts half
DECLARED_DAYS = 1.0  # what is declared, and every mean that others are shrunk towards, weighs as so many days
SLOT_DAYS = 1.0
BUSY_DAYS = 0.5
WEEKDAY_DAYS = 2.0
SPREAD_DAYS = 1.0
SPREAD_PRIOR = 0.25  # of a day's number, relative variance: half as much again or less is nothing special
DECLARED_JOBS = 5.0  # the declared service time weighs as so many completed jobs
KNOWN_JOBS_MAX = 100.0  # more than so many jobs of earlier periods do not speak against those of this one
TYPE_JOBS = 10.0  # nodes of a type are as fast as their clock says, by so many jobs
BAND = 0.999  # what lies outside of such a band was not foreseen
SURE = 0.975  # of what is taken instead, on the safe side
STEPS = 64


@dataclass(frozen=True, slots=True)
class CountedDays:
    """Jobs that came in on past days: counts, exposure float64[days, slots] (how often the slot came by on that day),
    weekdays int64[days] (0..6), ages_days float64[days]."""

    counts: Floats
    exposure: Floats
    weekdays: Ints
    ages_days: Floats


@dataclass(frozen=True, slots=True)
class ArrivalProfile:
    """Jobs expected in each slot, float64[slots]; spread: relative variance of their sum beyond Poisson's; slot_spread:
    float64[slots], that of each slot; days: how many were counted."""

    rates: Floats
    spread: float
    slot_spread: Floats
    days: int


def profile_of(history: CountedDays, weekday: int, declared: float) -> ArrivalProfile:
    """Return the arrivals expected in each slot of a day of that weekday. `declared`: arrivals per slot, used until
    measurements exist (0: nothing was declared)."""
    weight = 0.5 ** (history.ages_days / HALF_LIFE_DAYS)
    counts, exposure = weight[:, None] * history.counts, weight[:, None] * history.exposure
    slots = history.counts.shape[1]
    prior_days = DECLARED_DAYS * slots if declared > 0.0 else 0.0
    seen = prior_days + float(exposure.sum())
    pooled = (prior_days * declared + float(counts.sum())) / seen if seen > 0.0 else 0.0
    by_slot = (SLOT_DAYS * pooled + counts.sum(axis=0)) / (SLOT_DAYS + exposure.sum(axis=0))
    rates = np.empty((7, slots))
    shape = np.empty((7, slots))
    for day in range(7):
        alike = history.weekdays == day
        usual = float((exposure[alike] * by_slot).sum())
        known_days = float(weight[alike].sum()) if usual > 0.0 else 0.0
        busier = float(counts[alike].sum()) / usual if usual > 0.0 else 1.0
        busy = (BUSY_DAYS + known_days * busier) / (BUSY_DAYS + known_days)
        shape[day] = WEEKDAY_DAYS * busy * by_slot + counts[alike].sum(axis=0)
        rates[day] = shape[day] / (WEEKDAY_DAYS + exposure[alike].sum(axis=0))
    spread = _spread(history, rates)
    total = float(shape[weekday].sum())
    unsure = np.divide(1.0, shape[weekday], out=np.zeros(slots), where=shape[weekday] > 0.0)
    days = len(history.weekdays)
    return ArrivalProfile(rates[weekday], spread + (1.0 / total if total > 0.0 else 0.0), spread + unsure, days)


def _spread(history: CountedDays, rates: Floats) -> float:
    """Return the relative variance of the days' sums beyond Poisson, by the method of moments; with few days it stays
    close to the prior."""
    expected = (history.exposure * rates[history.weekdays]).sum(axis=1)
    found = (history.counts.sum(axis=1) - expected) ** 2 - expected
    scale = float((expected**2).sum())
    measured = max(0.0, float(found.sum()) / scale) if scale > 0.0 else SPREAD_PRIOR
    days = float(np.count_nonzero(expected > 0.0))
    return (SPREAD_DAYS * SPREAD_PRIOR + days * measured) / (SPREAD_DAYS + days)


def count_band(mean: Floats, spread: Floats, band: float = BAND) -> tuple[Floats, Floats]:
    """Return the smallest and the largest count, both inclusive, that together hold probability `band`. mean, spread
    (relative variance beyond Poisson's): float64[n], 0 or above."""
    tail = (1.0 - band) / 2.0
    return _quantile(mean, spread, tail), _quantile(mean, spread, 1.0 - tail)


def _quantile(mean: Floats, spread: Floats, share: float) -> Floats:
    """Return the least whole number at which the cumulative probability reaches `share`."""
    mean, spread = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(spread, dtype=np.float64))
    low = np.full(mean.shape, -1.0)
    high = np.ceil(mean + 40.0 * np.sqrt(mean + spread * mean**2) + 40.0)
    for _ in range(STEPS):
        middle = np.floor((low + high) / 2.0)
        enough = _up_to(middle, mean, spread) >= share
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        if (high - low <= 1.0).all():
            break
    return np.asarray(high, dtype=np.float64)


def _up_to(count: Floats, mean: Floats, spread: Floats) -> Floats:
    """Return the probability of at most `count`: negative binomial, Poisson if the spread is 0."""
    known = np.maximum(count, 0.0)
    poisson = special.gammaincc(known + 1.0, mean)
    size = 1.0 / np.maximum(spread, 1e-9)
    spreads = special.betainc(size, known + 1.0, size / (size + mean))
    return np.asarray(np.where(count < 0.0, 0.0, np.where(spread > 1e-9, spreads, poisson)), dtype=np.float64)


def most_likely_at_most(count: float, sure: float = SURE) -> float:
    """So many were expected at the most, where `count` came: the upper bound of a Poisson mean."""
    return float(special.gammaincinv(count + 1.0, sure))


def busier_at_most(count: float, expected: float, spread: float) -> float:
    """Return the upper bound of the factor by which a day is busier than expected (> 0), given `count` arrivals so far.
    Days are assumed to differ at least as much as the prior says."""
    days = 1.0 / max(spread, SPREAD_PRIOR)
    return float(special.gammaincinv(days + count, SURE)) / (days + expected)


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """Of the work of a job: mean, the mean's relative standard error, coefficient of variation, completed jobs."""

    mean: float
    error: float
    cv: float
    jobs: int

    def band(self, band: float = 0.95) -> tuple[float, float]:
        """Return the interval in which the mean lies with probability `band`."""
        half = float(special.ndtri((1.0 + band) / 2.0)) * self.error
        return self.mean * max(0.0, 1.0 - half), self.mean * (1.0 + half)


def work_of(done: Sequence[float], running: Sequence[float], declared: float) -> WorkEstimate:
    """Estimates the work of a job from that of completed ones, what unfinished ones have got so far, and what is
    declared (0: nothing). All finite and above 0; a mean of 0 when nothing at all is known."""
    jobs = len(done)
    weight = DECLARED_JOBS if declared > 0.0 else 0.0
    if not jobs:
        mean = declared + math.fsum(running) / weight if weight else 0.0
        return WorkEstimate(mean, 1.0 / math.sqrt(DECLARED_JOBS), 1.0, 0)
    measured, cv = _kaplan_meier(np.array(done, dtype=np.float64), np.array(running, dtype=np.float64))
    mean = (weight * declared + jobs * measured) / (weight + jobs)
    variance = (DECLARED_JOBS + jobs * cv**2) / (DECLARED_JOBS + jobs)
    return WorkEstimate(mean, math.sqrt(variance / (weight + jobs)), math.sqrt(variance), jobs)


def _kaplan_meier(done: Floats, running: Floats) -> tuple[float, float]:
    """Mean and coefficient of variation; beyond the last completed job the tail is exponential."""
    times = np.concatenate((done, running))
    ends = np.concatenate((np.ones(len(done)), np.zeros(len(running))))
    order = np.lexsort((-ends, times))  # at the same time those that were completed come first
    times, ends = times[order], ends[order]
    at_risk = np.arange(len(times), 0, -1)
    after = np.cumprod(1.0 - ends / at_risk)
    before = np.concatenate(([1.0], after[:-1]))
    begins = np.concatenate(([0.0], times[:-1]))
    mean = float((before * (times - begins)).sum())
    square = float((before * (times**2 - begins**2)).sum())
    left, last = float(after[-1]), float(times[-1])
    if left > 0.0:
        scale = float(times.sum()) / len(done)
        mean += left * scale
        square += 2.0 * left * scale * (last + scale)
    return mean, math.sqrt(max(0.0, square - mean**2)) / mean


def left_work_band(period: WorkEstimate, forecast: WorkEstimate, least_jobs: int = 5) -> bool:
    """Return whether the jobs of a period were so much longer or shorter that they lie outside the forecast's band."""
    if period.jobs < least_jobs or forecast.mean <= 0.0:
        return False
    error = math.hypot(forecast.cv / math.sqrt(period.jobs), forecast.error)
    return abs(period.mean / forecast.mean - 1.0) > float(special.ndtri((1.0 + BAND) / 2.0)) * error


def joined_work(forecast: WorkEstimate, period: WorkEstimate) -> WorkEstimate:
    """Return the forecast updated with the jobs of a period. The jobs behind the forecast count by its own error and as
    at most `KNOWN_JOBS_MAX`. A few long jobs therefore do not outweigh all earlier ones."""
    known = (forecast.cv / forecast.error) ** 2 if forecast.error > 0.0 else DECLARED_JOBS
    known = min(max(known, DECLARED_JOBS), KNOWN_JOBS_MAX)
    jobs = known + period.jobs
    mean = (known * forecast.mean + period.jobs * period.mean) / jobs
    cv = math.sqrt((known * forecast.cv**2 + period.jobs * period.cv**2) / jobs)
    return WorkEstimate(mean, cv / math.sqrt(jobs), cv, period.jobs)


def type_speeds(work: Sequence[float], types: Sequence[str], classes: Sequence[str]) -> dict[str, float]:
    """Return the speed of each node type relative to its clock (1: as the clock says), from completed jobs of classes
    that ran on several types. `work`: seconds times the speed by the clock; "" as a type: unknown."""
    known = [index for index, name in enumerate(types) if name and work[index] > 0.0]
    levels: dict[str, list[float]] = {}
    for index in known:
        levels.setdefault(classes[index], []).append(math.log(work[index]))
    means = {name: math.fsum(values) / len(values) for name, values in levels.items()}
    slower: dict[str, list[float]] = {}
    for index in known:
        slower.setdefault(types[index], []).append(math.log(work[index]) - means[classes[index]])
    return {name: math.exp(-math.fsum(found) / (len(found) + TYPE_JOBS)) for name, found in slower.items()}
