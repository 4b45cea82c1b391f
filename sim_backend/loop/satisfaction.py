"""How well a web application and the jobs of a closed loop fared, minute by minute, by the truth of its world.

Minutes are counted from the first answered request on. The utility of the application is that of all requests of the
minute. The jobs' level is the one that all jobs with goals reach together with the CPU that they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daemons.controller.state.web_app import flow_utility, together
from daemons.models.level import JobDemand
from daemons.models.utility import weighted
from shared.values.jobs import Job, instance_name
from shared.values.web_app import Flow, WebApp
from sim_backend.loop.closed_loop import ClosedLoop
from sim_backend.world.web_site import SiteSample, WebSite

APART = 0.1  # by so much one side must be below the other to count
REACHABLE = 0.05  # and by so much below what all the CPU would give it
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Minute:
    """Measurements of the minute up to `end_s`. None: there was nothing to measure.

    web: lowest utility of any application; web_best: its utility with all the CPU that it may use; jobs: the jobs'
    level. jobs_held_up: a job waits, or runs below its full speed. served: whether a request was answered; asked:
    whether one arrived.
    """

    end_s: float
    web: float | None
    web_best: float | None
    jobs: float | None
    jobs_held_up: bool
    asked: bool
    served: bool


def minute(loop: ClosedLoop, since_s: float) -> Minute:
    """Return what was measured of a loop from `since_s` until now."""
    now_s = loop.engine.now_s
    found: list[tuple[float, float]] = []
    asked = served = False
    for name, balancer in loop.balancers.items():
        app = loop.apps.get(name)
        looks = _looks_since(balancer.site.looks, since_s)
        if app is None or not looks:
            continue
        asked = asked or any(one.offered for look in looks for one in look.samples)
        served = served or any(one.served for look in looks for one in look.samples)
        utility = _utility(app, looks)
        if utility is not None:
            found.append((utility, _best(loop, app, balancer.site, looks)))
    worst, best = min(found, default=(None, None))
    level, held_up = _jobs(loop, now_s)
    return Minute(now_s, worst, best, level, held_up, asked, served)


def _looks_since(looks: Sequence[SiteSample], since_s: float) -> list[SiteSample]:
    found: list[SiteSample] = []
    for look in reversed(looks):
        if look.at_s <= since_s + SLACK:
            break
        found.append(look)
    return found[::-1]


def _utility(app: WebApp, looks: Sequence[SiteSample]) -> float | None:
    """Return the utility of an application over some looks: the lowest utility of its flows."""
    found = []
    for flow in app.flows:
        samples = [one for look in looks for one in look.samples if one.flow == flow.name]
        utility = flow_utility(flow, together(samples)) if samples else None
        if utility is not None:
            found.append(utility)
    return float(weighted(np.array(min(found)), app.importance)) if found else None


def _best(loop: ClosedLoop, app: WebApp, site: WebSite, looks: Sequence[SiteSample]) -> float:
    """Return the utility of an application with all the CPU that it may use, at the load of these looks."""
    nodes = [hypervisor.node for hypervisor in loop.cluster.hypervisors.values()]
    each = sorted((min(node.cpu_mhz, app.max_mhz) for node in nodes), reverse=True)
    load_mhz = sum(look.load_mhz for look in looks) / len(looks)
    vcpu_mhz = sum(node.core_mhz for node in nodes) / len(nodes)
    means = dict(
        zip(
            [flow.name for flow in site.truth.flows],
            site.best_s(load_mhz, sum(each[: app.max_instances]), vcpu_mhz),
            strict=True,
        )
    )
    worst = min(_on_goal(flow, means[flow.name]) for flow in app.flows if flow.name in means)
    return float(weighted(np.array(worst), app.importance))


def _on_goal(flow: Flow, mean_s: float) -> float:
    if flow.mean_s is not None:
        return (flow.mean_s - mean_s) / flow.mean_s
    if flow.percentile_s is not None:
        tail_s = flow.t_min_s - (mean_s - flow.t_min_s) * math.log1p(-flow.percentile)
        return (flow.percentile_s - tail_s) / flow.percentile_s
    return 1.0


def _jobs(loop: ClosedLoop, now_s: float) -> tuple[float | None, bool]:
    """Return the level that the jobs with goals reach together with their CPU, and whether a job is held up."""
    world = loop.world
    wanting = [job for job in loop.jobs.values() if job.submit_s <= now_s and not world.completions[job.name]]
    rows = [_row(loop, job, now_s) for job in wanting if job.goal_s is not None]
    shares = [_share_mhz(loop, job) for job in wanting]
    held_up = any(mhz < job.instances * job.max_mhz * (1.0 - SLACK) for job, mhz in zip(wanting, shares, strict=True))
    given_mhz = sum(shares)
    if not rows or given_mhz <= 0.0:
        return None, held_up
    a, b, r, tb = (np.array(column) for column in zip(*rows, strict=True))
    level = JobDemand(a, b, r, tb).solve(given_mhz).level
    return (level if math.isfinite(level) else None), held_up


def _row(loop: ClosedLoop, job: Job, now_s: float) -> tuple[float, float, float, float]:
    assert job.goal_s is not None
    left = max(0.0, loop.true_mcycles[job.name] - loop.world.done_mcycles(job.name, now_s))
    return job.instances * left, job.goal_s - now_s, job.goal_s - job.desired_start_s, left / job.max_mhz


def _share_mhz(loop: ClosedLoop, job: Job) -> float:
    vms = (instance_name(job.name, index) for index in range(job.instances))
    return sum(loop.world.share_mhz(vm) for vm in vms if loop.world.where(vm) is not None)


# --- in figures ------------------------------------------------------------------------------------------------------


def counted(minutes: Sequence[Minute]) -> list[Minute]:
    """Return the minutes from the first answered request on; all where there never was one."""
    first = next((row for row, each in enumerate(minutes) if each.served), 0)
    return list(minutes[first:])


def web_below(each: Minute) -> bool:
    """Say whether the application was more than 0.1 below the jobs, and more CPU would have helped."""
    if each.web is None or each.jobs is None:
        return False
    return each.web < each.jobs - APART and (each.web_best is None or each.web < each.web_best - REACHABLE)


def jobs_below(each: Minute) -> bool:
    """Say whether the jobs were more than 0.1 below the application while one of them was held up."""
    if each.web is None or each.jobs is None:
        return False
    return each.jobs_held_up and each.jobs < each.web - APART


def satisfaction(minutes: Sequence[Minute], minute_s: float) -> dict[str, Any]:
    """Return the figures of a run whose minutes are `minute_s` long: parts of its minutes, utilities, seconds."""
    every = counted(minutes)
    web = [each.web for each in every if each.web is not None]
    smaller = [min(each.web, each.jobs) for each in every if each.web is not None and each.jobs is not None]
    return {
        "web_below_frac": _part(map(web_below, every), len(every)),
        "jobs_below_frac": _part(map(jobs_below, every), len(every)),
        "web_off_goal_frac": _part((utility < 0.0 for utility in web), len(every)),
        "web_median_utility": _quantile(web, 0.5),
        "web_p10_utility": _quantile(web, 0.1),
        "level_p10": _quantile(smaller, 0.1),
        "level_median": _quantile(smaller, 0.5),
        "level_mean": mean(smaller),
        "jobs_level_mean": mean([each.jobs for each in every if each.jobs is not None]),
        "web_unserved_s": minute_s * sum(each.asked and not each.served for each in every),
        "web_below_longest_s": minute_s * _longest(every),
    }


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return sum(values) / len(values) if values else None


def _part(hits: Any, count: int) -> float | None:
    return sum(hits) / count if count else None


def _quantile(values: Sequence[float], part: float) -> float | None:
    return float(np.quantile(np.asarray(values), part)) if values else None


def _longest(minutes: Sequence[Minute]) -> int:
    """Return the largest number of consecutive minutes in which the application was below its goal."""
    longest = length = 0
    for each in minutes:
        length = length + 1 if web_below(each) else 0
        longest = max(longest, length)
    return longest
