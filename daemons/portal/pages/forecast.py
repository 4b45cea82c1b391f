"""The forecast: what deadline windows expect and are promised, what promises to environments need, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import account, page, portal, require
from daemons.portal.pages.reports import figure
from daemons.report.charts import Chart, Series, Style, X

Row = Mapping[str, Any]
WINDOWS_MAX = 20


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Windows, promises, nodes left for best effort, and prices."""
    live, me = portal(request).live, account(request)
    seen = await live.view(me, "forecast")
    try:
        promises: Row | None = (await live.view(me, "assurance")).data
    except (Refused, Unreachable):
        promises = None
    windows = seen.data["windows"][:WINDOWS_MAX]
    slots = [] if promises is None else promises["forecast"]
    return page(
        request,
        "forecast.html",
        seen=seen,
        windows=windows,
        total=seen.data["total"],
        arrivals={row["name"]: _drawn(request, arrivals_chart(row)) for row in windows},
        prices=seen.data["prices"],
        promises=promises,
        slots=slots,
        left=_drawn(request, left_chart(slots)),
    )


def _drawn(request: Request, chart: Chart) -> Markup | None:
    return None if chart.is_empty else figure(request, chart)


def arrivals_chart(window: Row) -> Chart:
    """Return a chart of the jobs that a window expects in each slot of its period, with their band, and of those that
    arrived."""
    slots = window["arrivals"]["slots"]
    times = [slot["from_at_s"] for slot in slots]
    series = (
        Series(
            "95 % band", times, [slot["high"] for slot in slots], style=Style.BAND, edge=[slot["low"] for slot in slots]
        ),
        Series("expected", times, [slot["expected"] for slot in slots]),
        Series("arrived", times, [slot["came"] for slot in slots], style=Style.POINTS),
    )
    return Chart(
        "arrivals", f"Jobs of window {window['name']}", "jobs per slot", series=series if slots else (), y_min=0.0
    )


def left_chart(slots: list[Row]) -> Chart:
    """Return a chart of the units that the promises need in each slot, the units of the pool, and the rest."""
    places = [float(slot["slot"]) for slot in slots]
    series = (
        Series("units of the pool", places, [slot["units"] for slot in slots], style=Style.STEP),
        Series("needed for reservations", places, [slot["needed"] for slot in slots], style=Style.AREA),
        Series("left for best effort", places, [slot["best_effort"] for slot in slots], style=Style.STEP),
    )
    return Chart(
        "left",
        "Reserved and free units",
        "units",
        series=series if slots else (),
        x=X.NUMBER,
        x_label="slot",
        y_min=0.0,
    )


ROUTES = [Route("/forecast", show, methods=["GET"])]
