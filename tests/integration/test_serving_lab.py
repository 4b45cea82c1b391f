"""A web application on real parts, at length: what fails while instances change, and section 6.4 of phoenixcloud.txt on
16 instances: response time and throughput against the use of CPU and the number of instances, and overload."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pytest

from sim_backend.experiments.coordination.serving import Point, draw_serving
from tests.integration.harness import CLOCK
from tests.integration.private_broker import PrivateBroker
from tests.integration.serving_scene import (
    APP,
    CORE_MHZ,
    SCRAPE_S,
    Scale,
    Serving,
    nobody_lost,
    serving_scene,
)

pytestmark = pytest.mark.full

FIGURES = Path(__file__).parents[2] / "out" / "serving"
DRAIN_S = 4.0
VMS = 16
SCALE = Scale(nodes=VMS, core_frac=0.05, burn_s=0.012, report_s=1.0)
LOADS = (0.08, 0.2, 0.35, 0.5, 0.65, 0.75, 0.85, 0.95, 1.2)  # of what 16 instances can answer
HOLD_S = 8.0
IDLE_S = 4.0
LEVEL_S, LEVELS, GROWN_TO = 3.5, 20, 12  # the load grows to what so many instances carry at 80 %
SETTLED_S = 10.0
OVERLOAD, OVERLOAD_S, QUEUE_MAX = 1.7, 40.0, 40
FLOW = {"name": "page", "mean_s": 2.0}
PROBE_S = 3.0  # of controllers: on a machine that is as busy as this the broker is slow
THRESHOLD = 0.8


# --- what fails while instances change --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(broker: PrivateBroker) -> Iterator[Serving]:
    with serving_scene(broker, controller={"balancer": {"drain_limit_s": DRAIN_S}}) as made:
        made.open_shop((2, 4))
        yield made


def test_haproxy_that_is_killed_comes_back_with_the_instances_and_catches_up(site: Serving) -> None:
    """Lost is what comes while there is none, and what it had; each of these is counted by the client."""
    site.change_shop((2, 4))
    serving, rate, seconds = site.until_serving(2), 20.0, 12.0
    load = site.load(rate, seconds)
    CLOCK.sleep(1.0)
    killed_s = CLOCK.monotonic_s()
    site.proxy.stop()
    site.change_shop((3, 4))
    site.wait_for(lambda: len(site.homes()) == 3, what="a third instance")
    site.until_heard("balancer-unreachable", APP)
    site.proxy.start()
    down_s = CLOCK.monotonic_s() - killed_s
    assert site.in_rotation() >= serving
    site.until_serving(3)
    seen = load.wait()
    assert seen.good + seen.refused + seen.errors == rate * seconds
    assert 0 < seen.errors + seen.refused <= rate * (down_s + 0.5) + 8

    def all_are_counted() -> bool:
        after = site.counted()
        return (after.sent - after.good, after.refused) == (seen.refused, seen.refused)

    site.wait_for(all_are_counted, what=f"{seen.refused} refused to be counted")
    assert nobody_lost(site.load(rate, 2.0).wait())


def test_without_its_control_socket_requests_go_on_and_registration_catches_up(site: Serving) -> None:
    """Those that are stopped meanwhile have had the time that the driver is given; HAProxy's checks find them gone."""
    site.change_shop((2, 3))
    site.until_serving(2, timeout_s=60.0)
    socket = site.proxy.folder / "runtime.sock"
    away = socket.rename(socket.with_suffix(".away"))
    load = site.load(20.0, 14.0)
    before = len(site.heard("balancer-unreachable", APP))
    site.change_shop((3, 3))
    site.wait_for(lambda: len(site.homes()) == 3, what="a third instance")
    site.until_heard("balancer-unreachable", APP, count=before + 1)
    site.change_shop((1, 1))
    site.wait_for(lambda: len(site.homes()) == 1, what="one instance")
    away.rename(socket)
    site.until_serving(1, timeout_s=60.0)
    assert nobody_lost(load.wait())


# --- section 6.4 ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sum:
    """What was seen while there were so many instances."""

    seconds: float = 0.0
    served: int = 0
    offered: int = 0
    spent_s: float = 0.0
    cpu_s: float = 0.0


class Looking(Thread):
    """Looks every second at what HAProxy and the kernel count, by the number of instances at both ends of it."""

    def __init__(self, site: Serving) -> None:
        super().__init__(daemon=True)
        self.site, self.sums = site, dict[int, Sum]()
        self._over = Event()

    def __enter__(self) -> dict[int, Sum]:
        self.start()
        return self.sums

    def __exit__(self, *_problem: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        before, used_s = 0, 0.0
        while not self._over.wait(1.0):
            count, cpu_s = len(self.site.in_rotation()), self.site.lab.cpu_time_s()
            sample = self.site.proxy.driver.measure(APP, CLOCK.monotonic_s())
            if sample is not None and count == before:
                one = self.sums.setdefault(count, Sum())
                one.seconds += sample.window_s
                one.served += sample.served
                one.offered += sample.offered
                one.spent_s += sample.mean_s * sample.served
                one.cpu_s += cpu_s - used_s
            before, used_s = count, cpu_s


@pytest.mark.alone
def test_section_6_4_on_real_parts(broker: PrivateBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_scene(broker, SCALE, {"periods": {"probe_s": PROBE_S}}) as site:
        site.open_shop((2, VMS), lower=2)
        on, settled = adjusted(site)
        site.change_shop((VMS, VMS), flow=FLOW)
        site.until_serving(VMS, timeout_s=60.0)
        checks = idle(site)
        off = [held(site, load * VMS * SCALE.full_per_s) for load in LOADS]
        with capsys.disabled():
            print(table(off, on))
        FIGURES.mkdir(parents=True, exist_ok=True)
        draw_serving(FIGURES, off, on)
        judge_off(off, checks)
        judge_on(on, settled)
        overloaded(site)


def idle(site: Serving) -> float:
    """What part of their CPU instances use for the checks of their health, without load."""
    began_s, used_s = CLOCK.monotonic_s(), site.lab.cpu_time_s()
    CLOCK.sleep(IDLE_S)
    return (site.lab.cpu_time_s() - used_s) / ((CLOCK.monotonic_s() - began_s) * VMS * SCALE.core_frac)


def held(site: Serving, rate: float) -> Point:
    """A load without adjustment: what is answered and used while it lasts, and how long every request of it takes."""
    began_s, used_s, answered = CLOCK.monotonic_s(), site.lab.cpu_time_s(), site.answered()
    load = site.load(rate, HOLD_S)
    CLOCK.sleep(HOLD_S)
    seconds = CLOCK.monotonic_s() - began_s
    use = (site.lab.cpu_time_s() - used_s) / (seconds * VMS * SCALE.core_frac)
    served_per_s = (site.answered() - answered) / seconds
    seen = load.wait()
    assert nobody_lost(seen), seen
    return Point(rate, served_per_s, seen.mean_s, use, float(VMS))


def adjusted(site: Serving) -> tuple[list[Point], Point]:
    """A load that grows, with adjustment: by number of instances, and what holds in the end."""
    most = THRESHOLD * GROWN_TO * SCALE.full_per_s
    loads = []
    with Looking(site) as growing:
        for level in range(LEVELS):
            loads.append(site.load(most * (level + 2) / (LEVELS + 1), LEVEL_S))
            CLOCK.sleep(LEVEL_S)
    loads.append(site.load(most, 2 * SETTLED_S))
    CLOCK.sleep(SETTLED_S)
    with Looking(site) as calm:
        CLOCK.sleep(SETTLED_S - 1.0)
    lost = [seen for load in loads if not nobody_lost(seen := load.wait())]
    assert not lost, f"{site.logs()}\n{lost}"
    count, last = max(calm.items(), key=lambda item: item[1].seconds)
    points = [point(count, one) for count, one in sorted(growing.items()) if one.seconds >= 2.0]
    return points, point(count, last)


def point(count: int, one: Sum) -> Point:
    use = one.cpu_s / (one.seconds * count * SCALE.core_frac)
    return Point(one.offered / one.seconds, one.served / one.seconds, one.spent_s / one.served, use, float(count))


def table(off: Sequence[Point], on: Sequence[Point]) -> str:
    """The figures, one row for each point."""
    lines = ["", "| instances | asked/s | answered/s | CPU use (%) | mean response (ms) |", "|---|---|---|---|---|"]
    for one in (*off, *on):
        numbers = f"{one.offered_per_s:.1f} | {one.served_per_s:.1f} | {100 * one.use_frac:.0f}"
        lines.append(f"| {one.instances:.0f} | {numbers} | {1_000 * one.mean_s:.0f} |")
    return "\n".join(lines)


def judge_off(off: Sequence[Point], checks: float) -> None:
    """Below 80 % use the response time hardly changes; at saturation it is a multiple. Throughput follows use, but for
    that part of it which `checks` take."""
    calm = [one for one in off if one.use_frac <= THRESHOLD]
    at_20 = min(off, key=lambda one: abs(one.use_frac - 0.2))
    worst = max(off, key=lambda one: one.mean_s)
    assert min(one.use_frac for one in off) < 0.15
    assert max(one.mean_s for one in calm) <= 4 * at_20.mean_s
    assert worst.use_frac > 0.9
    assert worst.mean_s >= 2 * at_20.mean_s
    per_use = [one.served_per_s / (one.use_frac - checks) for one in calm]
    assert per_use == pytest.approx([per_use[-1]] * len(calm), rel=0.25)


def judge_on(on: Sequence[Point], settled: Point) -> None:
    """Throughput is linear in instances; in the end as many are there as the rule says."""
    assert on[0].instances == 2.0
    assert on[-1].instances >= GROWN_TO - 2
    per = math.fsum(one.served_per_s * one.instances for one in on) / math.fsum(one.instances**2 for one in on)
    most = on[-1].served_per_s
    assert all(abs(one.served_per_s - per * one.instances) <= 0.15 * most for one in on)
    below = THRESHOLD * (settled.instances - 1) / settled.instances
    assert below - 0.05 <= settled.use_frac <= THRESHOLD + 0.05


def overloaded(site: Serving) -> None:
    """More is asked for than can be answered: what waits and what is turned away is told, as clients saw it, and the
    profiler does not take it for work."""
    site.change_shop((VMS, VMS), flow=FLOW, serving={"queue_max": QUEUE_MAX})
    work_mcycles = site.shop()["flows"][0]["work_mcycles"]
    assert work_mcycles == pytest.approx(SCALE.burn_s / SCALE.core_frac * CORE_MHZ, rel=0.2)
    load = site.load(OVERLOAD * VMS * SCALE.full_per_s, OVERLOAD_S)
    CLOCK.sleep(OVERLOAD_S / 2)
    (halfway,) = site.shop()["flows"]
    assert site.seen().queued > 0
    seen = load.wait()
    CLOCK.sleep(2 * SCRAPE_S)
    assert site.seen().rejected == pytest.approx(seen.refused, rel=0.1)
    assert (seen.good + seen.refused, seen.errors) == (seen.sent, 0)
    assert seen.refused > 0.2 * seen.sent
    site.wait_for(lambda: site.shop()["flows"][0]["profile"] != halfway["profile"], 70.0, "another window")
    assert site.shop()["flows"][0]["work_mcycles"] == pytest.approx(work_mcycles, rel=0.1)
