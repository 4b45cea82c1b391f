"""What an agent makes of its journal and of what it finds when it begins again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.agent import Agent
from agents.core.journal import (
    OVER_KEPT_MAX,
    RECORDS,
    AgentStarted,
    GuestNoted,
    JournalState,
    SetUpBegun,
    SetUpEnded,
    SleepAgreed,
    VmSeen,
)
from agents.core.recovery import judge
from agents.core.settings import AgentSettings
from shared.base.errors import InvalidValue
from shared.ports.effects import (
    Abort,
    Acknowledge,
    Forget,
    GuestChanged,
    Observe,
    Operate,
    Publish,
    Received,
    StartTimer,
    TimerFired,
    WriteJournal,
)
from shared.protocol.messages import EventsSeen, GuestEvent, Hello, Order, Result, SetUpAnswer, SetUpNode
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.host_setup import Setup
from shared.values.nodes import SetupStep
from shared.values.vms import VmState, VmStatus
from tests.support.agent_harness import LEADER, Rig, action, guest_event, messages, only, report, result, vm

# --- unfinished actions -----------------------------------------------------------------------------------------

Case = tuple[Action, VmStatus | None, Outcome]
K = ActionKind
HOLDS: list[Case] = [
    (action(kind=K.START), vm(), Outcome.OK),
    (action(kind=K.START), vm(state=VmState.PAUSED), Outcome.OK),
    (action(kind=K.START), None, Outcome.INTERRUPTED),
    (action(kind=K.START, generation=2), vm(), Outcome.INTERRUPTED),
    (action(kind=K.START), vm(state=VmState.INCOMING), Outcome.INTERRUPTED),
    (action(kind=K.RESUME, expects=1), vm(generation=2), Outcome.OK),
    (action(kind=K.RESUME, expects=1), vm(state=VmState.SUSPENDED), Outcome.INTERRUPTED),
    (action(kind=K.STOP, expects=1), None, Outcome.OK),
    (action(kind=K.STOP, expects=1), vm(), Outcome.INTERRUPTED),
    (action(kind=K.SUSPEND, expects=1), vm(state=VmState.SUSPENDED), Outcome.OK),
    (action(kind=K.SUSPEND, expects=2), vm(state=VmState.SUSPENDED), Outcome.INTERRUPTED),
    (action(kind=K.SUSPEND, expects=1), vm(), Outcome.INTERRUPTED),
    (action(kind=K.SUSPEND, expects=1), None, Outcome.INTERRUPTED),
    (action(kind=K.MIGRATE, expects=1, to_node="n2"), None, Outcome.OK),
    (action(kind=K.MIGRATE, expects=1, to_node="n2"), vm(), Outcome.INTERRUPTED),
    (action(kind=K.PAUSE, expects=1), vm(state=VmState.PAUSED), Outcome.OK),
    (action(kind=K.PAUSE, expects=1), vm(), Outcome.INTERRUPTED),
    (action(kind=K.PAUSE, expects=1), None, Outcome.INTERRUPTED),
    (action(kind=K.UNPAUSE, expects=1), vm(), Outcome.OK),
    (action(kind=K.UNPAUSE, expects=1), vm(state=VmState.PAUSED), Outcome.INTERRUPTED),
    (action(kind=K.UNPAUSE, expects=1), vm(generation=2), Outcome.INTERRUPTED),
    (action(kind=K.SET_CPU, expects=1, cpu_mhz=500.0), vm(cpu_mhz=500.0), Outcome.OK),
    (action(kind=K.SET_CPU, expects=1, cpu_mhz=500.0), vm(cpu_mhz=400.0), Outcome.INTERRUPTED),
    (action(kind=K.DISCARD_IMAGE, expects=1), None, Outcome.OK),
    (action(kind=K.DISCARD_IMAGE, expects=1), vm(state=VmState.SUSPENDED), Outcome.INTERRUPTED),
    (action(kind=K.DISCARD_IMAGE, expects=1), vm(generation=2), Outcome.INTERRUPTED),
]


@pytest.mark.parametrize(("order", "found", "outcome"), HOLDS)
def test_an_unfinished_action_ends_by_what_is_found(order: Action, found: VmStatus | None, outcome: Outcome) -> None:
    rig = Rig()
    rig.order(order)
    start = rig.restart()
    assert only(start, StartTimer)[-1] == StartTimer("limit:a1", 700.0)

    effects = rig.observed(*([found] if found else []))

    said = result(effects)
    assert (said.action, said.outcome, said.status) == ("a1", outcome, found)
    assert not only(effects, Operate)
    assert only(effects, WriteJournal)[0].record.result == said, "first journaled, then told"
    assert report(effects).in_progress == ()
    assert not only(rig.order(order), Operate), "nor is it begun when it comes again"


def test_an_operation_still_in_progress_is_looked_at_again_at_each_report() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    rig.restart()

    said = report(rig.observed(vm(state=VmState.INCOMING, busy="start")))
    assert [doing.id for doing in said.in_progress] == ["a1"]
    assert result(rig.order(action(2))).outcome is Outcome.BUSY
    rig.handle(TimerFired("report"))
    assert not messages(rig.observed(vm(state=VmState.INCOMING, busy="start")), Result)
    rig.handle(TimerFired("report"))
    assert result(rig.observed(vm())).outcome is Outcome.OK


def test_an_inherited_operation_may_still_be_answered_by_the_hypervisor() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    rig.restart()

    assert result(rig.operated(start, Outcome.FAILED)).outcome is Outcome.FAILED
    assert not messages(rig.observed(), Result), "and is answered once"


def test_an_inherited_operation_has_a_limit_too() -> None:
    rig = Rig()
    rig.order(action())
    rig.restart()

    assert Abort("j#0") in rig.handle(TimerFired("limit:a1"))


def test_on_a_new_boot_a_vm_that_is_gone_has_not_moved() -> None:
    rig, migrate = Rig(), action(kind=ActionKind.MIGRATE, expects=1, to_node="n2")
    rig.order(migrate)
    rig.restart(boot_id="boot-2")

    said = result(rig.observed())

    assert (said.outcome, said.boot_id, said.status) == (Outcome.INTERRUPTED, "boot-2", None)


def test_on_a_new_boot_what_holds_is_ok() -> None:
    rig, suspend = Rig(), action(kind=ActionKind.SUSPEND, expects=1)
    rig.order(suspend)
    rig.restart(boot_id="boot-2")

    assert result(rig.observed(vm(state=VmState.SUSPENDED))).outcome is Outcome.OK


def test_an_image_does_not_hide_a_live_vm_of_the_same_name() -> None:
    outcome, _ = judge(action(kind=ActionKind.SUSPEND, expects=1), vm(), vm(state=VmState.SUSPENDED), True)

    assert outcome is Outcome.INTERRUPTED


# --- what was not told ------------------------------------------------------------------------------------------


def test_results_not_confirmed_are_published_again_with_their_old_seq() -> None:
    rig, start = Rig(), action()
    rig.order(start)
    said = result(rig.operated(start, status=vm()))

    effects = rig.restart()

    assert result(effects) == said
    assert [type(effect) for effect in effects] == [WriteJournal, Publish, StartTimer, Observe, StartTimer]
    rig.confirm(effects)
    assert not messages(rig.restart(), Result)


def test_events_not_acknowledged_are_published_again_and_still_reported() -> None:
    rig = Rig()
    ended = rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED))
    rig.confirm(ended)

    assert guest_event(rig.restart()) == guest_event(ended), "the broker has it, but no controller has said so"
    assert report(rig.observed()).events == (guest_event(ended),)
    rig.send(EventsSeen(1, 1))
    assert not messages(rig.restart(), GuestEvent)
    assert guest_event(rig.guest(GuestChange.ENDED, vm("k#0", VmState.ENDED))).event == 2


def test_a_term_once_seen_is_kept() -> None:
    rig = Rig()
    rig.send(Hello(6))
    rig.restart()

    assert result(rig.order(action(term=5))).outcome is Outcome.OLDER_TERM


# --- what happened meanwhile ------------------------------------------------------------------------------------


def run_one(rig: Rig, name: str = "j#0") -> None:
    order = action(len(rig.records) + 1, vm=name)
    rig.order(order)
    rig.confirm(rig.operated(order, status=vm(name)))


def test_a_vm_that_is_missing_has_vanished() -> None:
    rig = Rig()
    run_one(rig)
    rig.restart()

    effects = rig.observed()

    event = guest_event(effects)
    assert (event.change, event.status) == (GuestChange.VANISHED, vm())
    assert [type(effect) for effect in effects] == [WriteJournal, Publish, StartTimer, Publish]
    assert report(effects).events == (event,)
    rig.handle(TimerFired("report"))
    assert not messages(rig.observed(), GuestEvent), "once"
    assert rig.guest(GuestChange.VANISHED, vm()) == [], "also when the hypervisor says so later"


def test_a_vm_that_vanished_is_described_by_its_last_reading() -> None:
    rig = Rig()
    rig.observed()
    run_one(rig)
    rig.handle(TimerFired("report"))
    rig.observed(vm(cpu_time_s=33.0))
    rig.handle(TimerFired("report"))

    assert guest_event(rig.observed()).status == vm(cpu_time_s=33.0)


def test_vms_of_before_a_new_boot_have_vanished() -> None:
    rig = Rig()
    run_one(rig)
    rig.restart(boot_id="boot-2")

    event = guest_event(rig.observed())

    assert (event.change, event.boot_id) == (GuestChange.VANISHED, "boot-2")


def test_a_vm_that_an_action_took_away_has_not_vanished() -> None:
    for kind, status in [
        (ActionKind.STOP, None),
        (ActionKind.MIGRATE, None),
        (ActionKind.SUSPEND, vm(state=VmState.SUSPENDED)),
    ]:
        rig = Rig()
        run_one(rig)
        order = action(99, kind, expects=1)
        rig.order(order)
        rig.operated(order, status=status)
        rig.restart()

        assert not messages(rig.observed(*([status] if status else [])), GuestEvent)


def test_a_vm_whose_leaving_was_in_progress_has_not_vanished() -> None:
    rig = Rig()
    run_one(rig)
    rig.order(action(99, ActionKind.STOP, expects=1))
    rig.restart()

    effects = rig.observed()

    assert result(effects).outcome is Outcome.OK
    assert not messages(effects, GuestEvent)


def test_a_vm_that_is_just_being_stopped_has_not_vanished() -> None:
    rig = Rig()
    rig.observed()
    run_one(rig)
    rig.order(action(99, ActionKind.STOP, expects=1))
    rig.handle(TimerFired("report"))  # the stop is done by now, its answer still to come

    assert not messages(rig.observed(), GuestEvent)


def test_a_vm_that_ended_has_not_vanished_too() -> None:
    rig = Rig()
    run_one(rig)
    rig.guest(GuestChange.ENDED, vm(state=VmState.ENDED))
    rig.restart()

    assert messages(rig.observed(), GuestEvent) == []


def test_a_vm_that_someone_suspended_by_hand_has_not_vanished() -> None:
    rig = Rig()
    run_one(rig)
    rig.restart()

    effects = rig.observed(vm(state=VmState.SUSPENDED))

    assert only(effects, WriteJournal) == [WriteJournal(VmSeen(vm(state=VmState.SUSPENDED)))]
    rig.handle(TimerFired("report"))
    assert not messages(rig.observed(), GuestEvent)


def test_a_vm_first_found_at_a_look_is_missed_later() -> None:
    rig = Rig()
    assert only(rig.observed(vm()), WriteJournal) == [WriteJournal(VmSeen(vm()))]
    rig.handle(TimerFired("report"))
    assert only(rig.observed(vm()), WriteJournal) == []
    rig.restart()

    assert guest_event(rig.observed()).change is GuestChange.VANISHED


@pytest.mark.parametrize(
    ("state", "change"), [(VmState.ENDED, GuestChange.ENDED), (VmState.CRASHED, GuestChange.VANISHED)]
)
def test_an_end_found_at_a_look_is_noted_once_and_its_domain_forgotten(state: VmState, change: GuestChange) -> None:
    rig = Rig()
    run_one(rig)
    rig.restart()

    effects = rig.observed(vm(state=state))

    event = guest_event(effects)
    assert (event.change, event.status.state) == (change, state)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(WriteJournal) < kinds.index(Publish) < kinds.index(Forget)
    rig.restart()  # killed before it was forgotten, say
    again = rig.observed(vm(state=state))
    assert only(again, Forget) == [Forget("j#0")]
    assert not only(again, WriteJournal)
    assert rig.guest(change, vm(state=state)) == [Forget("j#0")]


def test_a_start_not_seen_to_end_and_the_guests_end_are_both_told() -> None:
    rig = Rig()
    rig.order(action())
    rig.restart()

    effects = rig.observed(vm(state=VmState.ENDED))

    assert result(effects).outcome is Outcome.OK
    assert guest_event(effects).change is GuestChange.ENDED
    assert result(effects).seq < guest_event(effects).seq


def test_a_reading_taken_before_an_answer_or_event_is_not_held_against_it() -> None:
    rig = Rig()
    rig.observed()
    run_one(rig, "old#0")
    rig.handle(TimerFired("report"))  # the reading is taken here: old#0 runs, new#0 is not there yet
    run_one(rig, "new#0")
    rig.guest(GuestChange.ENDED, vm("old#0", VmState.ENDED))

    effects = rig.observed(vm("old#0"))

    assert not messages(effects, GuestEvent)
    assert not only(effects, WriteJournal)


# --- the journal ------------------------------------------------------------------------------------------------


def busy_rig() -> Rig:
    """A rig whose journal has something of everything."""
    rig = Rig()
    rig.observed(vm("seen#0"))
    run_one(rig, "gone#0")
    run_one(rig, "live#0")
    rig.send(Hello(2))
    rig.guest(GuestChange.ENDED, vm("gone#0", VmState.ENDED))
    rig.guest(GuestChange.ARRIVED, vm("came#0"))
    rig.send(EventsSeen(2, 1))
    rig.order(action(50, vm="open#0", term=2))
    rig.order(action(51, vm="open#0", term=2))
    rig.order(action(52, vm="untold#0", term=2))
    rig.operated(action(52, vm="untold#0", term=2), status=vm("untold#0"))
    return rig


def contents(state: JournalState) -> dict[str, object]:
    fields = (
        "starts",
        "boot_id",
        "term",
        "last_event",
        "clock_s",
        "accepted",
        "busy",
        "events",
        "live",
        "slept",
        "setting_up",
    )
    found: dict[str, object] = {field: getattr(state, field) for field in fields}
    for ordered in ("finished", "unreported", "over", "ended_setups"):
        found[ordered] = list(getattr(state, ordered).items())
    return found


def test_a_compacted_journal_says_the_same() -> None:
    ask = SetUpNode(
        "u1", "n1", 1, boot_id="boot-1", expires_at_s=160.0, environment="batch", step=SetupStep.RELEASE, setup=Setup()
    )
    answer = SetUpAnswer("n1", "boot-1", 9, 100.0, "u1", True)
    setups = [SetUpBegun(ask), SetUpEnded(answer), SetUpBegun(replace(ask, request="u2"))]
    records = [*busy_rig().records, SleepAgreed("s1"), *setups]
    assert {type(record) for record in (*records, *JournalState(records).compact())} == set(RECORDS)

    for cut in range(len(records) + 1):
        state = JournalState(records[:cut])
        short = state.compact()
        assert contents(JournalState(short)) == contents(state)
        assert JournalState(short).compact() == short


def test_a_compacted_journal_does_not_grow_with_what_is_over() -> None:
    rig = Rig()
    lengths = []
    for number in range(300):
        rig.now_s = 100.0 + 100.0 * number
        start = action(number, vm=f"j#{number}", expires_at_s=rig.now_s + 60.0)
        rig.order(start, events_seen=number)
        rig.confirm(rig.operated(start, status=vm(start.vm)))
        rig.confirm(rig.guest(GuestChange.ENDED, vm(start.vm, VmState.ENDED)))
        lengths.append(len(JournalState(rig.records).compact()))

    assert max(lengths[100:]) == max(lengths)
    assert max(lengths) < 100


def test_ended_lives_are_remembered_up_to_a_bound() -> None:
    rig = Rig()
    for number in range(OVER_KEPT_MAX + 5):
        rig.guest(GuestChange.ENDED, vm(f"j#{number}", VmState.ENDED))

    assert len(JournalState(rig.records).over) == OVER_KEPT_MAX


def test_whatever_was_journaled_is_all_that_a_restart_needs() -> None:
    """Cut anywhere within the effects of an order, the order is begun at most once and answered."""
    start = action()
    for cut in range(4):
        rig = Rig()
        effects = rig.agent.handle(Received(1, LEADER, Order(start)), rig.now_s)[:cut]
        rig.records += [effect.record for effect in only(effects, WriteJournal)]
        begun = bool(only(effects, Operate))
        acknowledged = bool(only(effects, Acknowledge))
        rig.restart()
        rig.observed(*([vm()] if begun else []))
        if not acknowledged:
            begun_again = bool(only(rig.order(start), Operate))
            assert not (begun and begun_again)
        if acknowledged:
            assert JournalState(rig.records).finished["a1"].result.outcome is (
                Outcome.OK if begun else Outcome.INTERRUPTED
            )


def test_a_domain_is_never_forgotten_before_its_end_is_noted() -> None:
    rig = Rig()
    effects = rig.agent.handle(GuestChanged(GuestChange.ENDED, vm(state=VmState.ENDED)), rig.now_s)

    noted = next(i for i, e in enumerate(effects) if isinstance(e, WriteJournal) and isinstance(e.record, GuestNoted))
    assert noted < effects.index(Forget("j#0"))


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["report_s", "operation_timeout_s", "publish_retry_s", "outcome_keep_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_settings_outside_their_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidValue, match=field):
        AgentSettings(**{field: value})  # type: ignore[arg-type]


def test_no_records_is_a_new_agent() -> None:
    assert Agent("n1", "b", (), AgentSettings()).start(0.0)[0] == WriteJournal(AgentStarted(1, "b"))
