"""Whether predictions of utility hold, by workload: who over-promises is not acted for until they do again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

OFF = 0.1  # by so much less than predicted is an over-promise
OVER_CYCLES = 3  # so many in a row, and it is not trusted
HOLDS_CYCLES = 2  # so many predictions in a row that held, and it is again
NEWEST = 0.3  # weight of the newest error in the mean


class Cause(StrEnum):
    """Which input of a prediction was wrong."""

    WORK = "work"
    RESPONSE_MODEL = "response model"
    LOAD = "load"
    JOB_SPEED = "job speed"
    OPERATION_TIME = "operation time"


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """Of one workload under one policy. cycles: predictions that were compared; error: mean of predicted - measured,
    the newest weighing most; over, holds: how many in a row were too high, or not; cause: of the last that was."""

    cycles: int = 0
    error: float = 0.0
    over: int = 0
    holds: int = 0
    trusted: bool = True
    cause: Cause | None = None


def scored(before: PredictionScore, predicted: float, measured: float, cause: Cause | None = None) -> PredictionScore:
    """Return the score with one more prediction; `cause`: why, where it was too high. Figures that are not finite say
    nothing."""
    error = predicted - measured
    if not math.isfinite(error):
        return before
    over = before.over + 1 if error > OFF else 0
    holds = 0 if over else before.holds + 1
    trusted = over < OVER_CYCLES if before.trusted else holds >= HOLDS_CYCLES
    mean = error if not before.cycles else before.error + NEWEST * (error - before.error)
    return PredictionScore(
        before.cycles + 1, mean, over=over, holds=holds, trusted=trusted, cause=cause if over else before.cause
    )
