"""What decisions promised beside what came of it, and what jobs of a class are taken to need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.decide.decision_log import DecisionLog
from daemons.controller.views.decisions import decision_view
from daemons.decision import pipeline
from daemons.decision.gains import columns_of, gains_of, with_measured
from daemons.store.bodies import from_body, to_body
from daemons.values.records.cluster import Gain
from daemons.values.settings import Automation, PolicyChoice
from shared.policy_api.decision import Outlook, Slowed
from shared.ports import effects as fx
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import ApprovePlan, DryRun, Query, SubmitJob, SubmitWeb
from shared.values.actions import GuestChange
from shared.values.jobs import Job
from shared.values.web_app import Flow, FlowSample, WebApp
from tests.support.controller_harness import ControllerHarness, job
from tests.support.store_samples import decision_record


class Prophet(ControllerHarness):
    """A harness whose policy predicts `outlook` at every cycle, and changes nothing unless it `acts`."""

    outlook: Outlook | None = None
    acts = True

    def answer(self, effect: fx.Compute) -> None:
        """First-fit's decision, with the prediction."""
        outcome = pipeline.run(effect.request)
        placement = replace(outcome.placement, outlook=self.outlook)
        if not self.acts:
            placement = replace(placement, changes=())
        computed = fx.Computed(effect.compute_id, replace(outcome, placement=placement))
        self.carry(self.controller.handle(computed, self.now_s))


def foretold(**utilities: tuple[float, float, float]) -> Outlook:
    """now, predicted, best by name."""
    now, predicted, best = zip(*utilities.values(), strict=True)
    return Outlook(tuple(utilities), now, predicted, best, 0.25)


def harness_at_cycles(**settings: Any) -> Prophet:
    harness = Prophet(placement=PolicyChoice("first-fit"), decide_s=100.0, **settings)
    harness.lead()
    return harness


def plan(harness: ControllerHarness, number: int | str = "") -> dict[str, Any]:
    reply = harness.ask(Query("q", "plan", f"{number}"))
    assert reply.done, reply.detail
    decision: dict[str, Any] = reply.data["decision"]
    return decision


def cycle(harness: ControllerHarness, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
    """Let the next cycle come."""
    harness.wait(harness.timers["decide"] - harness.now_s, reporting=nodes)
    harness.obey()


# --- columns ----------------------------------------------------------------------------------------------------------


def test_figures_that_are_not_finite_are_left_out_and_the_rest_is_rounded() -> None:
    names = ("a", "b", "c", "d")
    outlook = Outlook(names, (0.1, -math.inf, 0.3, 0.4), (0.123456789, 0.2, math.nan, 0.4), (1.0, 1.0, 1.0, 0.5))
    gains = gains_of(outlook)
    assert tuple(gains) == (Gain("a", 0.1, 0.1235, 1.0), Gain("d", 0.4, 0.4, 0.5))
    assert gains[-1:] == (Gain("d", 0.4, 0.4, 0.5),)
    assert not gains_of(None)


def test_rows_and_columns_are_the_same() -> None:
    rows = (Gain("a", 0.0, 0.5, 1.0, 0.25), Gain("b", -1.0, 0.0, 0.75))
    assert columns_of(rows) == rows
    assert columns_of(columns_of(rows)) == rows
    # what was predicted is of the workloads that were measured
    assert columns_of(rows).summary()["min"] == {"now": -1.0, "predicted": 0.5, "best": 0.75, "measured": 0.25}
    assert columns_of(rows).summary()["mean"] == {"now": -0.5, "predicted": 0.5, "best": 0.875, "measured": 0.25}
    assert columns_of((rows[1],)).summary()["min"]["predicted"] == 0.0  # nothing was measured yet
    assert columns_of(()).summary()["min"]["now"] is None


@pytest.mark.parametrize("count", [0, 3, 9_000])
def test_a_decision_with_gains_outlives_the_store(count: int) -> None:
    rows = tuple(Gain(f"job-{at}", 0.1 * at, 0.5, 1.0, None if at % 2 else -0.25) for at in range(count))
    record = replace(decision_record(4), gains=rows, level=0.5, measured_s=7.0)
    back = from_body(to_body(replace(record, gains=columns_of(rows))), type(record))
    assert back == record
    assert type(back.gains) is tuple


@pytest.mark.parametrize("count", [1, 3_000])
def test_whom_sharing_slows_outlives_the_store_and_is_shown(count: int) -> None:
    slowed = tuple(Slowed(f"vm{at}", "n07", 1.6, "io", ("vm12", "vm9")) for at in range(count))
    record = replace(decision_record(4), slowed=slowed)
    assert from_body(to_body(record), type(record)) == record
    shown = decision_view(record, 2)
    assert shown["counts"]["slowed"] == count
    assert shown["slowed"][0]["text"] == "n07: slowed 1.6x by io sharing with vm12, vm9"


def test_what_was_measured_of_others_is_left_out() -> None:
    record = replace(decision_record(4), gains=(Gain("a", 0.0, 0.5, 1.0), Gain("b", 0.0, 0.5, 1.0)))
    measured = with_measured(record, {"a": 0.25, "c": 0.5, "b": math.inf}, 50.0)
    assert [gain.measured for gain in measured.gains] == [0.25, None]
    assert measured.measured_s == 50.0


def test_history_replaces_a_decision_in_its_place() -> None:
    history = DecisionLog()
    for number in (1, 2, 3):
        history.add(decision_record(number))
    history.replace(replace(decision_record(2), measured_s=5.0))
    history.replace(decision_record(9))
    assert [(record.number, record.measured_s) for record in history] == [(3, None), (2, 5.0), (1, None)]


# --- one cycle later --------------------------------------------------------------------------------------------------


def test_what_came_of_a_decision_is_put_beside_it_a_cycle_later() -> None:
    """Given a job that gets 1,000 MHz and is due in time, then its utility is measured; a web application's by what
    its balancer says; what is not there any more has none."""
    harness = harness_at_cycles()
    app = WebApp("shop", (Flow("browse", mean_s=0.2, work_mcycles=1.0),), 500, max_mhz=1000.0)
    harness.ask(SubmitWeb("w", app))
    harness.ask(SubmitJob("j", job("a", work=1e6, goal_s=4000.0)))
    harness.ask(SubmitJob("k", job("ends", work=1e4, goal_s=400.0)))
    harness.obey()
    harness.outlook = foretold(a=(0.1, 0.7, 0.75), shop=(0.2, 0.6, 0.9), ends=(0.0, 0.5, 0.5), gone=(0.0, 0.1, 1.0))
    cycle(harness)
    first = harness.controller.deciding.decisions
    assert plan(harness)["measured_at_s"] is None
    assert plan(harness)["level"] == 0.25
    node = harness.controller.cluster.active["ends"].allotments[0].node
    harness.guest(node, "ends#0", GuestChange.ENDED)
    finished_s = harness.now_s
    harness.wait(60.0, reporting=["n1", "n2"])
    say = WebReport("shop", 1, harness.now_s, (FlowSample("browse", 20.0, served=10, mean_s=0.05),))
    harness.feed(fx.Received(None, "web.shop", say))
    cycle(harness)
    view = plan(harness, first)
    assert view["measured_at_s"] == harness.now_s
    measured = {gain["workload"]: gain["measured"] for gain in view["gains"]}
    assert measured["shop"] == pytest.approx(0.75)
    assert measured["ends"] == pytest.approx((400.0 - finished_s) / 400.0)
    # no CPU time was reported of the job: all its work is left, at the 1,000 MHz that it gets
    assert measured["a"] == pytest.approx((4000.0 - (harness.now_s + 1000.0)) / 4000.0, abs=1e-6)
    assert measured["gone"] is None
    assert view["utility"]["min"]["measured"] == min(value for value in measured.values() if value is not None)
    stored = harness.store.get(("decision", f"{first:012d}"))
    assert [gain.measured for gain in stored.gains] == [measured[gain.workload] for gain in stored.gains]
    row = next(row for row in harness.ask(Query("q", "plan-history")).data["decisions"] if row["number"] == first)
    assert row["utility"] == view["utility"]


def test_a_cycle_that_was_missed_measures_nothing() -> None:
    """What is found two cycles later is not what was predicted for one."""
    harness = harness_at_cycles()
    harness.ask(SubmitJob("j", job("a", goal_s=4000.0)))
    harness.obey()
    harness.outlook = foretold(a=(0.1, 0.7, 0.75))
    cycle(harness)
    first = harness.controller.deciding.decisions
    harness.compute = False
    cycle(harness)
    harness.feed(fx.Computed(harness.computations[-1].compute_id, None, "out of time"))
    harness.compute = True
    cycle(harness)
    assert plan(harness, first)["measured_at_s"] is None


def test_a_decision_that_waits_for_approval_can_still_be_approved() -> None:
    harness = harness_at_cycles(automation=Automation.CONFIRM, hold_starts=True)
    harness.compute = False
    harness.ask(SubmitJob("j", job("a", goal_s=4000.0)))
    harness.outlook = foretold(a=(0.1, 0.7, 0.75))
    harness.compute = True
    harness.feed(fx.Computed(harness.computations[-1].compute_id, None, "out of time"))
    cycle(harness)
    waiting = harness.controller.deciding.pending
    assert waiting is not None
    before = harness.controller.deciding.decisions
    harness.wait(95.0, reporting=["n1", "n2"])
    view = harness.ask(Query("q", "plan")).data
    assert (view["waiting_approval"], view["decision"]["number"]) == (True, before)
    harness.acts = False  # the next decision holds nothing: this one still waits, with what was measured
    cycle(harness)
    view = harness.ask(Query("q", "plan")).data
    assert (view["waiting_approval"], view["decision"]["measured_at_s"]) == (True, harness.now_s)
    assert harness.ask(ApprovePlan("ok", before)).done


def test_decisions_between_cycles_promise_nothing_and_a_new_leader_has_what_was_promised() -> None:
    harness = harness_at_cycles()
    harness.outlook = foretold(a=(0.1, 0.7, 0.75))
    harness.ask(SubmitJob("j", job("a", goal_s=4000.0)))
    assert plan(harness)["gains"] == []
    assert plan(harness)["utility"] is None
    cycle(harness)
    after = ControllerHarness(store=harness.store).lead()
    gains = plan(after)["gains"]
    assert gains == [{"workload": "a", "now": 0.1, "predicted": 0.7, "best": 0.75, "measured": None}]


def test_a_dry_run_promises_too() -> None:
    harness = harness_at_cycles()
    harness.outlook = foretold(a=(0.1, 0.7, 0.75))
    harness.ask(DryRun("d"))
    assert harness.replies[-1].data["decision"]["gains"][0]["predicted"] == 0.7


# --- jobs of a class --------------------------------------------------------------------------------------------------


def finish(harness: ControllerHarness, number: int, cpu_s: float, lasted_s: float, **fields: Any) -> None:
    """Have a job of class `render` run on a node of 1,000 MHz a core and end."""
    name = f"r{number}"
    harness.ask(SubmitJob(name, job(name, memory_mib=500 + number, job_class="render", **fields)))
    harness.obey()
    node = harness.controller.cluster.active[name].allotments[0].node
    harness.wait(lasted_s, reporting=["n1", "n2"])
    harness.change(node, f"{name}#0", cpu_time_s=cpu_s)
    harness.report(node)
    harness.guest(node, f"{name}#0", GuestChange.ENDED, number)


def classless(name: str, **fields: Any) -> Job:
    return Job(name, (), job_class="render", **fields)


def told(harness: ControllerHarness, name: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] = harness.ask(Query("q", "job", name)).data["job"]
    return row


def test_a_job_without_stages_gets_those_of_its_class() -> None:
    """Given five jobs that used 100 s of CPU in 200 s each, then another one is taken to need 100,000 Mcycles; its
    speed is at least what the others declared, its memory the most of theirs."""
    harness = ControllerHarness(placement=PolicyChoice("first-fit"), decide_s=10_000.0).lead()
    refused = harness.ask(SubmitJob("x", classless("x")))
    assert (refused.code, refused.detail.split(" ")[0]) == ("no-profile", "0")
    for number in range(1, 6):
        finish(harness, number, 100.0, 200.0)
        assert told(harness, f"r{number}")["profile"] == "declared"
    assert harness.ask(SubmitJob("x", classless("x", goal_s=harness.now_s + 900.0))).done
    assert harness.ask(SubmitJob("x", classless("x", goal_s=harness.now_s + 900.0))).done
    row = told(harness, "x")
    assert row["profile"] == "estimated from 5 jobs, ±0 %"
    (stage,) = row["spec"]["stages"]
    assert stage == {"work_mcycles": 100_000.0, "max_mhz": 1000.0, "min_mhz": 0.0, "memory_mib": 505}
    after = ControllerHarness(store=harness.store).lead()
    assert told(after, "x")["profile"] == row["profile"]
    assert after.ask(SubmitJob("y", classless("y"))).done  # what was measured is in the store


def test_the_speed_of_jobs_whose_profile_is_itself_estimated_is_the_highest_that_was_seen() -> None:
    """Given a job of 80 s of CPU in the first 100 s and 30 in the next 50, then it was seen at 800 MHz."""
    harness = ControllerHarness(placement=PolicyChoice("first-fit"), decide_s=100.0).lead()
    harness.ask(SubmitJob("r", job("r", job_class="render")))
    harness.obey()
    node = harness.controller.cluster.active["r"].allotments[0].node
    harness.change(node, "r#0", cpu_time_s=80.0)
    harness.wait(100.0, reporting=["n1", "n2"])
    harness.change(node, "r#0", cpu_time_s=110.0)
    harness.wait(50.0, reporting=["n1", "n2"])
    harness.guest(node, "r#0", GuestChange.ENDED)
    entry = harness.controller.cluster.jobs["r"]
    assert entry.measured_mcycles == pytest.approx(110_000.0)
    assert entry.measured_mhz == pytest.approx(800.0)
    assert told(harness, "r")["profile"] == "declared"
