"""Small traces and distributions with figures that were reckoned independently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daemons.models.assurance.build import Series, series
from daemons.models.assurance.profile import Profile

SLOT_S = 28_800.0
APPLICATIONS = (  # six applications, ten days, three slots of eight hours
    (1, 3, 1, 1, 1, 1, 2, 1, 3, 3, 1, 2, 1, 1, 1, 2, 2, 3, 1, 1, 2, 3, 3, 3, 1, 3, 2, 3, 1, 1),
    (1, 3, 2, 1, 2, 1, 2, 1, 4, 4, 1, 2, 1, 1, 2, 1, 2, 2, 2, 1, 3, 3, 2, 2, 1, 4, 1, 4, 1, 1),
    (4, 3, 2, 3, 3, 2, 2, 4, 4, 1, 2, 3, 4, 5, 2, 4, 3, 1, 2, 2, 1, 3, 2, 3, 1, 4, 3, 3, 3, 2),
    (2, 5, 2, 3, 2, 2, 4, 4, 3, 4, 4, 3, 4, 2, 2, 2, 1, 2, 4, 5, 1, 4, 4, 4, 3, 3, 4, 2, 4, 2),
    (5, 2, 5, 5, 5, 6, 5, 2, 3, 4, 6, 2, 4, 2, 4, 5, 5, 3, 4, 5, 4, 4, 4, 3, 4, 1, 5, 4, 2, 4),
    (3, 4, 4, 3, 5, 4, 4, 6, 5, 5, 6, 3, 4, 4, 4, 6, 4, 3, 6, 4, 3, 5, 5, 5, 4, 4, 5, 5, 5, 2),
)
RHO = (0.02451875, -0.1428738, 0.14400747)
THETAS = (0.8, 0.9, 0.99, 0.999)
NORMAL_GAMMA = ((15, 15, 13), (17, 17, 16), (21, 20, 20), (24, 22, 23))


def small_series() -> Series:
    """That trace as samples."""
    demand = np.array(APPLICATIONS)
    times_s = np.tile(np.arange(demand.shape[1]) * SLOT_S, len(APPLICATIONS))
    numbers = np.repeat(np.arange(len(APPLICATIONS)), demand.shape[1])
    return series(times_s, numbers, demand.reshape(-1), len(APPLICATIONS), slot_s=SLOT_S)


def csv_text() -> str:
    """That trace as a file."""
    rows = [
        f"{at * SLOT_S:g},app{number},{value}"
        for number, values in enumerate(APPLICATIONS)
        for at, value in enumerate(values)
    ]
    return "\n".join(["time,application,servers", *rows]) + "\n"


def one_slot(*probabilities: float) -> Profile:
    """A profile of one slot: probabilities of 0, 1, 2, ... units."""
    return Profile(np.array([probabilities]), np.zeros(1, dtype=np.int64))


def constant(units: int, slots: int, resource: str = "servers", unit: float = 1.0) -> Profile:
    """The profile of a demand that is always the same."""
    pmf = np.zeros((slots, units + 1))
    pmf[:, units] = 1.0
    return Profile(pmf, np.zeros(slots, dtype=np.int64), resource, unit)


def random_profiles(seed: int, count: int, slots: int, units_max: int) -> list[Profile]:
    """Applications with random distributions, some of them with values that never come."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        pmf = rng.dirichlet(np.full(int(rng.integers(2, units_max + 2)), 0.5), size=slots)
        pmf[pmf < 0.02] = 0.0
        found.append(Profile(pmf / pmf.sum(axis=1, keepdims=True), np.zeros(slots, dtype=np.int64)))
    return found


def naive_sum(rows: Sequence[Any], kind: type = np.float64) -> Any:
    """The distribution of the sum, term by term, in numbers of some kind."""
    found: Any = np.ones(1, dtype=kind)
    for row in rows:
        found = np.convolve(found, row)
    return found
