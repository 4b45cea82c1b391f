"""The distribution of CPU between decisions: running workloads stay in place and share the CPU of their nodes again
(apc.txt section 3.4, with the placement given).

One number has to be found. The higher the level of the running jobs, the more CPU they need on their nodes, and the
less is left for the instances of web applications next to them: the applications' utility falls as the level of all
jobs (including waiting ones) rises. Where both meet, no workload can gain except at the expense of one with a lower
utility. O((jobs + instances) x steps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.level import JobDemand
from daemons.models.web_utility import AppColumns
from shared.policy_api.snapshot import Floats, Ints

LOWEST = -50.0  # a level at which jobs get next to nothing
FAR = 1e6  # below every utility that is compared
TOLERANCE = 1e-4
ROUNDING = 1e-12  # so little of a node's CPU stays free, so that sums are not above it
NEAR = 0.01  # of utility below its best: an application takes nothing from jobs for more
HARDLY = 0.02  # of utility: what gains less is left to a job that waits


@dataclass(frozen=True, slots=True)
class Running:
    """What runs, by instance. Jobs: `row` in the demand, `node`, `count` of the instances of its job, `least_mhz` and
    `most_mhz` of this one. Instances of applications (replica_*): `app`, `node`, and the same bounds. cpu_mhz: float64
    [nodes], what they share on each node. apps: utilities, against the CPU of all instances; fixed_mhz: float64[apps],
    of those that are not among these. waiting: a job waits for CPU."""

    cpu_mhz: Floats
    row: Ints
    node: Ints
    count: Ints
    least_mhz: Floats
    most_mhz: Floats
    replica_app: Ints
    replica_node: Ints
    replica_least_mhz: Floats
    replica_most_mhz: Floats
    demand: JobDemand
    apps: AppColumns
    fixed_mhz: Floats
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """CPU in MHz of each job's instance and each application's; the jobs' level then, and the utilities by
    application."""

    mhz: Floats
    replica_mhz: Floats
    level: float
    utilities: tuple[float, ...]


def redistribute(running: Running, curves: Curves | None = None) -> Shared:
    """Return the CPU of each workload such that the application with the lowest utility and the jobs have the same
    utility. curves: those of `running.apps`, if already computed."""
    search = _Search(running, curves or Curves(running.apps))
    best = running.demand.best
    at = best if search.gap(best) >= 0.0 else LOWEST
    if at < best and search.gap(LOWEST) > 0.0:
        at = float(brentq(search.gap, LOWEST, best, xtol=TOLERANCE, rtol=1e-9))
    return search.shared(at)


def outlook_of(running: Running, mhz: Floats, replica_mhz: Floats, curves: Curves | None = None) -> Shared:
    """Return what so much CPU of each job's instance and each application's means. curves: as for `redistribute`."""
    totals: Floats = np.bincount(running.replica_app, replica_mhz, len(running.apps)) + running.fixed_mhz
    utilities = tuple((curves or Curves(running.apps)).utilities(totals).tolist())
    return Shared(mhz, replica_mhz, running.demand.solve(float(mhz.sum())).level, utilities)


class Curves:
    """Utilities of the applications against their CPU as straight lines between points, the most of them where a
    utility bends: just above the CPU that the load takes. O(applications) for all at once."""

    def __init__(self, apps: AppColumns) -> None:
        late_mhz = apps.late_mhz
        self.bends_mhz = np.where(late_mhz > 0.0, late_mhz, 1.0)
        self._mhz = self.bends_mhz[:, np.newaxis] * _GRID
        self._ends_mhz = self._mhz.copy()
        self._ends_mhz[:, -1] = math.inf  # the last line goes on
        self._utility = apps.utility(self._mhz)
        self._rows = np.arange(len(late_mhz))
        self.best = self._utility.max(axis=1)

    def utilities(self, mhz: Floats) -> Floats:
        """Utility of each with so much CPU, float64[applications]."""
        at = np.clip((self._ends_mhz > mhz[:, np.newaxis]).argmax(axis=1), 1, len(_GRID) - 1)
        low, high = self._mhz[self._rows, at - 1], self._mhz[self._rows, at]
        below, above = self._utility[self._rows, at - 1], self._utility[self._rows, at]
        part = np.clip((mhz - low) / (high - low), 0.0, 1.0)
        found: Floats = below + part * (above - below)
        return found

    def mhz(self, app: int, utility: float) -> float:
        """Return the least CPU with which an application has a utility, at most that of the last point."""
        return float(np.interp(utility, self._utility[app], self._mhz[app]))


# Parts of the CPU at which a utility bends. Where there is next to no load that is next to nothing.
_GRID = np.concatenate(
    [[0.0, 0.5, 0.8, 0.9, 0.95], np.linspace(0.98, 1.2, 45), np.geomspace(1.22, 20.0, 30), np.geomspace(24.0, 1e3, 18)]
)


class _Search:
    def __init__(self, running: Running, curves: Curves) -> None:
        self._running = running
        self._cpu = running.cpu_mhz * (1.0 - ROUNDING)
        self._nodes = len(running.cpu_mhz)
        self._level = running.demand.best
        self._curves = curves
        replicas = np.bincount(running.replica_app, minlength=len(running.apps))
        weight = (self._curves.bends_mhz / np.maximum(replicas, 1))[running.replica_app]
        self._part = weight / np.maximum(self._by_node(running.replica_node, weight), 1e-9)[running.replica_node]
        self._replica_least = self._by_node(running.replica_node, running.replica_least_mhz)

    def _by_node(self, node: Ints, values: Floats) -> Floats:
        summed: Floats = np.bincount(node, weights=values, minlength=self._nodes).astype(np.float64)
        return summed

    def gap(self, level: float) -> float:
        """Return how far the lowest utility of the applications that are not near their best is above that of all jobs,
        at a level of the running jobs."""
        jobs, replicas = self._at(level)
        utilities = self._curves.utilities(self._totals(replicas))
        worst = float(utilities.min(initial=FAR, where=utilities < self._curves.best - NEAR))
        self._level = self._level_of(jobs)
        return max(worst, -FAR) - max(self._level, -FAR)

    def _at(self, level: float) -> tuple[Floats, Floats]:
        """Return the CPU of the jobs at a level, and of the applications that have the rest."""
        running = self._running
        omegas = running.demand.omegas(level)[running.row] / running.count
        jobs = np.minimum(np.maximum(omegas, running.least_mhz), running.most_mhz)
        asked = self._by_node(running.node, jobs)
        room = np.maximum(self._cpu - self._replica_least, 0.0)
        jobs *= np.minimum(1.0, room / np.maximum(asked, 1e-9))[running.node]
        left = np.maximum(room - asked, 0.0)
        more = left[running.replica_node] * self._part
        return jobs, np.minimum(running.replica_most_mhz, running.replica_least_mhz + more)

    def _totals(self, replicas: Floats) -> Floats:
        running = self._running
        totals: Floats = np.bincount(running.replica_app, replicas, len(running.apps)) + running.fixed_mhz
        return totals

    def _level_of(self, jobs: Floats) -> float:
        return self._running.demand.solve(float(jobs.sum()), self._level).level

    def shared(self, level: float) -> Shared:
        """Return the shares at a level of the running jobs: no application gets more than it needs for the lowest
        utility while another workload can use it. While a job waits, none keeps CPU that gains it next to nothing."""
        running, curves = self._running, self._curves
        jobs, replicas = self._at(level)
        totals = self._totals(replicas)
        utilities = curves.utilities(totals)
        target = max(float(utilities.min(initial=FAR)), self._level_of(jobs))
        least = np.bincount(running.replica_app, running.replica_least_mhz, len(running.apps))
        keeps = np.ones(len(running.apps))
        targets = np.minimum(target, curves.best - HARDLY) if running.waiting else np.full(len(running.apps), target)
        for app in np.flatnonzero(utilities > targets).tolist():
            more = totals[app] - running.fixed_mhz[app] - least[app]
            wanted = curves.mhz(app, targets.item(app)) - running.fixed_mhz[app] - least[app]
            if more > 0.0:
                keeps[app] = min(1.0, max(0.0, wanted) / more)
        replicas = running.replica_least_mhz + (replicas - running.replica_least_mhz) * keeps[running.replica_app]
        alone = np.where(running.count == 1, running.most_mhz, jobs)
        jobs = self._filled(jobs, alone, running.node, jobs, replicas)
        if not running.waiting:
            replicas = self._filled(replicas, running.replica_most_mhz, running.replica_node, jobs, replicas)
        found = tuple(curves.utilities(self._totals(replicas)).tolist())
        return Shared(jobs, replicas, self._level_of(jobs), found)

    def _filled(self, mhz: Floats, most: Floats, node: Ints, jobs: Floats, replicas: Floats) -> Floats:
        """Distribute the rest of each node: the same part of each workload's shortfall."""
        running = self._running
        used = self._by_node(running.node, jobs) + self._by_node(running.replica_node, replicas)
        free = np.maximum(self._cpu - used, 0.0)
        lacks = np.maximum(most - mhz, 0.0)
        part = np.minimum(1.0, free / np.maximum(self._by_node(node, lacks), 1e-9))
        filled: Floats = mhz + lacks * part[node]
        return filled
