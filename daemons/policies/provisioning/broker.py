"""The resource broker (batch-provisioning.txt section 3.2.5): who gets nodes when they are short."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What a window asks for. breach: its probability of breach with 0, 1, .. `wanted` reference nodes; () where it is
    not known, then it is taken to fall in a straight line. weight: against other windows (> 0)."""

    wanted: int
    weight: float
    breach: tuple[float, ...] = ()

    def at(self, nodes: int) -> float:
        """Return the probability of breach with `nodes` nodes."""
        if self.breach:
            return self.breach[min(nodes, len(self.breach) - 1)]
        return 1.0 - nodes / self.wanted if self.wanted else 0.0


def share(claims: Sequence[Claim], fits: Callable[[Sequence[int]], bool]) -> tuple[int, ...]:
    """Return the number of reference nodes for each claim: as many as requested if all fit. Otherwise the next ones go
    where the weighted probability of breach falls most per node, until nothing fits any more; ties go to the first
    claim.

    The fall per node is the steepest mean one over any number of further nodes. A probability that only falls after
    some nodes is therefore not missed. fits: whether sizes can be given all together; smaller ones then can be too.
    """
    wanted = tuple(claim.wanted for claim in claims)
    if fits(wanted):
        return wanted
    given = [0] * len(claims)
    waiting = [(-_fall(claim, 0), index) for index, claim in enumerate(claims) if claim.wanted]
    heapq.heapify(waiting)
    while waiting:
        _, index = heapq.heappop(waiting)
        given[index] += 1
        if not fits(given):
            given[index] -= 1
        elif given[index] < claims[index].wanted:
            heapq.heappush(waiting, (-_fall(claims[index], given[index]), index))
    return tuple(given)


def _fall(claim: Claim, nodes: int) -> float:
    now = claim.at(nodes)
    falls = [(now - claim.at(more)) / (more - nodes) for more in range(nodes + 1, claim.wanted + 1)]
    return claim.weight * max(falls, default=0.0)
