"""Section 6.4 of phoenixcloud.txt: a web service under growing load, on 16 VMs without adjustment (figure 8-1) and with
as many as the adjustment rule wants (figure 8-2). What is played is the simulated site with the real controller and
agents; rows and pictures are made of plain points, wherever these were measured.

ZAP!'s requests are taken to need what follows from the paper's own figures: 64 VMs of 2.0 GHz at 80 % carry the busiest
minute of its two weeks, 153,878 requests, times 2.22.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.core.settings import AgentSettings
from daemons.capacity.process_pool import Work
from daemons.report.charts import Chart, Scale, Series, X
from daemons.report.themes import AT_BLUE, AT_ORANGE
from daemons.values.settings import BalancerSettings, ControllerSettings, PolicyChoice
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from shared.values.web_app import WebApp
from sim_backend.experiments.drawing import saved
from sim_backend.experiments.experiment import Row
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import Demand, steps
from sim_backend.world.web_site import SiteSample, TrueFlow, TrueWeb

VMS, CORE_MHZ = 16, 2_000.0
BUSIEST_PER_S = 2.22 * 153_878 / 60.0
THRESHOLD = 0.8
FULL_PER_S = BUSIEST_PER_S / (64 * THRESHOLD)  # what one VM answers at most: 111.2
ALONE_S = 1.0 / FULL_PER_S  # a request alone on its VM: 9.0 ms
WORK_MCYCLES = CORE_MHZ * ALONE_S
QUEUE_S = 2.0  # so long a request may wait for an instance
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.94, 0.97, 1.0, 1.05, 1.1)  # of what 16 VMs carry
HOLD_S, SETTLE_S = 240.0, 120.0  # of each load, of which the first part is not looked at
RAMP_S, BEGIN_S = 4_800.0, 120.0
PERIOD_S = 20.0
BELOW_S, SLOW_S, SLOW_AT, MOST_S = 0.05, 1.528, 0.97, 0.7  # what the paper prints
LINEAR_FRAC = 0.05  # of the highest throughput, that another may be off a straight line
WIDE = 20.0  # response times so far apart are drawn by their logarithm


@dataclass(frozen=True, slots=True)
class Point:
    """A web service under some load: requests asked and answered a second, mean response time, mean part of their CPU
    that all instances use, and how many there are."""

    offered_per_s: float
    served_per_s: float
    mean_s: float
    use_frac: float
    instances: float


@dataclass(frozen=True, slots=True)
class Served:
    """off: by load, without adjustment. on: by number of instances, with it."""

    off: tuple[Point, ...]
    on: tuple[Point, ...]


# --- playing ----------------------------------------------------------------------------------------------------------


def play_off() -> tuple[Point, ...]:
    """Simulate 16 instances and hold each load for a while."""
    begins = [BEGIN_S + index * HOLD_S for index in range(len(LOADS))]
    demand = steps([(at_s, load * VMS * FULL_PER_S) for at_s, load in zip(begins, LOADS, strict=True)])
    looks = _looks(demand, VMS, begins[-1] + HOLD_S)
    return tuple(
        _point([look for look in looks if at_s + SETTLE_S < look.at_s <= at_s + HOLD_S], demand) for at_s in begins
    )


def play_on() -> tuple[Point, ...]:
    """Simulate a site that starts with two instances, under a load that grows slowly to 80 % of the capacity of 16."""
    most = THRESHOLD * VMS * FULL_PER_S

    def demand(now_s: float) -> float:
        return most * min(1.0, max(0.1, (now_s - BEGIN_S) / RAMP_S))

    looks = [look for look in _looks(demand, 2, BEGIN_S + RAMP_S) if look.at_s > BEGIN_S + SETTLE_S]
    counts = sorted({look.instances for look in looks})
    return tuple(_point([look for look in looks if look.instances == count], demand) for count in counts)


def play_serving() -> Served:
    """Compute both figures."""
    return Served(play_off(), play_on())


def _looks(demand: Demand, least: int, until_s: float) -> list[SiteSample]:
    controller = ControllerSettings(
        decide_s=300.0,
        placement=PolicyChoice("first-fit"),
        balancer=BalancerSettings("fake"),
        web_adjust_s=PERIOD_S,
    )
    nodes = [Node(f"n{index}", 1, CORE_MHZ, memory_mib=1_024) for index in range(VMS)]  # each for one instance
    loop = ClosedLoop(nodes, LoopSettings(controller, AgentSettings(), costs=COSTS["paper"]))
    app = WebApp("zap", (), 256, max_mhz=CORE_MHZ, min_instances=least, max_instances=VMS, vcpus=1)
    flow = TrueFlow("page", demand, WORK_MCYCLES)
    loop.submit_web(app, TrueWeb((flow,), queue_s=QUEUE_S, noise_frac=0.0), period_s=PERIOD_S)
    loop.run_until(until_s)
    return loop.balancers["zap"].site.looks


def _point(looks: Sequence[SiteSample], demand: Demand) -> Point:
    served = [look.served_per_s for look in looks]
    weighted = [count * look.mean_s[0] for count, look in zip(served, looks, strict=True) if look.mean_s[0] is not None]
    available = math.fsum(look.available_mhz for look in looks)
    return Point(
        math.fsum(demand(look.at_s - PERIOD_S / 2) for look in looks) / len(looks),
        math.fsum(served) / len(looks),
        math.fsum(weighted) / math.fsum(served),
        math.fsum(look.used_mhz for look in looks) / available,
        math.fsum(look.instances for look in looks) / len(looks),
    )


def work_serving(seeds: int) -> list[Work]:
    """Once; what is drawn at random is drawn from one seed."""
    del seeds
    return [(play_serving, ())]


# --- what it says -----------------------------------------------------------------------------------------------------


def rows_serving(results: Sequence[Served]) -> list[Row]:
    """Return the rows for the simulated site."""
    return [row for each in results for row in rows_of(each.off, each.on, ALONE_S)]


def rows_of(off: Sequence[Point], on: Sequence[Point], alone_s: float) -> list[Row]:
    """Return the rows for the claims of section 6.4, from points in order of load and of instances. `alone_s`: duration
    of a request that is alone on an instance."""
    return [*_rows_off(off, alone_s), *_rows_on(on)]


def _rows_off(off: Sequence[Point], alone_s: float) -> list[Row]:
    below = [point for point in off if point.use_frac <= THRESHOLD]
    slow = min(off, key=lambda point: abs(point.use_frac - SLOW_AT))
    worst = max(off, key=lambda point: point.mean_s)
    calm = max((point.mean_s for point in below), default=math.nan)
    at_80, at_97 = (1_000.0 * alone_s / (1.0 - use) for use in (THRESHOLD, SLOW_AT))
    sharing = f"each core shared among its requests of {1_000 * alone_s:.3g} ms gives"
    highest = (
        f"{1_000 * worst.mean_s:,.0f} ms at {worst.offered_per_s:,.0f} requests/s and {100 * worst.use_frac:.1f} % use"
    )
    reached = worst.mean_s >= SLOW_S
    return [
        Row(
            "8-1/below-80",
            f"{off[0].instances:g} instances, up to 80 % CPU use: longest mean response time (ms)",
            "< 50",
            round(1_000 * calm, 1),
            calm < BELOW_S,
            f"{sharing} {at_80:.0f} ms at 80 %",
        ),
        Row(
            "8-1/at-97",
            f"the same, nearest to 97 % use (at {100 * slow.use_frac:.1f} %): mean response time (ms)",
            1_000 * SLOW_S,
            round(1_000 * slow.mean_s, 1),
            None,
            f"{sharing} {at_97:.0f} ms at 97 %: where 80 % take less than 50 ms, no queue of steady load comes to "
            "1,528 ms there; requests wait before the instances then",
        ),
        Row(
            "8-1/rises",
            "the same, load beyond what the instances carry: longest mean response time (ms)",
            1_000 * SLOW_S,
            round(1_000 * worst.mean_s, 1),
            worst.mean_s > 10.0 * calm,
            f"asked for more than 10 times that below 80 %; {highest}; {'as long as' if reached else 'shorter than'} "
            "the paper's, and as long as the bounded queue lets requests wait",
        ),
        _linear("8-1/linear", "the same, up to 80 %: throughput grows linearly with CPU use", below, "use_frac"),
    ]


def _rows_on(on: Sequence[Point]) -> list[Row]:
    longest = max(on, key=lambda point: point.mean_s)
    spread = f"{min(point.instances for point in on):.0f} to {max(point.instances for point in on):.0f} instances"
    return [
        Row(
            "8-2/below-700",
            "adjusted instances: longest mean response time of any number of them (ms)",
            "< 700",
            round(1_000 * longest.mean_s, 1),
            longest.mean_s < MOST_S,
            f"{spread}; longest with {longest.instances:.0f}",
        ),
        _linear("8-2/linear", "the same: throughput grows linearly with the instances", on, "instances"),
    ]


def _linear(id: str, what: str, points: Sequence[Point], by: str) -> Row:
    """Return a row that holds when the throughput lies on a straight line, within a tolerance relative to the highest
    value. With fewer than three points it is not judged."""
    x = np.array([getattr(point, by) for point in points])
    y = np.array([point.served_per_s for point in points])
    if len(points) < 3:
        return Row(id, what, "linear", f"{len(points)} points", None, "two points are always on a line")
    slope, base = np.polyfit(x, y, 1)
    off_by = float(np.abs(slope * x + base - y).max() / y.max())
    unit = "for 1 % of use" if by == "use_frac" else "an instance"
    shown = slope / 100.0 if by == "use_frac" else slope
    return Row(
        id,
        what,
        "linear",
        f"{shown:,.1f}/s {unit}, at most {100 * off_by:.1f} % off",
        slope > 0.0 and off_by <= LINEAR_FRAC,
        f"from a straight line, as a part of the highest; asked for at most {100 * LINEAR_FRAC:g} %",
    )


# --- pictures ---------------------------------------------------------------------------------------------------------


def draw_results(results: Sequence[Served], folder: Path) -> list[Path]:
    """Draw figures 8-1 and 8-2 of the simulated site."""
    return [path for each in results for path in draw_serving(folder, each.off, each.on)]


def draw_serving(folder: Path, off: Sequence[Point], on: Sequence[Point]) -> list[Path]:
    """Figure 8-1 and 8-2 from points in order of load and of instances; returns the files. Needs matplotlib."""
    title = f"throughput and response time by CPU use, {off[0].instances:g} instances"
    by_use = _charts(off, lambda point: 100.0 * point.use_frac, "mean CPU use (%)")
    by_count = _charts(on, lambda point: point.instances, "instances")
    return [
        saved("phoenixcloud", folder, "8-1", by_use, title),
        saved("phoenixcloud", folder, "8-2", by_count, "throughput and response time by instances"),
    ]


def _charts(points: Sequence[Point], of: Callable[[Point], float], x_label: str) -> tuple[Chart, Chart]:
    """Throughput above response time."""
    at = [of(point) for point in points]
    answered = Series("answered", at, [point.served_per_s for point in points], colour=AT_BLUE, dotted=True)
    means = [1_000.0 * point.mean_s for point in points]
    took = Series("mean", at, means, colour=AT_ORANGE, dotted=True)
    is_wide = max(means) > WIDE * min(means)
    scale, least = (Scale.LOG, None) if is_wide else (Scale.LINEAR, 0.0)
    return (
        Chart(
            "throughput", "throughput", "answered a second", series=(answered,), x=X.NUMBER, x_label=x_label, y_min=0.0
        ),
        Chart(
            "times", "response time", "mean (ms)", series=(took,), x=X.NUMBER, x_label=x_label, y_min=least, scale=scale
        ),
    )
