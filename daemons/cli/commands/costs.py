"""`trimtab costs`: what the energy of the cluster costs, day by day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import RenderableType

from daemons.cli.asking import view
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.numbers import Whole
from daemons.cli.output import emit, output_option
from daemons.cli.render import listing, record, rows_of, shown
from daemons.cli.tables import stacked

DAYS_MAX = 100  # so many are kept
COLUMNS = (
    "day",
    "kwh",
    "cost",
    "static_cost",
    "saved",
    "node_starts",
    "mean_in_service",
    "mean_nodes",
    "misses",
    "penalty",
    "currency",
)
LEAST = ("penalty", "misses", "mean_nodes", "node_starts", "mean_in_service")


@click.command()
@click.option("--days", type=Whole(1, DAYS_MAX), default=14, show_default=True, help="Show this many days.")
@bus_options
@output_option
def costs(line: ControllerConnection, days: int) -> None:
    """Show what the energy of the nodes costs, day by day, and what it would cost with every node on.

    \b
    Example:
      trimtab costs --days 30
    """
    data = view(line, "costs", limit=days)
    emit(data, lambda: _shown(data))


def _shown(data: Mapping[str, Any]) -> RenderableType:
    rows = [*rows_of(data, "days"), *({"day": "sum", **row} for row in rows_of(data, "sums"))]
    now = data.get("now")
    parts = [listing("costs", [_brief(row) for row in rows], COLUMNS, LEAST)]
    return stacked(*parts, record("now", now)) if isinstance(now, Mapping) else stacked(*parts)


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the savings and their share in one value."""
    saved, share = shown("saved", row.get("saved")), shown("saved_frac", row.get("saved_frac"))
    return {**row, "saved": saved if share == "-" else f"{saved} ({share})"}
