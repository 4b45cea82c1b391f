"""Days of a log's jobs with a deadline every morning, under real prices: what each provisioning policy costs in the
closed loop, with nodes that fall asleep and wake. Cost, energy and misses are the world's truth, not what is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog  # type: ignore[import-untyped]

from agents.core.settings import AgentSettings
from daemons.capacity.swf import SwfJob
from daemons.models.assurance.intervals import wilson
from daemons.values.calendar import DailyPeriods
from daemons.values.records.cluster import CostRecord
from daemons.values.settings import (
    ControllerSettings,
    Draw,
    Limits,
    PolicyChoice,
    PowerSettings,
    PriceSettings,
    Removal,
    ServiceModel,
    WindowSettings,
)
from shared.base.clock import perf_s
from shared.base.errors import InvalidInput, Problem
from shared.ports.effects import Effect, PricesRead, Publish
from shared.protocol import topology
from shared.protocol.messages import Happened
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from sim_backend.fakes.power import DOES, HostPower
from sim_backend.loop.closed_loop import SCRIPT_PRIORITY, ClosedLoop, LoopSettings
from sim_backend.loop.shells import Shell

Floats = NDArray[np.float64]

DAY_S = 86_400.0
CORE_MHZ, NODE_MIB, JOB_MIB = 1_000.0, 1_000, 900
OPENS_S, CLOSES_S, DEADLINE_S = 8 * 3_600.0, 24 * 3_600.0, 31 * 3_600.0
"""Of a day's period, since its midnight (batch-provisioning.txt section 5.1)."""
AUCTION_S = 12 * 3_600.0  # when the prices of the next day become known
METER_S = 60.0
REPORT_S = 60.0
QUEUE = "day"
CONFIDENCE = 0.99  # of the interval in which the share of missed days lies
ALARMS = ("deadline-at-risk", "deadline-missed", "forecast-left-band", "node-failed", "prices-stale")


@dataclass(frozen=True, slots=True)
class Days:
    """What every policy is put to. submits_s, runs_s: of the jobs in order, in seconds since the first midnight; each
    takes a whole node. starts_s, per_kwh: the series of prices. service_s, arrivals_per_day: what is configured.
    removal: what becomes of running jobs where a node leaves service (batch-provisioning.txt section 6.3, item 5).
    report_s: how often nodes report, a minute or more; with many nodes less often takes less time to play. service:
    what run times are taken for."""

    days: int
    nodes: int
    submits_s: Floats
    runs_s: Floats
    starts_s: Floats
    per_kwh: Floats
    service_s: float
    arrivals_per_day: float
    confidence: float = 0.99
    removal: Removal = Removal.CHECKPOINT
    draw: Draw = field(default_factory=Draw)
    seed: int = 0
    report_s: float = REPORT_S
    service: ServiceModel = ServiceModel.AUTO


@dataclass(frozen=True, slots=True)
class MissedDay:
    """A day with a missed deadline. `jobs`: number of late jobs. `lost_s`: seconds before the deadline at which the
    miss was certain: the run time of the longest late job, or the time left at its submission if that was shorter.
    `alarm_s`: seconds before the deadline of the day's first alarm `deadline-at-risk` (None: there was none).
    `impossible`: a late job took longer than the time left at its submission, under any policy."""

    day: int
    jobs: int
    lost_s: float
    alarm_s: float | None
    impossible: bool

    @property
    def foretold(self) -> bool:
        """Whether the alarm came before the deadline was lost."""
        return self.alarm_s is not None and self.alarm_s >= self.lost_s


@dataclass(frozen=True, slots=True)
class DaysOutcome:
    """What a policy brought, `removal` being what becomes of jobs on nodes that leave service.

    cost in the currency of the prices; metered_*: what the controller's own history says of it. missed_days: deadlines
    that at least one job missed, missed: each of them; low_frac, high_frac: of their share of all days, Wilson's
    interval of 99 %; impossible_days: deadlines that nobody could have kept; alarm_days: days with `deadline-at-risk`.
    node_starts: nodes that were woken; mean_up: nodes that were not asleep, mean_busy: of those with a job; alarms:
    events by kind.
    """

    policy: str
    removal: str
    cost: float
    kwh: float
    metered_cost: float
    metered_kwh: float
    jobs: int
    misses: int
    missed_days: int
    missed: tuple[MissedDay, ...]
    low_frac: float
    high_frac: float
    impossible_days: int
    alarm_days: int
    worst_late_s: float
    node_starts: int
    mean_up: float
    mean_busy: float
    mean_turnaround_s: float
    alarms: Mapping[str, int]
    wall_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--output json`."""
        missed = [asdict(each) | {"foretold": each.foretold} for each in self.missed]
        return asdict(self) | {"alarms": dict(self.alarms), "missed": missed}


def days_of(log: Sequence[SwfJob], first_day: int, days: int, service_s: float | None = None, **others: Any) -> Days:
    """Return the jobs of a log in `days` days from day `first_day` on, without those that took no time. Jobs that
    arrive while the queue is closed are submitted when it opens. The earlier days determine the configuration.
    `service_s`: run times are drawn by the seed, exponential with this mean (None: from the log).

    Raises `InvalidInput` when there are no jobs before, or none in those days.
    """
    ran = [job for job in log if job.run_s > 0.0]
    begin_s = first_day * DAY_S
    before = [job.run_s for job in ran if job.submit_s < begin_s]
    chosen = [(job.submit_s - begin_s, job.run_s) for job in ran if 0.0 <= job.submit_s - begin_s < days * DAY_S]
    if not before or not chosen:
        what = f"is {first_day}: the log has no jobs before that day, or none in the {days} days from it on"
        raise InvalidInput(Problem("--first-day", what, "a day with jobs before and after"))
    submits_s, runs_s = np.array(chosen).T
    closed = submits_s % DAY_S < OPENS_S
    submits_s = np.where(closed, np.floor(submits_s / DAY_S) * DAY_S + OPENS_S, submits_s)
    order = np.argsort(submits_s, kind="stable")
    mean_s = math.fsum(before) / len(before)
    if service_s is not None:
        mean_s, runs_s = service_s, np.random.default_rng(others.get("seed", 0)).exponential(service_s, runs_s.size)
    return Days(
        days=days,
        submits_s=submits_s[order],
        runs_s=runs_s[order],
        service_s=mean_s,
        arrivals_per_day=len(before) / first_day,
        **others,
    )


def run_days(days: Days, policy: str, params: Mapping[str, Any] | None = None) -> DaysOutcome:
    """Play the days under one provisioning policy."""
    begun_s = perf_s()
    loop = ClosedLoop(_nodes(days), _settings(days, PolicyChoice(policy, params or {})))
    events: Counter[str] = Counter()
    dangers_s: list[float] = []
    for shell in loop.controllers.values():
        shell.read_prices = _Feed(days).read
        shell.on_effect = _counting(events, dangers_s)
    jobs = list(_jobs(days))
    for job in jobs:
        loop.submit(job)
    meter = _Meter(loop, days)
    end_s = (days.days - 1) * DAY_S + DEADLINE_S + 3_600.0
    loop.engine.at(0.0, SCRIPT_PRIORITY, meter.look)
    loop.run_until(end_s)
    metered = [record for record in loop.store.records() if isinstance(record, CostRecord)]
    late_s = [_late_s(loop, job, end_s) for job in jobs]
    missed = _missed_days(days, np.array(late_s) > 0.0, np.array(dangers_s))
    low, high = wilson(np.array([len(missed) / days.days]), np.array([float(days.days)]), CONFIDENCE)
    turnarounds_s = [_end_s(loop, job, end_s) - job.submit_s for job in jobs]
    return DaysOutcome(
        policy,
        days.removal.value,
        meter.cost,
        kwh=meter.kwh,
        metered_cost=math.fsum(record.cost for record in metered),
        metered_kwh=math.fsum(record.kwh for record in metered),
        jobs=len(jobs),
        misses=sum(late > 0.0 for late in late_s),
        missed_days=len(missed),
        missed=missed,
        low_frac=float(low[0]),
        high_frac=float(high[0]),
        impossible_days=len(set(_day(days)[_too_long(days)].tolist())),
        alarm_days=len({math.floor((at_s - OPENS_S) / DAY_S) for at_s in dangers_s}),
        worst_late_s=max(0.0, *late_s),
        node_starts=loop.fake_power.starts,
        mean_up=meter.up_s / end_s,
        mean_busy=meter.busy_s / end_s,
        mean_turnaround_s=math.fsum(turnarounds_s) / len(jobs),
        alarms={what: events[what] for what in ALARMS if events[what]},
        wall_s=perf_s() - begun_s,
    )


def _day(days: Days) -> NDArray[np.int64]:
    """Return the day of each job, int64[jobs]."""
    return np.asarray(days.submits_s // DAY_S, dtype=np.int64)


def _too_long(days: Days) -> NDArray[np.bool_]:
    """Return which jobs took longer than the time left at their submission, bool[jobs]."""
    return np.asarray(days.runs_s > _day(days) * DAY_S + DEADLINE_S - days.submits_s)


def _missed_days(days: Days, late: NDArray[np.bool_], dangers_s: Floats) -> tuple[MissedDay, ...]:
    """Return the days with late jobs, each with the time at which its deadline was lost and the time of the first
    alarm."""
    day, too_long = _day(days), _too_long(days)
    left_s = day * DAY_S + DEADLINE_S - days.submits_s
    found = []
    for each in sorted(set(day[late].tolist())):
        mine = late & (day == each)
        deadline_s = each * DAY_S + DEADLINE_S
        told_s = dangers_s[(dangers_s >= each * DAY_S + OPENS_S) & (dangers_s < deadline_s)]
        found.append(
            MissedDay(
                each,
                int(mine.sum()),
                lost_s=float(np.minimum(days.runs_s, left_s)[mine].max()),
                alarm_s=deadline_s - float(told_s.min()) if told_s.size else None,
                impossible=bool((mine & too_long).any()),
            )
        )
    return tuple(found)


def least_cost(days: Days) -> float:
    """Return a lower bound of the cost of the days, even with full knowledge of the future. It holds for every policy
    that does all work by its deadline and keeps one node on.

    Work can be split arbitrarily and is available from the end of the hour of its submission; nodes sleep and wake
    instantly. There is one linear program per day, with the number of busy nodes in each hour.
    """
    total = 0.0
    end_s = (days.days - 1) * DAY_S + DEADLINE_S + 3_600.0
    hours = np.arange(math.ceil(end_s / 3_600.0))
    rows = np.searchsorted(days.starts_s, hours * 3_600.0, "right") - 1
    price, spans = days.per_kwh[rows], np.minimum(end_s - hours * 3_600.0, 3_600.0) / 3_600.0
    draw = days.draw
    total += float(price @ spans) * (draw.idle_w + (days.nodes - 1) * draw.off_w) / 1_000.0
    for day in range(days.days):
        first, last = day * 24 + int(OPENS_S // 3_600), day * 24 + int(DEADLINE_S // 3_600)
        mine = days.submits_s // DAY_S == day
        came_h = np.bincount((days.submits_s[mine] // 3_600).astype(np.int64) - first, days.runs_s[mine], last - first)
        total += _least_of_day(price[first:last], came_h / 3_600.0, days)
    return total


def _least_of_day(price: Floats, came_h: Floats, days: Days) -> float:
    """Return the minimum cost of a day's work over its hours. In each hour the node that is always on and the others
    have different costs."""
    draw, count = days.draw, price.size
    busy_kw = (draw.peak_w - draw.idle_w) / 1_000.0
    more_kw = (draw.peak_w - draw.off_w) / 1_000.0
    served = np.tril(np.ones((count, count)))
    found = linprog(
        np.concatenate([price * busy_kw, price * more_kw]),
        A_ub=np.hstack([served, served]),
        b_ub=np.cumsum(came_h),
        A_eq=np.ones((1, 2 * count)),
        b_eq=[min(came_h.sum(), days.nodes * (count - 1.0))],
        bounds=[(0.0, 1.0)] * count + [(0.0, days.nodes - 1.0)] * count,
        method="highs",
    )
    return float(found.fun) if found.success else 0.0


def _nodes(days: Days) -> list[Node]:
    return [Node(f"n{number:02d}", 1, CORE_MHZ, memory_mib=NODE_MIB) for number in range(1, days.nodes + 1)]


def _jobs(days: Days) -> Iterator[Job]:
    for number, (submit_s, run_s) in enumerate(zip(days.submits_s.tolist(), days.runs_s.tolist(), strict=True)):
        stage = Stage(run_s * CORE_MHZ, CORE_MHZ, memory_mib=JOB_MIB)
        yield Job(f"j{number:05d}", (stage,), submit_s=submit_s, queue=QUEUE)


def _settings(days: Days, provisioning: PolicyChoice) -> LoopSettings:
    every_day = DailyPeriods("UTC", int(OPENS_S), int(CLOSES_S), int(DEADLINE_S), tuple(range(7)))
    window = WindowSettings(
        QUEUE,
        QUEUE,
        every_day,
        confidence=days.confidence,
        nodes_max=days.nodes,
        removal=days.removal,
        service_s=days.service_s,
        service=days.service,
        arrivals_per_day=days.arrivals_per_day,
    )
    controller = ControllerSettings(
        report_s=days.report_s,
        reconcile_s=days.report_s,
        unreachable_after_s=3 * days.report_s,
        probe_s=DAY_S,
        stall_after_s=math.inf,
        limits=Limits(0, 0, 0, 0),
        placement=PolicyChoice("first-fit"),
        provisioning=provisioning,
        operation_costs=COSTS["paper"],
        power=PowerSettings("fake", DOES, through_agents=True, standby_s=0.0, draws={"default": days.draw}),
        windows=(window,),
        prices=PriceSettings(shape="series"),
    )
    return LoopSettings(controller, AgentSettings(report_s=days.report_s), costs=COSTS["paper"], seed=days.seed)


class _Feed:
    """Day-ahead prices: those of the next day are known from noon on."""

    def __init__(self, days: Days) -> None:
        self._days = days

    def read(self, now_s: float) -> PricesRead:
        """Return the prices known at this time."""
        day = math.floor(now_s / DAY_S)
        until_s = (day + (2 if now_s - day * DAY_S >= AUCTION_S else 1)) * DAY_S
        known = int(np.searchsorted(self._days.starts_s, until_s))
        return PricesRead(
            tuple(self._days.starts_s[:known].tolist()), tuple(self._days.per_kwh[:known].tolist()), until_s
        )


class _Meter:
    """Reads every minute what each host truly draws, and what that costs."""

    def __init__(self, loop: ClosedLoop, days: Days) -> None:
        self.loop, self.days = loop, days
        self.kwh = self.cost = self.up_s = self.busy_s = 0.0

    def look(self) -> None:
        """Count the minute that begins."""
        engine, draw = self.loop.engine, self.days.draw
        watts = 0.0
        for name in self.loop.agents:
            if self.loop.fake_power.state(name) in (HostPower.SUSPENDED, HostPower.OFF):
                watts += draw.off_w
                continue
            used = self.loop.world.used_frac(name)
            watts += draw.idle_w + (draw.peak_w - draw.idle_w) * used
            self.up_s += METER_S
            self.busy_s += METER_S * (used > 0.0)
        kwh = watts * METER_S / 3.6e6
        row = int(np.searchsorted(self.days.starts_s, engine.now_s, "right")) - 1
        self.kwh += kwh
        self.cost += kwh * float(self.days.per_kwh[row])
        engine.at(engine.now_s + METER_S, SCRIPT_PRIORITY, self.look)


def _counting(events: Counter[str], dangers_s: list[float]) -> Any:
    def count(shell: Shell, effect: Effect) -> None:
        del shell
        if isinstance(effect, Publish) and effect.exchange == topology.EVENTS and isinstance(effect.message, Happened):
            events[effect.message.what] += 1
            if effect.message.what == "deadline-at-risk":
                dangers_s.append(effect.message.at_s)

    return count


def _end_s(loop: ClosedLoop, job: Job, until_s: float) -> float:
    ends = loop.world.completions.get(job.name)
    return ends[0][1] if ends else until_s


def _late_s(loop: ClosedLoop, job: Job, until_s: float) -> float:
    return _end_s(loop, job, until_s) - (math.floor(job.submit_s / DAY_S) * DAY_S + DEADLINE_S)
