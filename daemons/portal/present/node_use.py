"""A node's use over the last hours, as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from daemons.portal.present.charts import LOOKS, picture_html
from daemons.portal.present.formatting import span
from daemons.report.charts import Chart, Series, Style
from daemons.report.draw import svg
from daemons.store.reading import Reading
from daemons.store.reading_rows import NodeStep

HOURS = (6, 24, 168)
STEPS = 336  # half an hour each in a week: more would lie beside each other within a pixel or two
HEIGHT_PX = 220  # of each of the two charts
NOTHING = "no data for this period"


@dataclass(frozen=True, slots=True)
class Use:
    """The charts of a node. mark: what differs when they do."""

    charts: tuple[Chart, ...]
    mark: tuple[object, ...]


def use_of(reading: Reading, node: str, from_s: float, to_s: float) -> Use:
    """Return the stored use of a node in the span, in `STEPS` steps or in those of the store. Raises
    `StoreUnavailable`."""
    rows = reading.node_use(node, from_s, to_s, (to_s - from_s) / STEPS)
    mark = (len(rows), rows[0].from_s if rows else 0.0, rows[-1].from_s if rows else 0.0)
    return Use((_busy(rows, from_s, to_s), _memory(rows, from_s, to_s)), mark)


def drawn(use: Use, look: str) -> str:
    """Return the charts below each other as SVG, in one of `LOOKS`; blocks for some tenths of a second."""
    return svg(use.charts, LOOKS[look].theme, LOOKS[look].width_px, HEIGHT_PX, "Use of the node")


def picture_of(url: str, node: str, hours: int) -> Markup:
    """Return the element that shows the charts. url: of the node's page."""
    shows = f"CPU, I/O wait and memory of {node} over the last {span(3600.0 * hours)}"
    title = f"{shows}; see the tables below for the values"
    return picture_html(lambda look: f"{url}/use.{look}.svg?hours={hours}", title, 2 * HEIGHT_PX)


def _busy(rows: Sequence[NodeStep], from_s: float, to_s: float) -> Chart:
    series = (
        _series("CPU, mean", rows, lambda row: 100.0 * row.cpu_frac, Style.AREA),
        _series("CPU, maximum", rows, lambda row: 100.0 * row.cpu_frac_max, Style.STEP),
        _series("I/O wait", rows, lambda row: 100.0 * row.iowait_frac, Style.STEP),
    )
    return Chart(
        "node-cpu",
        "CPU and I/O wait",
        "%",
        series=series,
        x_min=from_s,
        x_max=to_s,
        y_min=0.0,
        y_max=100.0,
        empty=NOTHING,
    )


def _memory(rows: Sequence[NodeStep], from_s: float, to_s: float) -> Chart:
    series = (
        _series("memory used, mean", rows, lambda row: row.memory_used_mib, Style.AREA),
        _series("memory used, maximum", rows, lambda row: row.memory_used_mib_max, Style.STEP),
    )
    return Chart("node-memory", "Memory", "MiB", series=series, x_min=from_s, x_max=to_s, y_min=0.0, empty=NOTHING)


def _series(name: str, rows: Sequence[NodeStep], value: Callable[[NodeStep], float], style: Style) -> Series:
    """Return a value of each row, unknown between the end of one and the start of the next if nothing was stored
    there."""
    xs: list[float] = []
    ys: list[float | None] = []
    for row, after in zip(rows, (*rows[1:], None), strict=False):
        xs.append(row.from_s)
        ys.append(value(row))
        end_s = row.from_s + row.span_s
        if after is None or after.from_s > end_s + 1.0:
            xs += [end_s]
            ys += [None]
    return Series(name, xs, ys, style=style)
