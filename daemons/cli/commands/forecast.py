"""`trimtab forecast`: what is expected of deadline windows, and the chance that they miss their deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import RenderableType

from daemons.cli.asking import limit_option, view
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.output import emit, output_option
from daemons.cli.render import listing, record, rows_of
from daemons.cli.tables import stacked

BREACHES = ("nodes", "breach")
PRICES = ("from_at_s", "per_kwh", "added", "known", "currency")
PRICES_SHOWN = 24


@click.command()
@click.argument("window", default="")
@limit_option
@bus_options
@output_option
def forecast(line: ControllerConnection, window: str, limit: int) -> None:
    """Show deadline windows: jobs now and expected, run times, and the chance to miss the deadline.

    With WINDOW show that one only.

    \b
    Example:
      trimtab forecast night
    """
    data = view(line, "forecast", window, limit)
    emit(data, lambda: _for_people(data))


def _for_people(data: Mapping[str, Any]) -> RenderableType:
    windows = rows_of(data, "windows")
    if not windows:
        return listing("windows", (), ())
    shown = [_window(row) for row in windows]
    prices = rows_of(data, "prices")[:PRICES_SHOWN]
    return stacked(*shown, listing("prices", prices, PRICES)) if prices else stacked(*shown)


def _window(row: Mapping[str, Any]) -> RenderableType:
    plain = {key: value for key, value in row.items() if key not in ("breach", "period", "name")}
    period = row.get("period") or {}
    local = {key.removesuffix("_local"): value for key, value in period.items() if key.endswith("_local")}
    breaches = [{**each, "breach": f"{each['breach']:.3g}"} for each in rows_of(row, "breach")]
    plain["arrivals"] = {key: value for key, value in (row.get("arrivals") or {}).items() if key != "slots"}
    plain["confidence"] = f"{row.get('confidence')}"
    table = record(f"window {row.get('name')}", local | plain)
    return stacked(table, listing("chance to miss the deadline", breaches, BREACHES)) if breaches else table
