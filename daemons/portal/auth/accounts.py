"""Accounts of the portal: people with a role of the bus, kept in the portal's own store.

Somebody requests an account, and a provider approves or refuses it. A forgotten password is reset through a link that
works once. All methods block and may raise `StoreUnavailable`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from daemons.access.identity import Role
from daemons.portal.auth import totp
from daemons.portal.auth.schema import Base, accounts, sessions
from shared.base.errors import InvalidInput, InvalidValue, PermanentError, Problem
from shared.protocol import topology
from shared.values.scalars import check_name

TEXT_LENGTH_MAX = 500
ASKED_MAX = 200  # accounts that wait for approval; more are not taken
ASKED_OF_ADDRESS_MAX = 5  # of these, asked for from one network
LINK_S = 24 * 3600.0
LAST = "This is the only provider that can log in. Create another provider first."
NAME_LENGTH_MAX = 64

PREFIX = {
    Role.PROVIDER: topology.OPERATOR_USER_PREFIX,
    Role.OWNER: topology.OWNER_USER_PREFIX,
    Role.USER: topology.USER_USER_PREFIX,
}


class State(StrEnum):
    """What an account may do: wait for approval, log in, nothing."""

    ASKED = "asked"
    ACTIVE = "active"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody who logs in. `contact`, `why`: what was said when it was asked for; `address`: the network from which.
    has_factor: a second factor is asked for at its login."""

    name: str
    role: Role
    state: State = State.ACTIVE
    made_s: float = 0.0
    contact: str = ""
    why: str = ""
    address: str = ""
    has_factor: bool = False

    @property
    def sender(self) -> str:
        """Who it is on the bus: "operator.jane", "owner.acme", "user.bob"."""
        return PREFIX[self.role] + self.name

    @property
    def is_provider(self) -> bool:
        """Whether it may see and do everything."""
        return self.role is Role.PROVIDER


class NameTaken(InvalidInput):
    """Somebody else has the name."""


class LastProvider(PermanentError):
    """Without this account no provider could log in."""

    code = "last-provider"


class Accounts:
    """The accounts in a store. `asked_max` of them may wait for approval."""

    def __init__(self, base: Base, asked_max: int = ASKED_MAX) -> None:
        self._base, self._asked_max = base, asked_max

    def find(self, name: str) -> Account | None:
        """Find the account of a name."""
        return self._found(name)[0]

    def secret_of(self, name: str) -> tuple[Account | None, str]:
        """Return an account and the hash of its password; None and "" if there is none."""
        return self._found(name)

    def _found(self, name: str) -> tuple[Account | None, str]:
        if len(name) > NAME_LENGTH_MAX or "\0" in name:
            return None, ""
        with self._base.reading() as connection:
            row = connection.execute(select(accounts).where(accounts.c.name == name)).first()
        return (None, "") if row is None else (_account(row), row.password)

    def all(self) -> tuple[Account, ...]:
        """Return every account, first those that wait for approval, then by name."""
        with self._base.reading() as connection:
            rows = connection.execute(select(accounts)).all()
        made = [_account(row) for row in rows]
        return tuple(sorted(made, key=lambda one: (one.state is not State.ASKED, one.name)))

    def asked(self) -> int:
        """Return the number of accounts that wait for approval."""
        return self.asked_from().total()

    def asked_from(self) -> Counter[str]:
        """Return the number of accounts that wait for approval, by the network of the request."""
        with self._base.reading() as connection:
            rows = connection.execute(select(accounts.c.address).where(accounts.c.state == State.ASKED.value)).all()
        return Counter(row.address for row in rows)

    def refuse_from(self, address: str) -> tuple[str, ...]:
        """Delete every account that waits and was asked for from a network; their names."""
        waiting = (accounts.c.state == State.ASKED.value) & (accounts.c.address == address)
        with self._base.writing() as connection:
            names = [row.name for row in connection.execute(select(accounts.c.name).where(waiting))]
            connection.execute(delete(accounts).where(waiting))
        return tuple(names)

    def add(
        self,
        name: str,
        role: Role,
        password: str,
        state: State,
        at_s: float,
        contact: str = "",
        why: str = "",
        address: str = "",
    ) -> Account:
        """Make an account; `password`: its hash, `address`: the network from which it is asked for. Raises
        `InvalidInput` for a name that is none, a text that is too long, and too many that wait, `NameTaken`."""
        account = Account(
            _name(name),
            role,
            state,
            made_s=at_s,
            contact=_text("contact", contact),
            why=_text("why", why),
            address=address,
        )
        if state is State.ASKED:
            waiting = self.asked_from()
            if waiting.total() >= self._asked_max or waiting[address] >= ASKED_OF_ADDRESS_MAX:
                raise InvalidInput(Problem("name", "too many accounts wait for approval", "a later attempt"))
        with self._base.writing() as connection:
            if connection.execute(select(accounts.c.name).where(accounts.c.name == name)).first() is not None:
                raise NameTaken(Problem("name", f"{name!r} is taken", "another name"))
            connection.execute(
                insert(accounts).values(
                    name=name,
                    role=role.value,
                    state=state.value,
                    password=password,
                    made_s=at_s,
                    contact=account.contact,
                    why=account.why,
                    link="",
                    link_until_s=0.0,
                    address=address,
                )
            )
        return account

    def set_state(self, name: str, state: State, before: State | None = None, *, spare_last: bool = False) -> bool:
        """Change it, where it is `before` if that is given; False where nothing was changed. Sessions of an account
        that is no longer active end. With `spare_last` raises `LastProvider` where no provider could log in then."""
        change = update(accounts).where(accounts.c.name == name)
        if before is not None:
            change = change.where(accounts.c.state == before.value)
        with self._base.writing() as connection:
            if spare_last and state is not State.ACTIVE:
                _spare_last(connection, name)
            changed = connection.execute(change.values(state=state.value)).rowcount > 0
            if changed and state is not State.ACTIVE:
                connection.execute(delete(sessions).where(sessions.c.account == name))
        return changed

    def remove(self, name: str, before: State | None = None, *, spare_last: bool = False) -> bool:
        """Delete it with its sessions; False where there is none (in the state `before`). `spare_last`: see
        `set_state`."""
        gone = delete(accounts).where(accounts.c.name == name)
        if before is not None:
            gone = gone.where(accounts.c.state == before.value)
        with self._base.writing() as connection:
            if spare_last:
                _spare_last(connection, name)
            removed = connection.execute(gone).rowcount > 0
            if removed:
                connection.execute(delete(sessions).where(sessions.c.account == name))
        return removed

    def set_password(self, name: str, password: str) -> bool:
        """Set the hash of its password; its link and its sessions end."""
        change = update(accounts).where(accounts.c.name == name).values(password=password, link="", link_until_s=0.0)
        with self._base.writing() as connection:
            changed = connection.execute(change).rowcount > 0
            connection.execute(delete(sessions).where(sessions.c.account == name))
        return changed

    # --- second factors ---------------------------------------------------------------------------------------------

    def begin_factor(self, name: str) -> str:
        """Make a secret for codes, which counts from `confirm_factor` on."""
        secret = totp.new_secret()
        with self._base.writing() as connection:
            connection.execute(update(accounts).where(accounts.c.name == name).values(factor_new=secret))
        return secret

    def confirm_factor(self, name: str, code: str, now_s: float) -> bool:
        """Ask for codes of the secret made last, if this is one; the account's sessions end. False where it is none."""
        with self._base.writing() as connection:
            secret = connection.execute(select(accounts.c.factor_new).where(accounts.c.name == name)).scalar()
            step = totp.step_of(secret, code, now_s, 0) if secret else None
            if step is None:
                return False
            mine = (accounts.c.name == name) & (accounts.c.factor_new == secret)
            change = update(accounts).where(mine).values(factor=secret, factor_new="", factor_step=step)
            done = connection.execute(change).rowcount > 0
            connection.execute(delete(sessions).where(sessions.c.account == name))
        return done

    def use_code(self, name: str, code: str, now_s: float) -> bool:
        """Return whether the code is valid now, unused, and not older than the last one used; mark it as used."""
        with self._base.writing() as connection:
            row = connection.execute(select(accounts).where(accounts.c.name == name)).first()
            step = totp.step_of(row.factor, code, now_s, row.factor_step) if row is not None and row.factor else None
            if step is None:
                return False
            unused = (accounts.c.name == name) & (accounts.c.factor_step < step)
            return connection.execute(update(accounts).where(unused).values(factor_step=step)).rowcount > 0

    def forget_factor(self, name: str) -> bool:
        """Ask for no codes any more; sessions end. False where there is no such account."""
        change = update(accounts).where(accounts.c.name == name).values(factor="", factor_new="", factor_step=0)
        with self._base.writing() as connection:
            connection.execute(delete(sessions).where(sessions.c.account == name))
            return connection.execute(change).rowcount > 0

    # --- links that work once ---------------------------------------------------------------------------------------

    def make_link(self, name: str, now_s: float) -> str:
        """Return the secret for a link that sets a new password, valid for `LINK_S`; an earlier one is void, and
        sessions end. Raises `InvalidInput` when there is no such account."""
        word = secrets.token_urlsafe(32)
        change = update(accounts).where(accounts.c.name == name)
        with self._base.writing() as connection:
            done = connection.execute(change.values(link=digest(word), link_until_s=now_s + LINK_S)).rowcount
            connection.execute(delete(sessions).where(sessions.c.account == name))
        if not done:
            raise InvalidInput(Problem("name", f"account {name!r} does not exist"))
        return word

    def of_link(self, word: str, now_s: float) -> Account | None:
        """Whose link it is; None when it is nobody's, used or too old."""
        with self._base.reading() as connection:
            row = connection.execute(select(accounts).where(accounts.c.link == digest(word))).first()
        if row is None or not word or row.link_until_s < now_s or row.state == State.LOCKED.value:
            return None
        return _account(row)

    def use_link(self, word: str, password: str, now_s: float) -> Account | None:
        """Set the password (its hash) of whose link it is; None as `of_link`, also when another was faster."""
        account = self.of_link(word, now_s)
        if account is None:
            return None
        change = update(accounts).where((accounts.c.name == account.name) & (accounts.c.link == digest(word)))
        with self._base.writing() as connection:
            used = connection.execute(change.values(password=password, link="", link_until_s=0.0)).rowcount
            connection.execute(delete(sessions).where(sessions.c.account == account.name))
        return account if used else None


def _spare_last(connection: Connection, name: str) -> None:
    """Raise `LastProvider` if nobody but this account is a provider who can log in. Those who are stay so until the
    transaction is over: two who lock each other at once do it one after the other."""
    wanted = (accounts.c.role == Role.PROVIDER.value) & (accounts.c.state == State.ACTIVE.value)
    found = connection.execute(select(accounts.c.name).where(wanted).order_by(accounts.c.name).with_for_update())
    if [row.name for row in found] == [name]:
        raise LastProvider(LAST)


def digest(word: str) -> str:
    """Return the stored form of a secret word."""
    return hashlib.sha256(word.encode()).hexdigest()


def _account(row: Row[Any]) -> Account:
    return Account(
        row.name,
        Role(row.role),
        State(row.state),
        made_s=row.made_s,
        contact=row.contact,
        why=row.why,
        address=row.address,
        has_factor=bool(row.factor),
    )


def _name(name: str) -> str:
    try:
        check_name("name", name)
    except InvalidValue as error:
        raise InvalidInput(Problem("name", f"{name[:60]!r} cannot be a name", error.expected)) from error
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidInput(Problem("name", "is too long", f"at most {NAME_LENGTH_MAX} characters"))
    return name


def _text(where: str, text: str) -> str:
    if len(text) > TEXT_LENGTH_MAX or "\0" in text:
        raise InvalidInput(Problem(where, "is too long", f"at most {TEXT_LENGTH_MAX} characters"))
    return text
