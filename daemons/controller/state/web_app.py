"""What is kept of a web application: what was asked for, what was last measured of it, and what its requests cost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from daemons.controller.state.kept import record_of
from daemons.controller.state.load_history import LoadHistory
from daemons.controller.state.web_health import WebHealth
from daemons.controller.state.work_log import WorkLog
from daemons.models.response_calibration import ResponseFactor
from daemons.models.web_utility import LATE_GOALS
from daemons.values.records.cluster import FlowFactor, WebRecord, WorkWindow
from shared.ports.effects import Balance
from shared.values.web_app import Flow, FlowSample, WebApp

RECENT_S = 60.0  # what is called "now" of a flow: the samples of so long, at least the last one
SAMPLES_MAX = 64
WINDOWS_MAX = 64
WHOLE = ""  # the name of the flow that is all requests to an application
UTILITY_UNANSWERED = 1.0 - LATE_GOALS  # when nothing is answered, or as late as that


@dataclass(frozen=True, slots=True)
class Measured:
    """A flow over the last while: requests a second, those queued at its end, and response times (None: not known)."""

    window_s: float
    offered_per_s: float
    served_per_s: float
    rejected_per_s: float
    queued: int
    mean_s: float | None
    percentile_s: float | None


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """CPU work of one request in Mcycles as the work profiler estimates it from so many windows; `half_width_frac`:
    how far off it may be, as a part of it (inf: an average over flows that were not told apart)."""

    work_mcycles: float
    half_width_frac: float
    windows: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of every flow until `at_s` of our own clock."""

    at_s: float
    flows: tuple[FlowSample, ...]


@dataclass(frozen=True, slots=True)
class CpuReading:
    """A counter of CPU time of one instance: which life of which VM on which node, its own clock, and what it says."""

    node: str
    boot_id: str
    generation: int
    clock_s: float
    cpu_time_s: float


@dataclass(slots=True, eq=False)
class WebEntry:
    """A web application that takes part. Its instances are jobs of their own (`Cluster.replicas`).

    `seq`: of the last report. `asked_s`: since when an answer of its scrape is waited for (None: it is not).
    `scrape_error`: why the last one failed. `windows`: what the work profiler learns from, made by `work_log`.

    `load`: what was asked of it of late. `factors`: by flow, how its response times compare with its model.
    `given_mhz`: CPU of its instances when it was last measured. `headroom_quantile`: which quantile of the load is
    planned for (None: that of the settings). `grown`: so many instances are to run until the next cycle, since all
    that run are used up.

    `wanted_instances`: see WebRecord. `modelled`: the last cycle's policy predicted its response time, and has chosen
    the number `chosen`. `looked_s`, `looked`: when the use of its instances' CPU was last looked at, and their counters
    then, by VM. `unreachable`: since when its balancer cannot be told of them, and why. `served`: what it serves it by,
    by its last answer (None: there was none). `passed`: what it has measured of all requests; `pushed_s`: when flows
    were last measured by somebody else. `wants_room`: it was submitted or changed, and the next decision that leaves it
    below its minimum is to be followed by one that others give way in.
    """

    app: WebApp
    request: str
    order: int
    accepted_s: float
    removed: bool = False
    seq: int = 0
    asked_s: float | None = None
    scrape_error: str = ""
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    windows: deque[WorkWindow] = field(default_factory=lambda: deque(maxlen=WINDOWS_MAX))
    estimates: dict[str, WorkEstimate] = field(default_factory=dict)
    load: LoadHistory = field(default_factory=LoadHistory)
    factors: dict[str, ResponseFactor] = field(default_factory=dict)
    given_mhz: float = 0.0
    grown: int = 0
    headroom_quantile: float | None = None
    work_log: WorkLog = field(default_factory=WorkLog)
    used_mhz: float | None = None
    wanted_instances: int | None = None
    modelled: bool = False
    chosen: int | None = None
    looked_s: float = -math.inf
    looked: dict[str, CpuReading] = field(default_factory=dict)
    unreachable: tuple[float, str] | None = None
    served: Balance | None = None
    passed: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    pushed_s: float = -math.inf
    health: WebHealth = field(default_factory=WebHealth)
    wants_room: bool = False

    def record(self) -> WebRecord:
        """Return the application as the store keeps it."""
        return record_of(
            WebRecord,
            self,
            windows=tuple(self.windows),
            replaced_s=tuple(self.health.replaced_s),
            least=self.health.least,
            factors=tuple(
                FlowFactor(flow, one.log_sum, one.gap_sum, one.weight_s) for flow, one in sorted(self.factors.items())
            ),
        )

    @property
    def adjusts(self) -> bool:
        """Whether the use of CPU says, between cycles or always, how many instances there are to be."""
        return bool(self.app.environment) or not self.app.flows

    def fit(self) -> None:
        """Keep the number of instances within what the application says now; it begins with the fewest, at least 1."""
        app = self.app
        if not self.adjusts:
            self.wanted_instances = self.chosen = None
            return
        wanted = max(1, app.min_instances) if self.wanted_instances is None else self.wanted_instances
        self.wanted_instances = min(max(wanted, app.min_instances), app.max_instances)

    def sizes(self, at_cycle: bool) -> tuple[int, int]:
        """The fewest and the most instances that a decision may want. Without a goal they are the same; with one the
        policy chooses at each cycle, if it knows how, and in between what it has chosen, adjusted, is the least; as is
        what has run when one was replaced."""
        app, wanted = self.app, self.wanted_instances
        if wanted is None or (app.flows and at_cycle and self.modelled):
            grown = 0 if at_cycle else self.grown
            return min(max(app.min_instances, self.health.least, grown), app.max_instances), app.max_instances
        return wanted, app.max_instances if app.flows else wanted

    @property
    def measured_at_s(self) -> float | None:
        """When it was last measured, None: not by this controller."""
        return max((samples[-1].at_s for samples in (self.samples, self.passed) if samples), default=None)

    def forget(self) -> None:
        """Forget what was measured: its flows are others now."""
        self.samples.clear()
        self.windows.clear()
        self.estimates.clear()
        self.factors.clear()
        self.work_log, self.load = WorkLog(), LoadHistory()

    def measured(self, flow: Flow) -> Measured | None:
        """The flow as last measured; None when it was not.

        A percentile of several samples is taken as the mean of theirs, weighted by the requests answered.
        """
        return _recent(self.samples, flow.name)

    @property
    def traffic(self) -> Measured | None:
        """All requests to it as last measured, whatever they ask for; None when they were not."""
        if self.passed and self.passed[-1].at_s == self.measured_at_s:
            return _recent(self.passed, WHOLE)
        found = [measured for flow in self.app.flows if (measured := self.measured(flow)) is not None]
        return _side_by_side(found) if found else None


def utility_of(web: WebEntry) -> float | None:
    """The utility of an application as measured: that of its unhappiest flow; None when nothing was measured."""
    found = _utilities(web, web.samples)
    if not found:
        return None
    worst = min(found)
    return worst / web.app.importance if worst > 0.0 else worst * web.app.importance


def misses_goal(web: WebEntry) -> bool:
    """Return whether a flow missed its goal in the newest sample, however short that was."""
    return min(_utilities(web, [*web.samples][-1:]), default=0.0) < 0.0


def _utilities(web: WebEntry, samples: Sequence[Sample]) -> list[float]:
    """Those of the flows that these samples say something of."""
    return [
        utility
        for flow in web.app.flows
        if (measured := _recent(samples, flow.name)) is not None
        and (utility := flow_utility(flow, measured)) is not None
    ]


def flow_utility(flow: Flow, measured: Measured) -> float | None:
    """Return the utility of a flow as measured, without importance, -9 to 1: (goal - t) / goal for response times.

    For a throughput 1 - goal / served; while all that is asked for is answered it is at least 0, since what could be
    answered is not seen. None when nothing was asked for. -9 (`UTILITY_UNANSWERED`) when nothing of what was asked for
    was answered, as if it took `LATE_GOALS` goals, over whatever time that is measured; nothing is worse.
    """
    if flow.throughput_per_s is not None:
        served = measured.served_per_s
        full = measured.rejected_per_s > 0.0 or measured.queued > 0
        if served <= 0.0:
            return UTILITY_UNANSWERED if full else None
        utility = max(1.0 - flow.throughput_per_s / served, UTILITY_UNANSWERED)
        return utility if full else max(0.0, utility)
    goal_s, response_s = (
        (flow.mean_s, measured.mean_s) if flow.mean_s is not None else (flow.percentile_s, measured.percentile_s)
    )
    assert goal_s is not None
    if response_s is None and measured.served_per_s <= 0.0 and measured.offered_per_s > 0.0:
        return UTILITY_UNANSWERED
    return None if response_s is None else max((goal_s - response_s) / goal_s, UTILITY_UNANSWERED)


def _recent(samples: Sequence[Sample], flow: str) -> Measured | None:
    if not samples:
        return None
    since_s = samples[-1].at_s - RECENT_S
    found = [one for sample in samples if sample.at_s > since_s for one in sample.flows if one.flow == flow]
    return together(found) if found else None


def _side_by_side(flows: Sequence[Measured]) -> Measured:
    """Several flows as one; response times weighted by the requests answered."""
    timed = [(one.served_per_s, one.mean_s) for one in flows if one.mean_s is not None]
    answered = sum(rate for rate, _ in timed)
    return Measured(
        max(one.window_s for one in flows),
        sum(one.offered_per_s for one in flows),
        sum(one.served_per_s for one in flows),
        sum(one.rejected_per_s for one in flows),
        sum(one.queued for one in flows),
        sum(rate * mean_s for rate, mean_s in timed) / answered if answered > 0.0 else None,
        None,
    )


def together(samples: Sequence[FlowSample]) -> Measured:
    """Return what samples of one flow, at least one, in order of time, say together."""
    window_s = sum(one.window_s for one in samples)
    served = sum(one.served for one in samples)
    rejected = sum(one.rejected for one in samples)
    # Where a queue is worked off, more is answered in a while than arrives.
    offered = sum(one.offered or one.served + one.rejected for one in samples)
    timed = [one for one in samples if one.served and one.percentile_s > 0.0]
    counted = sum(one.served for one in timed)
    return Measured(
        window_s,
        offered / window_s,
        served / window_s,
        rejected / window_s,
        samples[-1].queued,
        sum(one.served * one.mean_s for one in samples) / served if served else None,
        sum(one.served * one.percentile_s for one in timed) / counted if counted else None,
    )
