"""Runs benches: every case in turn, round after round, so that all see the same machine; then medians and ratios."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median

from shared.base.clock import perf_s

BENCHES = ("replay_bench", "log_bench", "coordinate_bench", "dilation_bench")
FIGURES = (
    "wire_bench",
    "place_bench",
    "redistribution_bench",
    "provision_bench",
    "coordinate_bench",
    "dilation_bench",
    "assurance_bench",
    "admission_bench",
    "lab_bench",
    "portal_bench",
)  # modules with `figures(say) -> Iterator[Figure]`


def cpu_s(whose: int = resource.RUSAGE_SELF) -> float:
    """CPU time used so far by this process, or by its children (`resource.RUSAGE_...`): others' work does not count."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def cpu_time_s(work: Callable[[], object]) -> float:
    """CPU time that a piece of work takes."""
    begun_s = cpu_s()
    work()
    return cpu_s() - begun_s


@dataclass(frozen=True, slots=True)
class Case:
    """One way of doing the work. `run` returns what it found, which must agree between all cases of a bench."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Bench:
    """Cases that do the same work; the first one is the plain baseline that the ratios refer to."""

    name: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One case: `ratio` = its median / the baseline's."""

    bench: str
    case: str
    ratio: float
    median_s: float
    fastest_s: float
    slowest_s: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was measured as it is, with what it is to be at least or at most (None: it is only told)."""

    bench: str
    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is as it is to be."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)


def figures(say: Callable[[str], None], only: str = "") -> Iterator[Figure]:
    """Every figure of the modules whose names contain `only`; `say` hears what goes on and what cannot be measured."""
    for name in FIGURES:
        if only in name:
            yield from import_module(f"benchmarks.{name}").figures(say)


def benches(data_folder: Path | None, only: str = "") -> Iterator[Bench]:
    """Every bench whose module name contains `only`."""
    for name in BENCHES:
        if only in name:
            yield import_module(f"benchmarks.{name}").bench(data_folder)


def measure(bench: Bench, rounds: int) -> Sequence[Measured]:
    """Run every case `rounds` times (>= 1), in turn. Raises ValueError when two cases found different things."""
    times_s: dict[str, list[float]] = {case.name: [] for case in bench.cases}
    found: dict[str, object] = {}
    for _ in range(rounds):
        for case in bench.cases:
            begun_s = perf_s()
            found[case.name] = case.run()
            times_s[case.name].append(perf_s() - begun_s)
    baseline = bench.cases[0].name
    for name, what in found.items():
        if what != found[baseline]:
            raise ValueError(f"{bench.name}: {name} found {what}, {baseline} {found[baseline]}")
    medians_s = {name: median(times) for name, times in times_s.items()}
    return [
        Measured(bench.name, name, medians_s[name] / medians_s[baseline], medians_s[name], min(t), max(t), rounds)
        for name, t in times_s.items()
    ]
