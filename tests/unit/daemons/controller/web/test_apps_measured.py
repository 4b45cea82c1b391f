"""What is measured of web applications, what is learnt from it, and what decisions see of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.controller.state.web_app import Measured, WebEntry, flow_utility, utility_of
from daemons.models.web_utility import app_utilities
from daemons.values.settings import PolicyChoice
from shared.policy_api.snapshot import Snapshot
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import Query, RemoveWeb, SubmitJob, SubmitWeb
from shared.values.jobs import Constraint, ConstraintKind, Preference, PreferenceKind, Rules
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support.controller_harness import ControllerHarness, job

BROWSE = Flow("browse", mean_s=0.2, work_mcycles=10.0, t_min_s=0.01)
USER = topology.web_user("shop")


def shop(*flows: Flow, name: str = "shop", least: int = 1, most: int = 3, **fields: Any) -> WebApp:
    return WebApp(name, flows or (BROWSE,), 1000, max_mhz=1000.0, min_instances=least, max_instances=most, **fields)


def harness_with(app: WebApp, **settings: Any) -> ControllerHarness:
    harness = ControllerHarness(placement=PolicyChoice("first-fit"), **settings).lead()
    assert harness.ask(SubmitWeb(f"submit-{app.name}", app)).done
    harness.obey()
    return harness


def say(harness: ControllerHarness, seq: int, *flows: FlowSample, sender: str = USER, app: str = "shop") -> None:
    """A balancer's report, as it comes in: on the queue that needs no acknowledgement."""
    harness.feed(fx.Received(None, sender, WebReport(app, seq, harness.now_s, flows)))


def entry(harness: ControllerHarness, app: str = "shop") -> WebEntry:
    return harness.controller.cluster.web[app]


def snapshot(harness: ControllerHarness, at_cycle: bool = True) -> Snapshot:
    return harness.controller.deciding.builder.build(harness.now_s, at_cycle)


def view(harness: ControllerHarness, app: str = "shop") -> dict[str, Any]:
    reply = harness.ask(Query("q", "web-app", app))
    assert reply.done, reply.detail
    row: dict[str, Any] = reply.data["app"]
    return row


# --- reports ----------------------------------------------------------------------------------------------------------


def test_only_what_is_newer_counts() -> None:
    harness = harness_with(shop())
    say(harness, 5, FlowSample("browse", 10.0, served=100, mean_s=0.1))
    say(harness, 5, FlowSample("browse", 10.0, served=900, mean_s=0.9))
    say(harness, 4, FlowSample("browse", 10.0, served=900, mean_s=0.9))
    assert entry(harness).measured(BROWSE) == Measured(10.0, 10.0, 10.0, 0.0, 0, 0.1, None)


@pytest.mark.parametrize(
    ("sender", "app"), [("agent.n1", "shop"), ("web.shop", "other"), ("operator.x", "shop"), ("web.other", "other")]
)
def test_who_may_not_speak_for_an_application_is_refused(sender: str, app: str) -> None:
    harness = harness_with(shop())
    say(harness, 1, FlowSample("browse", 10.0, served=100), sender=sender, app=app)
    (refused,) = harness.happenings("message-refused")
    assert refused.subject == sender
    assert entry(harness).measured_at_s is None


def test_the_queue_of_reports_takes_what_applications_say() -> None:
    assert (topology.REPORTS, "web.#") in topology.report_queue("a").bindings


def test_a_queue_that_is_worked_off_is_not_counted_twice() -> None:
    harness = harness_with(shop())
    samples = (
        FlowSample("browse", 10.0, offered=100, served=60, queued=40),
        FlowSample("browse", 10.0, offered=20, served=60),
    )
    for number, sample in enumerate(samples, 1):
        say(harness, number, sample)
        harness.now_s += 10.0
    found = entry(harness).measured(BROWSE)
    assert found is not None
    assert (found.offered_per_s, found.served_per_s) == (6.0, 6.0)


def test_a_minute_of_samples_is_taken_together() -> None:
    """Mean times weigh with the requests; a flow that is not known is left out."""
    harness = harness_with(shop())
    say(harness, 1, FlowSample("browse", 20.0, served=1))
    harness.now_s += 100.0
    samples = (
        FlowSample("browse", 20.0, offered=110, served=100, rejected=10, mean_s=0.1, percentile_s=0.2),
        FlowSample("browse", 20.0, served=300, queued=7, mean_s=0.3, percentile_s=0.4),
    )
    for number, sample in enumerate(samples, 2):
        say(harness, number, sample, FlowSample("other", 20.0, served=5))
        harness.now_s += 20.0
    found = entry(harness).measured(BROWSE)
    assert found is not None
    assert (found.window_s, found.offered_per_s, found.served_per_s, found.rejected_per_s) == (40.0, 10.25, 10.0, 0.25)
    assert found.queued == 7
    assert found.mean_s == pytest.approx(0.25)
    assert found.percentile_s == pytest.approx(0.35)


@pytest.mark.parametrize(
    "sample",
    [
        FlowSample("browse", 10.0, served=1 << 62, mean_s=0.1),
        FlowSample("browse", 10.0, offered=1 << 62),
        FlowSample("browse", 1e-300, served=1),
        FlowSample("browse", 1e300, served=1),
        FlowSample("browse", 10.0, served=1, mean_s=1e308),
        FlowSample("browse", 10.0, served=1, percentile_s=1e308),
    ],
)
def test_a_sample_that_cannot_be_is_left_out(sample: FlowSample) -> None:
    """Whatever a balancer says, views can be shown and windows stored."""
    harness = harness_with(shop())
    say(harness, 1, sample)
    assert entry(harness).measured_at_s is None
    say(harness, 2, FlowSample("browse", 1e-3, served=10**12, mean_s=1e9, percentile_s=1e9))
    assert view(harness)["utility"] == -9.0
    assert np.isfinite(snapshot(harness).flows.load_mhz).all()


def test_nothing_is_worse_than_no_answer() -> None:
    """A goal that nothing can meet: its utility is shown and stored, and finite."""
    harness = harness_with(shop(Flow("browse", mean_s=1e-300, work_mcycles=1.0)))
    say(harness, 1, FlowSample("browse", 10.0, served=1, mean_s=1e9))
    assert view(harness)["utility"] == -9.0


@pytest.mark.parametrize(
    ("flow", "measured", "utility"),
    [
        (Flow("f", mean_s=0.2), {"mean_s": 0.05}, 0.75),
        (Flow("f", mean_s=0.2), {"mean_s": 0.2}, 0.0),
        (Flow("f", mean_s=0.2), {"mean_s": 0.6}, -2.0),
        (Flow("f", percentile=0.9, percentile_s=1.0), {"mean_s": 9.0, "percentile_s": 0.25}, 0.75),
        (Flow("f", mean_s=0.2), {"mean_s": None, "served_per_s": 0.0}, -9.0),
        (Flow("f", mean_s=0.2), {"mean_s": None, "served_per_s": 0.0, "window_s": 5.0}, -9.0),  # however long that was
        (Flow("f", mean_s=0.2), {"mean_s": 500.0}, -9.0),
        (Flow("f", mean_s=0.2), {"mean_s": None, "served_per_s": 0.0, "offered_per_s": 0.0}, None),
        (Flow("f", throughput_per_s=20.0), {}, 0.0),  # all that was asked for: more could be answered
        (Flow("f", throughput_per_s=5.0), {}, 0.5),
        (Flow("f", throughput_per_s=20.0), {"queued": 3}, -1.0),
        (Flow("f", throughput_per_s=20.0), {"rejected_per_s": 1.0, "served_per_s": 0.0}, -9.0),
    ],
)
def test_measured_utility(flow: Flow, measured: dict[str, Any], utility: float | None) -> None:
    given: dict[str, Any] = {
        "window_s": 60.0,
        "offered_per_s": 10.0,
        "served_per_s": 10.0,
        "rejected_per_s": 0.0,
        "queued": 0,
        "mean_s": 0.1,
        "percentile_s": None,
    }
    found = flow_utility(flow, Measured(**(given | measured)))
    assert found == (utility if utility is None else pytest.approx(utility))


def test_an_application_is_as_happy_as_its_unhappiest_flow_with_its_importance() -> None:
    flows = (BROWSE, Flow("buy", mean_s=1.0, work_mcycles=50.0))
    harness = harness_with(shop(*flows, importance=2.0))
    assert utility_of(entry(harness)) is None
    say(harness, 1, FlowSample("browse", 10.0, served=10, mean_s=0.1), FlowSample("buy", 10.0, served=1, mean_s=0.2))
    assert utility_of(entry(harness)) == pytest.approx(0.25)
    say(harness, 2, FlowSample("buy", 10.0, served=99, mean_s=2.0))
    assert utility_of(entry(harness)) == pytest.approx(2.0 * (1.0 - (0.2 + 99 * 2.0) / 100))


# --- counters that are read -------------------------------------------------------------------------------------------


class ScrapeHarness(ControllerHarness):
    """Keeps the scrapes that are asked for."""

    def __init__(self, **settings: Any) -> None:
        self.scrapes: list[fx.Scrape] = []
        super().__init__(**settings)

    def carry(self, effects: list[fx.Effect]) -> None:
        self.scrapes += [effect for effect in effects if isinstance(effect, fx.Scrape)]
        super().carry(effects)


def scraped() -> ScrapeHarness:
    harness = ScrapeHarness()
    harness.lead()
    flows = (Flow("buy", percentile=0.95, percentile_s=1.0), BROWSE)
    assert harness.ask(SubmitWeb("r", shop(*flows, metrics_url="http://lb:9100/metrics"))).done
    return harness


def test_counters_are_read_every_few_seconds_one_answer_at_a_time() -> None:
    harness = scraped()
    (asked,) = harness.scrapes
    assert asked == fx.Scrape("shop", "http://lb:9100/metrics", (("buy", 0.95),))
    harness.wait(20.0)
    assert len(harness.scrapes) == 1  # no answer yet
    harness.feed(fx.Scraped("shop", harness.now_s, (FlowSample("browse", 5.0, served=50, mean_s=0.05),)))
    harness.wait(10.0)
    assert len(harness.scrapes) == 2
    assert utility_of(entry(harness)) == pytest.approx(0.75)
    harness.wait(60.0)
    assert len(harness.scrapes) > 2  # an answer that is lost does not stop it for ever
    harness.ask(RemoveWeb("x", "shop"))
    number = len(harness.scrapes)
    harness.wait(60.0)
    assert len(harness.scrapes) == number
    assert "scrape" not in harness.timers


def test_counters_that_cannot_be_read_are_an_alarm_until_they_can() -> None:
    harness = scraped()
    for _ in range(3):
        harness.feed(fx.Scraped("shop", harness.now_s, error="refused"))
    harness.feed(fx.Scraped("shop", harness.now_s, error="no answer for 35 s"))
    assert view(harness)["scrape_error"] == "no answer for 35 s"
    assert [event.detail for event in harness.happenings("web-not-measured")] == ["refused"]
    found = [alarm for alarm in harness.ask(Query("q", "status")).data["alarms"] if alarm["what"] == "web-not-measured"]
    assert [alarm["subject"] for alarm in found] == ["shop"]
    harness.feed(fx.Scraped("shop", harness.now_s))
    assert len(harness.happenings("web-measured-again")) == 1
    assert view(harness)["scrape_error"] == ""


def test_a_new_leader_goes_on_reading() -> None:
    harness = scraped()
    after = ScrapeHarness(store=harness.store)
    after.lead()
    assert [scrape.app for scrape in after.scrapes] == ["shop"]


# --- what requests cost -----------------------------------------------------------------------------------------------


def worked(harness: ControllerHarness, minutes: int, mcycles: float, rates: Any) -> None:
    """Let one instance work so much per request while the balancer reports; the rate changes from minute to minute."""
    node = harness.controller.cluster.replicas["shop"][0].allotments[0].node
    used_s = 0.0
    for minute in range(minutes):
        for _ in range(3):
            harness.now_s += 20.0
            served = round(20.0 * rates(minute))
            used_s += served * mcycles / 1000.0  # nodes of 1,000 MHz a core
            harness.change(node, "shop#0", cpu_time_s=used_s)
            for name in harness.nodes:
                harness.report(name)
            say(
                harness,
                int(1000 * harness.now_s),
                FlowSample("browse", 20.0, offered=served, served=served, mean_s=0.1),
            )


def test_work_that_is_not_declared_is_learnt() -> None:
    """Given requests of 12 Mcycles, then the profile says so after a while; before it is unknown."""
    harness = harness_with(shop(Flow("browse", mean_s=0.2)))
    assert view(harness)["profile"] == "unknown"
    worked(harness, 8, 12.0, lambda minute: 10 + 5 * (minute % 4))
    row = view(harness)
    (flow,) = row["flows"]
    assert flow["work_mcycles"] == pytest.approx(12.0, rel=0.02)
    assert row["profile"].startswith("profiled ±")
    assert row["profile"].endswith(" windows")
    assert row["used_mhz"] == pytest.approx(12.0 * 20, rel=0.5)
    columns = snapshot(harness).flows
    assert columns.work_mcycles[0] == flow["work_mcycles"]
    assert columns.load_mhz[0] >= columns.rate_per_s[0] * flow["work_mcycles"]  # with head-room
    # what was learnt outlives the controller
    after = ControllerHarness(store=harness.store).lead()
    assert entry(after).work.flows["browse"].work_mcycles == pytest.approx(12.0, rel=0.02)
    assert entry(harness).factors["browse"].value != 1.0
    assert entry(after).factors["browse"].value == pytest.approx(entry(harness).factors["browse"].value, rel=0.05)


def test_other_flows_are_learnt_anew() -> None:
    harness = harness_with(shop(Flow("browse", mean_s=0.2)))
    worked(harness, 8, 12.0, lambda minute: 10 + 5 * (minute % 4))
    assert entry(harness).work.flows
    harness.ask(SubmitWeb("r2", shop(Flow("buy", mean_s=0.2))))
    assert not entry(harness).work.flows
    assert entry(harness).measured_at_s is None


# --- what decisions see -----------------------------------------------------------------------------------------------


def test_the_columns_of_web_applications() -> None:
    flows = (
        BROWSE,
        Flow("buy", percentile=0.9, percentile_s=2.0, work_mcycles=40.0, model=ModelForm.MULTI_SERVER),
        Flow("feed", throughput_per_s=50.0, work_mcycles=1.0),
    )
    harness = harness_with(shop(*flows, least=2, importance=3.0))
    harness.ask(SubmitJob("j", job("a")))
    harness.ask(SubmitWeb("s", shop(name="second", least=0, most=1)))
    harness.obey()
    say(harness, 1, FlowSample("browse", 10.0, offered=200, served=200), FlowSample("buy", 10.0, served=20))
    seen = snapshot(harness)
    web, columns = seen.web, seen.flows
    assert (web.names, web.min_instances.tolist(), web.max_instances.tolist()) == (("shop", "second"), [2, 0], [3, 1])
    assert (web.max_mhz.tolist(), web.importance.tolist()) == ([3000.0, 1000.0], [3.0, 1.0])
    assert columns.names == ("browse", "buy", "feed", "browse")
    assert columns.app.tolist() == [0, 0, 0, 1]
    assert columns.goal.tolist() == [0.2, 2.0, 50.0, 0.2]
    assert columns.percentile.tolist() == [0.0, 0.9, 0.0, 0.0]
    assert columns.throughput.tolist() == [False, False, True, False]
    assert columns.model[1] is ModelForm.MULTI_SERVER
    assert columns.rate_per_s.tolist() == [20.0, 2.0, 0.0, 0.0]
    load_mhz = 280.0 / 0.98  # of all flows, which share the CPU; a part of it cannot be used
    assert columns.load_mhz.tolist() == pytest.approx([load_mhz, load_mhz, load_mhz, 0.0])
    assert columns.work_mcycles.tolist() == columns.c_mhz_s.tolist() == [10.0, 40.0, 1.0, 10.0]
    rows = dict(zip(seen.workloads.names, seen.workloads.app.tolist(), strict=True))
    assert rows == {"shop#0": 0, "shop#1": 0, "shop#2": 0, "a": -1, "second#0": 1}
    assert set(seen.workloads.stages[seen.workloads.app >= 0].tolist()) == {0}
    assert seen.costs.start_s == 3.6
    assert (seen.at_cycle, snapshot(harness, False).at_cycle) == (True, False)


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f", mean_s=0.2, t_min_s=0.05),
        Flow("f", percentile=0.9, percentile_s=0.5),
        Flow("f", throughput_per_s=40.0),
        Flow("f", mean_s=0.2, t_min_s=0.2),
    ],
)
@pytest.mark.parametrize("rate", [0.0, 30.0])
def test_unknown_work_asks_for_what_the_instances_can_take(flow: Flow, rate: float) -> None:
    """The application is just about on its goal with all of its CPU, and below with less."""
    harness = harness_with(shop(flow))
    if rate:
        say(harness, 1, FlowSample("f", 10.0, offered=int(10 * rate)))
    seen = snapshot(harness)
    (utility,) = app_utilities(seen.web, seen.flows, 1000.0)
    values = utility.utility(np.array([500.0, 1500.0, 2900.0, 3000.0]))
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0.0).all()
    assert values[-1] <= 0.9


def test_a_removed_application_is_not_seen() -> None:
    harness = harness_with(shop())
    harness.ask(RemoveWeb("x", "shop"))
    seen = snapshot(harness)
    assert (seen.web.names, seen.flows.names, seen.workloads.names) == ((), (), ())


def test_constraints_of_jobs_and_applications() -> None:
    harness = harness_with(shop(rules=Rules(anti_affinity="db", no_migration=True)))
    harness.ask(SubmitJob("a", job("a", rules=Rules(node_affinity=("n1", "n2"), affinity="pair"))))
    harness.ask(SubmitJob("b", job("b", rules=Rules(node_anti_affinity=("n2",), affinity="pair", anti_affinity="db"))))
    harness.ask(SubmitJob("c", job("c")))
    assert set(snapshot(harness).constraints) == {
        Constraint(ConstraintKind.KEEP, ("shop",)),
        Constraint(ConstraintKind.PIN, ("a",), ("n1", "n2")),
        Constraint(ConstraintKind.FORBID, ("b",), ("n2",)),
        Constraint(ConstraintKind.TOGETHER, ("a", "b")),
        Constraint(ConstraintKind.APART, ("b", "shop")),
    }


def test_scopes_named_workloads_and_preferences_become_constraints() -> None:
    of, prefer = ConstraintKind, PreferenceKind
    soft = tuple(
        Preference(kind, target, weight=5) for kind, target in ((prefer.LABEL_AFFINITY, "ssd"), (prefer.AFFINITY, "b"))
    )
    rules = {
        "a": Rules(anti_affinity="db", anti_affinity_scope="rack", vm_affinity=("b", "nobody"), preferred=soft),
        "b": Rules(
            anti_affinity="db", vm_anti_affinity=("b", "c"), label_affinity=("new", "ssd"), label_anti_affinity=("old",)
        ),
        "c": Rules(
            preferred=(Preference(prefer.ANTI_AFFINITY, "db", "zone", 9), Preference(prefer.NODE_ANTI_AFFINITY, "n1"))
        ),
    }
    harness = harness_with(shop(rules=Rules(preferred=(Preference(prefer.ANTI_AFFINITY, "db", "zone", 9),))))
    for name in rules:
        assert harness.ask(SubmitJob(name, job(name))).done
    for name, each in rules.items():  # no node has the labels
        entry = harness.controller.cluster.jobs[name]
        entry.job = replace(entry.job, rules=each)
    assert set(snapshot(harness).constraints) == {
        Constraint(of.APART, ("a",), scope="rack", about=("a", "b")),
        Constraint(of.APART, ("b",), about=("a", "b")),
        Constraint(of.TOGETHER, ("a",), about=("b",)),
        Constraint(of.APART, ("b",)),
        Constraint(of.APART, ("b",), about=("c",)),
        Constraint(of.PIN, ("b",), labels=("new", "ssd")),
        Constraint(of.FORBID, ("b",), labels=("old",)),
        Constraint(of.PIN, ("a",), labels=("ssd",), weight=5),
        Constraint(of.TOGETHER, ("a",), about=("b",), weight=5),
        Constraint(of.FORBID, ("c",), ("n1",), weight=10),
        Constraint(of.APART, ("c", "shop"), scope="zone", weight=9, about=("a", "b", "c", "shop")),
    }


# --- views ------------------------------------------------------------------------------------------------------------


def test_the_view_shows_where_the_instances_are_and_what_they_use() -> None:
    harness = harness_with(shop(least=2))
    for name in harness.nodes:
        harness.report(name)
    harness.now_s += 5.0
    for name in harness.nodes:
        (vm,) = harness.vms[name]
        harness.change(name, vm, cpu_time_s=1.0)
        harness.report(name)
    say(harness, 1, FlowSample("browse", 10.0, served=100, mean_s=0.1))
    harness.now_s += 3.0
    row = view(harness)
    assert (row["instances"], row["running"], sorted(row["nodes"])) == (2, 2, ["n1", "n2"])
    assert (row["utility"], row["measured_age_s"], row["profile"]) == (pytest.approx(0.5), 3.0, "declared")
    assert [replica["state"] for replica in row["seats"]] == ["running", "running", "absent"]
    assert row["seats"][0]["used_mhz"] == pytest.approx(200.0)
    assert row["flows"][0]["measured"]["served_per_s"] == 10.0
    vms = harness.ask(Query("q", "vms")).data["vms"]
    assert {(vm["app"], vm["job"]) for vm in vms} == {("shop", "")}
    status = harness.ask(Query("q", "status")).data
    assert (status["web_apps"], status["jobs"]["total"]) == ({"total": 1, "instances": 2}, 0)
    assert harness.ask(Query("q", "jobs")).data["total"] == 0


def test_too_few_instances_are_an_alarm() -> None:
    harness = ControllerHarness(nodes=["n1"]).lead()
    harness.compute = False
    harness.ask(SubmitWeb("r", shop()))
    alarms = harness.ask(Query("q", "status")).data["alarms"]
    assert [(alarm["what"], alarm["subject"]) for alarm in alarms] == [("web-too-few", "shop")]


def test_reports_of_nodes_still_come_on_the_same_queue() -> None:
    """A report of a node right after one of an application is taken as ever."""
    harness = harness_with(shop())
    node = harness.controller.cluster.nodes["n1"]
    seen = node.report_seq
    say(harness, 1, FlowSample("browse", 10.0))
    assert node.report_seq == seen
    harness.report("n1")
    assert node.report_seq > seen
