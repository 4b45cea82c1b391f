"""The metrics of every process that runs a core: its bus, its loop, and how long scrapes block the loop.

The shell reports its traffic to its meter, in its own thread. A scrape requests a reading from the loop like any other
caller. Tables are thus read between two inputs and by no other thread; see `Reader`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Lock

from shared.metrics.book import Book
from shared.metrics.values import Family, Metric, MetricKind, Scrape
from shared.ports import effects as fx
from shared.runtime.logs import get_logger
from shared.runtime.meter import Meter

ANSWER_S = 5.0  # how long a scrape waits for the loop
FRESH_S = 1.0  # scrapes within so long are given the same readings
BUILD = Metric(
    "trimtab_build_info", MetricKind.INFO, "", "The process: what it is, and its version.", ("component", "version")
)
CONNECTED = Metric("trimtab_bus_connected", MetricKind.GAUGE, "0 or 1", "Whether there is a connection to the broker.")
BLOCKED = Metric(
    "trimtab_bus_blocked", MetricKind.GAUGE, "0 or 1", "Whether the broker takes no messages for the moment."
)
HELD = Metric(
    "trimtab_bus_held_messages",
    MetricKind.GAUGE,
    "messages",
    "Messages that must arrive and wait for a broker that takes none.",
)
CONNECTIONS = Metric(
    "trimtab_bus_connections_total",
    MetricKind.COUNTER,
    "connections",
    "Connections made; all but the first are reconnects.",
)
RECEIVED = Metric(
    "trimtab_bus_received_total", MetricKind.COUNTER, "messages", "Messages received, by kind.", ("kind",)
)
SENT = Metric(
    "trimtab_bus_sent_total", MetricKind.COUNTER, "messages", "Messages handed to the broker, by kind.", ("kind",)
)
UNSENT = Metric(
    "trimtab_bus_unsent_total",
    MetricKind.COUNTER,
    "messages",
    "Messages not handed to the broker: not connected or blocked, or refused. Those that must arrive are sent again.",
    ("kind",),
)
UNCONFIRMED = Metric(
    "trimtab_bus_unconfirmed_total",
    MetricKind.COUNTER,
    "messages",
    "Messages that must arrive and that the broker did not take; they are sent again.",
)
DEAD = Metric(
    "trimtab_bus_dead_letters_total",
    MetricKind.COUNTER,
    "messages",
    "Deliveries that went to the dead letters: undecodable, or refused for what they say or who sent them.",
    ("reason",),
)
LAG = Metric(
    "trimtab_loop_lag_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How late timers fire: how busy the loop is.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0),
)
QUEUE = Metric(
    "trimtab_loop_queue_length", MetricKind.GAUGE, "inputs", "What waits for the loop, in batches or one by one."
)
RESPONDING = Metric(
    "trimtab_loop_responding",
    MetricKind.GAUGE,
    "0 or 1",
    "Whether the loop answered this scrape in time and in full. If 0, counters only, no tables.",
)
HELD_UP = Metric("trimtab_scrape_loop_seconds", MetricKind.GAUGE, "seconds", "How long this scrape held the loop up.")
METRICS = (
    BUILD,
    CONNECTED,
    BLOCKED,
    HELD,
    CONNECTIONS,
    RECEIVED,
    SENT,
    UNSENT,
    UNCONFIRMED,
    DEAD,
    LAG,
    QUEUE,
    RESPONDING,
    HELD_UP,
)


class ShellMeter(Meter):
    """Counts what every shell has in common; subclasses add what their core is about by `on`, which is asked for by
    the type of inputs and effects, and by `read`."""

    def __init__(self, component: str, version: str, metrics: tuple[Metric, ...] = ()) -> None:
        self.component, self.version = component, version
        self.book = Book((*METRICS, *metrics))
        self.begin(DEAD, "undecodable", "refused")
        self.on: dict[type, Callable[..., object]] = {
            fx.Received: self._received,
            fx.Published: self._published,
            fx.DeadLetter: lambda _: self.book.add(DEAD, 1.0, "refused"),
        }

    def begin(self, metric: Metric, *values: str) -> None:
        """Have a counter with one label stand at 0 for these: what appears at 1 shows no increase."""
        for value in values:
            self.book.add(metric, 0.0, value)

    def input(self, event: fx.Input) -> None:
        """Count an input."""
        if (note := self.on.get(type(event))) is not None:
            note(event)

    def effect(self, effect: fx.Effect) -> None:
        """Count an effect."""
        if (note := self.on.get(type(effect))) is not None:
            note(effect)

    def sent(self, kind: str, sent: bool) -> None:
        """Count a message."""
        self.book.add(SENT if sent else UNSENT, 1.0, kind)

    def buried(self, count: int = 1) -> None:
        """Count what was not taken."""
        self.book.add(DEAD, float(count), "undecodable")

    def connected(self) -> None:
        """Count a connection."""
        self.book.add(CONNECTIONS, 1.0)

    def late(self, by_s: float) -> None:
        """Note the lag of the loop."""
        self.book.observe(LAG, max(0.0, by_s))

    def read(self, scrape: Scrape, now_s: float) -> None:  # noqa: ARG002  of those who look at tables
        """Add what tables say now; in the core's thread."""
        scrape.put(BUILD, 1.0, self.component, self.version)

    def _received(self, received: fx.Received) -> None:
        self.book.add(RECEIVED, 1.0, received.message.KIND)

    def _published(self, published: fx.Published) -> None:
        if not published.ok:
            self.book.add(UNCONFIRMED, 1.0)


class Reader:
    """Takes readings for scrapers, from any thread: at most one a second is requested from the loop.

    `ask` has a function called in the core's thread, as `Shell.ask` does; `read` adds the readings of shell and tables.
    """

    def __init__(
        self,
        book: Book,
        ask: Callable[[Callable[[], None]], None],
        read: Callable[[Scrape], None],
        monotonic_s: Callable[[], float],
        answer_s: float = ANSWER_S,
    ) -> None:
        self._book, self._ask, self._read = book, ask, read
        self._monotonic_s, self._answer_s = monotonic_s, answer_s
        self._lock = Lock()
        self._last: tuple[float, tuple[Family, ...]] | None = None
        self._waiting: Future[Scrape] | None = None

    def families(self) -> tuple[Family, ...]:
        """Return everything that is counted and read; without the tables if the loop does not answer in time."""
        with self._lock:
            if self._last is not None and self._monotonic_s() < self._last[0] + FRESH_S:
                return self._last[1]
            found = self._asked().families(self._book.families())
            self._last = (self._monotonic_s(), found)
            return found

    def _asked(self) -> Scrape:
        """Request one reading at a time: a loop that hangs finds no backlog when it continues."""
        if self._waiting is None:
            answer: Future[Scrape] = Future()
            self._waiting = answer
            self._ask(lambda: self._answer(answer))
        try:
            scrape = self._waiting.result(self._answer_s)
        except FutureTimeout:
            scrape = Scrape()
            scrape.put(RESPONDING, 0.0)
            return scrape
        self._waiting = None
        return scrape

    def _answer(self, answer: Future[Scrape]) -> None:
        """Answer in the core's thread. An error here must not end the daemon: it is logged, and the scrape is
        incomplete."""
        begun_s = self._monotonic_s()
        scrape = Scrape()
        whole = 1.0
        try:
            self._read(scrape)
        except Exception as error:  # noqa: BLE001  any defect of a mere reading
            whole = 0.0
            get_logger("metrics").error("no reading", error=f"{type(error).__name__}: {error}", exc_info=error)
        scrape.put(RESPONDING, whole)
        scrape.put(HELD_UP, self._monotonic_s() - begun_s)
        answer.set_result(scrape)
