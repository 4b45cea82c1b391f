"""Jobs: the list, a job's page from its submission to its end, and what may be done with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.memo import derived
from daemons.portal.client.view_cache import CachedView
from daemons.portal.context import Form, account, act, fields, page, portal, require
from daemons.portal.pages.job_settings import form_of, sent_again, set_job
from daemons.portal.present.pagination import Column, Listing, has_text, in_order, name_key, part, wanted
from daemons.portal.present.timeline import TimelineEntry, timeline_of
from daemons.portal.present.workloads import (
    OVER,
    end_s,
    end_words,
    gain_of,
    goal_words,
    job_troubles,
    job_url,
    phase_text,
    reconciliation_paused_words,
    waits,
)
from shared.base.errors import InvalidInput, StoreUnavailable
from shared.protocol.operator_messages import CancelJob, HoldJob, PowerVm, ReleaseVm
from shared.protocol.operator_messages import Request as BusRequest
from shared.values.jobs import JobPhase

NOT_OVER, ALL = "not-over", "all"
PHASES = ((NOT_OVER, "not ended"), (ALL, "all"), *((phase.value, phase_text(phase.value)) for phase in JobPhase))
ORDER = {phase.value: place for place, phase in enumerate(JobPhase)}
FILTERS = {"q": "", "phase": NOT_OVER, "environment": "", "user": ""}
INSTANCES_SHOWN = 200
TIMELINE_S = 5.0  # what happened is read again after so long


COLUMNS = (
    Column("name", "Name", lambda row: name_key(row["name"])),
    Column("phase", "Phase", lambda row: ORDER.get(row["phase"])),
    Column("environment", "Environment", lambda row: row["environment"] or None),
    Column("user", "User", lambda row: row["user"] or None),
    Column("progress", "Progress", lambda row: row["progress_pct"]),
    Column("goal", "Goal", lambda row: row["goal_at_s"]),
    Column("end", "End", end_s),
    Column("utility", "Utility", lambda row: row["utility"], number=True),
    Column("instances", "VMs", lambda row: row["instances"], number=True),
    Column("", "Status"),
)


async def show_all(request: Request) -> Response:
    """Show the jobs that the account may see, filtered, sorted and one page at a time."""
    me, kept = account(request), derived(request)
    parts = await _looked_through(request, request.query_params.get("phase", NOT_OVER))
    seen, rows = parts[0], [row for each in parts for row in each.data["jobs"]]
    sources: tuple[object, ...] = tuple(each.data for each in parts) if me.is_provider else ()
    listing = wanted(request.query_params, FILTERS, COLUMNS)

    def sort() -> Sequence[Any]:
        return in_order(rows, listing, COLUMNS)

    which = ("jobs", len(parts), listing.sort, listing.falling)
    ordered = kept.get(which, sources, sort) if sources else sort()
    found = part([row for row in ordered if _fits(row, listing)], listing, COLUMNS, ordered=True)
    return page(
        request,
        "jobs.html",
        part=found,
        phases=PHASES,
        environments=sorted({row["environment"] for row in rows} - {""}),
        users=sorted({row["user"] for row in rows} - {""}),
        seen=seen,
        total=sum(each.data["total"] for each in parts),
        listed=len(rows),
        end_s=end_s,
        words=lambda row: "; ".join((*waits(row), *job_troubles(row))),
        job_url=job_url,
        with_apps=me.role is not Role.USER,
    )


async def _looked_through(request: Request, phase: str) -> tuple[CachedView, ...]:
    """Views that hold the jobs of a phase. Those that are over are many: the provider's pages ask for them by phase."""
    me, live = account(request), portal(request).live
    if not me.is_provider or phase not in (ALL, "", *OVER):
        return (await live.view(me, "jobs"),)
    phases = [phase] if phase in OVER else ["", *OVER]
    return tuple([await live.view(me, "jobs", each) for each in phases])


def _fits(row: dict[str, Any], listing: Listing) -> bool:
    said = listing.filters
    good = row["phase"] not in OVER if said["phase"] == NOT_OVER else said["phase"] in (ALL, "", row["phase"])
    good = good and said["environment"] in ("", row["environment"]) and said["user"] in ("", row["user"])
    return good and has_text(said["q"], row["name"], row["environment"], row["user"], *row["nodes"])


# --- one job --------------------------------------------------------------------------------------------------------


async def show(request: Request) -> Response:
    """Show all that is known of a job."""
    return await _one(request)


async def _one(
    request: Request, problems: list[str] | None = None, status: int = 200, sent: Form | None = None
) -> Response:
    """Show a job. sent: the form to change it that something is wrong with."""
    me, live, name = account(request), portal(request).live, request.path_params["job"]
    seen = await live.view(me, "job", name)
    row, end = seen.data["job"], end_s(seen.data["job"])
    gain = gain_of((await live.view(me, "plan")).data, name) if me.is_provider else None
    story, no_story = await _timeline(request, row)
    return page(
        request,
        "job.html",
        status,
        job=row,
        seen=seen,
        problems=problems or [],
        url=job_url(name),
        end_s=end,
        end_words=end_words(row),
        goal_words=goal_words(row["goal_at_s"], end),
        gain=gain,
        waits=waits(row),
        troubles=job_troubles(row),
        reconciliation_paused=reconciliation_paused_words(row["reconciliation_paused"])
        if row["reconciliation_paused"]
        else "",
        over=row["phase"] in OVER,
        instances=row["instance_list"][:INSTANCES_SHOWN],
        story=story,
        no_story=no_story,
        may_hold=me.role is not Role.USER,
        form=form_of(row) if sent is None else sent_again(row, sent),
    )


async def _timeline(request: Request, row: dict[str, Any]) -> tuple[list[TimelineEntry], str]:
    """Return the timeline of a job, or why it is unavailable. Details are for the provider only: they may name
    others."""
    whole, now_s, in_detail = portal(request), portal(request).controller_client.now_s(), account(request).is_provider
    if whole.reading is None:
        return [], "No history is configured (history.url)."
    key, mark = ("timeline", row["name"], in_detail), (row["order"], row["phase"], now_s // TIMELINE_S)
    try:
        story = derived(request).once(
            key, mark, lambda: whole.threads.do(timeline_of, whole.reading, row, now_s, in_detail)
        )
        return await story, ""
    except (StoreUnavailable, InvalidInput) as error:
        return [], f"The history is unavailable: {error}"


# --- what may be done -----------------------------------------------------------------------------------------------


def _deed(
    make: Callable[[str, str, Form], BusRequest], typed: bool = False, keeps: bool = False
) -> Callable[[Request], Any]:
    """Return a handler that sends the request that `make` returns for a request id, a job and a form; `typed`: only
    when the job's name was typed as confirmation; `keeps`: what was entered is shown again when something is wrong."""

    async def run(request: Request) -> Response:
        name = request.path_params["job"]

        def asked(form: Form) -> BusRequest:
            if typed:
                form.need_typed(name, "job")
            return make(portal(request).controller_client.new_id(), name, form)

        async def again(problems: list[str], status: int) -> Response:
            return await _one(request, problems, status, await fields(request) if keeps else None)

        return await act(request, asked, job_url(name), again=again)

    return run


cancel = _deed(lambda request, job, _form: CancelJob(request, job), typed=True)
hold = require(Role.PROVIDER, Role.OWNER)(_deed(lambda request, job, _form: HoldJob(request, job, True)))
resume = require(Role.PROVIDER, Role.OWNER)(_deed(lambda request, job, _form: HoldJob(request, job, False)))
forget = require(Role.PROVIDER)(_deed(lambda request, job, _form: ReleaseVm(request, job), typed=True))
start = require(Role.PROVIDER)(_deed(lambda request, job, _form: PowerVm(request, job, True)))
shutdown = require(Role.PROVIDER)(_deed(lambda request, job, _form: PowerVm(request, job, False)))
change = require(Role.PROVIDER, Role.OWNER)(_deed(set_job, keeps=True))

ROUTES = [
    Route("/workloads", show_all, methods=["GET"]),
    Route("/workloads/jobs/{job}", show, methods=["GET"]),
    Route("/workloads/jobs/{job}/cancel", cancel, methods=["POST"]),
    Route("/workloads/jobs/{job}/hold", hold, methods=["POST"]),
    Route("/workloads/jobs/{job}/resume", resume, methods=["POST"]),
    Route("/workloads/jobs/{job}/forget", forget, methods=["POST"]),
    Route("/workloads/jobs/{job}/start", start, methods=["POST"]),
    Route("/workloads/jobs/{job}/shutdown", shutdown, methods=["POST"]),
    Route("/workloads/jobs/{job}/change", change, methods=["POST"]),
]
