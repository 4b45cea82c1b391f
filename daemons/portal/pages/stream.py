"""The line on which browsers hear that views have changed (server-sent events)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daemons.controller.requests.authorization import VIEWS
from daemons.portal.auth.accounts import Account
from daemons.portal.client.view_cache import LIVE_VIEWS
from daemons.portal.context import account, page, portal

if TYPE_CHECKING:
    from daemons.portal.context import Portal

HEARTBEAT_S = 15.0
LINE_S = 600.0  # then the browser connects again, and its session is checked again
RETRY_MS = 2_000
OF_ACCOUNT_MAX = 50  # lines of one account: it keeps nobody else from listening


async def live(request: Request) -> Response:
    """Events `changed` and one named as each view that has changed, of those in `views`; at most once a second."""
    me, whole = account(request), portal(request)
    wanted = [name for name in request.query_params.get("views", "").split(",") if may_watch(me, name)]
    if not wanted:
        return page(request, "refused.html", 404, title="No such live updates", detail="")
    if whole.readers >= whole.settings.readers_max or whole.readers_of[me.name] >= OF_ACCOUNT_MAX:
        return Response("Too many readers.", 503, {"retry-after": "30"}, "text/plain")
    return _Lines(whole, me, _lines(request, me, wanted))


class _Lines(StreamingResponse):
    """A line that counts from when it was granted until it has ended, however it ends."""

    def __init__(self, whole: Portal, me: Account, lines: AsyncIterator[str]) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self._whole, self._name = whole, me.name
        whole.readers += 1
        whole.readers_of[me.name] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            whole = self._whole
            whole.readers -= 1
            whole.readers_of[self._name] -= 1
            whole.readers_of += Counter()  # drops accounts without lines


def may_watch(me: Account, name: str) -> bool:
    """Return whether an account may be notified of changes to a view."""
    return name in LIVE_VIEWS and (me.is_provider or name in VIEWS[me.role])


async def _lines(request: Request, me: Account, wanted: list[str]) -> AsyncIterator[str]:
    whole = portal(request)
    until_s = whole.controller_client.now_s() + LINE_S
    yield f"retry: {RETRY_MS}\n\n"
    async with aclosing(whole.live.watch(me, wanted, HEARTBEAT_S)) as changes:
        async for names in changes:
            events = "".join(f"event: {name}\ndata: -\n\n" for name in (*names, "changed"))
            yield events if names else ": here\n\n"
            if (
                whole.controller_client.now_s() >= until_s
                or await whole.authentication.enter(request, used=False) is None
            ):
                return


ROUTES = [Route("/live", live, methods=["GET"])]
