"""`trimtab load`: put a live cluster under a load that can be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.asking import name_option
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import REFUSED, emit, output_option, say, say_hints
from daemons.manifests.load import LoadFile, draw, job_of, read_load
from daemons.models.load import DrawnJobs
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import SubmitJob

BATCH_MAX = 500  # submissions that are sent at once
REFUSALS_SHOWN_MAX = 10
SPEED_MAX = 1e6


@dataclass(slots=True)
class _Tally:
    """What has become of the load so far."""

    submitted: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)
    stopped: bool = False


@click.command()
@click.argument("profile", type=click.Path(path_type=Path))
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the jobs.")
@click.option(
    "--speed",
    type=Number(0.0, SPEED_MAX, above=True),
    default=1.0,
    show_default=True,
    help="Submit this many times faster than the profile says; run times stay.",
)
@name_option
@click.option("--dry-run", is_flag=True, help="Show what would be submitted; send nothing.")
@bus_options
@output_option
def load(line: ControllerConnection, profile: Path, seed: int, speed: float, name: str, dry_run: bool) -> None:
    """Submit jobs that arrive by PROFILE (examples/load.toml), until all are submitted or you interrupt it.

    The same profile and seed produce the same jobs under the same names. Jobs that were submitted before are not
    submitted again.

    \b
    Example:
      trimtab load examples/load.toml --speed 10
    """
    file = read_load(profile)
    drawn = draw(file, seed, str(profile))
    tally = _Tally()
    if not dry_run:
        with line:
            _submit_all(line, file, drawn, seed, speed, name, tally)
    values = _summary(file, drawn, seed, speed, tally)
    emit(values, lambda: _for_people(values, dry_run))
    for each in tally.refused[:REFUSALS_SHOWN_MAX]:
        say(f"error: {each['name']}: {each['code']}: {each['detail']}")
    say_hints(*(each["code"] for each in tally.refused))
    if tally.refused:
        click.get_current_context().exit(REFUSED)


def _submit_all(
    line: ControllerConnection, file: LoadFile, drawn: DrawnJobs, seed: int, speed: float, name: str, tally: _Tally
) -> None:
    """Submit each job when its time has come; what is late is submitted together."""
    begun_s = line.now_s
    due_s = begun_s + drawn.arrivals_s / speed
    number = 0
    try:
        while number < due_s.size:
            line.sleep(max(0.0, float(due_s[number]) - line.now_s))
            now_s = line.now_s
            end = number
            while end < due_s.size and due_s[end] <= now_s and end - number < BATCH_MAX:
                end += 1
            batch = [
                job_of(file, seed, each, float(drawn.services_s[each]), now_s, name) for each in range(number, end)
            ]
            replies = line.ask_all([SubmitJob(f"load-{job.name}", job) for job in batch]) if batch else []
            for job, reply in zip(batch, replies, strict=True):
                _count(tally, job.name, reply)
            number = end
    except KeyboardInterrupt:
        tally.stopped = True


def _count(tally: _Tally, job: str, reply: Reply) -> None:
    if reply.done:
        tally.submitted += 1
    else:
        tally.refused.append({"name": job, "code": reply.code, "detail": reply.detail})


def _summary(file: LoadFile, drawn: DrawnJobs, seed: int, speed: float, tally: _Tally) -> dict[str, Any]:
    return {
        "seed": seed,
        "jobs": int(drawn.arrivals_s.size),
        "submitted": tally.submitted,
        "refused": tally.refused,
        "stopped": tally.stopped,
        "duration_s": file.arrivals.duration_s / speed,
        "work_mcycles": float(drawn.services_s.sum()) * file.job.max_mhz,
        "mean_service_s": float(drawn.services_s.mean()) if drawn.services_s.size else None,
    }


def _for_people(values: dict[str, Any], dry_run: bool) -> RenderableType:
    if dry_run:
        work = f"{values['work_mcycles']:g} Mcycles of work"
        return Text(f"{values['jobs']} jobs within {values['duration_s']:g} s, {work}; nothing is submitted")
    text = f"{values['submitted']} of {values['jobs']} jobs are submitted"
    return Text(text + (", interrupted" if values["stopped"] else ""))
