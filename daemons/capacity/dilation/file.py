"""Reads a file for `trimtab sim dilation`: jobs, what they load and when they arrive, checked as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from daemons.capacity.json_file import parse_file
from daemons.capacity.place.fields import LABEL, SECONDS_MAX, Time
from shared.config import records
from shared.config.records import Findings, Form, Items, Range
from shared.values.load_vector import RESOURCES_MAX, SUM_ERROR_MAX

JOBS_MAX = 1_000  # instances in all
STAGES_MAX = 100
SERVERS_MAX = 1_000_000
NEUTRAL_S_MIN = 1e-6
ONE_MACHINE = ""

Name = Annotated[
    str,
    Form(r"\S(.{0,126}\S)?", "1 to 128 printable characters in one line, no space at either end", printable=True),
]
Label = Annotated[str, LABEL]
Neutral = Annotated[float, Range(NEUTRAL_S_MIN, SECONDS_MAX)]
Vector = tuple[Annotated[float, Range(0.0, 1.0)], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its part of each resource, and its time alone."""

    loading: Vector
    neutral_s: Neutral


@dataclass(frozen=True, slots=True)
class Job:
    """A job: one stage, or several. machines: one for each instance; None: all jobs are on the same one."""

    SHOWN_BY: ClassVar[str] = "name"

    name: Name
    loading: Vector | None = None
    neutral_s: Neutral | None = None
    arrival_s: Time = 0.0
    stages: Annotated[tuple[Stage, ...], Items(1, STAGES_MAX)] | None = None
    instances: Annotated[int, Range(1, JOBS_MAX)] | None = None
    machines: Annotated[tuple[Label, ...], Items(1, JOBS_MAX)] | None = None

    @property
    def count(self) -> int:
        """How many instances it has."""
        return (self.instances or 1) if self.machines is None else len(self.machines)


@dataclass(frozen=True, slots=True)
class File:
    """What a file may hold. servers: of each resource, 1 of those that are not named."""

    resources: Annotated[tuple[Label, ...], Items(1, RESOURCES_MAX, distinct=True)]
    jobs: Annotated[tuple[Job, ...], Items(1)]
    servers: Mapping[str, Annotated[int, Range(1, SERVERS_MAX)] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage: its time alone, and its part of each resource."""

    neutral_s: float
    loading: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: its stages, and the number of the machine that each of its instances is on."""

    name: str
    arrival_s: float
    stages: tuple[StageRow, ...]
    machines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DilationFile:
    """A file whose every part is known to be good. servers: of each resource."""

    resources: tuple[str, ...]
    servers: tuple[int, ...]
    jobs: tuple[JobRow, ...]


def read(path: Path) -> DilationFile:
    """Read the file at `path`. Raises `InvalidInput` naming each problem with its place in the file."""
    file = records.read(parse_file(path), File, str(path), notation=records.JSON, check=_check)
    machines: dict[str, int] = {}
    return DilationFile(
        file.resources,
        tuple(file.servers.get(name) or 1 for name in file.resources),
        tuple(
            JobRow(
                job.name,
                job.arrival_s,
                tuple(StageRow(stage.neutral_s, stage.loading) for stage in _stages(job)),
                tuple(machines.setdefault(name, len(machines)) for name in job.machines or (ONE_MACHINE,) * job.count),
            )
            for job in file.jobs
        ),
    )


def _stages(job: Job) -> tuple[Stage, ...]:
    return (Stage(job.loading or (), job.neutral_s or 1.0),) if job.stages is None else job.stages


def _check(file: File, found: Findings) -> None:
    """Check the conditions between the keys."""
    if found.is_good("resources"):
        for name in file.servers:
            if name not in file.resources:
                found.wrong(f"servers.{name}", "no such key", "one of " + ", ".join(file.resources))
    for name, count in Counter(job.name for job in file.jobs if job.name).items():
        if count > 1:
            found.wrong("jobs", f"{count} jobs have the name {name!r}", "names that differ")
    named = {job.machines is not None for at, job in enumerate(file.jobs) if found.is_good(f"jobs[{at}].machines")}
    if len(named) > 1:
        found.wrong("jobs", "some have machines, others none", "machines for all jobs, or for none")
    for index, job in enumerate(file.jobs):
        at = f"jobs[{index}]"
        _check_stages(at, job, file, found)
        if job.machines is not None and job.instances not in (None, len(job.machines)):
            what = f"{len(job.machines)} for {job.instances} instances"
            found.wrong(f"{at}.machines", what, "one for each instance")
    instances = sum(job.count for job in file.jobs)
    if instances > JOBS_MAX:
        found.wrong("jobs", f"{instances} instances", f"at most {JOBS_MAX}")


def _check_stages(at: str, job: Job, file: File, found: Findings) -> None:
    whole = {"loading": job.loading is not None, "neutral_s": job.neutral_s is not None}
    for key, given in whole.items():
        if job.stages is not None and given:
            found.wrong(f"{at}.{key}", "is there beside stages", "either that or stages")
        elif job.stages is None and not given and found.is_good(f"{at}.{key}") and found.is_good(f"{at}.stages"):
            found.wrong(f"{at}.{key}", "is missing", "that or stages")
    if job.stages is None:
        _check_vector(f"{at}.loading", job.loading, file, found)
    for index, stage in enumerate(job.stages or ()):
        _check_vector(f"{at}.stages[{index}].loading", stage.loading, file, found)


def _check_vector(at: str, vector: Vector | None, file: File, found: Findings) -> None:
    if vector is None or not found.is_good(at):
        return
    if len(vector) != len(file.resources) and found.is_good("resources"):
        found.wrong(at, f"has {len(vector)} parts", f"{len(file.resources)}, one for each resource")
    elif math.fsum(vector) > 1.0 + SUM_ERROR_MAX:
        found.wrong(at, f"sums to {math.fsum(vector):.12g}", "parts that sum to 1 at most")
