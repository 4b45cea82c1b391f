"""Figures of statistical-assurance.txt that follow from what it prints, without any data: equation 8 inverted, the
assurance of two small applications, and the largest covariances in Table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.assurance import normal_form
from daemons.models.assurance.aggregate import utility
from daemons.models.assurance.comonotone import covariance_max
from daemons.models.assurance.profile import Profile
from sim_backend.experiments.assurance.settings import (
    NORMAL_SIZES,
    SLOT_PEAK,
    TABLE_1_COVARIANCES,
    TABLE_1_PMFS,
    THETAS,
    TWO_PMFS,
    TWO_THETAS,
)
from sim_backend.experiments.experiment import Row


@dataclass(frozen=True, slots=True)
class Printed:
    """sizes: servers for each of THETAS, by mean and standard deviation; thetas: of 1 to 4 servers; covariances: by
    the pair of slots."""

    sizes: dict[tuple[float, float], tuple[int, ...]]
    thetas: tuple[float, ...]
    covariances: dict[tuple[int, int], float]


def _profile(pmf: Sequence[float]) -> Profile:
    return Profile(np.array([pmf]), np.zeros(1, dtype=np.int64))


def play_printed() -> Printed:
    """Compute all of the printed figures."""
    two = utility([_profile(pmf) for pmf in TWO_PMFS])
    return Printed(
        {
            (mean, sd): tuple(
                int(normal_form.gamma(theta, np.array([mean]), np.array([sd]), np.array([SLOT_PEAK]))[0])
                for theta in THETAS
            )
            for mean, sd in NORMAL_SIZES
        },
        tuple(float(two.theta_independent(servers)[0]) for servers in range(1, 5)),
        {
            (one, other): float(covariance_max(_profile(TABLE_1_PMFS[one]), _profile(TABLE_1_PMFS[other]))[0])
            for one, other in TABLE_1_COVARIANCES
        },
    )


def work_printed(seeds: int) -> Sequence[Work]:
    """Return the work, which contains no randomness and needs no data."""
    del seeds
    return [(play_printed, ())]


def rows_printed(results: Sequence[Printed]) -> list[Row]:
    """Return one row for each printed figure, with the correct value."""
    (found,) = results
    rows: list[Row] = []
    for column, ((mean, sd), servers) in zip(("no-correlation", "overhead"), NORMAL_SIZES.items(), strict=True):
        for theta, paper, ours in zip(THETAS, servers, found.sizes[mean, sd], strict=True):
            what = f"equation 8: servers for theta {theta:g}, mean {mean:g}, deviation {sd:g}, peak {SLOT_PEAK}"
            rows.append(Row(f"eq8/{column}/{theta:g}", what, paper, ours, ours == paper, "asked for the same"))
    for servers_, (value, mine) in enumerate(zip(TWO_THETAS, found.thetas, strict=True), 1):
        what = f"two applications of one or two servers: theta of {servers_}"
        rows.append(
            Row(f"eq7/{servers_}", what, value, round(mine, 6), abs(mine - value) <= 1e-6, "asked for six digits")
        )
    for (one, other), most in TABLE_1_COVARIANCES.items():
        mine = found.covariances[one, other]
        what = f"Table 1: the largest covariance of its slots {one + 1} and {other + 1}"
        why = "asked for the digits given; two applications that one uniform number indexes"
        rows.append(
            Row(f"1/covariance/{one + 1}-{other + 1}", what, most, round(mine, 4), abs(mine - most) <= 5e-4, why)
        )
    return rows
