"""Whether a cluster is too small for what is asked of it: the CPU with which every goal is just met."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daemons.models.web_utility import AppUtility, app_utilities
from shared.policy_api.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Shortage:
    """CPU in MHz: `web_mhz`, `jobs_mhz` with which applications and jobs just meet their goals (a job that is late: its
    full speed), `capacity_mhz` of all nodes that could serve. `lasts_s`: until the jobs of now are done with what
    applications leave, if no more come (inf: they leave nothing)."""

    web_mhz: float
    jobs_mhz: float
    capacity_mhz: float
    lasts_s: float

    @property
    def missing_mhz(self) -> float:
        """How much more would be enough."""
        return self.web_mhz + self.jobs_mhz - self.capacity_mhz


def shortage_of(snapshot: Snapshot) -> Shortage | None:
    """Return what is missing; None where there is enough. O(jobs + flows). Raises `InvalidValue` for a flow without a
    figure that its model needs."""
    nodes, work, now_s = snapshot.nodes, snapshot.workloads, snapshot.now_s
    serving = nodes.schedulable if snapshot.power is None else nodes.schedulable | snapshot.power.available
    capacity_mhz = float(nodes.cpu_mhz[serving].sum())
    jobs = (work.app < 0) & np.isfinite(work.goal_s) & (work.desired_start_s <= now_s + snapshot.cycle_s)
    left = work.instances[jobs] * np.maximum(work.work_mcycles - work.done_mcycles, 0.0)[jobs]
    full_mhz = work.instances[jobs] * work.max_mhz[jobs]
    in_time = left / np.maximum(work.goal_s[jobs] - now_s, 1e-9)
    jobs_mhz = float(np.where(left > 0.0, np.minimum(in_time, full_mhz), 0.0).sum())
    apps = app_utilities(snapshot.web, snapshot.flows, nodes.core_mhz.max(initial=0.0) or 1.0)
    web_mhz = sum(_needed_mhz(app, capacity_mhz) for app in apps)
    if web_mhz + jobs_mhz <= capacity_mhz:
        return None
    rest_mhz = capacity_mhz - web_mhz
    return Shortage(web_mhz, jobs_mhz, capacity_mhz, float(left.sum()) / rest_mhz if rest_mhz > 0.0 else math.inf)


def _needed_mhz(app: AppUtility, capacity_mhz: float) -> float:
    """Return the CPU that meets the goals of all its flows: at most as much as its instances can use, unless that is
    the whole cluster."""
    unbounded = max((float(flow.mhz(0.0)) for flow in app.flows), default=0.0)
    return unbounded if math.isfinite(unbounded) and app.max_mhz >= capacity_mhz else min(unbounded, app.max_mhz)
