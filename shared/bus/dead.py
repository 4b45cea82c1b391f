"""What the dead queue keeps of a message that could not be handled."""

from __future__ import annotations

from dataclasses import dataclass

from shared.bus.topology import DEAD_BODY_BYTES_MAX


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


def bury(reason: str, queue: str, routing_key: str, sender: str, body: bytes) -> DeadMessage:
    """The record of a message, with its body cut."""
    return DeadMessage(reason, queue, routing_key, sender, body[:DEAD_BODY_BYTES_MAX], len(body))
