"""The work of web requests, estimated from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from daemons.controller.state.web_app import WorkEstimate, WorkProfile
from daemons.models.work_profiler import UsageSample, WorkWindows, estimate
from daemons.values.records.cluster import WorkWindow
from shared.values.web_app import WebApp

HALF_WIDTH_MAX_FRAC = 1.0  # an estimate that could as well be nothing is none


def work_profile(app: WebApp, windows: Sequence[WorkWindow]) -> WorkProfile:
    """Return the work per request of all flows together, as far as the windows and declarations determine it, and what
    the instances of the last window use beside.

    Some flows declare none, and the regression cannot estimate them yet, or not separately. They get their average: the
    rest of the CPU used over their requests, with an infinite half-width. Declared work stands until there are enough
    windows.
    """
    names = tuple(flow.name for flow in app.flows)
    if not windows or not names:
        return WorkProfile()
    declared = {flow.name: flow.work_mcycles for flow in app.flows if flow.work_mcycles is not None}
    samples = [_sample(window, names) for window in windows]
    fitted = estimate(WorkWindows(names, tuple(samples)), declared)
    found = {
        flow.flow: WorkEstimate(flow.work_mcycles, flow.half_width_frac, flow.samples)
        for flow in fitted.flows
        if flow.work_mcycles > 0.0 and flow.half_width_frac <= HALF_WIDTH_MAX_FRAC
    }
    unknown = [name for name in names if name not in found and name not in declared]
    if not unknown:
        # It is what the fitted flows leave: of no use beside others.
        fits = all(flow.flow in found for flow in fitted.flows if flow.samples)
        return WorkProfile(found, fitted.background_mhz * samples[-1].instances if fits else 0.0)
    known = {
        name: found[name].work_mcycles if name in found else declared[name] for name in names if name not in unknown
    }
    return WorkProfile(found | _averages(unknown, names, samples, known))


def _sample(window: WorkWindow, names: tuple[str, ...]) -> UsageSample:
    """Return a window in the form that the profiler takes."""
    served = {one.flow: float(one.served) for one in window.served}
    used_mhz = window.used_mcycles / window.seconds
    answered = tuple(served.get(name, 0.0) for name in names)
    return UsageSample(window.seconds, used_mhz, window.instances, answered, (0.0,) * len(names))


def _averages(
    unknown: Sequence[str], names: Sequence[str], samples: Sequence[UsageSample], known: Mapping[str, float]
) -> dict[str, WorkEstimate]:
    """Return for each unknown flow the CPU that the known flows have not used, over the requests of all unknown
    flows."""
    used_mcycles = requests = 0.0
    for sample in samples:
        used_mcycles += sample.used_mhz * sample.window_s
        for name, answered in zip(names, sample.answered, strict=True):
            if name in known:
                used_mcycles -= answered * known[name]
            else:
                requests += answered
    if requests <= 0.0 or used_mcycles <= 0.0:
        return {}
    average = WorkEstimate(used_mcycles / requests, math.inf, len(samples))
    return dict.fromkeys(unknown, average)
