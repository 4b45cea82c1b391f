"""The messages for one channel: those that wait, the one in delivery, and those that were given up.

Only one message is in delivery at a time: a channel that does not answer delays only itself. The numbers of waiting and
given-up messages are limited; the oldest are dropped first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

from daemons.values.records.notifications import NoticeState, NotificationRecord
from shared.ports.notices import Notice

FIRST_RETRY_S = 1.0
RETRY_MAX_S = 900.0
NOTICES_MAX = 100  # in one message
DEAD_MAX = 1_000  # notifications
DONE_KEPT = 100  # messages
NO_ROOM = "there was no room for more"


@dataclass(slots=True)
class Letter:
    """One message. `since_s`: from when on its time counts; `state`, `tries`, `next_s` and `error` are those of its
    notifications. `once`: it is not tried again and not missed."""

    id: str
    channel: str
    since_s: float
    next_s: float
    notices: list[Notice]
    state: NoticeState = NoticeState.WAITING
    tries: int = 0
    error: str = ""
    once: bool = False

    def records(self) -> list[NotificationRecord]:
        """Return its records for the store."""
        next_s = self.next_s if self.state is NoticeState.WAITING else None
        return [
            NotificationRecord(
                each.id,
                each.at_s,
                self.channel,
                what=each.what,
                subject=each.subject,
                detail=each.detail,
                state=self.state.value,
                tries=self.tries,
                next_s=next_s,
                error=self.error,
            )
            for each in self.notices
        ]


def retry_s(letter: str, tries: int) -> float:
    """Return the seconds after its `tries`-th failure until a message is retried: from 1 s, doubling, up to 15 minutes.
    Half of it is random. The random part is derived from the id: different messages are not retried at the same
    moment."""
    whole_s = min(RETRY_MAX_S, FIRST_RETRY_S * 2.0 ** min(tries - 1, 30))
    return whole_s * (0.5 + 0.5 * crc32(f"{letter}/{tries}".encode()) / 0xFFFFFFFF)


class DeliveryQueues:
    """The messages of one channel, oldest first. `dropped`: notifications for which there was no room, the last at
    `dropped_s`; `told_s`: when one last arrived; `error`: why the last one did not ("": it did)."""

    def __init__(self, name: str, waiting_max: int) -> None:
        self.name = name
        self.waiting: dict[str, Letter] = {}
        self.dead: dict[str, Letter] = {}
        self.done: deque[Letter] = deque(maxlen=DONE_KEPT)
        self.flying: Letter | None = None
        self.dropped, self.dropped_s = 0, 0.0
        self.told_s: float | None = None
        self.error = ""
        self._not_before_s = -math.inf  # what the receiver has asked for
        self._waiting_max = waiting_max

    def letters(self) -> Iterator[Letter]:
        """Yield all known messages, newest first of each state."""
        for kept in (self.dead.values(), self.waiting.values(), self.done):
            yield from reversed(kept)

    def find(self, letter: str) -> Letter | None:
        """Return a message that waits or was given up."""
        return self.waiting.get(letter) or self.dead.get(letter)

    def next_due_s(self) -> float:
        """Return when a message must be sent next (inf: none is due, or one is in delivery)."""
        if self.flying is not None:
            return math.inf
        return max(min((letter.next_s for letter in self.waiting.values()), default=math.inf), self._not_before_s)

    def take(self, now_s: float) -> Letter | None:
        """Return the message that is due first and mark it as in delivery."""
        if self.flying is None and now_s >= self._not_before_s:
            due = [letter for letter in self.waiting.values() if letter.next_s <= now_s]
            self.flying = min(due, key=lambda letter: letter.next_s, default=None)
            return self.flying
        return None

    def is_open(self, letter: Letter, now_s: float) -> bool:
        """Return whether more notices may join a message: it waits for its first attempt and has space left."""
        waits = self.waiting.get(letter.id) is letter and letter is not self.flying
        return waits and not letter.tries and letter.next_s >= now_s and len(letter.notices) < NOTICES_MAX

    def add(self, letter: Letter, now_s: float) -> list[Letter]:
        """Add or update a waiting message; return those that are dropped to make space for it. A message with a single
        attempt ignores the receiver's requested delay."""
        self._not_before_s = -math.inf if letter.once else self._not_before_s
        self.waiting[letter.id] = letter
        return self._make_room(self.waiting, self._waiting_max, now_s)

    def sent(self, letter: Letter, now_s: float) -> None:
        """Note that a message has arrived."""
        self.told_s, self.error = now_s, ""
        letter.error = ""
        letter.tries += 1
        self.end(letter, NoticeState.SENT)

    def failed(self, letter: Letter, error: str, again: bool, now_s: float, after_s: float = 0.0) -> list[Letter]:
        """Note that a message failed, and retry it later if allowed; return those that are dropped to make space for
        it. after_s: for this long, 15 minutes at most, the receiver accepts none."""
        wait_s = min(after_s, RETRY_MAX_S)
        self._not_before_s = now_s + wait_s if wait_s > 0.0 else self._not_before_s
        self.error = letter.error = error
        letter.tries += 1
        if again:
            letter.next_s = max(now_s + retry_s(letter.id, letter.tries), self._not_before_s)
            return []
        if letter.once:
            self.end(letter, NoticeState.DROPPED)
            return []
        self.end(letter, NoticeState.DEAD)
        return self._make_room(self.dead, DEAD_MAX, now_s)

    def again(self, letter: Letter, now_s: float) -> None:
        """Retry a waiting or given-up message now as if for the first time, ignoring any requested delay."""
        self._not_before_s = -math.inf
        self.dead.pop(letter.id, None)
        letter.state, letter.tries, letter.since_s, letter.next_s = NoticeState.WAITING, 0, now_s, now_s
        self.waiting[letter.id] = letter

    def end(self, letter: Letter, state: NoticeState) -> None:
        """Close a message; only an operator can retry one that was given up."""
        self.waiting.pop(letter.id, None)
        self.dead.pop(letter.id, None)
        letter.state = state
        if state is NoticeState.DEAD:
            self.dead[letter.id] = letter
        else:
            self.done.append(letter)

    def load(self, letter: Letter) -> None:
        """Take over what an earlier leader has left."""
        if letter.state is NoticeState.WAITING:
            self.waiting[letter.id] = letter
        else:
            self.end(letter, letter.state)

    def _make_room(self, kept: dict[str, Letter], most: int, now_s: float) -> list[Letter]:
        gone: list[Letter] = []
        over = count(kept) - most
        for letter in [each for each in kept.values() if each is not self.flying]:
            if over <= 0:
                break
            over -= len(letter.notices)
            letter.error = letter.error or NO_ROOM
            self.end(letter, NoticeState.DROPPED)
            self.dropped += len(letter.notices)
            self.dropped_s = now_s
            gone.append(letter)
        return gone


def count(letters: dict[str, Letter]) -> int:
    """Return the number of notices in these messages."""
    return sum(len(letter.notices) for letter in letters.values())
