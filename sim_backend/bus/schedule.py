"""Virtual time for the in-process bus: what is due later, and who has something to hand out now."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from shared.base.errors import ContractViolation

E_co = TypeVar("E_co", covariant=True)
E = TypeVar("E")


class Source(Protocol[E_co]):
    """Something that may have an event to hand out. `listed` is the schedule's own mark."""

    listed: bool

    def ready(self) -> bool:
        """Return whether `take` would return an event now."""
        ...

    def take(self) -> E_co | None:
        """Return the next event, None if there is none now."""
        ...


class Schedule(Generic[E]):
    """Calls due later, in the order (time, setting), and a round of sources that each give one event per turn."""

    __slots__ = ("_count", "_later", "now_s", "round")

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s
        self.round: deque[Source[E]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def enlist(self, source: Source[E]) -> None:
        """Give a source a turn at the end of the round, if it has none."""
        if not source.listed:
            source.listed = True
            self.round.append(source)

    def at(self, due_s: float, call: Callable[[], None]) -> None:
        """Do a call once time has come to `due_s`."""
        self._count += 1
        heapq.heappush(self._later, (due_s, self._count, call))

    def advance(self, now_s: float) -> None:
        """Move to `now_s`; each call due on the way sees its own time. ContractViolation when time goes back."""
        if now_s < self.now_s:
            raise ContractViolation(f"bus time went back from {self.now_s} s to {now_s} s")
        later = self._later
        while later and later[0][0] <= now_s:
            due_s, _, call = heapq.heappop(later)
            self.now_s = max(self.now_s, due_s)
            call()
        self.now_s = now_s

    def take(self) -> E | None:
        """Return one event of the source whose turn it is; the source goes to the end of the round. None if no source
        has one."""
        round_ = self.round
        while round_:
            source = round_.popleft()
            event = source.take()
            if event is not None:
                round_.append(source)
                return event
            source.listed = False
        return None

    def next_due_s(self) -> float | None:
        """Now when a source is ready, else the time of the earliest call, None when there is neither."""
        round_ = self.round
        while round_:
            if round_[0].ready():
                return self.now_s
            round_.popleft().listed = False
        return max(self._later[0][0], self.now_s) if self._later else None
