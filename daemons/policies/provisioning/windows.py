"""A deadline window as a problem: what its nodes cost, how many there may be, how long they take to come and go."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from daemons.models.deadline import phase_sizes
from daemons.models.deadline.breaches import without_prices
from daemons.models.deadline.phases import Phases, counts_by_phase
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.risks import can_be_built
from daemons.models.node_choice import ENOUGH, available, held, lost, rates
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Snapshot, WindowView

SIZES_MAX = 64  # more sizes are decided on in units of several nodes: tables would take too long
JOBS_MAX = 8_000  # and more jobs in batches
JOBS_LEAST = 200
ELEMENTS_MAX = 50_000_000  # intervals x sizes x jobs of a table
LONGEST = 0.5  # intervals that a batch may be served for, because it is one
STEPS = 20  # of an interval: times to come and go are rounded up to such a part, so that tables stay valid


@dataclass(frozen=True, slots=True)
class Posed:
    """A window's problem. unit: reference nodes that one server of the problem stands for; batch: jobs that one of its
    jobs stands for. What comes and goes in batches varies more: their sizes are on the safe side. phased: the problem
    with the phases of its service times and without prices (None: they are taken for exponential, or there are too many
    jobs and servers for that). begin: the interval in which it was first posed so; tables with phases begin there."""

    problem: DeadlineProblem
    unit: int
    batch: float = 1.0
    phased: DeadlineProblem | None = None
    begin: int = 0

    def begun(self, ages_s: Floats, interval_s: float) -> Floats:
        """Return float64[J..]: the probability of the numbers of begun jobs in each later phase, given the run times so
        far in s."""
        of = self.phased
        assert of is not None
        assert of.phases is not None
        return counts_by_phase(of.phases, ages_s / interval_s, of.slots * of.servers_max)

    def with_phases(self, method: str) -> DeadlineProblem | None:
        """Return the problem with prices and phases; None if a method has no table for it."""
        if self.phased is None or method not in phase_sizes.METHODS:
            return None
        found = replace(self.problem, phases=self.phased.phases, deploy=0.0)
        return found if phase_sizes.can_be_sized(found) else None

    def jobs(self, jobs: int) -> int:
        """Convert a number of jobs to jobs of the problem, rounded up."""
        return math.ceil(max(jobs, 0) / self.batch - ENOUGH)

    def servers(self, nodes: int) -> int:
        """Convert a number of reference nodes to servers, rounded down."""
        return nodes // self.unit

    def nodes(self, servers: int) -> int:
        """Convert a number of servers to reference nodes."""
        return servers * self.unit


@dataclass(frozen=True, slots=True)
class Limits:
    """Reference nodes that a window may have: by its configuration, of all nodes, of those that are available, and of
    these besides what others hold."""

    least: int
    most: int
    available: int
    reachable: int


def limits_of(snapshot: Snapshot, window: WindowView) -> Limits:
    """Return the limits of a window. `available` and `reachable` are 0 if no node can serve the window now, `most` if
    none ever can."""
    rate = rates(window.rate)
    all_nodes = math.floor(float(rate.sum()) + ENOUGH)
    now = float(rate[available(snapshot)].sum()) + ENOUGH
    left = math.floor(now - lost(float(held(window).sum()), now))
    least = max(window.nodes_min, 1)
    highest = max(window.nodes_max, least)
    reachable = min(highest, left)
    return Limits(min(least, reachable), min(highest, all_nodes), min(highest, math.floor(now)), reachable)


def posed(window: WindowView, price: list[float], most: int) -> Posed | None:
    """Return the problem with up to `most` reference nodes (>= 1), None if the window's numbers are unusable."""
    unit = math.ceil(most / SIZES_MAX)
    prices = np.array(price) * unit
    removal = removal_prices(prices, _rounded(window.remove_s / window.interval_s))
    try:
        service = window.service_s / window.interval_s
        slots, longer, batch = _batches(window.slots * unit, most // unit, window.intervals, service)
        problem = DeadlineProblem(
            window.arrivals / batch,
            service * longer,
            max(1, min(math.ceil(window.nodes_min / unit), most // unit)),
            servers_max=most // unit,
            confidence=window.confidence,
            price=prices,
            removal_price=removal,
            deploy=min(_rounded(window.deploy_s / window.interval_s), 1.0),
            penalty=batch * (window.penalty if window.penalty > 0.0 else max(0.0, service * float(prices.max()))),
            slots=slots,
        )
    except (InvalidValue, ValueError, OverflowError, ZeroDivisionError):
        return None
    return Posed(problem, unit, batch, _phased(window, problem, batch))


def _phased(window: WindowView, problem: DeadlineProblem, batch: float) -> DeadlineProblem | None:
    """Return the problem with the window's phases if its table can be computed."""
    if not len(window.phase_rates) or batch != 1.0:
        return None
    try:
        phases = Phases(tuple(window.phase_rates.tolist()), tuple(window.phase_goes.tolist()))
        phases = phases.scaled(problem.service / phases.mean)
        found = replace(without_prices(problem, least=1), phases=phases, deploy=problem.deploy)
    except (InvalidValue, ValueError, OverflowError, ZeroDivisionError):
        return None
    return found if can_be_built(found) else None


def _batches(slots: int, servers: int, intervals: int, service: float) -> tuple[int, float, float]:
    """Slots of a server, how much longer service takes, and jobs in a batch, so that there are not too many jobs:
    batches have several slots each, or one for longer."""
    limit = min(JOBS_MAX, max(JOBS_LEAST, ELEMENTS_MAX // (intervals * servers)))
    wanted = slots * servers * intervals / service / limit
    if not wanted > 1.0:
        return slots, 1.0, 1.0
    fewer = max(1, math.floor(slots / wanted))
    longer = max(1.0, min(wanted * fewer / slots, LONGEST / service))
    return fewer, longer, slots / fewer * longer


def removal_prices(price: Floats, remove: float) -> Floats:
    """Return float64[d]: the cost of a server from each decision point for `remove` intervals, never past the
    deadline."""
    sums = np.concatenate([[0.0], np.cumsum(price)])
    begins = np.arange(len(price), dtype=np.float64)
    ends = np.minimum(begins + remove, float(len(price)))
    return np.asarray(np.interp(ends, np.arange(len(sums)), sums) - sums[:-1], dtype=np.float64)


def _rounded(intervals: float) -> float:
    return math.ceil(intervals * STEPS - 1e-9) / STEPS if math.isfinite(intervals) and intervals > 0.0 else 0.0
