"""Reports on a span of the history, as a page and as a file, and the pictures of all pages' charts."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.memo import Memo, derived
from daemons.portal.context import page, portal, problems_of, read_aside, require
from daemons.portal.present.charts import Pictures
from daemons.portal.present.spans import Span, span_of
from daemons.portal.process_pool import TooBusy
from daemons.report.charts import Chart
from daemons.report.cluster_report import check_zone, report_of
from daemons.report.html import figure_html, html, main_html
from daemons.report.report import Report
from daemons.values.text_format import time_text
from shared.base.errors import InvalidInput, InvalidValue

KEPT_MAX = 8
LONG_S, GRAIN_S = 3 * 86_400.0, 600.0  # a report on so long a span that ends now is made once in so many seconds
PICTURE_CACHE = "private, max-age=86400, immutable"
CHOICES = (("24h", "Last day"), ("7d", "Last 7 days"), ("30d", "Last 30 days"))


async def _report(request: Request, span: Span, zone: str) -> Report:
    """Return the report on a span, made once for all who request it. Raises `TooBusy`, and the errors of
    `cluster_report`."""
    state = request.app.state
    if not hasattr(state, "reports"):
        state.reports = Memo(KEPT_MAX)
    made: Memo = state.reports
    key = (span.from_s, span.to_s, zone)
    return await made.once(key, (), lambda: read_aside(request, report_of, *key))


def _wanted(request: Request) -> tuple[Span, str]:
    """Return the span and time zone in the address. Raises `InvalidInput` and `InvalidValue`."""
    zone = request.query_params.get("zone", "").strip() or "UTC"
    now_s = portal(request).controller_client.now_s()
    span = span_of(request.query_params, now_s)
    if span.to_text == "now" and span.to_s - span.from_s >= LONG_S:
        span = span_of(request.query_params, now_s, grain_s=GRAIN_S)
    check_zone(zone)
    return span, zone


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the report on a span as a page; the last seven days by default."""
    fields: dict[str, Any] = {"choices": CHOICES, "zone": request.query_params.get("zone", "UTC")}
    fields |= {name: request.query_params.get(name, "") for name in ("from", "to")}
    try:
        span, zone = _wanted(request)
    except (InvalidInput, InvalidValue) as error:
        return page(request, "reports.html", 422, fields=fields, problems=problems_of(error), report=None)
    try:
        report = await _report(request, span, zone)
    except TooBusy as error:
        return busy(error)
    body = _body(request, report, f"report {span.from_s} {zone}")
    return page(request, "reports.html", fields=fields, problems=[], report=report, body=body, span=span)


def _body(request: Request, report: Report, key: str) -> Markup:
    """Return the report's markup, made once. Its pictures are cached again each time, since pictures for others
    displace them."""
    pictures, kept = portal(request).pictures, derived(request)
    found: Markup | None = kept.find(key, (report,))
    if found is None:
        return kept.put(key, (report,), main_html(report, lambda chart: shown(pictures, chart)))
    for section in report.sections:
        for chart in section.charts:
            pictures.keep(chart)
    return found


@require(Role.PROVIDER)
async def download(request: Request) -> Response:
    """Return the same as one self-contained file, as `trimtab report --html` writes it."""
    try:
        span, zone = _wanted(request)
    except (InvalidInput, InvalidValue) as error:
        raise HTTPException(400, "; ".join(problems_of(error))) from error
    try:
        report = await _report(request, span, zone)
        text = await portal(request).pictures.process_pool.do(html, report)
    except TooBusy as error:
        return busy(error)
    name = f"trimtab-report-{time_text(span.from_s)[:10]}-{time_text(span.to_s)[:10]}.html"
    return Response(text, headers={"content-disposition": f'attachment; filename="{name}"'}, media_type="text/html")


def shown(pictures: Pictures, chart: Chart) -> Markup:
    """Return the markup of a chart on a page: its picture, or its values if nothing can be drawn."""
    picture = pictures.keep(chart)
    return figure_html(chart, None) if picture is None else picture.markup


def figure(request: Request, chart: Chart) -> Markup:
    """Return a chart on a page with its values as a table below it."""
    picture = portal(request).pictures.keep(chart)
    return figure_html(chart, None if picture is None else lambda _: picture.markup)


async def picture(request: Request) -> Response:
    """Return a chart that a page has shown recently, in one of its looks."""
    id, look = request.path_params["id"], request.path_params["look"]
    try:
        drawn = await portal(request).pictures.svg(id, look)
    except TooBusy as error:
        return busy(error)
    if drawn is None:
        raise HTTPException(404, "This picture has expired. Reload the page.")
    return Response(drawn, headers={"cache-control": PICTURE_CACHE}, media_type="image/svg+xml")


def busy(error: TooBusy) -> Response:
    """Return the answer for a drawing or a report when too many are waiting."""
    return Response(f"{error}. Try again in a few seconds.", 503, {"retry-after": "5"}, "text/plain")


ROUTES = [
    Route("/reports", show, methods=["GET"]),
    Route("/reports/file", download, methods=["GET"]),
    Route("/charts/{id}.{look}.svg", picture, methods=["GET"]),
]
