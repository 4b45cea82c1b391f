"""CPU for workloads without a goal: what those with goals leave, shared max-min fairly.

Nobody's utility says how much a workload without a goal should get, so that the smallest speeds are made as large as
can be, in proportion to importance: each is given min(max(level x importance, least), most) with one level for all that
share a node. A job of several instances runs as fast as its slowest node lets it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.policy_api.snapshot import Bools, Floats, Ints

_EXACT = 1e-13  # of the CPU to share: what rounding may leave over
_STEPS_MAX = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """What one may be given: `least` to `most` MHz (least <= most) for each instance, `weight` > 0; `counts`: instances
    by node."""

    least: float
    most: float
    weight: float
    counts: Mapping[int, int]


def fair_level(room: float, claims: Sequence[tuple[float, float, float, float]]) -> float:
    """Return the level at which claims (least, most, weight, count of each) use `room` MHz together; inf if there is
    enough for all, 0 if there is not even the least. O(n log n)."""
    used = sum(least * times for least, _, _, times in claims)
    if used >= room:
        return 0.0
    bends = [(least / weight, weight * times) for least, _, weight, times in claims]
    bends += [(most / weight, -weight * times) for _, most, weight, times in claims]
    bends.sort()
    level, slope = 0.0, 0.0
    for at, turn in bends:
        more = slope * (at - level)
        if used + more >= room and slope > 0.0:
            return level + (room - used) / slope
        used += more
        level = at
        slope += turn
    return math.inf


def share(claim: Claim | tuple[float, float, float], level: float) -> float:
    """MHz of a claim, or (least, most, weight), at a level."""
    least, most, weight = (claim.least, claim.most, claim.weight) if isinstance(claim, Claim) else claim
    return min(max(weight * level, least), most) if math.isfinite(level) else most


def fair_shares(nodes: Ints, room_mhz: Floats, least: Floats, most: Floats, weight: Floats) -> Floats:
    """MHz of workloads of one instance each, on many nodes at once, float64[w].

    nodes: int64[w], where each is; least <= most, weight > 0: float64[w]; room_mhz: float64[n], to be shared by who is
    on each node. Where there is less than the least of all, each has its least. A bracketed Newton step for all nodes
    at once, again and again until every level is exact: O(w) each, a dozen as a rule.
    """
    count = len(room_mhz)
    floor, full = np.bincount(nodes, least, count), np.bincount(nodes, most, count)
    low, high = np.zeros(count), np.zeros(count)
    np.maximum.at(high, nodes, most / weight)
    level = np.where(full <= room_mhz, high, 0.0)
    open_ = (floor < room_mhz) & (full > room_mhz)
    level[open_] = high[open_] / 2.0
    for _ in range(_STEPS_MAX):
        if not open_.any():
            break
        raw = weight * level[nodes]
        used = np.bincount(nodes, np.clip(raw, least, most), count)
        slope = np.bincount(nodes, np.where((raw >= least) & (raw < most), weight, 0.0), count)
        gap = room_mhz - used
        low, high = np.where(gap >= 0.0, level, low), np.where(gap < 0.0, level, high)
        step = level + gap / np.where(slope > 0.0, slope, np.inf)
        inside = (slope > 0.0) & (step > low) & (step < high)
        open_ &= (np.abs(gap) > _EXACT * room_mhz) & (high - low > _EXACT * high)
        level = np.where(open_, np.where(inside, step, (low + high) / 2.0), level)
    given: Floats = np.clip(weight * level[nodes], least, most)
    return given


def fair_gangs(claims: Mapping[int, Claim], room_mhz: Sequence[float]) -> dict[int, float]:
    """MHz of each instance, by row of the claims; room_mhz: what they may share on each node.

    The node that allows the lowest level settles the speed of all on it; the others share what is left then, and so on:
    O(nodes) rounds of O(claims log claims). Each has at least its least.
    """
    left, open_, given = list(room_mhz), dict(claims), dict[int, float]()
    while open_:
        here: dict[int, list[int]] = {}
        for row, claim in open_.items():
            for node in claim.counts:
                here.setdefault(node, []).append(row)
        levels = {node: _level(left[node], node, [open_[row] for row in rows]) for node, rows in here.items()}
        lowest = min(levels.values())
        alone = {node for node, rows in here.items() if all(len(open_[row].counts) == 1 for row in rows)}
        settled = {row: levels[node] for node in alone for row in here[node]}
        for node, level in levels.items():
            if level <= lowest:
                settled |= dict.fromkeys(here[node], lowest)
        for row, level in settled.items():
            claim = open_.pop(row)
            given[row] = share(claim, level)
            for node, times in claim.counts.items():
                left[node] -= given[row] * times
    return given


def _level(room: float, node: int, claims: Sequence[Claim]) -> float:
    return fair_level(room, [(one.least, one.most, one.weight, float(one.counts[node])) for one in claims])


def contested(nodes: Ints, room_mhz: Floats, wanted: Floats, aims: Bools) -> tuple[Bools, Floats]:
    """Return the nodes on which workloads without a goal want more than is left, bool[n], and the CPU left, float64[n].
    wanted: float64[w], MHz beyond the least; room_mhz: float64[n], beyond the least of all."""
    count = len(room_mhz)
    rest = np.clip(room_mhz - np.bincount(nodes, np.where(aims, wanted, 0.0), count), 0.0, None)
    return np.bincount(nodes, np.where(aims, 0.0, wanted), count) > rest, rest
