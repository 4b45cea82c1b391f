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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from daemons.models.response import (
    Figure,
    FlowFigures,
    Hyperbola,
    ResponseModel,
    check,
    each_of,
    model_of,
    some_of,
    stacked,
)
from daemons.models.utility import unweighted, weighted
from shared.policy_api.snapshot import Floats, FlowColumns, Ints, WebColumns
from shared.values.web_app import ModelForm

LATE_GOALS = 10.0
_BLUR = 1e-12  # of the times: what a rounding may have done to a utility
_APART = 1e-9  # the bend keeps so far from the load, relative, that differences to it have digits


@dataclass(frozen=True, slots=True)
class FlowUtility:
    """One flow: `model` of the mean, t_min_s (that CPU does not shorten), goal_s, `tail` (what the excess over t_min is
    multiplied with: 1 for the mean, times what measurements say). The bend: at `late_mhz` the utility is `late`, its
    tangent there `late_slope`. Figures are numbers, or columns of several flows' as those of `model`."""

    model: ResponseModel
    t_min_s: Figure
    goal_s: Figure
    tail: Figure
    late_mhz: Figure
    late: Figure
    late_slope: Figure

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
        """Return the least allotment with a utility, at least 0; inf if no CPU gives it."""
        wanted = np.asarray(utility, dtype=np.float64)
        excess = (self.goal_s * (1.0 - np.maximum(wanted, self.late)) - self.t_min_s) / self.tail
        # The best utility itself is reached within a rounding, not by ever more CPU.
        blur_s = _BLUR * (self.goal_s + self.t_min_s) / self.tail
        excess = np.where(np.abs(excess - self.model.least_s) <= blur_s, self.model.least_s + blur_s, excess)
        straight = np.maximum(self.late_mhz + (wanted - self.late) / self.late_slope, 0.0)
        return np.where(wanted < self.late, straight, self.model.mhz(excess))


@dataclass(frozen=True, slots=True)
class AppUtility:
    """An application: its utility is the lowest of its flows, and does not rise above `max_mhz` (inf: no such limit),
    importance > 0 as for jobs. An application without flows has the utility 1 without any CPU."""

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
        """Return the least allotment in MHz with a utility, at least 0; `max_mhz` for more than it can reach."""
        wanted = unweighted(utility, self.importance)
        most = np.zeros(wanted.shape)
        for flow in self.flows:
            most = np.maximum(most, flow.mhz(wanted))
        return np.minimum(most, self.max_mhz)


class AppColumns:
    """Applications side by side, with the same utilities as each alone. O(flows) to make; a step of numpy per kind of
    model, not per application, to ask."""

    def __init__(self, max_mhz: Floats, importance: Floats, flows: Sequence[tuple[Ints, FlowUtility]]) -> None:
        """max_mhz, importance: float64[applications]. flows: those of some applications, float64[flows, 1], beside the
        rows of these; no application is twice in one part."""
        self._max_mhz, self._importance = max_mhz[:, np.newaxis], importance[:, np.newaxis]
        self._flows = flows

    @classmethod
    def of(cls, apps: Sequence[AppUtility]) -> AppColumns:
        """Return these applications side by side."""
        # by kind and by place among the flows of an application, so that no application is there twice
        members: dict[tuple[type, int], list[tuple[int, FlowUtility]]] = {}
        for row, app in enumerate(apps):
            for place, flow in enumerate(app.flows):
                members.setdefault((type(flow.model), place), []).append((row, flow))
        flows = [
            (np.array([row for row, _ in found]), _side_by_side([flow for _, flow in found]))
            for found in members.values()
        ]
        max_mhz, importance = ([getattr(app, name) for app in apps] for name in ("max_mhz", "importance"))
        return cls(np.array(max_mhz, dtype=np.float64), np.array(importance, dtype=np.float64), flows)

    def __len__(self) -> int:
        return len(self._max_mhz)

    @property
    def best(self) -> Floats:
        """The highest utility of each, float64[applications]."""
        best: Floats = self.utility(self._max_mhz)[:, 0]
        return best

    @property
    def late_mhz(self) -> Floats:
        """Where the utility of the flow bends that needs most, float64[applications]; 0 without flows."""
        late = np.zeros(len(self._max_mhz))
        for rows, flows in self._flows:
            late[rows] = np.maximum(late[rows], np.ravel(flows.late_mhz))
        return late

    def utility(self, mhz: Floats) -> Floats:
        """Utility at allotments in MHz, float64[applications, any number] as `mhz`; see `AppUtility.utility`."""
        given = np.minimum(mhz, self._max_mhz)
        worst = np.ones(given.shape)
        for rows, flows in self._flows:
            worst[rows] = np.minimum(worst[rows], flows.utility(given[rows]))
        return weighted(worst, self._importance)


def flow_utility(
    model: ResponseModel, goal_s: Figure, t_min_s: Figure = 0.0, percentile: Figure = 0.0, factor: Figure = 1.0
) -> FlowUtility:
    """Return the utility of a goal on the mean response time, or on a percentile (above 0 and below 1). factor: ratio
    of the excess to that of the model, > 0. Numbers, or columns for a model of columns. Raises `InvalidValue`,
    `ArithmeticError`."""
    check("goal_s", goal_s, (goal_s > 0.0) & (goal_s < math.inf), "a finite number above 0")
    check("percentile", percentile, (percentile >= 0.0) & (percentile < 1.0), "0 (the mean) or above, below 1")
    check("t_min_s", t_min_s, (t_min_s >= 0.0) & (t_min_s < math.inf), "a finite number, 0 or above")
    check("factor", factor, (factor > 0.0) & (factor < math.inf), "a finite number above 0")
    tail = factor * np.where(np.greater(percentile, 0.0), -np.log1p(np.negative(percentile)), 1.0)
    late_mhz = model.mhz(np.asarray(model.least_s + LATE_GOALS * goal_s / tail))
    late_mhz = np.maximum(late_mhz, model.load_mhz * (1.0 + _APART))
    with np.errstate(divide="raise", invalid="raise"):
        late = (goal_s - t_min_s - tail * model.excess_s(late_mhz)) / goal_s
        late_slope = -tail * model.slope(late_mhz) / goal_s
    figures = (t_min_s, goal_s, tail, late_mhz, late, late_slope)
    return FlowUtility(model, *(np.broadcast_to(each, late.shape) if late.ndim else float(each) for each in figures))


_FIGURES = ("t_min_s", "goal_s", "tail", "late_mhz", "late", "late_slope")


def _side_by_side(flows: Sequence[FlowUtility]) -> FlowUtility:
    """Flows, at least one, whose models are of one kind, as columns: float64[flows, 1]."""
    columns = (np.array([[getattr(flow, name)] for flow in flows]) for name in _FIGURES)
    return FlowUtility(stacked([flow.model for flow in flows]), *columns)


def _some_of(columns: FlowUtility, rows: Ints) -> FlowUtility:
    """Return some of the flows of columns, float64[flows], as columns: float64[rows, 1]."""
    figures = (getattr(columns, name)[rows, np.newaxis] for name in _FIGURES)
    return FlowUtility(some_of(columns.model, rows), *figures)


def _each_of(columns: FlowUtility) -> list[FlowUtility]:
    """Return the flows of columns, float64[flows]."""
    figures = (getattr(columns, name).tolist() for name in _FIGURES)
    return [FlowUtility(*row) for row in zip(each_of(columns.model), *figures, strict=True)]


def throughput_utility(goal_per_s: Figure, work_mcycles: Figure, others_mhz: Figure) -> FlowUtility:
    """Return the utility of a goal on the requests/s that can be answered, each of `work_mcycles`, besides the CPU that
    other flows use."""
    check("goal_per_s", goal_per_s, (goal_per_s > 0.0) & (goal_per_s < math.inf), "a finite number above 0")
    return flow_utility(Hyperbola(work_mcycles, others_mhz), 1.0 / goal_per_s)


def app_utilities(web: WebColumns, flows: FlowColumns, vcpu_mhz: ArrayLike) -> tuple[AppUtility, ...]:
    """Return the applications of a snapshot. vcpu_mhz: speed of one vCPU of each application, a number or
    float64[apps].

    The load of a flow's model is its `load_mhz` if that is above 0, else the sum of rate x work over the flows of the
    application; `shifted-hyperbola` takes `load_mhz` as it is. Raises `InvalidValue` for a required figure that is
    missing (NaN). O(flows); flows of one kind are solved together.
    """
    made: dict[int, FlowUtility] = {}
    for rows, columns in _by_kind(web, flows, vcpu_mhz):
        made.update(zip(rows.tolist(), _each_of(columns), strict=True))
    own: list[list[FlowUtility]] = [[] for _ in web.names]
    for row, app in enumerate(flows.app.tolist()):
        own[app].append(made[row])
    limits = zip(own, web.max_mhz.tolist(), web.importance.tolist(), strict=True)
    return tuple(AppUtility(tuple(each), max_mhz, importance) for each, max_mhz, importance in limits)


def app_columns(web: WebColumns, flows: FlowColumns, vcpu_mhz: ArrayLike) -> AppColumns:
    """Return `app_utilities` side by side. O(flows), numpy but for the kinds of flows."""
    order = np.argsort(flows.app, kind="stable")
    place = np.empty(len(order), dtype=np.int64)  # among the flows of its application
    place[order] = np.arange(len(order)) - np.searchsorted(flows.app[order], flows.app[order])
    parts: list[tuple[Ints, FlowUtility]] = []
    for rows, columns in _by_kind(web, flows, vcpu_mhz):
        for number in range(int(place[rows].max()) + 1):
            chosen = np.flatnonzero(place[rows] == number)
            if len(chosen):
                parts.append((flows.app[rows[chosen]], _some_of(columns, chosen)))
    return AppColumns(web.max_mhz, web.importance, parts)


def _by_kind(web: WebColumns, flows: FlowColumns, vcpu_mhz: ArrayLike) -> list[tuple[Ints, FlowUtility]]:
    """Return the flows of each kind as columns, float64[flows], beside their rows."""
    loads = np.bincount(flows.app, flows.rate_per_s * flows.work_mcycles, len(web.names))
    speeds = np.broadcast_to(np.asarray(vcpu_mhz, dtype=np.float64), len(web.names))
    kinds: dict[tuple[ModelForm, bool], list[int]] = {}
    for row, kind in enumerate(zip(flows.model, flows.throughput.tolist(), strict=True)):
        kinds.setdefault(kind, []).append(row)
    found = []
    for (form, throughput), members in kinds.items():
        rows = np.array(members)
        app = flows.app[rows]
        found.append((rows, _of_rows(flows, rows, form, throughput, loads[app], speeds[app])))
    return found


def expected_flows(flows: FlowColumns) -> FlowColumns:
    """Return the flows under the expected load instead of the planned one."""
    return replace(flows, load_mhz=np.where(flows.expected_mhz > 0.0, flows.expected_mhz, flows.load_mhz))


def _of_rows(
    flows: FlowColumns, rows: Ints, form: ModelForm, throughput: bool, sums_mhz: Floats, vcpu_mhz: Floats
) -> FlowUtility:
    """Flows of one form, with goals of one kind."""
    goal, work, stated_mhz = flows.goal[rows], flows.work_mcycles[rows], flows.load_mhz[rows]
    load_mhz = stated_mhz if form is ModelForm.SHIFTED_HYPERBOLA else np.where(stated_mhz > 0.0, stated_mhz, sums_mhz)
    if throughput:
        return throughput_utility(goal, work, np.maximum(0.0, load_mhz - flows.rate_per_s[rows] * work))
    model = model_of(form, FlowFigures(load_mhz, flows.c_mhz_s[rows], work, vcpu_mhz))
    return flow_utility(model, goal, flows.t_min_s[rows], flows.percentile[rows], flows.response_factor[rows])
