"""Who waits, in order of service."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence

from daemons.policies.placement.apc.state import State

_LOOKED_AT = 16  # of the unhappiest of one size that may not come, before the next size
_SIZES = 16  # more memory sizes than these are put together with their neighbours
Entry = tuple[float, int, int]


def order_of(state: State, row: int) -> Entry:
    """Order of service: by what the job can still reach if it goes on waiting, without a goal last; then the row."""
    problem = state.problem
    return (problem.idle[row] if problem.aims[row] else math.inf, problem.urgency[row], row)


class Queues:
    """Waiting jobs, by the nodes that may take them and by memory, the lowest utility first."""

    def __init__(self, state: State, rows: Sequence[int]) -> None:
        self.state, self._memory = state, state.problem.memory
        sizes = sorted({self._memory[row] for row in rows})
        step = max(1, -(-len(sizes) // _SIZES))
        self._sizes = sizes[::step]
        self._of: dict[tuple[int, float], list[Entry]] = {}
        for row in rows:
            self._of.setdefault(self._name(row), []).append(order_of(state, row))
        for queue in self._of.values():
            queue.sort()

    def _name(self, row: int) -> tuple[int, float]:
        """Return its mask of nodes, and the least memory of the jobs that share its queue."""
        memory = self._memory[row]
        at = bisect_right(self._sizes, memory)
        return self.state.rules.mask_of[row], self._sizes[at - 1] if at else min(memory, 0.0)

    def add(self, row: int) -> None:
        """Add a job that waits from now on."""
        insort(self._of.setdefault(self._name(row), []), order_of(self.state, row))

    def drop(self, row: int) -> None:
        """Remove a job that no longer waits."""
        queue, entry = self._of.get(self._name(row), []), order_of(self.state, row)
        at = bisect_left(queue, entry)
        if at < len(queue) and queue[at] == entry:
            del queue[at]

    def least_mib(self) -> float:
        """Return the least memory of any waiting job; inf if none waits."""
        return min((memory for (_, memory), queue in self._of.items() if queue), default=math.inf)

    def lowest(self, node: int) -> float:
        """Return the lowest utility still reachable among waiting jobs that may be on the node; inf if none waits for
        it."""
        lists, found = self.state.rules.lists, math.inf
        for (mask, _), queue in self._of.items():
            if queue and queue[0][0] < found and lists[mask][node]:
                found = queue[0][0]
        return found

    def firsts(self, node: int, free_mib: float, fits: Callable[[int], bool]) -> Iterator[Entry]:
        """Yield, for each size, the job with the lowest utility that may come to the node now."""
        lists, memory = self.state.rules.lists, self._memory
        for (mask, least_mib), queue in self._of.items():
            if queue and least_mib <= free_mib and lists[mask][node]:
                for entry in queue[:_LOOKED_AT] if len(queue) > _LOOKED_AT else queue:
                    if memory[entry[2]] <= free_mib and fits(entry[2]):
                        yield entry
                        break
