"""What is refused, gathered for the log: the first of a kind at once, the others of a while as one entry. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from daemons.portal.auth.audit_log import Entry

GATHER_S = 60.0
KINDS_MAX = 1_000  # gathered at a time; beyond that the oldest are reported early

PAGE, FORM, LOGIN = "refused-page", "refused-form", "refused-login"


@dataclass(slots=True)
class _Gathered:
    first: Entry
    more: int = 0


class Refusals:
    """By account, address, kind and, where there is an account, subject."""

    def __init__(self) -> None:
        self._gathered: OrderedDict[tuple[str, str, str, str], _Gathered] = OrderedDict()

    def add(self, entry: Entry) -> tuple[Entry, ...]:
        """Collect one refusal; return the entries to record now."""
        due = self.due(entry.at_s)
        key = (entry.account, entry.address, entry.what, entry.subject if entry.account else "")
        found = self._gathered.get(key)
        if found is not None:
            found.more += 1
            return due
        self._gathered[key] = _Gathered(entry)
        while len(self._gathered) > KINDS_MAX:
            due += self._told()
        return (*due, entry)

    def due(self, now_s: float = float("inf")) -> tuple[Entry, ...]:
        """Return the refusals collected for `GATHER_S`; all of them without a time."""
        due: tuple[Entry, ...] = ()
        while self._gathered and now_s - next(iter(self._gathered.values())).first.at_s >= GATHER_S:
            due += self._told()
        return due

    def _told(self) -> tuple[Entry, ...]:
        _, oldest = self._gathered.popitem(last=False)
        first, more = oldest.first, oldest.more
        detail = f"{more} more within {GATHER_S:g} s" if more > 1 else f"one more within {GATHER_S:g} s"
        return (replace(first, at_s=first.at_s + GATHER_S, detail=detail),) if more else ()
