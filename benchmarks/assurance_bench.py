"""Assurance: one application more beside many, and profiles from long traces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from benchmarks.runner import Figure, cpu_time_s
from daemons.models.assurance.aggregate import Utility, utility
from daemons.models.assurance.build import profiles, series
from daemons.models.assurance.loss import theta_of
from daemons.models.assurance.profile import Profile
from shared.values.reservation import Calendar

ROUNDS = 5
APPLICATIONS, WEEK, UNITS_MAX = 1_000, 168, 8
DAYS, SAMPLES_A_DAY = 90, 288
THETA = 0.999
MIB = 1 << 20


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """Admission of one more, and the building of profiles; CPU time of one core."""
    say(f"{APPLICATIONS} applications of {WEEK} slots")
    yield from _admission()
    say(f"profiles of {APPLICATIONS} applications from {DAYS} days of {SAMPLES_A_DAY} samples")
    yield from _building()


def _random_profiles() -> list[Profile]:
    rng = np.random.default_rng(8)
    none = np.zeros(WEEK, dtype=np.int64)
    sizes = rng.integers(2, UNITS_MAX + 2, APPLICATIONS + 1)
    return [Profile(rng.dirichlet(np.full(size, 0.5), WEEK), none) for size in sizes]


def _admission() -> Iterator[Figure]:
    bench = "assurance, the 1,001st application"
    *several, last = _random_profiles()
    standing: list[Utility] = []
    yield Figure(bench, "sum of 1,000 from nothing", cpu_time_s(lambda: standing.append(utility(several))), "s")
    whole = standing[0]
    pool = float(whole.added(last).gamma_independent(THETA).max())

    def admit() -> bool:
        more = whole.added(last)
        return bool((more.theta_independent(pool) >= THETA).all() and (more.theta_worst(pool) >= 0.0).all())

    yield Figure(bench, "added, independent and worst case", _median_s(admit) * 1e3, "ms", most=50.0)
    yield Figure(
        bench, "the least pool for it", _median_s(lambda: whole.added(last).gamma_independent(THETA)) * 1e3, "ms"
    )
    yield Figure(bench, "naive: all convolved term by term", cpu_time_s(lambda: _naive(several, last, pool)), "s")


def _naive(several: list[Profile], last: Profile, pool: float) -> None:
    for slot in range(WEEK):
        row = last.pmf[slot]
        for profile in several:
            row = np.convolve(row, profile.pmf[slot])
        theta_of(row[None], pool)


def _building() -> Iterator[Figure]:
    bench = "assurance, profiles"
    rng = np.random.default_rng(9)
    count = DAYS * SAMPLES_A_DAY
    local_s = np.tile(np.arange(count) * (86_400.0 / SAMPLES_A_DAY), APPLICATIONS)
    numbers = np.repeat(np.arange(APPLICATIONS, dtype=np.int32), count)
    units = rng.integers(1, UNITS_MAX + 1, local_s.size, dtype=np.int32)

    def made() -> list[Profile]:
        return profiles(series(local_s, numbers, units, APPLICATIONS, Calendar.HOUR_OF_WEEK))

    yield Figure(bench, "1,000 applications x 90 days of 5 minutes", cpu_time_s(made), "s", most=10.0)
    tracemalloc.start()
    made()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    yield Figure(bench, "memory beside the samples", peak / MIB, "MiB")
    given = local_s.nbytes + numbers.nbytes + units.nbytes
    yield Figure(bench, "memory of the samples", given / MIB, "MiB")


def _median_s(work: Callable[[], object]) -> float:
    return median(cpu_time_s(work) for _ in range(ROUNDS))
