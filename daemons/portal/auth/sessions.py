"""Who is logged in: sessions in the portal's store, each known by a random word of 256 bits that the browser has."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from daemons.portal.auth.accounts import Account, Accounts, State, digest
from daemons.portal.auth.schema import Base, sessions

if TYPE_CHECKING:
    pass


COOKIE = "__Host-trimtab"
SEEN_S = 2.0  # how long what was read of a session is believed: what another process ends is over after that
TOUCH_S = 60.0  # how exactly the store knows when a session was last used
KNOWN_MAX = 5_000
OF_ACCOUNT_MAX = 20  # more sessions of one account end its oldest


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is logged in. `csrf`: what each of its forms must hold; `strong`: with a second factor, or by a
    proxy that answers for it."""

    account: Account
    id: str
    csrf: str
    made_s: float
    address: str
    strong: bool


@dataclass(frozen=True, slots=True)
class Open:
    """A session as its account sees it; times are UTC epoch seconds."""

    id: str
    address: str
    made_s: float
    used_s: float


@dataclass(slots=True)
class _Known:
    session: Session
    read_s: float
    used_s: float
    stored_s: float


class Sessions:
    """The sessions in a store: over `idle_s` after the last request, and `absolute_s` after the login in any case.

    Methods block and may raise `StoreUnavailable`, but `known`, which looks at what was read before.
    """

    def __init__(self, base: Base, accounts: Accounts, idle_s: float, absolute_s: float) -> None:
        self._base, self._accounts = base, accounts
        self._idle_s, self._absolute_s = idle_s, absolute_s
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def open(self, account: Account, address: str, now_s: float, strong: bool = False) -> str:
        """Log somebody in; what the cookie is to hold. `strong`: as of `Session`."""
        word = secrets.token_urlsafe(32)
        with self._base.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.made_s < now_s - self._absolute_s))
            mine = select(sessions.c.id).where(sessions.c.account == account.name).order_by(sessions.c.made_s.desc())
            old = [row.id for row in connection.execute(mine.offset(OF_ACCOUNT_MAX - 1))]
            connection.execute(delete(sessions).where(sessions.c.id.in_(old)))
            values = {"id": digest(word), "account": account.name, "address": address, "strong": strong}
            connection.execute(insert(sessions).values(**values, made_s=now_s, used_s=now_s))
        return word

    def known(self, word: str, now_s: float, used: bool = True) -> Session | None:
        """Return the session of a word, if it was read a moment ago. `used`: by a person, not by a page that follows
        changes."""
        known = self._known.get(digest(word))
        if known is None or not 0.0 <= now_s - known.read_s < SEEN_S or (used and now_s - known.stored_s >= TOUCH_S):
            return None
        known.used_s = now_s if used else known.used_s
        return known.session

    def find(self, word: str, now_s: float, used: bool = True) -> Session | None:
        """Return the session of a word; None when it is over, or its account may not log in any more. `used`: as in
        `known`."""
        key = digest(word)
        with self._base.reading() as connection:
            row = connection.execute(select(sessions).where(sessions.c.id == key)).first()
        if row is None:
            self._known.pop(key, None)
            return None
        earlier = self._known.get(key)
        used_s = max(row.used_s, earlier.used_s if earlier else 0.0)
        account = self._accounts.find(row.account)
        over = now_s - used_s > self._idle_s or now_s - row.made_s > self._absolute_s
        if over or account is None or account.state is not State.ACTIVE:
            self._end(key)
            return None
        session = Session(account, key, _csrf(word), row.made_s, row.address, bool(row.strong))
        stored_s = self._touch(key, row.used_s, now_s) if used else row.used_s
        self._keep(key, _Known(session, now_s, now_s if used else used_s, stored_s))
        return session

    def _touch(self, key: str, stored_s: float, now_s: float) -> float:
        """Store when it was used, unless that is nearly known; what is known then."""
        if now_s - stored_s < TOUCH_S:
            return stored_s
        with self._base.writing() as connection:
            connection.execute(update(sessions).where(sessions.c.id == key).values(used_s=now_s))
        return now_s

    def _keep(self, key: str, known: _Known) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def last_known(self, word: str, now_s: float, within_s: float) -> Session | None:
        """Return the session of a word as of the store's last answer, at most `within_s` ago."""
        known = self._known.get(digest(word))
        return known.session if known and now_s - known.read_s <= within_s else None

    def count(self, now_s: float) -> int:
        """Return the number of sessions that have not ended."""
        with self._base.reading() as connection:
            found = connection.execute(select(func.count()).select_from(sessions).where(self._used(now_s)))
            return found.scalar_one()

    def of(self, account: str, now_s: float) -> tuple[Open, ...]:
        """Return the open sessions of an account, newest first; the time of their last use is accurate to `TOUCH_S`."""
        mine = select(sessions).where(self._used(now_s) & (sessions.c.account == account))
        with self._base.reading() as connection:
            rows = connection.execute(mine.order_by(sessions.c.made_s.desc())).all()
        return tuple(Open(row.id, row.address, row.made_s, row.used_s) for row in rows)

    def _used(self, now_s: float) -> ColumnElement[bool]:
        return (sessions.c.used_s >= now_s - self._idle_s) & (sessions.c.made_s >= now_s - self._absolute_s)

    def close(self, session: Session) -> None:
        """Log out."""
        self._end(session.id)

    def end(self, account: str, ids: Collection[str]) -> int:
        """End some sessions of an account; how many there were."""
        for key in ids:
            self._known.pop(key, None)
        mine = (sessions.c.account == account) & sessions.c.id.in_(ids)
        with self._base.writing() as connection:
            return connection.execute(delete(sessions).where(mine)).rowcount

    def close_all(self, account: str) -> None:
        """Log somebody out everywhere."""
        self.forget(account)
        with self._base.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.account == account))

    def forget(self, account: str) -> None:
        """Forget the cached sessions of an account, since the account has changed."""
        for key in [key for key, known in list(self._known.items()) if known.session.account.name == account]:
            self._known.pop(key, None)

    def _end(self, key: str) -> None:
        self._known.pop(key, None)
        with self._base.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.id == key))


def _csrf(word: str) -> str:
    return hmac.new(word.encode(), b"form", hashlib.sha256).hexdigest()


def form_word(cookie: str) -> str:
    """Return the word that a form for somebody who is not logged in must hold, derived from the cookie that came with
    it."""
    return hmac.new(cookie.encode(), b"before login", hashlib.sha256).hexdigest()
