"""What a shell tells of what passes through it; `shared.metrics.meter` counts it."""

from __future__ import annotations

from shared.ports import effects as fx


class Meter:
    """What a shell tells of itself. This one listens to nothing."""

    def input(self, event: fx.Input) -> None:
        """An input goes to the core."""

    def effect(self, effect: fx.Effect) -> None:
        """An effect is about to be carried out."""

    def sent(self, kind: str, sent: bool) -> None:
        """A message was handed to the broker, or not."""

    def buried(self, count: int = 1) -> None:
        """So many deliveries were no messages, or beyond their sender's share."""

    def connected(self) -> None:
        """There is a new connection to the broker."""

    def late(self, by_s: float) -> None:
        """A timer has fired, so late."""

    def called(self, what: str, took_s: float, ok: bool) -> None:
        """A call to something outside the process has ended; from any thread."""
