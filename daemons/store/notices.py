"""The notifications that a new leader loads."""

from __future__ import annotations

from sqlalchemy import Connection, or_, select

from daemons.store import schema
from daemons.values.records.notifications import NoticeState, NotificationRecord

OPEN_MAX = 20_000  # that wait or were given up
ALARMS_MAX = 5_000  # of those about alarms: what was told last of each says whether it is told again


def standing(connection: Connection) -> tuple[NotificationRecord, ...]:
    """Return the notifications that wait or were given up, and the newest about alarms, oldest first."""
    table = schema.notifications
    is_open = table.c.state.in_((NoticeState.WAITING.value, NoticeState.DEAD.value))
    of_alarms = or_(table.c.what.like("alarm:%"), table.c.what.like("cleared:%"))
    found: dict[str, NotificationRecord] = {}
    for condition, most in ((is_open, OPEN_MAX), (of_alarms, ALARMS_MAX)):
        rows = connection.execute(select(table).where(condition).order_by(table.c.at_s.desc()).limit(most)).mappings()
        found |= {row["id"]: NotificationRecord(**row) for row in rows}
    return tuple(sorted(found.values(), key=lambda record: (record.at_s, record.id)))
