"""A load as a user writes it (examples/load.toml): when jobs arrive, how long they take and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from daemons.manifests.job import Amount, JobName, Mib, NoQueue, Speed
from daemons.manifests.rules import Group
from daemons.models.load import DrawnJobs, draw_jobs
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.config import toml
from shared.config.records import Form, Range
from shared.values.jobs import Job, Stage

NAME_DIGITS = 6

Seconds = Annotated[float, Range(0.001, 1e9)]


class Distribution(StrEnum):
    """How service times differ from each other."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class ArrivalsTable:
    """When jobs arrive: a random process whose rate may change.

    A Poisson process whose mean time between arrivals is mean_s x a(x) at x seconds after the beginning.
    """

    mean_s: Seconds
    """Mean time between two arrivals. Example: `480`."""
    duration_s: Seconds
    """Time after which no more jobs arrive. Example: `57600`."""
    profile: tuple[float, ...] = (1.0,)
    """Coefficients c0, c1, c2 of a(x) = c0 + c1 x + c2 x^2 and so on. It multiplies `mean_s` after x seconds."""


@dataclass(frozen=True, slots=True)
class ServiceTable:
    """How long jobs run."""

    mean_s: Seconds
    """Mean run time of a job at its full speed. Example: `1200`."""
    distribution: Distribution = Distribution.EXPONENTIAL
    """Distribution of the run times."""


@dataclass(frozen=True, slots=True)
class JobTable:
    """What all jobs have in common."""

    max_mhz: Speed
    """Highest speed that a job can use. Example: `1000`."""
    name: JobName = "load"
    """Beginning of the names of jobs. The seed and a number follow."""
    queue: Group = ""
    """Queue of a deadline window. Empty: none."""
    environment: Group = ""
    """Batch environment in which the jobs run. Empty: none."""
    class_: Group = ""
    """Name of the class of the jobs. Empty: none."""
    min_mhz: Amount = 0.0
    """Lowest speed that a job needs."""
    memory_mib: Mib = 0
    """Memory of the VM of a job."""
    vcpus: Annotated[int, Range(1, 4096)] = 1
    """Virtual CPUs of the VM of a job."""
    checkpoint_mcycles: Amount = 0.0
    """Work between two checkpoints that the guest saves. 0: the guest saves none and restarts after a loss."""
    template: Annotated[str, Form(r"[^\0]{0,4096}", "at most 4096 characters")] = ""
    """Name of the VM template. Empty: the default of the hypervisor driver."""


@dataclass(frozen=True, slots=True)
class LoadFile:
    """Random jobs for `trimtab load`."""

    arrivals: ArrivalsTable
    service: ServiceTable
    job: JobTable

    RULES: ClassVar[tuple[Any, ...]] = (NoQueue("job.queue", "job.environment"),)


def read_load(path: Path) -> LoadFile:
    """Read the load in a TOML file. Raises `InvalidInput` with one problem for each thing that is wrong."""
    return toml.load(path, LoadFile)


def draw(load: LoadFile, seed: int, where: str) -> DrawnJobs:
    """Draw the jobs of a seed, the same for the same seed. Raises `InvalidInput` for an impossible profile."""
    arrivals, service = load.arrivals, load.service
    try:
        return draw_jobs(
            arrivals.mean_s,
            arrivals.profile,
            arrivals.duration_s,
            service.mean_s,
            service.distribution is Distribution.EXPONENTIAL,
            np.random.default_rng(seed),
        )
    except InvalidValue as error:
        raise InvalidInput(Problem(f"{where}: {error.field}", f"is {error.got!r}", error.expected)) from error


def job_of(load: LoadFile, seed: int, number: int, service_s: float, now_s: float, name: str = "") -> Job:
    """Job `number` (from 0) of a load, submitted at `now_s`."""
    table = load.job
    stage = Stage(service_s * table.max_mhz, table.max_mhz, table.min_mhz, table.memory_mib)
    return Job(
        f"{name or table.name}-{seed}-{number:0{NAME_DIGITS}d}",
        (stage,),
        submit_s=now_s,
        vcpus=table.vcpus,
        checkpoint_mcycles=table.checkpoint_mcycles,
        template=table.template,
        job_class=table.class_,
        queue=table.queue,
        environment=table.environment,
    )
