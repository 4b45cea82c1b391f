"""Disks of the world's hosts: who waits for whom, and what their counters show.

A task with a disk part spends that part of its time alone at the disk, and asks for it again and again in small pieces.
With the CPU that the guests of a host are given, host and guests are a closed queueing network: the disk, which serves
so many requests at a time and is shared evenly by those at it, and for each guest the time that it spends elsewhere.
Weights are summed over how many guests are at the disk; guest j goes on at its share of CPU times G(all but j) / G(all)
(Baskett, Chandy, Muntz, Palacios 1975). A gang's member waits as if it went at its own pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


BYTES_PER_S = 100e6  # what one request after the other moves while it is served
SERVERS_MAX = 1024


def constant(parts: Sequence[float], servers: int) -> float:
    """G of guests that are at the disk for these parts (0..1) of their time alone."""
    ways = [1.0]
    for part in parts:
        ways = [
            (1.0 - part) * (ways[at] if at < len(ways) else 0.0) + part * (ways[at - 1] if at else 0.0)
            for at in range(len(ways) + 1)
        ]
    total, weight = 0.0, 1.0
    for count, way in enumerate(ways):
        weight *= max(count, 1) / min(max(count, 1), servers)
        total += weight * way
    return total


def progress(parts: Sequence[float], servers: int) -> list[float]:
    """Return the speed of each guest relative to its speed alone, 0..1."""
    whole = constant(parts, servers)
    return [constant([*parts[:at], *parts[at + 1 :]], servers) / whole for at in range(len(parts))]
