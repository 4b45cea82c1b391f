"""The checks of the bus notice a bus that breaks its contract: each mutant here must fail at least one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from shared.base.errors import TrimtabError
from shared.ports.bus import Bus, BusEvent, Confirm, Delivery, Discarded
from shared.protocol.topology import EVENTS, REPLIES, REPORTS, RESULTS, QueueSpec
from sim_backend.bus.faults import BusFaults, FaultKind, FaultRule
from sim_backend.conformance.bus_checks import CHECKS
from sim_backend.conformance.bus_harness import BusHarness
from sim_backend.conformance.memory_harness import MemoryHarness


def failures(make: Callable[[], BusHarness]) -> set[str]:
    """Names of the checks that a broker fails."""
    failed = set()
    for check in CHECKS:
        try:
            check(make())
        except TrimtabError:
            failed.add(check.__name__.removeprefix("check_"))
    return failed


class Mutant:
    """A bus that passes everything on; subclasses break one thing."""

    def __init__(self, inner: Bus) -> None:
        self.inner = inner

    @property
    def user(self) -> str:
        """The same user."""
        return self.inner.user

    def declare(self, queue: QueueSpec) -> None:
        """Pass on."""
        self.inner.declare(queue)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Pass on."""
        self.inner.publish(exchange, routing_key, body, publish_id, reply_to)

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Pass on."""
        self.inner.consume(queue, prefetch, acknowledged)

    def acknowledge(self, tag: int) -> None:
        """Pass on."""
        self.inner.acknowledge(tag)

    def dead_letter(self, tag: int, reason: str) -> None:
        """Pass on."""
        self.inner.dead_letter(tag, reason)

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Pass on."""
        return [self.change(event) for event in self.inner.poll(timeout_s)]

    def now_s(self) -> float:
        """Pass on."""
        return self.inner.now_s()

    def charge(self, sender: str, busy_s: float) -> None:
        """Pass on."""
        self.inner.charge(sender, busy_s)

    def close(self) -> None:
        """Pass on."""
        self.inner.close()

    def change(self, event: BusEvent) -> BusEvent:
        """Leave it as it is."""
        return event


class NeverAcknowledges(Mutant):
    """Forgets acknowledgements."""

    def acknowledge(self, tag: int) -> None:
        """Do nothing."""


class ForgetsDeadLetters(Mutant):
    """Acknowledges instead of keeping."""

    def dead_letter(self, tag: int, reason: str) -> None:  # noqa: ARG002
        """Lose it."""
        self.inner.acknowledge(tag)


class KeepsDeadLetters(Mutant):
    """Keeps every dead letter under one reason."""

    def dead_letter(self, tag: int, reason: str) -> None:  # noqa: ARG002
        """Lose the reason."""
        self.inner.dead_letter(tag, "refused")


class Greedy(Mutant):
    """Takes one delivery more than it may."""

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Ask for more."""
        self.inner.consume(queue, prefetch + 1, acknowledged)


class AlwaysAcknowledges(Mutant):
    """Acknowledges on receipt."""

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:  # noqa: ARG002
        """Need no acknowledgement."""
        self.inner.consume(queue, prefetch, False)


class NeverCloses(Mutant):
    """Stays open."""

    def close(self) -> None:
        """Do nothing."""


class NoReplyTo(Mutant):
    """Loses the asker's queue."""

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Drop reply_to."""
        self.inner.publish(exchange, routing_key, body, publish_id)
        del reply_to


class ConfirmsUnasked(Mutant):
    """Confirms what has no id, too."""

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Make an id up."""
        self.inner.publish(exchange, routing_key, body, publish_id or 999, reply_to)


class NeverMarksRedelivered(Mutant):
    """Says that everything is new."""

    def change(self, event: BusEvent) -> BusEvent:
        """Take the mark off."""
        return structs.replace(event, redelivered=False) if isinstance(event, Delivery) else event


class AlwaysMarksRedelivered(Mutant):
    """Says that nothing is new."""

    def change(self, event: BusEvent) -> BusEvent:
        """Put the mark on."""
        return structs.replace(event, redelivered=True) if isinstance(event, Delivery) else event


class HidesSender(Mutant):
    """Gives its own user as the sender."""

    def change(self, event: BusEvent) -> BusEvent:
        """Replace the sender."""
        return structs.replace(event, sender=self.user) if isinstance(event, Delivery) else event


class RefusesAll(Mutant):
    """Says that nothing was taken."""

    def change(self, event: BusEvent) -> BusEvent:
        """Turn confirms round."""
        return replace(event, ok=False) if isinstance(event, Confirm) else event


class TextOnly(Mutant):
    """Loses the eighth bit."""

    def change(self, event: BusEvent) -> BusEvent:
        """Mask each byte."""
        return (
            structs.replace(event, body=bytes(b & 127 for b in event.body[:999]))
            if isinstance(event, Delivery)
            else event
        )


class StampsLate(Mutant):
    """Says that everything comes when it is handed out."""

    def change(self, event: BusEvent) -> BusEvent:
        """Stamp it anew."""
        return structs.replace(event, arrived_s=self.inner.now_s()) if isinstance(event, Delivery) else event


class Hoards(Mutant):
    """Hands out everything at once, in the order in which senders are served."""

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Poll until nothing is left."""
        found: list[BusEvent] = []
        while events := self.inner.poll(timeout_s):
            found += sorted(events, key=lambda event: getattr(event, "sender", ""))
        return found


class Tacit(Mutant):
    """Drops what is beyond a share without a word."""

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Leave the news out."""
        return [event for event in self.inner.poll(timeout_s) if not isinstance(event, Discarded)]


class Backwards(Mutant):
    """Gives what came in together in the wrong order."""

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Turn the batch round."""
        return list(reversed(self.inner.poll(timeout_s)))


MUTANTS: tuple[tuple[type[Mutant], str], ...] = (
    (NeverAcknowledges, "acknowledged_is_gone"),
    (ForgetsDeadLetters, "dead_letter"),
    (KeepsDeadLetters, "dead_letter"),
    (Greedy, "prefetch_bounds_what_is_held"),
    (AlwaysAcknowledges, "unacknowledged_comes_again_after_kill"),
    (NeverCloses, "closed_connection_refuses"),
    (NoReplyTo, "reply_by_default_exchange"),
    (ConfirmsUnasked, "confirms"),
    (NeverMarksRedelivered, "unacknowledged_comes_again_after_kill"),
    (AlwaysMarksRedelivered, "unacknowledged_comes_again_after_kill"),
    (HidesSender, "delivery_names_its_sender"),
    (RefusesAll, "confirms"),
    (TextOnly, "body_arrives_as_sent"),
    (Backwards, "order_of_one_publisher"),
    (StampsLate, "arrival_is_stamped"),
    (Hoards, "senders_are_served_in_turn"),
    (Tacit, "nobody_takes_more_than_its_share"),
)


class MutantHarness(MemoryHarness):
    """Every connection is a mutant."""

    def __init__(self, mutant: Callable[[Bus], Mutant]) -> None:
        super().__init__()
        self._mutant = mutant

    def connect(self, user: str) -> Bus:
        """A connection that breaks one thing."""
        return self._mutant(super().connect(user))

    def kill(self, connection: Bus) -> None:
        """End the connection inside."""
        assert isinstance(connection, Mutant)
        super().kill(connection.inner)


def test_a_mutant_that_changes_nothing_passes() -> None:
    """What the others fail is due to what they change."""
    assert failures(lambda: MutantHarness(Mutant)) == set()


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda value: getattr(value, "__name__", None))
def test_mutants_fail(mutant: type[Mutant], check: str) -> None:
    """Each is found out by the check that is about it."""
    assert check in failures(lambda: MutantHarness(mutant))


@pytest.mark.parametrize(
    ("part", "check"),
    [
        ({"ttl_s": None}, "ttl_drops_what_is_old"),
        ({"length_max": None}, "length_drops_the_oldest"),
        ({"single_active": False}, "single_active_consumer"),
        ({"exclusive": False}, "exclusive_queue_goes_with_its_connection"),
        ({"durable": False}, "restart_keeps_what_is_durable"),
        ({"durable": True}, "restart_keeps_what_is_durable"),
    ],
)
def test_ignoring_part_of_a_shape_fails(part: dict[str, Any], check: str) -> None:
    """A broker must heed every part of a queue's shape."""

    class Careless(Mutant):
        """Declares queues with one part of their shape always the same."""

        def declare(self, queue: QueueSpec) -> None:
            """Forget the part."""
            self.inner.declare(replace(queue, **part))

    assert check in failures(lambda: MutantHarness(Careless))


@pytest.mark.parametrize(
    ("rule", "check"),
    [
        (FaultRule(FaultKind.DROP), "order_of_one_publisher"),
        (FaultRule(FaultKind.DUPLICATE), "order_of_one_publisher"),
        (FaultRule(FaultKind.REORDER, count=1, delay_s=(0.1, 0.1)), "order_of_one_publisher"),
        (FaultRule(FaultKind.LOSE_CONFIRM), "confirms"),
        (FaultRule(FaultKind.DROP, exchange=REPORTS), "reports_reach_every_controller"),
        (FaultRule(FaultKind.DROP, exchange=EVENTS), "topic_routing"),
        (FaultRule(FaultKind.DROP, exchange=REPLIES), "reply_by_default_exchange"),
        (FaultRule(FaultKind.DROP, exchange=RESULTS), "single_active_consumer"),
    ],
)
def test_a_faulty_broker_fails(rule: FaultRule, check: str) -> None:
    """Faults break the contract, and the checks see it."""
    assert check in failures(lambda: MemoryHarness(BusFaults(rules=(rule,))))


def test_missing_permissions_fail() -> None:
    """Permissions that are said to be in force must be."""
    assert failures(lambda: MemoryHarness(permissions=None)) == {"permissions", "dead_letter_makes_room"}
