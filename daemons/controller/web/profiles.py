"""The work of web requests, as what was measured tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from daemons.controller.state.web_app import WorkEstimate
from daemons.models.work_profiler import UsageSample, WorkWindows, estimate
from daemons.values.records.cluster import WorkWindow
from shared.values.web_app import WebApp

HALF_WIDTH_MAX_FRAC = 1.0  # an estimate that could as well be nothing is none


def estimates_of(app: WebApp, windows: Iterable[WorkWindow]) -> dict[str, WorkEstimate]:
    """The work per request of the flows that declare none, as far as the windows tell it.

    What the declared work explains of the CPU used is taken off first. Flows that the regression cannot tell yet, or
    not from each other, get their average: the rest of the CPU used over their requests, with an infinite half-width.
    """
    declared = {flow.name: flow.work_mcycles for flow in app.flows if flow.work_mcycles is not None}
    names = tuple(flow.name for flow in app.flows if flow.name not in declared)
    samples = [_sample(window, names, declared) for window in windows]
    if not names or not samples:
        return {}
    found = {
        flow.flow: WorkEstimate(flow.work_mcycles, flow.half_width_frac, flow.samples)
        for flow in estimate(WorkWindows(names, tuple(samples))).flows
        if flow.work_mcycles > 0.0 and flow.half_width_frac <= HALF_WIDTH_MAX_FRAC
    }
    return found | _averages(names, samples, found)


def _sample(window: WorkWindow, names: tuple[str, ...], declared: Mapping[str, float]) -> UsageSample:
    """A window with the CPU that the flows `names` have used."""
    served = {one.flow: float(one.served) for one in window.served}
    known_mcycles = sum(served.get(name, 0.0) * work_mcycles for name, work_mcycles in declared.items())
    used_mhz = max(0.0, window.used_mcycles - known_mcycles) / window.seconds
    answered = tuple(served.get(name, 0.0) for name in names)
    return UsageSample(window.seconds, used_mhz, window.instances, answered, (0.0,) * len(names))


def _averages(
    names: tuple[str, ...], samples: list[UsageSample], found: Mapping[str, WorkEstimate]
) -> dict[str, WorkEstimate]:
    """For each flow that is not `found`, the CPU that those have not used over its and its like's requests."""
    used_mcycles = requests = 0.0
    for sample in samples:
        used_mcycles += sample.used_mhz * sample.window_s
        for name, answered in zip(names, sample.answered, strict=True):
            if name in found:
                used_mcycles -= answered * found[name].work_mcycles
            else:
                requests += answered
    if requests <= 0.0 or used_mcycles <= 0.0:
        return {}
    average = WorkEstimate(used_mcycles / requests, math.inf, len(samples))
    return {name: average for name in names if name not in found}
