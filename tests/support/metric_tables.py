"""The tables of docs/reference/metrics.md: every metric of every process."""

from __future__ import annotations

from agents.service import metrics as of_agents
from daemons.portal import metrics as of_portals
from daemons.service import metrics as of_controllers
from shared.metrics import meter
from shared.metrics.values import DROPPED, Metric

MARK = "<!-- generated: metrics, by `make reference` -->\n"
SECTIONS = {
    "Every process": (*meter.METRICS, DROPPED),
    "Controller": of_controllers.METRICS,
    "Agent": of_agents.METRICS,
    "Portal": of_portals.METRICS,
}
HEAD = "| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"


def row(metric: Metric) -> str:
    """Return the row of a metric."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {metric.unit} | {labels} | {metric.help} |"


def with_tables(page: str) -> str:
    """Return a page with the tables below its mark as the code has them. Raises ValueError for one without a mark."""
    written, mark, _ = page.partition(MARK)
    if not mark:
        raise ValueError(f"the page has no line {MARK!r}")
    tables = [f"## {heading}\n\n{HEAD}" + "\n".join(map(row, metrics)) + "\n" for heading, metrics in SECTIONS.items()]
    return written + MARK + "\n" + "\n".join(tables)
