"""Assurance metrics: units of environments, promises, and what was served."""

from __future__ import annotations

from collections.abc import Mapping

from daemons.controller.admission.promises import AssuranceEntry
from daemons.controller.state.cluster import Cluster
from shared.metrics.values import Metric, MetricKind, Scrape

ENVIRONMENTS_MAX = 200  # environments that are told of one by one

UNITS = Metric(
    "trimtab_environment_units",
    MetricKind.GAUGE,
    "units",
    "Units of an environment: its size, and what it asks for, is entitled to and is served.",
    ("environment", "of"),
    series_max=4 * ENVIRONMENTS_MAX,
)
PROMISED = Metric(
    "trimtab_environment_assurance_promised_ratio",
    MetricKind.GAUGE,
    "ratio",
    "What each share of a reservation promises, 0 to 1.",
    ("environment", "share", "service_class"),
    series_max=4 * ENVIRONMENTS_MAX,
)
SERVED = Metric(
    "trimtab_environment_assurance_measured_ratio",
    MetricKind.GAUGE,
    "ratio",
    "What was served of each share of a reservation, 0 to 1.",
    ("environment", "share", "service_class"),
    series_max=4 * ENVIRONMENTS_MAX,
)
METRICS = (UNITS, PROMISED, SERVED)


def read(cluster: Cluster, known: Mapping[str, AssuranceEntry], scrape: Scrape) -> None:
    """Take the readings. O(environments)."""
    entries = [entry for _, entry in sorted(cluster.environments.items()) if not entry.destroyed]
    scrape.drop(UNITS, len(entries) - ENVIRONMENTS_MAX)
    for entry in entries[:ENVIRONMENTS_MAX]:
        scrape.put(UNITS, float(entry.size), entry.name, "size")
        assured = known.get(entry.name)
        if assured is None:
            continue
        for of, units in zip(("asked", "entitled", "served"), assured.units, strict=True):
            scrape.put(UNITS, float(units), entry.name, of)
        for layer, share in enumerate(assured.terms.shares, 1):
            mean, count = assured.over_slots(layer)
            labels = (entry.name, f"{layer}", share.service_class.value)
            scrape.put(PROMISED, share.promised, *labels)
            scrape.put(SERVED, mean if count else None, *labels)
