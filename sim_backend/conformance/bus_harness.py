"""What the conformance suite needs around a bus: the harness that a broker's owner provides, and its listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from shared.base.errors import ContractViolation
from shared.ports.bus import Bus, BusEvent, Confirm, Delivery, Lost
from shared.protocol.dead_letter import DeadMessage

PATIENCE = 100  # how many times to look for what must come
QUIET = 6  # how many times to look for what must not come
LOOK_S = 0.05

E = TypeVar("E", Confirm, Delivery, Lost)


class BusHarness(Protocol):
    """One broker under test and what only its owner can do to it."""

    @property
    def supports_restart(self) -> bool:
        """Whether `restart_broker` can be called."""
        ...

    @property
    def enforces_permissions(self) -> bool:
        """Whether `shared.protocol.permissions.grant_of` is in force."""
        ...

    def connect(self, user: str) -> Bus:
        """Return a new connection of a user."""
        ...

    def settle(self, seconds: float) -> None:
        """Let time pass, virtual or real."""
        ...

    def kill(self, connection: Bus) -> None:
        """End a connection as the death of its process would: nothing is handed back in order."""
        ...

    def restart_broker(self) -> None:
        """Stop the broker, losing every connection, and start it again with what it had made durable."""
        ...

    def dead_letters(self) -> tuple[DeadMessage, ...]:
        """Return the messages in the dead queue, oldest first."""
        ...


def expect(what: str, got: object, wanted: object) -> None:
    """Raises ContractViolation unless both are equal."""
    if got != wanted:
        raise ContractViolation(f"{what}: {got!r} instead of {wanted!r}")


def expect_refusal(what: str, error: type[Exception], call: Callable[[], object]) -> None:
    """Raises ContractViolation unless the call raises this error."""
    try:
        call()
    except error:
        return
    raise ContractViolation(f"{what}: no {error.__name__}")


@dataclass(slots=True)
class Listener:
    """A connection and everything that it was handed so far."""

    harness: BusHarness
    bus: Bus
    events: list[BusEvent] = field(default_factory=list)

    def deliveries(self, wanted: int) -> list[Delivery]:
        """Return the next `wanted` deliveries. Waits for them, then a little longer; raises ContractViolation if there
        are fewer or more."""
        self._look(lambda: len(self._of(Delivery)) >= wanted)
        got = self._of(Delivery)
        expect(f"number of deliveries to {self.bus.user}", len(got), wanted)
        self.events = [event for event in self.events if not isinstance(event, Delivery)]
        return got

    def bodies(self, wanted: int) -> list[bytes]:
        """Acknowledge the next `wanted` deliveries and return their bodies. Raises as `deliveries`."""
        got = self.deliveries(wanted)
        for delivery in got:
            self.bus.acknowledge(delivery.tag)
        return [delivery.body for delivery in got]

    def confirms(self, wanted: int) -> list[Confirm]:
        """Return the next `wanted` confirms. Raises ContractViolation if there are fewer or more."""
        self._look(lambda: len(self._of(Confirm)) >= wanted)
        got = self._of(Confirm)
        expect(f"number of confirms to {self.bus.user}", len(got), wanted)
        self.events = [event for event in self.events if not isinstance(event, Confirm)]
        return got

    def lost(self) -> None:
        """Wait for the news that the connection is lost."""
        for _ in range(PATIENCE):
            if self._of(Lost):
                return
            self.events.extend(self.bus.poll())
            self.harness.settle(LOOK_S)
        raise ContractViolation(f"{self.bus.user} was never notified that its connection is lost")

    def _look(self, enough: Callable[[], bool]) -> None:
        quiet = 0
        for _ in range(PATIENCE):
            self.events.extend(self.bus.poll())
            quiet += enough()
            if quiet > QUIET:
                return
            self.harness.settle(LOOK_S)

    def _of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]
