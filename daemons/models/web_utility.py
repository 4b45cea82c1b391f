"""Utility of web applications against their CPU, and back: comparable with that of jobs (apc.txt sections 3.2 and 3.3).

A flow's utility is u = (goal - t) / goal (Eq. 1), t by its response model. A percentile q is read from an exponential
tail: t_q = t_min + (t - t_min) ln(1 / (1 - q)); exact for M/M/1 in order of arrival, an approximation elsewhere. A goal
on throughput X* is about the rate X(w) = (w - load of the other flows) / d that the CPU can answer, offered or not; it
counts as a response time 1 / X with the goal 1 / X*, so u = 1 - X* / X.

Under overload the response time has no end. From `LATE_GOALS` goals above the shortest time on the utility therefore
goes on along its tangent: finite and falling down to no CPU at all, with an inverse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.response import FlowFigures, Hyperbola, ResponseModel, model_of
from daemons.models.utility import unweighted, weighted
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, FlowColumns, WebColumns
from shared.values.scalars import not_negative, positive
from shared.values.web_app import ModelForm

LATE_GOALS = 10.0
_BLUR = 1e-12  # of the times: what a rounding may have done to a utility
_APART = 1e-9  # the bend keeps so far from the load, relative, that differences to it have digits


@dataclass(frozen=True, slots=True)
class FlowUtility:
    """One flow: `model` of the mean, t_min_s (that CPU does not shorten), goal_s, `tail` (what the excess over t_min is
    multiplied with: 1 for the mean, times what measurements say). The bend: at `late_mhz` the utility is `late`, its
    tangent there `late_slope`."""

    model: ResponseModel
    t_min_s: float
    goal_s: float
    tail: float
    late_mhz: float
    late: float
    late_slope: float

    def response_s(self, mhz: ArrayLike) -> Floats:
        """Response time in s at an allotment for all instances; inf under overload. float64, shape of `mhz`."""
        given = np.asarray(mhz, dtype=np.float64)
        above = given > self.model.load_mhz
        excess = self.model.excess_s(np.where(above, given, self.late_mhz))
        return np.where(above, self.t_min_s + self.tail * excess, np.inf)

    def utility(self, mhz: ArrayLike) -> Floats:
        """Utility at an allotment; strictly rising as far as more CPU helps."""
        given = np.asarray(mhz, dtype=np.float64)
        excess = self.model.excess_s(np.maximum(given, self.late_mhz))
        on_time = (self.goal_s - self.t_min_s - self.tail * excess) / self.goal_s
        return np.where(given < self.late_mhz, self.late + self.late_slope * (given - self.late_mhz), on_time)

    def mhz(self, utility: ArrayLike) -> Floats:
        """The least allotment with a utility, at least 0; inf where no CPU gives it."""
        wanted = np.asarray(utility, dtype=np.float64)
        excess = (self.goal_s * (1.0 - np.maximum(wanted, self.late)) - self.t_min_s) / self.tail
        # The best utility itself is reached within a rounding, not by ever more CPU.
        blur_s = _BLUR * (self.goal_s + self.t_min_s) / self.tail
        excess = np.where(np.abs(excess - self.model.least_s) <= blur_s, self.model.least_s + blur_s, excess)
        straight = np.maximum(self.late_mhz + (wanted - self.late) / self.late_slope, 0.0)
        return np.where(wanted < self.late, straight, self.model.mhz(excess))


@dataclass(frozen=True, slots=True)
class AppUtility:
    """An application: as happy as its unhappiest flow, no happier above `max_mhz` (inf: no such limit), importance > 0
    as for jobs. An application without flows has the utility 1 without any CPU."""

    flows: tuple[FlowUtility, ...]
    max_mhz: float
    importance: float

    @property
    def best(self) -> float:
        """Its highest utility."""
        return float(self.utility(self.max_mhz))

    def utility(self, mhz: ArrayLike) -> Floats:
        """Utility at an allotment in MHz for all instances together; float64, shape of `mhz`."""
        given = np.minimum(np.asarray(mhz, dtype=np.float64), self.max_mhz)
        worst = np.ones(given.shape)
        for flow in self.flows:
            worst = np.minimum(worst, flow.utility(given))
        return weighted(worst, self.importance)

    def mhz(self, utility: ArrayLike) -> Floats:
        """The least allotment in MHz with a utility, at least 0; `max_mhz` for more than it can reach."""
        wanted = unweighted(utility, self.importance)
        most = np.zeros(wanted.shape)
        for flow in self.flows:
            most = np.maximum(most, flow.mhz(wanted))
        return np.minimum(most, self.max_mhz)


def flow_utility(
    model: ResponseModel, goal_s: float, t_min_s: float = 0.0, percentile: float = 0.0, factor: float = 1.0
) -> FlowUtility:
    """A goal on the mean response time, or on a percentile (above 0 and below 1). factor: the excess is so many times
    what the model says, > 0. Raises `InvalidValue`."""
    if not (math.isfinite(goal_s) and goal_s > 0.0):
        raise InvalidValue("goal_s", goal_s, "a finite number above 0")
    if not 0.0 <= percentile < 1.0:
        raise InvalidValue("percentile", percentile, "0 (the mean) or above, below 1")
    not_negative("t_min_s", t_min_s)
    positive("factor", factor)
    tail = factor * (-math.log1p(-percentile) if percentile > 0.0 else 1.0)
    late_mhz = float(model.mhz(np.array([model.least_s + LATE_GOALS * goal_s / tail]))[0])
    late_mhz = max(late_mhz, model.load_mhz * (1.0 + _APART))
    late = (goal_s - t_min_s - tail * float(model.excess_s(np.array([late_mhz]))[0])) / goal_s
    return FlowUtility(model, t_min_s, goal_s, tail, late_mhz, late, -tail * model.slope(late_mhz) / goal_s)


def throughput_utility(goal_per_s: float, work_mcycles: float, others_mhz: float) -> FlowUtility:
    """A goal on the requests/s that can be answered, each of so much work, beside what other flows use up."""
    if not (math.isfinite(goal_per_s) and goal_per_s > 0.0):
        raise InvalidValue("goal_per_s", goal_per_s, "a finite number above 0")
    return flow_utility(Hyperbola(work_mcycles, others_mhz), 1.0 / goal_per_s)


def app_utilities(web: WebColumns, flows: FlowColumns, vcpu_mhz: ArrayLike) -> tuple[AppUtility, ...]:
    """The applications of a snapshot. vcpu_mhz: speed of one vCPU of each application, a number or float64[apps].

    The load of a flow's model is its `load_mhz` where that is above 0, else the sum of rate x work over the flows of
    the application; `shifted-hyperbola` takes `load_mhz` as it is. Raises `InvalidValue` for a figure that is needed
    and missing (NaN).
    """
    speeds = np.broadcast_to(np.asarray(vcpu_mhz, dtype=np.float64), len(web.names))
    loads = np.bincount(flows.app, flows.rate_per_s * flows.work_mcycles, len(web.names))
    members: list[list[FlowUtility]] = [[] for _ in web.names]
    for row, app in enumerate(flows.app.tolist()):
        members[app].append(_of_row(flows, row, float(loads[app]), float(speeds[app])))
    return tuple(
        AppUtility(tuple(own), float(web.max_mhz[app]), float(web.importance[app])) for app, own in enumerate(members)
    )


def _of_row(flows: FlowColumns, row: int, sum_mhz: float, vcpu_mhz: float) -> FlowUtility:
    goal, work, stated_mhz = float(flows.goal[row]), float(flows.work_mcycles[row]), float(flows.load_mhz[row])
    form = flows.model[row]
    load_mhz = stated_mhz if stated_mhz > 0.0 or form is ModelForm.SHIFTED_HYPERBOLA else sum_mhz
    if flows.throughput[row]:
        return throughput_utility(goal, work, max(0.0, load_mhz - float(flows.rate_per_s[row]) * work))
    figures = FlowFigures(load_mhz, float(flows.c_mhz_s[row]), work, vcpu_mhz)
    t_min_s, percentile, factor = (
        float(column[row]) for column in (flows.t_min_s, flows.percentile, flows.response_factor)
    )
    return flow_utility(model_of(form, figures), goal, t_min_s, percentile, factor)
