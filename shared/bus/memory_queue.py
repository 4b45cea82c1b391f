"""A queue of the in-process bus and its consumers."""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from shared.bus.dead import DeadMessage
from shared.bus.schedule import Schedule
from shared.bus.topology import QueueSpec
from shared.ports import BusEvent, Delivery

if TYPE_CHECKING:
    from shared.bus.memory import MemoryConnection

Handed = tuple["MemoryConnection", BusEvent]


class Message:
    """A message in one queue. `place` is its rank there (set on arrival, kept when it comes back)."""

    __slots__ = ("arrived_s", "body", "dead", "expires_s", "place", "redelivered", "reply_to", "routing_key", "sender")

    def __init__(self, sender: str, routing_key: str, body: bytes, reply_to: str, dead: DeadMessage | None = None):
        self.sender = sender
        self.routing_key = routing_key
        self.body = body
        self.reply_to = reply_to
        self.dead = dead
        self.place = 0
        self.arrived_s = 0.0
        self.expires_s = 0.0
        self.redelivered = False


class Consumer:
    """A connection's subscription to a queue; `held` counts its unacknowledged deliveries."""

    __slots__ = ("acknowledged", "connection", "held", "prefetch", "queue")

    def __init__(self, connection: MemoryConnection, queue: MemoryQueue, prefetch: int, acknowledged: bool) -> None:
        self.connection = connection
        self.queue = queue
        self.prefetch = prefetch
        self.acknowledged = acknowledged
        self.held = 0

    def has_room(self) -> bool:
        """Whether it can take one more delivery now."""
        return (self.held < self.prefetch or not self.acknowledged) and not self.connection.cut


class MemoryQueue:
    """Messages in order, and who takes them: the first consumer alone (`single_active`) or each in turn."""

    __slots__ = ("_arrived", "_schedule", "consumers", "dropped", "gone", "listed", "owner", "spec", "waiting")

    def __init__(self, spec: QueueSpec, schedule: Schedule[Handed], owner: MemoryConnection | None) -> None:
        self.spec = spec
        self.owner = owner
        self.waiting: deque[Message] = deque()
        self.consumers: list[Consumer] = []
        self.dropped = 0
        self.gone = False
        self.listed = False
        self._schedule = schedule
        self._arrived = 0

    def arrive(self, message: Message) -> None:
        """Put a message at the end; the oldest beyond the length limit is dropped."""
        spec = self.spec
        self._arrived = message.place = self._arrived + 1
        message.arrived_s = self._schedule.now_s
        if spec.ttl_s is not None:
            message.expires_s = self._schedule.now_s + spec.ttl_s
        self.waiting.append(message)
        if spec.length_max is not None:
            self._trim()
        if self.consumers and not self.listed:
            self._schedule.enlist(self)

    def put_back(self, messages: list[Message]) -> None:
        """Return deliveries that nobody acknowledged to their old places, marked redelivered."""
        for message in messages:
            message.redelivered = True
        if messages:
            self.waiting = deque(sorted([*messages, *self.waiting], key=attrgetter("place")))
            self._trim()
        self._schedule.enlist(self)

    def expire(self) -> None:
        """Drop what has outlived the queue's TTL."""
        if self.spec.ttl_s is None:
            return
        waiting, now_s = self.waiting, self._schedule.now_s
        while waiting and waiting[0].expires_s <= now_s:
            waiting.popleft()
            self.dropped += 1

    def ready(self) -> bool:
        """Whether there is a message and a consumer with room for it."""
        self.expire()
        return bool(self.waiting) and any(consumer.has_room() for consumer in self._eligible())

    def take(self) -> Handed | None:
        """Hand the oldest message to the consumer whose turn it is."""
        for consumer in self._eligible():
            if consumer.has_room():
                consumer.connection.forget_passed()
                delivery = self.take_for(consumer)
                if delivery is None:
                    return None
                if len(self.consumers) > 1 and not self.spec.single_active:
                    self.consumers.remove(consumer)
                    self.consumers.append(consumer)
                return consumer.connection, delivery
        return None

    def take_for(self, consumer: Consumer) -> Delivery | None:
        """Hand the oldest message to this consumer, which must have room; None when there is none."""
        if self.spec.ttl_s is not None:
            self.expire()
        if not self.waiting:
            return None
        message = self.waiting.popleft()
        return Delivery(
            consumer.connection.hold(message, consumer),
            self.spec.name,
            message.routing_key,
            message.sender,
            message.body,
            message.redelivered,
            message.reply_to,
            message.arrived_s,
        )

    def is_active(self, consumer: Consumer) -> bool:
        """Whether this consumer may take from the queue."""
        return not self.spec.single_active or self.consumers[0] is consumer

    def freed(self) -> None:
        """A consumer has room again."""
        if self.waiting and not self.listed:
            self._schedule.enlist(self)

    def _eligible(self) -> list[Consumer]:
        return self.consumers[:1] if self.spec.single_active else self.consumers

    def _trim(self) -> None:
        limit = self.spec.length_max
        if limit is not None:
            while len(self.waiting) > limit:
                self.waiting.popleft()
                self.dropped += 1
