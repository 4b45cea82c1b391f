"""Web applications: the list, an application's page, and its removal."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.manifests.web_app import goal_text
from daemons.portal.context import Form, account, act, page, portal, require
from daemons.portal.present.pagination import Column, has_text, name_key, part, wanted
from daemons.portal.present.workloads import app_url, job_url
from shared.protocol.operator_messages import RemoveWeb
from shared.protocol.operator_messages import Request as BusRequest
from shared.values.web_app import Flow

COLUMNS = (
    Column("name", "Name", lambda row: name_key(row["name"])),
    Column("environment", "Environment", lambda row: row["environment"] or None),
    Column("running", "Running", lambda row: row["running"], number=True),
    Column("", "Minimum to maximum", number=True),
    Column("cpu", "CPU allotted", lambda row: row["cpu_mhz"], number=True),
    Column("used", "CPU used", lambda row: row["used_mhz"], number=True),
    Column("utility", "Utility", lambda row: row["utility"], number=True),
    Column("measured", "Measured", lambda row: row["measured_age_s"]),
    Column("", "Work per request"),
)
FILTERS = {"q": "", "environment": ""}


@require(Role.PROVIDER, Role.OWNER)
async def show_all(request: Request) -> Response:
    """Show the web applications that the account may see."""
    seen = await portal(request).live.view(account(request), "web-apps")
    rows = seen.data["apps"]
    listing = wanted(request.query_params, FILTERS, COLUMNS)
    said = listing.filters
    chosen = [
        row
        for row in rows
        if said["environment"] in ("", row["environment"]) and has_text(said["q"], row["name"], row["environment"])
    ]
    environments = sorted({row["environment"] for row in rows} - {""})
    found = part(chosen, listing, COLUMNS)
    return page(request, "web_apps.html", part=found, environments=environments, seen=seen, app_url=app_url)


@require(Role.PROVIDER, Role.OWNER)
async def show(request: Request) -> Response:
    """Show all that is known of a web application."""
    return await _one(request)


async def _one(request: Request, problems: list[str] | None = None, status: int = 200) -> Response:
    name = request.path_params["app"]
    seen = await portal(request).live.view(account(request), "web-app", name)
    app = seen.data["app"]
    return page(
        request,
        "web_app.html",
        status,
        app=app,
        seen=seen,
        url=app_url(name),
        problems=problems or [],
        goal=goal_of,
        measured=measured_of,
        health=health_of,
    )


def goal_of(flow: dict[str, Any]) -> str:
    """Return a flow's goal in words, as the file's commands print it."""
    made = Flow(
        flow["name"],
        flow["mean_goal_s"],
        flow["percentile"] or 0.0,
        percentile_s=flow["percentile_goal_s"],
        throughput_per_s=flow["throughput_goal_per_s"],
    )
    return goal_text(made)


def measured_of(flow: dict[str, Any]) -> tuple[float | None, str]:
    """Return the measured value of the flow's goal, and its unit."""
    measured = flow["measured"] or {}
    if flow["throughput_goal_per_s"] is not None:
        return measured.get("served_per_s"), "/s"
    return measured.get("percentile_s" if flow["percentile_goal_s"] is not None else "mean_s"), "s"


def health_of(health: dict[str, Any] | None) -> tuple[str, str]:
    """Return the health of an instance: a word, and the probe's message."""
    if health is None or not health["probes"]:
        return "", ""
    return ("healthy", "") if health["healthy"] else ("unhealthy", str(health["detail"]))


@require(Role.PROVIDER, Role.OWNER)
async def remove(request: Request) -> Response:
    """Stop every instance and forget the application."""
    name = request.path_params["app"]

    def asked(form: Form) -> BusRequest:
        form.need_typed(name, "application")
        return RemoveWeb(portal(request).controller_client.new_id(), name)

    async def again(problems: list[str], status: int) -> Response:
        return await _one(request, problems, status)

    return await act(request, asked, "/workloads/web", again=again)


@require(Role.PROVIDER)
async def by_name(request: Request) -> Response:
    """Redirect to the page of the job, web application or web instance of that name."""
    name = request.path_params["workload"]
    app, mark, _ = name.partition("#")
    apps = (await portal(request).live.view(account(request), "web-apps")).data["apps"]
    is_app = mark or any(row["name"] == name for row in apps)
    return RedirectResponse(app_url(app) if is_app else job_url(name), 303)


ROUTES = [
    Route("/workload/{workload}", by_name, methods=["GET"]),
    Route("/workloads/web", show_all, methods=["GET"]),
    Route("/workloads/web/{app}", show, methods=["GET"]),
    Route("/workloads/web/{app}/remove", remove, methods=["POST"]),
]
