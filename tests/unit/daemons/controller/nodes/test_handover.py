"""Nodes that change hands: emptied, released, acquired; every setup asked for until it is answered, none skipped."""

from __future__ import annotations

import pytest

from daemons.values.settings import ControllerSettings
from shared.protocol.messages import SetUpAnswer
from shared.values.nodes import Handover, NodeService, SetupStep
from tests.support.handover_harness import EXEC, WIPE, Rig

RELEASE, ACQUIRE = SetupStep.RELEASE, SetupStep.ACQUIRE
SETTINGS = ControllerSettings()


# --- the way through ------------------------------------------------------------------------------------------------


def test_a_node_of_nobodys_is_acquired_and_serves_only_then() -> None:
    rig = Rig()

    rig.give("wipe")
    assert rig.state() == ("wipe", Handover.ACQUIRING)
    assert not rig.node().schedulable
    (asked,) = rig.asked
    assert (asked.node, asked.boot_id, asked.term, asked.environment) == ("n1", "boot-1", 1, "wipe")
    assert (asked.step, asked.setup, asked.expires_at_s) == (ACQUIRE, WIPE, rig.now_s + SETTINGS.action_ttl_s)

    rig.answer(output="3 files")
    assert rig.state() == ("wipe", Handover.SETTLED)
    assert rig.node().schedulable
    assert rig.take_events() == ["node-evacuating", "setup-done", "node-acquired"]
    assert rig.environments["wipe"].setups == 1


def test_from_one_environment_to_the_next_both_setups_are_carried_out() -> None:
    rig = Rig()
    rig.has("wipe")

    rig.give("exec")
    assert rig.state() == ("wipe", Handover.RELEASING)
    rig.answer()
    assert rig.state() == ("exec", Handover.ACQUIRING)
    rig.answer(output="ready")

    assert rig.steps() == [("wipe", RELEASE), ("exec", ACQUIRE)]
    assert [asked.setup for asked in rig.asked] == [WIPE, EXEC]
    told = [(event.what, event.detail) for event in rig.events]
    assert told == [
        ("node-evacuating", "wipe to exec"),
        ("setup-done", "release of wipe: wipe"),
        ("node-released", "wipe"),
        ("setup-done", "acquire of exec: exec prepare: ready"),
        ("node-acquired", "exec"),
    ]


def test_nothing_is_asked_where_nothing_is_to_be_done_but_it_is_told() -> None:
    rig = Rig()

    rig.give("noop")
    assert rig.state() == ("noop", Handover.SETTLED)
    rig.give("")

    assert rig.state() == ("", Handover.SETTLED)
    assert not rig.asked
    assert rig.take_events() == [
        "node-evacuating",
        "setup-done",
        "node-acquired",
        "node-evacuating",
        "setup-done",
        "node-released",
    ]
    assert rig.environments["noop"].setups == 2


@pytest.mark.parametrize(("name", "step"), [("in", ACQUIRE), ("out", RELEASE)])
def test_an_agreement_may_leave_out_one_of_the_two(name: str, step: SetupStep) -> None:
    rig = Rig()

    for environment in (name, ""):
        rig.give(environment)
        while not rig.node().in_hand:
            rig.answer()

    assert rig.steps() == [(name, step)]


# --- emptying -------------------------------------------------------------------------------------------------------


def test_nothing_is_done_to_a_node_until_it_is_empty() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.occupy()

    rig.give("")
    assert rig.state() == ("wipe", Handover.EMPTYING)
    rig.wait(1_000.0)
    assert rig.state() == ("wipe", Handover.EMPTYING)
    assert not rig.handovers.emptied()

    rig.vacate()
    assert rig.handovers.emptied()
    rig.settle()
    assert rig.steps() == [("wipe", RELEASE)]


@pytest.mark.parametrize("what", ["flight", "wanted"])
def test_a_vm_that_may_still_come_keeps_a_node_occupied(what: str) -> None:
    rig = Rig()
    rig.has("wipe")
    if what == "flight":
        rig.fly()
    else:
        rig.node().wanted_mib = 1000.0

    rig.give("")

    assert rig.state() == ("wipe", Handover.EMPTYING)


def test_a_residue_of_sums_does_not_keep_a_node_occupied() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.node().wanted_mhz = 1e-10

    rig.give("")

    assert rig.state() == ("wipe", Handover.RELEASING)


def test_a_node_that_is_given_back_while_it_is_emptied_stays_as_it_was() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.occupy()
    rig.give("exec")

    rig.give("wipe")

    assert rig.state() == ("wipe", Handover.SETTLED)
    assert rig.node().schedulable
    assert rig.take_events() == ["node-evacuating", "node-kept"]
    assert not rig.asked


def test_a_vm_that_turns_up_later_is_waited_for() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.silent()
    rig.give("")
    rig.occupy()  # it came back with one
    rig.up()
    rig.settle()
    assert not rig.asked

    rig.vacate()
    assert rig.handovers.emptied()
    rig.settle()
    assert rig.steps() == [("wipe", RELEASE)]


# --- minds that change ----------------------------------------------------------------------------------------------


def test_once_released_a_node_is_acquired_anew_even_by_who_had_it() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.give("exec")

    rig.give("wipe")
    rig.answer()
    rig.answer()

    assert rig.steps() == [("wipe", RELEASE), ("wipe", ACQUIRE)]
    assert rig.state() == ("wipe", Handover.SETTLED)


def test_who_loses_a_node_while_acquiring_it_releases_it() -> None:
    rig = Rig()
    rig.give("wipe")

    rig.give("exec")
    assert len(rig.asked) == 1  # one setup at a time: the answer is waited for
    for _ in range(3):
        rig.answer()

    assert rig.steps() == [("wipe", ACQUIRE), ("wipe", RELEASE), ("exec", ACQUIRE)]
    assert rig.state() == ("exec", Handover.SETTLED)


def test_a_failing_acquisition_is_not_tried_again_for_who_lost_the_node() -> None:
    rig = Rig()
    rig.give("wipe")
    rig.give("")

    for _ in range(SETTINGS.setup_tries):
        rig.answer(False)
        if rig.node().handover is not Handover.ACQUIRING:
            break

    assert rig.state() == ("wipe", Handover.RELEASING)
    assert rig.steps() == [("wipe", ACQUIRE), ("wipe", RELEASE)]


# --- asking ---------------------------------------------------------------------------------------------------------


def test_the_same_request_is_asked_again_until_it_is_answered() -> None:
    rig = Rig()
    rig.give("wipe")

    rig.wait(2.5 * SETTINGS.action_ttl_s)

    assert len(rig.asked) == 3
    assert len({asked.request for asked in rig.asked}) == 1
    expiries = [asked.expires_at_s for asked in rig.asked]
    assert expiries == sorted(set(expiries))


def test_a_failure_is_tried_again_later_and_later_under_another_name() -> None:
    rig = Rig()
    rig.give("wipe")

    rig.answer(False, "the disk is busy")
    rig.wait(SETTINGS.retry_s - 1.0)
    assert len(rig.asked) == 1
    rig.wait(1.0)
    assert len(rig.asked) == 2
    rig.answer(False)
    rig.wait(2.0 * SETTINGS.retry_s - 1.0)
    assert len(rig.asked) == 2
    rig.wait(1.0)
    rig.answer()

    assert len({asked.request for asked in rig.asked}) == 3
    assert rig.state() == ("wipe", Handover.SETTLED)
    failed = [event.detail for event in rig.events if event.what == "setup-failed"]
    assert failed[0] == "acquire of wipe: wipe, try 1 of 3, again in 15 s: the disk is busy"


def failed_rig() -> Rig:
    """A node whose acquisition has failed for good."""
    rig = Rig()
    rig.give("exec")
    for _ in range(SETTINGS.setup_tries):
        rig.answer(False, "no such file")
        rig.wait(300.0)
    return rig


def test_a_setup_that_fails_for_good_takes_the_node_out_of_everybodys_hands() -> None:
    rig = failed_rig()

    assert rig.state() == ("exec", Handover.FAILED)
    assert not rig.node().schedulable
    assert rig.node().detail == "acquire of exec: exec prepare, try 3 of 3: no such file"
    assert rig.unit_of_work.coordinate == {"exec"}
    rig.give("noop")
    rig.wait(10_000.0)
    assert rig.state() == ("exec", Handover.FAILED)
    assert len({asked.request for asked in rig.asked}) == SETTINGS.setup_tries


def test_repair_releases_what_may_have_been_left_and_goes_on() -> None:
    rig = failed_rig()
    rig.take_events()

    rig.handovers.repair(rig.node(), rig.now_s)
    rig.settle()
    rig.answer()
    rig.answer()

    assert rig.steps()[-2:] == [("exec", RELEASE), ("exec", ACQUIRE)]
    assert rig.state() == ("exec", Handover.SETTLED)
    assert rig.node().detail == ""
    assert rig.take_events()[0] == "node-repaired"


def test_repair_of_a_node_that_has_not_failed_changes_nothing() -> None:
    rig = Rig()
    rig.has("wipe")

    rig.handovers.repair(rig.node(), rig.now_s)

    assert rig.state() == ("wipe", Handover.SETTLED)
    assert not rig.unit_of_work.deploy


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    rig = Rig()
    rig.give("wipe")
    first = rig.asked[0]
    rig.answer(False)
    rig.wait(SETTINGS.retry_s)

    rig.answer(True, asked=first)  # it was answered before

    assert rig.state() == ("wipe", Handover.ACQUIRING)


def test_after_an_answer_of_another_boot_it_is_asked_for_anew() -> None:
    rig = Rig()
    rig.give("wipe")
    (before,) = rig.asked

    rig.handovers.answer(SetUpAnswer("n1", "boot-0", 1, rig.now_s, before.request, True), rig.now_s)
    rig.settle()

    assert rig.state() == ("wipe", Handover.ACQUIRING)
    assert rig.asked[-1].request != before.request


def test_what_was_printed_is_kept_in_bounds() -> None:
    rig = Rig()
    rig.give("wipe")
    rig.answer(True, "x" * 10_000 + "end")

    (event,) = [event for event in rig.events if event.what == "setup-done"]
    assert len(event.detail) == 4096
    assert event.detail.endswith("end")


def test_an_agreement_that_is_not_known_hands_nothing_over() -> None:
    rig = Rig()
    rig.has("wipe")
    del rig.environments["wipe"]

    rig.give("noop")

    assert rig.state() == ("wipe", Handover.FAILED)
    assert "not known" in rig.node().detail


# --- nodes that are not there ---------------------------------------------------------------------------------------


def test_a_silent_node_is_asked_when_it_is_back() -> None:
    rig = Rig()
    rig.has("wipe")
    rig.silent()
    rig.give("exec")
    rig.wait(500.0)
    assert rig.state() == ("wipe", Handover.RELEASING)
    assert not rig.asked

    rig.up()
    rig.settle()
    assert rig.steps() == [("wipe", RELEASE)]


def test_a_setup_of_an_earlier_boot_is_carried_out_anew() -> None:
    rig = Rig()
    rig.give("wipe")
    (before,) = rig.asked
    rig.silent()

    rig.up(boot="boot-2")
    rig.settle()
    rig.answer(asked=before)  # of the boot before
    assert rig.state() == ("wipe", Handover.ACQUIRING)
    assert rig.asked[-1].request != before.request
    assert rig.asked[-1].boot_id == "boot-2"

    rig.answer()
    assert rig.state() == ("wipe", Handover.SETTLED)


@pytest.mark.parametrize("service", [NodeService.OFF, NodeService.WAKING, NodeService.FAILED])
def test_a_node_that_sleeps_or_has_failed_is_not_asked(service: NodeService) -> None:
    rig = Rig()
    rig.node().service = service

    rig.give("wipe")
    assert not rig.asked

    rig.node().service = NodeService.STANDBY
    rig.settle()
    assert len(rig.asked) == 1


def test_a_node_that_is_going_to_sleep_is_not_asked() -> None:
    rig = Rig()
    rig.node().sleeping = True
    rig.give("wipe")

    assert not rig.asked


def test_a_node_that_is_given_away_is_needed_in_service() -> None:
    rig = Rig()
    rig.node().wanted = False

    rig.give("wipe")
    assert rig.needed == ["n1"]

    rig.node().wanted = False  # somebody else's decision
    rig.settle()
    assert rig.needed == ["n1", "n1"]


# --- leaders that die -----------------------------------------------------------------------------------------------


def test_the_next_leader_asks_for_the_same_and_takes_its_answer() -> None:
    rig = Rig()
    rig.give("wipe")
    (before,) = rig.asked

    rig.succeed()
    assert [asked.request for asked in rig.asked] == [before.request] * 2
    assert rig.asked[-1].term == 2

    rig.answer(asked=before)
    assert rig.state() == ("wipe", Handover.SETTLED)


def test_the_next_leader_sees_that_the_host_has_begun_anew() -> None:
    rig = Rig()
    rig.give("wipe")
    (before,) = rig.asked
    rig.boots["n1"] = "boot-2"

    rig.succeed()

    assert rig.asked[-1].request != before.request
    assert rig.asked[-1].boot_id == "boot-2"


@pytest.mark.parametrize("occupied", [True, False])
@pytest.mark.parametrize("steps", range(4))
def test_a_crash_at_any_step_before_it_is_stored_repeats_that_step_and_no_more(steps: int, occupied: bool) -> None:
    rig = Rig()
    rig.has("wipe")
    if occupied:
        rig.occupy()
    rig.give("exec")
    for step in range(4):
        if rig.node().claimed:
            rig.vacate()
            rig.settle(stores=step != steps)
        elif rig.asked and not rig.node().in_hand:
            rig.hear(rig.asked[-1])
            rig.settle(stores=step != steps)
        if step == steps:
            rig.succeed()
    while not rig.node().in_hand:
        rig.answer()

    assert rig.steps() == [("wipe", RELEASE), ("exec", ACQUIRE)]
    assert rig.state() == ("exec", Handover.SETTLED)


def test_a_failed_node_stays_so_for_the_next_leader() -> None:
    rig = failed_rig()

    rig.succeed()
    rig.wait(1_000.0)

    assert rig.state() == ("exec", Handover.FAILED)
    assert len({asked.request for asked in rig.asked}) == SETTINGS.setup_tries
    assert "no such file" in rig.node().detail


def test_a_controller_that_only_observes_takes_no_step() -> None:
    rig = Rig()
    rig.unit_of_work.acting = False

    rig.give("wipe")

    assert rig.state() == ("", Handover.SETTLED)
    assert not rig.asked
