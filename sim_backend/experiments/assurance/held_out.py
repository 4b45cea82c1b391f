"""What is promised by the first days of a data set, and what the servers for it achieve on the days that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daemons.capacity.process_pool import Work
from daemons.models.assurance.choice import Method, assurance
from shared.policy_api.snapshot import Floats
from sim_backend.experiments.assurance.data import Name, data_folder, read_demands
from sim_backend.experiments.assurance.settings import DATA, THETAS
from sim_backend.experiments.assurance.sizes import measured
from sim_backend.experiments.experiment import Row, Tables

METHODS = (Method.CONVOLUTION, Method.NORMAL, Method.WORST_CASE, Method.MIXTURE, Method.AUTO)
KNOWN = {"bitbrains": 2 / 3, "planetlab": 1 / 2}
"""The part of the days that profiles are made of; PlanetLab's second day is judged by its first."""
_FROM = {"bitbrains": "the last third by the first two", "planetlab": "the second day by the first"}
_REASONS = {"bitbrains": "", "planetlab": "; the days are 19 apart, and the second has its peak at another time"}


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """One promise by one method. servers: largest of the slots; each slot has its own. achieved [slots]: what these
    achieve; pooled: on average, if every slot has the largest."""

    theta: float
    method: Method
    servers: int
    achieved: Floats
    pooled: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One data set. known, days: of which profiles are made, and on which they are judged. methods: how many slots the
    automatic choice takes each for."""

    name: Name
    known: int
    days: int
    kept: tuple[HeldOutResult, ...]
    methods: dict[str, int]


def play_held_out(folder: Path, name: Name) -> HeldOut:
    """Evaluate the held-out days, with overhead and without randomness."""
    demand = read_demands(folder, name).overhead
    known = round(len(demand) * KNOWN[name])
    total, before = measured(demand[:known])
    needed = demand[known:].sum(axis=-1)
    kept: list[HeldOutResult] = []
    for method in METHODS:
        assured = assurance(total, before, method)
        for theta in THETAS:
            servers = assured.gamma(theta)
            achieved = np.minimum(servers / needed, 1.0).mean(axis=0)
            pooled = float(np.minimum(servers.max() / needed, 1.0).mean())
            kept.append(HeldOutResult(theta, method, int(servers.max()), achieved, pooled))
    chosen = [method.value for method in assurance(total, before).methods]
    return HeldOut(name, known, len(needed), tuple(kept), {each: chosen.count(each) for each in sorted(set(chosen))})


def work_held_out(seeds: int) -> Sequence[Work]:
    """Return the work for both data sets."""
    del seeds
    folder = data_folder(*DATA)
    return [(play_held_out, (folder, name)) for name in DATA]


def rows_held_out(results: Sequence[HeldOut]) -> list[Row]:
    """Return rows that show whether each promise was kept."""
    rows: list[Row] = []
    for each in results:
        chosen = ", ".join(f"{method} in {slots} slots" for method, slots in each.methods.items())
        for kept in each.kept:
            mean = float(kept.achieved.mean())
            why = f"each slot has its own; lowest slot {kept.achieved.min():.4f} of {each.days} observations"
            why += f"; {kept.pooled:.4f} if every slot has {kept.servers}"
            why += f"; {chosen}" if kept.method is Method.AUTO else ""
            holds = mean >= kept.theta
            rows.append(
                Row(
                    f"held-out/{each.name}/{kept.method.value}/{kept.theta:g}",
                    f"{each.name}, {_FROM[each.name]}: theta by {kept.method.value}, {kept.servers} servers",
                    kept.theta,
                    float(f"{mean:.5f}"),
                    holds,
                    why if holds else why + _REASONS[each.name],
                )
            )
    return rows


def tables_held_out(results: Sequence[HeldOut]) -> Tables:
    """Promised beside achieved."""
    return {
        f"{each.name}: promised by {each.known} days of observations, achieved on the {each.days} that follow": [
            {
                "promised": kept.theta,
                "method": kept.method.value,
                "servers": kept.servers,
                "achieved": round(float(kept.achieved.mean()), 5),
                "lowest_slot": round(float(kept.achieved.min()), 5),
                "slots_kept": int((kept.achieved >= kept.theta).sum()),
                "achieved_pooled": round(kept.pooled, 5),
            }
            for kept in each.kept
        ]
        for each in results
    }
