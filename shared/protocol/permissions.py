"""Which user may do what on the broker: one table, in RabbitMQ's own terms, that every bus implementation uses.

Three regular expressions per user, over names of queues and exchanges: `configure` (declare or delete), `write`
(publish to an exchange, bind a queue) and `read` (consume from a queue, bind to an exchange); the default exchange
is called `amq.default`. On a topic exchange the routing key is held to `topic_writes` as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shared.protocol.topology import (
    AGENT_USER_PREFIX,
    CONTROLLER_USER_PREFIX,
    EVENTS,
    EXCHANGES,
    OPERATOR_USER_PREFIX,
    OWNER_USER_PREFIX,
    PORTAL_USER_PREFIX,
    QUESTIONS,
    REPLIES,
    REPORTS,
    REQUESTS,
    RESULTS,
    USER_USER_PREFIX,
    WEB_USER_PREFIX,
    ExchangeKind,
    QueueSpec,
    report_key,
    web_key,
)

DEFAULT_EXCHANGE_NAME = "amq.default"
NOTHING = "^$"
EVERYTHING = ".*"
_ASKED = f"{re.escape(REQUESTS)}|{re.escape(QUESTIONS)}"


@dataclass(frozen=True, slots=True)
class Grant:
    """What one user may do. `topic_writes`: (exchange, regular expression of routing keys) pairs."""

    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    topic_writes: tuple[tuple[str, str], ...] = ()

    def may_publish(self, exchange: str, routing_key: str) -> bool:
        """Return whether a message may be sent to an exchange (dead letters included) under a routing key."""
        if re.search(self.write, exchange if exchange != REPLIES else DEFAULT_EXCHANGE_NAME) is None:
            return False
        if EXCHANGES.get(exchange) is not ExchangeKind.TOPIC:
            return True
        limits = [pattern for name, pattern in self.topic_writes if name == exchange]
        return all(re.search(pattern, routing_key) for pattern in limits)

    def may_consume(self, queue: str) -> bool:
        """Return whether a queue may be read."""
        return re.search(self.read, queue) is not None

    def may_declare(self, queue: QueueSpec) -> bool:
        """Return whether a queue may be declared and bound according to its spec."""
        if re.search(self.configure, queue.name) is None:
            return False
        sources = {exchange for exchange, _ in queue.bindings}
        return not sources or (
            re.search(self.write, queue.name) is not None and all(re.search(self.read, source) for source in sources)
        )


def _one_of(*names: str) -> str:
    return f"^({'|'.join(re.escape(name) for name in names)})$"


def _agent(user: str) -> Grant:
    node = user.removeprefix(AGENT_USER_PREFIX)
    return Grant(
        write=_one_of(REPORTS, RESULTS),
        read=_one_of(user),
        topic_writes=((REPORTS, _one_of(report_key(node))),),
    )


# Nobody needs to write to a queue of answers, or to an exchange of such a name, but who answers. A queue is bound to
# events by who may write to it; so that permission goes with names of queues of events, and no further.


def _operator(user: str) -> Grant:
    names = rf"{re.escape(user)}(\..+)?"
    own = rf"(reply|events)\.{names}"
    return Grant(
        configure=f"^{own}$",
        write=rf"^({_ASKED}|events\.{names})$",
        read=f"^({re.escape(EVENTS)}|{own})$",
    )


def _web(user: str) -> Grant:
    app = user.removeprefix(WEB_USER_PREFIX)
    return Grant(write=_one_of(REPORTS), topic_writes=((REPORTS, _one_of(web_key(app))),))


def _asker(user: str) -> Grant:
    if user.count(".") != 1 or user.endswith("."):  # else what is its own would be another's too
        return Grant()
    own = rf"reply\.{re.escape(user)}(\.[^.]+)?"
    return Grant(configure=f"^{own}$", write=_one_of(REQUESTS), read=f"^{own}$")


def _portal(user: str) -> Grant:
    asker = _asker(user)
    return asker if asker == Grant() else replace(asker, write=f"^({_ASKED})$")


def grant_of(user: str) -> Grant:
    """Return what a user may do, from its name. An agent writes its own reports and any result and reads its own queue.
    An operator writes requests and questions and has queues of its own, `reply.<user>` and `events.<user>` (with an
    optional further `.<word>`); a portal has the same without events. Owners and users of environments write requests
    and have `reply.<user>`. A web application's user writes that application's measurements. A controller does
    everything; anyone else nothing."""
    if user.startswith(AGENT_USER_PREFIX):
        return _agent(user)
    if user.startswith(OPERATOR_USER_PREFIX):
        return _operator(user)
    if user.startswith((OWNER_USER_PREFIX, USER_USER_PREFIX)):
        return _asker(user)
    if user.startswith(PORTAL_USER_PREFIX):
        return _portal(user)
    if user.startswith(WEB_USER_PREFIX):
        return _web(user)
    if user.startswith(CONTROLLER_USER_PREFIX):
        return Grant(EVERYTHING, EVERYTHING, EVERYTHING)
    return Grant()
