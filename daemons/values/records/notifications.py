"""What is kept of every notification: one row for each channel that it goes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NoticeState(StrEnum):
    """What became of a notification."""

    WAITING = "waiting"
    SENT = "sent"
    DEAD = "dead"  # given up; an operator may have it tried again
    DROPPED = "dropped"  # there was no room for it, or an operator does not want it


@dataclass(frozen=True, slots=True)
class NotificationRecord:
    """One notification over one channel. `id`: that of its message, a dot and its place there. `what`: the code of an
    event, or of an alarm after `alarm:` or, when it is over, `cleared:`. `next_s`: time of the next attempt (None:
    none). `error`: why the last attempt failed ("": none has)."""

    id: str
    at_s: float
    channel: str
    what: str
    subject: str
    detail: str
    state: str
    tries: int
    next_s: float | None
    error: str

    @property
    def key(self) -> tuple[str, str]:
        """Kind and id."""
        return ("notification", self.id)

    @property
    def message(self) -> str:
        """The id of the message that it goes with."""
        return message_of(self.id)


def message_of(notice: str) -> str:
    """Return the id of the message of a notification, by the notification's id or its own."""
    return notice.partition(".")[0]


def trial_id(request: str) -> str:
    """Return the id of the message of a `TryChannel`, by the id of that request."""
    return "test-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in request[:64])
