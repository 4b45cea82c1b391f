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
        """Return a connection as of a separate process. Each connection sees the writes of the others."""
        ...

    def record(self, kind: str, name: str, value: int) -> Any:
        """Return a record of one of `kinds`."""
        ...

    def deleted(self, record: Any) -> Any:
        """Return the deletion of the record with the same key."""
        ...

    def unstorable(self) -> Any:
        """Return a record that no store of this kind accepts. Writing it raises an error other than
        `StoreUnavailable`."""
        ...

    def stop(self) -> None:
        """Make the store unreachable for every connection."""
        ...

    def start(self) -> None:
        """Make it reachable again, with what it had made durable."""
        ...
