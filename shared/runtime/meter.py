"""The shell's reports about its traffic; `shared.metrics.meter` counts them."""

from __future__ import annotations

from shared.ports import effects as fx


class Meter:
    """Receives a shell's reports about itself. This one ignores them."""

    def input(self, event: fx.Input) -> None:
        """Note an input on its way to the core."""

    def effect(self, effect: fx.Effect) -> None:
        """Note an effect that is about to be carried out."""

    def sent(self, kind: str, sent: bool) -> None:
        """Note a message that was passed to the broker, or was not."""

    def buried(self, count: int = 1) -> None:
        """So many deliveries were no messages, or beyond their sender's share."""

    def connected(self) -> None:
        """There is a new connection to the broker."""

    def late(self, by_s: float) -> None:
        """Note the delay of a fired timer."""

    def called(self, what: str, took_s: float, ok: bool) -> None:
        """Note the end of a call to something outside the process; may be called from any thread."""
