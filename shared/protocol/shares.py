"""What an account may send, have waiting and be served, so that no account starves the others.

The broker identifies the sender of a message. A sender above its share is served at the rate of its share, and its
excess is dropped; nobody else waits for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shared.protocol.topology import (
    AGENT_USER_PREFIX,
    BODY_BYTES_MAX,
    CONTROLLER_USER_PREFIX,
    OPERATOR_USER_PREFIX,
    OWNER_USER_PREFIX,
    PORTAL_USER_PREFIX,
    USER_USER_PREFIX,
    WEB_USER_PREFIX,
)

KIB, MIB = 1 << 10, 1 << 20
BURST_S = 10.0  # what was not used of the last so many seconds may be used at once
OVER_MAX = 50  # messages that wait of an account that has used its share up


@dataclass(frozen=True, slots=True)
class Share:
    """What one account gets: the longest body, how many messages and bytes wait here at most, and how many messages,
    bytes and seconds of work it is served a second, all three at once. How many connections and channels the broker
    lets it have (0: as many as it likes), once it was set up; those that the network has cut count until the broker has
    noticed."""

    body_bytes_max: int
    waiting_max: int
    waiting_bytes_max: int
    per_s: float
    bytes_per_s: float
    busy_frac: float
    connections_max: int
    channels_max: int


# A report of 5,000 VMs has about half a MiB.
AGENT = Share(
    MIB, 1_000, 4 * MIB, per_s=200.0, bytes_per_s=float(MIB), busy_frac=0.1, connections_max=16, channels_max=64
)
USER = Share(
    256 * KIB, 200, MIB, per_s=20.0, bytes_per_s=128.0 * KIB, busy_frac=0.05, connections_max=16, channels_max=128
)
OWNER = Share(
    MIB, 200, 4 * MIB, per_s=20.0, bytes_per_s=256.0 * KIB, busy_frac=0.1, connections_max=16, channels_max=128
)  # agreements hold distributions of demand
PORTAL = Share(
    MIB, 500, 8 * MIB, per_s=200.0, bytes_per_s=float(MIB), busy_frac=0.5, connections_max=16, channels_max=256
)
OPERATOR = Share(
    BODY_BYTES_MAX,
    500,
    16 * MIB,
    per_s=200.0,
    bytes_per_s=4.0 * MIB,
    busy_frac=0.5,
    connections_max=64,
    channels_max=512,
)
WEB = Share(64 * KIB, 200, MIB, per_s=20.0, bytes_per_s=64.0 * KIB, busy_frac=0.05, connections_max=16, channels_max=32)
CONTROLLER = Share(
    BODY_BYTES_MAX,
    10_000,
    64 * MIB,
    per_s=math.inf,
    bytes_per_s=math.inf,
    busy_frac=math.inf,
    connections_max=0,
    channels_max=0,
)
OTHERS = WEB
SHARES = {
    AGENT_USER_PREFIX: AGENT,
    USER_USER_PREFIX: USER,
    OWNER_USER_PREFIX: OWNER,
    PORTAL_USER_PREFIX: PORTAL,
    OPERATOR_USER_PREFIX: OPERATOR,
    WEB_USER_PREFIX: WEB,
    CONTROLLER_USER_PREFIX: CONTROLLER,
}

ANYBODYS_BODY_BYTES = min(share.body_bytes_max for share in SHARES.values())
"""A body of at most so many bytes is too long of nobody."""


def has_share(account: str) -> bool:
    """Return whether an account has one of Trimtab's roles."""
    role, dot, _ = account.partition(".")
    return role + dot in SHARES


@lru_cache(4_096)
def share_of(account: str) -> Share:
    """Return the share of an account, by its role."""
    role, dot, _ = account.partition(".")
    return SHARES.get(role + dot, OTHERS)


def excess(account: str, size_bytes: int) -> str:
    """Return why a body of an account is too long ("": it is not); checked before anything reads it."""
    most = share_of(account).body_bytes_max
    return f"{size_bytes} bytes, expected at most {most} of {account}" if size_bytes > most else ""


class Budget:
    """What is left to an account of its share; it may be overdrawn by one message. It is refilled only once nothing of
    something is left, so that after a rest it may last twice as long. Times are of any clock that does not go back."""

    __slots__ = ("busy_s", "bytes", "messages", "refilled_s", "share")

    def __init__(self, share: Share, now_s: float) -> None:
        self.share = share
        self.refilled_s = now_s
        self.messages, self.bytes = BURST_S * share.per_s, BURST_S * share.bytes_per_s
        self.busy_s = BURST_S * share.busy_frac

    def due_s(self, now_s: float) -> float:
        """Return when it may be served again; `now_s` or before: now."""
        if self.messages > 0.0 and self.bytes > 0.0 and self.busy_s > 0.0:
            return now_s
        share, passed_s = self.share, now_s - self.refilled_s
        self.refilled_s = now_s
        self.messages = min(BURST_S * share.per_s, self.messages + passed_s * share.per_s)
        self.bytes = min(BURST_S * share.bytes_per_s, self.bytes + passed_s * share.bytes_per_s)
        self.busy_s = min(BURST_S * share.busy_frac, self.busy_s + passed_s * share.busy_frac)
        if self.messages > 0.0 and self.bytes > 0.0 and self.busy_s > 0.0:
            return now_s
        lacks = (-self.messages / share.per_s, -self.bytes / share.bytes_per_s, -self.busy_s / share.busy_frac)
        return now_s + max(*lacks, 0.001)
