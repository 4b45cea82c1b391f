"""The store and the journal in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from shared.base.errors import StaleTerm, StoreUnavailable
from shared.ports.agent import Journal
from shared.ports.controller import Store
from sim_backend.fakes.journal import MemoryJournal
from sim_backend.fakes.store import MemoryStore


@dataclass(frozen=True, slots=True)
class Thing:
    """A record."""

    name: str
    value: int

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return ("thing", self.name)


@dataclass(frozen=True, slots=True)
class Gone:
    """Removes a record."""

    key: tuple[str, str]


def new_store() -> MemoryStore:
    store: Store = MemoryStore(Gone)
    assert isinstance(store, MemoryStore)
    return store


def test_each_lead_raises_the_term_and_reads_everything() -> None:
    store = new_store()
    assert store.take_lead("a").term == 1
    store.write(1, (Thing("x", 1), Thing("y", 2)))

    taken = store.take_lead("b")

    assert (taken.term, taken.image) == (2, (Thing("x", 1), Thing("y", 2)))


def test_a_later_record_replaces_an_earlier_one_of_its_key_and_a_deletion_removes_it() -> None:
    store = new_store()
    store.take_lead("a")
    store.write(1, (Thing("x", 1), Thing("y", 2)))

    store.write(1, (Thing("x", 3), Gone(("thing", "y")), Gone(("thing", "never there"))))

    assert store.records() == (Thing("x", 3),)
    assert store.get(("thing", "y")) is None


@pytest.mark.parametrize("term", [0, 1, 3])
def test_a_write_of_another_term_stores_nothing(term: int) -> None:
    store = new_store()
    store.take_lead("a")
    store.take_lead("b")

    with pytest.raises(StaleTerm, match="held by 'b'"):
        store.write(term, (Thing("x", 1),))

    assert store.records() == ()


def test_a_store_that_does_not_answer_says_so_and_changes_nothing() -> None:
    store = new_store()
    store.take_lead("a")
    store.available = False

    with pytest.raises(StoreUnavailable):
        store.write(1, (Thing("x", 1),))
    with pytest.raises(StoreUnavailable):
        store.take_lead("b")

    assert (store.term, store.records()) == (1, ())


def test_the_journal_keeps_order_and_refuses_when_full() -> None:
    journal = MemoryJournal()
    port: Journal = journal
    port.append("one")
    port.append("two")
    journal.full = True

    with pytest.raises(StoreUnavailable):
        port.append("three")

    assert port.records() == ("one", "two")


def test_the_journal_is_compacted_only_after_growing_by_its_length() -> None:
    calls: list[int] = []

    def newest(records: Sequence[Any]) -> Sequence[Any]:
        calls.append(len(records))
        return records[-2:]

    journal = MemoryJournal(newest, length_max=4)
    for number in range(12):
        journal.append(number)

    assert calls == [5, 7]
    assert journal.records()[-1] == 11
    assert len(journal.records()) <= 7
