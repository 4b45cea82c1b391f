"""Simulated periods with a deadline: the arrivals of the thesis, and the lot of runs beside one job at a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from daemons.capacity.provisioning.arrivals import ArrivalProcess, thesis_arrivals
from daemons.capacity.provisioning.file import Scenario
from daemons.capacity.provisioning.monte_carlo import Period, Sizes, simulate, wilson
from daemons.capacity.provisioning.series import read_scenario
from tests.extent import first
from tests.support.arrivals import poisson_arrivals

EXAMPLE = Path(__file__).parents[2] / "examples/provision-thesis.toml"


@dataclass(frozen=True, slots=True)
class Table:
    """A rule by itself."""

    servers_min: int
    sizes: NDArray[np.uint16]
    delayed: bool = False


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """The thesis's."""
    return read_scenario(EXAMPLE).scenario


def moments(process: ArrivalProcess, runs: int) -> tuple[float, float, NDArray[np.float64]]:
    """Mean and deviation of the number of arrivals, and all of them."""
    rng = np.random.default_rng(7)
    times = process.draw(rng, runs)
    assert (times[:, 1:] >= times[:, :-1]).all()
    count = np.isfinite(times).sum(axis=1)
    return float(count.mean()), float(count.std(ddof=1)), times


def test_the_thesis_arrivals(scenario: Scenario) -> None:
    """144.985 of them with deviation 12.067 (exact values), none after the end of submission."""
    runs = 20_000
    mean, sd, times = moments(thesis_arrivals(scenario), runs)
    assert mean == pytest.approx(144.985, abs=4 * 12.067 / runs**0.5)
    assert sd == pytest.approx(12.067, abs=4 * 12.067 / (2 * runs) ** 0.5)
    assert 63.0 < times[np.isfinite(times)].max() <= 64.0


@pytest.mark.full
def test_poisson_arrivals(scenario: Scenario) -> None:
    """As many as the rate says, in every part of the period; the deviation is the root of the mean."""
    runs = 20_000
    mean, sd, times = moments(poisson_arrivals(scenario), runs)
    assert mean == pytest.approx(145.10574, abs=4 * 145**0.5 / runs**0.5)
    assert sd == pytest.approx(145.10574**0.5, abs=4 * 12.05 / (2 * runs) ** 0.5)
    grid = np.linspace(0.0, 64.0, 64_001)
    rate = scenario.rate_per_interval((grid[1:] + grid[:-1]) / 2) * np.diff(grid)
    wanted = rate.reshape(16, -1).sum(axis=1)
    found = np.histogram(times[np.isfinite(times)], bins=16, range=(0, 64))[0] / runs
    assert found == pytest.approx(wanted, abs=4 * (wanted.max() / runs) ** 0.5)


# --- the same runs, one job at a time ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Naive:
    """What one run came to."""

    cost: float = 0.0
    late: int = 0
    events: int = 0
    added: int = 0


def play_naively(period: Period, arrivals: list[float], rule: Sizes, rng: np.random.Generator) -> Naive:
    """Jobs with service times of their own, first come first served, on servers that come and go; what a job was
    served before its server went is kept."""
    found = Naive()
    waiting: list[tuple[float, float]] = []  # (arrival, service left)
    running: list[tuple[float, float]] = []
    todo = sorted(arrivals, reverse=True)
    servers, asked = period.servers_min, False
    for interval, price in enumerate(period.price.tolist()):
        jobs = len(waiting) + len(running)
        table = rule.sizes[interval]
        size = int(table[servers - rule.servers_min, min(jobs, table.shape[1] - 1)])
        if interval and rule.delayed:
            fewer = size < servers
            size = servers if fewer and not asked else size
            asked = fewer
        before = servers if interval else size
        found.cost += price * size + float(period.removal_price[interval]) * max(before - size, 0)
        found.events += size > before
        found.added += max(size - before, 0)
        for begin, until, serving in (
            (interval, interval + period.deploy, min(before, size)),
            (interval + period.deploy, interval + 1, size),
        ):
            _serve(begin, until, serving * period.slots, period.service, todo, waiting, running, rng)
        servers = size
    found.late = len(waiting) + len(running)
    return found


def _serve(
    now: float,
    until: float,
    places: int,
    service: float,
    todo: list[float],
    waiting: list[tuple[float, float]],
    running: list[tuple[float, float]],
    rng: np.random.Generator,
) -> None:
    """From one moment to the next with so many places."""
    while len(running) > places:
        heapq.heappush(waiting, running.pop(running.index(max(running))))
    while True:
        while waiting and len(running) < places:
            running.append(heapq.heappop(waiting))
        ends = now + min((left for _, left in running), default=np.inf)
        comes = todo[-1] if todo else np.inf
        then = min(ends, comes, until)
        running[:] = [(came, left - (then - now)) for came, left in running]
        now = then
        if then == until:
            return
        if then == comes:
            heapq.heappush(waiting, (todo.pop(), float(rng.exponential(service))))
        else:
            running.remove(min(running, key=lambda job: job[1]))


def ramp(intervals: int, servers_max: int, jobs_max: int, per_server: int) -> NDArray[np.uint16]:
    """A server for so many jobs each, whatever there was before."""
    wanted = np.clip(-(-np.arange(jobs_max + 1) // per_server), 1, servers_max).astype(np.uint16)
    sizes = np.broadcast_to(wanted, (intervals, servers_max, jobs_max + 1)).copy()
    sizes[0] = np.arange(1, servers_max + 1)[:, None]
    return sizes


@pytest.mark.full
@pytest.mark.parametrize(("slots", "deploy"), first([(1, 0.4), (2, 0.05)]))
def test_beside_one_job_at_a_time(slots: int, deploy: float) -> None:
    """Given a short period, then costs, late jobs and deployments agree with those of a simulation that follows every
    job, within four deviations, for a rule that follows the queue and the same with delayed removal."""
    intervals, runs, few = 12, 20_000, 2_000
    period = Period(
        1.3, 1, deploy, np.linspace(0.5, 1.5, intervals), np.linspace(0.2, 0.4, intervals) * (deploy + 0.1), slots
    )

    def draw(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return np.sort(rng.random((count, 18)) * 8.0, axis=1)

    sizes = ramp(intervals, 4, 9, 2 * slots)
    for rule in (Table(1, sizes), Table(1, sizes, delayed=True)):
        outcome = simulate(period, ArrivalProcess(draw, 18.0), {"rule": rule}, runs, 5).outcomes["rule"]
        rng = np.random.default_rng(11)
        each = [play_naively(period, draw(rng, 1)[0].tolist(), rule, rng) for _ in range(few)]
        for found, values in (
            (outcome.cost, [run.cost for run in each]),
            (outcome.missed_jobs, [float(run.late) for run in each]),
            (outcome.miss_probability, [float(run.late > 0) for run in each]),
            (outcome.deployment_events, [float(run.events) for run in each]),
            (outcome.servers_deployed, [float(run.added) for run in each]),
        ):
            assert np.std(values) > 0
            assert found.mean == pytest.approx(np.mean(values), abs=4 * np.std(values) * (1 / few + 1 / runs) ** 0.5)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_seeds(scenario: Scenario) -> None:
    """The same seed gives the same figures, another one others."""
    period = Period(1200 / 900, 1, 25 / 900, np.ones(92), np.full(92, 30 / 900))
    rules = {"rule": Table(1, ramp(92, 5, 40, 4))}

    def play(seed: int) -> tuple[float, float]:
        found = simulate(period, thesis_arrivals(scenario), rules, 300, seed)
        return found.outcomes["rule"].cost.mean, found.arrivals_mean

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_one_run_and_no_arrivals() -> None:
    """Given a single run in which nothing comes, then it costs what the servers cost and nothing is late."""
    period = Period(1.0, 2, 0.0, np.array([1.0, -0.5, 2.0]), np.zeros(3))
    table = Table(2, np.full((3, 1, 1), 2, dtype=np.uint16))

    def draw(_: np.random.Generator, runs: int) -> NDArray[np.float64]:
        return np.full((runs, 0), np.inf)

    process = ArrivalProcess(draw, 0.0)
    found = simulate(period, process, {"static": table}, 1, 0).outcomes["static"]
    assert (found.cost.mean, found.cost.low, found.missed, found.servers_deployed.mean) == (5.0, 5.0, 0, 0.0)
    assert found.mean_servers.tolist() == [2.0, 2.0, 2.0]


def test_wilson() -> None:
    """Within [0, 1], around the share, and not of no width where nothing was seen."""
    assert wilson(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(100, 100)[1] == 1.0
