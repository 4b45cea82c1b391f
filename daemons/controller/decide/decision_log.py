"""The last decisions, kept in memory for operators' questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from daemons.decision.gains import Gains, columns_of
from daemons.values.records.cluster import DecisionRecord

KEPT_MAX = 200
ITEMS_MAX = 100_000  # changes and refusals in all records kept, so that long queues do not fill the memory
GAINS_PER_ITEM = 16  # rows of columns are so much smaller


class DecisionLog:
    """At most `KEPT_MAX` decisions, fewer when they are large; always the newest one."""

    def __init__(self) -> None:
        self._records: deque[DecisionRecord] = deque()
        self._items = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[DecisionRecord]:
        """Newest first."""
        return reversed(self._records)

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision, which must be newer than those kept."""
        if not isinstance(record.gains, Gains):
            record = replace(record, gains=columns_of(record.gains))
        self._records.append(record)
        self._items += _items(record)
        while len(self._records) > 1 and (len(self._records) > KEPT_MAX or self._items > ITEMS_MAX):
            self._items -= _items(self._records.popleft())

    def replace(self, record: DecisionRecord) -> None:
        """Keep a decision in the place of that of the same number, if that is still kept."""
        for at, kept in enumerate(self._records):
            if kept.number == record.number:
                self._items += _items(record) - _items(kept)
                self._records[at] = record

    @property
    def last(self) -> DecisionRecord | None:
        """The newest one."""
        return self._records[-1] if self._records else None

    def find(self, number: int) -> DecisionRecord | None:
        """Return the decision of that number, None when it is not kept."""
        return next((record for record in self if record.number == number), None)


def _items(record: DecisionRecord) -> int:
    return len(record.changes) + len(record.refusals) + len(record.dropped) + len(record.gains) // GAINS_PER_ITEM
