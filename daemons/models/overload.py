"""The number of requests that an instance of a web application should serve at a time, and the number that may wait for
the whole application, such that admitted requests are answered within their goals (overload protection, apc.txt section
3.1).

One instance of w MHz is considered alone, since a request runs on one. By the response models (models/response.py) flow
i, each request of which needs d_i Mcycles, takes t_i(L) = t_min_i + excess_i(w, L) on average when L MHz of it are in
use. Its goal g_i allows an excess of (g_i - t_min_i) / tail_i, where tail_i is 1 for a mean and ln(1 / (1 - q)) for a
percentile q (models/web_utility.py). The excess rises with L, so each goal has a greatest load, in closed form for
processor sharing: L = w - d / excess. L* is the least of these. Flows arrive in the measured mix, p_i. A request then
needs D = sum p_i d_i, and the greatest rate is L* / D. By Little's law the number of requests in progress is

    N = L* / D * sum p_i t_i(L*)        (processor sharing, t_min = 0: N = g w / d - 1)

This is `instance_max`. It is never lower than the number that uses all of the CPU, w / D * sum p_i (t_min_i + d_i /
v_i) with v_i the speed of a request that runs alone: 1 for processor sharing without t_min, the number of vCPUs for
multi-server.

While requests wait, each instance has N in progress and answers X = w / D a second. One request then takes N / X on
average: sum p_i (t_min_i + s d_i) with a stretch s common to all flows. The goals leave slack = min (g_i - t_min_i - s
d_i) for waiting, and in that time k instances answer k X slack requests: `queue_max`, at least 1. Both together are k X
g for one flow: Little's law for the goal itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.models.response import FlowFigures, model_of
from shared.values.web_app import QUEUE_MAX, Limits, ModelForm

_HALVINGS = 80
_FULL = 1.0 - 1e-12  # of its CPU that an instance may use at most: above there is no response time
_BLUR = 1e-9  # what roundings may do to a count
UNKNOWN = Limits()


@dataclass(frozen=True, slots=True)
class FlowLoad:
    """A flow as it comes: requests a second, CPU work of one, the part of its response time that no CPU shortens, and
    its goal: a mean (percentile 0) or a percentile of the response time; None: it has a goal on throughput. c_mhz_s: of
    `shifted-hyperbola` (None: the work of a request)."""

    rate_per_s: float
    work_mcycles: float
    t_min_s: float = 0.0
    goal_s: float | None = None
    percentile: float = 0.0
    form: ModelForm = ModelForm.PROCESSOR_SHARING
    c_mhz_s: float | None = None

    @property
    def hyperbola_mhz_s(self) -> float:
        """Excess of the response time x MHz that are not in use, as long as one vCPU is not the limit."""
        fitted = self.c_mhz_s if self.form is ModelForm.SHIFTED_HYPERBOLA else None
        return self.work_mcycles if fitted is None else fitted

    @property
    def good(self) -> bool:
        """Whether its figures can be reckoned with."""
        figures = (self.rate_per_s, self.work_mcycles, self.t_min_s, self.goal_s or 0.0)
        return all(map(math.isfinite, figures)) and self.rate_per_s > 0.0 and self.work_mcycles > 0.0


def limits_of(flows: Sequence[FlowLoad], mhz: float, vcpu_mhz: float, vcpus: int, instances: int) -> Limits:
    """Return the limits of an application of `instances` instances of `mhz` (with `vcpus` of `vcpu_mhz` each).

    Both are from 1 to QUEUE_MAX, or None: there are no requests, no flow has a goal on response time, or a required
    figure is not a finite number above 0, or is out of all proportion. A flow without requests has no influence.
    """
    asked = [flow for flow in flows if flow.rate_per_s != 0.0]
    figures = (mhz, vcpu_mhz, float(instances))
    usable = all(math.isfinite(each) and each > 0.0 for each in figures) and all(flow.good for flow in asked)
    if not usable or all(flow.goal_s is None for flow in asked):
        return UNKNOWN
    try:
        return _limits(asked, mhz, vcpu_mhz, vcpus, instances)
    except ArithmeticError:  # figures that floats do not hold together
        return UNKNOWN


def _limits(asked: Sequence[FlowLoad], mhz: float, vcpu_mhz: float, vcpus: int, instances: int) -> Limits:
    total = math.fsum(flow.rate_per_s for flow in asked)
    mix = [(flow.rate_per_s / total, flow) for flow in asked]
    work = math.fsum(share * flow.work_mcycles for share, flow in mix)
    load_mhz = min(greatest_load_mhz(flow, mhz, vcpu_mhz) for flow in asked)
    alone_s = math.fsum(share * (flow.t_min_s + flow.work_mcycles / _alone(flow, mhz, vcpu_mhz)) for share, flow in mix)
    least = mhz / work * alone_s
    if any(flow.form is ModelForm.MULTI_SERVER for flow in asked):
        least = max(least, float(vcpus))
    met = load_mhz / work * math.fsum(share * _mean_s(flow, mhz, vcpu_mhz, load_mhz) for share, flow in mix)
    in_progress = _bounded(max(met + _BLUR, least + 1.0 - _BLUR))
    fixed_s = math.fsum(share * flow.t_min_s for share, flow in mix)
    stretch = max(0.0, (in_progress * work / mhz - fixed_s) / work)
    slack_s = min(
        flow.goal_s - flow.t_min_s - stretch * flow.work_mcycles for _, flow in mix if flow.goal_s is not None
    )
    return Limits(in_progress, _bounded(instances * mhz / work * slack_s + _BLUR))


def greatest_load_mhz(flow: FlowLoad, mhz: float, vcpu_mhz: float) -> float:
    """Return the most of its CPU that an instance may use for a flow to meet its goal, from 0 (the goal is missed at
    any load) to just below `mhz` (there is no goal on response time, or a loose one)."""
    if flow.goal_s is None:
        return mhz * _FULL
    tail = -math.log1p(-flow.percentile) if flow.percentile > 0.0 else 1.0
    excess_s = (flow.goal_s - flow.t_min_s) / tail
    if excess_s <= 0.0:
        return 0.0
    if flow.form is not ModelForm.MULTI_SERVER or mhz <= vcpu_mhz:
        return min(max(0.0, mhz - flow.hyperbola_mhz_s / excess_s), mhz * _FULL)
    return mhz * _busy(mhz / vcpu_mhz, excess_s * vcpu_mhz / flow.work_mcycles - 1.0)


def _busy(servers: float, waits: float) -> float:
    """Return the part of `servers` in use at which a request waits `waits` times its own time: the root of rho^(sqrt(2
    (m + 1)) - 1) = waits m (1 - rho), by bisection."""
    if waits <= 0.0:
        return 0.0
    exponent = math.sqrt(2.0 * (servers + 1.0)) - 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle**exponent > waits * servers * (1.0 - middle):
            high = middle
        else:
            low = middle
    return min(low, _FULL)


def _alone(flow: FlowLoad, mhz: float, vcpu_mhz: float) -> float:
    return min(mhz, vcpu_mhz) if flow.form is ModelForm.MULTI_SERVER else mhz


def _mean_s(flow: FlowLoad, mhz: float, vcpu_mhz: float, load_mhz: float) -> float:
    figures = FlowFigures(load_mhz, flow.hyperbola_mhz_s, flow.work_mcycles, vcpu_mhz)
    with np.errstate(all="ignore"):  # of figures that no request has: what comes of them is bounded
        return flow.t_min_s + float(model_of(flow.form, figures).excess_s(np.array([mhz]))[0])


def _bounded(count: float) -> int:
    """Return a count as a limit."""
    return int(max(1.0, count)) if count < QUEUE_MAX else QUEUE_MAX
