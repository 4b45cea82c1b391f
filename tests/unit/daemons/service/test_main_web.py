"""The real shells with web applications: counters are read over HTTP, reports come over the bus, a page that hangs
holds nothing up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from daemons.drivers.web_metrics import FORGET_S, LANES, Readers
from shared.base.errors import TransientError
from shared.ports import effects as fx
from shared.ports.controller import PowerAnswer
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import WebReport
from shared.protocol.operator_messages import Query, RemoveWeb, SubmitWeb
from shared.runtime.lanes import Lane
from shared.values.nodes import PowerOperation
from shared.values.web_app import Flow, FlowSample, WebApp
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from tests.support.shell_harness import FAST, RealRig, wait_for

APP = WebApp("shop", (Flow("browse", mean_s=0.2, work_mcycles=1.0),), 100, max_mhz=1000.0, min_instances=0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=1)
    made.controller(settings=replace(FAST, scrape_s=0.1))
    yield made
    made.end()


class Site:
    """Serves pages of counters that grow by 10 requests each time; while it hangs it says nothing."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        requests = count(0, 10)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805  self is the site
                self.free.wait(30.0)
                served = next(requests)
                text = f'trimtab_flow_requests_total{{flow="browse",outcome="served"}} {served}\n'
                text += f'trimtab_flow_response_seconds_sum{{flow="browse"}} {0.05 * served}\n'
                text += f'trimtab_flow_response_seconds_count{{flow="browse"}} {served}\n'
                handler.send_response(200)
                handler.end_headers()
                handler.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Not to standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def close(self) -> None:
        self.free.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def view(rig: RealRig, app: str, number: Iterator[int]) -> dict[str, Any]:
    reply = rig.ask(Query(f"q{next(number)}", "web-app", app))
    assert reply.done, reply.detail
    row: dict[str, Any] = reply.data["app"]
    return row


def test_counters_are_read_and_a_page_that_hangs_holds_nothing_up(rig: RealRig, site: Site) -> None:
    """Given one site that answers and one that does not, then the first is measured all the same."""
    hanging, numbers = Site(), count()
    hanging.free.clear()
    try:
        assert rig.ask(SubmitWeb("a", replace(APP, name="hangs", metrics_url=hanging.url))).done
        assert rig.ask(SubmitWeb("b", replace(APP, metrics_url=site.url))).done
        wait_for(lambda: view(rig, "shop", numbers)["utility"] is not None)
        row = view(rig, "shop", numbers)
        assert row["utility"] == pytest.approx(0.75)
        assert row["flows"][0]["measured"]["served_per_s"] > 10.0
        assert view(rig, "hangs", numbers)["utility"] is None
        assert rig.ask(RemoveWeb("c", "shop")).done
        wait_for(lambda: rig.store.get(("web", "shop")) is None)
    finally:
        hanging.close()


def test_reports_come_over_the_bus(rig: RealRig) -> None:
    assert rig.ask(SubmitWeb("a", APP)).done
    balancer = rig.bus.connect("web.shop")
    numbers = count()

    def measured() -> bool:
        number = next(numbers)
        report = WebReport("shop", number + 1, 1.0 * number, (FlowSample("browse", 1.0, served=5, mean_s=0.1),))
        balancer.publish(topology.REPORTS, topology.web_key("shop"), encode(report))
        return view(rig, "shop", numbers)["utility"] is not None

    wait_for(measured)
    assert not rig.lines("undecodable delivery")
    balancer.close()


def test_the_simulated_shell_scrapes_what_it_is_given() -> None:
    """And says what it could not read."""
    loop = ClosedLoop([], LoopSettings())
    shell = loop.controllers[next(iter(loop.controllers))]
    asked: list[fx.Scrape] = []
    heard: list[fx.Input] = []

    def scrape(effect: fx.Scrape, now_s: float) -> tuple[FlowSample, ...]:
        asked.append(effect)
        if now_s > 100.0:
            raise TransientError("gone")
        return (FlowSample("browse", 5.0, served=50, mean_s=0.1),)

    shell.scrape = scrape
    shell.on_input = lambda _, event: heard.append(event) if isinstance(event, fx.Scraped) else None
    loop.run_until(10.0)
    loop.operator.send(SubmitWeb("a", replace(APP, metrics_url="http://lb/metrics")))
    loop.run_until(200.0)
    assert {scraped.error for scraped in heard if isinstance(scraped, fx.Scraped)} == {"", "gone"}
    assert asked[0].url == "http://lb/metrics"
    assert 35 <= len(asked) <= 40


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s


class Reading:
    """The readers of pages with their threads, and what they answer."""

    def __init__(self) -> None:
        self.clock = Seconds()
        self.lanes: list[Lane] = []
        self.answers: list[fx.Scraped] = []
        self.failures: list[BaseException] = []
        self.readers = Readers(self._make, self.answers.append, self.clock)

    def end(self) -> None:
        assert all(lane.close(20.0) for lane in self.lanes)
        assert not self.failures

    def _make(self, name: str) -> Lane:
        self.lanes.append(Lane(name, self.failures.append))
        return self.lanes[-1]


def test_applications_that_came_and_went_leave_no_thread_each() -> None:
    """Given applications that are each read once and then removed, then threads are a fixed number, and nothing is
    kept of the counters but what was read lately."""
    reading = Reading()
    for number in range(1000):
        reading.clock.time_s += 10.0
        reading.readers.scrape(fx.Scrape(f"app{number}", "nowhere:"))
        wait_for(lambda number=number: len(reading.answers) == number + 1)  # type: ignore[misc]

    assert len(reading.lanes) <= LANES
    assert len(reading.readers) <= FORGET_S / 10.0 + 1
    reading.end()


def test_an_application_that_hangs_is_not_asked_twice(site: Site) -> None:
    reading = Reading()
    site.free.clear()
    for _ in range(10):
        reading.readers.scrape(fx.Scrape("shop", site.url))
    site.free.set()
    reading.end()

    assert len(reading.answers) == 1


class SlowPower:
    """A power driver that does nothing until it is let."""

    name, does = "slow", frozenset({PowerOperation.FENCE})

    def __init__(self) -> None:
        self.free = threading.Event()

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        del operation, node, mac_addresses
        assert self.free.wait(20.0)
        return PowerAnswer(False, "no such host")


def test_a_node_has_a_thread_while_it_is_operated_on_and_no_longer(tmp_path: Path) -> None:
    """Given a slow power driver, when nodes are fenced, then each has a thread, and afterwards none."""
    rig = RealRig(tmp_path, nodes=1)
    power = SlowPower()
    shell = rig.controller(power=power).shell
    before = threading.active_count()
    for node in ("gone1", "gone2", "gone1"):
        shell.ask(lambda node=node: shell._carry_out([fx.Power(node, PowerOperation.FENCE)]))  # type: ignore[misc]
    wait_for(lambda: threading.active_count() == before + 2)
    power.free.set()

    wait_for(lambda: threading.active_count() == before)
    assert len(rig.lines("power done")) == 3
    rig.end()
