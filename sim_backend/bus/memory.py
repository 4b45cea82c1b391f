"""The in-process bus: RabbitMQ's semantics in virtual time, with scripted faults. For one thread.

`MemoryBroker.step` hands out one event at a time in an order that depends on nothing but the calls before, so that a
closed loop runs the same every time; `MemoryConnection.poll` is the same for one connection.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from shared.base.errors import BusUnavailable, InvalidValue, PermanentError
from shared.bus.inbox import Inbox, unfit
from shared.ports.bus import BusEvent, Confirm, Delivery, Lost
from shared.protocol.dead_letter import Burials, DeadMessage, bury
from shared.protocol.permissions import Grant
from shared.protocol.shares import share_of
from shared.protocol.topology import DEAD, DEAD_LETTERS, DEAD_QUEUE, QueueSpec
from sim_backend.bus.faults import BusFaults, Dice, Fate, FaultKind, Partition
from sim_backend.bus.routing import Bindings
from sim_backend.bus.schedule import Schedule

_ROUTES_MAX = 100_000
_PASSED_MAX = 100


class MemoryConnection:
    """One user's connection to a `MemoryBroker`; implements `shared.ports.bus.Bus`.

    After `Lost`, `close` or `kill` every call raises BusUnavailable, except that `poll` first hands out what came
    before a loss, and that `acknowledge` and `dead_letter` do nothing: their tags are of an earlier connection.
    A publish that no queue is bound for is confirmed and gone, as in AMQP without `mandatory`. A delivery of a
    consumer that does not acknowledge can be dead-lettered until the next `poll` or `step` that hands out something.
    """

    def __init__(self, broker: MemoryBroker, schedule: Schedule[Handed], user: str, allow_oversize: bool) -> None:
        self.listed = False
        self.cut = False
        self.ended = False
        self._broker = broker
        self._schedule = schedule
        self._user = user
        self._allow_oversize = allow_oversize
        self._body_bytes_max = share_of(user).body_bytes_max
        self._inbox: deque[BusEvent] = deque()
        self._waiting = Inbox(self.now_s, self._drop)  # what `poll` has taken from the queues and not handed out
        self._handed: list[int] = []
        self._burials = Burials()
        self._consumers: dict[str, Consumer] = {}
        self._held: dict[int, tuple[Message, Consumer]] = {}
        self._passed: dict[int, tuple[Message, Consumer]] = {}
        self._refused: dict[int, None] = {}

    @property
    def user(self) -> str:
        """The name the broker knows this connection by."""
        return self._user

    def declare(self, queue: QueueSpec) -> None:
        """Make a queue and its bindings. PermanentError: not permitted, an unknown exchange, another shape than the
        queue has, or another connection's exclusive queue. Bindings that the queue lacks are added."""
        self._check_reachable()
        self._broker.declare(queue, self)

    def publish(
        self, exchange: str, routing_key: str, body: bytes, publish_id: int | None = None, reply_to: str = ""
    ) -> None:
        """Send a body. PermanentError: too long for this user, not permitted, or an unknown exchange."""
        if self.ended:
            raise BusUnavailable(f"the connection of {self._user!r} is closed")
        if len(body) > self._body_bytes_max and not self._allow_oversize:
            raise PermanentError(f"a body of {len(body)} bytes is above {self._user}'s limit of {self._body_bytes_max}")
        broker, user = self._broker, self._user
        queues = broker.routes.get((user, exchange, routing_key))
        if queues is None:
            queues = broker.find_route(user, exchange, routing_key)
        if broker.faulty:
            broker.publish_faulty(self, queues, exchange, Message(user, routing_key, body, reply_to), publish_id)
            return
        for queue in queues:
            queue.arrive(Message(user, routing_key, body, reply_to))
        if publish_id is not None:
            self.hear(Confirm(publish_id, True))

    def consume(self, queue: str, prefetch: int, acknowledged: bool = True) -> None:
        """Begin to receive. PermanentError: not permitted, no such queue, another connection's exclusive queue, or
        this connection receives from it already."""
        self._check_reachable()
        if acknowledged and prefetch < 1:
            raise InvalidValue("prefetch", prefetch, "1 or more")
        if queue in self._consumers:
            raise PermanentError(f"the connection of {self._user!r} receives from {queue!r} already")
        source = self._broker.readable_queue(queue, self)
        self._consumers[queue] = consumer = Consumer(self, source, prefetch, acknowledged)
        source.consumers.append(consumer)
        source.freed()

    def acknowledge(self, tag: int) -> None:
        """Acknowledge a delivery. Ignored for a tag of an earlier connection, and while the user is cut off."""
        if self.cut:
            return
        held = self._held.pop(tag, None)
        if held is not None:
            consumer = held[1]
            consumer.held -= 1
            consumer.queue.freed()

    def dead_letter(self, tag: int, reason: str) -> None:
        """Keep the delivery in the dead queue, then acknowledge it; ignored where `acknowledge` is."""
        found = self._held.get(tag) or self._passed.get(tag)
        if found is None or self.cut:
            return
        message, consumer = found
        origin = consumer.queue.spec.name
        dead = bury(reason, origin, message.routing_key, message.sender, message.body)
        if self._broker.may_bury(self._user) and self._burials.allow(message.sender, self.now_s()):
            for queue in self._broker.find_route(self._user, DEAD, DEAD_QUEUE):
                queue.arrive(Message(self._user, DEAD_QUEUE, dead.body, "", dead))
        self._passed.pop(tag, None)
        self.acknowledge(tag)

    def poll(self, timeout_s: float = 0.0) -> Sequence[BusEvent]:
        """Return the events received, as `shared.bus.inbox` hands them out. Never waits: virtual time does not advance
        in the call."""
        del timeout_s
        waiting = self._waiting
        if self.ended and not self._inbox and not waiting:
            raise BusUnavailable(f"the connection of {self._user!r} is closed")
        for tag in self._handed:
            self._passed.pop(tag, None)
        while self._inbox:
            waiting.put(self._inbox.popleft())
        for consumer in self._consumers.values():
            queue = consumer.queue
            while queue.is_active(consumer) and consumer.has_room():
                delivery = queue.take_for(consumer)
                if delivery is None:
                    break
                self._take_in(delivery, consumer)
        events = waiting.take()
        self._handed = [delivery.tag for delivery in waiting.passed]
        return events

    def _take_in(self, delivery: Delivery, consumer: Consumer) -> None:
        if wrong := unfit(delivery):
            self.dead_letter(delivery.tag, wrong)
            self._waiting.put_discarded(delivery.queue, delivery.sender, wrong)
        else:
            self._waiting.put_delivery(delivery, loose=not consumer.acknowledged)

    def _drop(self, delivery: Delivery) -> None:
        self.acknowledge(delivery.tag)

    def now_s(self) -> float:
        """See `shared.ports.bus.Bus`."""
        return self._broker.now_s

    def charge(self, sender: str, busy_s: float) -> None:
        """See `shared.ports.bus.Bus`."""
        self._waiting.charge(sender, busy_s)

    def close(self) -> None:
        """End the connection; ending it twice is fine."""
        if not self.ended:
            self._broker.end(self)
        self._inbox.clear()
        self._waiting.clear()

    def kill(self) -> None:
        """Simulate the death of the process. The broker sees the same as at `close`; messages on their way to the
        process are lost."""
        self.close()

    def ready(self) -> bool:
        """Return whether an event other than a delivery is waiting."""
        return bool(self._inbox)

    def take(self) -> Handed | None:
        """Return the next event other than a delivery; None if there is none."""
        return (self, self._inbox.popleft()) if self._inbox else None

    def hear(self, event: BusEvent) -> None:
        """Queue an event other than a delivery."""
        self._inbox.append(event)
        if not self.listed:
            self._schedule.enlist(self)

    def forget_passed(self) -> None:
        """Release the earlier deliveries that need no acknowledgement, once there are many."""
        if len(self._passed) > _PASSED_MAX:
            self._passed.clear()

    def hold(self, message: Message, consumer: Consumer) -> int:
        """Note a delivery that is being handed out; returns its tag, which no other delivery of the broker has."""
        self._broker.last_tag = tag = self._broker.last_tag + 1
        if consumer.acknowledged:
            consumer.held += 1
            self._held[tag] = (message, consumer)
        else:
            self._passed[tag] = (message, consumer)
        return tag

    def refuse_at(self, due_s: float, publish_id: int) -> None:
        """Answer a publish with `Confirm(ok=False)` at `due_s` or just before the connection is lost."""
        self._refused[publish_id] = None
        self._schedule.at(due_s, partial(self._refuse, publish_id))

    def finish(self, lost: str | None) -> list[Consumer]:
        """Put all deliveries back into the queues and, with a reason, notify the user; return the former consumers."""
        self.ended = True
        self._waiting.clear()  # what nobody was handed goes back, or is gone, with the connection
        consumers = list(self._consumers.values())
        for consumer in consumers:
            queue = consumer.queue
            queue.consumers.remove(consumer)
            queue.put_back([message for message, holder in self._held.values() if holder is consumer])
        for register in (self._held, self._passed, self._consumers):
            register.clear()
        if lost is not None:
            for publish_id in tuple(self._refused):
                self._refuse(publish_id)
            self.hear(Lost(lost))
        self._refused.clear()
        return consumers

    def _refuse(self, publish_id: int) -> None:
        if publish_id in self._refused:
            del self._refused[publish_id]
            self.hear(Confirm(publish_id, False))

    def _check_reachable(self) -> None:
        if self.ended or self.cut:
            raise BusUnavailable(f"the connection of {self._user!r} is {'closed' if self.ended else 'cut off'}")


class MemoryBroker:
    """The broker: exchanges as in the topology, queues as declared, virtual time, scripted faults.

    `permissions`: what each user may do (`shared.protocol.permissions.grant_of`); None permits everything. The dead
    queue is there from the start. All messages in durable queues survive `restart`.
    """

    def __init__(
        self,
        start_s: float = 0.0,
        faults: BusFaults | None = None,
        permissions: Callable[[str], Grant] | None = None,
    ) -> None:
        self.last_tag = 0
        self.routes: dict[tuple[str, str, str], tuple[MemoryQueue, ...]] = {}
        self.faulty = faults is not None
        self._permissions = permissions
        self._schedule: Schedule[Handed] = Schedule(start_s)
        self._queues: dict[str, MemoryQueue] = {}
        self._bindings = Bindings()
        self._connections: dict[MemoryConnection, None] = {}
        self._plan = faults or BusFaults()
        self._dice = Dice(self._plan)
        self._partitions: list[Partition] = []
        self._lines: dict[tuple[str, str], float] = {}
        self._starts = 0
        for partition in self._plan.partitions:
            self._schedule.at(partition.from_s, partial(self._cut, partition))
            self._schedule.at(partition.until_s, partial(self._heal, partition))
        self._make(DEAD_LETTERS, None)
        self._schedule.advance(start_s)

    # --- for the engine and for tests ---

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._schedule.now_s

    @property
    def fault_counts(self) -> Counter[FaultKind]:
        """How often each kind of fault was done so far; a partition counts each publish and connection it cost."""
        return Counter(self._dice.counts)

    def connect(self, user: str, allow_oversize: bool = False) -> MemoryConnection:
        """Return a new connection. BusUnavailable while the user is cut off. `allow_oversize` lets a hostile publisher
        send messages that a well-behaved one refuses to send."""
        if any(partition.cuts(user) for partition in self._partitions):
            raise BusUnavailable(f"{user!r} cannot reach the broker")
        connection = MemoryConnection(self, self._schedule, user, allow_oversize)
        self._connections[connection] = None
        return connection

    def advance(self, now_s: float) -> None:
        """Set virtual time; must be done before anyone acts at that time. ContractViolation when it goes back."""
        self._schedule.advance(now_s)

    def next_due_s(self) -> float | None:
        """Now when an event can be handed out, else when next something happens in the broker (which may turn out to
        give no event), None when nothing will."""
        return self._schedule.next_due_s()

    def step(self, now_s: float) -> tuple[MemoryConnection, BusEvent] | None:
        """Go to `now_s` and hand out one event, None when there is none. Connections with news and queues take
        turns; each queue gives its oldest message."""
        self._schedule.advance(now_s)
        return self._schedule.take()

    def restart(self) -> None:
        """Stop and start the broker at once: all connections are lost, and so are all non-durable queues and all
        messages on their way to a queue."""
        self._starts += 1
        self._lines.clear()
        for connection in tuple(self._connections):
            self.end(connection, "the broker was restarted")
        for queue in tuple(self._queues.values()):
            if not queue.spec.durable:
                self._remove(queue)

    def depth(self, queue: str) -> int:
        """Return the number of messages waiting in a queue, without those handed out; 0 if there is no such queue."""
        found = self._queues.get(queue)
        if found is None:
            return 0
        found.expire()
        return len(found.waiting)

    def dropped(self, queue: str) -> int:
        """Return the number of messages that a queue has dropped because of their age or its length."""
        return self._queues[queue].dropped if queue in self._queues else 0

    def dead_letters(self) -> tuple[DeadMessage, ...]:
        """Return the messages in the dead queue, oldest first."""
        waiting = self._queues[DEAD_QUEUE].waiting
        return tuple(
            message.dead or bury("", DEAD_QUEUE, message.routing_key, message.sender, message.body)
            for message in waiting
        )

    # --- for connections ---

    def declare(self, spec: QueueSpec, by: MemoryConnection) -> None:
        """See `MemoryConnection.declare`."""
        if self._permissions is not None and not self._permissions(by.user).may_declare(spec):
            raise PermanentError(f"{by.user!r} may not declare queue {spec.name!r} with its bindings")
        present = self._queues.get(spec.name)
        if present is None:
            self._make(spec, by if spec.exclusive else None)
            return
        if present.owner not in (None, by):
            raise PermanentError(f"queue {spec.name!r} belongs to another connection")
        if replace(present.spec, bindings=spec.bindings) != spec:
            raise PermanentError(f"queue {spec.name!r} is there with another shape: {present.spec}, not {spec}")
        self._bind(spec)

    def readable_queue(self, name: str, by: MemoryConnection) -> MemoryQueue:
        """Return the queue, if the connection may read it."""
        if self._permissions is not None and not self._permissions(by.user).may_consume(name):
            raise PermanentError(f"{by.user!r} may not read queue {name!r}")
        queue = self._queues.get(name)
        if queue is None:
            raise PermanentError(f"there is no queue {name!r}")
        if queue.owner not in (None, by):
            raise PermanentError(f"queue {name!r} belongs to another connection")
        return queue

    def may_bury(self, user: str) -> bool:
        """Return whether a user may write dead letters."""
        return self._permissions is None or self._permissions(user).may_publish(DEAD, DEAD_QUEUE)

    def find_route(self, user: str, exchange: str, routing_key: str) -> tuple[MemoryQueue, ...]:
        """Return the queues that receive a user's message; PermanentError if the user may not send it."""
        if self._permissions is not None and not self._permissions(user).may_publish(exchange, routing_key):
            raise PermanentError(f"{user!r} may not write {routing_key!r} to {exchange!r}")
        names = self._bindings.queues(exchange, routing_key)
        found = tuple(self._queues[name] for name in names if name in self._queues)
        if len(self.routes) >= _ROUTES_MAX:
            self.routes.clear()
        self.routes[user, exchange, routing_key] = found
        return found

    def publish_faulty(
        self,
        connection: MemoryConnection,
        queues: tuple[MemoryQueue, ...],
        exchange: str,
        message: Message,
        publish_id: int | None,
    ) -> None:
        """Carry a message to its queues as the plan of faults has it."""
        now_s = self._schedule.now_s
        if connection.cut:
            self._dice.counts[FaultKind.PARTITION] += 1
            fate = Fate(dropped=True)
        else:
            fate = self._dice.fate(message.sender, exchange, message.routing_key, now_s)
        arrived_s = now_s + fate.delay_s
        if not fate.dropped:
            for queue in queues:
                arrived_s = max(arrived_s, self._carry(queue, message, fate))
        if publish_id is None:
            return
        if fate.dropped or fate.confirm_lost:
            connection.refuse_at(now_s + self._plan.confirm_timeout_s, publish_id)
        else:
            self._do_at(arrived_s, partial(self._confirm, connection, publish_id))

    def end(self, connection: MemoryConnection, lost: str | None = None) -> None:
        """End a connection: its deliveries return, its exclusive queues go; with a reason it hears of it."""
        del self._connections[connection]
        connection.finish(lost)
        for queue in tuple(self._queues.values()):
            if queue.owner is connection:
                self._remove(queue)

    # --- inside ---

    def _make(self, spec: QueueSpec, owner: MemoryConnection | None) -> None:
        self._bind(spec)
        self._queues[spec.name] = MemoryQueue(spec, self._schedule, owner)

    def _bind(self, spec: QueueSpec) -> None:
        self._bindings.bind(spec.name, spec.bindings)
        self.routes.clear()

    def _remove(self, queue: MemoryQueue) -> None:
        queue.gone = True
        queue.waiting.clear()
        del self._queues[queue.spec.name]
        self._bindings.unbind(queue.spec.name)
        self.routes.clear()

    def _carry(self, queue: MemoryQueue, message: Message, fate: Fate) -> float:
        """Send a message on its way to one queue; returns when it arrives. A publisher's messages to a queue stay in
        line, except those that are loose."""
        due_s = self._schedule.now_s + fate.delay_s
        if not fate.loose:
            line = (message.sender, queue.spec.name)
            self._lines[line] = due_s = max(due_s, self._lines.get(line, due_s))
        self._send(due_s, queue, message)
        if fate.copy_after_s is not None:
            self._send(due_s + fate.copy_after_s, queue, message)
        return due_s

    def _send(self, due_s: float, queue: MemoryQueue, message: Message) -> None:
        copy = Message(message.sender, message.routing_key, message.body, message.reply_to)
        self._do_at(due_s, partial(self._arrive, self._starts, queue, copy))

    def _arrive(self, starts: int, queue: MemoryQueue, message: Message) -> None:
        if starts == self._starts and not queue.gone:
            queue.arrive(message)

    def _confirm(self, connection: MemoryConnection, publish_id: int) -> None:
        if not (connection.ended or connection.cut):
            connection.hear(Confirm(publish_id, True))

    def _do_at(self, due_s: float, call: Callable[[], None]) -> None:
        if due_s <= self._schedule.now_s:
            call()
        else:
            self._schedule.at(due_s, call)

    def _cut(self, partition: Partition) -> None:
        self._partitions.append(partition)
        given_up_s = min(self._schedule.now_s + self._plan.heartbeat_s, partition.until_s)
        for connection in self._connections:
            if partition.cuts(connection.user):
                connection.cut = True
                self._schedule.at(given_up_s, partial(self._give_up, connection))

    def _heal(self, partition: Partition) -> None:
        self._partitions.remove(partition)

    def _give_up(self, connection: MemoryConnection) -> None:
        if not connection.ended:
            self._dice.counts[FaultKind.PARTITION] += 1
            self.end(connection, "the broker could not be reached")


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
        """Return whether the consumer can take one more delivery now."""
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
        """Return whether there is a message and a consumer with room for it."""
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
            sender=message.sender,
            body=message.body,
            redelivered=message.redelivered,
            reply_to=message.reply_to,
            arrived_s=message.arrived_s,
        )

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether this consumer may take from the queue."""
        return not self.spec.single_active or self.consumers[0] is consumer

    def freed(self) -> None:
        """Schedule the queue, because a consumer has room again."""
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
