"""The bus: what a transport must do. `sim_backend.conformance` checks each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from shared.protocol.topology import QueueSpec


class Delivery(Struct, frozen=True, gc=False):
    """A message for a consumer. `tag` is for `acknowledge` and `dead_letter`; `sender` was checked by the broker.
    `arrived_s`: when it came, by the bus's own clock (`Bus.now_s`), however long it waited since."""

    tag: int
    queue: str
    routing_key: str
    sender: str
    body: bytes
    redelivered: bool = False
    reply_to: str = ""
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Confirm:
    """The broker's answer to a `publish` with an id: not `ok`, it may not have taken the message; send it again."""

    publish_id: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is gone; everything unacknowledged will be delivered again on the next one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """A notice that deliveries of a consumer are not handed out. A delivery that is too long, or whose sender is not
    identified (`sender` ""), goes to the dead letters automatically. A delivery beyond its sender's share is dropped.
    `count`: number of deliveries. `gone`: some of those beyond the share that need an answer."""

    queue: str
    sender: str
    reason: str
    count: int = 1
    gone: tuple[Delivery, ...] = ()


BusEvent = Delivery | Confirm | Discarded | Lost


class Bus(Protocol):
    """One connection of one user to the broker.

    At least once: a delivery that is not acknowledged before the connection ends comes again, marked redelivered, at
    its old place in the queue. Order: messages of one publisher to one queue arrive in the order of publishing (faults
    aside). Tags are unique within a process. Once the connection has ended, `acknowledge` and `dead_letter` do nothing
    and every other call raises BusUnavailable. A queue's TTL and length drop the oldest unseen. Undeliverable or
    undecodable messages are republished to the dead queue by `dead_letter`, with reason and origin, body cut at 64 KiB.
    """

    @property
    def user(self) -> str:
        """The name the broker knows this connection by; it becomes `Delivery.sender`."""
        ...

    def declare(self, queue: QueueSpec) -> None:
        """Make a queue and its bindings; the same again is fine, another shape raises PermanentError."""
        ...

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Send a body, at most as long as the user's role may (`shared.protocol.shares`). With an id a `Confirm`
        follows. Raises BusUnavailable when closed."""
        ...

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Begin to receive from a queue, at most `prefetch` unacknowledged at a time (no limit when the queue is
        not `acknowledged`; its deliveries can be dead-lettered until the next `poll`). Raises PermanentError when
        there is no such queue."""
        ...

    def acknowledge(self, tag: int) -> None:
        """Acknowledge a processed delivery. A tag of an earlier connection is ignored."""
        ...

    def dead_letter(self, tag: int, reason: str) -> None:
        """Keep the delivery in the dead queue with the reason, where the user may write there, then acknowledge it."""
        ...

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Return the received events, waiting at most `timeout_s` for the first. Each call returns a part, as selected
        by `shared.bus.inbox`, so that no sender keeps the others waiting. A delivery that is too long for its sender or
        beyond its share comes as `Discarded` and not as a delivery."""
        ...

    def now_s(self) -> float:
        """Return the bus's own time, in seconds, which stamps deliveries; it never decreases."""
        ...

    def charge(self, sender: str, busy_s: float) -> None:
        """Count work on a sender's deliveries towards its share; from any thread."""
        ...

    def close(self) -> None:
        """End the connection; its exclusive queues go, its unacknowledged deliveries return."""
        ...
