"""An agent's journal in memory; it keeps what it holds while the agent's process dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.base.errors import StoreUnavailable


class MemoryJournal:
    """Records in the order of appending. Implements `shared.ports.agent.Journal`.

    `compact`, if given, turns the records into an equivalent shorter list whenever more than `length_max` of them have
    been appended since the last time. `full` true: the disk is full, appending raises `StoreUnavailable`.
    """

    def __init__(
        self, compact: Callable[[Sequence[Any]], Sequence[Any]] | None = None, length_max: int = 10_000
    ) -> None:
        self.full = False
        self._records: list[Any] = []
        self._compact = compact
        self._length_max = length_max
        self._compact_at = length_max

    def append(self, record: Any) -> None:
        """Keep a record. Raises `StoreUnavailable` when the disk is full."""
        if self.full:
            raise StoreUnavailable("the journal's disk is full")
        self._records.append(record)
        if self._compact is not None and len(self._records) > self._compact_at:
            self._records = list(self._compact(self._records))
            self._compact_at = len(self._records) + self._length_max

    def records(self) -> tuple[Any, ...]:
        """Return every record, or an equivalent shorter list, oldest first."""
        return tuple(self._records)
