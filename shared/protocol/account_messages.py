"""What is asked on behalf of an account, and what asks for a reason or for an opinion, as messages of the bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shared.base.errors import InvalidValue
from shared.values.texts import Prose, Word

WHY_LENGTH_MAX = 500  # characters of a reason
ACCOUNT_LENGTH_MAX = 160  # characters of an account: a role, a dot and a name


def _check_length(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidValue(field, f"a text of {len(text)}", f"at most {most} characters")


@dataclass(frozen=True, slots=True)
class RejectPlan:
    """Drop the cycle decision that waits (automation level `confirm`). What it held is not proposed again until
    something of substance has changed, see docs/how-to/plans.md; `why` is kept with it (at most 500 characters)."""

    KIND: ClassVar[str] = "reject-plan"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    decision: int
    why: Prose = ""

    def __post_init__(self) -> None:
        _check_length("why", self.why, WHY_LENGTH_MAX)


@dataclass(frozen=True, slots=True)
class Assess:
    """Ask what the policies think of a change by hand; nothing is carried out or stored. `kind`: "migrate" (`subject` a
    VM, `node` where to), "suspend" or "resume" (a job), "drain" (a node). The answer is in `Reply.data`."""

    KIND: ClassVar[str] = "assess"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    kind: str
    subject: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """A request on behalf of an account, such as "owner.acme", with a reason (at most 500 characters). `request` is the
    inner request's id, `body` the encoded inner request (`daemons.access.delegation`). Every sender may act for itself.
    Only a portal's user may act for others, and it may send nothing else. Answered as the inner request is."""

    KIND: ClassVar[str] = "on-behalf"
    VERSION: ClassVar[int] = 1
    OLDEST: ClassVar[int] = 1

    request: Word
    account: Word
    why: Prose
    body: bytes

    def __post_init__(self) -> None:
        _check_length("account", self.account, ACCOUNT_LENGTH_MAX)
        _check_length("why", self.why, WHY_LENGTH_MAX)
