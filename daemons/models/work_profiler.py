"""The CPU that a request needs: regression of CPU used on requests answered (apc.txt section 3.1, the work profiler).

In every window the CPU used by an application's instances is modelled as

    used_mhz = background_mhz x instances + sum over flows of work_mcycles x requests answered per second.

The coefficients are not negative (non-negative least squares) and robust: rows are weighted again and again by Huber's
function of their residual (Huber, Robust Statistics, 1981, chapter 7; scale by the median absolute deviation). A window
in which other processes used the CPU therefore counts little. The background is part of the model only if the data
separate it from the flows: the condition number of the columns scaled to length 1 is at most 30, beyond which they
count as collinear (Belsley, Kuh, Welsch, Regression Diagnostics, 1980). The same holds for flows among each other.
Standard errors are Huber's for such estimates, half-widths at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]  # scipy has no types of its own
from scipy.special import stdtrit  # type: ignore[import-untyped]

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Bools, Floats, Ints
from shared.values.scalars import not_negative

CONDITION_MAX = 30.0
COMMON_FRAC, OWN_FRAC = 0.3, 0.1  # how far declared work is from the truth: of all flows alike, of each by itself
NO_PRIORS: Mapping[str, float] = MappingProxyType({})
HUBER_K = 1.345  # 95 % as efficient as least squares on normal errors
_ROUNDS_MAX = 50
_MAD_TO_SIGMA = 1.4826
_PART_MIN = 0.1  # a column of less weight has no part in a collinearity


@dataclass(frozen=True, slots=True)
class UsageSample:
    """One window of an application: its length in s, the mean CPU used by all instances in MHz, their number, and for
    each flow the requests counted as answered in it and how many of these wait at the router, so have used no CPU."""

    window_s: float
    used_mhz: float
    instances: int
    answered: tuple[float, ...]
    queued: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.window_s) and self.window_s > 0.0):
            raise InvalidValue("window_s", self.window_s, "a finite number above 0")
        not_negative("used_mhz", self.used_mhz)
        not_negative("instances", self.instances)
        if len(self.queued) != len(self.answered):
            raise InvalidValue("queued", len(self.queued), f"{len(self.answered)} flows")
        for answered, queued in zip(self.answered, self.queued, strict=True):
            not_negative("answered", answered)
            not_negative("queued", queued)

    @property
    def served_per_s(self) -> tuple[float, ...]:
        """Requests/s of each flow that used CPU."""
        return tuple(max(0.0, n - q) / self.window_s for n, q in zip(self.answered, self.queued, strict=True))


@dataclass(frozen=True, slots=True)
class WorkWindows:
    """Samples of one application, oldest first, each with every flow."""

    flows: tuple[str, ...]
    samples: tuple[UsageSample, ...] = ()


class WorkEstimateStatus(StrEnum):
    """How far an estimate can be used."""

    ESTIMATED = "estimated"
    NOT_ENOUGH = "not-enough"  # too few windows for so many unknowns; the figures are NaN
    NOT_APART = "not-apart"  # some flows rise and fall together: which of them needs how much is not known


@dataclass(frozen=True, slots=True)
class FlowWork:
    """The estimate for one flow: Mcycles of a request, half the 95 % interval as a part of it (inf: could as well be
    nothing), and in how many windows it had requests."""

    flow: str
    work_mcycles: float
    half_width_frac: float
    samples: int


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """The estimates of an application's flows, in order. background_mhz: per instance, 0 where not `background_known`.
    noise_mhz: typical residual of a window. samples: windows used."""

    standing: WorkEstimateStatus
    flows: tuple[FlowWork, ...]
    background_mhz: float
    background_known: bool
    noise_mhz: float
    samples: int


def estimate(windows: WorkWindows, priors: Mapping[str, float] = NO_PRIORS) -> WorkEstimate:
    """Return the work per request of every flow. A flow that had no requests gets NaN, and the others are estimated
    without it.

    priors: declared Mcycles of a request, > 0, for flows that have them. Their assumed error is `COMMON_FRAC` for all
    flows alike and `OWN_FRAC` for each (standard deviations). They separate flows that rise and fall together, which
    the windows cannot.
    """
    samples = windows.samples
    rates = np.array([sample.served_per_s for sample in samples]).reshape(len(samples), len(windows.flows))
    seen = np.flatnonzero(rates.any(axis=0)) if len(samples) else np.empty(0, dtype=np.int64)
    design, used = rates[:, seen], np.array([sample.used_mhz for sample in samples], dtype=np.float64)
    background = np.array([[sample.instances] for sample in samples], dtype=np.float64).reshape(len(samples), 1)
    full = np.hstack([design, background])
    known = bool(len(samples) > full.shape[1] + 1 and background.any() and _condition(full) <= CONDITION_MAX)
    design = full if known else design
    if len(seen) == 0 or len(samples) < design.shape[1] + 2:
        nothing = tuple(
            FlowWork(name, math.nan, math.inf, int((rates[:, row] > 0.0).sum()))
            for row, name in enumerate(windows.flows)
        )
        return WorkEstimate(WorkEstimateStatus.NOT_ENOUGH, nothing, 0.0, False, math.nan, len(samples))
    # Means over longer windows are surer: their variance falls with the length.
    lengths = np.sqrt([sample.window_s for sample in samples])
    lengths /= lengths.mean()
    prior = np.array([priors.get(windows.flows[row], math.nan) for row in seen.tolist()] + [math.nan] * known)
    work, errors, noise = _robust(design * lengths[:, np.newaxis], used * lengths, prior)
    half = errors * float(stdtrit(len(samples) - design.shape[1], 0.975))
    half[_entangled(design) & np.isnan(prior)] = np.inf
    flows = _flows(windows.flows, rates, seen, work, half)
    standing = WorkEstimateStatus.ESTIMATED if np.isfinite(half).all() else WorkEstimateStatus.NOT_APART
    return WorkEstimate(standing, flows, float(work[-1]) if known else 0.0, known, noise, len(samples))


def _flows(names: tuple[str, ...], rates: Floats, seen: Ints, work: Floats, half: Floats) -> tuple[FlowWork, ...]:
    column = {row: k for k, row in enumerate(seen.tolist())}
    flows = []
    for row, name in enumerate(names):
        k = column.get(row)
        mcycles = math.nan if k is None else float(work[k])
        wide = math.inf if k is None or mcycles <= 0.0 else float(half[k]) / mcycles
        flows.append(FlowWork(name, mcycles, wide, int((rates[:, row] > 0.0).sum())))
    return tuple(flows)


def _condition(design: Floats) -> float:
    """Condition number of the columns scaled to length 1; inf for a column of zeros."""
    lengths = np.sqrt((design**2).sum(axis=0))
    if design.size == 0 or not lengths.all():
        return math.inf
    return float(np.linalg.cond(design / lengths))


def _entangled(design: Floats) -> Bools:
    """Return the columns that take part in a near collinearity: the others can still be separated."""
    columns = design / np.sqrt((design**2).sum(axis=0))
    values, vectors = np.linalg.eigh(columns.T @ columns)
    weak = values <= values[-1] / CONDITION_MAX**2
    entangled: Bools = (np.abs(vectors[:, weak]) > _PART_MIN).any(axis=1)
    return entangled


def _robust(design: Floats, used: Floats, prior: Floats) -> tuple[Floats, Floats, float]:
    """Coefficients, their standard errors, the scale of the residuals. prior: of each coefficient, NaN for none."""
    units = np.sqrt((design**2).sum(axis=0))
    columns = design / units
    free = len(used) - design.shape[1]
    floor = 1e-12 * float(np.abs(used).max(initial=0.0))
    trust = np.ones(len(used))
    told = np.flatnonzero(np.isfinite(prior))
    said = prior[told] * units[told]
    # In units of its own uncertainty: what is wrong with one is wrong with the others too, for the most part.
    whiten = np.linalg.inv(
        np.linalg.cholesky(np.outer(said, said) * (COMMON_FRAC**2 + OWN_FRAC**2 * np.eye(len(told))))
    )
    rows = np.zeros((len(told), design.shape[1]))
    rows[:, told] = whiten

    def solve(root: Floats, scale: float) -> Floats:
        """Solve with a row for each prior, weighted against the noise of the windows."""
        stacked = np.vstack([columns * root[:, np.newaxis], scale * rows])
        solution: Floats = nnls(stacked, np.concatenate([used * root, scale * (whiten @ said)]))[0]
        return solution

    found = solve(trust, 0.01 * float(np.abs(used).mean()))
    for _ in range(_ROUNDS_MAX):
        residuals = used - columns @ found
        scale = max(_MAD_TO_SIGMA * float(np.median(np.abs(residuals))), floor)
        if scale == 0.0:
            break
        trust = np.minimum(1.0, HUBER_K / np.maximum(np.abs(residuals) / scale, HUBER_K))
        root = np.sqrt(trust)
        before, found = found, solve(root, scale)
        if np.abs(found - before).max() <= 1e-9 * np.abs(found).max():
            break
    residuals = used - columns @ found
    inner = float((trust >= 1.0).mean())
    variance = float(((trust * residuals) ** 2).sum()) / free / max(inner, 1.0 / len(used)) ** 2
    known = columns.T @ columns
    known += variance * rows.T @ rows
    errors = np.sqrt(variance * np.diag(np.linalg.pinv(known)))
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(residuals)))
    return found / units, errors / units, spread
