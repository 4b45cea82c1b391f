"""Environment metrics."""

from __future__ import annotations

from collections import Counter

from daemons.controller.state.cluster import Cluster
from shared.metrics.values import Metric, MetricKind, Scrape
from shared.values.agreement import EnvironmentState

ENVIRONMENTS = Metric("trimtab_environments", MetricKind.GAUGE, "environments", "Environments by state.", ("state",))
METRICS = (ENVIRONMENTS,)


def read(cluster: Cluster, scrape: Scrape) -> None:
    """Take the readings. O(environments)."""
    states = Counter(entry.state for entry in cluster.environments.values())
    scrape.rows(ENVIRONMENTS, ((one.value, float(states[one])) for one in EnvironmentState))
