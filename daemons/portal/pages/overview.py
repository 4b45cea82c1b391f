"""The first page: the cluster at a glance for the provider, what is theirs for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.memo import derived
from daemons.portal.client.view_cache import CachedView
from daemons.portal.context import account, page, portal
from daemons.portal.present.advice import ADVICE, NONE, Advice, page_of
from daemons.portal.present.nodes import STATES, grid, states, use_of
from daemons.portal.present.workloads import worst

VIEWS = ("status", "nodes", "jobs", "web-apps", "plan")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm with what it means. url: of the page of what it is about ("": none)."""

    what: str
    subject: str
    since_s: float | None
    detail: str
    advice: Advice
    url: str


@dataclass(frozen=True, slots=True)
class Today:
    """What the energy of all nodes cost today, in one currency."""

    day: str
    kwh: float | None
    cost: float | None
    static_kwh: float | None
    static_cost: float | None
    saved_frac: float | None
    currency: str


@dataclass(frozen=True, slots=True)
class Cycle:
    """When decisions are taken: the last one's number (None: there was none) and time, and when the next is due (None:
    none is, since deciding is paused)."""

    number: int | None
    decided_s: float | None
    next_s: float | None


async def show(request: Request) -> Response:
    """Show the whole cluster, or the account's own part."""
    me = account(request)
    if me.is_provider:
        return await _of_provider(request)
    return await _of_others(request, with_apps=me.role is Role.OWNER)


async def _of_provider(request: Request) -> Response:
    me, live = account(request), portal(request).live
    status, nodes, jobs, apps, plan, costs = await live.views(me, *VIEWS, "costs")
    seen, kept = (status, nodes, jobs, apps, plan), derived(request)
    rows = nodes.data["nodes"]
    return page(
        request,
        "now.html",
        status=status.data,
        alarms=[alarm_of(row) for row in status.data["alarms"]],
        cycle=cycle_of(status.data, plan.data),
        age_s=max(each.age_s for each in seen),
        report_age_s=kept.get("report-age", (nodes.data,), lambda: _report_age_s(rows)),
        states=kept.get("states", (nodes.data,), lambda: states(rows)),
        words=STATES,
        use=kept.get("use", (nodes.data,), lambda: use_of(rows)),
        cells=kept.get("grid", (nodes.data,), lambda: grid(rows)),
        worst=kept.get("worst", (jobs.data, apps.data), lambda: _worst(jobs, apps)),
        today=today(costs.data),
        watts=costs.data["now"]["watts"],
        views=VIEWS,
    )


async def _of_others(request: Request, with_apps: bool) -> Response:
    me, live = account(request), portal(request).live
    names = ("environments", "jobs", "web-apps") if with_apps else ("environments", "jobs")
    environments, jobs, *more = await live.views(me, *names)
    apps = more[0].data["apps"] if more else []
    rows = jobs.data["jobs"]
    return page(
        request,
        "now_mine.html",
        environments=environments.data["environments"],
        phases=Counter(row["phase"] for row in rows),
        total=jobs.data["total"],
        apps=apps,
        worst=worst(rows, apps, jobs.data["at_s"]),
        age_s=max(each.age_s for each in (environments, jobs, *more)),
        with_apps=with_apps,
        views=names,
    )


def _worst(jobs: CachedView, apps: CachedView) -> list[Any]:
    return worst(jobs.data["jobs"], apps.data["apps"], jobs.data["at_s"])


def _report_age_s(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the age of the oldest report among the nodes that are up."""
    return max((row["report_age_s"] or 0.0 for row in rows if row["condition"] == "up"), default=None)


def alarm_of(row: dict[str, Any]) -> Alarm:
    """Return an alarm of the view `status` with its meaning."""
    what, subject = row["what"], row["subject"]
    return Alarm(what, subject, row["since_s"], row["detail"], ADVICE.get(what, NONE), page_of(what, subject))


def cycle_of(status: dict[str, Any], plan: dict[str, Any]) -> Cycle:
    """Return the times of the last and the next decision."""
    decision = plan["decision"] or {"number": None, "decided_at_s": None}
    return Cycle(decision["number"], decision["decided_at_s"], status["next_decision_at_s"])


def today(costs: dict[str, Any]) -> list[Today]:
    """Return the last day with recorded costs, in each currency."""
    days = costs["days"]
    names = ("day", "kwh", "cost", "static_kwh", "static_cost", "saved_frac", "currency")
    return [Today(*(row[name] for name in names)) for row in days if row["day"] == days[0]["day"]]


ROUTES = [Route("/", show, methods=["GET"])]
