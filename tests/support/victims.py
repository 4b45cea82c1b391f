"""Which jobs of a batch environment give way when units are taken back (phoenixcloud.txt section 5.1), as the paper has
it: what `environments/node_selection.py` is compared with."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def victims(sizes: Sequence[int], starts_s: Sequence[float], arrivals: Sequence[float], needed: int) -> tuple[int, ...]:
    """The indices of the jobs that give way, in this order: smallest first; of equal sizes the one that started last;
    of these the one that arrived last, at last the one listed last; until what they free is at least `needed`.

    sizes: units of each job; starts_s, arrivals: when it started and when, or as which, it arrived. All jobs when all
    of them are not enough, none when nothing is needed. O(n + victims x log n).
    """
    if needed <= 0:
        return ()
    order = [
        (size, -start_s, -arrival, -index)
        for index, (size, start_s, arrival) in enumerate(zip(sizes, starts_s, arrivals, strict=True))
    ]
    heapq.heapify(order)
    chosen = []
    while order and needed > 0:
        size, _, _, index = heapq.heappop(order)
        chosen.append(-index)
        needed -= size
    return tuple(chosen)
