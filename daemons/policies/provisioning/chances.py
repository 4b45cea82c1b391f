"""The probability of breach of a window by its number of reference nodes, from what is in the table cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from daemons.models.deadline.breaches import BreachSpec, BreachTable, without_prices
from daemons.models.deadline.risks import RiskSpec, RiskTable
from daemons.policies.provisioning.analysers import BatchDeadline
from daemons.policies.provisioning.windows import Posed
from shared.policy_api.analysis import BreachQuery
from shared.policy_api.policies import TableCache
from shared.policy_api.snapshot import WindowView

SHOWN = 50
AROUND = 10  # sizes above the chosen one that are shown
Chances = Callable[[Sequence[int]], tuple[float, ...]]


class Risks(NamedTuple):
    """Probabilities of breach where service has phases: for sizes that are never changed, and for sizes until the next
    decision with all servers from then on. others_*: of the jobs that nodes help, which are all but the long ones."""

    never_changed: Chances
    until_next: Chances
    others_never_changed: Chances
    others_until_next: Chances


def chances_of(window: WindowView, problem: Posed, table_cache: TableCache) -> Chances | None:
    """Return the source of the probabilities for sizes in ascending order; they never rise. None while they are
    unknown."""
    if window.analyser != BatchDeadline.name:
        return _of_analyser(window, table_cache)
    if problem.phased is not None:
        return _of_phases(window, problem, table_cache)
    table = table_cache(BreachSpec(without_prices(problem.problem, least=1)))
    if not isinstance(table, BreachTable):
        return None
    interval = min(window.interval, window.intervals - 1)
    nothing = not window.jobs and not window.arrivals[interval:, 0].any()

    def chances(nodes: Sequence[int]) -> tuple[float, ...]:
        servers = np.asarray(nodes, dtype=np.int64) // problem.unit
        found = np.where(
            servers < 1, 0.0 if nothing else 1.0, table.at(interval, problem.jobs(window.jobs), servers.tolist())
        )
        return tuple(np.maximum(found, window.unavoidable).tolist())

    return chances


def _of_phases(window: WindowView, problem: Posed, table_cache: TableCache) -> Chances | None:
    """Return the probabilities for service with phases, from the run times of begun jobs."""
    found = risks_of(window, problem, table_cache)
    return None if found is None else found.never_changed


def risks_of(window: WindowView, problem: Posed, table_cache: TableCache) -> Risks | None:
    """Return the risks for service with phases, from the run times of begun jobs. None while they are unknown."""
    if problem.phased is None or problem.phased.phases is None or window.analyser != BatchDeadline.name:
        return None
    table = table_cache(RiskSpec(problem.phased, problem.begin))
    if not isinstance(table, RiskTable):
        return None
    interval, slots = min(window.interval, window.intervals - 1), problem.phased.slots
    begun = problem.begun(window.begun_s, window.interval_s)
    nothing = not window.jobs and not window.arrivals[interval:, 0].any()

    def servers_of(nodes: Sequence[int]) -> list[int]:
        return [each // problem.unit for each in nodes]

    def never_changed(nodes: Sequence[int]) -> tuple[float, ...]:
        servers = servers_of(nodes)
        found = table.breach(interval, window.jobs, begun, servers)
        known = np.where(np.asarray(servers) < 1, 0.0 if nothing else 1.0, found)
        return tuple(np.maximum(known, window.unavoidable).tolist())

    def until_next(nodes: Sequence[int]) -> tuple[float, ...]:
        return tuple(table.risk(interval, window.jobs, begun, servers_of(nodes)).tolist())

    def others_never_changed(nodes: Sequence[int]) -> tuple[float, ...]:
        return tuple(table.breach_of_others(interval, window.jobs, begun, servers_of(nodes), slots).tolist())

    def others_until_next(nodes: Sequence[int]) -> tuple[float, ...]:
        return tuple(table.risk_of_others(interval, window.jobs, begun, servers_of(nodes), slots).tolist())

    if problem.phased.phases.cv <= 1.0:  # jobs in later phases are not longer than others
        return Risks(never_changed, until_next, never_changed, until_next)
    return Risks(never_changed, until_next, others_never_changed, others_until_next)


def _of_analyser(window: WindowView, table_cache: TableCache) -> Chances | None:
    if table_cache(BreachQuery(window, (max(window.nodes_min, 1),))) is None:
        return None

    def chances(nodes: Sequence[int]) -> tuple[float, ...]:
        found = np.asarray(table_cache(BreachQuery(window, tuple(nodes))), dtype=np.float64)
        bounded = np.clip(np.nan_to_num(found, nan=1.0), 0.0, 1.0)
        return tuple(np.minimum.accumulate(bounded).tolist())

    return chances


def shown(window: WindowView, size: int, most: int, chances: Chances) -> range:
    """Return the sizes whose probabilities a decision reports: from the least on, at most `SHOWN`; only a few above the
    chosen one and above the first that meets the target."""
    least = max(window.nodes_min, 1)
    sizes = range(least, max(most, least) + 1)
    kept = np.asarray(chances(sizes)) <= 1.0 - window.confidence
    enough = least + int(kept.argmax()) if kept.any() else sizes[-1]
    last = min(sizes[-1], max(max(size, enough) + AROUND, least + SHOWN - 1))
    return range(max(least, last - SHOWN + 1), last + 1)
