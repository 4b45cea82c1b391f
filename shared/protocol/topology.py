"""Exchanges, queues and who may use them: one table that every bus implementation builds from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

REPORTS = "trimtab.reports"
ACTIONS = "trimtab.actions"
RESULTS = "trimtab.results"
REQUESTS = "trimtab.requests"
QUESTIONS = "trimtab.questions"
EVENTS = "trimtab.events"
DEAD = "trimtab.dead"
REPLIES = ""  # the default exchange: the routing key is the name of the asker's own queue

CONTROLLER_QUEUE = "controller"
DEAD_QUEUE = "dead"
QUESTION_KEY = "question"
CONTROLLER_USER_PREFIX = "controller."
AGENT_USER_PREFIX = "agent."
OPERATOR_USER_PREFIX = "operator."
WEB_USER_PREFIX = "web."
OWNER_USER_PREFIX = "owner."
USER_USER_PREFIX = "user."
PORTAL_USER_PREFIX = "portal."  # asks on behalf of others, see `OnBehalf`

REPORT_TTL_S = 15.0
REPORT_QUEUE_LENGTH_MAX = 10_000
QUESTION_TTL_S = 15.0
QUESTION_QUEUE_LENGTH_MAX = 1_000
DEAD_QUEUE_LENGTH_MAX = 10_000
DEAD_BODY_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024


class ExchangeKind(StrEnum):
    """How an exchange matches routing keys: exactly, or with `*` (one word) and `#` (any number of words)."""

    DIRECT = "direct"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue and its bindings, each an (exchange, routing key) pair.

    `ttl_s`: messages older than that are dropped unseen. `length_max`: beyond it the oldest is dropped. `durable`:
    survives the broker. `single_active`: of several consumers only the first gets deliveries, the next when it goes.
    `exclusive`: belongs to one connection and goes with it.
    """

    name: str
    bindings: tuple[tuple[str, str], ...]
    durable: bool = True
    ttl_s: float | None = None
    length_max: int | None = None
    single_active: bool = False
    exclusive: bool = False


EXCHANGES: dict[str, ExchangeKind] = {
    REPORTS: ExchangeKind.TOPIC,
    ACTIONS: ExchangeKind.DIRECT,
    RESULTS: ExchangeKind.DIRECT,
    REQUESTS: ExchangeKind.DIRECT,
    QUESTIONS: ExchangeKind.DIRECT,
    EVENTS: ExchangeKind.TOPIC,
    DEAD: ExchangeKind.DIRECT,
}

CONTROLLER = QueueSpec(
    CONTROLLER_QUEUE,
    ((RESULTS, CONTROLLER_QUEUE), (REQUESTS, CONTROLLER_QUEUE)),
    single_active=True,
)
DEAD_LETTERS = QueueSpec(DEAD_QUEUE, ((DEAD, DEAD_QUEUE),), length_max=DEAD_QUEUE_LENGTH_MAX)


def agent_queue(node: str) -> QueueSpec:
    """Return the durable queue of a node's actions, declared when the node is added."""
    return QueueSpec(agent_user(node), ((ACTIONS, node),))


def report_queue(controller: str) -> QueueSpec:
    """Return the transient queue of reports from nodes and web applications to one controller; only the newest
    matter."""
    return QueueSpec(
        f"reports.{controller}",
        ((REPORTS, "report.#"), (REPORTS, "web.#")),
        durable=False,
        ttl_s=REPORT_TTL_S,
        length_max=REPORT_QUEUE_LENGTH_MAX,
        exclusive=True,
    )


def question_queue(controller: str) -> QueueSpec:
    """Return the transient queue of questions from operators and portals to one controller; an unanswered question is
    repeated. Questions also bypass the backlog of the queue that others write to."""
    return QueueSpec(
        f"questions.{controller}",
        ((QUESTIONS, QUESTION_KEY),),
        durable=False,
        ttl_s=QUESTION_TTL_S,
        length_max=QUESTION_QUEUE_LENGTH_MAX,
        exclusive=True,
    )


def asked_at(user: str, only_asks: bool) -> tuple[str, str]:
    """Return the exchange and the key of a user's request; `only_asks`: it has no effect, so it may be lost."""
    if only_asks and user.startswith((OPERATOR_USER_PREFIX, PORTAL_USER_PREFIX)):
        return QUESTIONS, QUESTION_KEY
    return REQUESTS, CONTROLLER_QUEUE


def event_queue(reader: str) -> QueueSpec:
    """Return a reader's own queue of all events."""
    return QueueSpec(f"events.{reader}", ((EVENTS, "#"),), durable=False, length_max=10_000, exclusive=True)


def report_key(node: str) -> str:
    """Routing key of a node's reports."""
    return f"report.{node}"


def agent_user(node: str) -> str:
    """Return the user (and queue name) of a node's agent."""
    return AGENT_USER_PREFIX + node


def reply_queue(user: str, word: str = "") -> QueueSpec:
    """Return a user's own queue of answers; `word` distinguishes several of one user."""
    return QueueSpec(f"reply.{user}.{word}" if word else f"reply.{user}", (), durable=False, exclusive=True)


def is_reply_queue_of(user: str, queue: str) -> bool:
    """Return whether a queue is one that `reply_queue` makes for the user; a user's name has two words."""
    return queue == f"reply.{user}" or queue.startswith(f"reply.{user}.")


def owner_of_queue(queue: str) -> str:
    """Return the account that owns this queue of answers or events ("": nobody)."""
    words = queue.split(".")
    return f"{words[1]}.{words[2]}" if words[0] in ("reply", "events") and len(words) >= 3 else ""


def web_key(app: str) -> str:
    """Routing key of what is measured of a web application."""
    return f"web.{app}"


def web_user(app: str) -> str:
    """Return the user that may send the measurements of a web application."""
    return WEB_USER_PREFIX + app
