"""Logging in and out: passwords, sessions, what wrong tries cost, and what is noted of all that."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from daemons.portal.auth import refusals
from daemons.portal.auth.accounts import Account, Accounts, State
from daemons.portal.auth.audit_log import Entry, Log
from daemons.portal.auth.passwords import Hasher, TooBusy
from daemons.portal.auth.refusals import Refusals
from daemons.portal.auth.schema import Base
from daemons.portal.auth.sessions import COOKIE, Session, Sessions
from daemons.portal.auth.throttle import Throttle, Tries, network_of
from daemons.portal.outage import Outage
from daemons.portal.threads import Threads
from shared.base.errors import StoreUnavailable
from shared.ports.core import Clock

REMOTE_USER = "x-remote-user"
REMOTE_SECRET = "x-portal-secret"
LIVE = "x-live"  # on automatic requests of a page: they do not extend a session
ASKED_S = 10.0  # how often it is looked how many accounts wait for approval
ASK_FREE, ASK_WAIT_MAX_S = 3, 3600.0  # of one address
THREADS = 4
KNOWN_ADDRESS_S = 30 * 86_400.0  # an address is known for so long after a login
LAST_KNOWN_S = 900.0  # how long sessions are believed while the store is away

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SignOn:
    """A reverse proxy says who logs in: believed with this secret, from `trusted` addresses."""

    secret: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Too many passwords were wrong: the next may be tried in so many seconds."""

    seconds: float


class Authentication:
    """Who may come in. second_factor: providers who log in with a password must have one. `trouble`: the portal's own
    store does not answer."""

    def __init__(
        self,
        base: Base,
        clock: Clock,
        hasher: Hasher,
        *,
        idle_s: float,
        absolute_s: float,
        keep_log_s: float,
        trusts: Callable[[str], bool],
        sign_on: SignOn | None = None,
        second_factor: bool = False,
    ) -> None:
        self.accounts = Accounts(base)
        self.sessions = Sessions(base, self.accounts, idle_s, absolute_s)
        self.log = Log(base, keep_log_s)
        self.hasher = hasher
        self.absolute_s = absolute_s
        self.sign_on = sign_on
        self._second_factor = second_factor
        self.trouble: Outage | None = None
        self.on_refused: Callable[[str], None] = lambda _: None
        self.asked = 0
        self._asked_s = float("-inf")
        self._clock = clock
        self._trusts = trusts
        self.asking = Tries(ASK_FREE, ASK_WAIT_MAX_S)
        self._throttle = Throttle()
        self._refusals = Refusals()
        self._threads = Threads(THREADS, "accounts")

    # --- the store --------------------------------------------------------------------------------------------------

    async def keep(self, do: Callable[[], T]) -> T:
        """Do something with the store beside the event loop. Raises `StoreUnavailable`, and notes since when."""
        try:
            done = await self._threads.do(do)
        except StoreUnavailable as error:
            if self.trouble is None:
                self.trouble = Outage(self._clock.now_s(), str(error))
            raise
        self.trouble = None
        return done

    async def note(
        self,
        request: Request,
        account: str,
        what: str,
        *,
        subject: str = "",
        why: str = "",
        done: bool = True,
        detail: str = "",
    ) -> None:
        """Keep in the log what was done or tried; `account`: who, as on the bus, "" for somebody not logged in."""
        entry = Entry(
            self._clock.now_s(),
            account,
            request.state.address,
            what=what,
            subject=subject,
            why=why,
            done=done,
            detail=detail,
        )
        await self.keep(lambda: self.log.note(entry))

    async def refuse(self, request: Request, account: str, what: str, subject: str = "") -> None:
        """Count that something was refused, and keep it in the log, gathered. A store that is away is no matter."""
        self.on_refused(what)
        entry = Entry(self._clock.now_s(), account, request.state.address, what=what, subject=subject, done=False)
        await self._keep_refusals(self._refusals.add(entry))

    async def tell_refusals(self, now_s: float = float("inf")) -> None:
        """Keep in the log what has been gathered for long enough, or all of it."""
        await self._keep_refusals(self._refusals.due(now_s))

    async def _keep_refusals(self, entries: tuple[Entry, ...]) -> None:
        with suppress(StoreUnavailable):  # `keep` notes that it is away
            for each in entries:
                await self.keep(partial(self.log.note, each))

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def enter(self, request: Request, used: bool = True) -> Session | None:
        """Return the session of a request. `used`: by a person, unless the request says that the page made it
        automatically. While the store is unavailable, recently seen sessions stay valid. Raises `StoreUnavailable` for
        others then."""
        word = request.cookies.get(COOKIE, "")
        if not word or len(word) > 200:
            return None
        now_s = self._clock.now_s()
        used = used and LIVE not in request.headers
        found = self.sessions.known(word, now_s, used)
        if found is None:
            try:
                found = await self.keep(lambda: self.sessions.find(word, now_s, used))
            except StoreUnavailable:
                found = self.sessions.last_known(word, now_s, LAST_KNOWN_S)
                if found is None:
                    raise
        if (
            found is not None
            and self.sign_on is not None
            and self.remote_user(request) not in (None, found.account.name)
        ):
            await self.keep(lambda: self.sessions.close(found))
            return None
        if found is not None and found.account.is_provider and self.trouble is None:
            await self.count_asked(now_s)
        return found

    async def count_asked(self, now_s: float) -> None:
        """Look how many accounts wait for approval, every few seconds."""
        if now_s - self._asked_s >= ASKED_S:
            self._asked_s = now_s
            self.asked = await self.keep(self.accounts.asked)

    def recount(self) -> None:
        """Recount the accounts that wait for approval, since their number has changed."""
        self._asked_s = float("-inf")

    def remote_user(self, request: Request) -> str | None:
        """Whom a trusted proxy with the right secret names; None where nobody is named so."""
        peer = request.client.host if request.client is not None else ""
        if self.sign_on is None or not self._trusts(peer):
            return None
        given = request.headers.get(REMOTE_SECRET, "")
        right = hmac.compare_digest(given.encode(), self.sign_on.secret.encode())
        names = request.headers.getlist(REMOTE_USER)
        return names[0] if right and len(names) == 1 and names[0] else None

    # --- passwords --------------------------------------------------------------------------------------------------

    async def check(self, request: Request, name: str, password: str, code: str | None = None) -> Account | Wait | None:
        """Return the account if the password is correct, the account may log in, and the `code` is correct if it has a
        second factor (None: not asked for). Return the wait time when too many were wrong. The answer is the same, and
        takes as long, for unknown names. Raises `TooBusy`."""
        now_s, where = self._clock.now_s(), request.state.address
        account, stored = await self.keep(lambda: self.accounts.secret_of(name))
        since_s = now_s - KNOWN_ADDRESS_S
        trusted = account is not None and await self.keep(lambda: self.log.has_been_at(account.sender, where, since_s))
        wait_s = self._throttle.wait_s(name, where, trusted, now_s)
        if wait_s > 0.0:
            await self.refuse(request, account.sender if account else "", refusals.LOGIN, name)
            return Wait(wait_s)
        self._throttle.wrong(name, where, now_s)  # counts while it is checked: many at once gain nothing
        try:
            right = await self.hasher.check(password, stored, network_of(where), trusted)
        except TooBusy:
            self._throttle.unchecked(name, where)
            raise
        if not right or account is None or account.state is not State.ACTIVE:
            await self.note(request, account.sender if account else "", "login", subject=name, done=False)
            return None
        if account.has_factor and code is not None:
            given = code  # for the type checker
            if not await self.keep(lambda: self.accounts.use_code(name, given, now_s)):
                await self.note(request, account.sender, "login", subject=name, done=False, detail="the code is wrong")
                return None
        self._throttle.right(name, where)
        return account

    async def remote(self, request: Request) -> Account | None:
        """Return the account that a trusted proxy names, when it may log in."""
        name = self.remote_user(request)
        if name is None:
            return None
        found = await self.keep(lambda: self.accounts.find(name))
        return found if found is not None and found.state is State.ACTIVE else None

    def must_enrol(self, session: Session) -> bool:
        """Return whether a session may only be used to set up a second factor."""
        return self._second_factor and session.account.is_provider and not session.strong

    async def let_in(self, request: Request, account: Account, answer: Response, *, strong: bool) -> Response:
        """Begin a session, a new one in any case, and let the answer carry it. `strong`: as of `Session`."""
        now_s = self._clock.now_s()
        old = request.cookies.get(COOKIE, "")
        before = await self.keep(lambda: self.sessions.find(old, now_s)) if old else None
        if before is not None:
            await self.keep(lambda: self.sessions.close(before))
        word = await self.keep(lambda: self.sessions.open(account, request.state.address, now_s, strong))
        await self.note(request, account.sender, "login")
        answer.set_cookie(
            COOKIE, word, max_age=int(self.absolute_s), path="/", secure=True, httponly=True, samesite="lax"
        )
        return answer

    async def let_out(self, request: Request, session: Session, answer: Response) -> Response:
        """End a session."""
        await self.keep(lambda: self.sessions.close(session))
        await self.note(request, session.account.sender, "logout")
        answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return answer

    def close(self) -> None:
        """End the threads."""
        self.hasher.close()
        self._threads.close()
