"""An agent that is asked to put its host to sleep: checked like an order, looked at afresh, answered, and done once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.journal import SLEPT_KEPT_MAX, JournalState, SleepAgreed
from shared.ports.effects import (
    Acknowledge,
    DeadLetter,
    Effect,
    Observe,
    Operate,
    Publish,
    SleepEnded,
    SleepHost,
    TimerFired,
    WriteJournal,
)
from shared.protocol import topology
from shared.protocol.messages import GoToSleep, Hello, Report, SleepAnswer
from shared.values.actions import GuestChange, Outcome
from shared.values.nodes import SleepMode
from shared.values.vms import VmState
from tests.support.agent_harness import Rig, action, messages, only, result, vm

ASKED = GoToSleep("s1", "n1", 1, "boot-1", 160.0, SleepMode.SUSPEND)


def rig_at_rest() -> Rig:
    """An agent that has answered its first reading."""
    rig = Rig()
    rig.observed()
    return rig


def answer(effects: list[Effect]) -> SleepAnswer:
    """The one answer among the effects."""
    (found,) = messages(effects, SleepAnswer)
    return found


def agreed_rig() -> tuple[Rig, list[Effect]]:
    """An agent that has agreed to sleep, and the effects of that."""
    rig = rig_at_rest()
    rig.send(ASKED)
    return rig, rig.observed()


def test_an_empty_host_goes_to_sleep_once_the_broker_has_the_answer() -> None:
    rig = rig_at_rest()

    asked = rig.send(ASKED)
    assert [type(effect) for effect in asked] == [WriteJournal, Acknowledge, Observe]  # the term is new
    seen = rig.observed()
    assert answer(seen).ok
    assert (answer(seen).request, answer(seen).node) == ("s1", "n1")
    assert not only(seen, SleepHost)

    assert only(rig.confirm(seen), SleepHost) == [SleepHost(SleepMode.SUSPEND)]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (replace(ASKED, boot_id="boot-0"), "boot"),
        (replace(ASKED, expires_at_s=99.0), "expired"),
        (replace(ASKED, expires_at_s=100_000.0), "expires more than"),
    ],
)
def test_a_request_that_must_not_be_followed_is_answered_without_a_look(request_: GoToSleep, why: str) -> None:
    rig = rig_at_rest()

    effects = rig.send(request_)

    assert not answer(effects).ok
    assert why in answer(effects).detail
    assert not only(effects, Observe)
    assert not only(rig.confirm(effects), SleepHost)


def test_a_request_of_an_older_term_is_refused() -> None:
    rig = rig_at_rest()
    rig.send(Hello(5))

    assert "term 5" in answer(rig.send(ASKED)).detail


def test_only_a_controller_may_ask_and_only_for_this_node() -> None:
    rig = rig_at_rest()

    for effects in (
        rig.send(ASKED, topology.OPERATOR_USER_PREFIX + "eve"),
        rig.send(ASKED, topology.agent_user("n1")),
        rig.send(replace(ASKED, node="n2")),
    ):
        assert [type(effect) for effect in effects] == [DeadLetter]


@pytest.mark.parametrize(
    "there",
    [
        vm(),
        vm(managed=False),
        vm(state=VmState.PAUSED),
        vm(state=VmState.INCOMING),
        vm(state=VmState.SUSPENDED, busy="resume"),
    ],
)
def test_a_host_with_a_vm_on_it_stays_awake(there: object) -> None:
    rig = rig_at_rest()
    rig.send(ASKED)

    effects = rig.observed(there)  # type: ignore[arg-type]

    assert not answer(effects).ok
    assert "j#0" in answer(effects).detail
    assert not only(rig.confirm(effects), SleepHost)


@pytest.mark.parametrize("left", [vm(state=VmState.SUSPENDED), vm(managed=False, state=VmState.ENDED)])
def test_images_and_what_has_ended_do_not_keep_a_host_awake(left: object) -> None:
    rig = rig_at_rest()
    rig.send(ASKED)

    assert answer(rig.observed(left)).ok  # type: ignore[arg-type]


def test_a_reading_from_before_the_request_does_not_count() -> None:
    rig = Rig()  # its first reading is still open
    rig.send(ASKED)

    assert not messages(rig.observed(), SleepAnswer)
    assert not answer(rig.observed(vm())).ok


def test_an_operation_in_progress_or_just_ended_keeps_the_host_awake() -> None:
    rig = rig_at_rest()
    rig.order(action())
    rig.send(ASKED)
    assert "operation" in answer(rig.observed()).detail

    rig = rig_at_rest()
    start = action()
    rig.order(start)
    rig.send(ASKED)
    rig.operated(start, Outcome.FAILED)
    assert "operation" in answer(rig.observed()).detail


def test_news_that_nobody_has_taken_keeps_the_host_awake() -> None:
    rig = rig_at_rest()
    rig.confirm(rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED)))
    rig.send(ASKED)

    assert "known" in answer(rig.observed()).detail


def test_no_order_is_begun_once_the_host_is_to_sleep() -> None:
    rig, effects = agreed_rig()

    for _ in range(2):
        order = rig.order(action(number=rig.delivery))
        assert result(order).outcome is Outcome.REFUSED
        assert not only(order, Operate)
        rig.confirm(effects)


def test_an_answer_that_the_broker_takes_too_late_changes_to_no() -> None:
    rig, effects = agreed_rig()
    rig.now_s = 161.0

    late = rig.confirm(effects)

    assert not only(late, SleepHost)
    assert not answer(late).ok
    assert only(rig.order(action(expires_at_s=200.0)), Operate)


def test_the_same_request_again_is_not_done_twice() -> None:
    rig, effects = agreed_rig()
    assert not messages(rig.send(ASKED), SleepAnswer)  # while it is in progress

    rig.confirm(effects)
    rig.handle(SleepEnded(True))
    assert "before" in answer(rig.send(ASKED)).detail

    rig.restart()
    rig.observed()
    assert "before" in answer(rig.send(ASKED)).detail
    assert JournalState(JournalState(rig.records).compact()).slept == {"s1": None}


def test_nor_is_an_earlier_request_that_comes_again_after_a_later_one() -> None:
    rig, effects = agreed_rig()
    rig.confirm(effects)
    rig.handle(SleepEnded(True))
    rig.observed()
    rig.send(replace(ASKED, request="s2"))
    rig.confirm(rig.observed())
    rig.handle(SleepEnded(True))

    rig.restart()
    rig.observed()

    assert "before" in answer(rig.send(ASKED)).detail
    assert list(JournalState(JournalState(rig.records).compact()).slept) == ["s1", "s2"]


def test_only_so_many_requests_are_remembered() -> None:
    state = JournalState(SleepAgreed(f"s{number}") for number in (0, *range(1000), 999))

    assert list(state.slept) == [f"s{number}" for number in range(1000 - SLEPT_KEPT_MAX, 1000)]


def test_a_process_that_died_before_the_host_slept_stays_awake_and_can_be_asked_again() -> None:
    rig, _ = agreed_rig()
    assert [record.request for record in rig.records if isinstance(record, SleepAgreed)] == ["s1"]

    rig.restart()
    rig.observed()

    rig.send(replace(ASKED, request="s2"))
    assert only(rig.confirm(rig.observed()), SleepHost)


def test_a_later_request_takes_the_place_of_an_earlier_one() -> None:
    rig = rig_at_rest()
    rig.send(ASKED)
    rig.send(replace(ASKED, request="s2", term=2, mode=SleepMode.OFF))
    assert not messages(rig.observed(), SleepAnswer)  # the earlier request's reading
    effects = rig.observed()
    assert (answer(effects).request, answer(effects).ok) == ("s2", True)

    again = rig.send(replace(ASKED, request="s3", term=3, mode=SleepMode.OFF))
    assert (answer(again).request, answer(again).ok) == ("s3", True)
    assert not only(rig.confirm(effects), SleepHost)
    assert only(rig.confirm(again), SleepHost) == [SleepHost(SleepMode.OFF)]


def test_a_host_that_does_not_go_to_sleep_says_so_and_takes_orders_again() -> None:
    rig, effects = agreed_rig()
    rig.confirm(effects)

    failed = rig.handle(SleepEnded(False, "an inhibitor"))

    assert (answer(failed).request, answer(failed).ok, answer(failed).detail) == ("s1", False, "an inhibitor")
    assert only(rig.order(action()), Operate)


def test_a_host_that_is_awake_again_reports_at_once() -> None:
    rig, effects = agreed_rig()
    rig.confirm(effects)
    rig.now_s = 50_000.0

    woken = rig.handle(SleepEnded(True))

    assert only(woken, Observe)
    assert not messages(woken, SleepAnswer)
    (report,) = messages(rig.observed(), Report)
    assert report.inventory is not None
    assert only(rig.order(action(expires_at_s=50_060.0)), Operate)


def test_an_unconfirmed_answer_is_sent_again() -> None:
    rig, effects = agreed_rig()
    rig.now_s += 10.0

    again = rig.handle(TimerFired("publish"))

    assert answer(again) == answer(effects)
    assert not only(rig.confirm(effects), SleepHost)  # of the publishing before
    assert only(rig.confirm(again), SleepHost)
    assert only(again, Publish)[0].exchange == topology.RESULTS
