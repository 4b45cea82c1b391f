"""`trimtab env advise`: which sharing model suits a load, with which parameters, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import RenderableType
from rich.progress import Progress
from rich.text import Text

from daemons.capacity.advise.advise import Advice, name_of, why
from daemons.capacity.advise.advise import advise as play
from daemons.capacity.advise.values import MODELS, AdviceRequest, Judged, Load
from daemons.capacity.coordination.demand import DAY_S, read_steps
from daemons.capacity.coordination.file import EVENTS_MAX, NODES_MAX, SECONDS_MAX
from daemons.capacity.coordination.values import SECONDS_PER_HOUR, WebDemand
from daemons.capacity.swf import SwfJob, read_swf, replay_jobs
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, messages, output_option
from daemons.cli.tables import Fitted, stacked
from shared.base.errors import InvalidInput, Problem
from shared.values.replay_job import ReplayJob
from shared.values.scalars import check_name
from sim_backend.env_commands.agreements import refuse_folder, write

SHOWN = 8  # options in the table, beside the best of each model
LEASE_S = (SECONDS_PER_HOUR,)
COLUMNS = (
    "option",
    "node-hours",
    "cost",
    "peak",
    "jobs",
    "turnaround s",
    "web waited",
    "adjustments",
    "wasted",
    "lacks",
)
LEAST = ("wasted", "adjustments", "peak", "web waited", "cost")  # dropped first where there is not room for all
T = TypeVar("T")
_positive = Number(0.0, 1e9, above=True)
_file = click.Path(path_type=Path)


@click.command()
@click.option("--log", type=_file, metavar="LOG.swf", help="Batch jobs, plain or gzip.")
@click.option(
    "--demand", type=_file, metavar="DEMAND.csv", help="Nodes that the web application needs: columns t_s and vms."
)
@click.option("--divide-sizes", type=Whole(1, 1_000_000), default=1, show_default=True, help="Processors per node.")
@click.option(
    "--skip-jobs",
    type=Whole(0, 10**12),
    multiple=True,
    metavar="N",
    help="Leave out this job number; repeatable.",
)
@click.option("--window", "window_s", type=Number(1.0, SECONDS_MAX), metavar="S", help="Simulate this many seconds.")
@click.option("--scale", type=Number(1e-6, 1e6), default=1.0, show_default=True, help="Multiply the demand by this.")
@click.option("--nodes", type=Whole(1, NODES_MAX), metavar="N", help="Nodes of a dedicated batch cluster.")
@click.option(
    "--lease-s",
    "leases_s",
    type=Number(1.0, SECONDS_MAX),
    multiple=True,
    default=LEASE_S,
    show_default=True,
    help="Reallocation interval in seconds; repeatable.",
)
@click.option(
    "--max-turnaround-factor",
    "factor",
    type=_positive,
    default=1.5,
    show_default=True,
    metavar="F",
    help="Allow this multiple of the mean turnaround on dedicated nodes.",
)
@click.option(
    "--max-web-wait",
    type=Number(0.0, 1e9),
    default=0.0,
    show_default=True,
    metavar="NODE-HOURS",
    help="Allow the web application to wait for this much.",
)
@click.option("--max-nodes", type=Whole(1, NODES_MAX), metavar="N", help="Allow at most this many nodes at a time.")
@click.option("--price-per-node-hour", "price", type=Number(0.0, 1e9), metavar="P", help="Price, to compute the cost.")
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write specification files into this folder.",
)
@click.option("--owner", default="owner", show_default=True, help="Owner in these files.")
@output_option
def advise(
    log: Path | None,
    demand: Path | None,
    divide_sizes: int,
    skip_jobs: tuple[int, ...],
    window_s: float | None,
    scale: float,
    nodes: int | None,
    leases_s: tuple[float, ...],
    factor: float,
    max_web_wait: float,
    max_nodes: int | None,
    price: float | None,
    folder: Path | None,
    owner: str,
) -> None:
    """Simulate a log of jobs, the demand of a web site, or both, under every sharing model, and recommend one.

    \b
    Example:
      trimtab env advise --log examples/coordinate-jobs.swf --demand examples/coordinate-demand.csv
    """
    check_name("--owner", owner)
    load = _read(log, demand, (divide_sizes, skip_jobs), window_s, scale, nodes)
    _refuse_too_many(load, leases_s)
    if folder is not None:
        refuse_folder(folder)
    asked = AdviceRequest(factor, max_web_wait, max_nodes)
    advice = _with_progress(lambda tell: play(load, asked, leases_s, tell=tell))
    written = [] if folder is None else write(advice.best, load, owner, folder)
    emit(_plain(advice, price, written), lambda: _for_people(advice, price, written))


# --- what is given ----------------------------------------------------------------------------------------------------


def _read(
    log: Path | None,
    demand: Path | None,
    chosen: tuple[int, tuple[int, ...]],
    window_s: float | None,
    scale: float,
    nodes: int | None,
) -> Load:
    """Return the load in the files. Raises `InvalidInput` with every problem of both."""
    if log is None and demand is None:
        raise InvalidInput(Problem("--log", "is missing, and so is --demand", "at least one of the two"))
    problems: list[Problem] = []
    found = None if log is None else _tried(problems, lambda: read_swf(log))
    steps = None if demand is None else _tried(problems, lambda: read_steps(demand, scale))
    if problems:
        raise InvalidInput(*problems)
    horizon_s = window_s or _horizon_s(found, steps)
    jobs = () if found is None else _jobs(found, horizon_s, chosen, str(log))
    largest = max((job.nodes for job in jobs), default=0)
    if nodes is not None and nodes < largest:
        raise InvalidInput(Problem("--nodes", f"is {nodes}", f"at least {largest}, which the largest job needs"))
    own = (nodes or largest) if jobs else 0
    load = Load(jobs, steps or WebDemand((0.0,), (0,), horizon_s), horizon_s, own)
    if not jobs and not load.web_peak:
        raise InvalidInput(Problem(str(demand), "nothing is needed in the simulated time", "a demand above 0"))
    return load


def _jobs(
    found: Sequence[SwfJob], horizon_s: float, chosen: tuple[int, tuple[int, ...]], name: str
) -> tuple[ReplayJob, ...]:
    jobs = replay_jobs(found, horizon_s, chosen[0], frozenset(chosen[1]), name)
    if not jobs:
        raise InvalidInput(Problem(name, "no job is submitted in the simulated time", "a job from 0 s on"))
    return jobs


def _tried(problems: list[Problem], work: Callable[[], T]) -> T | None:
    try:
        return work()
    except InvalidInput as error:
        problems += error.problems
        return None


def _horizon_s(jobs: Sequence[SwfJob] | None, demand: WebDemand | None) -> float:
    """Whole days: those in which the jobs are submitted, else those of the demand."""
    if jobs is None:
        assert demand is not None  # one of the two is there
        return demand.period_s
    return DAY_S * (max(0.0, max(job.submit_s for job in jobs)) // DAY_S + 1)


def _refuse_too_many(load: Load, leases_s: Sequence[float]) -> None:
    """Timers and changes come at most so often."""
    problems = []
    if load.horizon_s / min(leases_s) > EVENTS_MAX:
        problems.append(
            Problem("--lease-s", f"is {min(leases_s):g}", f"at most {EVENTS_MAX} intervals in the simulated time")
        )
    if len(load.demand.times_s) * math.ceil(load.horizon_s / load.demand.period_s) > EVENTS_MAX:
        problems.append(Problem("--window", "the demand changes too often", f"at most {EVENTS_MAX} changes"))
    if problems:
        raise InvalidInput(*problems)


def _with_progress(work: Callable[[Callable[[int, int], None]], Advice]) -> Advice:
    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=None)
        return work(lambda done, total: progress.update(task, completed=done, total=total))


# --- what comes out ---------------------------------------------------------------------------------------------------


def _plain(advice: Advice, price: float | None, written: Sequence[Path]) -> dict[str, Any]:
    load, asked = advice.load, advice.asked
    return {
        "given": {
            "jobs": len(load.jobs),
            "largest_job_nodes": load.largest,
            "nodes": load.nodes,
            "web_peak_nodes": load.web_peak,
            "window_s": load.horizon_s,
        },
        "asked": {name: getattr(asked, name) for name in asked.__slots__},
        "recommended": advice.best.to_json(price),
        "why": why(advice, price),
        "runner_up": None if advice.runner_up is None else advice.runner_up.to_json(price),
        "dedicated": advice.dedicated.to_json(price),
        "options": [each.to_json(price) for each in advice.options],
        "written": [str(path) for path in written],
    }


def _for_people(advice: Advice, price: float | None, written: Sequence[Path]) -> RenderableType:
    models = dict.fromkeys(MODELS)
    for each in advice.options:
        model = each.option.setting.model
        models[model] = models[model] or each
    chosen = [*advice.options[:SHOWN], *(each for each in models.values() if each is not None)]
    title = f"{len(advice.options)} options, the best first; the best of each model last"
    table = Fitted(title, COLUMNS, [_row(judged, price) for judged in chosen], LEAST)
    parts: list[RenderableType] = [table, Text(f"recommended: {why(advice, price)}")]
    return stacked(*parts, *(Text(f"written: {path}") for path in written))


def _row(judged: Judged, price: float | None) -> list[str]:
    option = judged.option
    outcome, turnaround_s = option.outcome, option.outcome.mean_turnaround_s
    return [
        name_of(option.setting),
        f"{outcome.node_hours:,.0f}",
        "-" if price is None else f"{price * outcome.node_hours:,.2f}",
        f"{outcome.peak_nodes:,}",
        f"{outcome.jobs_completed:,}",
        "-" if turnaround_s is None else f"{turnaround_s:,.0f}",
        f"{outcome.web_waited_node_hours:,.1f}",
        f"{outcome.adjustments:,}",
        f"{option.wasted:,.1f}",
        "; ".join(miss.what for miss in judged.misses) or "-",
    ]
