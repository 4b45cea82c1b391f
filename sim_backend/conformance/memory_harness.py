"""The harness of the in-process bus."""

from __future__ import annotations

from collections.abc import Callable

from shared.base.errors import ContractViolation
from shared.ports.bus import Bus
from shared.protocol.dead_letter import DeadMessage
from shared.protocol.permissions import Grant, grant_of
from sim_backend.bus.faults import BusFaults
from sim_backend.bus.memory import MemoryBroker, MemoryConnection


class MemoryHarness:
    """A `BusHarness` over a `MemoryBroker` of its own, in virtual time."""

    supports_restart = True
    enforces_permissions = True

    def __init__(self, faults: BusFaults | None = None, permissions: Callable[[str], Grant] | None = grant_of) -> None:
        self.broker = MemoryBroker(1000.0, faults, permissions)

    def connect(self, user: str) -> Bus:
        """Return a connection to the broker."""
        return self.broker.connect(user)

    def settle(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.broker.advance(self.broker.now_s + seconds)

    def kill(self, connection: Bus) -> None:
        """End a connection as the death of its process would."""
        if not isinstance(connection, MemoryConnection):
            raise ContractViolation(f"not a connection of this broker: {connection!r}")
        connection.kill()

    def restart_broker(self) -> None:
        """Stop and start."""
        self.broker.restart()

    def dead_letters(self) -> tuple[DeadMessage, ...]:
        """Return the messages in the dead queue."""
        return self.broker.dead_letters()
