"""The probability of breach of a window by its number of reference nodes, from what is in the table cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from daemons.models.deadline.breaches import BreachSpec, BreachTable, without_prices
from daemons.policies.provisioning.analysers import BatchDeadline
from daemons.policies.provisioning.windows import Posed
from shared.policy_api.analysis import BreachQuery
from shared.policy_api.policies import TableCache
from shared.policy_api.snapshot import WindowView

SHOWN = 50
AROUND = 10  # sizes above the chosen one that are shown
Chances = Callable[[Sequence[int]], tuple[float, ...]]


def chances_of(window: WindowView, problem: Posed, table_cache: TableCache) -> Chances | None:
    """What tells the probabilities for sizes in ascending order; they never rise. None while they are not known."""
    if window.analyser != BatchDeadline.name:
        return _of_analyser(window, table_cache)
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
        return tuple(found.tolist())

    return chances


def _of_analyser(window: WindowView, table_cache: TableCache) -> Chances | None:
    if table_cache(BreachQuery(window, (max(window.nodes_min, 1),))) is None:
        return None

    def chances(nodes: Sequence[int]) -> tuple[float, ...]:
        found = np.asarray(table_cache(BreachQuery(window, tuple(nodes))), dtype=np.float64)
        bounded = np.clip(np.nan_to_num(found, nan=1.0), 0.0, 1.0)
        return tuple(np.minimum.accumulate(bounded).tolist())

    return chances


def shown(window: WindowView, size: int, most: int, chances: Chances) -> range:
    """The sizes whose probabilities a decision tells: from the least on, at most `SHOWN`; above the one chosen, and the
    first that keeps the promise, only a few."""
    least = max(window.nodes_min, 1)
    sizes = range(least, max(most, least) + 1)
    kept = np.asarray(chances(sizes)) <= 1.0 - window.confidence
    enough = least + int(kept.argmax()) if kept.any() else sizes[-1]
    last = min(sizes[-1], max(max(size, enough) + AROUND, least + SHOWN - 1))
    return range(max(least, last - SHOWN + 1), last + 1)
