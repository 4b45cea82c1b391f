"""Named timers of a real shell: a heap on the clock that nobody sets."""

from __future__ import annotations

import heapq


class Timers:
    """Timers by name, due at moments of the monotonic clock; setting a name again replaces its earlier setting.

    Of timers that are due the earliest comes first, and those of one moment come in the order of their setting.
    """

    __slots__ = ("_count", "_heap", "_set")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._set: dict[str, int] = {}
        self._count = 0

    def start(self, name: str, due_s: float) -> None:
        """Make `name` due at `due_s`."""
        self._count += 1
        self._set[name] = self._count
        heapq.heappush(self._heap, (due_s, self._count, name))

    def stop(self, name: str) -> None:
        """Forget a timer; nothing happens when it is not set."""
        self._set.pop(name, None)

    def next_due_s(self) -> float | None:
        """Return when the next timer is due, None when none is set."""
        heap = self._heap
        while heap and self._set.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now_s: float) -> str | None:
        """Take the timer that is due first, which is then no longer set; None when none is due at `now_s`."""
        due_s = self.next_due_s()
        if due_s is None or due_s > now_s:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._set[name]
        return name
