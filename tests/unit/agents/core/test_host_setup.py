"""An agent that is asked to set its host up: checked, looked at afresh, done once, and answered the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.core.journal import SETUPS_KEPT_MAX, JournalState, SetUpBegun, SetUpEnded
from agents.disk_journal import DiskJournal
from shared.ports.effects import (
    Acknowledge,
    DeadLetter,
    Effect,
    HostSetUp,
    Observe,
    Operate,
    SetUpHost,
    TimerFired,
    WriteJournal,
)
from shared.protocol import topology
from shared.protocol.messages import GoToSleep, Hello, SetUpAnswer, SetUpNode, SleepAnswer
from shared.values.actions import ActionKind, Outcome
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import SetupStep, SleepMode
from shared.values.vms import VmState
from tests.support.agent_harness import Rig, action, messages, only, report, result, vm

WIPE = Setup(SetupPolicy.WIPE)
ASKED = SetUpNode(
    "u1", "n1", 1, boot_id="boot-1", expires_at_s=160.0, environment="batch", step=SetupStep.RELEASE, setup=WIPE
)
SET_UP = SetUpHost("u1", "batch", SetupStep.RELEASE, WIPE)


def rig_at_rest() -> Rig:
    """An agent that has answered its first reading."""
    rig = Rig()
    rig.observed()
    return rig


def begun_rig() -> tuple[Rig, list[Effect]]:
    """An agent whose host is being set up, and the effects of that."""
    rig = rig_at_rest()
    rig.send(ASKED)
    return rig, rig.observed()


def answer(effects: list[Effect]) -> SetUpAnswer:
    """The one answer among the effects."""
    (found,) = messages(effects, SetUpAnswer)
    return found


def test_an_empty_host_is_set_up_and_the_outcome_told_until_the_broker_has_it() -> None:
    rig = rig_at_rest()

    asked = rig.send(ASKED)
    assert [type(effect) for effect in asked] == [WriteJournal, Acknowledge, Observe]  # the term is new
    seen = rig.observed(vm("old#0", VmState.SUSPENDED), vm("stranger", managed=False))
    begun = seen.index(WriteJournal(SetUpBegun(ASKED)))
    assert seen.index(SET_UP) > begun  # it is in the journal before it begins
    assert not messages(seen, SetUpAnswer)

    ended = rig.handle(HostSetUp("u1", True, "3 files"))
    assert [type(effect) for effect in ended[:1]] == [WriteJournal]
    assert (answer(ended).request, answer(ended).ok, answer(ended).output) == ("u1", True, "3 files")
    assert rig.confirm(ended) == []


def test_the_same_request_is_answered_as_it_was_and_done_once() -> None:
    rig, _ = begun_rig()
    assert not only(rig.send(ASKED), SetUpHost)  # while it is in progress
    first = answer(rig.handle(HostSetUp("u1", False, "no")))

    rig.now_s = 1_000.0
    again = rig.send(replace(ASKED, term=0, boot_id="boot-0"))

    assert answer(again) == first
    assert not only(again, Observe)


@pytest.mark.parametrize(
    "request_",
    [replace(ASKED, boot_id="boot-0"), replace(ASKED, expires_at_s=99.0), replace(ASKED, term=0)],
    ids=["boot", "expired", "term"],
)
def test_a_stale_request_is_neither_followed_nor_answered(request_: SetUpNode) -> None:
    rig = rig_at_rest()
    rig.send(Hello(1))
    rig.observed()

    effects = rig.send(request_)

    assert [type(effect) for effect in effects] == [Acknowledge]
    assert not only(rig.observed(), SetUpHost)


def test_a_request_that_becomes_stale_while_it_is_looked_at_is_dropped_and_may_come_again() -> None:
    rig = rig_at_rest()
    rig.send(ASKED)
    rig.now_s = 161.0

    assert not [effect for effect in rig.observed() if isinstance(effect, SetUpHost | WriteJournal)]

    rig.send(replace(ASKED, expires_at_s=300.0))
    assert only(rig.observed(), SetUpHost) == [SET_UP]


@pytest.mark.parametrize("state", [VmState.RUNNING, VmState.PAUSED, VmState.INCOMING])
def test_a_host_with_a_vm_of_ours_is_not_set_up(state: VmState) -> None:
    rig = rig_at_rest()
    rig.send(ASKED)

    seen = rig.observed(vm("j#0", state))

    assert not answer(seen).ok
    assert "j#0 on it" in answer(seen).output
    assert not only(seen, SetUpHost)
    assert answer(rig.send(ASKED)) == answer(seen)


def test_an_operation_in_progress_is_waited_for() -> None:
    rig = rig_at_rest()
    start = action(vm="j#0", kind=ActionKind.START)
    rig.order(start)
    rig.send(ASKED)

    assert not only(rig.observed(), SetUpHost)
    rig.operated(start, Outcome.FAILED)
    rig.handle(TimerFired("report"))
    assert only(rig.observed(), SetUpHost) == [SET_UP]


def test_nothing_comes_to_life_while_the_host_is_set_up() -> None:
    rig, _ = begun_rig()

    assert result(rig.order(action(1))).outcome is Outcome.REFUSED
    assert only(rig.order(action(2, ActionKind.DISCARD_IMAGE, "old#0")), Operate)
    rig.handle(HostSetUp("u1", True))
    assert only(rig.order(action(3)), Operate)


def test_another_request_waits_until_the_first_has_ended() -> None:
    rig, _ = begun_rig()
    other = replace(ASKED, request="u2")

    assert [type(effect) for effect in rig.send(other)] == [Acknowledge]
    rig.handle(HostSetUp("u1", True))
    rig.send(other)
    assert [effect.request for effect in only(rig.observed(), SetUpHost)] == ["u2"]


def test_a_host_is_not_put_to_sleep_while_it_is_set_up_nor_set_up_when_it_goes_to_sleep() -> None:
    sleep = GoToSleep("s1", "n1", 1, "boot-1", 160.0, SleepMode.SUSPEND)
    rig, _ = begun_rig()
    (refused,) = messages(rig.send(sleep), SleepAnswer)
    assert (refused.ok, refused.detail) == (False, "the host is being set up")

    rig = rig_at_rest()
    rig.send(sleep)
    rig.send(ASKED)
    first = rig.observed()
    assert messages(first, SleepAnswer)[0].ok
    assert not only(first, SetUpHost)
    assert not only(rig.observed(), SetUpHost)
    assert [type(effect) for effect in rig.send(ASKED)] == [Acknowledge]


def test_what_was_begun_is_begun_again_after_a_crash_and_answered_once() -> None:
    rig, _ = begun_rig()

    effects = rig.restart()

    assert only(effects, SetUpHost) == [SET_UP]
    assert not only(rig.order(action(1)), Operate)
    assert answer(rig.handle(HostSetUp("u1", True, "again"))).output == "again"
    assert not only(rig.restart(), SetUpHost)
    assert answer(rig.send(ASKED)).output == "again"


def test_what_was_begun_in_another_boot_is_over_and_not_told_as_a_failure() -> None:
    """Its asker may not know of the new boot yet, and would count it as a try."""
    rig, _ = begun_rig()

    effects = rig.restart(boot_id="boot-2")

    assert not only(effects, SetUpHost)
    assert not messages([*effects, *rig.send(ASKED)], SetUpAnswer)
    rig.observed()
    rig.send(replace(ASKED, request="u2", boot_id="boot-2"))
    assert only(rig.observed(), SetUpHost)
    rig.handle(HostSetUp("u2", True))
    assert only(rig.order(action(1, boot_id="boot-2")), Operate)


def test_an_answer_to_nothing_changes_nothing_and_output_is_bounded() -> None:
    rig, _ = begun_rig()

    assert rig.handle(HostSetUp("u0", True)) == []
    said = answer(rig.handle(HostSetUp("u1", False, "x" * 9_000 + "end"))).output
    assert len(said) == 4096
    assert said.endswith("end")
    assert rig.handle(HostSetUp("u1", True)) == []


def test_only_controllers_may_ask_and_only_for_this_node() -> None:
    rig = rig_at_rest()

    assert only(rig.send(ASKED, sender=topology.OPERATOR_USER_PREFIX + "x"), DeadLetter)
    assert only(rig.send(replace(ASKED, node="n2")), DeadLetter)


def test_reports_go_on_while_the_host_is_set_up() -> None:
    rig, _ = begun_rig()
    rig.handle(TimerFired("report"))

    assert report(rig.observed()).vms == ()


# --- the journal ----------------------------------------------------------------------------------------------------


def test_the_journal_remembers_setups_on_disk_and_when_compacted(tmp_path: Path) -> None:
    ended = SetUpEnded(SetUpAnswer("n1", "boot-1", 7, 100.0, "u0", False, "no"))
    journal = DiskJournal(tmp_path / "journal")
    journal.append_all((ended, SetUpBegun(ASKED)))
    journal.close()

    again = DiskJournal(tmp_path / "journal")
    state = JournalState(JournalState(again.records()).compact())
    again.close()

    assert state.setting_up == ASKED
    assert state.ended_setups == {"u0": ended.answer}


def test_of_the_setups_that_have_ended_the_last_ones_are_remembered() -> None:
    state = JournalState()
    for number in range(SETUPS_KEPT_MAX + 3):
        state.apply(SetUpEnded(SetUpAnswer("n1", "boot-1", 7, 100.0, f"u{number}", True)))

    assert len(state.ended_setups) == SETUPS_KEPT_MAX
    assert next(iter(state.ended_setups)) == "u3"
