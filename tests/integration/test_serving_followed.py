"""A web application on real programs whose load changes twofold, beside jobs: how each side fares, second by second, as
clients and the kernel see it; and the same case in the simulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean

import pytest

from sim_backend.loop.satisfaction import web_below
from tests.integration.followed_load import (
    NODES,
    Case,
    Reading,
    Second,
    counting,
    figures,
    measured,
    part,
    read,
    simulated,
    table,
)
from tests.integration.haproxy_scene import Asked
from tests.integration.harness import CLOCK
from tests.integration.private_broker import PrivateBroker
from tests.integration.serving_scene import CORE_MHZ, Scale, Serving, serving_scene

pytestmark = pytest.mark.full

SCALE = Scale(nodes=NODES, core_frac=0.27, burn_s=0.002, report_s=1.0, shared_cpu=True)
BEYOND_S = 0.0003  # CPU time of a request beside what it burns
T_MIN_S = 0.03  # a node that has had its part of 100 ms waits for the next
LOW, HIGH = 0.25, 0.5
JOBS = tuple(f"job-{row}" for row in range(NODES))
CASE = Case(
    request_mcycles=(SCALE.burn_s + BEYOND_S) / SCALE.core_frac * CORE_MHZ,
    mean_s=0.3,
    t_min_s=T_MIN_S,
    job_mcycles=1_500.0 * CORE_MHZ,
    within_s=4_500.0,
    phases=((LOW, 120.0), (HIGH, 120.0), (LOW, 120.0), (HIGH, 120.0), (LOW, 120.0)),
)
STARTED_S = 2.5 * CASE.decide_s
QUEUE_MAX = 5_000  # nobody is turned away
BEFORE_S = 40.0  # at the load of the first phase
NOTED_S = 60  # between looks at the history, which has the last 200 decisions
BELOW_MAX = 0.1
USED_MIN = 0.97
MOVED = 1.5  # so many times as much the application has at the second load, which is twice the first
WORK_OFF = 0.15
CONTROLLER = {
    "periods": {
        "web_adjust_s": CASE.adjust_s,
        "scrape_s": CASE.scrape_s,
        "decide_s": CASE.decide_s,
        "report_s": CASE.report_s,
    },
    "timeouts": {"decide_limit_s": 20.0},
    "policies": {"placement": "apc"},
}


@pytest.mark.alone
def test_the_load_is_followed_on_real_programs(broker: PrivateBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the time after the first 60 s of each change the application is below for 10 % at most; nobody is lost.

    The jobs are below for most of it, in both worlds, though they have all the CPU that requests leave: head-room is
    theirs while no request wants it."""
    with serving_scene(broker, SCALE, CONTROLLER) as site:
        real = followed(site, CASE)
    worlds = {"real": real.seconds, "simulator": simulated(CASE)}
    lost = [one for one in real.asked if one.status != 200]
    with capsys.disabled():
        print(table(CASE, worlds))
        print(f"requests: {len(real.asked)}, lost: {len(lost)}; decisions: {dict(real.decisions)}")
        print(f"Mcycles a request: {real.estimated_mcycles:.2f} estimated, {real.true_mcycles:.2f} used")
        print(f"response time, measured over modelled: {real.response_factor:.2f}")
    assert not lost, f"such as {lost[:3]}"
    assert real.decisions["redistribution"] >= len(CASE.phases)
    low, high, *_ = figures(CASE, real.seconds)
    assert high.web_mhz > MOVED * low.web_mhz
    assert real.estimated_mcycles == pytest.approx(real.true_mcycles, rel=WORK_OFF)
    for name, seconds in worlds.items():
        every = [one for of_phase in counting(CASE, seconds) for one in of_phase]
        assert part(every, web_below) <= BELOW_MAX, name
        assert fmean(one.used_frac for one in every) >= USED_MIN, name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of each second, all requests, how many decisions each policy made, what a request takes as the
    controller estimates it and as the kernel counts it, and how its response times compare with their model."""

    seconds: list[Second]
    asked: tuple[Asked, ...]
    decisions: Counter[str]
    estimated_mcycles: float
    true_mcycles: float
    response_factor: float


def followed(site: Serving, case: Case) -> Outcome:
    """Run the case."""
    flow = {
        "name": case.flow.name,
        "mean_s": case.mean_s,
        "t_min_s": case.t_min_s,
        "work_mcycles": case.request_mcycles,
        "model": "processor-sharing",
    }
    site.open_pool_shop((NODES, NODES), flow, serving={"queue_max": QUEUE_MAX})
    submitted_s = {}
    for job in JOBS:
        submitted_s[job] = CLOCK.monotonic_s()
        site.burn(job, case.job_mcycles, case.within_s)
    site.wait_for(lambda: len(site.homes()) == 2 * NODES, STARTED_S, "the start of all jobs")
    homes = site.homes()
    assert sorted(homes[f"{job}#0"] for job in JOBS) == sorted(site.lab.nodes)
    (rate, _), *_ = case.rates
    begin_s = CLOCK.monotonic_s() + BEFORE_S
    clients = site.crowd([(rate, BEFORE_S), *case.rates], case.seed)
    pause_until(site, begin_s)
    answered = site.answered()
    readings: list[Reading] = []
    policies: dict[int, str] = {}
    for second in range(round(case.ends_s[-1]) + 1):
        pause_until(site, begin_s + second)
        readings.append(read(site, CLOCK.monotonic_s(), homes))
        if second % NOTED_S == 0:
            note(site, policies)
    note(site, policies)
    answered = site.answered() - answered
    asked = clients.wait()
    (known,) = site.shop()["flows"]
    return Outcome(
        measured(case, begin_s, submitted_s, readings, asked),
        asked,
        Counter(policies.values()),
        known["work_mcycles"],
        (readings[-1].web_used_mcycles - readings[0].web_used_mcycles) / answered,
        known["response_factor"],
    )


def pause_until(site: Serving, at_s: float) -> None:
    """Let the time pass."""
    site.lab.tend()
    CLOCK.sleep(max(0.0, at_s - CLOCK.monotonic_s()))


def note(site: Serving, policies: dict[int, str]) -> None:
    """Take the policy of each decision that the history still has."""
    rows = site.look("plan", "history", "--limit", "200")["decisions"]
    policies |= {row["number"]: row["policy"] for row in rows}
