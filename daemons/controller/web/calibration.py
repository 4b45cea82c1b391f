"""Keeps, for each flow, how its measured response times compare with its model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.web_app import Sample, WebEntry
from daemons.controller.web.snapshot import NOT_MEASURED, UNKNOWN, flow_columns, flow_now, web_columns
from daemons.models.response_calibration import observed
from daemons.models.web_utility import app_utilities
from shared.base.errors import InvalidValue
from shared.values.jobs import JobPhase
from shared.values.web_app import Flow, FlowSample

STEADY_FRAC = 0.02  # a window tells of the model where the CPU of the instances was the same at its begin and end


def calibrate(cluster: Cluster, web: WebEntry, sample: Sample) -> None:
    """Take a sample in that has just been added to an application. O(instances + flows)."""
    replicas = [each for each in cluster.replicas.get(web.app.name, {}).values() if each.phase is JobPhase.RUNNING]
    given_mhz = sum(allotment.cpu_mhz for each in replicas for allotment in each.allotments)
    before_mhz, web.given_mhz = web.given_mhz, given_mhz
    steady = abs(given_mhz - before_mhz) <= STEADY_FRAC * given_mhz and all(each.released for each in replicas)
    if not given_mhz or not steady or any(flow_now(web, flow).profile == UNKNOWN for flow in web.app.flows):
        return
    nodes = {allotment.node for each in replicas for allotment in each.allotments}
    speeds = [entry.inventory.core_mhz for name in nodes if (entry := cluster.nodes.get(name)) and entry.inventory]
    measured = {one.flow: one for one in sample.flows}
    load_mhz = sum(
        one.offered / one.window_s * flow_now(web, flow).work_mcycles
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
        response_s = _response_s(flow, one) if one is not None else 0.0
        if one is not None and response_s > 0.0:
            before = web.factors.get(flow.name, NOT_MEASURED)
            web.factors[flow.name] = observed(before, model, given_mhz, response_s, one.window_s, one.served)


def _response_s(flow: Flow, sample: FlowSample) -> float:
    """Return the measured value that the goal refers to; 0: none."""
    if flow.throughput_per_s is not None or sample.queued:
        return 0.0
    return sample.mean_s if flow.mean_s is not None else sample.percentile_s
