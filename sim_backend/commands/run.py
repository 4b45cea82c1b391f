"""`trimtab sim run`: a cluster at work in virtual time, to watch; ends in a summary, a report and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

from agents.core.settings import AgentSettings
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, messages, output_option, say, two_columns
from daemons.controller.core.controller import Controller
from daemons.controller.state.web_app import utility_of
from daemons.models.level import JobDemand
from daemons.report.draw import can_draw
from daemons.report.pictures import RunSeries, draw_run
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.base.clock import perf_s
from shared.base.write_file import make_folder, write_file
from shared.ports.plugins import find_policy
from shared.values.jobs import Job, instance_name, workload_of
from shared.values.operation_costs import COSTS
from shared.values.vms import VmState
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.outline import describe
from sim_backend.replay.workloads import experiment_four, paper_nodes, shop

MEAN_GAP_S = 150.0
REPORT_S = 60.0
LINE_EVERY_S = 7_200.0  # of virtual time, between plain lines of progress
LONGEST_S = 1_000_000.0  # a run that is not over by then never ends
NODES_MAX, JOBS_MAX = 1_000, 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at one time of the run, as its controller sees it; the CPU and `jobs_level` are the truth.

    `web_utility`: from the response times that were measured last; `jobs_level`: that all jobs reach together
    if they go on with the CPU that they get now. None: nothing was measured, no job runs.
    """

    time_s: float
    nodes_up: int
    waiting: int
    running: int
    completed: int
    decisions: int
    allotted_mhz: float
    web_mhz: float
    web_instances: int
    web_utility: float | None
    jobs_level: float | None


@click.command()
@click.option("--nodes", type=Whole(1, NODES_MAX), default=25, show_default=True, help="Nodes of 4 x 3.9 GHz.")
@click.option("--jobs", type=Whole(1, JOBS_MAX), default=200, show_default=True, help="Jobs to submit.")
@click.option(
    "--web-load",
    type=Number(0.0, 1.0),
    default=0.5,
    show_default=True,
    help="Mean part of the CPU that the requests of a web application use; 0: there is none.",
)
@click.option(
    "--policy",
    default=ControllerSettings().placement.name,
    show_default=True,
    help="Any registered placement policy.",
)
@click.option(
    "--costs", type=click.Choice(tuple(COSTS)), default="paper", show_default=True, help="What operations on VMs take."
)
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the jobs.")
@click.option(
    "--output-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-run"),
    show_default=True,
    help="Where report.json and run.png go.",
)
@output_option
def run(nodes: int, jobs: int, web_load: float, policy: str, costs: str, seed: int, output_folder: Path) -> None:
    """Watch the real controller and agents place a stream of jobs and a web application, in virtual time."""
    find_policy("placement", policy)
    make_folder("--output-folder", output_folder)
    begun_s = perf_s()
    loop = _loop(nodes, jobs, web_load, policy, costs, seed)
    moments = _watch(loop, jobs, messages())
    values = _report(
        loop, moments, {"policy": policy, "costs": costs, "seed": seed, "nodes": nodes, "web_load": web_load}
    )
    values["wall_s"] = perf_s() - begun_s
    _save(output_folder, values, loop, moments)
    emit(values, lambda: two_columns(f"{jobs} jobs on {nodes} nodes under {policy}", _flat(values)))


def _loop(nodes: int, jobs: int, web_load: float, policy: str, costs: str, seed: int) -> ClosedLoop:
    controller = ControllerSettings(
        report_s=REPORT_S,
        reconcile_s=REPORT_S,
        silent_after_s=3 * REPORT_S,
        probe_s=REPORT_S,
        placement=PolicyChoice(policy),
    )
    settings = LoopSettings(controller, AgentSettings(report_s=REPORT_S), costs=COSTS[costs])
    cluster = paper_nodes(nodes)
    loop = ClosedLoop(cluster, settings)
    if web_load > 0.0:
        loop.submit_web(*shop(cluster, web_load, seed), REPORT_S, REPORT_S)
    for job in experiment_four(np.random.default_rng(seed), jobs, MEAN_GAP_S):
        loop.submit(job)
    return loop


# --- watching ------------------------------------------------------------------------------------------------------


def _watch(loop: ClosedLoop, jobs: int, console: Console) -> list[Moment]:
    """Run until every job is completed, and keep a moment per report period."""
    if not console.is_terminal:
        return _follow(loop, jobs, _Lines(console).show)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("jobs done", total=jobs, state="")

        def show(now: Moment) -> None:
            progress.update(task, completed=now.completed, state=_line(now))

        return _follow(loop, jobs, show)


class _Lines:
    """Progress for a log file: a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console, self._next_s = console, 0.0

    def show(self, moment: Moment) -> None:
        if moment.time_s >= self._next_s:
            self._next_s += LINE_EVERY_S
            self._console.print(f"{moment.completed} done, {_line(moment)}", soft_wrap=True)


def _line(moment: Moment) -> str:
    utilities = (("web", moment.web_utility), ("jobs", moment.jobs_level))
    content = "".join(f", {name} {value:.2f}" for name, value in utilities if value is not None)
    return (
        f"{moment.time_s / 3600:.1f} h, {moment.nodes_up} nodes up, {moment.waiting} waiting, "
        f"{moment.running} running, {moment.decisions} decisions{content}"
    )


def _follow(loop: ClosedLoop, jobs: int, show: Callable[[Moment], None]) -> list[Moment]:
    moments: list[Moment] = []
    while not moments or (moments[-1].completed < jobs and moments[-1].time_s < LONGEST_S):
        loop.run_until(len(moments) * REPORT_S)
        moments.append(_moment(loop))
        show(moments[-1])
    return moments


def _moment(loop: ClosedLoop) -> Moment:
    """The cluster now."""
    core = next(iter(loop.controllers.values())).core
    assert isinstance(core, Controller)
    state = describe(core)
    phases = state["jobs"]
    allotted = {
        vm: domain.cpu_mhz
        for hypervisor in loop.cluster.hypervisors.values()
        for vm, domain in hypervisor.domains.items()
        if domain.state is VmState.RUNNING
    }
    web = [mhz for vm, mhz in allotted.items() if workload_of(vm)[0] in loop.apps]
    return Moment(
        loop.engine.now_s,
        state["nodes_up"],
        phases["waiting"] + phases["suspended"],
        running=phases["running"],
        completed=phases["completed"],
        decisions=state["decisions"],
        allotted_mhz=sum(allotted.values()),
        web_mhz=sum(web),
        web_instances=len(web),
        web_utility=_web_utility(core),
        jobs_level=_jobs_level(loop),
    )


def _web_utility(core: Controller) -> float | None:
    """That of the unhappiest application."""
    found = [utility_of(web) for web in core.cluster.web.values()]
    return min((utility for utility in found if utility is not None), default=None)


def _jobs_level(loop: ClosedLoop) -> float | None:
    """The level that the jobs with goals reach together with the CPU that they are given now."""
    now_s, world = loop.engine.now_s, loop.world
    wanting = [job for job in loop.jobs.values() if job.submit_s <= now_s and not world.completions[job.name]]
    rows = [_row(loop, job, now_s) for job in wanting if job.goal_s is not None]
    given_mhz = sum(_share_mhz(loop, job) for job in wanting)
    if not rows or given_mhz <= 0.0:
        return None
    a, b, r, tb = (np.array(column) for column in zip(*rows, strict=True))
    level = JobDemand(a, b, r, tb).solve(given_mhz).level
    return level if math.isfinite(level) else None


def _row(loop: ClosedLoop, job: Job, now_s: float) -> tuple[float, float, float, float]:
    assert job.goal_s is not None
    left = max(0.0, job.work_mcycles - loop.world.done_mcycles(job.name, now_s))
    return job.instances * left, job.goal_s - now_s, job.goal_s - job.desired_start_s, left / job.max_mhz


def _share_mhz(loop: ClosedLoop, job: Job) -> float:
    vms = (instance_name(job.name, index) for index in range(job.instances))
    return sum(loop.world.share_mhz(vm) for vm in vms if loop.world.where(vm) is not None)


# --- what is left of it ----------------------------------------------------------------------------------------------


def _report(loop: ClosedLoop, moments: list[Moment], setting: dict[str, Any]) -> dict[str, Any]:
    figures = loop.figures(moments[-1].time_s).to_json()
    del figures["wall_s"]
    return {
        **setting,
        "virtual_s": moments[-1].time_s,
        **figures,
        **(_web_summary(loop, moments) if loop.apps else {}),
        "decisions": moments[-1].decisions,
        "actions": dict(sorted(loop.truth.actions.items())),
    }


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in values.items() if name not in ("operations", "actions")}
    return shown | {f"action {kind}": count for kind, count in values["actions"].items()}


def _web_summary(loop: ClosedLoop, moments: Sequence[Moment]) -> dict[str, Any]:
    """What became of the web application: utilities at the moments of the run, requests in all, instances."""
    utilities = [each.web_utility for each in moments if each.web_utility is not None]
    looks = [look for balancer in loop.balancers.values() for look in balancer.site.looks]
    count = len(utilities)
    return {
        "web_mean_utility": sum(utilities) / count if count else None,
        "web_least_utility": min(utilities, default=None),
        "web_on_goal_frac": sum(utility >= 0.0 for utility in utilities) / count if count else None,
        "web_peak_instances": max(each.web_instances for each in moments),
        "web_mean_mhz": sum(each.web_mhz for each in moments) / len(moments),
        "web_served_per_s": _mean([look.served_per_s for look in looks]),
        "web_rejected_per_s": _mean([look.rejected_per_s for look in looks]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _web_series(moments: list[Moment]) -> tuple[list[float], list[float | None], list[float | None]]:
    return (
        [each.web_mhz for each in moments],
        [each.web_utility for each in moments],
        [each.jobs_level for each in moments],
    )


def _save(folder: Path, values: dict[str, Any], loop: ClosedLoop, moments: list[Moment]) -> None:
    series = RunSeries(
        [each.time_s for each in moments],
        [each.waiting for each in moments],
        [each.running for each in moments],
        [each.completed for each in moments],
        [each.allotted_mhz for each in moments],
        sum(hypervisor.node.cpu_mhz for hypervisor in loop.cluster.hypervisors.values()),
        *(_web_series(moments) if loop.apps else ()),
    )
    columns = {name: list(getattr(series, name)) for name in series.__slots__ if name != "capacity_mhz"}
    report = values | {"series": columns | {"capacity_mhz": series.capacity_mhz}}
    body = json.dumps(report, indent=1, allow_nan=False) + "\n"
    write_file("--output-folder", folder / "report.json", body)
    if can_draw():
        title = f"{values['jobs_submitted']} jobs on {values['nodes']} nodes, {values['policy']}"
        write_file("--output-folder", folder / "run.png", draw_run(series, title))
    else:
        say("no picture drawn: matplotlib is missing (pip install 'trimtab[plots]')")
    say(f"saved in {folder}")
