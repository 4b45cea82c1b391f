"""What is to be sent over one channel: messages that wait, the one under way, those that were given up.

One message is under way at a time, so a channel that does not answer holds up nothing but itself; what waits and what
was given up is bounded, the oldest going first.
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
        """What is to be stored of it."""
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
    """How long after its `tries`-th failure a message is tried again: from 1 s, doubling, up to 15 minutes, of which
    half is left to chance. Chance is drawn from the id: different messages do not come back at the same moment."""
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
        """All that is known, newest first of each state."""
        for kept in (self.dead.values(), self.waiting.values(), self.done):
            yield from reversed(kept)

    def find(self, letter: str) -> Letter | None:
        """What waits or was given up."""
        return self.waiting.get(letter) or self.dead.get(letter)

    def next_due_s(self) -> float:
        """When something is to be sent next (inf: nothing is, or something is under way)."""
        if self.flying is not None:
            return math.inf
        return max(min((letter.next_s for letter in self.waiting.values()), default=math.inf), self._not_before_s)

    def take(self, now_s: float) -> Letter | None:
        """The message that is due first, which is under way from now on."""
        if self.flying is None and now_s >= self._not_before_s:
            due = [letter for letter in self.waiting.values() if letter.next_s <= now_s]
            self.flying = min(due, key=lambda letter: letter.next_s, default=None)
            return self.flying
        return None

    def is_open(self, letter: Letter, now_s: float) -> bool:
        """Whether more may go with a message: it waits for its first try, and has room."""
        waits = self.waiting.get(letter.id) is letter and letter is not self.flying
        return waits and not letter.tries and letter.next_s >= now_s and len(letter.notices) < NOTICES_MAX

    def add(self, letter: Letter, now_s: float) -> list[Letter]:
        """Have a message wait, with what it has gained; returns those that go to make room for it. One that is tried
        once is tried whatever the receiver has asked for."""
        self._not_before_s = -math.inf if letter.once else self._not_before_s
        self.waiting[letter.id] = letter
        return self._make_room(self.waiting, self._waiting_max, now_s)

    def sent(self, letter: Letter, now_s: float) -> None:
        """It has arrived."""
        self.told_s, self.error = now_s, ""
        letter.error = ""
        letter.tries += 1
        self.end(letter, NoticeState.SENT)

    def failed(self, letter: Letter, error: str, again: bool, now_s: float, after_s: float = 0.0) -> list[Letter]:
        """It has not arrived, and is tried again later or not; returns those that go to make room for it. after_s: for
        so long, 15 minutes at most, the receiver wants none of them."""
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
        """Have a message that waits, or was given up, tried now as if for the first time, whatever was asked for."""
        self._not_before_s = -math.inf
        self.dead.pop(letter.id, None)
        letter.state, letter.tries, letter.since_s, letter.next_s = NoticeState.WAITING, 0, now_s, now_s
        self.waiting[letter.id] = letter

    def end(self, letter: Letter, state: NoticeState) -> None:
        """Nothing more is to be done for a message but, where it was given up, what an operator wants."""
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
    """How many notifications messages have."""
    return sum(len(letter.notices) for letter in letters.values())
