"""Where real time comes from: the only file that reads the machine's clocks."""

from __future__ import annotations

import threading
import time

from shared.base.errors import InvalidValue


class SystemClock:
    """The machine's clocks. `now_s` is UTC seconds since the epoch and never decreases within one clock object.

    When the machine's clock is set back, `now_s` stands still until it has caught up; `monotonic_s` is not affected.
    """

    __slots__ = ("_latest_s", "_lock")

    def __init__(self) -> None:
        self._latest_s = 0.0
        self._lock = threading.Lock()

    def now_s(self) -> float:
        """Return the seconds since the epoch, never less than an earlier answer."""
        with self._lock:
            self._latest_s = max(self._latest_s, time.time())
            return self._latest_s

    # Seconds since some fixed moment, for measuring how long something lasts; unaffected by setting the clock.
    monotonic_s = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Block this thread for so long; nothing for zero or less."""
        if seconds > 0:
            time.sleep(seconds)


class ManualClock:
    """A clock that moves only when it is set; `sleep` moves it too. For tests and virtual worlds."""

    __slots__ = ("_now_s",)

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = float(start_s)

    def now_s(self) -> float:
        """Return the moment it was last moved to."""
        return self._now_s

    def monotonic_s(self) -> float:
        """Return the same as `now_s`."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Return at once, so much later; nothing for zero or less."""
        self.advance(max(seconds, 0.0))

    def advance(self, by_s: float) -> float:
        """Move on by `by_s` (0 or above, else `InvalidValue`) and return the new moment."""
        if not 0.0 <= by_s < float("inf"):
            raise InvalidValue("by_s", by_s, "a finite number, 0 or above")
        self._now_s += by_s
        return self._now_s


def suspended_s() -> float:
    """Return the seconds that this host has spent suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


# Seconds since some fixed moment at the highest resolution there is: for `wall_s` in outputs.
perf_s = time.perf_counter
