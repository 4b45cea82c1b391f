"""A core and its clock, as a shell sees them."""

from __future__ import annotations

from typing import Protocol

from shared.ports.effects import Effect, Input


class Core(Protocol):
    """A state machine without I/O: same inputs, same effects. `now_s` never decreases."""

    def handle(self, event: Input, now_s: float) -> list[Effect]:
        """Take one input and return what the shell must do, in order."""
        ...


class Clock(Protocol):
    """Where time comes from. Only `shared/base/clock.py` and virtual engines implement it."""

    def now_s(self) -> float:
        """Return the seconds since the epoch (real) or since the start of the world (virtual); never decreases."""
        ...
