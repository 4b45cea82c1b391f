"""The agent's rules on orders, results, reports and guest events, each on its effects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.journal import Accepted, AgentStarted, EventsForgotten, Finished, GuestNoted, Reported, TermSeen
from shared.base.errors import ContractViolation
from shared.ports.effects import (
    Abort,
    Acknowledge,
    Computed,
    DeadLetter,
    Forget,
    Observe,
    Operate,
    Publish,
    Reconnected,
    StartTimer,
    StopTimer,
    TimerFired,
    WriteJournal,
)
from shared.protocol import topology
from shared.protocol.codec import decode, encode
from shared.protocol.messages import EventsSeen, GuestEvent, Hello, Order, Probe, Report, Result, UnderWay
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.migration_terms import MigrationFigures, MigrationMethod, MigrationTerms
from shared.values.nodes import Node
from shared.values.vms import VmState
from tests.support.agent_harness import NODE, SETTINGS, Rig, action, guest_event, messages, only, report, result, vm

# --- orders -----------------------------------------------------------------------------------------------------


def test_an_order_is_journaled_then_acknowledged_then_begun() -> None:
    rig, start = Rig(TermSeen(1)), action()

    assert rig.order(start) == [
        WriteJournal(Accepted(start)),
        Acknowledge(1),
        Operate(start),
        StartTimer("limit:a1", 700.0),
    ]


def test_an_outcome_is_journaled_then_published() -> None:
    rig, start = Rig(TermSeen(1)), action()
    rig.order(start)
    rig.now_s = 103.0

    effects = rig.operated(start, status=vm(), final=None, detail="fine")

    said = result(effects)
    assert (said.node, said.boot_id, said.clock_s, said.term) == ("n1", "boot-1", 103.0, 1)
    assert (said.action, said.kind, said.vm, said.outcome) == ("a1", ActionKind.START, "j#0", Outcome.OK)
    assert (said.status, said.final, said.detail) == (vm(), None, "fine")
    assert effects == [
        WriteJournal(Finished(said, 160.0 + SETTINGS.outcome_keep_s)),
        Publish(topology.RESULTS, topology.CONTROLLER_QUEUE, said, 1),
        StartTimer("publish", 108.0),
        StopTimer("limit:a1"),
    ]


def test_a_driver_that_says_too_much_is_cut_short() -> None:
    rig, start = Rig(TermSeen(1)), action()
    rig.order(start)
    said = result(rig.operated(start, detail="no such " + 5_000 * "x"))
    assert said.detail.startswith("no such x")
    assert decode(encode(said)) == said


def test_the_last_counters_of_a_vm_that_left_go_with_the_outcome() -> None:
    rig, suspend = Rig(), action(kind=ActionKind.SUSPEND, expects=1)
    rig.order(suspend)

    said = result(rig.operated(suspend, status=vm(state=VmState.SUSPENDED), final=vm(cpu_time_s=7.0)))

    assert said.final == vm(cpu_time_s=7.0)


def test_an_order_in_progress_that_comes_again_is_only_acknowledged() -> None:
    rig = Rig()
    rig.order(action())

    assert rig.order(action()) == [Acknowledge(2)]


def test_a_finished_order_that_comes_again_is_answered_as_before() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    first = rig.operated(start, status=vm())
    rig.confirm(first)

    effects = rig.order(start)

    assert result(effects) == result(first), "what it says of the VM is no newer for being said again"
    assert only(effects, Acknowledge) == [Acknowledge(2)]
    assert not only(effects, Operate)
    assert only(effects, Publish)[0].publish_id == 2


@pytest.mark.parametrize(
    ("order", "outcome"),
    [
        (action(2, vm="k#0", term=4), Outcome.OLDER_TERM),
        (action(2, vm="k#0", term=5, boot_id="boot-0"), Outcome.OTHER_BOOT),
        (action(2, vm="k#0", term=5, expires_at_s=99.9), Outcome.EXPIRED),
        (action(2, vm="k#0", term=5, expires_at_s=100.1 + SETTINGS.outcome_keep_s), Outcome.REFUSED),
        (action(2, vm="j#0", term=5), Outcome.BUSY),
        (action(2, vm="j#0", term=4, boot_id="boot-0", expires_at_s=1.0), Outcome.OLDER_TERM),
        (action(2, vm="j#0", term=5, boot_id="boot-0", expires_at_s=1.0), Outcome.OTHER_BOOT),
        (action(2, vm="j#0", term=5, expires_at_s=1.0), Outcome.EXPIRED),
    ],
)
def test_an_order_that_must_not_be_begun_is_journaled_and_answered(order: Action, outcome: Outcome) -> None:
    rig = Rig()
    rig.order(action(1, vm="j#0", term=5))

    effects = rig.order(order)

    said = result(effects)
    assert (said.action, said.outcome, said.status) == ("a2", outcome, None)
    assert said.seq == 0, "the agent has not looked: the empty status must not be read as 'not here'"
    assert said.detail
    assert [type(effect) for effect in effects[:3]] == [WriteJournal, Acknowledge, Publish]
    assert only(effects, WriteJournal)[0].record.result == said
    assert not only(effects, Operate)
    assert result(rig.order(order)) == said, "and answered the same when it comes again"


@pytest.mark.parametrize("expires_at_s", [100.0, 100.0 + SETTINGS.outcome_keep_s])
def test_an_order_is_begun_up_to_its_last_moment(expires_at_s: float) -> None:
    assert only(Rig().order(action(expires_at_s=expires_at_s)), Operate)


def test_the_same_vm_is_free_again_once_its_action_is_finished() -> None:
    rig, start, stop = Rig(), action(), action(2, ActionKind.STOP, expects=1)
    rig.order(start)
    rig.operated(start, status=vm())

    assert only(rig.order(stop), Operate) == [Operate(stop)]


def test_a_newer_term_is_journaled_before_anything_else() -> None:
    rig = Rig()

    effects = rig.order(action(term=7))

    assert effects[0] == WriteJournal(TermSeen(7))
    assert only(rig.order(action(2, vm="k#0", term=7)), WriteJournal)[0].record == Accepted(action(2, vm="k#0", term=7))


def test_a_term_that_cannot_have_come_about_is_not_kept() -> None:
    """One that is kept for good and leaves no newer ones would silence the node for ever."""
    rig = Rig()

    for message in (Hello((1 << 63) - 1), EventsSeen(1 << 62, 1), Order(action(term=(1 << 48) + 1))):
        (effect,) = rig.send(message)
        assert isinstance(effect, DeadLetter)
        assert "cannot have come about" in effect.reason

    assert rig.order(action(term=1 << 32))[0] == WriteJournal(TermSeen(1 << 32))
    (effect,) = rig.send(Hello((1 << 33) + 1))
    assert isinstance(effect, DeadLetter)
    assert rig.order(action(2, term=1 << 33))[0] == WriteJournal(TermSeen(1 << 33))


def test_a_newer_term_is_kept_even_when_its_order_is_refused() -> None:
    rig = Rig()
    rig.order(action(term=7, boot_id="boot-0"))

    assert result(rig.order(action(2, term=6))).outcome is Outcome.OLDER_TERM


@pytest.mark.parametrize("sender", ["agent.n2", "operator.x", "", "xcontroller.a"])
@pytest.mark.parametrize("message", [Order(action(term=9)), Hello(9), EventsSeen(9, 1)])
def test_only_controllers_are_listened_to(sender: str, message: Order | Hello | EventsSeen) -> None:
    rig = Rig()

    (effect,) = rig.send(message, sender)

    assert isinstance(effect, DeadLetter)
    assert effect.delivery == 1
    assert "may not" in effect.reason
    assert result(rig.order(action(boot_id="boot-0"))).term == 1, "nor are their terms"


def test_messages_for_others_are_dead_letters() -> None:
    rig = Rig()

    assert rig.send(Probe("a", 1)) == [DeadLetter(1, "a probe is not for agents")]
    assert rig.order(action(node="n2")) == [DeadLetter(2, "the order is for node n2, this is n1")]


def test_inputs_of_controllers_are_refused() -> None:
    with pytest.raises(ContractViolation, match="Computed"):
        Rig().handle(Computed(1, None))


def test_an_answer_to_nothing_changes_nothing() -> None:
    rig, start = Rig(), action()

    assert rig.operated(start) == []
    rig.order(start)
    rig.operated(start, status=vm())
    assert rig.operated(start, Outcome.FAILED) == []


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.NOT_CONVERGING])
def test_what_a_migration_has_taken_is_sent_on_and_kept(outcome: Outcome) -> None:
    rig = Rig()
    terms = MigrationTerms(MigrationMethod.AUTO_CONVERGE, 2, bandwidth_mib_per_s=50, limit_s=60.0)
    move = replace(action(kind=ActionKind.MIGRATE, expects=1, to_node="n2"), migration=terms)
    figures = MigrationFigures(MigrationMethod.AUTO_CONVERGE, 12.5, downtime_s=0.25, throttle_frac=0.4)
    assert only(rig.order(move), Operate)[0].action.migration == terms

    effects = rig.operated(move, outcome, migrated=figures)

    said = result(effects)
    assert (said.outcome, said.migrated) == (outcome, figures)
    assert decode(encode(said)) == said
    (kept,) = [each for each in rig.records if isinstance(each, Finished)]
    assert kept.result.migrated == figures


def test_an_operation_is_aborted_at_its_limit() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    rig.now_s = 700.0

    assert rig.handle(TimerFired("limit:a1")) == [Abort("j#0"), StartTimer("limit:a1", 1300.0)]
    assert result(rig.operated(start, Outcome.TIMED_OUT)).outcome is Outcome.TIMED_OUT
    assert rig.handle(TimerFired("limit:a1")) == []


def test_an_aborted_operation_that_is_never_answered_is_ended_by_the_next_reading() -> None:
    rig, start = Rig(), action()
    rig.observed()
    rig.order(start)
    rig.now_s = 700.0
    rig.handle(TimerFired("limit:a1"))
    rig.handle(TimerFired("report"))

    said = result(rig.observed())

    assert (said.outcome, said.status) == (Outcome.TIMED_OUT, None)


def test_a_reading_taken_before_the_limit_does_not_end_the_operation() -> None:
    rig = Rig()
    rig.order(action())
    rig.handle(TimerFired("limit:a1"))

    assert report(rig.observed()).in_progress == (UnderWay("a1", ActionKind.START, "j#0"),)


def test_outcomes_are_forgotten_long_after_their_expiry_and_never_before_they_are_told() -> None:
    rig = Rig()
    told, untold = action(1), action(2, vm="k#0")
    for order in (told, untold):
        rig.order(order)
    rig.confirm(rig.operated(told, status=vm()))
    rig.operated(untold, status=vm("k#0"))
    rig.now_s = 160.0 + SETTINGS.outcome_keep_s + 1.0
    rig.confirm(rig.order(action(3, vm="l#0", boot_id="boot-0", expires_at_s=rig.now_s)))

    assert result(rig.order(told)).outcome is Outcome.EXPIRED
    assert result(rig.order(untold)).outcome is Outcome.OK


# --- publishing -------------------------------------------------------------------------------------------------


def finish(rig: Rig, number: int) -> Result:
    order = action(number, vm=f"v{number}#0")
    rig.order(order)
    return result(rig.operated(order, status=vm(order.vm)))


def test_a_confirmed_result_is_journaled_as_reported_and_not_sent_again() -> None:
    rig, start = Rig(), action()
    rig.order(start)

    assert rig.confirm(rig.operated(start, status=vm())) == [WriteJournal(Reported("a1"))]
    assert rig.handle(Reconnected()) == []
    assert rig.handle(TimerFired("publish")) == []


def test_what_is_not_confirmed_in_time_is_sent_again_in_order() -> None:
    rig = Rig()
    first, second = finish(rig, 1), finish(rig, 2)
    rig.now_s = 103.0
    third = finish(rig, 3)
    rig.now_s = 105.0

    effects = rig.handle(TimerFired("publish"))

    assert messages(effects, Result) == [first, second]
    assert [p.publish_id for p in only(effects, Publish)] == [4, 5]
    assert only(effects, StartTimer) == [StartTimer("publish", 108.0)], "in time for the third"
    rig.now_s = 108.0
    assert messages(rig.handle(TimerFired("publish")), Result) == [third]


def test_what_the_broker_refused_is_sent_again_at_the_retry() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    said = rig.operated(start, status=vm())

    assert rig.confirm(said, ok=False) == []
    rig.now_s = 105.0
    again = rig.handle(TimerFired("publish"))
    assert result(again) == result(said)
    assert rig.confirm(said) == [], "a late answer to the first publishing is not one to the second"
    assert rig.confirm(again) == [WriteJournal(Reported("a1"))]


def test_everything_unconfirmed_is_sent_again_on_a_new_connection_in_order() -> None:
    rig = Rig()
    first = finish(rig, 1)
    event = guest_event(rig.guest(GuestChange.ENDED, vm("v1#0", VmState.ENDED)))
    second = finish(rig, 2)

    effects = rig.handle(Reconnected())

    assert [p.message for p in only(effects, Publish)] == [first, event, second]


# --- reports ----------------------------------------------------------------------------------------------------


def test_at_its_start_it_looks_and_then_reports_with_its_inventory() -> None:
    rig = Rig()
    start = rig.restart()

    assert start == [WriteJournal(AgentStarted(2, "boot-1")), Observe(), StartTimer("report", 105.0)]
    effects = rig.observed(vm("other", managed=False))
    assert only(effects, Publish)[0].publish_id is None
    assert (effects[-1].exchange, effects[-1].routing_key) == ("trimtab.reports", "report.n1")  # type: ignore[union-attr]
    said = report(effects)
    assert (said.node, said.boot_id, said.clock_s, said.term) == ("n1", "boot-1", 100.0, 0)
    assert (said.vms, said.inventory) == ((vm("other", managed=False),), NODE)
    assert said.sample.cpu_frac == 0.5


def test_it_reports_every_period_and_its_inventory_only_when_that_changed() -> None:
    rig = Rig()
    rig.observed()
    rig.now_s = 105.0

    assert rig.handle(TimerFired("report")) == [Observe(), StartTimer("report", 110.0)]
    assert report(rig.observed()).inventory is None
    larger = Node("n1", 8, 2000.0, memory_mib=16_000)
    rig.handle(TimerFired("report"))
    assert report(rig.observed(inventory=larger)).inventory == larger
    rig.handle(TimerFired("report"))
    assert report(rig.observed(inventory=larger)).inventory is None


def test_a_hello_is_answered_by_a_full_report_that_echoes_its_term() -> None:
    rig = Rig()
    rig.observed()

    assert rig.send(Hello(3)) == [WriteJournal(TermSeen(3)), Acknowledge(1), Observe()]
    said = report(rig.observed())
    assert (said.term, said.inventory) == (3, NODE)
    assert rig.send(Hello(3)) == [Acknowledge(2), Observe()]


def test_a_hello_of_an_older_term_is_told_the_newer_one() -> None:
    rig = Rig()
    rig.observed()
    rig.send(Hello(3))
    rig.observed()

    assert rig.send(Hello(2)) == [Acknowledge(2), Observe()]
    said = report(rig.observed())
    assert (said.term, said.inventory) == (3, None)


def test_a_reading_asked_for_before_a_hello_does_not_echo_its_term() -> None:
    rig = Rig()
    rig.send(Hello(3))

    assert report(rig.observed()).term == 0
    assert report(rig.observed()).term == 3


def test_reports_list_what_is_in_progress() -> None:
    rig = Rig()
    migrate = action(1, ActionKind.MIGRATE, "m#0", expects=1, to_node="n2")
    rig.order(migrate)

    assert report(rig.observed(vm("m#0"))).in_progress == (UnderWay("a1", ActionKind.MIGRATE, "m#0", "n2"),)
    rig.operated(migrate)
    rig.handle(TimerFired("report"))
    assert report(rig.observed()).in_progress == ()


def test_a_vm_that_came_after_the_reading_was_taken_is_still_said_to_be_coming() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    came = result(rig.operated(start, status=vm()))

    said = report(rig.observed())

    assert said.seq < came.seq
    assert said.in_progress == (UnderWay("a1", ActionKind.START, "j#0"),), "or its absence would pass for proof"
    rig.handle(TimerFired("report"))
    assert report(rig.observed(vm())).in_progress == ()


def test_sequence_numbers_grow_over_everything_and_over_restarts() -> None:
    rig = Rig()
    seqs = [report(rig.observed()).seq]
    seqs.append(finish(rig, 1).seq)
    seqs.append(guest_event(rig.guest(GuestChange.ENDED, vm("v1#0", VmState.ENDED))).seq)
    rig.restart()
    seqs.append(report(rig.observed()).seq)
    rig.handle(TimerFired("report"))
    seqs.append(report(rig.observed()).seq)

    assert seqs == sorted(set(seqs))
    assert [seq >> 32 for seq in seqs] == [1, 1, 1, 2, 2]


def test_an_unasked_reading_is_not_reported() -> None:
    rig = Rig()
    rig.observed()

    assert rig.observed() == []


# --- guest events -----------------------------------------------------------------------------------------------


def test_an_end_is_journaled_then_published_then_the_domain_is_forgotten() -> None:
    rig, ended = Rig(), vm(state=VmState.ENDED, cpu_time_s=9.0)

    effects = rig.guest(GuestChange.ENDED, ended, "exit status 0")

    event = guest_event(effects)
    assert event.detail == "exit status 0"
    assert (event.event, event.change, event.status, event.clock_s) == (1, GuestChange.ENDED, ended, 100.0)
    assert effects == [
        WriteJournal(GuestNoted(event)),
        Publish(topology.RESULTS, topology.CONTROLLER_QUEUE, event, 1),
        StartTimer("publish", 105.0),
        Forget("j#0"),
    ]
    assert not messages(effects, Report)


@pytest.mark.parametrize(
    ("change", "state", "forgotten"),
    [
        (GuestChange.ENDED, VmState.ENDED, True),
        (GuestChange.VANISHED, VmState.CRASHED, True),
        (GuestChange.VANISHED, VmState.RUNNING, False),
        (GuestChange.ARRIVED, VmState.RUNNING, False),
    ],
)
def test_only_a_domain_that_is_over_is_forgotten(change: GuestChange, state: VmState, forgotten: bool) -> None:
    effects = Rig().guest(change, vm(state=state))

    assert only(effects, Forget) == ([Forget("j#0")] if forgotten else [])
    assert guest_event(effects).change is change


def test_events_are_numbered_without_gaps_and_reported_until_seen() -> None:
    rig = Rig()
    rig.observed()
    events = [guest_event(rig.guest(GuestChange.ENDED, vm(f"v{i}#0", VmState.ENDED))) for i in range(3)]
    assert [event.event for event in events] == [1, 2, 3]
    rig.handle(TimerFired("report"))
    assert report(rig.observed()).events == tuple(events)

    assert rig.send(EventsSeen(1, 2)) == [
        WriteJournal(TermSeen(1)),
        WriteJournal(EventsForgotten(2)),
        Acknowledge(1),
    ]
    assert rig.send(EventsSeen(1, 2)) == [Acknowledge(2)]
    rig.handle(TimerFired("report"))
    assert report(rig.observed()).events == (events[2],)
    assert messages(rig.handle(Reconnected()), GuestEvent) == [events[2]], "what was seen need not be sent any more"


@pytest.mark.parametrize("message", [Hello(1, 1), Order(action(), 1), EventsSeen(1, 1)])
def test_every_message_of_a_controller_acknowledges_events(message: Hello | Order | EventsSeen) -> None:
    rig = Rig()
    rig.guest(GuestChange.ENDED, vm("k#0", VmState.ENDED))
    rig.send(message)

    assert report(rig.observed()).events == ()


def test_an_agent_that_lost_its_journal_goes_on_after_the_events_that_the_controller_knows() -> None:
    rig = Rig()
    rig.guest(GuestChange.ENDED, vm("k#0", VmState.ENDED))

    renumbered = guest_event(rig.send(Hello(1, 40)))

    assert (renumbered.event, renumbered.status.vm) == (41, "k#0")
    assert [event.event for event in report(rig.observed()).events] == [41]
    assert guest_event(rig.guest(GuestChange.ENDED, vm("l#0", VmState.ENDED))).event == 42


def test_one_end_is_one_event() -> None:
    rig = Rig()
    rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED))

    assert rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED)) == [Forget("j#0")]
    assert guest_event(rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED, generation=2))).event == 2


def test_a_life_that_came_back_may_end_again() -> None:
    rig = Rig()
    rig.guest(GuestChange.VANISHED, vm())
    rig.guest(GuestChange.ARRIVED, vm())

    assert guest_event(rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED))).event == 3


def test_guests_that_are_not_ours_are_left_alone() -> None:
    rig = Rig()

    assert rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED, managed=False)) == []
    (said,) = rig.observed(vm(state=VmState.ENDED, managed=False))
    assert isinstance(said, Publish)
