"""The view of what the cluster costs, day by day. docs/reference/views.md has the keys."""

from __future__ import annotations

import math
from collections.abc import Iterable

from daemons.controller.energy.metering import EnergyMeter
from daemons.values.records.cluster import CostRecord
from daemons.values.view_format import Row

_SUMMED = ("measured_s", "kwh", "cost", "static_kwh", "static_cost", "saved", "node_starts", "misses", "penalty")


def costs_view(energy: EnergyMeter, limit: int, now_s: float) -> Row:
    """Return the last days, newest first, their sum for each currency, and the current state."""
    rows = [_day_row(day, record) for (day, _), record in reversed(energy.days.items())]
    shown = rows[:limit]
    prices = energy.prices
    return {
        "total": len(rows),
        "days": shown,
        "sums": [_sum_row(currency, shown) for currency in dict.fromkeys(row["currency"] for row in shown)],
        "now": {
            "watts": energy.watts(),
            "per_kwh": prices.price(now_s),
            "currency": prices.settings.currency,
            "shape": prices.settings.shape,
            "known_until_at_s": prices.known_until(now_s),
            "trouble": prices.trouble or None,
        },
    }


def _day_row(day: str, record: CostRecord) -> Row:
    return {
        "day": day,
        "measured_s": record.span_s,
        "kwh": record.kwh,
        "cost": record.cost,
        "static_kwh": record.static_kwh,
        "static_cost": record.static_cost,
        "saved": record.static_cost - record.cost,
        "saved_frac": _share(record.static_cost - record.cost, record.static_cost),
        "node_starts": record.node_starts,
        "mean_in_service": _share(record.in_service_node_s, record.span_s),
        "mean_nodes": _share(record.node_s, record.span_s),
        "misses": record.misses,
        "penalty": record.penalty,
        "currency": record.currency,
    }


def _sum_row(currency: str, rows: Iterable[Row]) -> Row:
    own = [row for row in rows if row["currency"] == currency]
    row: Row = {name: math.fsum(row[name] for row in own) for name in _SUMMED}
    for name in ("node_starts", "misses"):
        row[name] = int(row[name])
    for name in ("mean_in_service", "mean_nodes"):
        row[name] = _share(math.fsum((row[name] or 0.0) * row["measured_s"] for row in own), row["measured_s"])
    row["saved_frac"] = _share(row["saved"], row["static_cost"])
    return {"currency": currency, **row}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None
