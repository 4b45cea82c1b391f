"""Servers for a deadline: exact tables beside the simulations of batch-provisioning.txt, then large clusters."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median

import numpy as np

from benchmarks.runner import Figure, cpu_s, cpu_time_s
from daemons.capacity.provisioning.problem import problem_of
from daemons.models.deadline.capacity import capacity
from daemons.models.deadline.rules import TableSpec
from daemons.models.deadline.tables import size_table
from sim_backend.experiments.provisioning.probing import capacity_by_chance, largest_decreases, steps_by_chance
from sim_backend.experiments.provisioning.settings import AWARE, HEURISTIC, SIZES, THESIS, thesis

RUNS = 10_000
STEP_RUNS = 1_000  # of each step k_s(q, n, .)
ROUNDS = 3
PROBES = (0, 24, 48, 64, 76, 91)  # intervals at which g is looked for by chance
STEP_PROBES = ((10, 0.4), (40, 1.0), (70, 0.7))  # (interval, share of pmax) at which steps are
LARGE = 100
DECISIONS = 20_000


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """Ratios to chance first, then times, memory and a decision."""
    for servers_max in SIZES:
        say(f"provisioning: g_s({servers_max}) by {RUNS} runs at {len(PROBES)} moments, then exactly")
        yield from _beside_chance(servers_max)
    say("provisioning: large clusters, each in a process of its own")
    yield from _large()
    yield from _decision()


def _beside_chance(servers_max: int) -> Iterator[Figure]:
    bench = f"pmax {servers_max}"
    problem = problem_of(thesis(servers_max))
    sizes = np.array([servers_max])
    exact_s = median(cpu_time_s(lambda: capacity(problem, sizes)) for _ in range(ROUNDS))
    table_s = median(cpu_time_s(lambda: size_table(TableSpec(AWARE[0], problem))) for _ in range(ROUNDS))
    chance_s, apart = _capacity_by_chance(servers_max, capacity(problem, sizes)[:, 0])
    steps_s = _steps_by_chance(servers_max)
    least = 1_000.0 if servers_max == 20 else None
    yield Figure(bench, f"g_s(pmax): {RUNS} runs / exact", chance_s / exact_s, "times", least=least)
    yield Figure(bench, "g_s(pmax) and k_s / the whole of H3", (chance_s + steps_s) / table_s, "times")
    yield Figure(bench, "g_s(pmax), exact", exact_s, "s of CPU time")
    yield Figure(bench, f"g_s(pmax), {RUNS} runs, scaled up", chance_s, "s of CPU time")
    yield Figure(bench, "largest difference between the two", apart, "jobs")
    yield Figure(bench, "H3 from nothing, exact", table_s, "s of CPU time")
    yield Figure(bench, f"k_s(q, n, .), {STEP_RUNS} runs each, scaled up", steps_s, "s of CPU time")


def _capacity_by_chance(servers_max: int, exact: np.typing.NDArray[np.int64]) -> tuple[float, float]:
    """CPU time for all moments, from that of the probes, and by how many jobs the probes are off."""
    scenario = thesis(servers_max).scenario
    rng = np.random.default_rng(servers_max)
    taken_s, apart = [], 0.0
    for begin in PROBES:
        begun_s = cpu_s()
        found = capacity_by_chance(scenario, begin, servers_max, RUNS, rng)
        taken_s.append(cpu_s() - begun_s)
        apart = max(apart, float(abs(found.jobs - exact[begin])))
    every = np.arange(scenario.period.deadline)
    return float(np.interp(every, PROBES, taken_s).sum()), apart


def _steps_by_chance(servers_max: int) -> float:
    """CPU time for k_s(q, n, .) at all moments s, sizes q and numbers of jobs n below R_s (section 4.3.4)."""
    scenario = thesis(servers_max).scenario
    rng = np.random.default_rng(servers_max)
    begun_s = cpu_s()
    lost = largest_decreases(scenario, servers_max, STEP_RUNS, rng)
    decreases_s = (cpu_s() - begun_s) * servers_max
    rows = sum(int((size + lost * size / servers_max).sum()) for size in range(1, servers_max + 1))
    begun_s = cpu_s()
    for interval, share in STEP_PROBES:
        servers = max(1, round(servers_max * share))
        steps_by_chance(scenario, interval, servers, servers, STEP_RUNS, rng)
    each_s = (cpu_s() - begun_s) / len(STEP_PROBES)
    return decreases_s + rows * each_s


# --- large clusters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Used:
    """CPU time of a piece of work, and the most memory that its process had."""

    cpu_s: float
    peak_mib: float


def largest_alone(servers_max: int) -> Used:
    """g_s(pmax) alone."""
    problem = problem_of(thesis(servers_max))
    return _used(lambda: capacity(problem, np.array([servers_max])))


def all_capacities(servers_max: int) -> Used:
    """g_s(p) for p = 1..pmax."""
    problem = problem_of(thesis(servers_max))
    return _used(lambda: capacity(problem))


def table(servers_max: int, method: str) -> Used:
    """The sizes of a policy, with all that they need."""
    problem = problem_of(thesis(servers_max), "increasing")
    return _used(lambda: size_table(TableSpec(method, problem)))


def _used(work: Callable[[], object]) -> Used:
    taken_s = cpu_time_s(work)
    return Used(taken_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0)


def _large() -> Iterator[Figure]:
    bench = "large"
    asked: list[tuple[str, float | None, Callable[..., Used], tuple[object, ...]]] = [
        ("g_s(200) alone", 2.0, largest_alone, (200,)),
        ("g_s(p), p = 1..50", 20.0, all_capacities, (50,)),
    ]
    for name in THESIS:
        most = 30.0 if name in (AWARE[0], AWARE[2]) else None
        asked.append((f"{HEURISTIC[name]}, pmax = {LARGE}", most, table, (LARGE, name)))
    peak_mib = 0.0
    for what, most, work, arguments in asked:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            used = pool.submit(work, *arguments).result()
        peak_mib = max(peak_mib, used.peak_mib)
        yield Figure(bench, what, used.cpu_s, "s of CPU time", most=most)
    yield Figure(bench, "memory of the largest of these processes", peak_mib, "MiB", most=2048.0)


def _decision() -> Iterator[Figure]:
    """What is left to do at a decision point when the table is there."""
    found = size_table(TableSpec(AWARE[0], problem_of(thesis(20))))
    rng = np.random.default_rng(1)
    asked = rng.integers((1, 1, 0), (92, 21, 700), (DECISIONS, 3)).tolist()
    taken_s = cpu_time_s(lambda: [found.size(*each) for each in asked])
    yield Figure("decision", "from a ready table", taken_s / DECISIONS * 1e3, "ms", most=1.0)
