"""What a rule for sizes brings, exactly: the joint distribution of servers and jobs carried on and on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daemons.models.deadline.capacity import all_sizes
from daemons.models.deadline.kernels import NEGLECTED, Chain, count_bound
from daemons.models.deadline.problem import DeadlineProblem, Floats, Ints
from daemons.models.deadline.rules import SizeTable
from shared.base.errors import InvalidValue
from shared.values.scalars import whole


@dataclass(frozen=True, slots=True)
class Deployments:
    """Expected number of decision points at which servers are added, and of servers added at them."""

    events: float
    servers: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Expectations over a period. expected_server_cost: without penalty, with removal; miss_probability: that a job is
    left at the deadline; missed_jobs: expected number left; mean_servers: float64[d], in interval s after its decision
    (those being deployed count); mean_jobs: float64[d + 1], at time s."""

    expected_server_cost: float
    miss_probability: float
    missed_jobs: float
    deployments: Deployments
    mean_servers: Floats
    mean_jobs: Floats


def evaluate(
    problem: DeadlineProblem,
    table: SizeTable,
    deploy: float | None = None,
    servers: int | None = None,
    jobs: int = 0,
    interval: int = 0,
) -> Evaluation:
    """Carry `table` out from the decision point `interval` (0..d-1) on, with `servers` (`servers_min` by default) in
    service and `jobs` in the system; what was before counts as 0.

    Row 0 of the table is in force from time 0, without deployment or removal. Added servers cost at once and serve
    after `deploy` (share of an interval, 0..1; the problem's by default); removed servers stop at once and cost
    `removal_price`. Raises `InvalidValue` for a start or sizes outside the problem's.
    """
    begin = problem.deploy if deploy is None else deploy
    if not 0.0 <= begin <= 1.0:
        raise InvalidValue("deploy", begin, "a share of an interval, from 0 to 1")
    start = problem.servers_min if servers is None else servers
    whole("servers", start, problem.servers_min, problem.servers_max)
    whole("jobs", jobs, 0, 10**6)
    whole("interval", interval, 0, problem.intervals - 1)
    run = _Run(problem, table, begin, jobs + count_bound(float(problem.arrivals[interval:, 0].sum())))
    mass = np.zeros((2 if table.delayed else 1, run.count, run.jobs.size))
    mass[0, start - problem.servers_min, jobs] = 1.0
    for place in range(interval, problem.intervals):
        mass = run.step(place, mass)
    return run.result(mass)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Places of the sizes that are chosen (int64[P, N + 1] each), and whether removal is remembered."""

    sizes: Ints
    remembered: Ints


class _Run:
    """The joint distribution of (removal wanted before, servers, jobs), and what it has cost so far."""

    def __init__(self, problem: DeadlineProblem, table: SizeTable, deploy: float, jobs_max: int) -> None:
        self.problem = problem
        self.table = table
        self.deploy = deploy
        self.chain = Chain(problem, max(jobs_max, 1))
        self.sizes = all_sizes(problem)
        self.count = int(self.sizes.size)
        self.places = np.arange(self.count)[:, None]
        self.jobs = np.arange(self.chain.jobs_max + 1)
        self.cost = self.added_points = self.added_servers = 0.0
        self.mean_servers = np.zeros(problem.intervals)
        self.mean_jobs = np.zeros(problem.intervals + 1)

    def step(self, interval: int, mass: Floats) -> Floats:
        """Decide at `interval` and go to the next decision point."""
        self.mean_jobs[interval] = mass.sum(axis=(0, 1)) @ self.jobs
        wanted = self._wanted(interval)
        kept = np.zeros_like(mass)
        added: dict[tuple[int, int, int], Floats] = {}
        for flag in range(mass.shape[0]):
            chosen = self._chosen(wanted, flag)
            self._charge(interval, mass[flag], chosen.sizes)
            self._move(interval, mass[flag], chosen, kept, added)
        return self._serve(interval, kept, added)

    def result(self, mass: Floats) -> Evaluation:
        """Return the evaluation from the distribution at the deadline."""
        left = mass.sum(axis=(0, 1))
        self.mean_jobs[-1] = left @ self.jobs
        deployments = Deployments(self.added_points, self.added_servers)
        missed, miss = float(self.mean_jobs[-1]), float(left[1:].sum())
        return Evaluation(self.cost, miss, missed, deployments, self.mean_servers, self.mean_jobs)

    def _wanted(self, interval: int) -> Ints:
        rows = np.clip(self.sizes - self.table.servers_min, 0, self.table.sizes.shape[1] - 1)
        columns = np.minimum(self.jobs, self.table.sizes.shape[2] - 1)
        sizes = self.table.sizes[interval][np.ix_(rows, columns)]
        wanted: Ints = sizes.astype(np.int64) - self.problem.servers_min
        if wanted.min() < 0 or wanted.max() >= self.count:
            allowed = f"{self.problem.servers_min} to {self.problem.servers_max}"
            raise InvalidValue("sizes", int(wanted.max()) + self.problem.servers_min, allowed)
        return wanted

    def _chosen(self, wanted: Ints, flag: int) -> _Chosen:
        """Algorithm 2 removes only where it wanted to at the point before (flag) too."""
        fewer = wanted < self.places
        if not self.table.delayed:
            return _Chosen(wanted, np.zeros_like(wanted))
        return _Chosen(np.where(fewer & (flag == 0), self.places, wanted), fewer.astype(np.int64))

    def _charge(self, interval: int, mass: Floats, chosen: Ints) -> None:
        servers = float((mass * self.sizes[chosen]).sum())
        self.mean_servers[interval] += servers
        self.cost += servers * float(self.problem.price[interval])
        if interval > 0:
            removed = float((mass * np.maximum(self.places - chosen, 0)).sum())
            self.cost += removed * float(self.problem.removal_price[interval])
            self.added_points += float(mass[chosen > self.places].sum())
            self.added_servers += float((mass * np.maximum(chosen - self.places, 0)).sum())

    def _move(
        self, interval: int, mass: Floats, chosen: _Chosen, kept: Floats, added: dict[tuple[int, int, int], Floats]
    ) -> None:
        """Sum the distribution by what serves from now on; by (flag, before, after) in `added` where servers come."""
        later = (chosen.sizes > self.places) & (mass > NEGLECTED) & (interval > 0) & (self.deploy > 0.0)
        at_once = np.where(later, 0.0, mass)
        place = (chosen.remembered * self.count + chosen.sizes) * self.jobs.size + self.jobs
        kept += np.bincount(place.ravel(), weights=at_once.ravel(), minlength=kept.size).reshape(kept.shape)
        before, jobs = np.nonzero(later)
        after, flags = chosen.sizes[before, jobs], chosen.remembered[before, jobs]
        for flag, p, q, n in zip(flags.tolist(), before.tolist(), after.tolist(), jobs.tolist(), strict=True):
            key = (flag, p, q)
            if key not in added:
                added[key] = np.zeros(self.jobs.size)
            added[key][n] += mass[p, n]

    def _serve(self, interval: int, kept: Floats, added: dict[tuple[int, int, int], Floats]) -> Floats:
        sizes = np.tile(self.sizes, kept.shape[0])
        rows = kept.reshape(-1, self.jobs.size)
        if not added:
            return self.chain.forward(interval, rows, sizes).reshape(kept.shape)
        rows = self.chain.forward(interval, rows, sizes, 0.0, self.deploy)
        keys = np.array(list(added), dtype=np.int64)
        moved = self.chain.forward(interval, np.array(list(added.values())), self.sizes[keys[:, 1]], 0.0, self.deploy)
        for place, row in zip((keys[:, 0] * self.count + keys[:, 2]).tolist(), moved, strict=True):
            rows[place] += row
        if self.deploy < 1.0:
            rows = self.chain.forward(interval, rows, sizes, self.deploy, 1.0)
        return rows.reshape(kept.shape)
