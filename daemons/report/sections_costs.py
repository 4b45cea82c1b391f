"""Use and cost of the cluster's nodes: in service against requested, CPU, energy and its price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from daemons.report.charts import Cell, Chart, Series, Style, Table
from daemons.report.report import Section
from daemons.report.spans import History, percent, weighted
from daemons.store.reading_rows import ClusterUse
from daemons.values.records.cluster import CostRecord
from daemons.values.text_format import time_text

GAP_STEPS = 1.5  # a series without values for more than so many steps has a gap there
NO_COSTS = "no cost records for this period"
DAYS_MAX = 31
DAY_S = 86_400.0


def nodes_section(history: History) -> Section:
    """Return the section on nodes in service against those requested, and the use of their CPU."""
    costs = [cost for cost in history.costs if cost.span_s > 0]
    starts, spans = [cost.at_s for cost in costs], [cost.span_s for cost in costs]
    in_service = with_gaps(starts, spans, [cost.in_service_node_s / cost.span_s for cost in costs])
    every = with_gaps(starts, spans, [cost.node_s / cost.span_s for cost in costs])
    asked = [(row.at_s, row.nodes_wanted) for row in history.decisions if row.nodes_wanted is not None]
    lines = (
        Series("in service", *in_service, Style.AREA),
        Series("requested", [at_s for at_s, _ in asked], [wanted for _, wanted in asked], style=Style.STEP),
        Series("all nodes", *every, Style.STEP),
    )
    nodes = _chart(history, "nodes", "Nodes in service", "nodes", lines, NO_COSTS)
    started = sum(cost.node_starts for cost in costs)
    words = (f"The provisioning policy requests a number of nodes in service. Node starts: {started:,}.",)
    return Section("nodes", "Nodes", words, (nodes, _cpu(history), _memory(history)), (_use_table(history.use),))


def _cpu(history: History) -> Chart:
    use, step_s = history.use, history.use_step_s
    starts, spans = [each.from_s for each in use], [step_s] * len(use)
    lines = (
        Series("mean of the nodes", *with_gaps(starts, spans, [100.0 * each.cpu_frac for each in use]), Style.AREA),
        Series("busiest node", *with_gaps(starts, spans, [100.0 * each.cpu_frac_max for each in use]), Style.STEP),
        Series("I/O wait, mean", *with_gaps(starts, spans, [100.0 * each.iowait_frac for each in use])),
    )
    return _chart(history, "cpu", "CPU use of the reporting nodes", "% of a node", lines, "no node reported", 100.0)


def _memory(history: History) -> Chart:
    use, step_s = history.use, history.use_step_s
    values = with_gaps(
        [each.from_s for each in use], [step_s] * len(use), [each.memory_used_mib / 1024 for each in use]
    )
    lines = (Series("used", *values, Style.AREA),)
    return _chart(history, "memory", "Memory in use on all nodes", "GiB", lines, "no node reported")


def _use_table(use: tuple[ClusterUse, ...]) -> Table:
    spans = [each.span_s for each in use]

    def over(values: Iterable[float]) -> float | None:
        return weighted(zip(values, spans, strict=True))

    rows: tuple[tuple[Cell, ...], ...] = (
        ("reporting nodes, mean", over(each.nodes for each in use)),
        ("CPU use, mean (%)", percent(over(each.cpu_frac for each in use))),
        ("CPU use, busiest node (%)", percent(max((each.cpu_frac_max for each in use), default=None))),
        ("I/O wait, mean (%)", percent(over(each.iowait_frac for each in use))),
        ("memory in use, mean (GiB)", over(each.memory_used_mib / 1024 for each in use)),
        ("disk reads (GiB)", sum(each.disk_read_bytes for each in use) / 1024**3),
        ("disk writes (GiB)", sum(each.disk_write_bytes for each in use) / 1024**3),
        ("network received (GiB)", sum(each.net_rx_bytes for each in use) / 1024**3),
        ("network sent (GiB)", sum(each.net_tx_bytes for each in use) / 1024**3),
    )
    return Table("use", "Use of all nodes", ("figure", "value"), rows if use else ())


def costs_section(history: History) -> Section:
    """Energy and its price so far, beside those with every node on."""
    costs = history.costs
    ends = [cost.at_s + cost.span_s for cost in costs]
    energy = (
        Series("actual", ends, list(accumulate(cost.kwh for cost in costs)), style=Style.STEP),
        Series("all nodes always on", ends, list(accumulate(cost.static_kwh for cost in costs)), style=Style.STEP),
    )
    charts = [_chart(history, "energy", "Cumulative energy", "kWh", energy if costs else (), NO_COSTS)]
    for currency in sorted({cost.currency for cost in costs if cost.currency}):
        own = [cost for cost in costs if cost.currency == currency]
        ends = [cost.at_s + cost.span_s for cost in own]
        money = (
            Series("actual", ends, list(accumulate(cost.cost for cost in own)), style=Style.STEP),
            Series("all nodes always on", ends, list(accumulate(cost.static_cost for cost in own)), style=Style.STEP),
        )
        id = "cost-" + "".join(sign if sign.isascii() and sign.isalnum() else "x" for sign in currency)
        charts.append(_chart(history, id, "Cumulative cost", currency, money, NO_COSTS))
    words = ("All nodes always on: the same load, with every node always in service.",)
    return Section("costs", "Energy and cost", words, tuple(charts), (_by_day(history),))


def _by_day(history: History) -> Table:
    """Sums of stretches of a day from the beginning of the span on, of several days where there are many."""
    step_s = DAY_S * max(1, -(-(history.to_s - history.from_s) // (DAY_S * DAYS_MAX)))
    parts: dict[tuple[int, str], list[CostRecord]] = {}
    for cost in history.costs:
        parts.setdefault((int((cost.at_s - history.from_s) // step_s), cost.currency), []).append(cost)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (time_text(history.from_s + place * step_s, history.zone), *_sums(own), currency or "-")
        for (place, currency), own in sorted(parts.items())
    )
    columns = ("from", "kWh", "kWh, all on", "cost", "cost, all on", "node starts", "misses", "penalty", "currency")
    return Table("costs", "Energy and cost", columns, rows)


def _sums(costs: Sequence[CostRecord]) -> tuple[float, ...]:
    names = ("kwh", "static_kwh", "cost", "static_cost", "node_starts", "misses", "penalty")
    return tuple(round(sum(getattr(cost, name) for cost in costs), 2) for name in names)


def with_gaps(
    starts: Sequence[float], spans: Sequence[float], values: Sequence[float]
) -> tuple[list[float], list[float | None]]:
    """Values that hold for `spans` seconds from `starts` on, as xs and ys with a gap where nothing follows in time."""
    xs: list[float] = []
    ys: list[float | None] = []
    for at, (start, span_s, value) in enumerate(zip(starts, spans, values, strict=True)):
        xs.append(start)
        ys.append(value)
        following = starts[at + 1] if at + 1 < len(starts) else None
        if following is None or following - start > GAP_STEPS * span_s:
            xs += [start + span_s, start + span_s]
            ys += [value, None]
    return xs, ys


def _chart(
    history: History,
    id: str,
    title: str,
    unit: str,
    series: tuple[Series, ...],
    empty: str,
    y_max: float | None = None,
) -> Chart:
    return Chart(
        id,
        title,
        unit,
        series=series,
        x_min=history.from_s,
        x_max=history.to_s,
        y_min=0.0,
        y_max=y_max,
        zone=history.zone,
        empty=empty,
    )
