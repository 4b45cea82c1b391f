"""How far measured response times are from what their model says: a factor that follows slowly and is bounded.

A model of response times (`response`) is an approximation: requests arrive in bursts, instances are not alike, guests
wait for disks. The part of a response time that CPU shortens is therefore multiplied by a factor, measured over
predicted. It is the geometric mean over windows, exponentially weighted (Brown, Smoothing, Forecasting and Prediction,
1963), beginning with a prior of 1: one slow window changes little, a wrong model is corrected within ten minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from daemons.models.web_utility import FlowUtility

BOUND = 2.0  # the factor lies in 1 / BOUND to BOUND: beyond, something else is wrong
REACHED = 0.9  # of the bound, as a logarithm: it counts as reached
MATTERS = 0.05  # of the goal: a model that is off by less is good enough, by whatever factor
MEMORY_S = 600.0  # after so long a window counts e times less
PRIOR_S = 120.0  # so many seconds of windows the prior weighs at first
LOADED_MAX = 0.95  # of the CPU: beyond, a small error of the load is a large one of the time
REQUESTS = 100  # windows with fewer answers count less
_LOG_BOUND = math.log(BOUND)


@dataclass(frozen=True, slots=True)
class ResponseFactor:
    """Of one flow. log_sum: sum of log(measured / predicted) over windows, weighted in s; gap_sum: of (measured -
    predicted) / goal; weight_s: sum of weights."""

    log_sum: float = 0.0
    gap_sum: float = 0.0
    weight_s: float = PRIOR_S

    @property
    def value(self) -> float:
        """Measured over predicted, 1 / BOUND to BOUND."""
        return math.exp(max(-_LOG_BOUND, min(_LOG_BOUND, self._log)))

    @property
    def is_wrong(self) -> bool:
        """Whether the bound keeps it from being further from 1, or nearly, and the goal is about such times: what the
        network takes is many times the work of a small request, and no matter."""
        return abs(self._log) >= REACHED * _LOG_BOUND and abs(self.gap_sum / self.weight_s) >= MATTERS

    @property
    def _log(self) -> float:
        return self.log_sum / self.weight_s


def observed(
    before: ResponseFactor, flow: FlowUtility, mhz: float, response_s: float, window_s: float, answered: int
) -> ResponseFactor:
    """Return the factor with one more window of `window_s` (> 0), in which `answered` requests took `response_s` (the
    mean, or the percentile of the goal) while all instances had `mhz`.

    flow: the uncorrected model at the load of the window. Windows in which the CPU was nearly or wholly used up, or
    nothing was answered, give no information on the model. O(1).
    """
    if not answered or flow.model.load_mhz > LOADED_MAX * mhz or not math.isfinite(response_s):
        return before
    predicted_s = float(flow.response_s(mhz)) - float(flow.t_min_s)
    if not (math.isfinite(predicted_s) and predicted_s > 0.0):
        return before
    measured_s = response_s - float(flow.t_min_s)
    far = 2.0 * _LOG_BOUND  # no window says more
    log = max(-far, min(far, math.log(measured_s / predicted_s))) if measured_s > 0.0 else -far
    fades, weight_s = math.exp(-window_s / MEMORY_S), window_s * min(1.0, answered / REQUESTS)
    gap = max(-1.0, min(1.0, (measured_s - predicted_s) / float(flow.goal_s)))
    return ResponseFactor(
        before.log_sum * fades + log * weight_s,
        before.gap_sum * fades + gap * weight_s,
        weight_s=max(before.weight_s * fades + weight_s, 1e-9),
    )
