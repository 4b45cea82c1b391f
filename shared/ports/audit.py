"""What is recorded of a request that changes something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Audited:
    """Somebody asked for a change: done, or refused with `code`; to be kept with the history. `account`: for whom it
    was asked, `via`: the broker's user who asked, `subject`: what it is about. `detail`: what exactly was asked, and in
    words why it was refused."""

    at_s: float
    account: str
    via: str
    request: str
    kind: str
    subject: str
    why: str
    done: bool
    code: str = ""
    detail: str = ""
