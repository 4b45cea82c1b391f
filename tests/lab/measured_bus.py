"""What passes the broker of a cluster: every message is counted, and orders are joined with their answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from shared.ports.bus import Delivery
from shared.protocol import topology
from shared.protocol.codec import decode
from shared.protocol.messages import Order, Result
from shared.protocol.topology import QueueSpec
from shared.runtime import startup
from shared.values.actions import ActionKind, Outcome
from tests.integration.harness import CLOCK
from tests.integration.scene import Scene

POLL_S = 0.2
PREFETCH = 1_000


@dataclass(frozen=True, slots=True)
class Heard:
    """An order and its answer: when each passed, in seconds of the monotonic clock."""

    kind: ActionKind
    vm: str
    ordered_s: float
    answered_s: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Passed:
    """What passed in so many seconds: messages and bytes of bodies, by kind."""

    over_s: float
    messages: Mapping[str, int]
    octets: Mapping[str, int]


class Tap:
    """A queue of its own that gets all that is published to the cluster's exchanges. Use as a context manager."""

    def __init__(self, made: Scene) -> None:
        vhost = quote(made.vhost, safe="")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        made.api.call("PUT", f"permissions/{vhost}/{made.broker.user}", everything)
        self._url = made.broker.url(made.broker.user, made.broker.password, made.vhost)
        controller = [(exchange, topology.CONTROLLER_QUEUE) for exchange in (topology.RESULTS, topology.REQUESTS)]
        controller.append((topology.QUESTIONS, topology.QUESTION_KEY))
        actions = [(topology.ACTIONS, node) for node in made.lab.nodes]
        topics = [(exchange, "#") for exchange in (topology.REPORTS, topology.EVENTS)]
        self._queue = QueueSpec("tap", (*controller, *actions, *topics), durable=False, exclusive=True)
        self._news = threading.Condition()
        self._over = False
        self._ordered: dict[str, float] = {}
        self._answers: list[Heard] = []
        self._messages, self._octets = Counter[str](), Counter[str]()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Tap:
        self._thread.start()
        assert self._ready.wait(30.0), "the tap has no connection"
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()

    @property
    def heard(self) -> int:
        """How many answers have passed."""
        with self._news:
            return len(self._answers)

    def took_s(self, kind: ActionKind) -> list[float]:
        """How long each order of a kind that was carried out has taken."""
        with self._news:
            done = [one for one in self._answers if one.kind is kind and one.outcome is Outcome.OK]
        return [one.answered_s - one.ordered_s for one in done]

    def wait_for(self, kind: ActionKind, vm: str, since: int, limit_s: float) -> Heard | None:
        """The first answer to such an order after the first `since` ones; None when there is none within the limit."""
        with self._news:
            self._news.wait_for(lambda: bool(list(self._found(kind, vm, since))), limit_s)
            return next(self._found(kind, vm, since), None)

    def _found(self, kind: ActionKind, vm: str, since: int) -> Iterator[Heard]:
        return (one for one in self._answers[since:] if (one.kind, one.vm) == (kind, vm))

    @contextmanager
    def counting(self, found: list[Passed]) -> Iterator[None]:
        """Add what passes meanwhile."""
        begun_s, messages, octets = CLOCK.monotonic_s(), self._messages.copy(), self._octets.copy()
        yield
        over_s = CLOCK.monotonic_s() - begun_s
        found.append(Passed(over_s, self._messages - messages, self._octets - octets))

    def _listen(self) -> None:
        bus = startup.broker(self._url)()
        try:
            bus.declare(self._queue)
            bus.consume(self._queue.name, PREFETCH, acknowledged=False)
            self._ready.set()
            while not self._over:
                for event in bus.poll(POLL_S):
                    if isinstance(event, Delivery):
                        self._take(event.body, CLOCK.monotonic_s())
        finally:
            bus.close()

    def _take(self, body: bytes, now_s: float) -> None:
        message = decode(body)
        with self._news:
            self._messages[message.KIND] += 1
            self._octets[message.KIND] += len(body)
            if isinstance(message, Order):
                self._ordered.setdefault(message.action.id, now_s)
            elif isinstance(message, Result):
                ordered_s = self._ordered.get(message.action, now_s)
                self._answers.append(Heard(message.kind, message.vm, ordered_s, now_s, message.outcome))
                self._news.notify_all()
