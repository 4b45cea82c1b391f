"""What harnesses of drivers that work in real time, without a script, have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.base.clock import SystemClock


class RealTime:
    """The part of a `HypervisorHarness` that is about time. `limit_s`: for anything to come about, on a machine that
    others keep busy, too; `pause_s`: between two looks."""

    limit_s = 20.0
    pause_s = 0.005

    def __init__(self) -> None:
        self._clock = SystemClock()

    def now_s(self) -> float:
        """Such drivers do not look at it."""
        return self._clock.now_s()

    def wait(self, seconds: float) -> None:
        """Real time."""
        self._clock.sleep(seconds)

    def until(self, ready: Callable[[], bool]) -> None:
        """Look again and again."""
        limit_s = self._clock.monotonic_s() + self.limit_s
        while not ready() and self._clock.monotonic_s() < limit_s:
            self.between()
            self._clock.sleep(self.pause_s)

    def between(self) -> None:
        """What is to be done between two looks: nothing."""

    def fail_next(self, kind: object, how: str) -> None:
        """What is real follows no script."""
        pytest.fail(f"no script for {kind} to {how}")
