"""Reads what a web application's counters say, over HTTP in the text format of Prometheus.

`trimtab_flow_requests_total{flow="..",outcome="offered|served|rejected"}` (counters), `trimtab_flow_response_seconds`
(histogram with the label `flow`), `trimtab_flow_queued` (gauge). Other labels are summed over. Without
`outcome="served"` the histogram counts the requests that were answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from shared.base.deadline import Deadline
from shared.base.errors import TransientError
from shared.base.http_client import OK, Request, exchange
from shared.ports.effects import Scrape, Scraped
from shared.runtime.lanes import Lane, SharedLanes
from shared.runtime.shell import Times
from shared.values.web_app import FLOWS_MAX, FlowSample

LIMIT_S = 3.0  # for one page, from the name of the server to the last byte received
PAGE_BYTES_MAX = 4 << 20
LANES = 64
FORGET_S = 600.0  # counters that nobody has asked for so long belong to an application that is gone
COUNT_MAX = 1e15
REQUESTS, SECONDS, QUEUED = "trimtab_flow_requests_total", "trimtab_flow_response_seconds", "trimtab_flow_queued"
Fetch = Callable[[str], str]


@dataclass(slots=True)
class Counters:
    """One flow at one moment. `counts`: by outcome; `buckets`: answered within so many seconds, by the bound."""

    counts: dict[str, float] = field(default_factory=dict)
    queued: float = 0.0
    seconds: float = 0.0
    timed: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)


def read_page(text: str) -> dict[str, Counters]:
    """Return the counters on a page, by flow. Raises `TransientError` if it is not a page of metrics."""
    flows: dict[str, Counters] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                flow = sample.labels.get("flow", "")
                if flow and 0.0 <= sample.value <= COUNT_MAX and (flow in flows or len(flows) < FLOWS_MAX):
                    _take(flows.setdefault(flow, Counters()), sample.name, sample.labels, float(sample.value))
    except (ValueError, LookupError, ArithmeticError) as problem:  # the parser's own slips among them
        raise TransientError(f"not a page of metrics: {str(problem)[:200]}") from problem
    return flows


def _take(counters: Counters, name: str, labels: Mapping[str, str], value: float) -> None:
    if name == REQUESTS:
        outcome = labels.get("outcome", "")
        counters.counts[outcome] = counters.counts.get(outcome, 0.0) + value
    elif name == QUEUED:
        counters.queued += value
    elif name == f"{SECONDS}_sum":
        counters.seconds += value
    elif name == f"{SECONDS}_count":
        counters.timed += value
    elif name == f"{SECONDS}_bucket":
        bound_s = float(labels.get("le", "nan"))
        if bound_s > 0.0:
            counters.buckets[bound_s] = counters.buckets.get(bound_s, 0.0) + value


def between(
    flow: str, before: Counters, after: Counters, window_s: float, percentile: float = 0.0
) -> FlowSample | None:
    """Return the flow sample between two readings; None when the counters were reset meanwhile."""
    counts = {outcome: after.counts.get(outcome, 0.0) - count for outcome, count in before.counts.items()}
    counts = after.counts | counts
    timed, seconds = after.timed - before.timed, after.seconds - before.seconds
    if min(*counts.values(), timed, seconds, math.inf) < 0.0:
        return None
    served = counts.get("served", timed)
    return FlowSample(
        flow,
        window_s,
        int(counts.get("offered", 0.0)),
        served=int(served),
        rejected=int(counts.get("rejected", 0.0)),
        queued=int(after.queued),
        mean_s=seconds / timed if timed > 0.0 else 0.0,
        percentile_s=_quantile(before, after, percentile) if percentile > 0.0 else 0.0,
    )


def _quantile(before: Counters, after: Counters, share: float) -> float:
    """Return the time within which the given share was answered, spread evenly within a bucket. The last bucket has no
    end, so its start is used. 0 when nothing was answered."""
    grown = [(bound, max(0.0, n - before.buckets.get(bound, 0.0))) for bound, n in sorted(after.buckets.items())]
    wanted = share * grown[-1][1] if grown else 0.0
    low_s, below = 0.0, 0.0
    for bound_s, count in grown:
        if count >= wanted > 0.0:
            if math.isinf(bound_s):
                return low_s
            return low_s + (bound_s - low_s) * (wanted - below) / (count - below)
        low_s, below = bound_s, count
    return 0.0


class Scraper:
    """Reads one application again and again; what it says is about the time between two readings. For one thread.

    `fetch` gives the page of a URL and raises `TransientError`; `monotonic_s` is a clock that nobody sets.
    """

    def __init__(self, fetch: Fetch, monotonic_s: Callable[[], float], now_s: Callable[[], float]) -> None:
        self._fetch, self._monotonic_s, self._now_s = fetch, monotonic_s, now_s
        self._before: dict[str, Counters] = {}
        self._read_s = -math.inf
        self._url = ""

    def scrape(self, effect: Scrape) -> Scraped:
        """Carry the effect out."""
        try:
            page = read_page(self._fetch(effect.url))
        except TransientError as problem:
            return Scraped(effect.app, self._now_s(), error=str(problem))
        at_s = self._monotonic_s()
        window_s = at_s - self._read_s
        before = self._before if effect.url == self._url else {}
        self._before, self._read_s, self._url = page, at_s, effect.url
        percentiles = dict(effect.percentiles)
        samples = [
            between(flow, before[flow], counters, window_s, percentiles.get(flow, 0.0))
            for flow, counters in page.items()
            if flow in before and window_s > 0.0
        ]
        return Scraped(effect.app, self._now_s(), tuple(sample for sample in samples if sample is not None))


class _Reading:
    """What is read of one application, and when that was asked for last. `waiting`: an answer is still to come."""

    __slots__ = ("asked_s", "scraper", "waiting")

    def __init__(self, scraper: Scraper) -> None:
        self.scraper, self.asked_s, self.waiting = scraper, 0.0, False


class Readers:
    """Carries `Scrape` effects out, in `LANES` lanes at most; `post` takes the answers.

    An application whose answer is still to come is not asked again. What is gone leaves nothing behind: the counters of
    an application that has not been asked for in `FORGET_S` are forgotten as soon as another one is new.
    """

    def __init__(self, lane: Callable[[str], Lane], post: Callable[[Scraped], None], clock: Times) -> None:
        self._lanes = SharedLanes("scrape", LANES, lane)
        self._post, self._clock = post, clock
        self._readings: dict[str, _Reading] = {}

    def __len__(self) -> int:
        """Return the number of applications with stored counters."""
        return len(self._readings)

    def scrape(self, effect: Scrape) -> None:
        """Have the counters read."""
        reading = self._readings.get(effect.app)
        if reading is None:
            reading = self._readings[effect.app] = self._begin()
        reading.asked_s = self._clock.monotonic_s()
        if not reading.waiting:
            reading.waiting = True
            self._lanes.of(effect.app).do(partial(self._read, reading, effect))

    def _begin(self) -> _Reading:
        since_s = self._clock.monotonic_s() - FORGET_S
        self._readings = {app: one for app, one in self._readings.items() if one.waiting or one.asked_s > since_s}
        return _Reading(Scraper(http_fetch, self._clock.monotonic_s, self._clock.now_s))

    def _read(self, reading: _Reading, effect: Scrape) -> None:
        """Read an application's counters in a lane."""
        answer = reading.scraper.scrape(effect)
        reading.waiting = False
        self._post(answer)


def http_fetch(url: str, limit_s: float = LIMIT_S) -> str:
    """Get a page over HTTP or HTTPS, without proxies and redirects, within `limit_s`. Raises TransientError."""
    with exchange(Request(url, headers={"Accept": "text/plain"}), Deadline(limit_s)) as answer:
        if answer.status != OK:
            raise TransientError(f"status {answer.status}")
        return answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
