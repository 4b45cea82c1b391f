"""Guest events and VMs that an agent tells of: none is waited for for ever, and their number is bounded."""

from __future__ import annotations

from msgspec import structs

from daemons.controller.measure.reports import STRANGERS_MAX
from daemons.controller.measure.screening import TELL_AGAIN_S
from daemons.controller.state.nodes import EVENTS_ABOVE_MAX
from daemons.controller.state.unit_of_work import SAID_MAX
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import EventsSeen, GuestEvent, Report
from shared.values.actions import GuestChange
from shared.values.jobs import JobPhase
from shared.values.nodes import NodeSample
from shared.values.vms import VmState
from tests.support.controller_harness import ControllerHarness, job
from tests.unit.daemons.controller.core.test_controller import submitted


def running() -> ControllerHarness:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    return harness


def ended(harness: ControllerHarness, number: int) -> GuestEvent:
    status = structs.replace(harness.vms["n1"]["j#0"], state=VmState.ENDED)
    return GuestEvent(
        "n1",
        harness.boots["n1"],
        harness.next_seq("n1"),
        clock_s=harness.now_s,
        event=number,
        change=GuestChange.ENDED,
        status=status,
    )


def test_events_that_an_earlier_leader_has_stored_are_not_waited_for() -> None:
    harness = running()  # its store was restored from a backup: the agent is at event 501
    last = ended(harness, 501)
    del harness.vms["n1"]["j#0"]
    harness.report("n1", events=(last,))
    assert harness.controller.cluster.jobs["j"].phase is JobPhase.COMPLETED
    node = harness.controller.cluster.nodes["n1"]
    assert (node.events_seen, node.events_above) == (501, set())
    later = Report(
        "n1",
        harness.boots["n1"],
        harness.next_seq("n1"),
        clock_s=harness.now_s,
        term=1,
        sample=NodeSample(),
        vms=(),
        events=(last,),
    )
    effects = harness.controller.handle(fx.Received(None, topology.agent_user("n1"), later), harness.now_s)
    assert EventsSeen(1, 501) in [effect.message for effect in effects if isinstance(effect, fx.Publish)]


def test_an_agent_that_tells_of_ever_other_events_does_not_fill_the_controller() -> None:
    harness = running()
    node = harness.controller.cluster.nodes["n1"]
    node.events_above = set(range(10, 10 + EVENTS_ABOVE_MAX - 1))
    for number in (9_000, 9_001):
        harness.say(ended(harness, number), topology.agent_user("n1"))
    assert len(node.events_above) == EVENTS_ABOVE_MAX
    harness.report("n1", events=(ended(harness, 1),))  # what is missing is taken all the same
    assert node.events_seen == 1


def test_vms_that_an_agent_invents_are_told_a_few_times_a_minute() -> None:
    harness = running()
    some = harness.vms["n1"]["j#0"]
    for number in range(30 * STRANGERS_MAX):
        name = f"made-up{number}#0"
        harness.vms["n1"] = {"j#0": some, name: structs.replace(some, vm=name, memory_mib=1)}
        harness.report("n1")
    assert len(harness.happenings("unknown-vm")) == STRANGERS_MAX
    harness.now_s += TELL_AGAIN_S
    harness.vms["n1"]["late#0"] = structs.replace(some, vm="late#0", memory_mib=1)
    harness.report("n1")
    assert len(harness.happenings("unknown-vm")) == STRANGERS_MAX + 1


def test_crashes_of_vms_that_an_agent_invents_are_told_as_seldom() -> None:
    harness = running()
    some = structs.replace(harness.vms["n1"]["j#0"], state=VmState.CRASHED)
    made_up = [(number, f"made-up{number}#0") for number in range(1, 10 * STRANGERS_MAX)]
    boot, seq = harness.boots["n1"], harness.next_seq("n1")
    events = tuple(
        GuestEvent(
            "n1",
            boot,
            seq,
            clock_s=harness.now_s,
            event=number,
            change=GuestChange.VANISHED,
            status=structs.replace(some, vm=vm),
            detail="x",
        )
        for number, vm in made_up
    )
    harness.report("n1", events=events)
    assert len(harness.happenings("guest-crashed")) == STRANGERS_MAX
    harness.now_s += TELL_AGAIN_S
    own = GuestEvent(
        "n1",
        boot,
        seq,
        clock_s=harness.now_s,
        event=len(made_up) + 1,
        change=GuestChange.VANISHED,
        status=some,
        detail="x",
    )
    harness.report("n1", events=(own,))
    assert harness.happenings("guest-crashed")[-1].subject == "j#0"


def test_an_agent_that_has_more_to_tell_than_a_node_can_have_is_an_alarm() -> None:
    """A boot at every report, each of which is told and stored, again and again."""
    harness = running()
    for number in range(2 * SAID_MAX):
        harness.boots["n1"] = f"boot-{number}"
        harness.report("n1")
    said = [*harness.happenings("node-rebooted"), *harness.happenings("node-up")]
    assert SAID_MAX - 10 < len(said) < SAID_MAX + 10  # beside those of the beginning
    alarms = {subject: why for what, subject, _, why in harness.controller.screening.alarms(harness.now_s)}
    assert f"more than {SAID_MAX} events a minute" in alarms["agent.n1"]
    before = len(harness.happenings("node-rebooted"))
    harness.now_s += TELL_AGAIN_S
    harness.boots["n1"] = "the last"
    harness.report("n1")
    assert len(harness.happenings("node-rebooted")) == before + 1
