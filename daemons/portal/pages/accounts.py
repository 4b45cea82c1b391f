"""The provider's page of accounts: approve, refuse, lock, unlock, remove, and links for a new password."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemons.access.identity import Role
from daemons.portal.auth.accounts import LINK_S, LastProvider, State
from daemons.portal.context import account, fields, go, page, portal, problems_of, require, while_read_only
from shared.base.errors import InvalidInput

HERE = "/accounts"
GONE = "The account does not exist, or another provider has changed it. Check the list."
ONLY = "You cannot do this to your own account. Ask another provider."
NOT_BY_PAGE = (
    "Reset the password of another provider on the portal's machine: trimtab-portal account link. "
    "Otherwise one person could approve a plan twice."
)


async def listed(request: Request, status: int = 200, **data: object) -> Response:
    """Show the list, with messages about it."""
    authentication = portal(request).authentication
    found = await authentication.keep(authentication.accounts.all)
    given = {"problems": [], "link": "", "link_of": "", "hours": LINK_S / 3600.0} | data
    waiting = Counter(one.address for one in found if one.state is State.ASKED)
    several = {address: count for address, count in waiting.items() if count > 1}
    return page(request, "accounts.html", status, accounts=found, several=several, **given)


@require(Role.PROVIDER)
async def show(request: Request) -> Response:
    """Show the list."""
    return await listed(request)


@while_read_only
@require(Role.PROVIDER)
async def approve(request: Request) -> Response:
    """Let an account that was asked for log in."""
    return await _change(request, "account-approve", State.ACTIVE, State.ASKED)


@while_read_only
@require(Role.PROVIDER)
async def refuse(request: Request) -> Response:
    """Delete an account that was asked for."""
    accounts, name = portal(request).authentication.accounts, request.path_params["name"]
    return await _done(request, "account-refuse", lambda: accounts.remove(name, State.ASKED))


@while_read_only
@require(Role.PROVIDER)
async def refuse_from(request: Request) -> Response:
    """Delete every account that was asked for from an address."""
    filled, authentication = await fields(request), portal(request).authentication
    where = filled.text("address")
    names = await authentication.keep(lambda: authentication.accounts.refuse_from(where))
    if not names:
        return await listed(request, 409, problems=[GONE])
    return await _noted(request, "account-refuse", " ".join(names), filled.text("why"))


@while_read_only
@require(Role.PROVIDER)
async def lock(request: Request) -> Response:
    """Log somebody out until the account is unlocked."""
    return await _change(request, "account-lock", State.LOCKED, State.ACTIVE)


@while_read_only
@require(Role.PROVIDER)
async def unlock(request: Request) -> Response:
    """Let a locked account log in again."""
    return await _change(request, "account-unlock", State.ACTIVE, State.LOCKED)


@while_read_only
@require(Role.PROVIDER)
async def remove(request: Request) -> Response:
    """Delete an account."""
    accounts, name = portal(request).authentication.accounts, request.path_params["name"]
    if name == account(request).name:
        return await listed(request, 409, problems=[ONLY])
    return await _done(request, "account-remove", lambda: accounts.remove(name, spare_last=True))


@while_read_only
@require(Role.PROVIDER)
async def link(request: Request) -> Response:
    """Make a link with which a new password is set once; it is shown now and never again."""
    whole, name, filled = portal(request), request.path_params["name"], await fields(request)
    authentication, now_s = whole.authentication, whole.controller_client.now_s()
    found = await authentication.keep(lambda: authentication.accounts.find(name))
    if found is not None and found.is_provider and found.name != account(request).name:
        return await listed(request, 409, problems=[NOT_BY_PAGE])
    try:
        word = await authentication.keep(lambda: authentication.accounts.make_link(name, now_s))
    except InvalidInput as error:
        return await listed(request, 409, problems=problems_of(error))
    authentication.sessions.forget(name)
    await authentication.note(request, account(request).sender, "account-link", subject=name, why=filled.text("why"))
    return await listed(request, link=f"{whole.settings.public_url}/link/{word}", link_of=name)


async def _change(request: Request, what: str, state: State, before: State) -> Response:
    accounts, name = portal(request).authentication.accounts, request.path_params["name"]
    if state is State.LOCKED and name == account(request).name:
        return await listed(request, 409, problems=[ONLY])
    return await _done(request, what, lambda: accounts.set_state(name, state, before, spare_last=True))


async def _done(request: Request, what: str, change: Callable[[], bool]) -> Response:
    """Change the account of the address, and show the result."""
    name, filled = request.path_params["name"], await fields(request)
    try:
        changed = await portal(request).authentication.keep(change)
    except LastProvider as error:
        return await listed(request, 409, problems=[str(error)])
    if not changed:
        return await listed(request, 409, problems=[GONE])
    return await _noted(request, what, name, filled.text("why"))


async def _noted(request: Request, what: str, name: str, why: str) -> Response:
    authentication = portal(request).authentication
    authentication.sessions.forget(name)
    authentication.recount()
    await authentication.note(request, account(request).sender, what, subject=name, why=why)
    return go(HERE, "done")


ROUTES = [
    Route(HERE, show, methods=["GET"]),
    Route("/refuse-accounts", refuse_from, methods=["POST"]),
    Route(HERE + "/{name}/approve", approve, methods=["POST"]),
    Route(HERE + "/{name}/refuse", refuse, methods=["POST"]),
    Route(HERE + "/{name}/lock", lock, methods=["POST"]),
    Route(HERE + "/{name}/unlock", unlock, methods=["POST"]),
    Route(HERE + "/{name}/remove", remove, methods=["POST"]),
    Route(HERE + "/{name}/link", link, methods=["POST"]),
]
