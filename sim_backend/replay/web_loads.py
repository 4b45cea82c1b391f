"""What is asked of web applications in the direct engine: constant, or given as a step function of time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import NO_FLOWS, NO_WEB, FlowColumns, WebColumns
from shared.values.jobs import Job
from shared.values.web_app import Flow, WebApp


@dataclass(frozen=True, slots=True)
class FlowLoad:
    """What a flow asks for, as its response-time model takes it: c_mhz_s and load_mhz (MHz that it uses up) of the
    shifted hyperbola; rate_per_s (arrivals) and work_mcycles (of one request) of the queueing models."""

    c_mhz_s: float = 0.0
    load_mhz: float = 0.0
    rate_per_s: float = 0.0
    work_mcycles: float = 0.0


@dataclass(frozen=True, slots=True)
class WebLoad:
    """A web application and its load: `steps` are (from when in s, one `FlowLoad` per flow), ascending, the first at 0.

    max_mhz: above so much CPU for all instances nothing is gained (inf: no such limit). Raises `InvalidValue` for
    steps that are not in order, or loads that are not one per flow.
    """

    app: WebApp
    steps: tuple[tuple[float, tuple[FlowLoad, ...]], ...]
    max_mhz: float = math.inf

    def __post_init__(self) -> None:
        times = [from_s for from_s, _ in self.steps]
        if not times or times[0] != 0.0 or any(later_s <= at_s for at_s, later_s in pairwise(times)):
            raise InvalidValue("steps", times, "times that begin at 0 and increase")
        if any(len(loads) != len(self.app.flows) for _, loads in self.steps):
            raise InvalidValue("steps", len(self.app.flows), "one load for each flow")

    def at(self, now_s: float) -> tuple[FlowLoad, ...]:
        """Return the load at a given time, one entry per flow."""
        return self.steps[bisect_right(self.steps, now_s, key=lambda step: step[0]) - 1][1]

    def replicas(self) -> list[Job]:
        """Return all possible instances, each as a workload of its own."""
        return [self.app.replica_job(index, 0.0) for index in range(self.app.max_instances)]


def web_columns(loads: Sequence[WebLoad]) -> WebColumns:
    """Return the rows of the web applications in a snapshot."""
    if not loads:
        return NO_WEB
    return WebColumns(
        tuple(load.app.name for load in loads),
        np.array([load.app.min_instances for load in loads], dtype=np.int64),
        np.array([load.app.max_instances for load in loads], dtype=np.int64),
        np.array([load.max_mhz for load in loads], dtype=np.float64),
        np.array([load.app.importance for load in loads], dtype=np.float64),
    )


def flow_columns(loads: Sequence[WebLoad], now_s: float) -> FlowColumns:
    """Return the rows of the applications' flows under the load at `now_s`."""
    if not loads:
        return NO_FLOWS
    rows = [
        (row, flow, asked)
        for row, load in enumerate(loads)
        for flow, asked in zip(load.app.flows, load.at(now_s), strict=True)
    ]

    def floats(values: list[float]) -> np.ndarray:
        return np.array(values, dtype=np.float64)

    return FlowColumns(
        tuple(flow.name for _, flow, _ in rows),
        np.array([row for row, _, _ in rows], dtype=np.int64),
        floats([_goal(flow) for _, flow, _ in rows]),
        percentile=floats([flow.percentile for _, flow, _ in rows]),
        throughput=np.array([flow.throughput_per_s is not None for _, flow, _ in rows], dtype=np.bool_),
        model=tuple(flow.model for _, flow, _ in rows),
        t_min_s=floats([flow.t_min_s for _, flow, _ in rows]),
        c_mhz_s=floats([asked.c_mhz_s for _, _, asked in rows]),
        load_mhz=floats([asked.load_mhz for _, _, asked in rows]),
        rate_per_s=floats([asked.rate_per_s for _, _, asked in rows]),
        work_mcycles=floats([asked.work_mcycles for _, _, asked in rows]),
        response_factor=np.ones(len(rows)),
        expected_mhz=np.zeros(len(rows)),
    )


def _goal(flow: Flow) -> float:
    (goal,) = (each for each in (flow.mean_s, flow.percentile_s, flow.throughput_per_s) if each is not None)
    return goal
