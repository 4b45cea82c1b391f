"""Loading vectors from completion times (d-factor.txt, sections 3.3, 3.5, 4.2); the same on another type of node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.dilation.formula import Floats
from shared.base.errors import InvalidValue

CONFIDENCE = 0.95
ROUNDING = 1e-9  # of parts and their squares: so far outside its bounds a value is still at them


class Status(StrEnum):
    """What a measurement says about a vector."""

    OK = "ok"  # it fits one
    BELOW = "below"  # slowed less than any job busy with two resources: it has an idle share, or a third resource
    ABOVE = "above"  # slowed more than any vector allows: something else is shared too
    NOT_SLOWED = "not slowed"  # no slower than alone: nothing that was loaded is used


@dataclass(frozen=True, slots=True)
class Inverted:
    """The two solutions of eq. 13, (larger, smaller) and (smaller, larger): isolated run times do not show which
    resource has the larger part. Clamped to 0.5 and 0.5 `below`, 1 and 0 `above`; both 0 if `not slowed`."""

    status: Status
    larger: float
    smaller: float

    def decided(self, first: float) -> tuple[float, float]:
        """Return the solution whose part of the first resource is nearer to the one that a probe of it found; if both
        are equally near, the one with the larger first."""
        both = ((self.larger, self.smaller), (self.smaller, self.larger))
        return min(both, key=lambda each: abs(each[0] - first))


def of_square(square: float) -> Inverted:
    """Vector of a job busy with two resources (eq. 13) from p . p, by which each further copy slows the others."""
    if square <= 0.0:
        return Inverted(Status.NOT_SLOWED, 0.0, 0.0)
    if square < 0.5 - ROUNDING:
        return Inverted(Status.BELOW, 0.5, 0.5)
    if square > 1.0 + ROUNDING:
        return Inverted(Status.ABOVE, 1.0, 0.0)
    larger = 0.5 * (1.0 + math.sqrt(min(max(2.0 * square - 1.0, 0.0), 1.0)))
    return Inverted(Status.OK, larger, 1.0 - larger)


# --- regression over the number of copies -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and the interval that holds the true one with the requested confidence; without bounds (-inf, inf) if
    there are too few samples. samples: number of samples."""

    value: float
    low: float
    high: float
    samples: int


def regressed(copies: Sequence[int], dilations: Sequence[float], confidence: float = CONFIDENCE) -> Mean:
    """Return p . p of a job from the slowdown that copies of it cause each other, by least squares through (1, 1):
    Algorithm 1 over n = 1 .. N instead of one n (Property 1). `of_square` makes the vector of it.

    copies: whole numbers from 1 on; one copy alone gives no information and is ignored. Raises `InvalidValue` if there
    is no measurement of two copies or more, or one that is not a positive number.
    """
    steps = np.array(copies, dtype=np.float64) - 1.0
    rises = np.array(dilations, dtype=np.float64) - 1.0
    if steps.shape != rises.shape or not (steps >= 0.0).all() or not (steps > 0.0).any():
        raise InvalidValue("copies", list(copies), "one for each dilation, at least one of them 2 or more")
    if not (np.isfinite(rises) & (rises > -1.0)).all():
        raise InvalidValue("dilations", list(dilations), "numbers above 0")
    steps, rises = steps[steps > 0.0], rises[steps > 0.0]
    spread = float(steps @ steps)
    slope = float(steps @ rises) / spread
    left = rises - slope * steps
    half = _half(float(left @ left) / spread, steps.size, confidence)
    return Mean(slope, slope - half, slope + half, steps.size)


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Mean:
    """Mean of independent measurements with its interval (Student). Raises `InvalidValue` where there is none, or one
    that is not finite."""
    found = np.array(values, dtype=np.float64)
    if not found.size or not np.isfinite(found).all():
        raise InvalidValue("values", list(values), "one number or more")
    middle = float(found.mean())
    half = _half(float(((found - middle) ** 2).sum()) / found.size, found.size, confidence)
    return Mean(middle, middle - half, middle + half, int(found.size))


def _half(variance: float, samples: int, confidence: float) -> float:
    """Half of an interval. variance: of what was estimated, before the division by the degrees of freedom."""
    if samples < 2:
        return math.inf
    return float(stdtrit(samples - 1, 0.5 + confidence / 2.0)) * math.sqrt(variance / (samples - 1))


# --- probes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceFraction:
    """A job's part of one resource, 0..1. `above`: it was slowed more than that can be; `not slowed`: not at all."""

    status: Status
    value: float


def probed(
    alone_s: float, beside_s: float, probe_alone_s: float = math.inf, copies: int = 1, servers: int = 1
) -> ResourceFraction:
    """Part of the resource that a probe uses and nothing else (Property 3): lambda - 1.

    alone_s, beside_s: how long the job took alone, and with the probe begun at the same time. probe_alone_s: how long
    the probe takes alone; where that is less than alone_s it ended first, and the job went on alone:
    lambda - 1 = (beside_s - alone_s) / probe_alone_s. A resource of several servers needs as many copies of the probe
    at least, which must outlast the job. Raises `InvalidValue` for other input."""
    for name, value_s in (("alone_s", alone_s), ("beside_s", beside_s), ("probe_alone_s", probe_alone_s)):
        if not value_s > 0.0 or (math.isinf(value_s) and name != "probe_alone_s"):
            raise InvalidValue(name, value_s, "a number above 0")
    if copies < servers or servers < 1:
        raise InvalidValue("copies", copies, f"at least the {servers} servers of the resource")
    if copies > 1 and probe_alone_s < beside_s:
        raise InvalidValue("probe_alone_s", probe_alone_s, "several probes that outlast the job")
    slowed = (beside_s - alone_s) / min(alone_s, probe_alone_s)
    value = slowed * servers / (copies + 1 - servers)
    if value <= 0.0:
        return ResourceFraction(Status.NOT_SLOWED, 0.0)
    return ResourceFraction(Status.OK if value <= 1.0 + ROUNDING else Status.ABOVE, min(value, 1.0))


def vector_of(parts: Sequence[ResourceFraction]) -> tuple[Floats, Status]:
    """Return the vector from a probe of each resource, float64[m]. `above`: a part was, or they summed to more than 1
    and were scaled down to it; `not slowed`: by none of them."""
    values = np.array([part.value for part in parts])
    total = float(values.sum())
    if total > 1.0 + ROUNDING:
        return values / total, Status.ABOVE
    values /= max(total, 1.0)
    if any(part.status is Status.ABOVE for part in parts):
        return values, Status.ABOVE
    return values, Status.OK if total > 0.0 else Status.NOT_SLOWED


# --- another type of node ---------------------------------------------------------------------------------------------


def converted(p: ArrayLike, from_times_s: ArrayLike, to_times_s: ArrayLike) -> tuple[Floats, float]:
    """Return the vector on another type of node, float64[m], and the factor for the isolated run time.

    from_times_s, to_times_s: float64[m], the time that the same work of each resource's calibration benchmark takes on
    either type. The time spent at a resource scales with it; the idle share takes as long as before. Raises
    `InvalidValue` for times that are not positive numbers.
    """
    loads = np.asarray(p, dtype=np.float64)
    before, after = (np.asarray(each, dtype=np.float64) for each in (from_times_s, to_times_s))
    for name, times_s in (("from_times_s", before), ("to_times_s", after)):
        if times_s.shape != loads.shape or not (np.isfinite(times_s) & (times_s > 0.0)).all():
            raise InvalidValue(name, times_s.tolist(), f"{loads.size} numbers above 0")
    spent = loads * after / before
    factor = float(spent.sum() + max(0.0, 1.0 - float(loads.sum())))
    return spent / factor, factor
