"""Jobs that wait for nodes, in order of arrival, made for first fit in one pass."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from heapq import heappop, heappush


class WaitingJobs:
    """Waiting jobs by size. A job is its place in the order of arrival (whole numbers). `queued`: what all of them
    need together; `least`: what the smallest needs, infinity where none waits."""

    __slots__ = ("_by_size", "_sizes", "least", "queued")

    def __init__(self) -> None:
        self._by_size: dict[int, list[int]] = {}
        self._sizes: list[int] = []  # those that wait, ascending
        self.queued = 0
        self.least: float = math.inf

    @property
    def biggest(self) -> int:
        """What the largest needs; 0 where none waits."""
        return self._sizes[-1] if self._sizes else 0

    def add(self, job: int, size: int) -> None:
        """Add a job that arrives, or put one back in its place."""
        self.queued += size
        if found := self._by_size.get(size):
            heappush(found, job)
            return
        self._by_size[size] = [job]
        insort(self._sizes, size)
        self.least = self._sizes[0]

    def take(self, idle: int) -> int:
        """Remove and return the first job in order of arrival for which `idle` nodes suffice; -1 if there is none.
        Repeated calls with the remaining nodes return the jobs that one first-fit pass starts. O(sizes)."""
        by_size, first, taken = self._by_size, math.inf, 0
        for size in self._sizes:
            if size > idle:
                break
            head = by_size[size][0]
            if head < first:
                first, taken = head, size
        if not taken:
            return -1
        self.queued -= taken
        heap = by_size[taken]
        job = heappop(heap)
        if not heap:
            del self._sizes[bisect_left(self._sizes, taken)]
            self.least = self._sizes[0] if self._sizes else math.inf
        return job
