"""What the portal itself notes: logins and changes of accounts. What people do to the cluster is in the controller's
audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, insert, select

from daemons.portal.auth.schema import Base, log
from shared.runtime.logs import get_logger

DETAIL_LENGTH_MAX = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done or tried. `account`: who did it, as on the bus, or whose password was tried; "" where
    there is none of that name. `what`: a stable code (`login`, `account-approve`). `subject`: what it is about, of a
    failed login what was typed."""

    at_s: float
    account: str
    address: str
    what: str
    subject: str = ""
    why: str = ""
    done: bool = True
    detail: str = ""


class Log:
    """The log in a store. Methods block and may raise `StoreUnavailable`."""

    def __init__(self, base: Base, keep_s: float) -> None:
        self._base, self._keep_s = base, keep_s
        self._pruned_s = 0.0

    def note(self, entry: Entry) -> None:
        """Keep an entry, also in the program's log; what is too old goes, once a day."""
        get_logger("portal").info(
            entry.what, account=entry.account, address=entry.address, subject=entry.subject, done=entry.done
        )
        values = {name: getattr(entry, name) for name in Entry.__slots__}
        for name in ("account", "subject", "why", "detail"):
            values[name] = values[name].replace("\0", "")[:DETAIL_LENGTH_MAX]
        with self._base.writing() as connection:
            connection.execute(insert(log).values(**values))
            if entry.at_s - self._pruned_s > 86_400.0:
                self._pruned_s = entry.at_s
                connection.execute(delete(log).where(log.c.at_s < entry.at_s - self._keep_s))

    def has_been_at(self, account: str, address: str, since_s: float) -> bool:
        """Return whether an account has logged in from an address since a moment."""
        same = (log.c.account == account) & (log.c.address == address) & (log.c.at_s >= since_s)
        wanted = select(log.c.id).where(same & (log.c.what == "login") & log.c.done).limit(1)
        with self._base.reading() as connection:
            return connection.execute(wanted).first() is not None

    def of(self, account: str, since_s: float, limit: int = 20) -> tuple[Entry, ...]:
        """Return the newest entries of an account since a moment, newest first."""
        wanted = select(log).where((log.c.account == account) & (log.c.at_s >= since_s))
        return self._found(wanted.order_by(log.c.at_s.desc(), log.c.id.desc()).limit(limit))

    def entries(self, from_s: float, to_s: float, limit: int = 1000) -> tuple[Entry, ...]:
        """Return the newest entries of a span (half-open, UTC epoch seconds), newest first."""
        span = (log.c.at_s >= from_s) & (log.c.at_s < to_s)
        return self._found(select(log).where(span).order_by(log.c.at_s.desc(), log.c.id.desc()).limit(limit))

    def _found(self, wanted: Select[Any]) -> tuple[Entry, ...]:
        with self._base.reading() as connection:
            rows = connection.execute(wanted).all()
        return tuple(
            Entry(
                r.at_s,
                r.account,
                r.address,
                what=r.what,
                subject=r.subject,
                why=r.why,
                done=bool(r.done),
                detail=r.detail,
            )
            for r in rows
        )
