"""`trimtab profile`: measure and show how jobs use nodes, and how fast nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.asking import limit_option, view
from daemons.cli.connection import ControllerConnection, NoAnswer, bus_options, change_options
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import REFUSED, CommandGroup, emit, output_option, say
from daemons.cli.render import listing, rows_of
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option
from daemons.manifests.job import read_job
from shared.protocol.operator_messages import ProfileNode, Query, SubmitJob
from shared.values.actions import ActionKind
from shared.values.jobs import Job, Rules
from shared.values.load_vector import STANDARD_COPIES_MAX, STANDARD_RUN_S_MAX, StandardJob, StandardRun
from shared.values.scalars import check_name

COPIES_MAX = 16
LOOK_S = 1.0
MARGIN_S = 150.0  # for a standard job to be begun, prepared and told of, beyond its run
PROFILES = (
    "class",
    "node_type",
    "status",
    "loading",
    "half_width",
    "source",
    "observations",
    "age_s",
    "converted_from",
    "drifted_at_s",
)
LEAST = ("converted_from", "half_width", "age_s", "source")
NODE_TYPES = ("node_type", "units_per_s", "servers", "runs", "age_s")
OPERATIONS = ("kind", "fixed_s", "s_per_mib", "measured", "median_mib", "median_s", "expected_s")
RUNS = ("node", "standard", "copies", "run_s", "job", "ended_at_s", "ok", "detail")


@click.group(cls=CommandGroup)
def profile() -> None:
    """Measure and show how jobs use nodes."""


@profile.command()
@click.argument("class_", metavar="[CLASS]", default="")
@limit_option
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, class_: str, limit: int) -> None:
    """Show the resource profiles of job classes whose names start with CLASS, and the throughput of node types.

    \b
    Example:
      trimtab profile show render
    """
    data = view(line, "profiles", class_, limit)
    emit(data, lambda: _shown(data))


@profile.command()
@bus_options
@output_option
def operations(line: ControllerConnection) -> None:
    """Show how long starting, suspending, resuming and migrating VMs takes: expected and measured.

    \b
    Example:
      trimtab profile operations
    """
    data = view(line, "operations", "", len(ActionKind))
    emit(data, lambda: listing("operations", rows_of(data, "operations"), OPERATIONS))


def _shown(data: Mapping[str, Any]) -> RenderableType:
    return stacked(
        listing("profiles", rows_of(data, "profiles"), PROFILES, LEAST),
        listing("node types", rows_of(data, "node_types"), NODE_TYPES),
        listing("calibration benchmarks", rows_of(data, "runs"), RUNS),
    )


@profile.command()
@click.argument("what", metavar="NODE|FILE")
@click.option(
    "--standard",
    type=click.Choice([each.value for each in StandardJob]),
    help="Run this calibration benchmark on the node.",
)
@click.option(
    "--seconds",
    type=Number(0.1, STANDARD_RUN_S_MAX),
    default=20.0,
    show_default=True,
    help="Run the benchmark this many seconds.",
)
@click.option(
    "--copies",
    type=Whole(1, STANDARD_COPIES_MAX),
    default=None,
    help="Run this many copies side by side; of a job file 1, then 2, up to this many.",
)
@click.option("--job", default="", help="Job on the node beside which the benchmark runs.")
@click.option("--node", default="", help="Node for the copies of the job in the file.")
@click.option("--class", "class_", default="", help="Class of the copies, instead of the one in the file.")
@change_options
@output_option
def run(line: ControllerConnection, what: str, standard: str | None, **options: Any) -> None:
    """Run a calibration benchmark on NODE, or submit copies of the job in FILE to a node.

    \b
    Example:
      trimtab profile run n1 --standard io
      trimtab profile run job.toml --node n1 --copies 3
    """
    if standard is not None:
        _unused(options, "node", "class_")
        _run_standard(line, what, StandardJob(standard), options)
        return
    _unused(options, "job")
    if not options["node"]:
        raise click.UsageError("Give --standard, or --node for copies of the job in a file.")
    _run_copies(line, Path(what), options["node"], options["copies"] or 3, options["class_"])


def _unused(options: Mapping[str, Any], *names: str) -> None:
    given = ["--" + name.rstrip("_") for name in names if options[name]]
    if given:
        raise click.UsageError(f"{given[0]} cannot be used here.")


# --- standard jobs ---------------------------------------------------------------------------------------------------


def _run_standard(line: ControllerConnection, node: str, job: StandardJob, options: Mapping[str, Any]) -> None:
    """Run the standard job and wait for its result; exit status 1 if it reports none."""
    check_name("NODE", node)
    wanted = StandardRun(job, options["seconds"], options["copies"] or 1)
    request = line.new_id()
    with line:
        line.ask(ProfileNode(request, node, wanted, options["job"]))
        say(f"{wanted.copies} of {job} on {node} for {wanted.run_s:g} s")
        row = _wait_for(line, request, wanted.run_s + MARGIN_S)
    emit({"done": bool(row["ok"]), "request": request, "run": row}, lambda: Text(f"{node}: {row['detail']}"))
    if not row["ok"]:
        click.get_current_context().exit(REFUSED)


def _wait_for(line: ControllerConnection, request: str, limit_s: float) -> dict[str, Any]:
    """Return the run of a request once it is over. NoAnswer if that takes too long."""
    until_s = line.now_s + limit_s
    while line.now_s < until_s:
        data = line.ask(Query(line.new_id(), "profiles"))
        found = [row for row in rows_of(data, "runs") if row["request"] == request]
        if not found:
            raise NoAnswer(f"the controller no longer knows {request}: another one leads; repeat the command")
        if found[0]["ended_at_s"] is not None:
            return dict(found[0])
        line.sleep(LOOK_S)
    raise NoAnswer(f"the benchmark sent no result within {limit_s:g} s; see `trimtab profile show`")


# --- copies ----------------------------------------------------------------------------------------------------------


def _run_copies(line: ControllerConnection, file: Path, node: str, most: int, class_: str) -> None:
    """Submit batches of 1, 2, ... copies, each after the one before."""
    check_name("--node", node)
    if most > COPIES_MAX:
        raise click.UsageError(f"--copies of a job is at most {COPIES_MAX}.")
    job = read_job(file, line.now_s)
    job_class = class_ or job.job_class
    if not job_class:
        raise click.UsageError("--class is missing, and the file has none.")
    check_name("--class", job_class)
    batches = copies_of(job, node, most, job_class)
    requests = [SubmitJob(line.new_id(), each) for batch in batches for each in batch]
    with line:
        for request in requests:
            line.ask(request)
    names = [[each.name for each in batch] for batch in batches]
    emit(
        {"done": True, "node": node, "class": job_class, "batches": names},
        lambda: stacked(
            Text(f"{len(requests)} jobs of class {job_class} are submitted to {node}, one batch after the other:"),
            *(Text("  " + ", ".join(batch)) for batch in names),
            Text("keep other VMs off the node until they end; then `trimtab profile show` has their profile"),
        ),
    )


def copies_of(job: Job, node: str, most: int, job_class: str) -> list[list[Job]]:
    """Batches of 1, 2, ... `most` copies of a job of one instance, pinned to a node, each after the batch before."""
    batches: list[list[Job]] = []
    for count in range(1, most + 1):
        after = tuple(each.name for each in batches[-1]) if batches else job.depends_on
        batches.append(
            [
                replace(
                    job,
                    name=f"{job.name}-{count}-{copy}",
                    instances=1,
                    job_class=job_class,
                    depends_on=after,
                    goal_s=None,
                    rules=Rules(node_affinity=(node,), no_migration=job.rules.no_migration),
                )
                for copy in range(1, count + 1)
            ]
        )
    return batches
