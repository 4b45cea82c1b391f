"""What every `shared.ports.controller.Store` must do, checked from outside: run each of `CHECKS` on a `StoreHarness` of
its own.

Each check wants an empty store. A check that fails raises `ContractViolation`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shared.base.errors import ContractViolation, StaleTerm, StoreUnavailable
from shared.ports.controller import Store
from sim_backend.conformance.bus_harness import expect, expect_refusal
from sim_backend.conformance.store_harness import StoreHarness

RACES = 20
RACERS = 4
MANY = 2_000
PATIENCE_S = 60.0


def check_each_lead_has_its_own_term(harness: StoreHarness) -> None:
    """Check that terms count up from 1, for any controller and through any connection."""
    stores = [harness.open(), harness.open()]
    terms = [stores[at % 2].take_lead(name).term for at, name in enumerate(("a", "b", "a", "a"))]
    expect("terms", terms, [1, 2, 3, 4])


def check_image_of_an_empty_store(harness: StoreHarness) -> None:
    """There is nothing in it."""
    expect("image", harness.open().take_lead("a").image, ())


def check_a_new_leader_reads_what_was_written(harness: StoreHarness) -> None:
    """Check that a new leader reads every record of every kind as it was written through another connection."""
    written = [harness.record(kind, name, 7) for kind in harness.kinds for name in ("x", "y", "z-9_A")]
    first = harness.open()
    first.write(first.take_lead("a").term, tuple(written))
    _expect_image(harness.open(), written)


def check_a_later_record_replaces_an_earlier_one(harness: StoreHarness) -> None:
    """Check that a later record replaces an earlier one, in the same write and in separate writes."""
    store = harness.open()
    term = store.take_lead("a").term
    for kind in harness.kinds:
        first, second, third = (harness.record(kind, "x", value) for value in (1, 2, 3))
        store.write(term, (first, second))
        store.write(term, (third, first, third))
    _expect_image(store, [harness.record(kind, "x", 3) for kind in harness.kinds])


def check_deletion(harness: StoreHarness) -> None:
    """Removes the record of its key and no other; what is not there may be deleted; the order in a write counts."""
    store = harness.open()
    term = store.take_lead("a").term
    left = []
    for kind in harness.kinds:
        gone, kept, back = (harness.record(kind, name, 1) for name in ("gone", "kept", "back"))
        store.write(term, (gone, kept, back))
        store.write(term, (harness.deleted(gone), harness.deleted(harness.record(kind, "never", 1))))
        store.write(term, (harness.deleted(back), back))
        store.write(term, (gone, harness.deleted(gone)))
        left += [kept, back]
    _expect_image(store, left)


def check_equal_names_of_different_kinds(harness: StoreHarness) -> None:
    """Check that a key consists of a kind and a name."""
    store = harness.open()
    term = store.take_lead("a").term
    records = [harness.record(kind, "same", number) for number, kind in enumerate(harness.kinds)]
    store.write(term, tuple(records))
    store.write(term, (harness.deleted(records[0]),))
    _expect_image(store, records[1:])


def check_a_write_of_an_older_term_stores_nothing(harness: StoreHarness) -> None:
    """Once another has taken the lead, every write of the earlier leader fails, an empty one too."""
    old, new = harness.open(), harness.open()
    kept = harness.record(harness.kinds[0], "kept", 1)
    old_term = old.take_lead("a").term
    old.write(old_term, (kept,))
    new_term = new.take_lead("b").term
    late = harness.record(harness.kinds[0], "late", 2)
    for term in (0, old_term, new_term + 1):
        for what, records in (("write", (late,)), ("empty write", ()), ("deletion", (harness.deleted(kept),))):
            expect_refusal(f"a {what} of term {term}", StaleTerm, partial(old.write, term, records))
    new.write(new_term, ())
    _expect_image(new, [kept])


def check_all_records_or_none(harness: StoreHarness) -> None:
    """Check that a write with a record that cannot be stored stores nothing."""
    store = harness.open()
    term = store.take_lead("a").term
    kept = harness.record(harness.kinds[0], "kept", 1)
    store.write(term, (kept,))
    batch = (harness.record(harness.kinds[0], "x", 1), harness.deleted(kept), harness.unstorable())
    try:
        store.write(term, batch)
    except (StaleTerm, StoreUnavailable) as problem:
        raise ContractViolation(f"an error of the writer was laid to the store: {problem}") from problem
    except Exception:  # noqa: BLE001 - which one is the store's own affair
        _expect_image(store, [kept])
        return
    raise ContractViolation("what cannot be stored was taken")


def check_a_store_that_does_not_answer(harness: StoreHarness) -> None:
    """Says so, with a reason, and goes on with what it had when it is back."""
    store = harness.open()
    term = store.take_lead("a").term
    kept, lost = (harness.record(harness.kinds[0], name, 1) for name in ("kept", "lost"))
    store.write(term, (kept,))
    harness.stop()
    for call in (lambda: store.write(term, (lost,)), lambda: store.write(term, ()), lambda: store.take_lead("b")):
        expect_refusal("a call while the store does not answer", StoreUnavailable, call)
        _expect_reason(call)
    harness.start()
    store.write(term, ())
    _expect_image(store, [kept])


def check_many_records(harness: StoreHarness) -> None:
    """Thousands in one write."""
    store = harness.open()
    records = [harness.record(kind, f"r{number}", number) for kind in harness.kinds for number in range(MANY)]
    store.write(store.take_lead("a").term, tuple(records))
    _expect_image(harness.open(), records)


def check_races_for_the_term(harness: StoreHarness) -> None:
    """Check that controllers that take the leadership at the same time each get a term of their own, and that only the
    last one may write."""
    stores = [harness.open() for _ in range(RACERS)]
    stores[0].take_lead("first")
    for number in range(RACES):
        terms: list[int] = []
        wrote: list[int] = []

        def race(store: Store, number: int = number, terms: list[int] = terms, wrote: list[int] = wrote) -> None:
            term = store.take_lead(f"racer {number}").term
            terms.append(term)
            try:
                store.write(term, (harness.record(harness.kinds[0], "winner", term),))
            except StaleTerm:
                return
            wrote.append(term)

        _together(race, stores)
        expect("terms of a race", sorted(terms), list(range(min(terms), min(terms) + RACERS)))
        expect("whether the last leader could write", max(terms) in wrote, True)
        _expect_image(stores[0], [harness.record(harness.kinds[0], "winner", max(terms))])


CHECKS: tuple[Callable[[StoreHarness], None], ...] = (
    check_each_lead_has_its_own_term,
    check_image_of_an_empty_store,
    check_a_new_leader_reads_what_was_written,
    check_a_later_record_replaces_an_earlier_one,
    check_deletion,
    check_equal_names_of_different_kinds,
    check_a_write_of_an_older_term_stores_nothing,
    check_all_records_or_none,
    check_a_store_that_does_not_answer,
    check_many_records,
    check_races_for_the_term,
)


def _expect_image(store: Store, wanted: Iterable[Any]) -> None:
    """Check that the next leader's image holds exactly these records, in any order."""
    image = store.take_lead("reader").image
    found = {record.key: record for record in image}
    expect("number of records in the image", len(image), len(found))
    expect("image", found, {record.key: record for record in wanted})


def _expect_reason(call: Callable[[], object]) -> None:
    try:
        call()
    except StoreUnavailable as problem:
        expect("whether the error has a text", bool(str(problem)), True)


def _together(call: Callable[[Store], None], stores: list[Store]) -> None:
    """Run a call on each store in a thread of its own; the first error is raised."""
    errors: list[BaseException] = []

    def guarded(store: Store) -> None:
        try:
            call(store)
        except Exception as problem:  # noqa: BLE001 - handed to the thread that waits
            errors.append(problem)

    threads = [threading.Thread(target=guarded, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    expect("whether every racer came to an end", any(thread.is_alive() for thread in threads), False)
