"""The parts of a RabbitMQ connection that need not know pika: what is held, calls with an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared.base.errors import BusUnavailable, PermanentError, TrimtabError
from shared.bus.rabbitmq.field_tables import TooLong
from shared.ports.bus import Delivery
from shared.protocol.topology import owner_of_queue

FIRST_DEATH = "x-first-death-queue"  # of a message that a queue has sent on as a dead letter
REFUSALS = (403, 404, 405, 406)  # not permitted, no such name, another's exclusive queue, another shape

Step = Callable[[Any, Callable[..., None]], object]  # (channel, what to call when it is done)


@dataclass(frozen=True, slots=True)
class UnacknowledgedDelivery:
    """A delivery that waits for its acknowledgement."""

    channel: Any
    delivery_tag: int
    delivery: Delivery

    def acknowledge(self) -> None:
        """Acknowledge the delivery, in the I/O thread. A closed channel has returned the delivery already."""
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
    """Return the reason for the end of a channel or connection, in words."""
    text = getattr(reason, "reply_text", "")
    return f"{text} ({getattr(reason, 'reply_code', 0)})" if text else f"{type(reason).__name__}: {reason}"


def unhandled(headers: Mapping[str, Any] | None) -> str:
    """Return why a delivery with these headers must not be passed on ("": it may). Headers that are too long were not
    read. A message that was dead-lettered by another queue is refused. Trimtab has no queue that forwards, so somebody
    else declared one, and the message was meant for the reader of that queue."""
    if isinstance(headers, TooLong):
        return f"{headers.size_bytes} bytes of headers are too many"
    queue = headers.get(FIRST_DEATH) if headers else None
    return f"it came back from the queue {str(queue)[:100]!r}" if queue else ""


def culprit(headers: Mapping[str, Any] | None) -> str:
    """Whose queue it was that sent a message back ("": nobody's, or it did not come back)."""
    return owner_of_queue(str(headers.get(FIRST_DEATH, ""))) if headers else ""
