"""Notifications as a feature of the controller."""

from __future__ import annotations

from collections.abc import Iterable

from daemons.controller.contract.feature import Alarm, Caller, Feature, Refused
from daemons.controller.notifications.rules import Alarms, Ask, NotificationRules
from daemons.controller.notifications.views import notification_alarms, notifications_view
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.notifications import NoticeState, NotificationRecord
from daemons.values.replies import unknown
from daemons.values.settings import ControllerSettings
from daemons.values.view_format import Row
from shared.ports.notices import Notified
from shared.protocol.operator_messages import DropNotification, Query, RetryNotification, TryChannel


class NotificationsFeature(Feature):
    """Notifies people and programs of what happens. `alarms`: the current alarms of the whole cluster."""

    def __init__(self, unit_of_work: UnitOfWork, settings: ControllerSettings, alarms: Alarms) -> None:
        self.rules = NotificationRules(unit_of_work, settings, alarms)
        self.requests = {RetryNotification: self._handle, DropNotification: self._handle, TryChannel: self._handle}
        self.answers = {Notified: self.rules.notified}
        self.records = {NotificationRecord: lambda record, _now_s: self.rules.load(record)}
        self.views = {"notifications": self._view}

    def _handle(self, request: Ask, _caller: Caller, now_s: float) -> Refused:
        return self.rules.handle(request, now_s)

    def restore(self, now_s: float) -> None:
        """Go on with what waits to be sent."""
        self.rules.loaded(now_s)

    def commit(self, now_s: float) -> None:
        """Look at alarms when that is due, and have sent what is."""
        self.rules.run(now_s)

    def next_due_s(self) -> float:
        """Return when a message must be sent or alarms must be checked next."""
        return self.rules.next_due_s()

    def alarms(self, now_s: float) -> Iterable[Alarm]:
        """Channels with notifications that were given up."""
        return notification_alarms(self.rules, now_s)

    def _view(self, query: Query, _cluster: Cluster, _now_s: float) -> Row | Refused:
        """Return the notifications of all channels; the subject limits them to one state."""
        if query.subject not in ("", *NoticeState):
            return "invalid-value", unknown("state", query.subject, NoticeState)
        return notifications_view(self.rules, query.subject, query.limit)
