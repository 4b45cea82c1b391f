"""What the dead queue keeps of a message that could not be handled."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from shared.protocol.topology import DEAD_BODY_BYTES_MAX

BURIED_PER_MINUTE_MAX = 100


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message nobody could handle: why, where it came from, and its body cut at DEAD_BODY_BYTES_MAX.

    `queue`, `routing_key` and `sender` are those of the original; `size_bytes` is the length of its whole body.
    """

    reason: str
    queue: str
    routing_key: str
    sender: str
    body: bytes
    size_bytes: int


class Burials:
    """Lets so many dead letters of each sender pass a minute: noise does not push out what others have left."""

    __slots__ = ("_counts", "_since_s")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._since_s = -math.inf

    def allow(self, sender: str, now_s: float) -> bool:
        """Return whether one more is kept; `now_s` is from any clock that never decreases."""
        if now_s >= self._since_s + 60.0:
            self._since_s = now_s
            self._counts.clear()
        self._counts[sender] += 1
        return self._counts[sender] <= BURIED_PER_MINUTE_MAX


def bury(reason: str, queue: str, routing_key: str, sender: str, body: bytes) -> DeadMessage:
    """Return the record of a message, with its body cut."""
    return DeadMessage(reason, queue, routing_key, sender, body[:DEAD_BODY_BYTES_MAX], len(body))
