"""What came in on a connection and was not polled yet: in turn by sender, within each one's share, bounded in bytes."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from shared.bus.shares import OVER_MAX, Budget, Share, excess, share_of
from shared.ports import BusEvent, Delivery, Discarded, Lost

TAKE_MAX = 100  # deliveries handed out at once
TAKE_BYTES_MAX = 256 << 10  # of these bodies, but for the last
BYTES_MAX = 64 << 20  # of all that waits; one delivery of each sender is taken in any case
TELL_AGAIN_S = 1.0  # between two words on what was not handed out of one sender


class _Sender:
    """What waits of one sender; `loose` needs no acknowledgement."""

    __slots__ = ("budget", "bytes", "held", "listed", "loose", "name", "over", "told_s", "untold")

    def __init__(self, name: str, share: Share, now_s: float) -> None:
        self.name = name
        self.budget = Budget(share, now_s)
        self.held: deque[Delivery] = deque()
        self.loose: deque[Delivery] = deque()
        self.bytes = 0
        self.listed = False
        self.over = False  # its share is used up
        self.told_s = -math.inf
        self.untold = 0

    def next(self) -> Delivery:
        """The oldest of what waits, taken out."""
        held, loose = self.held, self.loose
        lane = held if not loose or (held and held[0].tag < loose[0].tag) else loose
        delivery = lane.popleft()
        self.bytes -= len(delivery.body)
        return delivery


class Inbox:
    """One thread puts, one takes; `charge` is for any.

    Controllers come first, the others in turn, one delivery each, as long as their shares last. What has no room is
    dropped, and `refuse` called with it: of deliveries that need no acknowledgement the oldest of its sender, of others
    the newest. A sender's deliveries of one queue stay in their order. `now_s`: any clock that does not go back.
    """

    def __init__(self, now_s: Callable[[], float], refuse: Callable[[Delivery], None]) -> None:
        self.passed: Sequence[Delivery] = ()  # those that were taken last
        self._now_s, self._refuse = now_s, refuse
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._events: deque[BusEvent] = deque()
        self._first: deque[Delivery] = deque()
        self._senders: dict[str, _Sender] = {}
        self._turns: deque[_Sender] = deque()
        self._bytes = 0
        self._due_s = math.inf  # when a sender that has used its share up may be served
        self._lost: Lost | None = None

    def __bool__(self) -> bool:
        return bool(self._events or self._first or self._turns or self._lost)

    # --- who puts -----------------------------------------------------------------------------------------------------

    def put(self, event: BusEvent) -> None:
        """Something other than a delivery. What tells of the end is handed out last, and then no share counts."""
        if type(event) is Lost:
            self._lost = event
        else:
            self._events.append(event)
        self.wake()

    def put_delivery(self, delivery: Delivery, loose: bool) -> None:
        """A delivery; `loose`: without acknowledgement."""
        dropped: list[Delivery] = []
        with self._lock:
            sender = self._sender(delivery.sender)
            if sender.budget.share.per_s == math.inf and not loose:
                self._first.append(delivery)
                self._bytes += len(delivery.body)
            else:
                self._add(sender, delivery, loose, dropped)
        self._let_go(dropped)
        if not sender.over:
            self.wake()

    def put_discarded(self, queue: str, sender: str, reason: str) -> None:
        """News of a delivery that nobody is handed; of much from one sender at most once a second, with the count."""
        with self._lock:
            self._tell(self._sender(sender), queue, reason)

    def wake(self) -> None:
        """Let `wait` return."""
        if not self._news.is_set():
            self._news.set()

    def _sender(self, name: str) -> _Sender:
        found = self._senders.get(name)
        if found is None:
            found = self._senders[name] = _Sender(name, share_of(name), self._now_s())
        return found

    def _add(self, sender: _Sender, delivery: Delivery, loose: bool, dropped: list[Delivery]) -> None:
        share, size = sender.budget.share, len(delivery.body)
        lane = sender.loose if loose else sender.held
        most = OVER_MAX if sender.over else share.waiting_max

        def is_full() -> bool:
            waits = sender.bytes > 0
            return len(lane) >= most or (
                waits and (sender.bytes + size > share.waiting_bytes_max or self._bytes + size > BYTES_MAX)
            )

        if is_full() and not loose:
            dropped.append(delivery)
            return
        while loose and lane and is_full():
            oldest = lane.popleft()
            sender.bytes -= len(oldest.body)
            self._bytes -= len(oldest.body)
            dropped.append(oldest)
        lane.append(delivery)
        sender.bytes += size
        self._bytes += size
        if not sender.listed:
            sender.listed = True
            self._turns.append(sender)

    def _let_go(self, dropped: Sequence[Delivery]) -> None:
        for delivery in dropped:
            with self._lock:
                share = share_of(delivery.sender)
                why = f"beyond its share, {share.per_s:g} messages and {share.bytes_per_s:g} bytes a second"
                self._tell(self._sender(delivery.sender), delivery.queue, why)
            self._refuse(delivery)

    def _tell(self, sender: _Sender, queue: str, reason: str) -> None:
        now_s = self._now_s()
        sender.untold += 1
        if now_s >= sender.told_s + TELL_AGAIN_S:
            self._events.append(Discarded(queue, sender.name, reason, sender.untold))
            sender.told_s, sender.untold = now_s, 0
            self.wake()

    # --- who takes ----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Until something new is there, a sender may be served again, or `wake` is called; at most so long."""
        self._news.wait(min(timeout_s, max(0.0, self._due_s - self._now_s())))

    def take(self) -> list[BusEvent]:
        """What is to be handed out next: at most TAKE_MAX deliveries, and the rest of what came; what tells of the end
        comes last, alone or with the last deliveries."""
        self._news.clear()
        dropped: list[Delivery] = []
        with self._lock:
            taken: list[Delivery] = []
            size = 0
            first = self._first
            while first and len(taken) < TAKE_MAX and size < TAKE_BYTES_MAX:
                taken.append(first.popleft())
                size += len(taken[-1].body)
            size += self._take_in_turn(taken, size, dropped)
            self._bytes -= size
            events: list[BusEvent] = [self._events.popleft() for _ in range(len(self._events))]
            events += taken
            if self._lost is not None and not (first or self._turns):
                events.append(self._lost)
                self._lost = None
            if first or (self._turns and taken):
                self._news.set()
        self.passed = taken
        self._let_go(dropped)
        return events

    def _take_in_turn(self, taken: list[Delivery], size: int, dropped: list[Delivery]) -> int:
        """Add deliveries of senders in turn; returns the bytes of these."""
        turns, now_s, before = self._turns, self._now_s(), size
        waiting: list[_Sender] = []
        self._due_s = math.inf
        while turns and len(taken) < TAKE_MAX and size < TAKE_BYTES_MAX:
            sender = turns.popleft()
            due_s = sender.budget.due_s(now_s)
            if due_s > now_s and self._lost is None:
                sender.over = True
                self._due_s = min(self._due_s, due_s)
                waiting.append(sender)
                while len(sender.held) > OVER_MAX:
                    dropped.append(sender.held.pop())
                    sender.bytes -= len(dropped[-1].body)
                    self._bytes -= len(dropped[-1].body)
                continue
            sender.over = False
            delivery = sender.next()
            taken.append(delivery)
            size += len(delivery.body)
            sender.budget.serve(len(delivery.body))
            if sender.held or sender.loose:
                turns.append(sender)
            else:
                sender.listed = False
        turns.extend(waiting)
        return size - before

    def charge(self, sender: str, busy_s: float) -> None:
        """Somebody has worked on deliveries of a sender for so long."""
        with self._lock:
            self._sender(sender).budget.charge(busy_s)

    def find_passed(self, tag: int) -> Delivery | None:
        """Of the deliveries that were taken last, the one with this tag."""
        return next((delivery for delivery in self.passed if delivery.tag == tag), None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for waiting in (self._events, self._first, self._turns):
                waiting.clear()
            self._senders.clear()
            self._bytes, self._lost = 0, None
        self.wake()


def unfit(delivery: Delivery) -> str:
    """Why nobody should be handed this ("": it is fit): what is said without reading it."""
    return excess(delivery.sender, len(delivery.body)) if delivery.sender else "no user id"
