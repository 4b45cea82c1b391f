"""Many runs of a period with a deadline at once: the queue, the servers that a rule adds and removes, and the cost.

All runs and all rules go through the same arrivals and the same chances of completion, so that differences between
rules are not those of luck. Jobs are taken first come first served and are checkpointed when their server goes; with
exponential service times the number of jobs is all that matters. A completion is drawn for each place that any rule
may have and counts where that place is busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.provisioning.arrivals import ArrivalProcess

CHUNK_MAX = 10_000
CHUNK_EVENTS = 10_000_000
Z_95 = 1.959963984540054
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
_NEVER = np.float32(np.inf).view(np.int32)
_NOBODY = np.iinfo(np.int32).max


class Sizes(Protocol):
    """A rule: sizes[s, p - servers_min, n] servers from the decision point s on, row 0 from the begin; more jobs than
    the last column count as so many. delayed: removal waits until two decision points in turn ask for it."""

    @property
    def servers_min(self) -> int:
        """The size of the first row."""

    @property
    def sizes(self) -> NDArray[np.uint16]:
        """Of d decision points."""

    @property
    def delayed(self) -> bool:
        """Whether a removal waits."""


@dataclass(frozen=True, slots=True)
class Period:
    """What is simulated, in intervals. service: mean service time; deploy: what passes before an added server serves;
    price, removal_price: float64[d], of a server in an interval, and of one that is removed at its begin; slots: jobs
    that a server executes at a time."""

    service: float
    servers_min: int
    deploy: float
    price: Floats
    removal_price: Floats
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs within its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rule led to. missed: runs with a job unfinished at the deadline; miss_probability: their share (its
    interval by Wilson). mean_servers: float64[d]; mean_jobs, sd_jobs: float64[d + 1], at the begin of each interval
    and at the deadline."""

    runs: int
    missed: int
    miss_probability: Estimate
    missed_jobs: Estimate
    cost: Estimate
    deployment_events: Estimate
    servers_deployed: Estimate
    mean_servers: Floats
    mean_jobs: Floats
    sd_jobs: Floats


@dataclass(frozen=True, slots=True)
class Simulated:
    """Every rule's outcome by its name; mean and standard deviation of the number of arrivals."""

    outcomes: dict[str, Outcome]
    arrivals_mean: float
    arrivals_sd: float


def simulate(period: Period, process: ArrivalProcess, rules: Mapping[str, Sizes], runs: int, seed: int) -> Simulated:
    """Play `runs` (>= 1) periods under every rule, from no job and `servers_min` servers on."""
    places = period.slots * max(int(rule.sizes.max()) for rule in rules.values())
    tally = _Tally(len(rules), len(period.price))
    chunk = chunk_size(process.expected + places * len(period.price) / period.service)
    counts: list[NDArray[np.int64]] = []
    streams = np.random.SeedSequence(seed).spawn(math.ceil(runs / chunk))
    for index, stream in enumerate(streams):
        count = min(chunk, runs - index * chunk)
        rng = np.random.default_rng(stream)
        times = process.draw(rng, count)
        counts.append(np.isfinite(times).sum(axis=1))
        _play(period, times, list(rules.values()), places, rng, tally)
    arrived = np.concatenate(counts)
    outcomes = {name: tally.outcome(row, runs) for row, name in enumerate(rules)}
    return Simulated(outcomes, float(arrived.mean()), float(arrived.std(ddof=min(1, runs - 1))))


def chunk_size(events: float) -> int:
    """Return how many runs of `events` events are simulated at once."""
    return int(min(CHUNK_MAX, max(100.0, CHUNK_EVENTS / max(events, 1.0))))


def _play(
    period: Period, times: Floats, rules: Sequence[Sizes], places: int, rng: np.random.Generator, tally: _Tally
) -> None:
    """Simulate one batch of runs from begin to deadline, row by row into the tally."""
    runs = times.shape[0]
    jobs = np.zeros((len(rules), runs), dtype=np.int32)
    before = np.full_like(jobs, period.servers_min)
    wanted = np.zeros(jobs.shape, dtype=bool)
    cost = np.zeros(jobs.shape)
    added = np.zeros((2, *jobs.shape))
    arrivals = _by_interval(times, len(period.price))
    for interval, arriving in enumerate(arrivals):
        size = _decide(rules, interval, before, jobs, wanted)
        if interval == 0:
            before = size  # there from the begin
        more: Ints = np.maximum(size - before, 0)
        added[0] += more > 0
        added[1] += more
        cost += period.price[interval] * size + period.removal_price[interval] * np.maximum(before - size, 0)
        tally.note(interval, size, jobs)
        events = events_of(arriving, places / period.service, rng)
        advance(jobs, period.slots * np.minimum(size, before), period.slots * size, events, places, period.deploy, rng)
        before = size
    tally.note_end(jobs, cost, added)


def _decide(rules: Sequence[Sizes], interval: int, before: Ints, jobs: Ints, wanted: NDArray[np.bool_]) -> Ints:
    """Return the sizes after the decision point, for every rule and run; updates the memory of delayed rules."""
    size = np.empty_like(before)
    for row, rule in enumerate(rules):
        table = rule.sizes[interval]
        chosen = table[before[row] - rule.servers_min, np.minimum(jobs[row], table.shape[1] - 1)].astype(np.int32)
        if rule.delayed and interval:
            fewer = chosen < before[row]
            chosen[fewer & ~wanted[row]] = before[row][fewer & ~wanted[row]]
            wanted[row] = fewer
        size[row] = chosen
    return size


def _by_interval(times: Floats, intervals: int) -> Iterator[NDArray[np.float32]]:
    """Arrivals of each interval, float32[runs, k], as shares of it, infinity where there is none."""
    runs, most = times.shape
    within = np.where(np.isfinite(times), times, intervals).astype(np.int64)
    flat = np.bincount((np.arange(runs)[:, None] * (intervals + 1) + within).ravel(), minlength=runs * (intervals + 1))
    count = flat.reshape(runs, intervals + 1)
    begin = np.cumsum(count, axis=1) - count
    for interval in range(intervals):
        width = int(count[:, interval].max(initial=0))
        places = begin[:, interval, None] + np.arange(width)
        taken = np.take_along_axis(times, np.minimum(places, max(most - 1, 0)), axis=1) if width else times[:, :0]
        share = (taken - interval).astype(np.float32)
        share[np.arange(width) >= count[:, interval, None]] = np.inf
        yield np.clip(share, 0.0, None)


def events_of(arriving: NDArray[np.float32], rate: float, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the arrivals of an interval, and possible completions, `rate` of them on average.

    int32[runs, k], ascending: the moment of each event in the interval as the bits of a float32, whose last bit is 1
    for an arrival and 0 for a possible completion; `_NEVER` or more for none.
    """
    runs: int = arriving.shape[0]
    count = rng.poisson(rate, runs)
    most = int(count.max(initial=0))
    moments = rng.random((runs, most), dtype=np.float32)
    moments[np.arange(most) >= count[:, None]] = np.inf
    both = np.concatenate([arriving.view(np.int32) | 1, moments.view(np.int32) & ~1], axis=1)
    both.sort(axis=1)
    return both


def advance(
    jobs: Ints, first: Ints, later: Ints, events: Ints, places: int, deploy: float, rng: np.random.Generator
) -> None:
    """Change the numbers of jobs by the events of one interval: column by column, runs with many events first."""
    total = (events < _NEVER).sum(axis=1)
    order = np.argsort(-total, kind="stable")
    left = np.searchsorted(-total[order], -np.arange(events.shape[1]), side="left")
    columns = np.ascontiguousarray(events[order].T)
    now, serving, at_first = jobs[:, order], later[:, order], first[:, order]
    early_bits = np.float32(deploy).view(np.int32)
    for column, alive in zip(columns, left.tolist(), strict=True):
        if not alive:
            break
        event = column[:alive]
        arrival = (event & 1).astype(np.int32)
        place = rng.integers(1, places + 1, alive, dtype=np.int32)
        place[arrival == 1] = _NOBODY
        room = serving[:, :alive]
        early = event < early_bits
        if early.any():
            room = np.where(early, at_first[:, :alive], room)
        slots = now[:, :alive]
        slots += arrival
        slots -= place <= np.minimum(slots, room)
    jobs[:, order] = now


class _Tally:
    """Sums over runs, from which means and intervals come."""

    def __init__(self, rules: int, intervals: int) -> None:
        self._servers = np.zeros((rules, intervals))
        self._jobs = np.zeros((2, rules, intervals + 1))
        self._missed = np.zeros(rules, dtype=np.int64)
        self._sums = np.zeros((2, 4, rules))

    def note(self, interval: int, size: Ints, jobs: Ints) -> None:
        """Record the state in an interval."""
        self._servers[:, interval] += size.sum(axis=1)
        self._note_jobs(interval, jobs)

    def note_end(self, jobs: Ints, cost: Floats, added: Floats) -> None:
        """Record the state at the deadline."""
        self._note_jobs(self._jobs.shape[2] - 1, jobs)
        self._missed += (jobs > 0).sum(axis=1)
        for index, values in enumerate((cost, jobs, added[0], added[1])):
            self._sums[0, index] += values.sum(axis=1, dtype=np.float64)
            self._sums[1, index] += np.square(values, dtype=np.float64).sum(axis=1)

    def _note_jobs(self, at: int, jobs: Ints) -> None:
        self._jobs[0, :, at] += jobs.sum(axis=1)
        self._jobs[1, :, at] += np.square(jobs, dtype=np.float64).sum(axis=1)

    def outcome(self, row: int, runs: int) -> Outcome:
        """Return the outcome of one rule."""
        cost, late, events, servers = (
            _estimate(float(self._sums[0, index, row]), float(self._sums[1, index, row]), runs)
            for index in range(self._sums.shape[1])
        )
        mean_jobs = self._jobs[0, row] / runs
        spread = np.sqrt(np.maximum(self._jobs[1, row] / runs - mean_jobs**2, 0.0))
        missed = int(self._missed[row])
        share = Estimate(missed / runs, *wilson(missed, runs))
        return Outcome(
            runs,
            missed,
            share,
            missed_jobs=late,
            cost=cost,
            deployment_events=events,
            servers_deployed=servers,
            mean_servers=self._servers[row] / runs,
            mean_jobs=mean_jobs,
            sd_jobs=spread,
        )


def _estimate(total: float, squares: float, runs: int) -> Estimate:
    mean = total / runs
    variance = max(squares / runs - mean * mean, 0.0) * runs / max(runs - 1, 1)
    half = Z_95 * math.sqrt(variance / runs)
    return Estimate(mean, mean - half, mean + half)


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """Return the 95 % interval of a probability by Wilson's score."""
    share, weight = hits / runs, Z_95 * Z_95 / runs
    middle = (share + weight / 2.0) / (1.0 + weight)
    half = Z_95 * math.sqrt(share * (1.0 - share) / runs + weight / (4.0 * runs)) / (1.0 + weight)
    return max(middle - half, 0.0), min(middle + half, 1.0)
