"""The policing experiment of statistical-assurance.txt, section 6.5: three groups of the same applications, one of each
class of service, of which the predictable ones share what their pools have to spare; and Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.assurance.policing import (
    HEAD_ROOM,
    Limits,
    horizontal_share,
    limits,
    policed,
    share_pools,
    shortest_window,
)
from shared.policy_api.snapshot import Floats, Ints
from sim_backend.experiments.assurance.data import Name, data_folder, read_demands
from sim_backend.experiments.assurance.draws import drawn
from sim_backend.experiments.assurance.settings import (
    DATA,
    LOWER,
    TABLE_3_HORIZONTAL,
    TABLE_3_SHARES,
    TABLE_3_WIDTHS,
    UPPER,
)
from sim_backend.experiments.assurance.sizes import example_of, measured

DAYS = 1_000
BAD_SLOTS = slice(9, 18)  # from the 10th to the 18th
BAD_FROM_DAYS = 35  # each application begins within so many days
WINDOW_SLOTS = (4,)  # of horizontal policing; that of vertical policing holds all observations
POLICING = ("none", "horizontal", "vertical", "both")
HEAD_ROOMS = (0.0, HEAD_ROOM)
STREAM = 3


@dataclass(frozen=True, slots=True)
class Pools:
    """Servers of each class. needed [slots, 2]: those that the promises of the upper and the lower predictable class
    take in each slot."""

    guaranteed: int
    needed: Ints

    @property
    def sizes(self) -> Ints:
        """Of both predictable classes."""
        sizes: Ints = self.needed.max(axis=0)
        return sizes

    @property
    def total(self) -> int:
        """All of them."""
        return self.guaranteed + int(self.sizes.sum())


@dataclass(frozen=True, slots=True)
class Course:
    """One behaviour under one kind of policing. theta [slots, 2]: of the upper and the lower class, of what policing
    lets through. seen [slots, applications, 2]: the same as each application sees it. left: how often so many servers
    were left for best effort, over days and slots."""

    theta: Floats
    seen: Floats
    left: Ints


@dataclass(frozen=True, slots=True)
class Honest:
    """Of the demand of honest applications among honest ones: what policing takes for surplus, and what of that is not
    served as best effort either; both as parts of the demand."""

    surplus: float
    lost: float


Variant = tuple[float, str]
"""Head-room and kind of policing."""


@dataclass(frozen=True, slots=True)
class Policed:
    """One seed on one data set, by head-room and kind of policing, and by who misbehaves."""

    name: Name
    seed: int
    pools: Pools
    courses: Mapping[tuple[Variant, str], Course]
    honest: Mapping[Variant, Honest]


def pools_of(observed: Ints) -> Pools:
    """Guaranteed: the largest sum of slot peaks. Predictable: what independent demands take, exactly."""
    total, _ = measured(observed)
    needed = np.stack([total.gamma_independent(UPPER), total.gamma_independent(LOWER)], axis=-1)
    return Pools(int(total.peaks.max()), needed)


def misbehaving(honest: Ints, peaks: Ints, rng: np.random.Generator) -> Ints:
    """Return the demand [days, slots, applications] if each application requests its peak in slots 10 to 18 from a
    random day on."""
    days, slots, applications = honest.shape
    begun = np.arange(days)[:, None] >= rng.integers(BAD_FROM_DAYS, size=applications)
    there = np.zeros(slots, dtype=bool)
    there[BAD_SLOTS] = True
    return np.where(begun[:, None, :] & there[:, None], peaks, honest)


def course(pools: Pools, guaranteed: Ints, entitled: Ints) -> Course:
    """Serve what is entitled, [days, slots, applications, 2], beside the guaranteed class [days, slots]. What is short
    is short for each application by its part of the demand."""
    asked = entitled.sum(axis=-2)
    served = share_pools(asked, pools.needed, pools.sizes)
    part = np.where(asked > 0, served / np.maximum(asked, 1), 1.0)
    seen = np.einsum("dtac,dtc->tac", entitled, part) / np.maximum(entitled.sum(axis=0), 1)
    left = pools.total - guaranteed - served.sum(axis=-1)
    return Course(part.mean(axis=0), seen, np.bincount(left.ravel(), minlength=pools.total + 1))


def honest(pools: Pools, guaranteed: Ints, entitled: Ints, asked: Ints) -> Honest:
    """Return the loss of honest applications due to policing alone: surplus gets only the servers that all classes
    leave unused."""
    served = share_pools(entitled.sum(axis=-2), pools.needed, pools.sizes).sum(axis=-1)
    surplus = (asked - entitled).sum(axis=(-2, -1))
    lost = np.maximum(surplus - (pools.total - guaranteed - served), 0)
    return Honest(float(surplus.sum() / asked.sum()), float(lost.sum() / asked.sum()))


def allowed(observed: Ints, kind: str, headroom: float) -> Limits:
    """Return the quotas of one kind of policing."""
    rows = WINDOW_SLOTS if kind in ("horizontal", "both") else ()
    return limits(observed, headroom, rows, None if kind in ("vertical", "both") else ())


def play_policed(folder: Path, name: Name, seed: int, days: int = DAYS) -> Policed:
    """Compute figures 6 to 8 for one seed."""
    observed = read_demands(folder, name).overhead
    pools, rng = pools_of(observed), np.random.default_rng([STREAM, seed])
    guaranteed = drawn(observed, days, rng).sum(axis=-1)
    good = [drawn(observed, days, rng) for _ in (UPPER, LOWER)]
    bad = [misbehaving(each, observed.max(axis=0), rng) for each in good]
    asked = np.stack([*good, *bad], axis=-1)
    filled = np.repeat(observed[..., None], asked.shape[-1], axis=-1)
    who = {"honest": [0, 1], "lower": [0, 3], "both": [2, 3]}
    courses: dict[tuple[Variant, str], Course] = {}
    lost: dict[Variant, Honest] = {}
    for headroom in HEAD_ROOMS:
        for kind in POLICING:
            variant = headroom, kind
            entitled = asked if kind == "none" else policed(asked, allowed(filled, kind, headroom), filled)
            for behaviour, classes in who.items():
                courses[variant, behaviour] = course(pools, guaranteed, entitled[..., classes])
            lost[variant] = honest(pools, guaranteed, entitled[..., :2], asked[..., :2])
    return Policed(name, seed, pools, courses, lost)


@dataclass(frozen=True, slots=True)
class Entitled:
    """Table 3 of one application of a data set. vertical: slot: windows that hold so much of all observations.
    horizontal: slot: the part of the sum of peaks that windows of so many slots hold at most."""

    name: Name
    example: int
    days: int
    vertical: Mapping[int, tuple[int, ...]]
    horizontal: Mapping[int, tuple[float, ...]]


def play_entitled(folder: Path, name: Name) -> Entitled:
    """Table 3; nothing is drawn at random."""
    demands = read_demands(folder, name)
    example = example_of(demands.plain)
    observed = demands.overhead[..., example]
    shortest = [shortest_window(observed, share) for share in TABLE_3_SHARES]
    share = [horizontal_share(observed, width) for width in TABLE_3_WIDTHS]
    slots = tuple(TABLE_3_HORIZONTAL)
    return Entitled(
        name,
        example,
        len(observed),
        {slot: tuple(int(each[slot - 1]) for each in shortest) for slot in slots},
        {slot: tuple(float(each[slot - 1]) for each in share) for slot in slots},
    )


def work_entitled(seeds: int) -> Sequence[Work]:
    """Return the work for both data sets."""
    del seeds
    folder = data_folder(*DATA)
    return [(play_entitled, (folder, name)) for name in DATA]


def work_policed(seeds: int) -> Sequence[Work]:
    """Return the work for both data sets and every seed."""
    folder = data_folder(*DATA)
    return [(play_policed, (folder, name, seed)) for name in DATA for seed in range(seeds)]
