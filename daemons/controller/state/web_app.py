"""What is kept of a web application: what was asked for, what was last measured of it, and what its requests cost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daemons.controller.state.kept import record_of
from daemons.controller.state.load_history import LoadHistory
from daemons.controller.state.response_log import ResponseLog
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
    """The CPU work of one request in Mcycles, estimated by the work profiler from this many windows. `half_width_frac`:
    its uncertainty, as a fraction of it (inf: an average over flows that could not be distinguished)."""

    work_mcycles: float
    half_width_frac: float
    windows: int


@dataclass(frozen=True, slots=True)
class WorkProfile:
    """What an application's CPU is for: the work of a request of each flow that was estimated, and `background_mhz`,
    what all instances together use whatever they are asked for (0: none, or not known apart from the requests')."""

    flows: Mapping[str, WorkEstimate] = field(default_factory=dict)
    background_mhz: float = 0.0


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
    """A managed web application. Its instances are jobs of their own (`Cluster.replicas`).

    `seq`: of the last report. `asked_s`: since when a scrape result is awaited (None: none is). `scrape_error`: why the
    last one failed. `windows`: the input of the work profiler, made by `work_log`; `work`: its
    output.

    `load`: its recent demand. `factors`: by flow, its response times relative to its model, from the windows of
    `responses`. `headroom_quantile`: the quantile of the load to plan for (None: that of the settings). `grown`: the
    number of instances to run until the next cycle, since all running ones are fully used.

    `wanted_instances`: see WebRecord. `modelled`: the last cycle's policy predicted its response time and chose the
    number `chosen`. `looked_s`, `looked`: when the CPU usage of its instances was last checked, and their counters
    then, by VM. `unreachable`: since when its balancer cannot be updated, and why. `served`: the backends in use, by
    the balancer's last answer (None: there was none). `passed`: the balancer's measurements of all requests;
    `pushed_s`: when another source last measured flows. `wants_room`: it was submitted or changed; if the next decision
    leaves it below its minimum, a decision that may preempt others follows.
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
    work: WorkProfile = field(default_factory=WorkProfile)
    load: LoadHistory = field(default_factory=LoadHistory)
    factors: dict[str, ResponseFactor] = field(default_factory=dict)
    responses: ResponseLog = field(default_factory=ResponseLog)
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
        """Return whether CPU usage sets the number of instances, between cycles or always."""
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
        """Return the fewest and the most instances that a decision may want. Without a goal they are the same. With a
        goal the policy chooses at each cycle, if it can. Between cycles the adjusted choice is the minimum, as is the
        number that ran when one was replaced."""
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
        self.factors.clear()
        self.work, self.work_log = WorkProfile(), WorkLog()
        self.load, self.responses = LoadHistory(), ResponseLog()

    def measured(self, flow: Flow) -> Measured | None:
        """Return the last measurement of the flow; None when there is none.

        A percentile of several samples is taken as the mean of theirs, weighted by the requests answered.
        """
        return _recent(self.samples, flow.name)

    @property
    def traffic(self) -> Measured | None:
        """Return the last measurement of all its requests, over all flows; None when there is none."""
        if self.passed and self.passed[-1].at_s == self.measured_at_s:
            return _recent(self.passed, WHOLE)
        found = [measured for flow in self.app.flows if (measured := self.measured(flow)) is not None]
        return _side_by_side(found) if found else None


def utility_of(web: WebEntry) -> float | None:
    """Return the utility of an application as measured: that of its flow with the lowest utility; None when nothing was
    measured."""
    found = _utilities(web, web.samples)
    if not found:
        return None
    worst = min(found)
    return worst / web.app.importance if worst > 0.0 else worst * web.app.importance


def misses_goal(web: WebEntry) -> bool:
    """Return whether a flow missed its goal in the newest sample, however short that was."""
    return min(_utilities(web, [*web.samples][-1:]), default=0.0) < 0.0


def _utilities(web: WebEntry, samples: Sequence[Sample]) -> list[float]:
    """Return the utilities of the flows that these samples cover."""
    return [
        utility
        for flow in web.app.flows
        if (measured := _recent(samples, flow.name)) is not None
        and (utility := flow_utility(flow, measured)) is not None
    ]


def flow_utility(flow: Flow, measured: Measured) -> float | None:
    """Return the utility of a flow as measured, without importance, -9 to 1: (goal - t) / goal for response times.

    For a throughput 1 - goal / served. While all requests are answered it is at least 0, since the possible throughput
    is unknown. None when there were no requests. -9 (`UTILITY_UNANSWERED`) when no request was answered, as if it took
    `LATE_GOALS` goals, over any measured time; nothing is lower.
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
