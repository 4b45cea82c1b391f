"""An agent that is asked for a standard job: refused with a reason, run once at a time, answered until it is heard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.standard_jobs import ANSWERS_KEPT
from shared.ports.effects import Acknowledge, DeadLetter, Effect, Publish, RunStandard, StandardRan, TimerFired
from shared.protocol.messages import GoToSleep, Hello, RunStandardJob, SetUpNode, StandardJobEnded
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.load_vector import StandardJob, StandardPace, StandardRun
from shared.values.nodes import Node, SetupStep, SleepMode
from sim_backend.fakes.standard_jobs import READS_PER_S, paces
from sim_backend.world.world import World
from tests.support.agent_harness import Rig, messages, only

RUN = StandardRun(StandardJob.CPU, 2.0, 2)
ASKED = RunStandardJob("p1", "n1", 1, "boot-1", 160.0, RUN)
PACES = (StandardPace(10.0, 2.0, 1.0), StandardPace(11.0, 2.1, 1.1))


def told(effects: list[Effect]) -> StandardJobEnded:
    """The one answer among the effects."""
    (found,) = messages(effects, StandardJobEnded)
    return found


def test_a_run_begins_is_answered_and_sent_until_the_broker_has_it() -> None:
    rig = Rig()
    asked = rig.send(ASKED)
    assert only(asked, RunStandard) == [RunStandard("p1", RUN)]
    assert only(asked, Acknowledge)
    assert not messages(asked, StandardJobEnded)

    answer = told(rig.handle(StandardRan("p1", True, PACES, "reads: direct")))
    assert (answer.node, answer.boot_id, answer.request, answer.ok) == ("n1", "boot-1", "p1", True)
    assert (answer.paces, answer.detail, answer.clock_s) == (PACES, "reads: direct", 100.0)
    rig.now_s += 5.0
    again = rig.handle(TimerFired("publish"))
    assert told(again) == answer
    rig.confirm(again)
    rig.now_s += 5.0
    assert not only(rig.handle(TimerFired("publish")), Publish)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (replace(ASKED, term=2), "term 3 has been seen"),
        (replace(ASKED, term=3, boot_id="boot-0"), "this is boot boot-1"),
        (replace(ASKED, term=3, expires_at_s=99.0), "expired 1.0 s ago"),
    ],
)
def test_what_is_stale_is_refused(asked: RunStandardJob, why: str) -> None:
    rig = Rig()
    rig.send(Hello(3))
    effects = rig.send(asked)
    assert not only(effects, RunStandard)
    assert (told(effects).ok, told(effects).detail) == (False, why)


def test_one_for_another_node_or_of_no_controller_is_a_dead_letter() -> None:
    rig = Rig()
    for effects in (rig.send(replace(ASKED, node="n2")), rig.send(ASKED, "operator.a")):
        assert only(effects, DeadLetter)
        assert not only(effects, RunStandard)


def test_one_at_a_time_and_none_twice() -> None:
    rig = Rig()
    rig.send(ASKED)
    assert told(rig.send(replace(ASKED, request="p2"))).detail == "p1 is still running"
    assert [type(effect) for effect in rig.send(ASKED)] == [Acknowledge]  # a second delivery
    first = told(rig.handle(StandardRan("p1", True, PACES)))
    assert rig.handle(StandardRan("p1", True, PACES)) == []
    later = rig.send(ASKED)
    assert told(later) == first
    assert not only(later, RunStandard)
    assert only(rig.send(replace(ASKED, request="p3")), RunStandard)


def test_answers_are_kept_within_bounds() -> None:
    rig = Rig()
    for number in range(ANSWERS_KEPT + 1):
        rig.send(replace(ASKED, request=f"p{number}"))
        rig.handle(StandardRan(f"p{number}", True, PACES))
    assert only(rig.send(replace(ASKED, request="p0")), RunStandard)
    rig.handle(StandardRan("p0", True))
    assert not only(rig.send(replace(ASKED, request="p5")), RunStandard)


def test_not_while_the_host_changes() -> None:
    sleepy = Rig()
    sleepy.observed()
    sleepy.send(GoToSleep("s1", "n1", 1, "boot-1", 160.0, SleepMode.SUSPEND))
    sleepy.observed()
    assert told(sleepy.send(ASKED)).detail == "the host is going to sleep"
    wiped = Rig()
    wiped.observed()
    wiped.send(
        SetUpNode(
            "u1",
            "n1",
            1,
            boot_id="boot-1",
            expires_at_s=160.0,
            environment="batch",
            step=SetupStep.RELEASE,
            setup=Setup(SetupPolicy.WIPE),
        )
    )
    wiped.observed()
    assert told(wiped.send(ASKED)).detail == "the host is being set up"


def test_a_new_process_knows_nothing_of_it() -> None:
    rig = Rig()
    rig.send(ASKED)
    rig.restart()
    assert rig.handle(StandardRan("p1", True, PACES)) == []
    assert only(rig.send(ASKED), RunStandard)


def test_copies_in_the_simulated_world_wait_for_guests_at_the_disk() -> None:
    """Given a guest that is at a disk for half of its time, then a copy makes 1 / 1.5 of its reads beside it, and each
    of two 1.5 / 4 of them: the exact network of all three."""
    world = World()
    world.add_host(Node("n1", 2, 2000.0, memory_mib=4096))
    world.add_task("job", [(1e9, 2000.0)], 1, io=0.5)
    world.place("job#0", "n1", 0.0, 2000.0, float("inf"), 1, 1024.0)
    world.advance(1.0)
    (one,) = paces(world, "n1", StandardRun(StandardJob.IO, 2.0))
    assert one.units == pytest.approx(2.0 * READS_PER_S / 1.5)
    two = paces(world, "n1", StandardRun(StandardJob.IO, 2.0, 2))
    assert [each.units for each in two] == pytest.approx([2.0 * READS_PER_S * 1.5 / 4.0] * 2)


def test_copies_in_the_simulated_world_share_what_its_guests_leave() -> None:
    """Given two cores at a true 3 GHz and a guest that uses one, then one copy has a core, two have 2/3 each, and the
    disk serves its copies one after the other."""
    world = World()
    world.add_host(Node("n1", 2, 2000.0, memory_mib=4096), 1.5)
    world.add_task("job", [(1e9, 3000.0)], 1)
    world.place("job#0", "n1", 0.0, 3000.0, float("inf"), 1, 1024.0)
    world.advance(1.0)

    def units(copies: int, job: StandardJob = StandardJob.CPU) -> list[float]:
        return [pace.units for pace in paces(world, "n1", StandardRun(job, 2.0, copies))]

    (alone,) = units(1)
    assert alone == pytest.approx(3000.0)
    assert units(2) == pytest.approx([alone * 2 / 3] * 2)
    assert sum(units(4)) == pytest.approx(alone * 8 / 5)
    assert units(2, StandardJob.IO) == pytest.approx([READS_PER_S] * 2)
