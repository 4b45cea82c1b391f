"""All codes together: finding one, the nearest to a wrong spelling, and the hint that goes with a refusal."""

from __future__ import annotations

from difflib import get_close_matches

from daemons.codes.alarms import ALARMS
from daemons.codes.code import Code, Kind
from daemons.codes.errors import ERRORS, STATUSES
from daemons.codes.events import EVENTS
from daemons.codes.outcomes import GUEST_CHANGES, OUTCOMES, VERDICTS
from daemons.codes.reasons import REASONS
from daemons.codes.refusals import REFUSALS

ALL: tuple[Code, ...] = (
    *EVENTS,
    *ALARMS,
    *REASONS,
    *REFUSALS,
    *OUTCOMES,
    *GUEST_CHANGES,
    *VERDICTS,
    *ERRORS,
    *STATUSES,
)
ALARM_PREFIXES = ("alarm:", "cleared:")  # of alarms in rules and messages of notifications
NEAREST_MAX = 5


def names() -> tuple[str, ...]:
    """Return every code once, sorted."""
    return tuple(sorted({each.code for each in ALL}))


def find(text: str) -> tuple[Code, ...]:
    """Return what a code means, one entry for each kind; of an alarm alone after `alarm:`. Empty if there is none."""
    for prefix in ALARM_PREFIXES:
        if text.startswith(prefix):
            return tuple(each for each in ALARMS if each.code == text.removeprefix(prefix))
    return tuple(each for each in ALL if each.code == text)


def nearest(text: str) -> tuple[str, ...]:
    """Return codes that are spelled like `text`, the nearest first, at most NEAREST_MAX; those that contain it last."""
    known = names()
    close = get_close_matches(text, known, NEAREST_MAX, 0.6)
    inside = (code for code in known if text and text in code)
    return tuple(dict.fromkeys((*close, *inside)))[:NEAREST_MAX]


def hint(code: str, kind: Kind) -> str:
    """Return what to do next about a refusal or an error, in one line ("": nothing is known that helps)."""
    found = next((each for each in ALL if each.code == code and each.kind is kind), None)
    if found is None:
        return ""
    return " ".join(part for part in (found.action, f"Run: {found.command}" if found.command else "") if part)
