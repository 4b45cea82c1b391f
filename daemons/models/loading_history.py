"""The stored measurements of the load of job classes on node types, and of the speed of these nodes. These are values
only, so they can be stored; `loading_profiler` makes profiles of them.

An observation is a vector: the parts of its isolated run time that a job spent at each of `RESOURCES`. Older
observations count less: a weight halves with every `HALF_LIFE_S` observed since. Every observation is tested against
all earlier ones by a two-sided CUSUM of each part (Page, Biometrika 41, 1954; reference value and limit in standard
deviations, each step clipped so one or two outliers are no drift). When the CUSUM leaves its limit, the profile
restarts from the observations that caused it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shared.values.load_vector import CPU, IO, NET

RESOURCES = (CPU, IO, NET)
Vector = tuple[float, float, float]
ZERO: Vector = (0.0, 0.0, 0.0)

HALF_LIFE_S = 21_600.0
DEVIATION_MIN = 0.02  # what is known is never taken for surer than this
TESTED_FROM = 8  # with fewer observations there is nothing to test against
SLACK, LIMIT, STEP_MAX = 0.75, 8.0, 4.0  # in standard deviations
HELD_FROM = LIMIT / 2.0  # from here on an observation waits until it is known whether it is a drift
HELD_MAX = 16
COPIES_MAX = 200
PROBES_MAX = 16
PACES_MAX = 120
PACES_ALIKE_MAX = 9


@dataclass(frozen=True, slots=True)
class Shares:
    """One observation: parts of its time alone at each of `RESOURCES`, over `seconds` (above 0)."""

    parts: Vector
    seconds: float


@dataclass(frozen=True, slots=True)
class Running:
    """Weighted mean and sum of squared deviations of `count` observations. weight, weight2: sums of the weights, in
    seconds, and of their squares."""

    count: int = 0
    weight: float = 0.0
    weight2: float = 0.0
    mean: Vector = ZERO
    spread: Vector = ZERO

    @property
    def effective(self) -> float:
        """How many observations of equal weight say as much."""
        return self.weight**2 / self.weight2 if self.weight2 > 0.0 else 0.0

    def with_shares(self, shares: Shares) -> Running:
        """Return the sums with one more observation; the weight of earlier ones is reduced according to its seconds."""
        kept = 0.5 ** (shares.seconds / HALF_LIFE_S)
        weight = self.weight * kept + shares.seconds
        off = [part - mean for part, mean in zip(shares.parts, self.mean, strict=True)]
        mean = tuple(before + each * shares.seconds / weight for before, each in zip(self.mean, off, strict=True))
        spread = tuple(
            before * kept + shares.seconds * each * (part - now)
            for before, each, part, now in zip(self.spread, off, shares.parts, mean, strict=True)
        )
        return Running(
            self.count + 1, weight, self.weight2 * kept**2 + shares.seconds**2, _vector(mean), _vector(spread)
        )


NOTHING = Running()


@dataclass(frozen=True, slots=True)
class CopyTime:
    """How long a job took per Mcycle of its work, `copies` of its class having run together, itself among them, on the
    average over its life, and nothing else."""

    copies: float
    s_per_mcycle: float
    at_s: float


@dataclass(frozen=True, slots=True)
class ProbePart:
    """The part at a resource by which a standard job was slowed down beside one job (d-factor.txt, Property 3)."""

    resource: str
    part: float
    at_s: float


@dataclass(frozen=True, slots=True)
class LoadingHistory:
    """All measurements of a class on a node type, oldest first. rising, falling: the CUSUM of each part; held: the
    observations that wait for its outcome. measured_s: time of the last measurement (0: never); drifted_s: time of the
    last restart after a drift (None: never), of which there were `drifts`. jump: the change of its parts at that
    restart. It halves as observations do: later differences of this size are no new drift."""

    samples: Running = NOTHING
    rising: Vector = ZERO
    falling: Vector = ZERO
    held: tuple[Shares, ...] = ()
    copies: tuple[CopyTime, ...] = ()
    probes: tuple[ProbePart, ...] = ()
    measured_s: float = 0.0
    drifted_s: float | None = None
    drifts: int = 0
    jump: Vector = ZERO


@dataclass(frozen=True, slots=True)
class PaceSample:
    """What `copies` of a standard job (`shared.values.load_vector.StandardJob`) did together in a second, in units of
    its work, on a node on which nothing else ran."""

    job: str
    copies: int
    units_per_s: float
    at_s: float


def with_shares(history: LoadingHistory, shares: Shares, now_s: float) -> tuple[LoadingHistory, bool]:
    """Return the history with one more observation, and whether it has drifted: then it restarts."""
    kept = 0.5 ** (shares.seconds / HALF_LIFE_S)
    history = replace(history, measured_s=now_s, jump=_vector(tuple(jump * kept for jump in history.jump)))
    samples = history.samples
    if samples.count < TESTED_FROM:
        return replace(history, samples=samples.with_shares(shares)), False
    steps = [
        max(-STEP_MAX, min(STEP_MAX, (part - mean) / deviation))
        for part, mean, deviation in zip(shares.parts, samples.mean, _deviations(history), strict=True)
    ]
    rising = _vector(tuple(max(0.0, sum_ + step - SLACK) for sum_, step in zip(history.rising, steps, strict=True)))
    falling = _vector(tuple(max(0.0, sum_ - step - SLACK) for sum_, step in zip(history.falling, steps, strict=True)))
    highest = max(*rising, *falling)
    held = (*history.held, shares)[-HELD_MAX:]
    if highest > LIMIT:
        anew = NOTHING
        for each in held:
            anew = anew.with_shares(each)
        jump = tuple(
            max(before, abs(new - old)) for before, new, old in zip(history.jump, anew.mean, samples.mean, strict=True)
        )
        drifts = history.drifts + 1
        return LoadingHistory(anew, measured_s=now_s, drifted_s=now_s, drifts=drifts, jump=_vector(jump)), True
    if highest > HELD_FROM:
        return replace(history, rising=rising, falling=falling, held=held), False
    for each in held:
        samples = samples.with_shares(each)
    return replace(history, samples=samples, rising=rising, falling=falling, held=()), False


def _deviations(history: LoadingHistory) -> list[float]:
    """Return the assumed standard deviation of observations, for each part."""
    samples = history.samples
    seen = [math.sqrt(max(0.0, spread) / samples.weight) for spread in samples.spread]
    return [max(DEVIATION_MIN, deviation, jump) for deviation, jump in zip(seen, history.jump, strict=True)]


def with_copies(history: LoadingHistory, time: CopyTime) -> LoadingHistory:
    """Return the history with one more time of copies that ran together; the oldest is dropped if there are too
    many."""
    return replace(history, copies=(*history.copies, time)[-COPIES_MAX:], measured_s=time.at_s)


def with_probe(history: LoadingHistory, probe: ProbePart) -> LoadingHistory:
    """Return the history with the result of one more probe; the oldest is dropped if there are too many."""
    return replace(history, probes=(*history.probes, probe)[-PROBES_MAX:], measured_s=probe.at_s)


def with_pace(paces: tuple[PaceSample, ...], pace: PaceSample) -> tuple[PaceSample, ...]:
    """Return the baseline throughputs of a node type with one more, oldest first: the newest of each calibration
    benchmark and number of copies."""
    alike = [each for each in paces if (each.job, each.copies) == (pace.job, pace.copies)]
    gone = set(alike[: max(0, len(alike) + 1 - PACES_ALIKE_MAX)])
    return (*(each for each in paces if each not in gone), pace)[-PACES_MAX:]


def _vector(values: tuple[float, ...]) -> Vector:
    cpu, io, net = values
    return cpu, io, net
