"""`trimtab jobs`: submit, list and cancel jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import env_option, inner, limit_option, name_option, tell_each, view
from daemons.cli.commands.settings import set_jobs
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.output import CommandGroup, emit, output_option, say, say_next
from daemons.cli.render import WAITS, failures, listing, record, rows_of, shown
from daemons.cli.tables import stacked
from daemons.cli.waiting import Look, NotYet, wait_for_all, wait_option
from daemons.cli.watching import watch_option
from daemons.manifests.job import read_job, understood
from daemons.values.text_format import time_text
from shared.protocol.operator_messages import CancelJob, Query, SubmitJob
from shared.values.jobs import Job, JobPhase

COLUMNS = ("name", "phase", "held", "instances", "nodes", "progress_pct", "goal_at_s", "waits_for", "back_off_until_s")
LEAST = ("back_off_until_s", "held", "instances", "goal_at_s")
IDLE = (JobPhase.WAITING, JobPhase.SUSPENDED)
COMING = (*IDLE, JobPhase.RUNNING)  # phases from which a job comes to run


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Submit, list and cancel jobs."""


@jobs.command("list")
@click.option("--phase", type=click.Choice([phase.value for phase in JobPhase]), help="Show only jobs in this phase.")
@limit_option
@bus_options
@watch_option
@output_option
def list_jobs(line: ControllerConnection, phase: str | None, limit: int) -> None:
    """Show the jobs: progress, nodes, and why they wait.

    \b
    Example:
      trimtab jobs list --phase waiting
    """
    data = view(line, "jobs", phase or "", limit)
    emit(data, lambda: listing("jobs", rows_of(data, "jobs"), COLUMNS, LEAST))


@jobs.command()
@click.argument("job", shell_complete=complete.jobs)
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, job: str) -> None:
    """Show one job: progress, goal, instances, and why it waits.

    \b
    Example:
      trimtab jobs show render-1
    """
    data = view(line, "job", job)
    emit(data, lambda: _job_for_people(job, data))


def _job_for_people(name: str, data: dict[str, Any]) -> RenderableType:
    values = inner(data, "job")
    instances = rows_of(values, "instance_list")
    plain = [{key: value for key, value in row.items() if key != "last_failure"} for row in instances]
    table = record(f"job {name}", {**values, "instance_list": plain} if plain else values)
    waits = [Text(f"it waits: {_why(values)}")] if values.get("phase") in IDLE else []
    return stacked(table, *waits, *failures(instances))


def _why(values: dict[str, Any]) -> str:
    """Return the reasons why a job does not run, with the numbers."""
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
@click.option("--dry-run", is_flag=True, help="Show the job as Trimtab reads it; send nothing.")
@wait_option("the job runs, for at most --timeout seconds")
@change_options
@output_option
def submit(line: ControllerConnection, file: Path, name: str, environment: str, dry_run: bool, wait: bool) -> None:
    """Submit the job that a TOML file describes (examples/job.toml).

    Ctrl-C ends the wait, not the job. Exit status 1 when it ends before it runs.

    \b
    Example:
      trimtab jobs submit job.toml --name render-2
    """
    job = read_job(file, line.now_s, name, environment)
    if dry_run:
        values = {"done": False, "request": "", "job": understood(job)}
        emit(values, lambda: record(f"job {job.name} as Trimtab reads it", understood(job)))
        return
    request = line.new_id()
    with line:
        line.ask(SubmitJob(request, job))
        row = _wait_for(line, job) if wait else None
    values = {"done": True, "request": request, "job": understood(job)}
    if row is None:
        emit(values, lambda: Text(_accepted(job)))
    else:
        state = {key: row[key] for key in ("phase", "nodes")}
        emit(values | state, lambda: Text(f"job {job.name} is {_phase(row)}"))
    say_next(f"trimtab jobs show {job.name}")


def _wait_for(line: ControllerConnection, job: Job) -> dict[str, Any]:
    """Return the row of a job once all its VMs run; NotYet if they will not, or not in time."""
    row: dict[str, Any] = {}

    def look() -> Look:
        row.update(inner(line.ask(Query(line.new_id(), "job", job.name)), "job"))
        phase = row["phase"]
        if phase == JobPhase.COMPLETED or (phase == JobPhase.RUNNING and row["released"]):
            return Look("", done=True)
        if phase not in COMING:
            return Look("", ended=f"is {phase}: another request asked for that")
        return Look(f"is {phase}: {_why(row)}" if phase in IDLE else f"is starting on {_nodes(row)}")

    subject = f"job {job.name}"
    say(_accepted(job))
    goes_on = f"stopped waiting; the job stays submitted: trimtab jobs show {job.name}"
    found = wait_for_all(line, {subject: look}, line.limit_s, goes_on)[subject]
    if not found.done:
        raise NotYet(f"{subject} {found.ended or found.text or 'does not run yet'}")
    return row


def _phase(row: dict[str, Any]) -> str:
    """Return the phase of a job, and the nodes where it runs."""
    return f"{row['phase']} on {_nodes(row)}" if row["phase"] == JobPhase.RUNNING else str(row["phase"])


def _nodes(row: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(row["nodes"]))


def _accepted(job: Job) -> str:
    goal = "best effort" if job.goal_s is None else f"due {time_text(job.goal_s)}"
    goal = f"due at the deadline of queue {job.queue}" if job.queue else goal
    where = f" to environment {job.environment}" if job.environment else ""
    return f"job {job.name} is submitted{where}, {goal}"


@jobs.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)
@change_options
@output_option
def cancel(line: ControllerConnection, jobs: tuple[str, ...]) -> None:
    """Stop the VMs of jobs, discard their images and end the jobs.

    \b
    Example:
      trimtab jobs cancel render-1 render-2
    """
    tell_each(line, jobs, CancelJob, "job {} is cancelled")


jobs.add_command(set_jobs)
