"""`trimtab jobs`: submit, watch and cancel jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import env_option, inner, limit_option, name_option, tell_each, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import WAITS, failures, listing, record, rows_of, shown
from daemons.manifests.job import read_job, understood
from daemons.values.text_format import time_text
from shared.protocol.operator_messages import CancelJob, SubmitJob
from shared.values.jobs import Job, JobPhase

COLUMNS = ("name", "phase", "held", "instances", "nodes", "progress_pct", "goal_at_s", "waits_for", "back_off_until_s")


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Submit, watch and cancel jobs."""


@jobs.command("list")
@click.option("--phase", type=click.Choice([phase.value for phase in JobPhase]), help="Only jobs in this phase.")
@limit_option
@bus_options
@output_option
def list_jobs(line: ControllerConnection, phase: str | None, limit: int) -> None:
    """Show the jobs: how far each is, where it runs, and why it waits."""
    data = view(line, "jobs", phase or "", limit)
    emit(data, lambda: listing("jobs", rows_of(data, "jobs"), COLUMNS))


@jobs.command()
@click.argument("job", shell_complete=complete.jobs)
@bus_options
@output_option
def show(line: ControllerConnection, job: str) -> None:
    """Show all that is known of one job, and why it waits."""
    data = view(line, "job", job)
    emit(data, lambda: _job_for_people(job, data))


def _job_for_people(name: str, data: dict[str, Any]) -> RenderableType:
    values = inner(data, "job")
    instances = rows_of(values, "instance_list")
    plain = [{key: value for key, value in row.items() if key != "last_failure"} for row in instances]
    table = record(f"job {name}", {**values, "instance_list": plain} if plain else values)
    idle = values.get("phase") in (JobPhase.WAITING, JobPhase.SUSPENDED)
    return Group(table, *([Text(f"it waits: {_why(values)}")] if idle else []), *failures(instances))


def _why(values: dict[str, Any]) -> str:
    """Why a job does not run, with the numbers."""
    reasons = ["an operator holds it (`trimtab vms resume`)"] if values.get("held") else []
    if values.get(WAITS):
        words, text = shown(WAITS, values[WAITS]), shown("text", values[WAITS])
        reasons.append(words if words == text else f"{words} ({text})")
    if values.get("back_off_until_s") is not None:
        reasons.append(f"not before {shown('back_off_until_s', values['back_off_until_s'])}")
    return "; ".join(reasons) or "for the next decision"


@jobs.command()
@click.argument("file", type=click.Path(path_type=Path))
@name_option
@env_option
@click.option("--dry-run", is_flag=True, help="Only show the job as it is understood; nothing is sent.")
@change_options
@output_option
def submit(line: ControllerConnection, file: Path, name: str, environment: str, dry_run: bool) -> None:
    """Submit the job that a TOML file describes (examples/job.toml)."""
    job = read_job(file, line.now_s, name, environment)
    request = line.new_id()
    if not dry_run:
        with line:
            line.ask(SubmitJob(request, job))
    values = {"done": not dry_run, "request": "" if dry_run else request, "job": understood(job)}
    emit(values, lambda: _understood(job) if dry_run else Text(_accepted(job)))


def _understood(job: Job) -> RenderableType:
    return record(f"job {job.name} as understood", understood(job))


def _accepted(job: Job) -> str:
    goal = "best effort" if job.goal_s is None else f"to be complete by {time_text(job.goal_s)}"
    goal = f"to be complete by the deadline of queue {job.queue}" if job.queue else goal
    where = f" to environment {job.environment}" if job.environment else ""
    return f"job {job.name} is submitted{where}, {goal}"


@jobs.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)
@change_options
@output_option
def cancel(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Stop the VMs of jobs, discard their images and end them."""
    tell_each(line, jobs, CancelJob, "job {} is cancelled")
