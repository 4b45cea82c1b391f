"""What came in on a connection and was not polled yet: in turn by sender, within each one's share, bounded in bytes."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from shared.ports.bus import BusEvent, Delivery, Discarded, Lost
from shared.protocol.shares import ANYBODYS_BODY_BYTES, CONTROLLER, OVER_MAX, Budget, Share, excess, share_of

TAKE_MAX = 100  # deliveries handed out at once
TAKE_BYTES_MAX = 256 << 10  # of these bodies, but for the last
BYTES_MAX = 64 << 20  # of all that waits; one delivery of each sender is taken in any case
TELL_AGAIN_S = 1.0  # between two words on what was not handed out of one sender
FRESH_MAX = 1_000  # deliveries that came and have no place yet, each of at most so many bytes
FRESH_BYTES_MAX = 16 << 10
GONE_MAX = 20  # of what wants an answer and was not handed out, the newest so many are named
GONE_BYTES_MAX = 4 << 10  # of a body of these


class _Sender(Budget):
    """What waits of one sender, and what is left of its share; `loose` needs no acknowledgement."""

    __slots__ = (
        "gone",
        "held",
        "listed",
        "loose",
        "most",
        "name",
        "over",
        "told_s",
        "turn",
        "untold",
        "waiting_bytes",
        "waiting_bytes_max",
    )

    def __init__(self, name: str, share: Share, now_s: float) -> None:
        super().__init__(share, now_s)
        self.name = name
        self.held: deque[Delivery] = deque()
        self.loose: deque[Delivery] = deque()
        self.waiting_bytes, self.waiting_bytes_max = 0, share.waiting_bytes_max
        self.most = share.waiting_max  # of each of the two
        self.listed = False
        self.over = False  # its share is used up
        self.told_s = -math.inf
        self.untold = 0
        self.turn = 0  # the last in which something of it was handed out without having waited
        self.gone: deque[Delivery] = deque(maxlen=GONE_MAX)

    def set_over(self, over: bool) -> None:
        """Note whether its share is used up."""
        self.over = over
        self.most = OVER_MAX if over else self.share.waiting_max


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
        self._fresh: deque[tuple[Delivery, bool]] = deque()  # put without the lock, which costs more than all the rest
        self._first: deque[Delivery] = deque()
        self._senders: dict[str, _Sender] = {}
        self._turns: deque[_Sender] = deque()
        self._turn = 0
        self._bytes = 0
        self._due_s = math.inf  # when a sender that has used its share up may be served
        self._lost: Lost | None = None

    def __bool__(self) -> bool:
        return bool(self._events or self._fresh or self._first or self._turns or self._lost)

    # --- who puts -----------------------------------------------------------------------------------------------------

    def put(self, event: BusEvent) -> None:
        """Add an event that is not a delivery. The end of the connection is handed out last, and shares no longer apply
        then."""
        if type(event) is Lost:
            self._lost = event
        else:
            self._events.append(event)
        self.wake()

    def put_delivery(self, delivery: Delivery, loose: bool) -> None:
        """Add a delivery; `loose`: without acknowledgement."""
        fresh = self._fresh
        fresh.append((delivery, loose))
        if not loose or len(fresh) >= FRESH_MAX or len(delivery.body) > FRESH_BYTES_MAX:
            with self._lock:
                self._sort()
        if not self._news.is_set():
            sender = self._senders.get(delivery.sender)
            if sender is None or not sender.over:
                self._news.set()

    def _sort(self) -> None:
        """Sort new deliveries into their senders' queues. The caller holds the lock."""
        fresh, senders = self._fresh, self._senders
        while fresh:
            delivery, loose = fresh.popleft()
            size = len(delivery.body)
            sender = senders.get(delivery.sender) or self._sender(delivery.sender)
            lane = sender.loose if loose else sender.held
            if not loose and sender.share is CONTROLLER:
                self._first.append(delivery)
            elif len(lane) < sender.most and (not sender.waiting_bytes or self._has_room(sender, size)):
                lane.append(delivery)
                sender.waiting_bytes += size
                if not sender.listed:
                    sender.listed = True
                    self._turns.append(sender)
            else:
                self._crowd_in(sender, delivery, loose)
                continue
            self._bytes += size

    def _has_room(self, sender: _Sender, size: int) -> bool:
        return sender.waiting_bytes + size <= sender.waiting_bytes_max and self._bytes + size <= BYTES_MAX

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

    def _crowd_in(self, sender: _Sender, delivery: Delivery, loose: bool) -> None:
        """Handle a delivery without room: drop the oldest if deliveries are not acknowledged, else refuse the
        newest."""
        if not loose:
            self._let_go(sender, delivery)
            return
        lane, size = sender.loose, len(delivery.body)
        while lane and (len(lane) >= sender.most or not self._has_room(sender, size)):
            oldest = lane.popleft()
            sender.waiting_bytes -= len(oldest.body)
            self._bytes -= len(oldest.body)
            self._let_go(sender, oldest)
        lane.append(delivery)
        sender.waiting_bytes += size
        self._bytes += size
        if not sender.listed:
            sender.listed = True
            self._turns.append(sender)

    def _let_go(self, sender: _Sender, delivery: Delivery) -> None:
        share = sender.share
        why = f"beyond its share, {share.per_s:g} messages and {share.bytes_per_s:g} bytes a second"
        if delivery.reply_to and len(delivery.body) <= GONE_BYTES_MAX:
            sender.gone.append(delivery)
        self._tell(sender, delivery.queue, why)
        self._refuse(delivery)

    def _tell(self, sender: _Sender, queue: str, reason: str) -> None:
        now_s = self._now_s()
        sender.untold += 1
        if now_s >= sender.told_s + TELL_AGAIN_S:
            self._events.append(Discarded(queue, sender.name, reason, sender.untold, tuple(sender.gone)))
            sender.gone.clear()
            sender.told_s, sender.untold = now_s, 0
            self.wake()

    # --- who takes ----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something new, a sender may be served again, or `wake` is called; at most `timeout_s`."""
        self._news.wait(min(timeout_s, max(0.0, self._due_s - self._now_s())))

    def take(self) -> list[BusEvent]:
        """Take the next events: at most TAKE_MAX deliveries, and everything else that came. The end of the connection
        comes last, alone or with the last deliveries."""
        self._news.clear()
        with self._lock:
            taken: list[Delivery] = []
            size = 0
            first = self._first
            if not (first or self._turns):
                size = self._take_unplaced(taken)
            if len(taken) < TAKE_MAX and size < TAKE_BYTES_MAX:
                self._take_placed(taken, size)
            events: list[BusEvent] = [self._events.popleft() for _ in range(len(self._events))]
            events += taken
            if self._lost is not None and not (self._fresh or first or self._turns):
                events.append(self._lost)
                self._lost = None
            if self._fresh or first or (self._turns and taken):
                self._news.set()
        self.passed = taken
        return events

    def _take_placed(self, taken: list[Delivery], unplaced: int) -> None:
        """Give all that came its place, and add what has one to the `unplaced` bytes that are taken already."""
        self._sort()
        size, first, turns = unplaced, self._first, self._turns
        if unplaced and turns:  # who was served comes after those who were not
            served = self._turn
            self._turns = deque(sorted(turns, key=lambda sender: sender.turn == served))
        while first and len(taken) < TAKE_MAX and size < TAKE_BYTES_MAX:
            taken.append(first.popleft())
            size += len(taken[-1].body)
        self._bytes -= self._take_in_turn(taken, size) - unplaced

    def _take_unplaced(self, taken: list[Delivery]) -> int:
        """While nothing waits, add what came as it came, one delivery of each sender: as if each had got its place.
        Returns the bytes of these."""
        fresh, senders = self._fresh, self._senders
        self._turn = turn = self._turn + 1
        size = 0
        while fresh and len(taken) < TAKE_MAX and size < TAKE_BYTES_MAX:
            delivery, loose = fresh[0]
            sender = senders.get(delivery.sender)
            if sender is None or sender.turn == turn or sender.over or not loose:
                break
            if not (sender.messages > 0.0 and sender.bytes > 0.0 and sender.busy_s > 0.0):
                break
            fresh.popleft()
            taken.append(delivery)
            sender.turn = turn
            length = len(delivery.body)
            size += length
            sender.messages -= 1.0
            sender.bytes -= length
        return size

    def _take_in_turn(self, taken: list[Delivery], size: int) -> int:
        """Add deliveries of senders in turn; returns the bytes of all that is taken."""
        turns, now_s = self._turns, self._now_s()
        waiting: list[_Sender] = []
        self._due_s = math.inf
        room = TAKE_MAX - len(taken)
        while turns and room and size < TAKE_BYTES_MAX:
            sender = turns.popleft()
            if not (sender.messages > 0.0 and sender.bytes > 0.0 and sender.busy_s > 0.0) or sender.over:
                due_s = sender.due_s(now_s)
                if due_s > now_s and self._lost is None:
                    self._hold_back(sender, due_s)
                    waiting.append(sender)
                    continue
                sender.set_over(False)
            held, loose = sender.held, sender.loose
            delivery = (held if not loose or (held and held[0].tag < loose[0].tag) else loose).popleft()
            taken.append(delivery)
            room -= 1
            length = len(delivery.body)
            size += length
            sender.waiting_bytes -= length
            sender.messages -= 1.0
            sender.bytes -= length
            if held or loose:
                turns.append(sender)
            else:
                sender.listed = False
        turns.extend(waiting)
        return size

    def _hold_back(self, sender: _Sender, due_s: float) -> None:
        """Hold back a sender that has used up its share: few of its messages keep waiting, since others wait for the
        room."""
        sender.set_over(True)
        self._due_s = min(self._due_s, due_s)
        while len(sender.held) > OVER_MAX:
            newest = sender.held.pop()
            sender.waiting_bytes -= len(newest.body)
            self._bytes -= len(newest.body)
            self._let_go(sender, newest)

    def charge(self, sender: str, busy_s: float) -> None:
        """Charge a sender for the time spent on its deliveries."""
        with self._lock:
            self._sender(sender).busy_s -= busy_s

    def find_passed(self, tag: int) -> Delivery | None:
        """Return the delivery with this tag among those taken last."""
        return next((delivery for delivery in self.passed if delivery.tag == tag), None)

    def detach(self) -> None:
        """Call `refuse` no more: its connection is over, and must not be held by what waits."""
        self._refuse = _ignore

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for waiting in (self._events, self._fresh, self._first, self._turns):
                waiting.clear()
            self._senders.clear()
            self._bytes, self._lost = 0, None
        self.wake()


def _ignore(delivery: Delivery) -> None:
    del delivery


def unfit(delivery: Delivery) -> str:
    """Return why a delivery must not be passed on ("": it may), judged without reading it."""
    if not delivery.sender:
        return "no user id"
    size = len(delivery.body)
    return excess(delivery.sender, size) if size > ANYBODYS_BODY_BYTES else ""
