"""CPU follows the load of web applications between cycles."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.values.settings import Automation, PolicyChoice
from shared.policy_api.decision import ChangeKind, ReasonCode
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import SubmitJob, SubmitWeb
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support.controller_harness import ControllerHarness

ADJUST_S = 20.0
FLOW = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01, model=ModelForm.PROCESSOR_SHARING)


def led(policy: str = "apc", most_mhz: float = 4000.0, **settings: Any) -> ControllerHarness:
    """A job with a goal and an application of one instance on one node, after a cycle's decision."""
    harness = ControllerHarness(("n1",), placement=PolicyChoice(policy), **settings).lead()
    stages = (Stage(4e6, most_mhz, memory_mib=500),)
    goal_s = harness.now_s + 3_600.0
    assert harness.ask(SubmitJob("j", Job("late", stages, desired_start_s=harness.now_s, goal_s=goal_s, vcpus=4))).done
    harness.obey()
    app = WebApp("shop", (FLOW,), 500, max_mhz=most_mhz, min_instances=1, max_instances=1, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    asked(harness, 20)
    harness.wait(901.0, ("n1",))
    harness.obey()
    return harness


def asked(harness: ControllerHarness, per_s: int, seq: int | None = None) -> None:
    """Somebody measures a minute with so many requests a second."""
    sample = FlowSample("browse", 60.0, offered=60 * per_s, served=60 * per_s, mean_s=0.1)
    report = WebReport("shop", int(harness.now_s) if seq is None else seq, harness.now_s, (sample,))
    harness.feed(fx.Received(None, topology.web_user("shop"), report))


def mhz(harness: ControllerHarness) -> tuple[float, float]:
    """What the application and the job are to have."""
    jobs = harness.controller.cluster.active
    return tuple(jobs[name].allotments[0].cpu_mhz for name in ("shop#0", "late"))  # type: ignore[return-value]


def decisions(harness: ControllerHarness) -> int:
    return harness.controller.deciding.decisions


@pytest.fixture
def harness() -> ControllerHarness:
    return led()


def test_what_an_application_needs_more_of_is_taken_from_the_jobs_beside_it(harness: ControllerHarness) -> None:
    """Within `web_adjust_s`, long before the next cycle; as a decision that says why."""
    before, count = mhz(harness), decisions(harness)
    asked(harness, 100)
    harness.wait(ADJUST_S + 1.0, ("n1",))
    after = mhz(harness)
    assert after[0] > before[0] + 100.0
    assert after[1] < before[1] - 100.0
    assert sum(after) <= 4000.0 * (1.0 + 1e-9)
    assert decisions(harness) == count + 1
    record = next(iter(harness.controller.deciding.history))
    assert {change.kind for change in record.changes} == {ChangeKind.RESIZE}
    assert {change.reason.code for change in record.changes} == {ReasonCode.LOAD}


def test_what_it_no_longer_needs_goes_back(harness: ControllerHarness) -> None:
    asked(harness, 100)
    harness.wait(ADJUST_S + 1.0, ("n1",))
    harness.obey()
    busy = mhz(harness)
    for _ in range(40):
        asked(harness, 5)
        harness.wait(60.0, ("n1",))
        harness.obey()
    assert mhz(harness)[1] > busy[1] + 100.0


def test_nothing_is_changed_while_nothing_has(harness: ControllerHarness) -> None:
    asked(harness, 20)
    harness.wait(3 * ADJUST_S, ("n1",))
    harness.obey()
    before, count = mhz(harness), decisions(harness)
    for _ in range(5):
        asked(harness, 20)
        harness.wait(ADJUST_S, ("n1",))
    assert mhz(harness) == before
    assert decisions(harness) == count


def test_a_policy_that_does_not_share_by_utility_is_left_alone() -> None:
    harness = led("first-fit", 2000.0)
    before = mhz(harness)
    asked(harness, 100)
    harness.wait(2 * ADJUST_S, ("n1",))
    assert mhz(harness) == before


def test_where_decisions_only_advise_it_advises() -> None:
    harness = led(most_mhz=3000.0, automation=Automation.ADVISE)
    before, count = mhz(harness), decisions(harness)
    asked(harness, 150)
    harness.wait(ADJUST_S + 1.0, ("n1",))
    assert mhz(harness) == before
    assert decisions(harness) == count + 1
    assert {change.kind for change in next(iter(harness.controller.deciding.history)).held} == {ChangeKind.RESIZE}


def test_nothing_is_done_while_deciding_is_paused(harness: ControllerHarness) -> None:
    harness.controller.deciding.enable(False, harness.now_s)
    before = mhz(harness)
    asked(harness, 100)
    harness.wait(2 * ADJUST_S, ("n1",))
    assert mhz(harness) == before


def test_a_job_that_waits_is_started_in_the_room_that_is_made_although_no_job_runs() -> None:
    """Given an application that has all CPU, when a job comes and nothing with a goal runs, then it is started at once:
    both levels were so far down that their difference was lost in a float."""
    harness = ControllerHarness(("n1",), placement=PolicyChoice("apc")).lead()
    app = WebApp("shop", (FLOW,), 500, max_mhz=4_000.0, min_instances=1, max_instances=1, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    asked(harness, 20)
    harness.wait(901.0, ("n1",))
    harness.obey()
    assert harness.controller.cluster.active["shop#0"].allotments[0].cpu_mhz == pytest.approx(4_000.0)
    stages = (Stage(4e6, 4_000.0, memory_mib=500),)
    assert harness.ask(
        SubmitJob("j", Job("late", stages, desired_start_s=harness.now_s, goal_s=harness.now_s + 3_600.0, vcpus=4))
    ).done
    harness.obey()
    asked(harness, 20)
    harness.wait(2 * ADJUST_S, ("n1",))
    harness.obey()
    assert harness.controller.cluster.active["late"].phase is JobPhase.RUNNING


def test_as_many_instances_are_added_at_a_time_as_are_needed() -> None:
    """Given one instance on a node of 4,000 MHz, when requests for 14,000 MHz come, then after one look there are as
    many as that takes with its head-room, and a second look before they run adds no more."""
    nodes = tuple(f"n{number}" for number in range(1, 21))
    harness = ControllerHarness(nodes, placement=PolicyChoice("apc")).lead()
    app = WebApp("shop", (FLOW,), 500, max_mhz=4_000.0, min_instances=1, max_instances=20, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    harness.wait(ADJUST_S, nodes)
    asked(harness, 1_400)
    harness.wait(2 * ADJUST_S, nodes)
    harness.obey()
    cluster = harness.controller.cluster
    assert len([entry for entry in cluster.active.values() if entry.phase is JobPhase.RUNNING]) == 5


@pytest.mark.parametrize(("queued", "instances"), [(0, 2), (2_000, 4)])
def test_one_that_cannot_keep_up_gets_more_before_its_work_is_known(queued: int, instances: int) -> None:
    """Given requests whose work nobody has declared, when as many as come are answered and some wait, then there are
    twice as many instances; where none wait, as many as before."""
    nodes = tuple(f"n{number}" for number in range(1, 8))
    harness = ControllerHarness(nodes, placement=PolicyChoice("apc")).lead()
    flow = Flow("browse", mean_s=0.2, t_min_s=0.01)
    app = WebApp("shop", (flow,), 500, max_mhz=4_000.0, min_instances=2, max_instances=7, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    harness.wait(2 * ADJUST_S, nodes)
    sample = FlowSample("browse", 20.0, offered=2_000, served=2_000, queued=queued, mean_s=0.1)
    report = WebReport("shop", 1, harness.now_s, (sample,))
    harness.feed(fx.Received(None, topology.web_user("shop"), report))
    harness.wait(2 * ADJUST_S, nodes)
    harness.obey()
    active = harness.controller.cluster.active.values()
    assert len([entry for entry in active if entry.phase is JobPhase.RUNNING]) == instances


def missed(harness: ControllerHarness, per_s: int, mean_s: float) -> None:
    """Somebody measures five seconds in which requests took so long on average."""
    sample = FlowSample("browse", 5.0, offered=5 * per_s, served=5 * per_s, mean_s=mean_s)
    report = WebReport("shop", int(harness.now_s * 10), harness.now_s, (sample,))
    harness.feed(fx.Received(None, topology.web_user("shop"), report))


@pytest.mark.parametrize(("mean_s", "at_once"), [(1.5, True), (0.15, False)])
def test_a_missed_goal_is_met_with_cpu_at_the_measurement_that_shows_it(mean_s: float, at_once: bool) -> None:
    """Given `web_adjust_s` of an hour, when more is asked for, then CPU moves only where the goal was missed."""
    harness = led(web_adjust_s=3_600.0)
    before = mhz(harness)
    for _ in range(4):
        missed(harness, 100, mean_s)
        harness.wait(5.0, ("n1",))
        harness.obey()
    assert (mhz(harness)[0] > before[0] + 100.0) is at_once


def test_missed_goals_are_looked_at_no_more_often_than_counters_are_read(harness: ControllerHarness) -> None:
    """Somebody pushes ten measurements a second."""
    looks = []
    for at in range(100):
        missed(harness, 100, 1.5 + 0.1 * at)
        looks.append(harness.controller.unit_of_work.timers.get("redistribute"))
        harness.wait(0.1, ("n1",))
    assert 2 <= len({look for look in looks if look is not None}) <= 3
