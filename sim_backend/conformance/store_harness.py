"""What the conformance suite needs around a store: the harness that its owner provides."""

from __future__ import annotations

from typing import Any, Protocol

from shared.ports.controller import Store


class StoreHarness(Protocol):
    """One empty store under test, the records that it takes, and what only its owner can do to it.

    The suite knows no class of records, so the harness makes them: two of one kind and name are equal when their
    values are, and have the same key.
    """

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of records of which a new leader is given every one."""
        ...

    def open(self) -> Store:
        """A connection of a process of its own; each sees what another has written."""
        ...

    def record(self, kind: str, name: str, value: int) -> Any:
        """A record of one of `kinds`."""
        ...

    def deleted(self, record: Any) -> Any:
        """What removes the record of the same key."""
        ...

    def unstorable(self) -> Any:
        """What no store of this kind takes: writing it raises an error that is not `StoreUnavailable`."""
        ...

    def stop(self) -> None:
        """Make the store unreachable for every connection."""
        ...

    def start(self) -> None:
        """Make it reachable again, with what it had made durable."""
        ...
