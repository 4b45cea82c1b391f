"""`trimtab sim run`: a cluster at work in virtual time, to watch; ends in a summary, a report and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from agents.core.settings import AgentSettings
from daemons.capacity.process_pool import run_all
from daemons.cli.numbers import Number, Whole, seed_range
from daemons.cli.output import emit, messages, output_option, say, two_columns
from daemons.controller.core.controller import Controller
from daemons.decision.gains import columns_of
from daemons.report.draw import can_draw
from daemons.report.pictures import RunSeries, draw_band, draw_run
from daemons.values.settings import ControllerSettings, PolicyChoice, WebPlanning
from shared.base.clock import perf_s
from shared.base.write_file import make_folder, write_file
from shared.ports.plugins import find_policy
from shared.values.jobs import workload_of
from shared.values.operation_costs import COSTS
from shared.values.vms import VmState
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.loop.outline import describe
from sim_backend.loop.satisfaction import APART, Minute, counted, mean, minute, satisfaction
from sim_backend.replay.workloads import Declared, WebShape, experiment_four, misdeclared, paper_nodes, shop
from sim_backend.world.web_site import TrueWeb

MEAN_GAP_S = 150.0
MINUTE_S = 60.0  # between two moments of the report
REPORT_S = 20.0
SAMPLE_S = 5.0  # between two measurements of the web application, as a controller reads counters
LINE_EVERY_S = 7_200.0  # of virtual time, between plain lines of progress
LONGEST_S = 1_000_000.0  # a run that is not over by then never ends
NODES_MAX, JOBS_MAX = 1_000, 10_000


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at one time of the run, as its controller sees it; the CPU is the truth. `minute`: how the web
    application and the jobs fared since the moment before. alarms: code and words of those that a wrong prediction
    raises. errors: how far the last prediction that was measured since then was off, of each side."""

    time_s: float
    nodes_up: int
    waiting: int
    running: int
    completed: int
    decisions: int
    allotted_mhz: float
    web_mhz: float
    web_instances: int
    minute: Minute
    alarms: tuple[tuple[str, str], ...]
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is made of."""

    nodes: int
    jobs: int
    web_load: float
    web_shape: WebShape
    declared: Declared
    work_error: float
    response_factor: float
    oracle: bool
    policy: str
    costs: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: its figures, and the moments that the picture shows."""

    values: dict[str, Any]
    moments: tuple[Moment, ...]
    capacity_mhz: float


@click.command()
@click.option(
    "--nodes", type=Whole(1, NODES_MAX), default=25, show_default=True, help="Number of nodes of 4 x 3.9 GHz."
)
@click.option("--jobs", type=Whole(1, JOBS_MAX), default=200, show_default=True, help="Number of jobs.")
@click.option(
    "--web-load",
    type=Number(0.0, 1.0),
    default=0.5,
    show_default=True,
    help="Mean fraction of the CPU that the requests of a web application use; 0: no application.",
)
@click.option(
    "--policy",
    default=ControllerSettings().placement.name,
    show_default=True,
    help="Placement policy.",
)
@click.option(
    "--costs",
    type=click.Choice(tuple(COSTS)),
    default="paper",
    show_default=True,
    help="Durations of operations on VMs.",
)
@click.option(
    "--web-shape",
    type=click.Choice([shape.value for shape in WebShape]),
    default=WebShape.NOISY.value,
    show_default=True,
    help="How the load of the web application changes over time.",
)
@click.option(
    "--work-error",
    type=Number(-0.9, 9.0),
    help="Fraction by which declared work of requests and jobs exceeds the true one.",
)
@click.option(
    "--response-factor",
    type=Number(0.1, 10.0),
    default=1.0,
    show_default=True,
    help="Factor by which requests take longer than their model says, except for the time that CPU does not shorten.",
)
@click.option(
    "--oracle",
    is_flag=True,
    help="Give the controller the true work and the future load, for comparison.",
)
@click.option("--undeclared-work", is_flag=True, help="Declare no work of requests.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of jobs and load.")
@click.option("--seeds", type=seed_range, metavar="A-B", help="Run each of these seeds instead, both included.")
@click.option(
    "--output-folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-run"),
    show_default=True,
    help="Folder for report.json and run.png.",
)
@output_option
def run(
    nodes: int,
    jobs: int,
    web_load: float,
    policy: str,
    costs: str,
    web_shape: str,
    work_error: float | None,
    response_factor: float,
    oracle: bool,
    undeclared_work: bool,
    seed: int,
    seeds: range | None,
    output_folder: Path,
) -> None:
    """Run the real controller and agents on a stream of jobs and a web application, in virtual time, and show progress.

    A summary, a report and a picture are written into --output-folder.

    \b
    Example:
      trimtab sim run --jobs 50 --nodes 10
    """
    find_policy("placement", policy)
    if undeclared_work and work_error is not None:
        raise click.UsageError("--undeclared-work and --work-error exclude each other")
    if oracle and (undeclared_work or work_error):
        raise click.UsageError("--oracle knows the true work: it goes without --undeclared-work and --work-error")
    make_folder("--output-folder", output_folder)
    declared = (
        Declared.NOTHING if undeclared_work else Declared.ALL if oracle or work_error is not None else Declared.PART
    )
    setting = Setting(
        nodes=nodes,
        jobs=jobs,
        web_load=web_load,
        web_shape=WebShape(web_shape),
        declared=declared,
        work_error=work_error or 0.0,
        response_factor=response_factor,
        oracle=oracle,
        policy=policy,
        costs=costs,
        seed=seed,
    )
    if seeds is None:
        outcome = _run(setting, messages())
        _save(output_folder, outcome)
        emit(outcome.values, lambda: two_columns(f"{jobs} jobs on {nodes} nodes under {policy}", _flat(outcome.values)))
        return
    begun_s = perf_s()
    outcomes = _run_all([replace(setting, seed=each) for each in seeds])
    runs = [outcome.values for outcome in outcomes]
    values: dict[str, Any] = {"runs": runs, "wall_s": perf_s() - begun_s}
    _save_all(output_folder, values, outcomes)
    emit(values, lambda: _seeds_table(runs))


def _run(setting: Setting, console: Console | None) -> Outcome:
    """Run one; progress goes to the console, if there is one."""
    begun_s = perf_s()
    loop = _loop(setting)
    moments = _follow(loop, setting.jobs, _quiet) if console is None else _watch(loop, setting.jobs, console)
    values = {**_report(loop, moments, setting), "wall_s": perf_s() - begun_s}
    capacity_mhz = sum(hypervisor.node.cpu_mhz for hypervisor in loop.cluster.hypervisors.values())
    return Outcome(values, tuple(moments), capacity_mhz)


def _run_all(settings: Sequence[Setting]) -> list[Outcome]:
    """Run several, on all processors."""
    console = messages()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("runs", total=len(settings))
        work = [(_run, (setting, None)) for setting in settings]
        return run_all(work, None, lambda done: shown.update(task, completed=done))


def _loop(setting: Setting) -> ClosedLoop:
    controller = ControllerSettings(
        report_s=REPORT_S,
        reconcile_s=REPORT_S,
        unreachable_after_s=3 * REPORT_S,
        probe_s=REPORT_S,
        placement=PolicyChoice(setting.policy),
    )
    cluster = paper_nodes(setting.nodes)
    app, site = shop(cluster, setting.web_load, setting.seed, setting.web_shape, setting.declared, setting.work_error)
    if setting.oracle:
        controller = replace(controller, web_planning=_oracle(site, controller.web_planning))
    loop = ClosedLoop(cluster, LoopSettings(controller, AgentSettings(report_s=REPORT_S), costs=COSTS[setting.costs]))
    if setting.web_load > 0.0:
        loop.submit_web(app, replace(site, response_factor=setting.response_factor), MINUTE_S, SAMPLE_S)
    jobs = experiment_four(np.random.default_rng(setting.seed), setting.jobs, MEAN_GAP_S)
    for job, truth in misdeclared(jobs, setting.work_error):
        loop.submit(job, truth)
    return loop


def _oracle(truth: TrueWeb, planning: WebPlanning) -> WebPlanning:
    """Return the planning with the highest demand of the application until CPU is next allocated."""
    ahead_s = [part * planning.horizon_s for part in np.linspace(0.0, 1.0, 7).tolist()]

    def known_mhz(_app: str, now_s: float) -> float:
        return max(sum(flow.demand(now_s + s) * flow.work_mcycles for flow in truth.flows) for s in ahead_s)

    return replace(planning, known_mhz=known_mhz)


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
    utilities = (("web", moment.minute.web), ("jobs", moment.minute.jobs))
    content = "".join(f", {name} {value:.2f}" for name, value in utilities if value is not None)
    return (
        f"{moment.time_s / 3600:.1f} h, {moment.nodes_up} nodes up, {moment.waiting} waiting, "
        f"{moment.running} running, {moment.decisions} decisions{content}"
    )


def _follow(loop: ClosedLoop, jobs: int, show: Callable[[Moment], None]) -> list[Moment]:
    moments: list[Moment] = []
    while not moments or (moments[-1].completed < jobs and moments[-1].time_s < LONGEST_S):
        loop.run_until(len(moments) * MINUTE_S)
        moments.append(_moment(loop, moments[-1].time_s if moments else 0.0))
        show(moments[-1])
    return moments


def _quiet(_moment: Moment) -> None:
    """Show nothing."""


def _moment(loop: ClosedLoop, since_s: float) -> Moment:
    """Return the state of the cluster now, and the measurements since then."""
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
        minute=minute(loop, since_s),
        alarms=tuple((code, words) for code, _, _, words in _alarms(core, loop.engine.now_s)),
        errors=_errors(core, since_s),
    )


def _alarms(core: Controller, now_s: float) -> Iterable[tuple[str, str, float | None, str]]:
    return (*core.deciding.alarms(), *core.features.alarms(now_s))


def _errors(core: Controller, since_s: float) -> tuple[float, ...]:
    """Predicted less measured utility, the means over the same applications and over the same jobs."""
    last = next((record for record in core.deciding.history if record.measured_s is not None), None)
    if last is None or last.measured_s is None or last.measured_s <= since_s:
        return ()
    gains = columns_of(last.gains)
    known = np.isfinite(gains.measured)
    web = np.array([name in core.cluster.web for name in gains.names], dtype=np.bool_)
    errors = gains.predicted - gains.measured
    return tuple(float(errors[side & known].mean()) for side in (web, ~web) if (side & known).any())


# --- what is left of it ----------------------------------------------------------------------------------------------


def _report(loop: ClosedLoop, moments: Sequence[Moment], setting: Setting) -> dict[str, Any]:
    figures = loop.figures(moments[-1].time_s).to_json()
    del figures["wall_s"]
    return {
        **setting.to_json(),
        "virtual_s": moments[-1].time_s,
        **figures,
        **(_web_summary(loop, moments) if loop.apps else {}),
        **_predictions(moments),
        "decisions": moments[-1].decisions,
        "actions": dict(sorted(loop.truth.actions.items())),
    }


def _predictions(moments: Sequence[Moment]) -> dict[str, Any]:
    """Return the share of predictions within 0.1 of the measurement, for web and jobs alike, and the first of each
    alarm: its time and text."""
    errors = [each.errors for each in moments if each.errors]
    alarms: dict[str, dict[str, Any]] = {}
    for each in moments:
        for code, words in each.alarms:
            alarms.setdefault(code, {"first_s": each.time_s, "minutes": 0, "detail": words})
        for code in {code for code, _ in each.alarms}:
            alarms[code]["minutes"] += 1
    return {
        "predicted_within_frac": mean([float(max(map(abs, both)) <= APART) for both in errors]),
        "over_promised_frac": mean([float(max(both) > APART) for both in errors]),
        "alarms": alarms,
    }


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in values.items() if name not in ("operations", "actions", "alarms")}
    shown |= {f"alarm {code}": f"from {each['first_s']:.0f} s" for code, each in values["alarms"].items()}
    return shown | {f"action {kind}": count for kind, count in values["actions"].items()}


SHOWN = (
    "web_below_frac",
    "jobs_below_frac",
    "web_off_goal_frac",
    "level_p10",
    "predicted_within_frac",
    "web_median_utility",
    "web_p10_utility",
    "web_unserved_s",
    "goals_met",
)


def _seeds_table(runs: Sequence[dict[str, Any]]) -> Table:
    """Return a table of each figure over several runs: mean, least and most."""
    table = Table(title=f"{len(runs)} runs", title_justify="left", box=None, pad_edge=False)
    table.add_column("figure")
    for name in ("mean", "least", "most"):
        table.add_column(name, justify="right")
    for figure in SHOWN:
        values = [run[figure] for run in runs if run.get(figure) is not None]
        if values:
            table.add_row(figure, *(f"{value:.3f}" for value in (sum(values) / len(values), min(values), max(values))))
    return table


def _web_summary(loop: ClosedLoop, moments: Sequence[Moment]) -> dict[str, Any]:
    """Summarize the web application from its first answered request on: utilities, requests, instances."""
    minutes = counted([each.minute for each in moments])
    utilities = [each.web for each in minutes if each.web is not None]
    looks = [look for balancer in loop.balancers.values() for look in balancer.site.looks]
    return {
        "web_mean_utility": mean(utilities),
        "web_least_utility": min(utilities, default=None),
        "web_on_goal_frac": mean([float(utility >= 0.0) for utility in utilities]),
        "web_peak_instances": max(each.web_instances for each in moments),
        "web_mean_mhz": sum(each.web_mhz for each in moments) / len(moments),
        "web_served_per_s": mean([look.served_per_s for look in looks]),
        "web_rejected_per_s": mean([look.rejected_per_s for look in looks]),
        **satisfaction(minutes, MINUTE_S),
    }


def _series(outcome: Outcome) -> RunSeries:
    moments = outcome.moments
    series = RunSeries(
        [each.time_s for each in moments],
        waiting=[each.waiting for each in moments],
        running=[each.running for each in moments],
        completed=[each.completed for each in moments],
        allotted_mhz=[each.allotted_mhz for each in moments],
        capacity_mhz=outcome.capacity_mhz,
    )
    if "web_mean_mhz" not in outcome.values:
        return series
    return replace(
        series,
        web_mhz=[each.web_mhz for each in moments],
        web_utility=[each.minute.web for each in moments],
        jobs_level=[each.minute.jobs for each in moments],
    )


def _with_series(outcome: Outcome) -> dict[str, Any]:
    series = _series(outcome)
    columns = {name: list(getattr(series, name)) for name in series.__slots__ if name != "capacity_mhz"}
    return outcome.values | {"series": columns | {"capacity_mhz": series.capacity_mhz}}


def _save(folder: Path, outcome: Outcome) -> None:
    values = outcome.values
    title = f"{values['jobs_submitted']} jobs on {values['nodes']} nodes, {values['policy']}"
    _write(folder, _with_series(outcome), lambda: draw_run(_series(outcome), title))


def _save_all(folder: Path, values: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    report = values | {"runs": [_with_series(outcome) for outcome in outcomes]}
    first = outcomes[0].values
    title = f"{len(outcomes)} runs of {first['jobs_submitted']} jobs on {first['nodes']} nodes, {first['policy']}"
    _write(folder, report, lambda: draw_band([_series(outcome) for outcome in outcomes], title))


def _write(folder: Path, report: dict[str, Any], draw: Callable[[], bytes]) -> None:
    body = json.dumps(report, indent=1, allow_nan=False) + "\n"
    write_file("--output-folder", folder / "report.json", body)
    if can_draw():
        write_file("--output-folder", folder / "run.png", draw())
    else:
        say("no picture drawn: matplotlib is missing (pip install 'trimtab[plots]')")
    say(f"saved in {folder}")
