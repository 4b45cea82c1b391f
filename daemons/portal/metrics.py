"""The portal's metrics about itself: requests by route, answers of the controller, and sessions.

Put `Metered` around the application and `MeteredClient` around the controller client, and serve the result of
`PortalMeter.families` (`shared.metrics.exposition.MetricsServer` and `registry_of`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemons.portal.client.controller_client import ControllerClient, Refused, Unreachable
from shared.metrics.book import Book
from shared.metrics.meter import BUILD
from shared.metrics.values import Family, Metric, MetricKind, Scrape
from shared.protocol.operator_messages import Request

NO_ROUTE = "none"  # of a path that is no page: the path itself is anybody's text
DEFECT = 500
METHODS = frozenset({"GET", "HEAD", "POST"})

REQUESTS = Metric(
    "trimtab_portal_requests_total",
    MetricKind.COUNTER,
    "requests",
    "Requests answered, by method, route and status.",
    ("method", "route", "status"),
    series_max=1_000,
)
DEFECTS = Metric(
    "trimtab_portal_defects_total",
    MetricKind.COUNTER,
    "requests",
    "Requests that ended in a defect of the portal (status 500).",
)
FIRST_BYTE = Metric(
    "trimtab_portal_first_byte_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "From a request to the first byte of its answer, by route.",
    ("route",),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0),
)
ASKED = Metric(
    "trimtab_portal_queries_total",
    MetricKind.COUNTER,
    "requests",
    "What was asked of the controller: views or requests, answered, refused, or nobody answered.",
    ("what", "outcome"),
)
ASKED_TIME = Metric(
    "trimtab_portal_query_seconds",
    MetricKind.HISTOGRAM,
    "seconds",
    "How long the controller took to answer.",
    ("what",),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
ANSWERED = Metric(
    "trimtab_portal_answer_timestamp_seconds",
    MetricKind.GAUGE,
    "seconds",
    "When the controller last answered, since the epoch: how old live data are.",
)
ANSWERS = Metric(
    "trimtab_portal_controller_answers",
    MetricKind.GAUGE,
    "0 or 1",
    "Whether the controller answered when it was last asked.",
)
SESSIONS = Metric("trimtab_portal_sessions", MetricKind.GAUGE, "sessions", "Sessions that have not ended.")
READERS = Metric("trimtab_portal_readers", MetricKind.GAUGE, "browsers", "Browsers that listen for changes.")

REFUSALS = Metric(
    "trimtab_portal_refusals_total",
    MetricKind.COUNTER,
    "refusals",
    "Refused: pages of other roles, forms of others' pages, logins too soon (they are in the audit); connections and "
    "requests of addresses that have as many as they may.",
    ("what",),
)

METRICS = (REQUESTS, DEFECTS, REFUSALS, FIRST_BYTE, ASKED, ASKED_TIME, ANSWERED, ANSWERS, SESSIONS, READERS)


class PortalMeter:
    """Counts; from any thread. `readers` and `sessions` say how many there are (None: not known) and are called from
    the thread of a scrape: they must only look up a number."""

    def __init__(
        self,
        version: str,
        monotonic_s: Callable[[], float],
        readers: Callable[[], int],
        sessions: Callable[[], int | None],
    ) -> None:
        self.book = Book(METRICS)
        self.monotonic_s = monotonic_s
        self._version, self._readers, self._sessions = version, readers, sessions
        self._answered_s: float | None = None
        self._answers: bool | None = None

    def request(self, method: str, route: str, status: int) -> None:
        """Count a request that was answered, or whose answer has begun."""
        self.book.add(REQUESTS, 1.0, method if method in METHODS else "other", route, f"{status}")
        if status == DEFECT:
            self.book.add(DEFECTS, 1.0)

    def refused(self, what: str) -> None:
        """Something was refused, of one of a few kinds."""
        self.book.add(REFUSALS, 1.0, what)

    def first_byte(self, route: str, took_s: float) -> None:
        """Record the time to the first byte of an answer."""
        self.book.observe(FIRST_BYTE, took_s, route)

    def asked(self, what: str, outcome: str, took_s: float, now_s: float) -> None:
        """Count a request to the controller."""
        self.book.add(ASKED, 1.0, what, outcome)
        self._answers = outcome != "unreachable"
        if self._answers:
            self.book.observe(ASKED_TIME, took_s, what)
            self._answered_s = now_s

    def families(self) -> tuple[Family, ...]:
        """Return the current values of all families."""
        scrape, sessions = Scrape(), self._sessions()
        scrape.put(BUILD, 1.0, "portal", self._version)
        scrape.put(READERS, float(self._readers()))
        scrape.put(SESSIONS, None if sessions is None else float(sessions))
        scrape.put(ANSWERED, self._answered_s)
        scrape.put(ANSWERS, None if self._answers is None else float(self._answers))
        return scrape.families(self.book.families())


class Metered:
    """An application whose requests are counted. Outside everything else."""

    def __init__(self, app: ASGIApp, meter: PortalMeter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_s, meter = self._meter.monotonic_s(), self._meter

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = str(getattr(scope.get("route"), "path", NO_ROUTE)) or NO_ROUTE
                meter.request(str(scope["method"]), route, int(message["status"]))
                meter.first_byte(route, meter.monotonic_s() - begun_s)
            await send(message)

        await self._app(scope, receive, counting)


class MeteredClient:
    """A controller client whose answers are counted."""

    def __init__(self, controller_client: ControllerClient, meter: PortalMeter) -> None:
        self._controller_client, self._meter = controller_client, meter

    @property
    def own(self) -> str:
        """As the controller client says."""
        return self._controller_client.own

    def now_s(self) -> float:
        """Return the controller client's time."""
        return self._controller_client.now_s()

    def new_id(self) -> str:
        """Return an id from the controller client."""
        return self._controller_client.new_id()

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        """Return a view through the controller client, and count it."""
        begun_s = self._meter.monotonic_s()
        try:
            found = await self._controller_client.view(account, what, subject, limit)
        except (Refused, Unreachable) as error:
            self._count("view", begun_s, error)
            raise
        self._count("view", begun_s)
        return found

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        """Send a request through the controller client, and count it."""
        begun_s = self._meter.monotonic_s()
        try:
            answer = await self._controller_client.ask(account, request, why)
        except (Refused, Unreachable) as error:
            self._count("request", begun_s, error)
            raise
        self._count("request", begun_s)
        return answer

    def _count(self, what: str, begun_s: float, error: Exception | None = None) -> None:
        outcome = "answered" if error is None else "refused" if isinstance(error, Refused) else "unreachable"
        self._meter.asked(what, outcome, self._meter.monotonic_s() - begun_s, self._controller_client.now_s())
