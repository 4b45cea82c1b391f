"""The parts of a RabbitMQ connection that need not know pika: what came in, what is held, calls with an answer."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from shared.bus.topology import BODY_BYTES_MAX, REPORT_QUEUE_LENGTH_MAX
from shared.errors import BusUnavailable, PermanentError, TrimtabError
from shared.ports import BusEvent, Delivery, Discarded

LOOSE_MAX = REPORT_QUEUE_LENGTH_MAX
REFUSALS = (403, 404, 405, 406)  # not permitted, no such name, another's exclusive queue, another shape

Step = Callable[[Any, Callable[..., None]], object]  # (channel, what to call when it is done)


class Inbox:
    """What came in and was not polled yet: one thread puts, one takes. Of deliveries without acknowledgement the newest
    LOOSE_MAX stay."""

    def __init__(self) -> None:
        self.passed: Sequence[Delivery] = ()  # deliveries without acknowledgement that were taken last
        self._events: deque[BusEvent] = deque()
        self._loose: deque[Delivery] = deque(maxlen=LOOSE_MAX)
        self._news = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._loose or self._events)

    def put(self, event: BusEvent) -> None:
        """Something to be handed out in its order."""
        self._events.append(event)
        self.wake()

    def put_loose(self, delivery: Delivery) -> None:
        """A delivery without acknowledgement."""
        self._loose.append(delivery)
        self.wake()

    def put_discarded(self, delivery: Delivery, reason: str) -> None:
        """News of a delivery that nobody is handed; with LOOSE_MAX events waiting it is not news any more."""
        if len(self._events) < LOOSE_MAX:
            self.put(Discarded(delivery.queue, delivery.sender, reason))

    def wake(self) -> None:
        """Let `wait` return."""
        if not self._news.is_set():
            self._news.set()

    def wait(self, timeout_s: float, unless: Callable[[], bool]) -> None:
        """Until something is there or `wake` is called; not at all when `unless` holds."""
        self._news.clear()
        if timeout_s > 0.0 and not self and not unless():
            self._news.wait(timeout_s)

    def take(self) -> list[BusEvent]:
        """Everything that is there; what tells of the end comes last."""
        loose, events = self._loose, self._events
        # lengths first: the other thread only adds
        self.passed = passed = [loose.popleft() for _ in range(len(loose))]
        return [*passed, *[events.popleft() for _ in range(len(events))]]

    def find_passed(self, tag: int) -> Delivery | None:
        """Of the deliveries without acknowledgement that were taken last, the one with this tag."""
        at = bisect_left(self.passed, tag, key=attrgetter("tag"))  # tags grow
        return self.passed[at] if at < len(self.passed) and self.passed[at].tag == tag else None

    def clear(self) -> None:
        """Forget everything."""
        self._events.clear()
        self._loose.clear()
        self.wake()


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery that waits for its acknowledgement."""

    channel: Any
    delivery_tag: int
    delivery: Delivery

    def acknowledge(self) -> None:
        """In the I/O thread. A channel that is gone has given the delivery back already."""
        if self.channel.is_open:
            self.channel.basic_ack(self.delivery_tag)


class Errand:
    """Calls on a channel of their own, one after the other. `answer`: the last is done, or the error."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.answer: Future[None] = Future()
        self._steps = deque(steps)

    def opened(self, channel: Any) -> None:
        """Begin."""
        channel.add_on_close_callback(self._closed)
        self._next(channel)

    def fail(self, error: TrimtabError) -> None:
        """Answer with an error, unless it is answered."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def _next(self, channel: Any, _answer: object = None) -> None:
        if self._steps:
            self._steps.popleft()(channel, partial(self._next, channel))
        elif not self.answer.done():
            self.answer.set_result(None)  # not the channel, which holds this errand

    def _closed(self, _channel: Any, reason: BaseException) -> None:
        refused = getattr(reason, "reply_code", 0) in REFUSALS
        self.fail(PermanentError(words(reason)) if refused else BusUnavailable(words(reason)))


def words(reason: BaseException) -> str:
    """What ended a channel or a connection, as people read it."""
    text = getattr(reason, "reply_text", "")
    return f"{text} ({getattr(reason, 'reply_code', 0)})" if text else f"{type(reason).__name__}: {reason}"


def unfit(delivery: Delivery) -> str:
    """Why nobody should be handed this; "" when it is fit."""
    if len(delivery.body) > BODY_BYTES_MAX:
        return f"{len(delivery.body)} bytes, expected at most {BODY_BYTES_MAX}"
    return "" if delivery.sender else "no user id"
