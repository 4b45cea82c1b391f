"""The keeper's decisions, with a clock that the test moves."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import pytest

from agents.lease.keeper import (
    DONE,
    REFUSED,
    Arm,
    Armed,
    Disarm,
    Due,
    Effect,
    End,
    Event,
    Failed,
    Fire,
    Keeper,
    Look,
    Looked,
    Note,
    Pet,
    Ready,
    Stop,
    Terms,
    Write,
    Wrote,
    proof_s,
)
from shared.values.lease import Lease

TERMS = Terms("n1", "boot-1", renew_s=5.0, expires_s=30.0)
BOOTED_S = 1_000.0
E = TypeVar("E", bound=Effect)


class Host:
    """A keeper with a clock; `said` is what it has asked for since it was looked at last."""

    def __init__(self, terms: Terms = TERMS) -> None:
        self.keeper = Keeper(terms)
        self.now_s = BOOTED_S
        self.said = self.keeper.start(self.now_s)

    def take(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        """Hand an event in, so much later; return all that was asked for since the last look."""
        self.now_s += after_s
        self.said += self.keeper.handle(event, self.now_s)
        said, self.said = self.said, []
        return said

    def due(self) -> list[Effect]:
        """Go to the moment for which the keeper has asked."""
        due_s = self.keeper.next_due_s
        assert due_s is not None
        return self.take(Due(), max(0.0, due_s - self.now_s))


def only(kind: type[E], effects: list[Effect]) -> E:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects if not isinstance(effect, Note)]


def holding(terms: Terms = TERMS) -> Host:
    """A host that has its lease, with the next renewal in five seconds."""
    host = Host(terms)
    host.take(Looked(None))
    host.take(Wrote())
    host.take(Armed(terms.expires_s))
    host.take(Wrote(), 0.01)
    return host


def test_the_watchdog_is_armed_after_a_first_write_and_the_lease_is_proof_only_then() -> None:
    host = Host()

    assert kinds(host.said) == [Look]
    first = only(Write, host.take(Looked(None), 0.1)).lease
    assert (first.node, first.boot_id, first.released) == ("n1", "boot-1", True)
    assert kinds(host.take(Wrote(), 0.1)) == [Arm]
    second = only(Write, host.take(Armed(30.0))).lease
    assert not second.released
    assert second.number > first.number
    assert kinds(host.take(Wrote(), 0.1)) == [Pet, Ready]
    assert host.keeper.status == "the lease is renewed"


def test_it_is_renewed_and_petted_at_each_interval() -> None:
    host, begun = holding(), []

    for _ in range(5):
        assert kinds(host.due()) == [Write]
        begun.append(host.now_s)
        assert kinds(host.take(Wrote(), 0.5)) == [Pet]

    assert [round(b - a, 6) for a, b in pairwise(begun)] == [5.0] * 4


def test_a_longer_timeout_of_the_device_makes_the_proof_later() -> None:
    host = Host()
    host.take(Looked(None))
    host.take(Wrote())

    lease = only(Write, host.take(Armed(60.0))).lease

    assert lease.proof_s == proof_s(60.0, 5.0) == 135.0
    assert proof_s(30.0, 5.0) == 75.0


def test_a_shorter_timeout_of_the_device_changes_nothing() -> None:
    host = Host()
    host.take(Looked(None))
    host.take(Wrote())

    assert only(Write, host.take(Armed(20.0))).lease.proof_s == proof_s(30.0, 5.0)


@pytest.mark.parametrize(("took_s", "petted"), [(9.99, True), (10.01, False)])
def test_a_renewal_that_took_too_long_is_followed_by_no_pet_but_by_the_next_renewal(
    took_s: float, petted: bool
) -> None:
    host = holding()
    host.due()

    said = host.take(Wrote(), took_s)

    assert (Pet in kinds(said)) is petted
    assert (Write in kinds(said)) is not petted  # or at once, since its interval is over: by the next `Due`
    assert kinds(host.due() if petted else host.take(Wrote(), 0.1)) == [Write if petted else Pet]


def test_a_renewal_that_was_late_once_is_noted_once() -> None:
    host = holding()
    host.due()
    notes = [effect for _ in range(2) for effect in host.take(Wrote(), 12.0) if isinstance(effect, Note)]
    assert [note.event for note in notes] == ["a renewal took too long: no pet"]
    assert [note.event for note in host.take(Wrote(), 0.1) if isinstance(note, Note)] == ["the lease is renewed again"]


def test_nothing_pets_while_a_write_hangs() -> None:
    host = holding()
    host.due()

    said = host.due()

    assert kinds(said) == []
    assert only(Note, said).event == "the storage does not answer: no pet until a renewal is in time again"
    assert host.keeper.status == "the storage does not answer"
    for _ in range(3):
        assert kinds(host.take(Due(), 5.0)) == []


def test_an_error_is_tried_again_at_the_next_interval_and_noted_once() -> None:
    host = holding()
    notes = []
    for _ in range(3):
        begun_s = host.now_s
        assert kinds(host.due()) == [Write]
        assert host.now_s - begun_s > 4.0
        notes += host.take(Failed("/leases: Input/output error"), 0.1)
    (note,) = notes
    assert isinstance(note, Note)
    assert note.fields["reason"] == "/leases: Input/output error"

    host.due()
    assert kinds(host.take(Wrote(), 0.1)) == [Pet]
    assert host.keeper.status == "the lease is renewed"


def test_a_stop_releases_the_lease_before_the_watchdog() -> None:
    host = holding()

    assert only(Write, host.take(Stop(), 1.0)).lease.released
    assert kinds(host.take(Stop())) == []
    said = host.take(Wrote(), 0.1)
    assert kinds(said) == [Disarm, End]
    assert only(End, said).status == DONE
    assert host.keeper.next_due_s is None


def test_a_stop_during_a_renewal_waits_for_it() -> None:
    host = holding()
    host.due()

    assert kinds(host.take(Stop(), 1.0)) == []
    said = host.take(Wrote(), 1.0)
    assert kinds(said) == [Pet, Write]
    assert only(Write, said).lease.released
    assert kinds(host.take(Wrote(), 0.1)) == [Disarm, End]


def test_a_lease_that_cannot_be_released_leaves_the_watchdog_armed() -> None:
    host = holding()
    host.take(Stop())

    said = host.take(Failed("gone"), 0.1)
    for _ in range(4):
        assert only(Write, host.due()).lease.released
        said += host.take(Failed("gone"), 0.1)

    assert kinds(said) == []
    assert "cannot be released" in only(Note, said).event
    assert "resets this host" in only(Note, said).event
    host.due()
    assert kinds(host.take(Wrote(), 0.1)) == [Disarm, End]  # the storage came back in time


def test_a_host_that_outlives_its_lease_renews_nothing_more() -> None:
    """It was suspended, or its watchdog does not work: others may have started its VMs. It is reset at once, not when
    the rest of a timeout is over, and it is told once."""
    host = holding()
    host.due()

    said = host.take(Wrote(), 30.0 + 2 * 5.0 + 5.0 + 5.0)

    assert kinds(said) == [Fire]
    assert "has expired" in only(Note, said).event
    assert host.keeper.next_due_s is None
    assert kinds(host.take(Due(), 10.0)) == []
    assert only(End, host.take(Stop())).status == REFUSED


@pytest.mark.parametrize("released", [False, True])
def test_an_expired_lease_of_this_boot_is_not_renewed_by_the_next_process(released: bool) -> None:
    old = Lease("n1", "boot-1", int((BOOTED_S - 80.0) * 1e3), 75.0, released)

    said = Host().take(Looked(old))

    if released:
        assert only(Write, said).lease.number > old.number
    else:
        assert only(End, said).status == REFUSED
        assert "reboot" in only(Note, said).event


def test_a_lease_of_this_boot_that_has_not_expired_is_carried_on() -> None:
    """Given a process that was killed a moment ago, and a clock that would give a lower number."""
    old = Lease("n1", "boot-1", int(BOOTED_S * 1e3) + 10, 75.0)
    assert only(Write, Host().take(Looked(old))).lease.number == old.number + 1


def test_an_old_lease_of_another_boot_says_nothing() -> None:
    old = Lease("n1", "boot-0", 1 << 50, 75.0)
    assert only(Write, Host().take(Looked(old))).lease.number == int(BOOTED_S * 1e3)


def test_without_the_folder_nothing_is_armed() -> None:
    said = Host().take(Failed("no file trimtab-leases"))
    assert kinds(said) == [Look, End]
    assert only(End, said).status == REFUSED
    assert only(Note, said).fields["reason"] == "no file trimtab-leases"


def test_a_first_write_that_fails_ends_the_keeper() -> None:
    host = Host()
    host.take(Looked(None))
    assert only(End, host.take(Failed("read-only"))).status == REFUSED


@pytest.mark.parametrize("before", [[], [Looked(None)]])
def test_a_stop_before_the_watchdog_is_armed_ends_at_once(before: list[Event]) -> None:
    host = Host()
    for event in before:
        host.take(event)
    assert only(End, host.take(Stop())).status == DONE


def test_a_folder_that_does_not_answer_is_noted() -> None:
    host = Host()
    assert "does not answer" in only(Note, host.due()).event
