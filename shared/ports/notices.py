"""Notices to people and programs, as the controller's core passes them to its shell; part of `shared.ports.effects`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. `what`: the code of an event, or of an alarm after `alarm:` or, when it is over, `cleared:`, or
    `test`. Texts are one line each; names in them are chosen by users."""

    id: str
    at_s: float
    what: str
    subject: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Notify:
    """Send a message over a channel, which sends one at a time. Comes back as `Notified`. The same message may be sent
    more than once: `message` is its id. `tries`: the number of the attempt, from 1."""

    channel: str
    message: str
    cluster: str
    notices: tuple[Notice, ...]
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Notified:
    """Answer to `Notify`: the channel has taken the message (`ok`), or why not; `final`: trying again is no use. With
    `ok` a detail says what went wrong beside it. after_s: the receiver asks for nothing before so many seconds."""

    channel: str
    message: str
    ok: bool
    final: bool = False
    detail: str = ""
    after_s: float = 0.0
