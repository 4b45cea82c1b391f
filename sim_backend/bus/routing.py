"""How a routing key finds its queues: exact, by topic pattern, or by queue name on the default exchange."""

from __future__ import annotations

from collections.abc import Iterable

from shared.base.errors import PermanentError
from shared.protocol.topology import EXCHANGES, REPLIES, ExchangeKind


def topic_matches(pattern: str, key: str) -> bool:
    """Return whether a topic pattern covers a routing key: `*` stands for one word, `#` for zero or more words."""
    if pattern == "#":
        return True
    words = key.split(".")
    # reached[i]: the pattern words so far can cover exactly the first i words of the key
    reached = [True] + [False] * len(words)
    for part in pattern.split("."):
        if part == "#":
            first = reached.index(True) if True in reached else len(reached)
            reached = [i >= first for i in range(len(reached))]
        else:
            reached = [False] + [reached[i] and part in ("*", word) for i, word in enumerate(words)]
    return reached[-1]


class Bindings:
    """Which queues, by name, an (exchange, routing key) pair leads to."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], list[str]] = {}
        self._patterns: dict[str, list[tuple[str, str]]] = {}

    def bind(self, queue: str, bindings: Iterable[tuple[str, str]]) -> None:
        """Add bindings of a queue; one that is there already stays one. PermanentError for an unknown exchange."""
        wanted = tuple(bindings)
        for exchange, _ in wanted:
            if exchange not in EXCHANGES:
                raise PermanentError(f"queue {queue!r} cannot be bound to the unknown exchange {exchange!r}")
        for exchange, key in wanted:
            if EXCHANGES[exchange] is ExchangeKind.DIRECT:
                queues = self._exact.setdefault((exchange, key), [])
                if queue not in queues:
                    queues.append(queue)
            elif (key, queue) not in (patterns := self._patterns.setdefault(exchange, [])):
                patterns.append((key, queue))

    def unbind(self, queue: str) -> None:
        """Remove every binding of a queue."""
        for queues in self._exact.values():
            if queue in queues:
                queues.remove(queue)
        for exchange, patterns in self._patterns.items():
            self._patterns[exchange] = [pair for pair in patterns if pair[1] != queue]

    def queues(self, exchange: str, key: str) -> tuple[str, ...]:
        """Return the names of the queues that receive a message, each once, in the order of binding (on the default
        exchange the key itself, even without such a queue). PermanentError for an unknown exchange."""
        if exchange == REPLIES:
            return (key,)
        kind = EXCHANGES.get(exchange)
        if kind is None:
            raise PermanentError(f"there is no exchange {exchange!r}")
        if kind is ExchangeKind.DIRECT:
            return tuple(self._exact.get((exchange, key), ()))
        found = (queue for pattern, queue in self._patterns.get(exchange, ()) if topic_matches(pattern, key))
        return tuple(dict.fromkeys(found))
