"""Figures 4 and 5 of statistical-assurance.txt: days drawn from the demand profiles, and what the servers achieve that
are reckoned to be enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemons.capacity.process_pool import Work
from shared.policy_api.snapshot import Floats
from sim_backend.experiments.assurance.data import Name, data_folder, read_demands
from sim_backend.experiments.assurance.draws import drawn, resampled, satisfied
from sim_backend.experiments.assurance.settings import DATA, PROMISED
from sim_backend.experiments.assurance.sizes import measured

DAYS = 1_000
CASES, CASE_DAYS = 100, 100
HISTORIES = (35, 100)  # days of which profiles are made
PRECISION = 0.999  # of figure 5
KINDS = ("normal", "convolution")  # by which servers are reckoned, for independent demands
STREAM_DRAWN, STREAM_PERTURBED = 1, 2


@dataclass(frozen=True, slots=True)
class Achieved:
    """One seed: what is achieved in each slot, by theta. independent, together: with the servers of the normal form for
    that; bounded: demands that go together, with the servers of the exact worst case. servers: of these three."""

    name: Name
    seed: int
    servers: Mapping[float, tuple[int, int, int]]
    independent: Mapping[float, Floats]
    together: Mapping[float, Floats]
    bounded: Mapping[float, Floats]


def play_achieved(folder: Path, name: Name, seed: int, days: int = DAYS) -> Achieved:
    """Figure 4 with one seed."""
    demand = read_demands(folder, name).overhead
    total, _ = measured(demand)
    rng = np.random.default_rng([STREAM_DRAWN, seed])
    independent, together = drawn(demand, days, rng), drawn(demand, days, rng, together=True)
    servers = {
        theta: (
            int(total.gamma_normal(theta).max()),
            int(total.gamma_normal(theta, total.worst_rho()).max()),
            int(total.gamma_worst(theta).max()),
        )
        for theta in PROMISED
    }
    return Achieved(
        name,
        seed,
        servers,
        {theta: satisfied(independent, each[0]).mean(axis=0) for theta, each in servers.items()},
        {theta: satisfied(together, each[1]).mean(axis=0) for theta, each in servers.items()},
        {theta: satisfied(together, each[2]).mean(axis=0) for theta, each in servers.items()},
    )


@dataclass(frozen=True, slots=True)
class Perturbed:
    """One seed. servers: by what they are reckoned (KINDS). achieved: by that and the days that profiles are made of,
    what is achieved in each test case and slot [cases, slots]."""

    name: Name
    seed: int
    servers: Mapping[str, int]
    achieved: Mapping[tuple[str, int], Floats]


def play_perturbed(folder: Path, name: Name, seed: int, cases: int = CASES, days: int = CASE_DAYS) -> Perturbed:
    """Figure 5 with one seed: the servers are those of the original profiles, the days those of perturbed ones."""
    demand = read_demands(folder, name).overhead
    total, _ = measured(demand)
    found = total.gamma_normal(PRECISION), total.gamma_independent(PRECISION)
    servers = {kind: int(gamma.max()) for kind, gamma in zip(KINDS, found, strict=True)}
    rng = np.random.default_rng([STREAM_PERTURBED, seed])
    achieved: dict[tuple[str, int], list[Floats]] = {(kind, each): [] for kind in KINDS for each in HISTORIES}
    for history in HISTORIES:
        for _ in range(cases):
            case = resampled(resampled(demand, history, rng), days, rng)
            for kind, count in servers.items():
                achieved[kind, history].append(satisfied(case, count).mean(axis=0))
    return Perturbed(name, seed, servers, {key: np.stack(each) for key, each in achieved.items()})


def work_simulated(seeds: int) -> Sequence[Work]:
    """Figure 4 on both data sets."""
    folder = data_folder(*DATA)
    return [(play_achieved, (folder, name, seed)) for name in DATA for seed in range(seeds)]


def work_perturbed(seeds: int) -> Sequence[Work]:
    """Figure 5 on both data sets."""
    folder = data_folder(*DATA)
    return [(play_perturbed, (folder, name, seed)) for name in DATA for seed in range(seeds)]
