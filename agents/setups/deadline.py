"""The moment by which a setup must be done."""

from __future__ import annotations

from shared.base.clock import SystemClock
from shared.base.errors import TransientError

_CLOCK = SystemClock()


class Deadline:
    """`limit_s` from now."""

    __slots__ = ("_until_s", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until_s = _CLOCK.monotonic_s() + limit_s

    @property
    def is_ahead(self) -> bool:
        """Whether something is left of it."""
        return _CLOCK.monotonic_s() < self._until_s

    def left_s(self) -> float:
        """What is left of it, above 0. Raises TransientError when nothing is."""
        left_s = self._until_s - _CLOCK.monotonic_s()
        if left_s <= 0.0:
            raise TransientError(f"not done within {self.limit_s:g} s")
        return left_s

    def within(self, limit_s: float) -> Deadline:
        """The same, or `limit_s` from now where that is sooner."""
        return Deadline(min(limit_s, self.left_s()))
