"""What was predicted is compared with what came: who over-promises is named and not acted for."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.models.prediction_score import OVER_CYCLES
from daemons.values.settings import PolicyChoice
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import Query, SubmitJob, SubmitWeb
from shared.values.jobs import ConstraintKind, Job, JobPhase, Stage
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support.controller_harness import ControllerHarness

FLOW = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01, model=ModelForm.PROCESSOR_SHARING)
CYCLE_S, FULL_MHZ = 900.0, 4_000.0
GOOD_S = 0.0127  # as the model says for the CPU that it has


def led() -> ControllerHarness:
    """An application of up to two instances and a job with a goal, which both run."""
    desk = ControllerHarness(("n1", "n2"), placement=PolicyChoice("apc")).lead()
    stages = (Stage(9e7, FULL_MHZ, memory_mib=500),)
    late = Job("late", stages, desired_start_s=desk.now_s, goal_s=desk.now_s + 90_000.0, vcpus=4)
    assert desk.ask(SubmitJob("j", late)).done
    desk.obey()
    app = WebApp("shop", (FLOW,), 500, max_mhz=FULL_MHZ, min_instances=1, max_instances=2, vcpus=4)
    assert desk.ask(SubmitWeb("s", app)).done
    desk.obey()
    return desk


def cycle(desk: ControllerHarness, mean_s: float, per_s: int = 20) -> None:
    """A cycle in which requests take so long."""
    for _ in range(int(CYCLE_S / 60.0)):
        desk.wait(60.0, ("n1", "n2"))
        sample = FlowSample("browse", 60.0, offered=60 * per_s, served=60 * per_s, mean_s=mean_s)
        desk.feed(
            fx.Received(None, topology.web_user("shop"), WebReport("shop", int(desk.now_s), desk.now_s, (sample,)))
        )
    desk.wait(2.0, ("n1", "n2"))
    desk.obey()


def alarms(desk: ControllerHarness) -> dict[str, dict[str, Any]]:
    reply = desk.ask(Query("q", "status"))
    assert reply.done
    return {alarm["what"]: alarm for alarm in reply.data["alarms"]}


def scores(desk: ControllerHarness) -> dict[str, dict[str, Any]]:
    reply = desk.ask(Query("q", "plan-history"))
    assert reply.done
    return {row["workload"]: row for row in reply.data["scores"]}


def distrusted() -> ControllerHarness:
    """Requests take far longer than any model says, for so many cycles."""
    desk = led()
    for _ in range(OVER_CYCLES + 1):
        cycle(desk, GOOD_S)
    assert "prediction-missed" not in alarms(desk)
    for _ in range(OVER_CYCLES + 1):
        cycle(desk, 5.0)
    return desk


@pytest.fixture(scope="module")
def desk() -> ControllerHarness:
    return distrusted()


def test_an_alarm_names_the_application_and_the_wrong_input(desk: ControllerHarness) -> None:
    alarm = alarms(desk)["prediction-missed"]
    assert alarm["subject"] == "shop"
    assert "wrong input: response model" in alarm["detail"]
    assert "web-model-wrong" in alarms(desk)


def test_the_history_has_the_score_of_each_workload(desk: ControllerHarness) -> None:
    shop = scores(desk)["shop"]
    assert (shop["trusted"], shop["policy"], shop["cause"]) == (False, "apc", "response model")
    assert shop["over"] >= OVER_CYCLES
    assert scores(desk)["late"]["trusted"]


def test_nothing_is_moved_or_suspended_for_it(desk: ControllerHarness) -> None:
    deciding = desk.controller.deciding
    held = sum(
        entry.allotments[0].cpu_mhz
        for entry in desk.controller.cluster.replicas["shop"].values()
        if entry.phase is JobPhase.RUNNING
    )
    seen = deciding.request(desk.now_s, True).snapshot
    assert ConstraintKind.KEEP in {each.kind for each in seen.constraints if each.members == ("shop",)} or (
        seen.workloads.fixed[[name.startswith("shop#") for name in seen.workloads.names]].any()
    )
    assert seen.web.max_mhz.tolist() == pytest.approx([held])
    between = deciding.request(desk.now_s, False).snapshot
    assert between.web.max_mhz.tolist() == [2 * FULL_MHZ]


def test_it_is_trusted_again_when_predictions_hold() -> None:
    desk = distrusted()
    for _ in range(4):
        cycle(desk, GOOD_S)
    assert scores(desk)["shop"]["trusted"]
    assert "prediction-missed" not in alarms(desk)


def test_a_workload_that_is_gone_has_no_score() -> None:
    desk = led()
    cycle(desk, GOOD_S)
    cycle(desk, GOOD_S)
    assert set(scores(desk)) >= {"shop", "late"}
    desk.controller.cluster.active.pop("late")
    cycle(desk, GOOD_S)
    assert "late" not in scores(desk)
