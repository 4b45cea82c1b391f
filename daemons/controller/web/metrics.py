"""Web application metrics."""

from __future__ import annotations

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.web_app import WebEntry, utility_of
from shared.metrics.values import Metric, MetricKind, Scrape

APPS_MAX = 200  # web applications that are told of one by one

APPS = Metric("trimtab_web_apps", MetricKind.GAUGE, "applications", "Web applications.")
UTILITY = Metric(
    "trimtab_web_app_utility",
    MetricKind.GAUGE,
    "utility",
    "Utility of a web application as measured: 1 best, 0 on goal, negative missed.",
    ("app",),
    series_max=APPS_MAX,
)
RESPONSE = Metric(
    "trimtab_web_app_response_seconds",
    MetricKind.GAUGE,
    "seconds",
    "Mean response time of a web application over the last minute.",
    ("app",),
    series_max=APPS_MAX,
)
RATES = Metric(
    "trimtab_web_app_requests_per_second",
    MetricKind.GAUGE,
    "requests per second",
    "Requests to a web application over the last minute: offered, served, rejected.",
    ("app", "result"),
    series_max=3 * APPS_MAX,
)
INSTANCES = Metric(
    "trimtab_web_app_instances",
    MetricKind.GAUGE,
    "instances",
    "Instances of a web application: wanted, and running.",
    ("app", "state"),
    series_max=2 * APPS_MAX,
)
METRICS = (APPS, UTILITY, RESPONSE, RATES, INSTANCES)


def read(cluster: Cluster, scrape: Scrape) -> None:
    """Take the readings. O(web applications and their instances)."""
    apps = [(name, web) for name, web in sorted(cluster.web.items()) if not web.removed]
    scrape.put(APPS, float(len(apps)))
    scrape.drop(UTILITY, len(apps) - APPS_MAX)
    for name, web in apps[:APPS_MAX]:
        _traffic(name, web, scrape)
        running = sum(replica.released for replica in cluster.replicas.get(name, {}).values())
        scrape.put(INSTANCES, float(len(cluster.replicas_wanted(name))), name, "wanted")
        scrape.put(INSTANCES, float(running), name, "running")


def _traffic(name: str, web: WebEntry, scrape: Scrape) -> None:
    scrape.put(UTILITY, utility_of(web), name)
    traffic = web.traffic
    if traffic is None:
        return
    scrape.put(RESPONSE, traffic.mean_s, name)
    rates = (
        ("offered", traffic.offered_per_s),
        ("served", traffic.served_per_s),
        ("rejected", traffic.rejected_per_s),
    )
    for result, rate in rates:
        scrape.put(RATES, rate, name, result)
