"""Views of notifications; docs/reference/views.md lists the keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from daemons.controller.notifications.delivery import DeliveryQueues, count
from daemons.controller.notifications.rules import NotificationRules
from daemons.values.records.notifications import NotificationRecord

DROPPED_ALARM_S = 3_600.0  # how long it is told that there was no room


def notifications_view(notifying: NotificationRules, state: str, limit: int) -> dict[str, Any]:
    """Channels, and notifications newest first: all that wait or were given up, the last of those that are done."""
    boxes = notifying.boxes.values()
    rows = [
        record
        for box in boxes
        for letter in box.letters()
        if state in ("", letter.state.value)
        for record in letter.records()
    ]
    rows.sort(key=lambda record: record.at_s, reverse=True)
    return {
        "channels": [_channel(box, notifying.settings.channels[box.name]) for box in boxes],
        "total": len(rows),
        "notifications": [_row(record) for record in rows[:limit]],
    }


def _channel(box: DeliveryQueues, kind: str) -> dict[str, Any]:
    return {
        "name": box.name,
        "kind": kind,
        "waiting": count(box.waiting),
        "dead": count(box.dead),
        "dropped": box.dropped,
        "sending": box.flying is not None,
        "arrived_at_s": box.told_s,
        "error": box.error,
    }


def _row(record: NotificationRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "message": record.message,
        "at_s": record.at_s,
        "channel": record.channel,
        "what": record.what,
        "subject": record.subject,
        "detail": record.detail,
        "state": record.state,
        "tries": record.tries,
        "next_at_s": record.next_s,
        "error": record.error,
    }


def notification_alarms(notifying: NotificationRules, now_s: float) -> Iterable[tuple[str, str, float | None, str]]:
    """Channels with notifications that were given up, or for which there was no room of late."""
    for name, box in sorted(notifying.boxes.items()):
        dropped = box.dropped if box.dropped and now_s < box.dropped_s + DROPPED_ALARM_S else 0
        if not (box.dead or dropped):
            continue
        since_s = min((letter.since_s for letter in box.dead.values()), default=box.dropped_s)
        told = [f"{count(box.dead)} given up"] * bool(box.dead) + [f"no room for {dropped}"] * bool(dropped)
        yield "notifications-dead", name, since_s, ", ".join(told) + (f"; the last: {box.error}" if box.error else "")
