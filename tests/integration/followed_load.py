"""One case in two worlds: a web application of three instances beside three jobs, one of each on a node, whose load
changes twofold again and again. On real programs it is measured from outside, by clients and the kernel; in the
simulator by the truth of its world. What comes of both is a series of the same seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

import numpy as np

from agents.core.settings import AgentSettings
from daemons.controller.state.web_app import flow_utility, together
from daemons.models.level import JobDemand
from daemons.values.settings import ControllerSettings, Limits
from shared.values.jobs import Job, Stage, workload_of
from shared.values.nodes import Node
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.satisfaction import Minute, jobs_below, minute, web_below
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.integration.haproxy_scene import Asked
from tests.integration.serving_scene import APP, CORE_MHZ, MEMORY_MIB, Serving

NODES = 3
NODE_MIB = 1_000
SETTLE_S = 60.0  # after each change; the rest of a phase counts
FULL_FRAC = 0.97  # of a core: a job that has used so much was not held up
SIMULATED_SETTLE_S = 60.0  # before the first phase, at its load


@dataclass(frozen=True, slots=True)
class Case:
    """request_mcycles: CPU of a request; mean_s: its goal. job_mcycles, within_s: work and goal of each job. phases:
    (part of the cluster's CPU that requests take, seconds). settle_s: at the begin of a phase, does not count."""

    request_mcycles: float
    mean_s: float
    t_min_s: float
    job_mcycles: float
    within_s: float
    phases: tuple[tuple[float, float], ...]
    settle_s: float = SETTLE_S
    adjust_s: float = 2.0
    scrape_s: float = 1.0
    decide_s: float = 60.0
    report_s: float = 1.0
    seed: int = 1

    @property
    def rates(self) -> tuple[tuple[float, float], ...]:
        """The phases as (requests a second, seconds)."""
        per_s = NODES * CORE_MHZ / self.request_mcycles
        return tuple((part * per_s, seconds) for part, seconds in self.phases)

    @property
    def ends_s(self) -> tuple[float, ...]:
        """When each phase ends, from the begin of the first."""
        return tuple(accumulate(seconds for _, seconds in self.phases))

    @property
    def flow(self) -> Flow:
        """The application's only one."""
        return Flow("page", mean_s=self.mean_s, work_mcycles=self.request_mcycles, t_min_s=self.t_min_s)


@dataclass(frozen=True, slots=True)
class Second:
    """`at_s`: its end, from the begin of the first phase. web_mhz: what the application is entitled to. used_frac: of
    the cluster's CPU, by both sides."""

    at_s: float
    found: Minute
    web_mhz: float
    used_frac: float


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """Of what counts of one phase. below: parts of its seconds."""

    load_frac: float
    web_mhz: float
    used_frac: float
    web: tuple[float, float]  # median and worst decile
    jobs: tuple[float, float]
    web_below: float
    jobs_below: float


# --- on real programs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """What the kernel says at a time of the monotonic clock: CPU that the only program of each job and all instances
    have used, and what these are entitled to."""

    clock_s: float
    used_mcycles: Mapping[str, float]
    web_used_mcycles: float
    web_mhz: float


def read(site: Serving, clock_s: float, homes: Mapping[str, str]) -> Reading:
    """Take a reading. homes: the node of each program."""
    used = {vm: site.lab.used_mcycles(node, vm) for vm, node in homes.items()}
    jobs = {workload_of(vm)[0]: mcycles for vm, mcycles in used.items() if workload_of(vm)[0] != APP}
    weights = site.lab.weights_mhz()
    web_mhz = sum(mhz for vm, mhz in weights.items() if workload_of(vm)[0] == APP)
    return Reading(clock_s, jobs, sum(used.values()) - sum(jobs.values()), web_mhz)


def measured(
    case: Case, begun_s: float, submitted_s: Mapping[str, float], readings: Sequence[Reading], asked: Sequence[Asked]
) -> list[Second]:
    """Return the seconds between readings. begun_s: when the first phase began, submitted_s: when each job was
    submitted, all by the monotonic clock. A request counts where it ended."""
    found, at = [], 0
    ended = sorted(asked, key=lambda one: one.sent_s + one.took_s)
    sent_s = sorted(one.sent_s for one in asked)
    for before, now in pairwise(readings):
        here = []
        while at < len(ended) and ended[at].sent_s + ended[at].took_s <= now.clock_s:
            if ended[at].sent_s + ended[at].took_s > before.clock_s:
                here.append(ended[at])
            at += 1
        in_progress = bisect_right(sent_s, now.clock_s) - at
        level, held_up = _jobs(case, submitted_s, before, now)
        utility = _utility(case, here, in_progress, now.clock_s - before.clock_s)
        came = bisect_right(sent_s, now.clock_s) - bisect_right(sent_s, before.clock_s)
        best = _best(case, came / (now.clock_s - before.clock_s))
        second = Minute(
            now.clock_s,
            utility,
            best,
            level,
            jobs_held_up=held_up,
            asked=bool(here or in_progress),
            served=any(one.status == 200 for one in here),
        )
        used = sum(now.used_mcycles.values()) + now.web_used_mcycles
        used -= sum(before.used_mcycles.values()) + before.web_used_mcycles
        cpu_mhz = NODES * CORE_MHZ * (now.clock_s - before.clock_s)
        found.append(Second(now.clock_s - begun_s, second, now.web_mhz, used / cpu_mhz))
    return found


def _utility(case: Case, ended: Sequence[Asked], in_progress: int, window_s: float) -> float | None:
    good = [one.took_s for one in ended if one.status == 200]
    mean_s = fmean(good) if good else 0.0
    sample = FlowSample("page", window_s, len(ended) or in_progress, served=len(good), mean_s=mean_s)
    return flow_utility(case.flow, together([sample]))


def _best(case: Case, per_s: float) -> float:
    """The utility that the model has for so many requests a second with all the CPU."""
    room_mhz = NODES * CORE_MHZ - per_s * case.request_mcycles
    best_s = case.t_min_s + case.request_mcycles / room_mhz if room_mhz > 0.0 else math.inf
    return 1.0 - best_s / case.mean_s


def _jobs(case: Case, submitted_s: Mapping[str, float], before: Reading, now: Reading) -> tuple[float | None, bool]:
    """The level that all jobs reach together with the CPU that they have had, and whether one was held up."""
    seconds = now.clock_s - before.clock_s
    mhz = {job: (now.used_mcycles[job] - before.used_mcycles[job]) / seconds for job in submitted_s}
    left = np.array([max(0.0, case.job_mcycles - now.used_mcycles[job]) for job in submitted_s])
    to_goal_s = np.array([at_s + case.within_s - now.clock_s for at_s in submitted_s.values()])
    span_s = np.full(len(left), case.within_s)
    level = JobDemand(left, to_goal_s, span_s, left / CORE_MHZ).solve(sum(mhz.values())).level
    held_up = any(each < FULL_FRAC * CORE_MHZ for each in mhz.values())
    return (level if math.isfinite(level) else None), held_up


# --- in the simulator -------------------------------------------------------------------------------------------------


def simulated(case: Case) -> list[Second]:
    """Return the same seconds of the simulator's closed loop."""
    controller = ControllerSettings(
        report_s=case.report_s,
        reconcile_s=0.5,
        decide_s=case.decide_s,
        web_adjust_s=case.adjust_s,
        limits=Limits(0, 0, 0, 0),
    )
    nodes = [Node(f"n{row + 1}", 1, CORE_MHZ, memory_mib=NODE_MIB) for row in range(NODES)]
    loop = ClosedLoop(nodes, LoopSettings(controller, AgentSettings(report_s=case.report_s)))
    app = WebApp(APP, (case.flow,), MEMORY_MIB, max_mhz=CORE_MHZ, min_instances=NODES, max_instances=NODES)
    begin_s = SIMULATED_SETTLE_S
    starts_s = [0.0, *(begin_s + end_s for end_s in case.ends_s[:-1])]
    demand = steps([(at_s, rate) for at_s, (rate, _) in zip(starts_s, case.rates, strict=True)])
    flow = TrueFlow("page", demand, case.request_mcycles, case.t_min_s)
    truth = TrueWeb((flow,), ModelForm.PROCESSOR_SHARING, noise_frac=0.0, chance=False)
    loop.submit_web(app, truth, 1.0, case.scrape_s)
    for row in range(NODES):
        stage = Stage(case.job_mcycles, CORE_MHZ, 0.0, MEMORY_MIB)
        loop.submit(Job(f"job-{row}", (stage,), submit_s=1.0, desired_start_s=1.0, goal_s=1.0 + case.within_s))
    loop.run_until(begin_s)
    found = []
    for at_s in range(1, round(case.ends_s[-1]) + 1):
        loop.run_until(begin_s + at_s)
        domains = [each for host in loop.cluster.hypervisors.values() for each in host.domains.items()]
        web_mhz = sum(domain.cpu_mhz for vm, domain in domains if vm.startswith(f"{APP}#"))
        shares = sum(loop.world.share_mhz(vm) for vm, _ in domains)
        found.append(Second(float(at_s), minute(loop, begin_s + at_s - 1.0), web_mhz, shares / (NODES * CORE_MHZ)))
    return found


# --- in figures -------------------------------------------------------------------------------------------------------


def counting(case: Case, seconds: Sequence[Second]) -> list[list[Second]]:
    """Return the seconds that count, by phase."""
    begins_s = (0.0, *case.ends_s[:-1])
    return [
        [one for one in seconds if begin_s + case.settle_s + 1.0 <= one.at_s <= end_s]
        for begin_s, end_s in zip(begins_s, case.ends_s, strict=True)
    ]


def part(seconds: Sequence[Second], holds: Callable[[Minute], bool]) -> float:
    """Of the seconds, the part in which it holds."""
    return fmean(holds(one.found) for one in seconds)


def figures(case: Case, seconds: Sequence[Second]) -> list[PhaseFigures]:
    """Return the figures of all phases."""
    return [
        PhaseFigures(
            load_frac,
            fmean(one.web_mhz for one in of_phase),
            fmean(one.used_frac for one in of_phase),
            _spread([one.found.web for one in of_phase]),
            _spread([one.found.jobs for one in of_phase]),
            part(of_phase, web_below),
            part(of_phase, jobs_below),
        )
        for (load_frac, _), of_phase in zip(case.phases, counting(case, seconds), strict=True)
    ]


def _spread(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    assert known, "nothing was measured"
    return float(np.quantile(known, 0.5)), float(np.quantile(known, 0.1))


def table(case: Case, worlds: Mapping[str, Sequence[Second]]) -> str:
    """The figures of each world, a row for each phase, and of all that counts."""
    lines = [
        "",
        "| world | phase | load (% of CPU) | application has (MHz) | CPU used (%) | application: median, worst decile "
        "| jobs: median, worst decile | application below (%) | jobs below (%) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for world, seconds in worlds.items():
        for number, one in enumerate(figures(case, seconds), 1):
            sides = " | ".join(f"{median:.2f}, {worst:.2f}" for median, worst in (one.web, one.jobs))
            below = f"{100 * one.web_below:.0f} | {100 * one.jobs_below:.0f}"
            load = f"{100 * one.load_frac:.0f} | {one.web_mhz:.0f} | {100 * one.used_frac:.0f}"
            lines.append(f"| {world} | {number} | {load} | {sides} | {below} |")
        every = [one for of_phase in counting(case, seconds) for one in of_phase]
        below = f"{100 * part(every, web_below):.1f} | {100 * part(every, jobs_below):.1f}"
        lines.append(f"| {world} | all | | | | | | {below} |")
    return "\n".join(lines)
