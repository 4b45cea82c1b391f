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
    harness = ControllerHarness(("n1", "n2"), placement=PolicyChoice("apc")).lead()
    stages = (Stage(9e7, FULL_MHZ, memory_mib=500),)
    late = Job("late", stages, desired_start_s=harness.now_s, goal_s=harness.now_s + 90_000.0, vcpus=4)
    assert harness.ask(SubmitJob("j", late)).done
    harness.obey()
    app = WebApp("shop", (FLOW,), 500, max_mhz=FULL_MHZ, min_instances=1, max_instances=2, vcpus=4)
    assert harness.ask(SubmitWeb("s", app)).done
    harness.obey()
    return harness


def cycle(harness: ControllerHarness, mean_s: float, per_s: int = 20) -> None:
    """A cycle in which requests take so long."""
    for _ in range(int(CYCLE_S / 60.0)):
        harness.wait(60.0, ("n1", "n2"))
        sample = FlowSample("browse", 60.0, offered=60 * per_s, served=60 * per_s, mean_s=mean_s)
        harness.feed(
            fx.Received(
                None, topology.web_user("shop"), WebReport("shop", int(harness.now_s), harness.now_s, (sample,))
            )
        )
    harness.wait(2.0, ("n1", "n2"))
    harness.obey()


def alarms(harness: ControllerHarness) -> dict[str, dict[str, Any]]:
    reply = harness.ask(Query("q", "status"))
    assert reply.done
    return {alarm["what"]: alarm for alarm in reply.data["alarms"]}


def scores(harness: ControllerHarness) -> dict[str, dict[str, Any]]:
    reply = harness.ask(Query("q", "plan-history"))
    assert reply.done
    return {row["workload"]: row for row in reply.data["scores"]}


def distrusted() -> ControllerHarness:
    """Requests take far longer than any model says, for so many cycles."""
    harness = led()
    for _ in range(OVER_CYCLES + 1):
        cycle(harness, GOOD_S)
    assert "prediction-missed" not in alarms(harness)
    for _ in range(OVER_CYCLES + 1):
        cycle(harness, 5.0)
    return harness


@pytest.fixture(scope="module")
def harness() -> ControllerHarness:
    return distrusted()


def test_an_alarm_names_the_application_and_the_wrong_input(harness: ControllerHarness) -> None:
    alarm = alarms(harness)["prediction-missed"]
    assert alarm["subject"] == "shop"
    assert "wrong input: response model" in alarm["detail"]
    assert "web-model-wrong" in alarms(harness)


def test_the_history_has_the_score_of_each_workload(harness: ControllerHarness) -> None:
    shop = scores(harness)["shop"]
    assert (shop["trusted"], shop["policy"], shop["cause"]) == (False, "apc", "response model")
    assert shop["over"] >= OVER_CYCLES
    assert scores(harness)["late"]["trusted"]


def test_nothing_is_moved_or_suspended_for_it(harness: ControllerHarness) -> None:
    deciding = harness.controller.deciding
    held = sum(
        entry.allotments[0].cpu_mhz
        for entry in harness.controller.cluster.replicas["shop"].values()
        if entry.phase is JobPhase.RUNNING
    )
    seen = deciding.request(harness.now_s, True).snapshot
    assert ConstraintKind.KEEP in {each.kind for each in seen.constraints if each.members == ("shop",)} or (
        seen.workloads.fixed[[name.startswith("shop#") for name in seen.workloads.names]].any()
    )
    assert seen.web.max_mhz.tolist() == pytest.approx([held])
    between = deciding.request(harness.now_s, False).snapshot
    assert between.web.max_mhz.tolist() == [2 * FULL_MHZ]


def test_it_is_trusted_again_when_predictions_hold() -> None:
    harness = distrusted()
    for _ in range(4):
        cycle(harness, GOOD_S)
    assert scores(harness)["shop"]["trusted"]
    assert "prediction-missed" not in alarms(harness)


def test_a_workload_that_is_gone_has_no_score() -> None:
    harness = led()
    cycle(harness, GOOD_S)
    cycle(harness, GOOD_S)
    assert set(scores(harness)) >= {"shop", "late"}
    harness.controller.cluster.active.pop("late")
    cycle(harness, GOOD_S)
    assert "late" not in scores(harness)
