"""Messages that must arrive: each is published again until the broker confirms it."""

from __future__ import annotations

from dataclasses import dataclass

from shared.ports.effects import Effect, Publish, StartTimer
from shared.protocol import topology
from shared.protocol.messages import GuestEvent, Result, SetUpAnswer, SleepAnswer, StandardJobEnded

TIMER = "publish"
Key = str | int  # an action's id, an event's number, or `sleep:`, `setup:` or `standard:` and the id of a request
Load = Result | GuestEvent | SleepAnswer | SetUpAnswer | StandardJobEnded


@dataclass(frozen=True, slots=True)
class _Sent:
    key: Key
    message: Load
    at_s: float


class Outbox:
    """Unconfirmed results, guest events and answers, oldest first.

    Every publishing has an id of its own, growing within the life of the process; only the last one of a message
    counts. It holds no more than the orders and guests of one silence of the broker. The timer is armed while
    anything is unconfirmed and left to run out otherwise: a firing costs less than stopping it after each confirm.
    """

    __slots__ = ("_armed", "_last_id", "_open", "_retry_s", "_sent")

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._last_id = 0
        self._open: dict[Key, int] = {}
        self._sent: dict[int, _Sent] = {}
        self._armed = False

    def __len__(self) -> int:
        """Return the number of unconfirmed messages."""
        return len(self._sent)

    def send(self, key: Key, message: Load, now_s: float, effects: list[Effect]) -> None:
        """Publish a message (again), until confirmed."""
        self.drop(key)
        self._last_id = number = self._last_id + 1
        self._open[key] = number
        self._sent[number] = _Sent(key, message, now_s)
        effects.append(Publish(topology.RESULTS, topology.CONTROLLER_QUEUE, message, number))
        if not self._armed:
            self._armed = True
            effects.append(StartTimer(TIMER, now_s + self._retry_s))

    def confirm(self, publish_id: int, ok: bool) -> Key | None:
        """Handle the broker's answer; return the key of what has now arrived. A refused message waits for the next
        retry."""
        if not ok or publish_id not in self._sent:
            return None
        key = self._sent.pop(publish_id).key
        del self._open[key]
        return key

    def drop(self, key: Key) -> None:
        """Stop publishing a message; nothing happens when it is not here."""
        number = self._open.pop(key, None)
        if number is not None:
            del self._sent[number]

    def fire(self, now_s: float) -> list[Effect]:
        """Handle the due timer: publish again what has waited long enough."""
        self._armed = True  # set once below, for what is then the oldest
        effects = self._again([sent for sent in self._sent.values() if sent.at_s + self._retry_s <= now_s], now_s)
        self._armed = bool(self._sent)
        if self._armed:
            effects.append(StartTimer(TIMER, next(iter(self._sent.values())).at_s + self._retry_s))
        return effects

    def resend(self, now_s: float) -> list[Effect]:
        """Publish everything unconfirmed again, in order, on a new connection."""
        return self._again(list(self._sent.values()), now_s)

    def _again(self, due: list[_Sent], now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for sent in due:
            self.send(sent.key, sent.message, now_s, effects)
        return effects
