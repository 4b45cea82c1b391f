"""What is run for the tables and figures of batch-provisioning.txt, chapter 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.process_pool import Work
from daemons.capacity.provisioning.arrivals import thesis_arrivals
from daemons.capacity.provisioning.monte_carlo import Outcome, simulate
from daemons.capacity.provisioning.problem import period_of, problem_of
from daemons.capacity.provisioning.report import table_of
from daemons.models.deadline.capacity import breach, capacity, finish_probabilities
from daemons.models.deadline.evaluation import Evaluation, evaluate
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import METHODS, SizeTable, TableSpec
from daemons.models.deadline.tables import size_table
from shared.base.clock import perf_s
from sim_backend.experiments.provisioning.probing import capacity_by_chance
from sim_backend.experiments.provisioning.settings import (
    AWARE,
    LOOSE,
    RUNS,
    SERVERS_MAX,
    SHAPES,
    SIMPLE,
    SIZES,
    THESIS,
    thesis,
)

Floats = NDArray[np.float64]
BINS = 64  # of the histogram of arrivals, one for each interval of submission
SAVING_RATIOS = (2.4, 5.0)  # up to which the thesis's words on savings hold


@dataclass(frozen=True, slots=True)
class Streams:
    """1,000 streams of arrivals. gap_s: a stream's last arrival / its number of arrivals, mean and deviation over the
    streams; by_interval: mean number of arrivals in each; whole_seconds: mean number by a clock without fractions."""

    mean: float
    sd: float
    gap_s: float
    gap_sd_s: float
    by_interval: Floats
    whole_seconds: float


def play_streams(seed: int, servers_max: int = SERVERS_MAX) -> Streams:
    """Simulate the arrivals of section 5.1.1, or of Table 5.1 for more servers."""
    scenario = thesis(servers_max).scenario
    rng = np.random.default_rng(seed)
    times = thesis_arrivals(scenario).draw(rng, RUNS)
    count = np.isfinite(times).sum(axis=1)
    last_s = np.where(np.isfinite(times), times, 0.0).max(axis=1) * scenario.period.interval_s
    found, _ = np.histogram(times[np.isfinite(times)], BINS, (0.0, float(BINS)))
    gaps_s = last_s / np.maximum(count, 1)
    whole = _whole_seconds(scenario.arrivals.mean_s, scenario.submission_end_s, rng)
    return Streams(
        float(count.mean()),
        float(count.std(ddof=1)),
        float(gaps_s.mean()),
        float(gaps_s.std(ddof=1)),
        found / RUNS,
        whole,
    )


def _whole_seconds(mean_s: float, end_s: float, rng: np.random.Generator) -> float:
    """Mean number of arrivals where each time is cut to whole seconds."""
    curve = np.polynomial.Polynomial(thesis().scenario.arrivals.profile)
    at_s = np.zeros(RUNS)
    count = 0
    while (inside := at_s <= end_s).any():
        at_s = np.where(inside, np.floor(at_s + rng.exponential(mean_s, RUNS) * curve(at_s)), at_s)
        count += int((inside & (at_s <= end_s)).sum())
    return count / RUNS


@dataclass(frozen=True, slots=True)
class Capacities:
    """table: g_s(p); finish: Pr[done by the deadline | 9 jobs at 84], [3 at 85], with five servers; static: probability
    of breach from the begin for one to five servers; by_chance: g_84(5) as the thesis finds it, for each seed."""

    table: NDArray[np.int64]
    finish: tuple[float, float]
    static: Floats
    by_chance: tuple[int, ...]


def play_capacities(seeds: int) -> Capacities:
    """Section 5.2."""
    given = thesis()
    problem = problem_of(given)
    found = {at: finish for at, finish in finish_probabilities(problem, None, 84) if at in (84, 85)}
    chance = [
        capacity_by_chance(given.scenario, 84, 5, RUNS, np.random.default_rng(seed)).jobs for seed in range(seeds)
    ]
    finish = (float(found[84][-1, 9]), float(found[85][-1, 3]))
    return Capacities(capacity(problem), finish, breach(problem, 0, 0), tuple(chance))


@dataclass(frozen=True, slots=True)
class Priced:
    """One cost function: every policy exactly, `values` where it has a value function; the thesis's heuristics played
    1,000 times with each seed, exactly with tables of a loose confidence, and their costs (with static's) by ratio."""

    shape: str
    price: Floats
    top: NDArray[np.int64]
    exact: dict[str, Evaluation]
    values: dict[str, float | None]
    played: tuple[dict[str, Outcome], ...]
    loose: dict[str, Evaluation]
    by_ratio: dict[float, dict[str, float]]


def play_priced(shape: str, seeds: int) -> Priced:
    """Section 5.4 under one cost function."""
    given = thesis()
    problem = problem_of(given, shape)
    tables = {name: table_of(problem, name)[0] for name in METHODS}
    played = tuple(
        simulate(period_of(problem), thesis_arrivals(given.scenario), _of_thesis(tables), RUNS, seed).outcomes
        for seed in range(seeds)
    )
    return Priced(
        shape,
        np.asarray(problem.price),
        capacity(problem, np.array([problem.servers_max]))[:, 0],
        exact={name: evaluate(problem, table) for name, table in tables.items()},
        values={name: table.value_at_0 for name, table in tables.items()},
        played=played,
        loose=_evaluated(problem_of(thesis(confidence=LOOSE), shape), AWARE),
        by_ratio={
            ratio: {
                name: found.expected_server_cost
                for name, found in _evaluated(problem_of(thesis(ratio=ratio), shape), ("static", *THESIS)).items()
            }
            for ratio in SAVING_RATIOS
        },
    )


def _of_thesis(tables: dict[str, SizeTable]) -> dict[str, SizeTable]:
    return {name: tables[name] for name in THESIS}


def _evaluated(problem: DeadlineProblem, names: tuple[str, ...]) -> dict[str, Evaluation]:
    return {name: evaluate(problem, size_table(TableSpec(name, problem))) for name in names}


@dataclass(frozen=True, slots=True)
class Scaled:
    """One size of section 5.4.4. took_s: of g_s(pmax), of the whole g_s(p), of the tables of H1 and H3 to H5."""

    servers_max: int
    streams: tuple[Streams, ...]
    took_s: dict[str, float]


def play_scaled(servers_max: int, seeds: int) -> Scaled:
    """Arrivals and times for one largest number of servers."""
    problem = problem_of(thesis(servers_max))
    took_s: dict[str, float] = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        begun_s = perf_s()
        work()
        took_s[what] = perf_s() - begun_s

    timed("g(pmax)", lambda: capacity(problem, np.array([servers_max])))
    timed("g", lambda: capacity(problem))
    for name in (SIMPLE[0], *AWARE):
        timed(name, partial(size_table, TableSpec(name, problem)))
    return Scaled(servers_max, tuple(play_streams(seed, servers_max) for seed in range(seeds)), took_s)


def work_arrivals(seeds: int) -> list[Work]:
    """Return the work for every seed."""
    return [(play_streams, (seed,)) for seed in range(seeds)]


def work_capacities(seeds: int) -> list[Work]:
    """Return the work as a single piece for all seeds."""
    return [(play_capacities, (seeds,))]


def work_policies(seeds: int) -> list[Work]:
    """Return the work for every cost function."""
    return [(play_priced, (shape, seeds)) for shape in SHAPES]


def work_scale(seeds: int) -> list[Work]:
    """Return the work for every size, the largest first."""
    return [(play_scaled, (size, seeds)) for size in sorted(SIZES, reverse=True)]
