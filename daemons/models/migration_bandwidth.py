"""What each of several concurrent migrations gets of the nodes' links: max-min fair shares.

A migration takes the same rate from its source's sending and its target's receiving link. All rates grow together
until a link is full or a migration takes no more; those stop, the others go on (progressive filling; Bertsekas and
Gallager, Data Networks, 2nd ed., section 6.5.2). MiB/s throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shared.policy_api.snapshot import Floats

CLOSE = 1e-9  # shares of the links that fill together differ by rounding


@dataclass(frozen=True, slots=True)
class Transfer:
    """A migration from one node to another; `most_mib_per_s`: what it can use."""

    source: str
    target: str
    most_mib_per_s: float = math.inf


@dataclass(frozen=True, slots=True)
class NodeLink:
    """A node's link for migrations, of both directions. NaN and negative rates count as 0."""

    sends_mib_per_s: float
    receives_mib_per_s: float


def shares(moves: Sequence[Transfer], links: Mapping[str, NodeLink]) -> Floats:
    """Return the rate of each migration, float64[n], in MiB/s.

    A node without an entry has no limit; a migration that meets no limit at all gets `inf`. O(limits met x n), with at
    most as many as there are links and migrations.
    """
    names = {name: at for at, name in enumerate(dict.fromkeys(node for m in moves for node in (m.source, m.target)))}
    sends, receives = (
        np.array([_clean(getattr(links[name], side)) if name in links else math.inf for name in names])
        for side in ("sends_mib_per_s", "receives_mib_per_s")
    )
    left = np.concatenate((sends, receives)) if names else np.zeros(0)
    most = np.array([_clean(move.most_mib_per_s) for move in moves], dtype=np.float64)
    source = np.array([names[move.source] for move in moves], dtype=np.int64)
    target = np.array([names[move.target] + len(names) for move in moves], dtype=np.int64)
    rate = np.zeros(len(moves))
    active = np.arange(len(moves))
    level = 0.0
    while active.size:
        users = np.bincount(source[active], minlength=len(left)) + np.bincount(target[active], minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(users > 0, left / users, math.inf)
        grows = float(min(room.min(), (most[active] - level).min()))
        if math.isinf(grows):
            rate[active] = math.inf
            break
        level += grows
        left = np.where(users > 0, left - grows * users, left)
        full = (users > 0) & (room <= grows + CLOSE * max(1.0, level))
        stops = full[source[active]] | full[target[active]] | (most[active] <= level * (1.0 + CLOSE))
        rate[active] = np.minimum(level, most[active])
        active = active[~stops]
    return rate


def _clean(value: float) -> float:
    return value if value > 0.0 else 0.0
