"""The audit: who did what, when and why; requests to the controller, and logins and accounts of the portal, as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.auth.audit_log import Entry
from daemons.portal.context import page, portal, problems_of, read, require
from daemons.portal.present.spans import Span, span_of
from shared.base.errors import InvalidInput
from shared.ports.audit import Audited

ROWS_MAX = 200
LOOKED_THROUGH_MAX = 5_000  # of the portal's own log, for those that fit
TEXT_LENGTH_MAX = 200
OF_CONTROLLER, OF_PORTAL = "controller", "portal"
FILTERS = ("account", "kind", "text")


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One thing that was done or tried. via: the broker's user that sent it, or the address that it came from."""

    at_s: float
    source: str
    account: str
    via: str
    kind: str
    subject: str
    why: str
    done: bool
    detail: str


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the audit log, newest first, by account, kind, text and span."""
    fields = {name: request.query_params.get(name, "").strip()[:TEXT_LENGTH_MAX] for name in FILTERS}
    fields |= {name: request.query_params.get(name, "").strip() for name in ("from", "to")}
    try:
        span = span_of(request.query_params, portal(request).controller_client.now_s(), "30d", 1.0)
    except InvalidInput as error:
        return page(request, "audit.html", 422, fields=fields, problems=problems_of(error), lines=[], older="")
    end_s = span.to_s + 1.0 if span.to_text == "now" else span.to_s
    lines = await _of_controller(request, span.from_s, end_s, fields) + await _of_portal(
        request, span.from_s, end_s, fields
    )
    lines.sort(key=lambda line: -line.at_s)
    older = _older(lines, span, fields)
    return page(
        request,
        "audit.html",
        fields=fields,
        problems=[],
        lines=lines[:ROWS_MAX],
        older=older,
        no_history=portal(request).reading is None,
    )


def _older(lines: Sequence[AuditLine], span: Span, fields: dict[str, str]) -> str:
    """Return the query for the lines that do not fit on the page; "" if all do."""
    if len(lines) <= ROWS_MAX:
        return ""
    last_s = math.nextafter(lines[ROWS_MAX - 1].at_s, math.inf)  # of one moment some come twice, none is lost
    said = {name: fields[name] for name in FILTERS if fields[name]}
    return urlencode({**said, "from": repr(span.from_s), "to": repr(last_s)})


async def _of_controller(request: Request, from_s: float, to_s: float, fields: dict[str, str]) -> list[AuditLine]:
    if portal(request).reading is None:
        return []
    rows: tuple[Audited, ...] = await read(
        request,
        lambda history: history.audit(
            from_s, to_s, fields["account"], fields["kind"], fields["text"], limit=ROWS_MAX + 1
        ),
    )
    return [
        AuditLine(
            row.at_s,
            OF_CONTROLLER,
            row.account,
            via=row.via,
            kind=row.kind,
            subject=row.subject,
            why=row.why,
            done=row.done,
            detail=" ".join(part for part in (row.code, row.detail) if part),
        )
        for row in rows
    ]


async def _of_portal(request: Request, from_s: float, to_s: float, fields: dict[str, str]) -> list[AuditLine]:
    authentication = portal(request).authentication
    entries = await authentication.keep(lambda: authentication.log.entries(from_s, to_s, LOOKED_THROUGH_MAX))
    return [_line(entry) for entry in entries if _fits(entry, fields)][: ROWS_MAX + 1]


def _line(entry: Entry) -> AuditLine:
    return AuditLine(
        entry.at_s,
        OF_PORTAL,
        entry.account,
        via=entry.address,
        kind=entry.what,
        subject=entry.subject,
        why=entry.why,
        done=entry.done,
        detail=entry.detail,
    )


def _fits(entry: Entry, fields: dict[str, str]) -> bool:
    text = fields["text"].casefold()
    places = (entry.account, entry.subject, entry.why, entry.detail)
    return (
        fields["account"] in ("", entry.account)
        and fields["kind"] in ("", entry.what)
        and any(text in place.casefold() for place in places)
    )


ROUTES = [Route("/audit", show, methods=["GET"])]
