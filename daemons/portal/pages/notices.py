"""Notifications: what waits, what was given up and why; try again, drop, try a channel."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.client.controller_client import Refused, Unreachable
from daemons.portal.context import account, act, page, portal, read, require
from daemons.values.records.notifications import NoticeState, message_of
from shared.protocol.operator_messages import DropNotification, RetryNotification, TryChannel

ROWS_MAX = 200
STATES = tuple(each.value for each in NoticeState)
URL = "/notifications"


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the channels, and the notifications of a state or all of them."""
    return await _page(request, [], 200)


async def _page(request: Request, problems: list[str], status: int) -> Response:
    state = request.query_params.get("state", "")
    state = state if state in STATES else ""
    data, age_s, trouble = await _known(request, state)
    rows = data["notifications"]
    return page(
        request,
        "notices.html",
        status,
        channels=data["channels"],
        rows=rows[:ROWS_MAX],
        total=data["total"],
        state=state,
        states=STATES,
        age_s=age_s,
        stale=trouble,
        problems=problems,
    )


async def _known(request: Request, state: str) -> tuple[dict[str, Any], float | None, str]:
    """Return the notifications from the controller; while it does not answer those in the history, without channels;
    and why."""
    try:
        seen = await portal(request).live.view(account(request), "notifications", state)
    except (Refused, Unreachable) as error:
        if portal(request).reading is None:
            raise
        rows = await read(request, lambda history: history.notifications(state, limit=ROWS_MAX))
        shown = [asdict(row) | {"message": message_of(row.id), "next_at_s": row.next_s} for row in rows]
        return {"channels": [], "notifications": shown, "total": len(shown)}, None, str(error)
    return seen.data, seen.age_s, seen.trouble


@require(Role.PROVIDER)
async def retry(request: Request) -> Response:
    """Have one tried again."""
    new = portal(request).controller_client.new_id()
    return await act(request, lambda form: RetryNotification(new, form.text("id")), URL, again=_again(request))


@require(Role.PROVIDER)
async def drop(request: Request) -> Response:
    """Have one tried no more."""
    new = portal(request).controller_client.new_id()
    return await act(request, lambda form: DropNotification(new, form.text("id")), URL, again=_again(request))


@require(Role.PROVIDER)
async def test(request: Request) -> Response:
    """Send a message over a channel."""
    new = portal(request).controller_client.new_id()
    return await act(request, lambda form: TryChannel(new, form.text("channel")), URL, again=_again(request))


def _again(request: Request) -> Any:
    async def show_again(problems: list[str], status: int) -> Response:
        return await _page(request, problems, status)

    return show_again


ROUTES = [
    Route(URL, show, methods=["GET"]),
    Route(f"{URL}/retry", retry, methods=["POST"]),
    Route(f"{URL}/drop", drop, methods=["POST"]),
    Route(f"{URL}/test", test, methods=["POST"]),
]
