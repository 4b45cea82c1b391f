"""Capacities and steps of the queue found by playing at random, as batch-provisioning.txt does in sections 4.2.3 and
4.3.4: what exact figures are compared with, in result and in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.provisioning.arrivals import thesis_arrivals
from daemons.capacity.provisioning.file import Scenario
from daemons.capacity.provisioning.monte_carlo import advance, chunk_size, events_of

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ProbedCapacity:
    """jobs: the most that are finished often enough, -1 where not even none; tried: how many numbers of jobs."""

    jobs: int
    tried: int


def jobs_after(
    scenario: Scenario, span: tuple[int, int], jobs: int, servers: int, runs: int, rng: np.random.Generator
) -> Ints:
    """Return the number of jobs at the end of a span of intervals (begin, end), int32[runs], from `jobs` jobs at its
    begin and with `servers` servers throughout."""
    begin, end = span
    places = servers * scenario.servers.slots
    rate = places * (end - begin) * scenario.period.interval_s / scenario.service.mean_s
    process = thesis_arrivals(scenario, begin)
    left = []
    chunk = chunk_size(process.expected + rate)
    for first in range(0, runs, chunk):
        count = min(chunk, runs - first)
        times = (process.draw(rng, count) - begin) / (end - begin)
        times[times >= 1.0] = np.inf
        now = np.full((1, count), jobs, dtype=np.int32)
        room = np.full_like(now, places)
        advance(now, room, room, events_of(times.astype(np.float32), rate, rng), places, 0.0, rng)
        left.append(now[0])
    return np.concatenate(left)


def finished_share(
    scenario: Scenario, begin: int, jobs: int, servers: int, runs: int, rng: np.random.Generator
) -> float:
    """Q_s(p, n): the share of runs from `begin` on in which no job is left at the deadline."""
    left = jobs_after(scenario, (begin, scenario.period.deadline), jobs, servers, runs, rng)
    return float((left == 0).mean())


def capacity_by_chance(
    scenario: Scenario, begin: int, servers: int, runs: int, rng: np.random.Generator
) -> ProbedCapacity:
    """Compute g_s(p) by a binary search over 0..gamma (equation 4.6), with `runs` runs per step."""
    period = scenario.period
    gamma = scenario.servers.max * period.deadline * period.interval_s / scenario.service.mean_s
    low, high, tried = -1, math.ceil(gamma), 0
    while low < high:
        middle = (low + high + 1) // 2
        tried += 1
        if finished_share(scenario, begin, middle, servers, runs, rng) >= scenario.promise.confidence:
            low = middle
        else:
            high = middle - 1
    return ProbedCapacity(low, tried)


def steps_by_chance(
    scenario: Scenario, interval: int, jobs: int, servers: int, runs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return k_s(q, n, .): the fraction of runs with 0, 1, .. jobs one interval later."""
    after = jobs_after(scenario, (interval, interval + 1), jobs, servers, runs, rng)
    return np.bincount(after) / runs


def largest_decreases(scenario: Scenario, servers: int, runs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """D_s of every interval: by how much the number of jobs fell at most in `runs` runs in which all servers are busy
    throughout (section 4.3.4)."""
    period = scenario.period
    rate = servers * scenario.servers.slots * period.interval_s / scenario.service.mean_s
    times = thesis_arrivals(scenario).draw(rng, runs)
    arrived = np.stack([np.histogram(row, np.arange(period.deadline + 1))[0] for row in times])
    done = rng.poisson(rate, arrived.shape)
    return np.asarray(np.maximum(done - arrived, 0).max(axis=0), dtype=np.int64)
