"""Forbidden messages: refused, reported and shown as an alarm. Their reports are limited, because a sender may never
stop.

The broker authenticates senders and limits where each account may publish. It cannot check which node a message speaks
for; this module does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

from daemons.access.delegation import is_portal
from daemons.access.identity import who
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.rate_limit import PerMinute
from shared.protocol import topology
from shared.protocol.messages import (
    AgentMessage,
    GuestEvent,
    Message,
    NoReading,
    Report,
    Result,
    SetUpAnswer,
    SleepAnswer,
    StandardJobEnded,
    WebReport,
)
from shared.protocol.operator_messages import Request

TELL_AGAIN_S = 60.0  # between two events about one account
ASK_AGAIN_S = 5.0  # between two looks at the store's term
ALARM_S = 900.0  # how long an alarm is shown after what it is for
MISTAKES_MAX = 10  # questions beyond one's rights until they are no slips of the hand
SUSPECTS_MAX = 64
UNASKED_MAX = 100
DETAIL_LENGTH_MAX = 300
THE_REST = "(others)"
WAY_BACK = "store backup and restore --force go on from a later one, see docs/how-to/security.md"

# Said once: making a union or looking up a member costs more than the test in which it stands.
OF_AGENTS = (Report, NoReading, Result, GuestEvent, SleepAnswer, SetUpAnswer, StandardJobEnded)


class Violation(Enum):
    """What a refused message shows about its sender."""

    NONE = 0  # nothing: it was not known yet, or is known no more
    MISTAKE = 1  # somebody who may ask asked for what is not theirs
    FORGERY = 2  # no program of ours says this


@dataclass(slots=True)
class Suspect:
    """The refusals of an account: their number, their start, and how many of them were not reported."""

    since_s: float
    last_s: float
    emitted_s: float = -TELL_AGAIN_S
    count: int = 0
    not_emitted: int = 0
    mistakes: int = 0
    forgeries: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """What the features of a controller listen to: types of messages, and of requests."""

    messages: Container[type] = ()
    requests: Container[type] = ()


def is_of_agent(message: Message, heard: Heard) -> TypeGuard[AgentMessage]:
    """Return whether a node's agent sends such messages. Code that runs for every report tests OF_AGENTS first, which
    costs less than a call."""
    return isinstance(message, OF_AGENTS) or (type(message) in heard.messages and hasattr(message, "node"))


def is_request(message: Message, heard: Heard) -> TypeGuard[Request]:
    """Return whether the message is a request."""
    return isinstance(message, Request) or type(message) in heard.requests


NO_MORE = Heard()


def speaks_for_itself(sender: str, message: Message) -> bool:
    """Return whether a message of a node's agent comes from that node; other messages pass."""
    return not isinstance(message, OF_AGENTS) or sender == topology.agent_user(message.node)


def refusal(
    sender: str,
    message: Message,
    reply_to: str,
    cluster: Cluster,
    via: str = "",
    heard: Heard = NO_MORE,
) -> tuple[str, Violation]:
    """Return why a controller must ignore this ("": it need not), and what that shows about the sender: `via`, where
    that stands for the sender. heard: the messages that features accept."""
    if isinstance(message, OF_AGENTS) or is_of_agent(message, heard):
        if sender != topology.agent_user(message.node):
            return f"{sender} may not speak for node {message.node}", Violation.FORGERY
        if message.node not in cluster.nodes:
            return f"node {message.node} has not been added", Violation.NONE
        if isinstance(message, Result) and (other := _asked(message, cluster)) not in ("", message.node):
            return (
                f"{sender} may not answer for action {message.action}, which {other} was asked for",
                Violation.FORGERY,
            )
        return "", Violation.NONE
    if isinstance(message, WebReport):
        if sender != topology.web_user(message.app):
            return f"{sender} may not speak for web application {message.app}", Violation.FORGERY
        if message.app not in cluster.web:
            return f"web application {message.app} has not been submitted", Violation.NONE
        return "", Violation.NONE
    if is_request(message, heard):
        asker = who(sender)
        if asker is None or (is_portal(sender) and not via):
            return f"{sender} may not ask for {message.KIND}", Violation.FORGERY
        return _answered_elsewhere(via or sender, reply_to)
    return f"{message.KIND} is not for a controller", Violation.FORGERY


def _answered_elsewhere(sender: str, reply_to: str) -> tuple[str, Violation]:
    """Check that the reply goes to a queue that the sender of the request could write to."""
    if not reply_to or topology.is_reply_queue_of(sender, reply_to):
        return "", Violation.NONE
    return f"{sender} may not have answers sent to {reply_to}", Violation.FORGERY


def _asked(result: Result, cluster: Cluster) -> str:
    """Return the node that the action of a result was sent to ("": it is not open)."""
    instance = cluster.actions.get(result.action)
    flight = None if instance is None else instance.in_flight
    return "" if flight is None else flight.node


class Screening:
    """Counts refusals by account, reports each account at most once in TELL_AGAIN_S, and returns which are alarming."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._suspects: dict[str, Suspect] = {}
        self._ahead: dict[str, tuple[float, float, int]] = {}  # by node: since, last, the term
        self._asked_s = -ASK_AGAIN_S
        self._unasked = PerMinute(UNASKED_MAX)  # answers that nobody waits for

    def count(self, sender: str) -> int:
        """Return how many messages of an account were refused lately."""
        found = self._suspects.get(sender)
        return 0 if found is None else found.count

    def refused(self, sender: str, why: str, offence: Violation, now_s: float, count: int = 1) -> None:
        """Note that a message, or `count` of them, was refused."""
        suspect = self._suspect(sender, now_s)
        suspect.last_s = now_s
        suspect.count += count
        suspect.mistakes += offence is Violation.MISTAKE and count
        suspect.forgeries += offence is Violation.FORGERY and count
        suspect.why = why[:DETAIL_LENGTH_MAX]
        if now_s < suspect.emitted_s + TELL_AGAIN_S:
            suspect.not_emitted += 1
            return
        more = f" ({suspect.not_emitted} more since the last event)" if suspect.not_emitted else ""
        suspect.emitted_s, suspect.not_emitted = now_s, 0
        self._unit_of_work.emit(now_s, "message-refused", sender, suspect.why + more)

    def ahead(self, node: str, term: int, now_s: float) -> bool:
        """Note that a node has seen a newer term than that of this leader; return whether to ask the store now."""
        since_s, last_s, _ = self._ahead.get(node, (now_s, -TELL_AGAIN_S, 0))
        self._ahead[node] = (since_s, now_s, term)
        if now_s >= last_s + TELL_AGAIN_S:
            self._unit_of_work.emit(now_s, "term-ahead", node, f"term {term}, this is {self._unit_of_work.term}")
        if now_s < self._asked_s + ASK_AGAIN_S:
            return False
        self._asked_s = now_s
        return True

    def is_worth_keeping(self, result: Result, cluster: Cluster, now_s: float) -> bool:
        """Return whether a result may enter the history: it is awaited, or within UNASKED_MAX a minute of its node. An
        earlier leader may have waited for the latter."""
        if result.action in cluster.actions:
            return True
        return self._unasked.passes(result.node, now_s)

    def alarms(self, now_s: float) -> Iterable[tuple[str, str, float | None, str]]:
        """Yield what was refused within ALARM_S: code, subject, start and reason."""
        for sender, suspect in sorted(self._suspects.items()):
            alarming = suspect.forgeries or suspect.mistakes >= MISTAKES_MAX
            if alarming and now_s < suspect.last_s + ALARM_S:
                yield "message-refused", sender, suspect.since_s, f"{suspect.count} messages, the last: {suspect.why}"
        for node, (since_s, last_s, term) in sorted(self._ahead.items()):
            if now_s < last_s + ALARM_S:
                yield (
                    "term-ahead",
                    node,
                    since_s,
                    f"its agent says {term}, the store {self._unit_of_work.term}: {WAY_BACK}",
                )

    def _suspect(self, sender: str, now_s: float) -> Suspect:
        found = self._suspects.get(sender)
        if found is not None and now_s < found.last_s + ALARM_S:
            return found
        if found is None and len(self._suspects) >= SUSPECTS_MAX:
            self._suspects = {name: each for name, each in self._suspects.items() if now_s < each.last_s + ALARM_S}
            if len(self._suspects) >= SUSPECTS_MAX:
                sender = THE_REST
                if (rest := self._suspects.get(sender)) is not None:
                    return rest
        self._suspects[sender] = Suspect(now_s, now_s)
        return self._suspects[sender]
