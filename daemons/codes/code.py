"""What is known about one code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Where a code comes from. One code may have several kinds, such as an event and an alarm."""

    EVENT = "event"
    ALARM = "alarm"
    REASON = "reason"  # of a change in a decision, or of none
    REFUSAL = "refusal"  # of a request to the controller
    OUTCOME = "outcome"  # of an action on a VM
    GUEST_CHANGE = "guest change"
    VERDICT = "verdict"  # on a reservation, or on a request for units under one
    ERROR = "error"
    EXIT_STATUS = "exit status"


@dataclass(frozen=True, slots=True)
class Code:
    """One code of one kind. meaning, action: sentences; action is what an operator can do ("": nothing, or nothing is
    needed). command: the next command, with words in capitals for names ("": none helps). group: the heading in the
    reference. about: the subject of an event, the class of an error. page: of the documentation, relative to its root
    ("": only the reference describes it)."""

    code: str
    kind: Kind
    meaning: str
    action: str
    command: str
    group: str
    about: str
    page: str

    def to_json(self) -> dict[str, str]:
        """Return the keys of `trimtab explain`."""
        return {
            "kind": self.kind.value,
            "meaning": self.meaning,
            "action": self.action,
            "command": self.command,
            "about": self.about,
            "page": self.page,
        }


def codes(kind: Kind, group: str, *rows: tuple[str, ...], about: str = "") -> tuple[Code, ...]:
    """Codes of one kind and group, one a row: code, meaning, and optionally action, command, page."""
    made = []
    for row in rows:
        code, meaning, action, command, page = (*row, "", "", "")[:5]
        made.append(
            Code(
                code=code,
                kind=kind,
                meaning=meaning,
                action=action,
                command=command,
                group=group,
                about=about,
                page=page,
            )
        )
    return tuple(made)
