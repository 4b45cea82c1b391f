"""What balancers measure of the requests that go through them: when they are asked, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.state.web_app import Measured
from daemons.values.settings import BalancerSettings, PolicyChoice
from shared.ports import effects as fx
from shared.protocol.operator_messages import RemoveWeb, SubmitWeb
from shared.values.web_app import Flow, FlowSample, Serving, WebApp
from tests.support.controller_harness import ControllerHarness
from tests.unit.daemons.controller.web.test_apps_measured import BROWSE, entry, harness_with, say, shop, snapshot, view


class MeasureHarness(ControllerHarness):
    """Keeps the questions to the balancer, which is told nothing else of interest."""

    def __init__(self, app: WebApp, **settings: Any) -> None:
        self.asked: list[fx.Measure] = []
        self.seq = 0
        super().__init__(
            balancer=BalancerSettings("test", measures=True), placement=PolicyChoice("first-fit"), **settings
        )
        self.lead()
        assert self.ask(SubmitWeb("s", app)).done
        self.obey()

    def carry(self, effects: list[fx.Effect]) -> None:
        self.asked += [effect for effect in effects if isinstance(effect, fx.Measure)]
        super().carry(effects)

    def passed(self, window_s: float = 5.0, **figures: Any) -> None:
        """The balancer's answer."""
        self.feed(fx.Scraped("shop", self.now_s, (FlowSample("", window_s, **figures),)))


SERVING = Serving(8080, 80)
BUY = Flow("buy", percentile=0.95, percentile_s=1.0)


def test_a_balancer_that_measures_is_asked_every_few_seconds_one_answer_at_a_time() -> None:
    harness = MeasureHarness(shop(serving=SERVING))
    assert harness.asked == [fx.Measure("shop")]
    harness.wait(20.0)
    assert len(harness.asked) == 1
    harness.passed(offered=60, served=50, rejected=10, queued=3, mean_s=0.05)
    harness.wait(10.0)
    assert len(harness.asked) == 2
    assert entry(harness).measured(BROWSE) == Measured(5.0, 12.0, 10.0, 2.0, 3, 0.05, None)
    assert view(harness)["traffic"] == {
        "window_s": 5.0,
        "offered_per_s": 12.0,
        "served_per_s": 10.0,
        "rejected_per_s": 2.0,
        "queued": 3,
        "mean_s": 0.05,
        "percentile_s": None,
    }
    harness.ask(RemoveWeb("x", "shop"))
    asked = len(harness.asked)
    harness.wait(60.0)
    assert len(harness.asked) == asked


@pytest.mark.parametrize(
    ("app", "measures"),
    [
        (shop(serving=SERVING, metrics_url="http://lb:9100/metrics"), True),
        (shop(), True),
        (shop(serving=SERVING), False),
    ],
)
def test_it_is_not_asked_where_others_measure_or_it_does_not(app: WebApp, measures: bool) -> None:
    harness = MeasureHarness.__new__(MeasureHarness)
    harness.asked = []
    ControllerHarness.__init__(harness, balancer=BalancerSettings("test", measures=measures))
    harness.lead()
    harness.ask(SubmitWeb("s", app))
    harness.wait(60.0)
    assert harness.asked == []


@pytest.mark.parametrize("flows", [(), (BROWSE, BUY)])
def test_of_none_or_several_flows_only_the_whole_is_known(flows: tuple[Flow, ...]) -> None:
    """Given a balancer that cannot tell flows apart, then decisions see nothing of it, and views do."""
    app = WebApp("shop", flows, 1000, max_mhz=1000.0, min_instances=1, max_instances=3, serving=SERVING)
    harness = MeasureHarness(app)
    harness.passed(offered=60, served=50, rejected=10, mean_s=0.05)
    assert all(entry(harness).measured(flow) is None for flow in flows)
    assert (snapshot(harness).flows.rate_per_s == 0.0).all()
    assert view(harness)["traffic"]["served_per_s"] == 10.0


def test_what_flows_say_comes_before_what_the_balancer_says_of_all() -> None:
    """Given an application that tells of its flow by itself, then its requests are not counted twice."""
    harness = MeasureHarness(shop(serving=SERVING))
    for seq in range(1, 5):
        harness.now_s += 20.0
        say(harness, seq, FlowSample("browse", 20.0, served=200, mean_s=0.1))
        harness.passed(served=900, mean_s=0.9)
    found = entry(harness).measured(BROWSE)
    assert found is not None
    assert found.served_per_s == 10.0
    assert found.mean_s == pytest.approx(0.1)
    harness.now_s += 61.0
    harness.passed(served=900, mean_s=0.9)
    found = entry(harness).measured(BROWSE)
    assert found is not None
    assert found.mean_s == 0.9


def test_the_whole_of_flows_is_their_sum() -> None:
    harness = harness_with(shop(BROWSE, BUY))
    assert view(harness)["traffic"] is None
    say(
        harness,
        1,
        FlowSample("browse", 10.0, 100, served=90, rejected=10, queued=2, mean_s=0.1),
        FlowSample("buy", 10.0, 10, served=10, rejected=0, queued=1, mean_s=1.1),
    )
    assert entry(harness).traffic == Measured(10.0, 11.0, 10.0, 1.0, 3, 0.2, None)


def test_a_balancer_that_cannot_be_asked_is_an_alarm_until_the_application_is_measured_otherwise() -> None:
    harness = MeasureHarness(shop(serving=SERVING))
    harness.feed(fx.Scraped("shop", harness.now_s, error="no way there"))
    assert [event.detail for event in harness.happenings("web-not-measured")] == ["no way there"]
    assert view(harness)["scrape_error"] == "no way there"
    harness.ask(SubmitWeb("t", shop()))
    assert view(harness)["scrape_error"] == ""


@pytest.mark.parametrize("rejected", [0, 50_000])
def test_requests_that_are_turned_away_cost_nothing(rejected: int) -> None:
    """Given instances that work 20 Mcycles a request, then that is what the profiler finds, however many more were
    rejected or wait."""
    harness = MeasureHarness(shop(Flow("browse", mean_s=0.2), serving=SERVING))
    node = harness.controller.cluster.replicas["shop"][0].allotments[0].node
    used_s = 0.0
    for minute in range(30):
        for _ in range(12):
            harness.now_s += 5.0
            served = 10 + 10 * (minute % 3)
            used_s += served * 20.0 / 1000.0  # nodes of 1,000 MHz a core
            harness.change(node, "shop#0", cpu_time_s=used_s)
            harness.report(node)
            burst = rejected if minute % 5 == 4 else 0
            harness.passed(offered=served + burst, served=served, rejected=burst, queued=burst // 100, mean_s=0.1)
    assert entry(harness).work.flows["browse"].work_mcycles == pytest.approx(20.0, rel=0.02)
