"""`trimtab sim run`: a cluster at work in virtual time, to watch; ends in a summary, a report and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

from agents.settings import AgentSettings
from daemons.cli.output import emit, messages, output_option, two_columns
from daemons.controller import Controller, describe
from daemons.report.pictures import RunSeries, can_draw, draw_run
from daemons.settings import ControllerSettings, PolicyChoice
from shared.clock import perf_s
from shared.costs import COSTS
from shared.errors import InvalidInput, Problem
from shared.model import VmState
from shared.plugins import find_policy
from sim_backend.closed_loop import ClosedLoop, LoopSettings
from sim_backend.workloads import experiment_four, paper_nodes

MEAN_GAP_S = 150.0
REPORT_S = 60.0
LINE_EVERY_S = 7_200.0  # of virtual time, between plain lines of progress
LONGEST_S = 1_000_000.0  # a run that is not over by then never ends
NODES_MAX, JOBS_MAX = 1_000, 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at one time of the run, as its controller sees it; `allotted_mhz` is the truth."""

    time_s: float
    nodes_up: int
    waiting: int
    running: int
    completed: int
    decisions: int
    allotted_mhz: float


@click.command()
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), default=25, show_default=True, help="Nodes of 4 x 3.9 GHz.")
@click.option("--jobs", type=click.IntRange(1, JOBS_MAX), default=200, show_default=True, help="Jobs to submit.")
@click.option("--policy", default="first-fit", show_default=True, help="Any registered placement policy.")
@click.option(
    "--costs", type=click.Choice(tuple(COSTS)), default="paper", show_default=True, help="What operations on VMs take."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the jobs.")
@click.option(
    "--output-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-run"),
    show_default=True,
    help="Where report.json and run.png go.",
)
@output_option
def run(nodes: int, jobs: int, policy: str, costs: str, seed: int, output_folder: Path) -> None:
    """Watch the real controller and agents place a stream of jobs on simulated nodes, in virtual time."""
    find_policy("placement", policy)
    _make_folder(output_folder)
    begun_s = perf_s()
    loop = _loop(nodes, jobs, policy, costs, seed)
    moments = _watch(loop, jobs, messages())
    values = _report(loop, moments, {"policy": policy, "costs": costs, "seed": seed, "nodes": nodes})
    values["wall_s"] = perf_s() - begun_s
    _save(output_folder, values, loop, moments)
    emit(values, lambda: two_columns(f"{jobs} jobs on {nodes} nodes under {policy}", _flat(values)))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(Problem("--output-folder", str(error), "a folder that can be written to")) from error


def _loop(nodes: int, jobs: int, policy: str, costs: str, seed: int) -> ClosedLoop:
    controller = ControllerSettings(
        report_s=REPORT_S,
        reconcile_s=REPORT_S,
        silent_after_s=3 * REPORT_S,
        probe_s=REPORT_S,
        placement=PolicyChoice(policy),
    )
    settings = LoopSettings(controller, AgentSettings(report_s=REPORT_S), costs=COSTS[costs])
    loop = ClosedLoop(paper_nodes(nodes), settings)
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

        def show(moment: Moment) -> None:
            progress.update(task, completed=moment.completed, state=_line(moment))

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
    return (
        f"{moment.time_s / 3600:.1f} h, {moment.nodes_up} nodes up, {moment.waiting} waiting, "
        f"{moment.running} running, {moment.decisions} decisions"
    )


def _follow(loop: ClosedLoop, jobs: int, show: Callable[[Moment], None]) -> list[Moment]:
    moments: list[Moment] = []
    while not moments or (moments[-1].completed < jobs and moments[-1].time_s < LONGEST_S):
        loop.run_until(len(moments) * REPORT_S)
        moments.append(_moment(loop))
        show(moments[-1])
    return moments


def _moment(loop: ClosedLoop) -> Moment:
    core = next(iter(loop.controllers.values())).core
    assert isinstance(core, Controller)
    state = describe(core)
    phases = state["jobs"]
    allotted_mhz = sum(
        domain.cpu_mhz
        for hypervisor in loop.cluster.hypervisors.values()
        for domain in hypervisor.domains.values()
        if domain.state is VmState.RUNNING
    )
    waiting = phases["waiting"] + phases["suspended"]
    return Moment(
        loop.engine.now_s,
        state["nodes_up"],
        waiting,
        phases["running"],
        phases["completed"],
        state["decisions"],
        allotted_mhz,
    )


# --- what is left of it ----------------------------------------------------------------------------------------------


def _report(loop: ClosedLoop, moments: list[Moment], setting: dict[str, Any]) -> dict[str, Any]:
    figures = loop.figures(moments[-1].time_s).to_json()
    del figures["wall_s"]
    return {
        **setting,
        "virtual_s": moments[-1].time_s,
        **figures,
        "decisions": moments[-1].decisions,
        "actions": dict(sorted(loop.truth.actions.items())),
    }


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in values.items() if name not in ("operations", "actions")}
    return shown | {f"action {kind}": count for kind, count in values["actions"].items()}


def _save(folder: Path, values: dict[str, Any], loop: ClosedLoop, moments: list[Moment]) -> None:
    series = RunSeries(
        [moment.time_s for moment in moments],
        [moment.waiting for moment in moments],
        [moment.running for moment in moments],
        [moment.completed for moment in moments],
        [moment.allotted_mhz for moment in moments],
        sum(hypervisor.node.cpu_mhz for hypervisor in loop.cluster.hypervisors.values()),
    )
    columns = {name: list(getattr(series, name)) for name in series.__slots__ if name != "capacity_mhz"}
    report = values | {"series": columns | {"capacity_mhz": series.capacity_mhz}}
    try:
        (folder / "report.json").write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        if can_draw():
            title = f"{values['jobs_submitted']} jobs on {values['nodes']} nodes, {values['policy']}"
            draw_run(series, title, folder / "run.png")
        else:
            click.echo("no picture drawn: matplotlib is missing (pip install 'trimtab[plots]')", err=True)
    except OSError as error:
        raise InvalidInput(Problem("--output-folder", str(error), "a folder that can be written to")) from error
    click.echo(f"saved in {folder}", err=True)
