"""The controller's store in memory: it keeps what it holds while controllers die and take over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shared.base.errors import StaleTerm, StoreUnavailable
from shared.ports.effects import LeadTaken


class Keyed(Protocol):
    """What a stored record must have."""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name; a later record of the same key replaces an earlier one."""
        ...


class MemoryStore:
    """Records by key, with every write conditional on the term. Implements `shared.ports.controller.Store`.

    `deleted` is the class of records that remove the record of their key. `available` false: every call raises
    `StoreUnavailable`. `on_write(term, records)` is called just before records are stored.
    """

    def __init__(self, deleted: type[Keyed] | None = None) -> None:
        self.term = 0
        self.leader = ""
        self.available = True
        self.on_write: Callable[[int, tuple[Any, ...]], None] | None = None
        self._deleted = deleted
        self._records: dict[tuple[str, str], Keyed] = {}

    def take_lead(self, controller: str) -> LeadTaken:
        """Raise the term by one and read everything: the image is a tuple of records, oldest key first."""
        self._check_available()
        self.term += 1
        self.leader = controller
        return LeadTaken(self.term, self.records())

    def write(self, term: int, records: tuple[Any, ...]) -> None:
        """Store all records; raises `StaleTerm` and stores none when the term was raised since.

        Nor is any stored when one has no key: then what asking it raises.
        """
        self._check_available()
        self.check_term(term)
        keyed = [(record.key, record) for record in records]
        if self.on_write is not None:
            self.on_write(term, records)
        for key, record in keyed:
            if self._deleted is not None and isinstance(record, self._deleted):
                self._records.pop(key, None)
            else:
                self._records[key] = record

    def check_term(self, term: int) -> None:
        """Raise `StaleTerm` unless `term` is the store's."""
        if term != self.term:
            raise StaleTerm(f"term {term}: the store is at {self.term}, held by {self.leader!r}")

    def records(self) -> tuple[Any, ...]:
        """Return all records."""
        return tuple(self._records.values())

    def get(self, key: tuple[str, str]) -> Any:
        """Return the record of a key, None when there is none."""
        return self._records.get(key)

    def _check_available(self) -> None:
        if not self.available:
            raise StoreUnavailable("the store does not answer")
