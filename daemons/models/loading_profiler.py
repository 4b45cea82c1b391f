"""The resource profile of jobs of a class, from measurements (d-factor.txt, sections 3.3, 3.5 and 4.2).

There are three methods. *Samples*: time on the CPU and at the disk from counters. A job next to others also waits
there, but its resource profile covers isolated run time only: the waiting is subtracted. *Copies*: times of n copies
that ran together, whose slowdown gives the part (Algorithm 1, by regression over n). *Probes*: a calibration benchmark
next to one job is slowed by the part that the job has of the same resource (Property 3). CPU is divided by allocations:
the other two methods give no information on CPU if every copy has all that it can use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from statistics import median

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.dilation import inverse
from daemons.models.dilation.formula import Floats, waiting
from daemons.models.loading_history import RESOURCES, CopyTime, LoadingHistory, PaceSample, Vector
from shared.values.load_vector import CPU, IO, Loading, StandardJob

LITTLE = 0.02  # of the time others are at the disk: beside so little nobody waits there
ROUNDS = 12
ALONE_MAX = 1.05  # copies on the average, of one that ran alone
DILATION_ERROR = 0.01  # no dilation is known more surely than this
PROBE_ERROR = 0.1  # half-width of what one probe tells
DECLARED, SAMPLES, COPIES, PROBE, NOTHING = "declared", "samples", "copies", "probe", ""
_GRID = np.linspace(0.0, 1.0, 401)
_AT = {name: column for column, name in enumerate(RESOURCES)}


# --- samples ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """What a VM did between two readings, in seconds: on the CPU, each of its virtual ones; for how long disk requests
    kept it waiting; at the network."""

    cpu_s: float
    io_s: float
    net_s: float = 0.0


def alone(readings: Sequence[Reading], elapsed_s: float, servers: float = 1.0, others: float = 0.0) -> list[Reading]:
    """Return the readings that the same work would have had alone on the node, for VMs that shared its disk for
    `elapsed_s`: CPU, disk and network seconds without waiting. `servers`: those of the disk; `others`: number of other
    requests present.

    A request finds those of the others there as they would be without its own VM (the arrival theorem). Each of them is
    at the disk for a part of its time, which waiting for the rest lengthens. Exact for two VMs, approximate for more.
    """
    capped = [_capped(each, elapsed_s) for each in readings]
    at_disk = np.array([each.io_s for each in capped]) / elapsed_s
    if at_disk.sum() + others - at_disk.max(initial=0.0) <= LITTLE:
        return capped
    parts = at_disk
    for _ in range(ROUNDS):
        served = at_disk / (1.0 + _delay(_found(parts, servers, others), servers))
        parts = served / (1.0 - at_disk + served)
    return [replace(each, io_s=float(s) * elapsed_s) for each, s in zip(capped, served, strict=True)]


def _found(parts: Floats, servers: float, others: float) -> Floats:
    """Return how many requests each finds at the disk: row j of the square has the others' shares of time there without
    j."""
    rest = parts.sum() + others - parts[:, None] - parts[None, :]
    delay = _delay(np.maximum(rest, 0.0), servers)
    there = parts[None, :] * (1.0 + delay) / (1.0 + parts[None, :] * delay)
    np.fill_diagonal(there, 0.0)
    return np.asarray(there.sum(axis=1) + others)


def _delay(found: Floats, servers: float) -> Floats:
    return waiting(found[..., None], (servers,))[..., 0]


def _capped(reading: Reading, elapsed_s: float) -> Reading:
    """Several requests at a time, or some of them while it computes, make more seconds than there were: those at disk
    and network are what others can make longer, and the CPU has the rest."""
    beside_s = reading.io_s + reading.net_s
    share = min(1.0, elapsed_s / beside_s) if beside_s > 0.0 else 1.0
    cpu_s = min(reading.cpu_s, max(0.0, elapsed_s - beside_s * share))
    return Reading(cpu_s, reading.io_s * share, reading.net_s * share)


# --- copies and probes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FractionEstimate:
    """A part of a job's time alone (0..1), half of its 95 % interval (inf: not known), from how many observations and
    how."""

    value: float = 0.0
    half_width: float = math.inf
    observations: int = 0
    source: str = NOTHING


def copies_part(times: Sequence[CopyTime], servers: float = 1.0) -> FractionEstimate:
    """Return the part at the disk from the slowdown of n copies, by least squares over all n, anchored at no slowdown
    for one copy (Algorithm 1, without the CPU: each copy has its own). No estimate if none ran alone, or all did."""
    alone_s = [each.s_per_mcycle for each in times if each.copies <= ALONE_MAX]
    beside = [each for each in times if each.copies > ALONE_MAX]
    if not alone_s or not beside:
        return FractionEstimate()
    neutral_s = sum(alone_s) / len(alone_s)
    unsure = 2.0 * max(DILATION_ERROR, float(np.std(alone_s)) / neutral_s) / math.sqrt(len(alone_s))
    best, half = _fitted(times, neutral_s, servers)
    ends = [_fitted(times, neutral_s * factor, servers)[0] for factor in (1.0 - unsure, 1.0 + unsure)]
    return FractionEstimate(best, math.hypot(half, abs(ends[0] - ends[1]) / 2.0), len(times), COPIES)


def _fitted(times: Sequence[CopyTime], neutral_s: float, servers: float) -> tuple[float, float]:
    """Return the part that fits best to the times relative to that of one copy alone, and half of its 95 % interval."""
    seen = np.array([each.s_per_mcycle / neutral_s for each in times])
    others = np.array([max(1.0, each.copies) for each in times]) - 1.0
    joined = waiting(_GRID[:, None, None] * others[None, :, None], (servers,))[..., 0]
    errors = ((1.0 + _GRID[:, None] * joined - seen) ** 2).sum(axis=1)
    best, free = int(errors.argmin()), len(times) - 1
    noise = max(float(errors[best]) / free, DILATION_ERROR**2)
    within = _GRID[errors <= errors[best] + noise * float(stdtrit(free, 0.975)) ** 2]
    return float(_GRID[best]), float(within[-1] - within[0]) / 2.0


def probe_part(alone_per_s: float, beside_per_s: float, copies: int = 1) -> float:
    """Return the part (0..1) at a resource of the one job next to which `copies` of its calibration benchmark did
    `beside_per_s` units a second together, and alone `alone_per_s`: copies x (slowdown - 1), with one copy Property 3.
    There must be at least as many copies as the resource has servers: fewer leave one to the job."""
    if beside_per_s <= 0.0:
        return 1.0
    return min(1.0, max(0.0, copies * (alone_per_s / beside_per_s - 1.0)))


def _probed(history: LoadingHistory, resource: str) -> FractionEstimate:
    found = [each.part for each in history.probes if each.resource == resource]
    if not found:
        return FractionEstimate()
    half = PROBE_ERROR
    if len(found) > 1:
        half = float(stdtrit(len(found) - 1, 0.975)) * float(np.std(found, ddof=1)) / math.sqrt(len(found))
    return FractionEstimate(float(median(found)), half, len(found), PROBE)


def _sampled(history: LoadingHistory, column: int) -> FractionEstimate:
    samples = history.samples
    value, effective = samples.mean[column], samples.effective
    if effective <= 1.0:
        return FractionEstimate(value, math.inf, samples.count, SAMPLES if samples.count else NOTHING)
    variance = samples.spread[column] / samples.weight * effective / (effective - 1.0)
    half = _student(round(effective, 1)) * math.sqrt(max(0.0, variance) / effective)
    return FractionEstimate(value, half, samples.count, SAMPLES)


@lru_cache(maxsize=4_096)
def _student(effective: float) -> float:
    """Return the number of standard errors in half of a 95 % interval of the mean of `effective` observations."""
    return float(stdtrit(max(0.1, effective - 1.0), 0.975))


# --- profiles --------------------------------------------------------------------------------------------------------


class Status(StrEnum):
    """How far a profile can be used."""

    MEASURED = "measured"
    CONVERTED = "converted"  # from another node type, until measured there
    DECLARED = "declared"  # by whoever submitted the job
    MEASURING = "measuring"  # too little is known yet: it does not count


@dataclass(frozen=True, slots=True)
class Demand:
    """From how many observations on, and known how surely, what was measured counts."""

    observations_min: int = 3
    half_width_max: float = 0.25


@dataclass(frozen=True, slots=True)
class Profile:
    """The resource profile of a job: a part for each of `RESOURCES`. measured_s: time of the last measurement (0:
    never). origin: the node type that it is converted from, `scaled` by the baseline throughputs of both. drifted_s:
    time of its restart after a drift."""

    status: Status
    parts: tuple[FractionEstimate, FractionEstimate, FractionEstimate] = (
        FractionEstimate(),
        FractionEstimate(),
        FractionEstimate(),
    )
    measured_s: float = 0.0
    origin: str | None = None
    scaled: bool = False
    drifted_s: float | None = None

    @property
    def counts(self) -> bool:
        """Whether decisions may go by it."""
        return self.status is not Status.MEASURING

    @property
    def vector(self) -> Vector:
        """The parts; they sum to 1 at most."""
        cpu, io, net = (part.value for part in self.parts)
        over = max(1.0, cpu + io + net)
        return cpu / over, io / over, net / over

    @property
    def observations(self) -> int:
        """Of the part that is known from most."""
        return max(part.observations for part in self.parts)


def profile_of(history: LoadingHistory, demand: Demand | None = None, disk_servers: float = 1.0) -> Profile:
    """Return the profile that a history gives: each part comes from a probe, else copies, else samples, if it is
    certain enough. `MEASURING` if no method is certain of some part that any of them measures."""
    demand = demand or Demand()
    copies = copies_part(history.copies, disk_servers)
    parts = []
    for name, column in _AT.items():
        told = (_probed(history, name), copies if name == IO else FractionEstimate(), _sampled(history, column))
        sure = [each for each in told if _is_sure(each, demand)]
        parts.append(sure[0] if sure else next((each for each in told if each.observations), FractionEstimate()))
    cpu, io, net = parts
    known = [part for part in parts if part.observations]
    good = bool(known) and all(_is_sure(part, demand) for part in known)
    status = Status.MEASURED if good else Status.MEASURING
    return Profile(status, (cpu, io, net), history.measured_s, drifted_s=history.drifted_s)


def _is_sure(part: FractionEstimate, demand: Demand) -> bool:
    enough = part.observations >= (1 if part.source == PROBE else demand.observations_min)
    return enough and part.half_width <= demand.half_width_max


def declared(loading: Loading) -> Profile:
    """Return the declared profile."""
    cpu, io, net = (FractionEstimate(loading.part(name), 0.0, 0, DECLARED) for name in RESOURCES)
    return Profile(Status.DECLARED, (cpu, io, net))


# --- node types ------------------------------------------------------------------------------------------------------


def pace_of(paces: Sequence[PaceSample], job: str, copies: int = 1) -> float | None:
    """Return the work that `copies` of a calibration benchmark do together in a second: the median of the newest (None:
    not measured)."""
    found = [each.units_per_s for each in paces if (each.job, each.copies) == (job, copies)]
    return median(found) if found else None


def servers_of(paces: Sequence[PaceSample], job: str) -> int:
    """Return the number of requests that a node serves at a time at full speed: how many times the work of one copy
    several copies of the calibration benchmark do together, in whole numbers, no more than there were copies; 1 if not
    measured."""
    one = pace_of(paces, job)
    if not one:
        return 1
    counts = {each.copies for each in paces if each.job == job}
    found = [min(copies, (pace_of(paces, job, copies) or 0.0) / one) for copies in counts]
    return max(1, round(max(found)))


def seconds_per_unit(paces: Sequence[PaceSample]) -> Mapping[str, float]:
    """Return, by resource, the time in seconds that its calibration benchmark takes for one unit of work; only measured
    ones."""
    found = {job.value: pace_of(paces, job.value) for job in (StandardJob.CPU, StandardJob.IO)}
    return {name: 1.0 / pace for name, pace in found.items() if pace}


def converted(profile: Profile, origin: str, before: Sequence[PaceSample], after: Sequence[PaceSample]) -> Profile:
    """Convert a profile of one node type for another, by the times of the calibration benchmarks on both. Returned
    unchanged, not `scaled`, if either was not measured; networks are assumed to be alike."""
    times, others = seconds_per_unit(before), seconds_per_unit(after)
    scaled = times.keys() == others.keys() == {CPU, IO}
    vector: Sequence[float] = profile.vector
    if scaled:
        spent = [[each.get(name, 1.0) for name in RESOURCES] for each in (times, others)]
        vector = inverse.converted(vector, *spent)[0].tolist()
    cpu, io, net = (replace(part, value=value) for part, value in zip(profile.parts, vector, strict=True))
    return replace(profile, status=Status.CONVERTED, parts=(cpu, io, net), origin=origin, scaled=scaled)
