"""`trimtab sim dilation`: how much jobs that share a machine slow each other down, and when they end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import RenderableType
from rich.text import Text

from daemons.capacity.dilation.file import DilationFile, JobRow, read
from daemons.cli.output import emit, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.models.dilation import choice
from daemons.models.dilation.choice import Model
from daemons.models.dilation.completion import Stage, Work, composed_nodes, slowest
from daemons.models.dilation.formula import Floats
from shared.base.clock import SystemClock

MODELS = (Model.FORMULA, Model.PRODUCT_FORM, Model.AUTO)


@click.command()
@click.argument("file", metavar="JOBS.json", type=click.Path(path_type=Path))
@click.option(
    "--model",
    type=click.Choice([model.value for model in MODELS]),
    default=Model.AUTO.value,
    show_default=True,
    help="Model of the slowdown; auto: product-form where it is fast enough.",
)
@output_option
def dilation(file: Path, model: str) -> None:
    """Compute how much the jobs in JOBS.json slow each other down, and when they end.

    \b
    Example:
      trimtab sim dilation examples/dilation.json
    """
    given = read(file)
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    report = report_of(given, Model(model))
    wall_s = clock.monotonic_s() - begun_s
    emit(report.to_json() | {"wall_s": wall_s}, lambda: _for_people(given, report))


@dataclass(frozen=True, slots=True)
class DilationReport:
    """What comes of a file. model: that was used with every job present (mean values if on any machine); dilations:
    float64[jobs], of a job of several instances the slowest one's; total: sum over all instances; ends_s:
    float64[jobs]."""

    names: tuple[str, ...]
    model: str
    dilations: Floats
    total: float
    ends_s: Floats

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the output."""
        rows = zip(self.names, self.dilations.tolist(), self.ends_s.tolist(), strict=True)
        return {
            "model": self.model,
            "jobs": [{"name": name, "dilation": by, "completion_s": end_s} for name, by, end_s in rows],
            "total_dilation": self.total,
            "makespan_s": float(self.ends_s.max()),
        }


def report_of(given: DilationFile, model: Model) -> DilationReport:
    """Return the report of a file. Raises `InvalidValue` if `product-form` is requested and there are too many jobs."""
    works = [_work(job) for job in given.jobs for _ in job.machines]
    machine_of = [machine for job in given.jobs for machine in job.machines]
    job_of = [number for number, job in enumerate(given.jobs) for _ in job.machines]
    loads, machines = np.array([_mean_loading(work) for work in works]), np.array(machine_of)
    dilations = np.ones(len(loads))
    used: set[Model] = set()
    for machine in sorted(set(machine_of)):
        there = machines == machine
        used.add(choice.chosen(loads[there], model, given.servers))
        dilations[there] = choice.dilation(loads[there], model, given.servers)
    rates = partial(choice.dilation, model=model, servers=given.servers)
    return DilationReport(
        tuple(job.name for job in given.jobs),
        Model.MEAN_VALUE if Model.MEAN_VALUE in used else used.pop(),
        slowest(dilations, job_of),
        float(dilations.sum()),
        slowest(composed_nodes(works, machine_of, rates), job_of),
    )


def _work(job: JobRow) -> Work:
    return Work(job.arrival_s, tuple(Stage(stage.neutral_s, stage.loading) for stage in job.stages))


def _mean_loading(work: Work) -> Floats:
    """Return the resource profile of a job; for several stages, their mean, weighted by the isolated run times."""
    alone_s = np.array([stage.neutral_s for stage in work.stages])
    return np.asarray(alone_s @ np.array([stage.loading for stage in work.stages]) / alone_s.sum())


def _for_people(given: DilationFile, report: DilationReport) -> RenderableType:
    heads = ("alone s", "arrives at s", "slowdown", "ends at s")
    rows = []
    for job, by, end_s in zip(given.jobs, report.dilations.tolist(), report.ends_s.tolist(), strict=True):
        alone_s = sum(stage.neutral_s for stage in job.stages)
        rows.append([job.name, f"{alone_s:,.2f}", f"{job.arrival_s:,.2f}", f"{by:.4f}", f"{end_s:,.2f}"])
    table = Fitted(f"by {report.model}", ("job", *heads), rows, (), heads)
    ended = f"total slowdown {report.total:.4f} with all jobs present; the last ends at {report.ends_s.max():,.2f} s"
    return stacked(table, Text(ended))
