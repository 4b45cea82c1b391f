"""A message in words and in JSON. Names in it are chosen by users: they are text and nothing else."""

from __future__ import annotations

import json
from typing import Any

from shared.ports.notices import Notice, Notify
from shared.values.utc import utc_text

SUBJECT_MAX = 150  # characters
VERSION = 1
_KINDS = {"alarm": "alarm", "cleared": "cleared"}


def subject_line(message: Notify) -> str:
    """Return one printable line that names the subject."""
    first, more = message.notices[0], len(message.notices) - 1
    line = f"[{message.cluster}] {_head(first)}" + (f" and {more} more" if more else "")
    return _printable(line if len(line) <= SUBJECT_MAX else line[: SUBJECT_MAX - 3] + "...")


def body_text(message: Notify) -> str:
    """Return a line for each notification, times in UTC."""
    return "\n".join(_printable(_line(notice)) for notice in message.notices) + "\n"


def as_json(message: Notify) -> bytes:
    """Return the whole message for programs (docs/how-to/notifications.md): the same bytes each time that it is
    sent."""
    table = {
        "version": VERSION,
        "id": message.message,
        "cluster": message.cluster,
        "channel": message.channel,
        "subject": subject_line(message),
        "text": body_text(message),
        "notices": [_table(notice) for notice in message.notices],
    }
    return json.dumps(table, ensure_ascii=True, allow_nan=False).encode("ascii")


def _table(notice: Notice) -> dict[str, Any]:
    kind, what = _parts(notice)
    return {
        "id": notice.id,
        "at": utc_text(notice.at_s),
        "at_s": notice.at_s,
        "kind": kind,
        "what": what,
        "subject": notice.subject,
        "detail": notice.detail,
    }


def _parts(notice: Notice) -> tuple[str, str]:
    """Return its kind and its code."""
    head, colon, code = notice.what.partition(":")
    if colon and head in _KINDS:
        return _KINDS[head], code
    return ("test" if notice.what == "test" else "event"), notice.what


def _head(notice: Notice) -> str:
    kind, what = _parts(notice)
    return f"{what} {notice.subject}" if kind in ("event", "test") else f"{kind}: {what} {notice.subject}"


def _line(notice: Notice) -> str:
    return f"{utc_text(notice.at_s)}  {_head(notice)}" + (f"  {notice.detail}" if notice.detail else "")


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)
