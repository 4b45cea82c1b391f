"""The only path for replies to clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.view_format import Row
from shared.base.errors import CodecError
from shared.ports.effects import Acknowledge, Effect, Publish, Received
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import Reply

Audit = Callable[[Received, Reply, float], None]


class Replies:
    """Answers a request when all that follows from it is stored, a question at once. `audit` receives every reply to a
    request before the request is acknowledged; otherwise the request is redelivered."""

    def __init__(self, unit_of_work: UnitOfWork, audit: Audit) -> None:
        self._unit_of_work, self._audit = unit_of_work, audit

    def when_stored(self, received: Received, reply: Reply | None, now_s: float, data: Row | None = None) -> None:
        """Acknowledge a message when it is stored, and send its reply where there is one, with `data` if given."""
        if reply is not None:
            self._audit(received, reply, now_s)
        if received.delivery is not None:
            self._unit_of_work.stored.append(Acknowledge(received.delivery))
        if reply is not None and received.reply_to:
            told = reply if data is None else replace(reply, data=data)
            self._unit_of_work.stored.append(Publish(topology.REPLIES, received.reply_to, told))


def at_once(reply_to: str, reply: Reply) -> Effect:
    """Return the answer to a question, which changes nothing that would have to be stored."""
    return Publish(topology.REPLIES, reply_to, reply)


def with_data(reply_to: str, request: str, data: Row) -> Effect:
    """Return the answer to a question with its data, encoded; or that these are too many."""
    reply = Reply(request, True, data=data)
    try:
        return Publish(topology.REPLIES, reply_to, reply, body=encode(reply))
    except CodecError as problem:
        return at_once(reply_to, Reply(request, False, "too-large", f"ask for fewer rows: {problem}"))
