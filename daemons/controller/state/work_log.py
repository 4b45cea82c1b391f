"""The work of a web application's instances, matched with the requests answered meanwhile.

CPU counters come with the reports of nodes, requests from the source that measures them, at other times. Work between
two readings of a counter is assumed to be evenly spread. A window is closed once every instance has reported since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from daemons.values.records.cluster import FlowWork, WorkWindow

WINDOW_S = 60.0  # shorter ones say little, but for those
READINGS, REQUESTS = 20, 1_000  # that have so many readings of each counter, and so many answers
POINTS_MAX = 32  # readings of a counter, samples that wait for them
AT_ONCE_S = 1.0  # so near to each other two things are of the same time


@dataclass(slots=True)
class _Counter:
    """Work of one instance in all lives: `total` at times. counted: the part of it that is in windows, up to the end of
    the last sample that was put into one (None: there was none)."""

    attempt: int
    done_mcycles: float
    total: float = 0.0
    counted: float | None = None
    at_s: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    totals: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))

    def read(self, attempt: int, at_s: float, done_mcycles: float) -> None:
        """Take a reading; a new attempt counts from 0."""
        if self.at_s and at_s <= self.at_s[-1]:
            return
        begun = self.done_mcycles if attempt == self.attempt else 0.0
        self.total += max(0.0, done_mcycles - begun)
        self.attempt, self.done_mcycles = attempt, done_mcycles
        self.at_s.append(at_s)
        self.totals.append(self.total)

    def until(self, at_s: float) -> float:
        """Return the work done until then."""
        row = bisect_right(self.at_s, at_s)
        if row == 0:
            return self.totals[0]
        if row == len(self.at_s):
            return self.totals[-1]
        before_s, after_s = self.at_s[row - 1], self.at_s[row]
        part = (at_s - before_s) / (after_s - before_s)
        return self.totals[row - 1] + part * (self.totals[row] - self.totals[row - 1])

    def count(self, since_s: float, until_s: float, follows: bool) -> float:
        """Return the work done between two times. Where the first is the end of the previous sample (`follows`), work
        that the counter reported only after that sample was closed belongs to this one."""
        begun = self.counted if follows and self.counted is not None else self.until(since_s)
        self.counted = max(begun, self.until(until_s))
        return self.counted - begun


@dataclass(frozen=True, slots=True)
class _Answered:
    since_s: float
    until_s: float
    served: Mapping[str, int]
    instances: int


class WorkLog:
    """Of one application."""

    def __init__(self) -> None:
        self._counters: dict[str, _Counter] = {}
        self._waiting: deque[_Answered] = deque(maxlen=POINTS_MAX)
        self._seconds = self._mcycles = 0.0
        self._served: dict[str, int] = {}
        self._since_s = 0.0  # of the first sample in the window that is open
        self._until_s: float | None = None  # of the last sample in a window

    def worked(self, vm: str, attempt: int, at_s: float, done_mcycles: float) -> None:
        """Take a reading of an instance's counter."""
        counter = self._counters.get(vm)
        if counter is None:
            counter = self._counters[vm] = _Counter(attempt, done_mcycles)
        counter.read(attempt, at_s, done_mcycles)

    def answered(self, since_s: float, until_s: float, served: Mapping[str, int], instances: int) -> None:
        """Take how many requests of each flow were answered; `instances` run at the end."""
        self._waiting.append(_Answered(since_s, until_s, served, instances))

    def windows(self, running: Collection[str]) -> list[WorkWindow]:
        """Return the windows that can be closed, now that these instances run; what others have worked is known."""
        heard = [self._counters[vm].at_s[-1] for vm in running if vm in self._counters]
        if not heard:
            return []
        known_s, found = min(heard) + AT_ONCE_S, []
        while self._waiting and self._waiting[0].until_s <= known_s:
            window = self._add(self._waiting.popleft())
            if window is not None:
                found.append(window)
        oldest_s = self._waiting[0].since_s if self._waiting else known_s
        for vm in [vm for vm, one in self._counters.items() if vm not in running and one.at_s[-1] < oldest_s]:
            del self._counters[vm]
        return found

    def _add(self, one: _Answered) -> WorkWindow | None:
        if not self._seconds:
            self._since_s = one.since_s
        follows, self._until_s = one.since_s == self._until_s, one.until_s
        counters = self._counters.values()
        self._mcycles += sum(counter.count(one.since_s, one.until_s, follows) for counter in counters)
        self._seconds += one.until_s - one.since_s
        for flow, count in one.served.items():
            self._served[flow] = self._served.get(flow, 0) + count
        if self._seconds < WINDOW_S * (1.0 - 1e-6) and not self._says_enough():
            return None
        flows = tuple(FlowWork(flow, count) for flow, count in self._served.items())
        window = WorkWindow(self._seconds, self._mcycles, one.instances, flows)
        self._seconds = self._mcycles = 0.0
        self._served = {}
        return window

    def _says_enough(self) -> bool:
        """Return whether the open window tells the work of a request although it is short."""
        if sum(self._served.values()) < REQUESTS:
            return False
        counters = self._counters.values()
        return all(sum(at_s > self._since_s for at_s in counter.at_s) >= READINGS for counter in counters)
