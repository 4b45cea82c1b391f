"""One's second factor: a secret for a program that makes codes, shown once, and in use when a code of it was given."""

from __future__ import annotations

import math

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.portal.auth.authentication import Wait
from daemons.portal.auth.passwords import TooBusy
from daemons.portal.auth.totp import uri_of
from daemons.portal.context import (
    SECOND_FACTOR,
    account,
    before_second_factor,
    fields,
    go,
    page,
    portal,
    while_read_only,
)


def _page(request: Request, status: int = 200, problem: str = "", secret: str = "", confirm: bool = False) -> Response:
    me, host = account(request), request.url.netloc
    uri = uri_of(secret, me.name, host) if secret else ""
    problems = [problem] if problem else []
    return page(
        request,
        "second_factor.html",
        status,
        problems=problems,
        secret=secret,
        uri=uri,
        confirm=confirm or bool(secret),
    )


@before_second_factor
async def show(request: Request) -> Response:
    """Show whether there is a second factor, and the form that creates one."""
    return _page(request)


@before_second_factor
@while_read_only
async def begin(request: Request) -> Response:
    """Create a secret and show it, given the password, and a code if there is a secret already."""
    authentication, me, filled = portal(request).authentication, account(request), await fields(request)
    try:
        found = await authentication.check(request, me.name, filled.fields.get("password", ""), filled.text("code"))
    except TooBusy as busy:
        return _page(request, 503, str(busy))
    if isinstance(found, Wait):
        return _page(request, 429, f"Too many wrong passwords. Try again in {math.ceil(found.seconds)} s.")
    if found is None:
        return _page(request, 422, "Password or code is wrong. Each code works once.")
    secret = await authentication.keep(lambda: authentication.accounts.begin_factor(me.name))
    return _page(request, secret=secret)


@before_second_factor
@while_read_only
async def confirm(request: Request) -> Response:
    """Use the secret that was shown from now on; every other session of the account ends."""
    whole, me, filled = portal(request), account(request), await fields(request)
    authentication, code, now_s = whole.authentication, filled.text("code"), whole.controller_client.now_s()
    if not await authentication.keep(lambda: authentication.accounts.confirm_factor(me.name, code, now_s)):
        return _page(
            request, 422, "The code is wrong or has expired. Enter the next code, or start again.", confirm=True
        )
    authentication.sessions.forget(me.name)
    await authentication.note(request, me.sender, "second-factor-set", subject=me.sender)
    return await authentication.let_in(request, me, go("/account", "saved"), strong=True)


ROUTES = [
    Route(SECOND_FACTOR, show, methods=["GET"]),
    Route(SECOND_FACTOR + "/begin", begin, methods=["POST"]),
    Route(SECOND_FACTOR + "/confirm", confirm, methods=["POST"]),
]
