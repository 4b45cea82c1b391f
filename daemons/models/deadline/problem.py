"""What a deadline window is decided on, in units of its decision interval (batch-provisioning.txt section 4.1)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from daemons.models.deadline.phases import Phases
from shared.base.errors import InvalidValue
from shared.values.scalars import not_negative, positive, whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INTERVALS_MAX = 10_000
SERVERS_MAX = 10_000
RATE_TOLERANCE = 1e-6  # a polynomial that touches 0 may fall below by so much of the interval's mean
_MOMENTS = np.cos(np.pi * np.arange(65) / 64)  # of an interval, from 1 (its end) to -1


@dataclass(frozen=True, slots=True)
class DeadlineProblem:
    """A job processing period of `d` intervals, decided on at s = 1..d-1; all times are in intervals.

    arrivals: float64[d, k], the rate of the Poisson arrivals within interval s at the moment tau in [0, 1] is
    sum_i arrivals[s, i] P_i(2 tau - 1) with the Legendre polynomials P_i, so that arrivals[s, 0] (>= 0) is the
    expected number of arrivals; zero from the end of submission on. service: mean of the exponential service times
    (> 0). servers_min, servers_max: sizes to choose from, 1 <= servers_min <= servers_max. slots: jobs that one server
    executes at a time. confidence: the least probability (above 0, below 1) that all jobs are done by the deadline.
    phases: of the service times where they are not exponential, per interval; their mean is `service` (None: they are).
    price: float64[d], what one server costs in interval s; may be negative. removal_price: float64[d], what a server
    costs that is removed at the decision point s, until it is released. deploy: share of an interval (0..1) that passes
    before an added server serves; it costs from the decision on. penalty: of each job that misses the deadline (>= 0).
    """

    arrivals: Floats
    service: float
    servers_min: int
    servers_max: int
    confidence: float
    price: Floats
    removal_price: Floats
    deploy: float = 0.0
    penalty: float = 0.0
    slots: int = 1
    phases: Phases | None = None

    def __post_init__(self) -> None:
        for name in ("arrivals", "price", "removal_price"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if not np.isfinite(array).all():
                raise InvalidValue(name, float(array[~np.isfinite(array)][0]), "finite numbers")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        intervals = self.price.shape[0] if self.price.ndim == 1 else 0
        whole("intervals", intervals, 2, INTERVALS_MAX)
        if self.arrivals.ndim != 2 or self.arrivals.shape[0] != intervals or not self.arrivals.shape[1]:
            raise InvalidValue("arrivals", self.arrivals.shape, f"a row for each of the {intervals} intervals")
        if self.removal_price.shape != (intervals,):
            raise InvalidValue("removal_price", self.removal_price.shape, f"one for each of {intervals} intervals")
        if (self.arrivals[:, 0] < 0.0).any():
            raise InvalidValue("arrivals", float(self.arrivals[:, 0].min()), "rates of 0 or above")
        least = lowest_rate(self.arrivals)
        if (least < -RATE_TOLERANCE * self.arrivals[:, 0]).any():
            raise InvalidValue("arrivals", float(least.min()), "rates of 0 or above at every moment")
        positive("service", self.service)
        whole("servers_min", self.servers_min, 1, SERVERS_MAX)
        whole("servers_max", self.servers_max, self.servers_min, SERVERS_MAX)
        whole("slots", self.slots, 1, SERVERS_MAX)
        not_negative("penalty", self.penalty)
        if self.phases is not None and not math.isclose(self.phases.mean, self.service, rel_tol=1e-6):
            raise InvalidValue("service", self.service, f"the mean of its phases, {self.phases.mean:g}")
        if not 0.0 < self.confidence < 1.0:
            raise InvalidValue("confidence", self.confidence, "a probability above 0 and below 1")
        if not 0.0 <= self.deploy <= 1.0:
            raise InvalidValue("deploy", self.deploy, "a share of an interval, from 0 to 1")

    @property
    def intervals(self) -> int:
        """d, the number of intervals from the begin of the period to the deadline."""
        return int(self.price.shape[0])

    @property
    def submission_end(self) -> int:
        """u, the first interval from which on nothing arrives (0..d)."""
        arriving = np.flatnonzero(self.arrivals[:, 0])
        return int(arriving[-1]) + 1 if arriving.size else 0

    def needed(self, jobs: int) -> int:
        """Return w of equation 4.7: the number of servers that suffices for `jobs` when nothing arrives any more."""
        return min(self.servers_max, max(self.servers_min, math.ceil(jobs / self.slots)))

    def digest(self) -> str:
        """Return an identifier of these inputs: 64 hexadecimal digits, equal for equal problems."""
        sha = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            array = isinstance(value, np.ndarray)
            sha.update(f"{field.name}={value.shape if array else value!r};".encode())
            sha.update(value.tobytes() if array else b"")
        return sha.hexdigest()


def lowest_rate(arrivals: Floats) -> Floats:
    """Return float64[d]: the lowest of the rates within each interval; arrivals as in `DeadlineProblem`."""
    rates = legendre.legval(_MOMENTS, arrivals.T)
    return np.asarray(rates.min(axis=1), dtype=np.float64)


def arrivals_from_rate(rate: Callable[[Floats], Floats], intervals: int, submission_end: int, order: int = 8) -> Floats:
    """Return `arrivals` for a `DeadlineProblem`: float64[intervals, order], the Legendre projection of a rate.

    rate: for moments (in intervals, float64[m]) the arrivals per interval; evaluated within 0..submission_end. Smooth
    rates are approximated to about (4 L)**-order, L: distance in intervals to where they stop being smooth. If the
    projection would fall below 0, the interval has its mean rate. Raises `InvalidValue` for rates below 0 or not
    finite.
    """
    whole("intervals", intervals, 2, INTERVALS_MAX)
    whole("submission_end", submission_end, 0, intervals)
    whole("order", order, 1, 32)
    places, weights = legendre.leggauss(order + 16)
    moments = np.arange(submission_end)[:, None] + (places + 1.0) / 2.0
    rates = np.asarray(rate(moments.ravel()), dtype=np.float64).reshape(moments.shape)
    bad = ~(np.isfinite(rates) & (rates >= 0.0))
    if bad.any():
        raise InvalidValue("arrivals", float(rates[bad][0]), "rates of 0 or above at every moment")
    scale = (2.0 * np.arange(order) + 1.0) / 2.0
    arrivals = np.zeros((intervals, order))
    arrivals[:submission_end] = rates @ (weights[:, None] * legendre.legvander(places, order - 1)) * scale
    arrivals[lowest_rate(arrivals) < 0.0, 1:] = 0.0
    return arrivals
