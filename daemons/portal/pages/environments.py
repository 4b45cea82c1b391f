"""Environments: agreement, sizes over time, what was promised and what is served; their life cycle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.manifests.agreement_text import table_of, to_toml
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import (
    OWNERS,
    Form,
    account,
    act,
    ask,
    fields,
    form,
    page,
    parsed,
    portal,
    problems_of,
    read,
    require,
    status_of,
    with_files,
)
from daemons.portal.forms.agreements import FIELDS, by_field, choices, from_either, from_text
from daemons.portal.pages.reports import figure
from daemons.portal.present.spans import Span, span_of
from daemons.report.charts import Chart, Mark, Series, Style
from daemons.store.reading_rows import EventRow
from daemons.values import event_codes
from shared.base.errors import InvalidInput, InvalidValue, Problem, StoreUnavailable
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CheckReservation,
    ConsentEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    ReserveEnvironment,
    ResizeEnvironment,
)
from shared.protocol.operator_messages import Request as BusRequest

URL = "/environments"
NEW = "/new-environment"
EVENTS_MAX = 2_000
EVENTS_SHOWN = 30
# The events about environments: a node or job may have the same name, and the owner must not see events about those.
EVENTS = (
    *(code for code in event_codes.EVENTS if code.startswith("environment-")),
    "assurance-kept",
    "assurance-missed",
    "coordination-failed",
    "partner-offered",
    "request-policed",
    "units-reclaimed",
)
SIZED = re.compile(r"(\d{1,9}) to (\d{1,9})\b")
FILE_BYTES_MAX = 1 << 19


# --- looking --------------------------------------------------------------------------------------------------------


async def show_all(request: Request) -> Response:
    """Show the environments: all for the provider, their own for owners, those that users may submit to."""
    me = account(request)
    seen = await portal(request).live.view(me, "environments")
    rows = seen.data["environments"]
    return page(request, "environments.html", rows=rows, total=seen.data["total"], seen=seen, makes=me.role in OWNERS)


@require(Role.PROVIDER, Role.OWNER)
async def show(request: Request) -> Response:
    """Show one environment."""
    return await _page(request, [], 200)


async def _page(request: Request, problems: list[str], status: int) -> Response:
    name, me, live = request.path_params["name"], account(request), portal(request).live
    try:
        seen = await live.view(me, "environment", name)
    except Refused as error:
        raise HTTPException(404, f"Environment {name!r} does not exist.") from error
    row = seen.data["environment"]
    try:
        span = span_of(request.query_params, portal(request).controller_client.now_s(), grain_s=1.0)
    except InvalidInput as error:
        problems, status = [*problems, *problems_of(error)], 422
        span = span_of({}, portal(request).controller_client.now_s(), grain_s=1.0)
    events = await _events(request, row, span)
    return page(
        request,
        "environment.html",
        status,
        url=f"{URL}/{name}",
        row=row,
        seen=seen,
        assurance=await _assurance(request, name),
        agreement=to_toml(table_of(row["agreement"])),
        sizes=None if events is None else figure(request, size_chart(row, events, span)),
        events=(events or ())[:EVENTS_SHOWN],
        span=span,
        problems=problems,
    )


async def _assurance(request: Request, name: str) -> tuple[Mapping[str, Any], str] | None:
    """Return the promised and the measured service, and why it is unknown; None if nothing is promised or measured."""
    try:
        seen = await portal(request).live.view(account(request), "assurance", name)
    except (Refused, Unreachable):
        return None
    rows = seen.data["environments"]
    return (rows[0], seen.data["trouble"]) if rows and seen.data["policy"] is not None else None


async def _events(request: Request, row: Mapping[str, Any], span: Span) -> tuple[EventRow, ...] | None:
    """Return the environment's events in the span, newest first; None if they are unknown. Events of an earlier
    environment of that name are left out: it may have had another owner."""
    from_s = max(span.from_s, row["created_at_s"] or 0.0)
    if portal(request).reading is None:
        return None
    try:
        return await read(
            request,
            lambda history: history.events(from_s, span.to_s + 1.0, EVENTS, row["name"], EVENTS_MAX),
        )
    except StoreUnavailable:
        return None


def size_chart(row: Mapping[str, Any], events: Sequence[EventRow], span: Span) -> Chart:
    """Return a chart of its units over the span, as decided, against the bounds of its agreement."""
    from_s = max(span.from_s, row["created_at_s"] or 0.0)
    sized = [(each.at_s, SIZED.match(each.detail)) for each in reversed(events) if each.what == "environment-sized"]
    known = [(at_s, int(found[1]), int(found[2])) for at_s, found in sized if found is not None]
    first = known[0][1] if known else row["size"]
    last = known[-1][2] if known else row["size"]
    times = [from_s, *(at_s for at_s, _, _ in known), max(span.to_s, from_s)]
    sizes = [float(first), *(float(after) for _, _, after in known), float(last)]
    marks = [Mark("guaranteed", float(row["lower"]))]
    if row["upper"] is not None:
        marks.append(Mark("maximum", float(row["upper"])))
    series = (Series("units", times, sizes, style=Style.STEP),)
    return Chart("sizes", "Target units", "units", series=series, marks=tuple(marks), y_min=0.0)


# --- creating -------------------------------------------------------------------------------------------------------


@require(Role.PROVIDER, Role.OWNER)
async def new(request: Request) -> Response:
    """Show the form for an agreement."""
    return _form(request, {}, "", 200)


def _form(
    request: Request,
    given: Mapping[str, str],
    text: str,
    status: int,
    *,
    problems: list[str] | None = None,
    beside: Mapping[str, str] | None = None,
    verdict: Mapping[str, Any] | None = None,
) -> Response:
    me = account(request)
    start = {"model": "fb", "granularity": "node", "relationship": "affiliated", "lower": "1"}
    start |= {"owner": me.name} if me.role is Role.OWNER else {}
    return page(
        request,
        "environment_new.html",
        status,
        rows=FIELDS,
        given=given or start,
        choices=choices(),
        text=text,
        problems=problems or [],
        beside=beside or {},
        verdict=verdict,
        offered=_offered,
        why=given.get("why", ""),
    )


def _offered(row: Mapping[str, Any]) -> list[tuple[int, Any, Any]]:
    """Return the rows of an offer: number of the share, units offered, units requested."""
    pairs = zip(row["offered"], row["asked"], strict=False)
    return [(number, offered, asked) for number, (offered, asked) in enumerate(pairs, 1)]


@with_files
@require(Role.PROVIDER, Role.OWNER)
async def create(request: Request) -> Response:
    """Create the environment of a form or of a pasted agreement, or ask first whether its reservation is admitted."""
    filled = await fields(request)
    text = (await _uploaded(request)) or filled.fields.get("text", "")
    given = dict(filled.fields)

    async def again(problems: list[str], status: int) -> Response:
        return _form(request, given, text, status, problems=problems)

    try:
        agreement = await parsed(request, from_either, filled.fields, text)
    except InvalidInput as error:
        return _form(request, given, text, 422, problems=problems_of(error), beside=by_field(error))
    new_id = portal(request).controller_client.new_id()
    if filled.text("do") == "check":
        return await _check(request, given, text, CheckReservation(new_id, agreement, _assure(filled)))
    return await act(request, CreateEnvironment(new_id, agreement), f"{URL}/{agreement.name}", again=again)


def _assure(filled: Form) -> float:
    """Return the requested service probability, 0: not requested. An invalid number counts as 0."""
    try:
        return min(max(filled.number("assure", 0.0) or 0.0, 0.0), 1.0)
    except InvalidValue:
        return 0.0


async def _check(request: Request, given: dict[str, str], text: str, asked: CheckReservation) -> Response:
    try:
        verdict = await ask(request, asked)
    except Refused as error:
        return _form(request, given, text, status_of(error), problems=[error.detail or error.code])
    except Unreachable as error:
        return _form(request, given, text, 503, problems=[f"Controller unreachable: {error.why}."])
    return _form(request, given, text, 200, verdict=verdict)


async def _uploaded(request: Request) -> str:
    """Return the text of an uploaded file, "" if there is none."""
    file = (await form(request)).get("file")
    if file is None or isinstance(file, str):
        return ""
    content = await file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise HTTPException(400, f"The file is too large: at most {FILE_BYTES_MAX} bytes.")
    return content.decode(errors="replace")


# --- life -----------------------------------------------------------------------------------------------------------


async def _step(request: Request, made: Any) -> Response:
    """Carry out one step of the environment's life cycle: `made(id, name, form)` is the request."""
    name, new_id = request.path_params["name"], portal(request).controller_client.new_id()

    async def again(problems: list[str], status: int) -> Response:
        return await _page(request, problems, status)

    return await act(request, lambda filled: made(new_id, name, filled), f"{URL}/{name}", again=again)


@require(Role.PROVIDER, Role.OWNER)
async def activate(request: Request) -> Response:
    """Allot its lower bound and let it serve."""
    return await _step(request, lambda id, name, _: ActivateEnvironment(id, name))


@require(Role.PROVIDER, Role.OWNER)
async def deactivate(request: Request) -> Response:
    """Give its units back; its workloads wait."""
    return await _step(request, lambda id, name, _: DeactivateEnvironment(id, name))


@require(Role.PROVIDER, Role.OWNER)
async def destroy(request: Request) -> Response:
    """End it with all its workloads: its name has to be typed."""

    def made(id: str, name: str, filled: Form) -> BusRequest:
        filled.need_typed(name, "environment")
        return DestroyEnvironment(id, name)

    return await _step(request, made)


@require(Role.PROVIDER, Role.OWNER)
async def resize(request: Request) -> Response:
    """Change its bounds."""

    def made(id: str, name: str, filled: Form) -> BusRequest:
        lower = filled.whole("lower")
        if lower is None:
            raise InvalidInput(Problem("lower", "is missing", "a whole number of units"))
        return ResizeEnvironment(id, name, lower, filled.whole("upper"))

    return await _step(request, made)


@require(Role.PROVIDER, Role.OWNER)
async def consent(request: Request) -> Response:
    """Let it share its units with a partner, or no more."""
    return await _step(
        request,
        lambda id, name, filled: ConsentEnvironment(id, name, filled.text("partner"), filled.text("on") == "yes"),
    )


@with_files
@require(Role.PROVIDER, Role.OWNER)
async def reserve(request: Request) -> Response:
    """Have something else reserved for it: the table [assurance] of a whole agreement, or nothing."""

    try:
        agreement = await parsed(request, from_text, (await fields(request)).fields.get("text", ""))
    except InvalidInput as error:
        return await _page(request, problems_of(error), 422)

    def made(id: str, name: str, _: Form) -> BusRequest:
        if agreement.name != name:
            raise InvalidInput(Problem("name", f"is {agreement.name!r}", f"{name}, the name of this environment"))
        return ReserveEnvironment(id, name, agreement.assurance)

    return await _step(request, made)


_STEPS = (activate, deactivate, destroy, resize, consent, reserve)
_NAMES = ("activate", "deactivate", "destroy", "resize", "consent", "reserve")
ROUTES = [
    Route(URL, show_all, methods=["GET"]),
    Route(NEW, new, methods=["GET"]),
    Route(NEW, create, methods=["POST"]),
    Route(f"{URL}/{{name}}", show, methods=["GET"]),
    *(Route(f"{URL}/{{name}}/{word}", step, methods=["POST"]) for word, step in zip(_NAMES, _STEPS, strict=True)),
]
