"""Tables 1 and 2 and figures 2 and 3 of statistical-assurance.txt: what the demands of a data set are like, and how
many servers they take at several assurances and correlations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.assurance.aggregate import Utility, utility
from daemons.models.assurance.build import profiles
from daemons.models.assurance.correlation import Measured, measure
from shared.policy_api.snapshot import Floats, Ints
from sim_backend.experiments.assurance.data import Name, data_folder, read_demands, series_of
from sim_backend.experiments.assurance.settings import DATA, PROMISED, THETAS

PARTS = (1.0, 2 / 3, 1 / 3, 0.0)  # of the worst correlation, the curves of figure 3
MORNING = (9, 10, 11)  # three slots in a row


@dataclass(frozen=True, slots=True)
class Sized:
    """One data set; all by slot. sd: of the sum, by what is taken for the correlation: none, measured, worst.
    static: the sum of largest demands, without overhead. peaks: sums of slot peaks, with overhead. table_2: servers by
    theta as the paper has the columns. curves: with overhead, servers of each slot by theta and the part of the worst
    correlation. exact: by theta, of independent demands by convolution, and in the worst case."""

    name: Name
    days: int
    applications: int
    mean: Floats
    sd: Mapping[str, Floats]
    rho: Floats
    rho_worst: Floats
    rho_worst_overhead: Floats
    normality_p: Floats
    static: int
    peaks: Ints
    table_2: Mapping[float, tuple[int, int, int]]
    curves: Mapping[float, Mapping[float, Ints]]
    exact: Mapping[float, tuple[Ints, Ints]]
    example: str
    probabilities: tuple[tuple[float, ...], ...]


def measured(demand: Ints) -> tuple[Utility, Measured]:
    """Return the utility and the measured statistics of the summed demands [days, slots, applications]."""
    series = series_of(demand)
    return utility(profiles(series)), measure(series)


def example_of(demand: Ints) -> int:
    """Return the index of the application that serves as the example in tables: the one with the median standard
    deviation of demand among those that vary."""
    deviation = demand.std(axis=0).mean(axis=0)
    vary = np.flatnonzero(deviation > 0.0)
    return int(vary[np.argsort(deviation[vary], kind="stable")[len(vary) // 2]])


def play_sizes(folder: Path, name: Name) -> Sized:
    """Compute all sizes, without randomness."""
    demands = read_demands(folder, name)
    (plain, plain_measured), (overhead, overhead_measured) = measured(demands.plain), measured(demands.overhead)
    worst, worst_overhead = plain.worst_rho(), overhead.worst_rho()
    example = example_of(demands.plain)
    shown = profiles(series_of(demands.plain))[example].pmf[MORNING, 1:]
    return Sized(
        name,
        len(demands.plain),
        demands.plain.shape[-1],
        mean=plain_measured.mean,
        sd={"none": plain.sd(), "measured": plain_measured.sd, "worst": plain.sd(worst)},
        rho=plain_measured.rho,
        rho_worst=worst,
        rho_worst_overhead=worst_overhead,
        normality_p=plain_measured.normality_p,
        static=int(demands.plain.max(axis=(0, 1)).sum()),
        peaks=overhead.peaks,
        table_2={
            theta: (
                int(plain.gamma_normal(theta).max()),
                int(plain.gamma_normal(theta, plain_measured.rho).max()),
                int(overhead.gamma_normal(theta, overhead_measured.rho).max()),
            )
            for theta in THETAS
        },
        curves={
            theta: {part: overhead.gamma_normal(theta, part * worst_overhead) for part in PARTS} for theta in PROMISED
        },
        exact={theta: (overhead.gamma_independent(theta), overhead.gamma_worst(theta)) for theta in PROMISED},
        example=f"{name} {example}",
        probabilities=tuple(tuple(map(float, row)) for row in shown),
    )


def work_sizes(seeds: int) -> Sequence[Work]:
    """Return the work for both data sets."""
    del seeds
    folder = data_folder(*DATA)
    return [(play_sizes, (folder, name)) for name in DATA]
