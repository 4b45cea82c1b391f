"""Keeps, for each flow, how its measured response times compare with its model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.response_log import SteadyWindow
from daemons.controller.state.web_app import Sample, WebEntry, together
from daemons.controller.web.snapshot import NOT_MEASURED, UNKNOWN, flow_columns, flow_now, web_columns
from daemons.models.response_calibration import observed
from daemons.models.web_utility import app_utilities
from shared.base.errors import InvalidValue
from shared.values.web_app import WebApp


def note_cpu(web: WebEntry, running: list[JobEntry], now_s: float) -> None:
    """Note which CPU an application's running instances have. O(instances)."""
    web.responses.given(sum(one.cpu_mhz for each in running for one in each.allotments), now_s)


def calibrate(cluster: Cluster, web: WebEntry, sample: Sample) -> None:
    """Take a sample in that has just been added to an application. O(instances + flows)."""
    running = cluster.replicas_wanted(web.app.name)
    note_cpu(web, running, sample.at_s)
    tells = running and all(each.released for each in running) and not _works_off(web.app, sample)
    windows = web.responses.answered(sample.at_s, sample.flows) if tells else web.responses.close()
    if not running or any(flow_now(web, flow).profile == UNKNOWN for flow in web.app.flows):
        return
    for window in windows:
        _observe(cluster, web, running, window)


def _works_off(app: WebApp, sample: Sample) -> bool:
    """Return whether so many requests of a flow wait that the last of them misses the goal, however fast the others
    are: that is what came of an earlier overload, not what the model is about."""
    goals_s = {flow.name: flow.mean_s or flow.percentile_s or math.inf for flow in app.flows}
    return any(one.queued > one.served / one.window_s * goals_s.get(one.flow, math.inf) for one in sample.flows)


def _observe(cluster: Cluster, web: WebEntry, running: list[JobEntry], window: SteadyWindow) -> None:
    nodes = {allotment.node for each in running for allotment in each.allotments}
    speeds = [entry.inventory.core_mhz for name in nodes if (entry := cluster.nodes.get(name)) and entry.inventory]
    measured = {flow: together(samples) for flow, samples in window.flows.items()}
    load_mhz = web.work.background_mhz + sum(
        one.offered_per_s * flow_now(web, flow).work_mcycles
        for flow in web.app.flows
        if (one := measured.get(flow.name))
    )
    loads = np.array([load_mhz if flow.load_mhz is None else flow.load_mhz for flow in web.app.flows])
    columns = replace(flow_columns([web]), load_mhz=loads, response_factor=np.ones(len(loads)))
    try:
        (app,) = app_utilities(web_columns([web]), columns, max(speeds, default=0.0))
    except InvalidValue:  # figures that no model takes
        return
    for flow, model in zip(web.app.flows, app.flows, strict=True):
        one = measured.get(flow.name)
        response_s = (one.mean_s if flow.mean_s is not None else one.percentile_s) if one is not None else None
        if one is not None and response_s and flow.throughput_per_s is None:
            answered = sum(sample.served for sample in window.flows[flow.name])
            before = web.factors.get(flow.name, NOT_MEASURED)
            web.factors[flow.name] = observed(before, model, window.mhz, response_s, one.window_s, answered)
