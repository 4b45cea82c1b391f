"""An operator's connection to a real controller and agents in virtual time, which commands cannot wait at for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daemons.cli.connection import Access, OperatorBus
from shared.ports.bus import Bus, BusEvent
from tests.support.operator_harness import URL, LoopBus, Rig

__all__ = ["URL", "Wire"]

STEP_S = 2.0
WAITS_MAX = 60


class _Patience(LoopBus):
    """A connection on which a wait in which nothing comes is over at once."""

    def __init__(self, rig: Wire) -> None:
        super().__init__(rig, rig.user)
        self._wire = rig

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        self._wire.waited()
        events = super().poll(min(timeout_s, STEP_S))
        if not events:
            self._wire.skipped_s += max(0.0, timeout_s - STEP_S)
        return events


class Wire(Rig):
    """A small cluster. Whoever waits more often than WAITS_MAX is interrupted, as with Ctrl-C: `interrupted`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.skipped_s, self.waits, self.interrupted = 0.0, 0, False

    def waited(self) -> None:
        """Count a wait."""
        self.waits += 1
        if self.waits > WAITS_MAX:
            self.interrupted = True
            raise KeyboardInterrupt

    def connect(self, bus: OperatorBus, limit_s: float) -> Bus:
        """The operator's connection; at another address the real one, which nobody answers."""
        if bus.url != URL:
            return Access().connect(bus, limit_s)
        made = _Patience(self)
        self.connections += 1
        self.loop._actors[self.user] = made  # type: ignore[assignment]  # whoever is on the bus is an actor
        return made

    def now_s(self) -> float:
        """What the operator's clock shows."""
        return self.loop.engine.now_s + self.skipped_s

    def monotonic_s(self) -> float:
        """The same."""
        return self.now_s()

    def sleep(self, seconds: float) -> None:
        """Wait: the cluster moves on a little, the clock by all of it."""
        self.waited()
        self.run(min(seconds, STEP_S))
        self.skipped_s += max(0.0, seconds - STEP_S)
