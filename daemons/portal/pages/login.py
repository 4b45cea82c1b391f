"""Logging in and out, one's own account, and asking for one."""

from __future__ import annotations

import math
import secrets
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.auth.accounts import NameTaken, State
from daemons.portal.auth.audit_log import Entry
from daemons.portal.auth.authentication import Wait
from daemons.portal.auth.passwords import TooBusy, check
from daemons.portal.auth.sessions import Open, form_word
from daemons.portal.auth.throttle import network_of
from daemons.portal.context import (
    FORM_COOKIE,
    account,
    address,
    before_second_factor,
    fields,
    for_everybody,
    go,
    inside,
    page,
    portal,
    problems_of,
    session,
    while_read_only,
)
from shared.base.errors import InvalidInput, InvalidValue, Problem, StoreUnavailable
from shared.values.scalars import check_name

LATELY_S = 30 * 86_400.0
WRONG = "Name, password or code is wrong, or the account is not approved yet."


def with_form(request: Request, template: str, status: int = 200, /, **data: object) -> Response:
    """Return a page with a form for somebody who is not logged in: the form and a cookie belong together. A logged-in
    user gets the form of the session, which is checked against it."""
    if session(request) is not None:
        return page(request, template, status, **data)
    cookie = request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(32)
    answer = page(request, template, status, **({"csrf": form_word(cookie)} | data))
    answer.set_cookie(FORM_COOKIE, cookie, path="/", secure=True, httponly=True, samesite="strict")
    return answer


@for_everybody
async def show(request: Request) -> Response:
    """Show the login; a user whom a trusted proxy names is logged in at once."""
    to = inside(request.query_params.get("to", "/"))
    if session(request) is not None:
        return RedirectResponse(to, 303)
    named = await portal(request).authentication.remote(request)
    if named is not None:
        return await portal(request).authentication.let_in(request, named, RedirectResponse(to, 303), strong=True)
    return with_form(request, "login.html", to=to)


@while_read_only
@for_everybody
async def log_in(request: Request) -> Response:
    """Check a name and a password."""
    authentication, filled = portal(request).authentication, await fields(request)
    name, to = filled.text("name")[:200], inside(filled.text("to", "/"))
    password = filled.fields.get("password", "")
    try:
        found = await authentication.check(request, name, password, filled.text("code"))
    except TooBusy as busy:
        return with_form(request, "login.html", 503, to=to, problem=str(busy))
    if isinstance(found, Wait):
        seconds = math.ceil(found.seconds)
        text = f"Too many wrong passwords. Try again in {seconds} s."
        answer = with_form(request, "login.html", 429, to=to, problem=text)
        answer.headers["retry-after"] = str(seconds)
        return answer
    if found is None:
        return with_form(request, "login.html", 401, to=to, problem=WRONG)
    return await authentication.let_in(request, found, RedirectResponse(to, 303), strong=found.has_factor)


@before_second_factor
@while_read_only
async def log_out(request: Request) -> Response:
    """End the session."""
    found = session(request)
    assert found is not None
    return await portal(request).authentication.let_out(request, found, go("/login", "logged-out"))


async def own(request: Request) -> Response:
    """Show an account its own page."""
    return await _account(request)


async def _account(request: Request, status: int = 200, problems: list[str] | None = None) -> Response:
    """Show the account, its sessions, and its recent activity."""
    authentication, me, now_s, here = (
        portal(request).authentication,
        account(request),
        portal(request).controller_client.now_s(),
        session(request),
    )
    sessions: tuple[Open, ...] = ()
    lately: tuple[Entry, ...] = ()
    with suppress(StoreUnavailable):  # a banner says so
        sessions = await authentication.keep(lambda: authentication.sessions.of(me.name, now_s))
        lately = await authentication.keep(lambda: authentication.log.of(me.sender, now_s - LATELY_S))
    mine = here.id if here is not None else ""
    return page(request, "account.html", status, problems=problems or [], sessions=sessions, mine=mine, lately=lately)


@while_read_only
async def end_sessions(request: Request) -> Response:
    """End one of one's sessions, or all but this one."""
    authentication, filled, me, here = (
        portal(request).authentication,
        await fields(request),
        account(request),
        session(request),
    )
    now_s, ids = portal(request).controller_client.now_s(), [filled.text("id")]
    if not ids[0]:
        found = await authentication.keep(lambda: authentication.sessions.of(me.name, now_s))
        ids = [each.id for each in found if here is None or each.id != here.id]
    ended = await authentication.keep(lambda: authentication.sessions.end(me.name, ids))
    if not ended:
        return await _account(request, 409, ["This session has already ended."])
    await authentication.note(request, me.sender, "session-end", subject=me.sender, detail=f"{ended}")
    return go("/account", "done")


@while_read_only
async def change_password(request: Request) -> Response:
    """Set a new password, given the old one; every other session of the account ends."""
    authentication, filled, me, old = (
        portal(request).authentication,
        await fields(request),
        account(request),
        session(request),
    )
    new = filled.fields.get("new", "")
    try:
        check(new, me.name)
        if new != filled.fields.get("again", ""):
            raise InvalidInput(Problem("password", "does not match its repetition", "the same password twice"))
    except InvalidInput as error:
        return await _account(request, 422, problems_of(error))
    found = await authentication.check(request, me.name, filled.fields.get("old", ""))
    if isinstance(found, Wait):
        text = f"Too many wrong passwords. Try again in {math.ceil(found.seconds)} s."
        return await _account(request, 429, [text])
    if found is None:
        return await _account(request, 422, ["The old password is wrong."])
    made = await authentication.hasher.make(new, known=True)
    await authentication.keep(lambda: authentication.accounts.set_password(me.name, made))
    await authentication.keep(lambda: authentication.sessions.close_all(me.name))
    await authentication.note(request, me.sender, "password-change", subject=me.sender)
    return await authentication.let_in(request, me, go("/account", "saved"), strong=old is not None and old.strong)


# --- asking for an account, and links for a password ----------------------------------------------------------------


@for_everybody
async def show_asking(request: Request) -> Response:
    """Show the form for requesting an account."""
    return with_form(request, "ask_account.html", given={})


@while_read_only
@for_everybody
async def ask_account(request: Request) -> Response:
    """Keep what is asked for until a provider has looked at it."""
    authentication, filled = portal(request).authentication, await fields(request)
    now_s, where = portal(request).controller_client.now_s(), network_of(address(request))
    name, password = filled.text("name"), filled.fields.get("password", "")
    given = {each: filled.text(each)[:500] for each in ("name", "role", "contact", "why")}
    try:
        if authentication.asking.wait_s(where, now_s) > 0.0:
            raise InvalidInput(Problem("account", "too many requests from your address", "a later attempt"))
        check_name("name", name)
        check(password, name)
        if password != filled.fields.get("again", ""):
            raise InvalidInput(Problem("password", "does not match its repetition", "the same password twice"))
        role = Role.OWNER if filled.text("role") == Role.OWNER.value else Role.USER
        authentication.asking.wrong(where, now_s)
        made = await authentication.hasher.make(password, where)
        account_of = authentication.accounts.add
        await authentication.keep(
            lambda: account_of(name, role, made, State.ASKED, now_s, filled.text("contact"), filled.text("why"), where)
        )
    except NameTaken:  # same page as for a free name: it must not reveal which names exist
        await authentication.note(request, "", "account-ask", subject=name, done=False, detail="the name is taken")
        return page(request, "asked.html", name=name)
    except (InvalidInput, InvalidValue) as error:
        return with_form(request, "ask_account.html", 422, problems=problems_of(error), given=given)
    except TooBusy as busy:
        return with_form(request, "ask_account.html", 503, problems=[str(busy)], given=given)
    await authentication.note(request, "", "account-ask", subject=name, why=filled.text("why"))
    authentication.recount()
    return page(request, "asked.html", name=name)


@for_everybody
async def show_link(request: Request) -> Response:
    """Show the form behind a one-time link."""
    authentication, word, now_s = (
        portal(request).authentication,
        request.path_params["word"],
        portal(request).controller_client.now_s(),
    )
    found = await authentication.keep(lambda: authentication.accounts.of_link(word, now_s))
    return with_form(request, "link.html", 200 if found else 404, found=found)


@while_read_only
@for_everybody
async def use_link(request: Request) -> Response:
    """Set the password of whose link it is."""
    authentication, filled, now_s = (
        portal(request).authentication,
        await fields(request),
        portal(request).controller_client.now_s(),
    )
    word, new = request.path_params["word"], filled.fields.get("new", "")
    found = await authentication.keep(lambda: authentication.accounts.of_link(word, now_s))
    if found is None:
        return with_form(request, "link.html", 404, found=None)
    try:
        check(new, found.name)
        if new != filled.fields.get("again", ""):
            raise InvalidInput(Problem("password", "does not match its repetition", "the same password twice"))
    except InvalidInput as error:
        return with_form(request, "link.html", 422, found=found, problems=problems_of(error))
    made = await authentication.hasher.make(new, known=True)  # the link says who it is
    used = await authentication.keep(lambda: authentication.accounts.use_link(word, made, now_s))
    if used is None:
        return with_form(request, "link.html", 404, found=None)
    authentication.sessions.forget(used.name)
    await authentication.note(request, used.sender, "password-link", subject=used.sender)
    return go("/login", "saved")


ROUTES = [
    Route("/login", show, methods=["GET"]),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
    Route("/account", own, methods=["GET"]),
    Route("/account/password", change_password, methods=["POST"]),
    Route("/account/sessions", end_sessions, methods=["POST"]),
    Route("/ask", show_asking, methods=["GET"]),
    Route("/ask", ask_account, methods=["POST"]),
    Route("/link/{word}", show_link, methods=["GET"]),
    Route("/link/{word}", use_link, methods=["POST"]),
]
