"""Virtual time: what happens when, in an order that depends on nothing but what was scheduled.

Within one instant, again and again until nothing is left: the world's own changes, then the script (arrivals, faults),
then answers (bus, hypervisors), and only when all is quiet one timer, in the order in which timers were set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from typing import Protocol

from shared.base.errors import ContractViolation


class Rank(IntEnum):
    """Which sources come first within one instant."""

    WORLD = 0
    ANSWERS = 1


class Source(Protocol):
    """Something that has events of its own: it is asked when they are due, never polled on a tick."""

    def next_due_s(self) -> float | None:
        """Return the time at which `step` will next have something to do, None while nothing is scheduled."""
        ...

    def step(self, now_s: float) -> bool:
        """Do exactly one thing due by `now_s`; false when there was none."""
        ...


class _Timer:
    """One setting of a timer; `live` is false once it was stopped or replaced."""

    __slots__ = ("callback", "live", "name", "owner")

    def __init__(self, owner: str, name: str, callback: Callable[[], None]) -> None:
        self.owner = owner
        self.name = name
        self.callback = callback
        self.live = True


class Engine:
    """An event loop over virtual time. `now_s` never decreases; nothing in it reads a clock.

    `epoch_s`: time of the world's clocks when `now_s` is 0. Processes see `clock_s`; everything else counts from 0.
    `clocks` get the time at the beginning of each instant, before anything acts; `after_event` is called after each
    event.
    """

    __slots__ = (
        "_answers",
        "_script",
        "_sequence",
        "_timers",
        "_timers_due",
        "_world",
        "after_event",
        "clocks",
        "epoch_s",
        "now_s",
    )

    def __init__(self, start_s: float = 0.0, epoch_s: float = 0.0) -> None:
        self.now_s, self.epoch_s = start_s, epoch_s
        self.clocks: list[Callable[[float], None]] = []
        self.after_event: Callable[[], None] | None = None
        self._sequence = count()
        self._script: list[tuple[float, int, int, Callable[[], None]]] = []
        self._timers_due: list[tuple[float, int, _Timer]] = []
        self._timers: dict[str, dict[str, _Timer]] = {}
        self._world: list[Source] = []
        self._answers: list[Source] = []

    @property
    def clock_s(self) -> float:
        """What a right clock of the world shows, in seconds since 1970."""
        return self.epoch_s + self.now_s

    def add_source(self, rank: Rank, source: Source) -> None:
        """Ask `source` from now on, after those of the same rank that were added before."""
        (self._world if rank is Rank.WORLD else self._answers).append(source)

    def at(self, time_s: float, priority: int, callback: Callable[[], None]) -> None:
        """Call back at `time_s` (now, if that has passed); at one instant in order of priority, then of this call."""
        heapq.heappush(self._script, (max(time_s, self.now_s), priority, next(self._sequence), callback))

    def start_timer(self, owner: str, name: str, at_s: float, callback: Callable[[], None]) -> None:
        """Set the owner's timer `name`, in place of an earlier setting of it."""
        timers = self._timers.setdefault(owner, {})
        earlier = timers.get(name)
        if earlier is not None:
            earlier.live = False
        timer = timers[name] = _Timer(owner, name, callback)
        heapq.heappush(self._timers_due, (max(at_s, self.now_s), next(self._sequence), timer))

    def stop_timer(self, owner: str, name: str) -> None:
        """Forget a timer; one that is not set is no error."""
        timer = self._timers.get(owner, {}).pop(name, None)
        if timer is not None:
            timer.live = False

    def stop_timers(self, owner: str) -> None:
        """Forget every timer of an owner (its process died)."""
        for timer in self._timers.pop(owner, {}).values():
            timer.live = False

    def next_due_s(self) -> float | None:
        """Return the earliest time at which anything is due, None when nothing is."""
        self._drop_dead_timers()
        times = [entries[0][0] for entries in (self._script, self._timers_due) if entries]
        for source in (*self._world, *self._answers):
            due_s = source.next_due_s()
            if due_s is not None:
                times.append(due_s)
        return min(times, default=None)

    def run_until(self, until_s: float, stop: Callable[[], bool] | None = None, events_max: int = 1_000_000) -> None:
        """Run everything due up to and including `until_s` and leave the time there.

        `stop`, asked between instants, ends the run early with the time as it is. More than `events_max` events in
        one instant raise `ContractViolation`: two parts answer each other without end.
        """
        while stop is None or not stop():
            due_s = self.next_due_s()
            if due_s is None or due_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            self.now_s = max(self.now_s, due_s)
            self._run_instant(events_max)

    def _run_instant(self, events_max: int) -> None:
        for clock in self.clocks:
            clock(self.now_s)
        for _ in range(events_max):
            if not self._step():
                return
            if self.after_event is not None:
                self.after_event()
        raise ContractViolation(f"{events_max} events at {self.now_s} s and no end")

    def _step(self) -> bool:
        now_s = self.now_s
        for source in self._world:
            if source.step(now_s):
                return True
        if self._script and self._script[0][0] <= now_s:
            heapq.heappop(self._script)[3]()
            return True
        for source in self._answers:
            if source.step(now_s):
                return True
        self._drop_dead_timers()
        if self._timers_due and self._timers_due[0][0] <= now_s:
            timer = heapq.heappop(self._timers_due)[2]
            del self._timers[timer.owner][timer.name]
            timer.callback()
            return True
        return False

    def _drop_dead_timers(self) -> None:
        due = self._timers_due
        while due and not due[0][2].live:
            heapq.heappop(due)
