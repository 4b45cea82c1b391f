"""Leadership. A controller probes the controllers' queue. It leads when its own probe comes back, which only the active
consumer can see; it then raises the term in the store (docs/explanation/leadership.md)."""

from __future__ import annotations

import math
from enum import StrEnum

from shared.ports.effects import Acknowledge, Effect, Exit, LeadTaken, Publish, Received, StartTimer, TakeLead
from shared.protocol import topology
from shared.protocol.account_messages import OnBehalf
from shared.protocol.messages import Probe
from shared.protocol.operator_messages import Request

PROBES_MISSED_MAX = 3
STORELESS_MAX_S = 30.0


class Role(StrEnum):
    """Where a controller stands."""

    STANDBY = "standby"
    TAKING = "taking"  # its probe came back; the store is being asked for the term
    LEADING = "leading"


class Backlog:
    """What has come in and could not be dealt with yet, oldest first. A request that is sent again while it waits stays
    one: the newer delivery takes the place of the older."""

    def __init__(self) -> None:
        self._waiting: dict[object, Received] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, received: Received) -> list[Effect]:
        """Have it wait; returns what goes to whom it takes the place of."""
        message = received.message
        key: object = received.delivery
        if isinstance(message, Request | OnBehalf):
            asked = (received.sender, received.reply_to, message.request)
            before = self._waiting.get(asked)
            if before is None or before.message == message:
                key = asked
        older = self._waiting.get(key)
        self._waiting[key] = received
        return [Acknowledge(older.delivery)] if older is not None and older.delivery is not None else []

    def take(self) -> Received | None:
        """Remove and return the oldest message; None when none waits."""
        return self._waiting.pop(next(iter(self._waiting))) if self._waiting else None


class Leadership:
    """The probe, and the leadership that it decides."""

    def __init__(self, name: str, probe_s: float) -> None:
        self.name, self.probe_s = name, probe_s
        self.role = Role.STANDBY
        self.term = 0
        self._number = 0
        self._due_s = math.inf  # when the next probe is to be sent
        self._returned_s = 0.0
        self._storeless_s: float | None = None  # since when the term is ours to raise and the store does not answer

    def probe(self, now_s: float) -> list[Effect]:
        """Send the next probe. A leader whose probes no longer come back is no longer the active consumer.

        Time by which a probe was overdue beyond one period does not count: a controller that was busy or frozen for
        that long has not read what came back meanwhile.
        """
        late_s = now_s - self._due_s
        if late_s > self.probe_s:
            self._returned_s += late_s
        if self.role is Role.LEADING and self._lapsed(now_s):
            return [Exit(f"no probe of {self.name} has come back for {now_s - self._returned_s:.0f} s")]
        self._number += 1
        probe, self._due_s = Probe(self.name, self._number), now_s + self.probe_s
        return [Publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, probe), StartTimer("probe", self._due_s)]

    def returned(self, received: Received, probe: Probe, now_s: float) -> list[Effect]:
        """Handle a probe that came out of the queue. Only a probe that this process sent counts."""
        effects: list[Effect] = [Acknowledge(received.delivery)] if received.delivery is not None else []
        if probe.controller == self.name and received.sender == topology.CONTROLLER_USER_PREFIX + self.name:
            if self._lapsed(now_s):
                self._storeless_s = None  # the lead was another's meanwhile
            self._returned_s = now_s
            if self.role is Role.STANDBY:
                effects.append(self._take(now_s))
        return effects

    def heard(self, arrived_s: float) -> None:
        """Note a delivery of the controllers' queue at `arrived_s`. Only the active consumer gets any: a leader with
        many messages to read stays leader although its own probe waits behind them."""
        if self.role is Role.LEADING:
            self._returned_s = max(self._returned_s, arrived_s)

    def _lapsed(self, now_s: float) -> bool:
        return now_s - self._returned_s > PROBES_MISSED_MAX * self.probe_s + self.probe_s / 2

    def _take(self, now_s: float) -> Effect:
        """Raise the term. Exit if the store has not answered for too long: a controller that has the queue and cannot
        use it blocks one that could."""
        if self._storeless_s is not None and now_s - self._storeless_s > STORELESS_MAX_S:
            return Exit(f"the store has not answered for {now_s - self._storeless_s:.0f} s: another may reach it")
        self.role = Role.TAKING
        return TakeLead(self.name)

    def taken(self, answer: LeadTaken, now_s: float) -> bool:
        """Handle the store's answer. False: the store was unreachable, and the next probe retries."""
        if answer.term <= 0:
            self.role = Role.STANDBY
            if self._storeless_s is None:
                self._storeless_s = now_s
            return False
        self.role, self.term = Role.LEADING, answer.term
        self._returned_s = now_s
        return True
