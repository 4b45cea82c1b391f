"""Serves metrics in the text format of Prometheus; the only file that renders with prometheus_client.

One small HTTP server in a thread of its own: GET and HEAD of /metrics, nothing else, without accounts; it is meant for
the loopback or a network of its own. Who connects is bounded in number and in time.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Rendered
from prometheus_client.registry import Collector

from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.metrics.meter import BLOCKED, CONNECTED, HELD, QUEUE, Reader, ShellMeter
from shared.metrics.values import Family, Kind, Metric, Scrape, Spread
from shared.runtime.logs import get_logger
from shared.runtime.shell import Shell

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLIENTS_MAX = 8
CLIENT_S = 10.0  # how long a client may take for all that it says and hears
IDLE_S = 5.0  # and for each part of it
BIND_AGAIN_S = 30.0
LOOK_S = 0.5  # how often the server looks for clients that are too slow

Families = Callable[[], Iterable[Family]]
Trouble = Callable[[str], None]


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, an IPv6 address in brackets. Raises InvalidInput."""
    host, _, port = listen.rpartition(":")
    expected = "HOST:PORT, such as 127.0.0.1:9460 or [::1]:9460, or nothing"
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(Problem("metrics.listen", f"is {listen!r}", expected))
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise InvalidInput(Problem("metrics.listen", f"is {listen!r}", expected))
    return host, int(port)


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches an address; a name counts as one that others reach but for localhost."""
    host, _ = address_of(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def rendered(family: Family) -> Rendered:
    """A family as the library has it."""
    metric = family.metric
    if metric.kind is Kind.HISTOGRAM:
        return _histogram(family)
    kinds: dict[Kind, type[Any]] = {Kind.COUNTER: CounterMetricFamily, Kind.INFO: InfoMetricFamily}
    made: Rendered = kinds.get(metric.kind, GaugeMetricFamily)(metric.name.removesuffix("_info"), metric.help)
    for labels, value in family.series:
        if isinstance(value, Spread):
            raise InvalidValue("series", value, f"a number, for {metric.name}")
        made.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
    return made


def _histogram(family: Family) -> Rendered:
    metric = family.metric
    made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.series:
        if not isinstance(value, Spread):
            raise InvalidValue("series", value, f"a spread, for histogram {metric.name}")
        made.add_metric(labels, list(_cumulated(metric, value)), value.total)
    return made


def _cumulated(metric: Metric, spread: Spread) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, more in zip((*map(str, metric.buckets), "+Inf"), spread.counts, strict=True):
        count += more
        yield bound, float(count)


class _Source(Collector):
    """Our families, as the library asks for them."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Rendered]:
        """All of them, in the order of their names."""
        return sorted(map(rendered, self._families()), key=lambda one: one.name)

    def describe(self) -> Iterable[Rendered]:
        """Nothing: what there is is known only when it is read."""
        return ()


class Page:
    """The whole page as text: our families, what the library knows of the process and of Python."""

    def __init__(self, families: Families) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(_Source(families))

    def __call__(self) -> bytes:
        """Read everything now."""
        return generate_latest(self._registry)


class MetricsServer:
    """Serves a page at an address from `start` to `stop`.

    An address that cannot be had (another process has the port, say) ends nothing: `trouble` is called with why, it is
    tried again every `again_s`, and once it works `trouble` is called with "". From the server's own thread. No client
    takes longer than `client_s`.
    """

    def __init__(
        self,
        listen: str,
        page: Callable[[], bytes],
        trouble: Trouble = lambda _: None,
        again_s: float = BIND_AGAIN_S,
        client_s: float = CLIENT_S,
    ) -> None:
        self._address, self._client_s = address_of(listen), client_s
        self._listen, self._page, self._trouble, self._again_s = listen, page, trouble, again_s
        self._ending = Event()
        self._serving = Event()
        self._lock = Lock()
        self._server: _Server | None = None
        self._thread = Thread(target=self._run, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port, once it serves (0 before)."""
        server = self._server
        return 0 if server is None else int(server.server_address[1])

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it serves, within so long."""
        return self._serving.wait(timeout_s)

    def stop(self) -> None:
        """End; what is being answered is cut off after a moment."""
        with self._lock:
            self._ending.set()
            server = self._server
        if server is not None:
            server.shutdown()
        self._thread.join(IDLE_S)

    def _run(self) -> None:
        told = ""
        while not self._ending.is_set():
            try:
                server = _Server(self._address, self._page, self._client_s)
            except OSError as error:
                why = f"{self._listen}: {error.strerror or error}"
                if why != told:
                    get_logger("metrics").error("metrics are not served", listen=self._listen, error=why)
                    self._trouble(why)
                told = why
                self._ending.wait(self._again_s)
                continue
            if told:
                self._trouble("")
            self._serve(server)
            return

    def _serve(self, server: _Server) -> None:
        with self._lock:
            self._server = server
            ended = self._ending.is_set()
        get_logger("metrics").info("metrics are served", listen=self._listen)
        self._serving.set()
        try:
            if not ended:
                server.serve_forever(LOOK_S)
        finally:
            server.server_close()


def serve(shell: Shell, meter: ShellMeter, listen: str, trouble: Trouble = lambda _: None) -> MetricsServer | None:
    """Have a shell tell a meter of what passes through it, and serve that ("": no, nothing is metered). Before `run`.
    `trouble`: see MetricsServer. Raises InvalidInput for an address that is none."""
    if not listen:
        return None

    def read(scrape: Scrape) -> None:
        scrape.put(CONNECTED, float(shell.is_connected))
        scrape.put(BLOCKED, float(shell.is_blocked))
        scrape.put(HELD, float(shell.held))
        scrape.put(QUEUE, float(shell.waiting))
        meter.read(scrape, shell.clock.now_s())

    reader = Reader(meter.book, shell.ask, read, shell.clock.monotonic_s)
    server = MetricsServer(listen, Page(reader.families), trouble)
    shell.meter = meter
    server.start()
    return server


class _Server(ThreadingHTTPServer):
    """At most CLIENTS_MAX at a time, each for at most `client_s`; more are turned away at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], page: Callable[[], bytes], client_s: float) -> None:
        self.page, self._client_s = page, client_s
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._clock = SystemClock()
        self._room = BoundedSemaphore(CLIENTS_MAX)
        self._open: dict[Any, float] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without asking for the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """One client, in a thread of its own where there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open[request] = self._clock.monotonic_s() + self._client_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Until the client is served."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._room.release()

    def service_actions(self) -> None:
        """Cut off whoever takes too long."""
        now_s = self._clock.monotonic_s()
        for request, until_s in list(self._open.items()):
            if now_s >= until_s:
                self._open.pop(request, None)
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has gone by itself

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  the library's
        """A client that goes away, or says what is no HTTP, is nobody's trouble."""
        get_logger("metrics").debug("a client was not served", client=str(client_address[0]))


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of one path."""

    timeout = IDLE_S
    server_version = "trimtab"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        """The page."""
        self._answer(whole=True)

    def do_HEAD(self) -> None:
        """Its head."""
        self._answer(whole=False)

    def _answer(self, whole: bool) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            body = self.server.page()
        except Exception as error:  # noqa: BLE001  whatever is wrong with a page is told to who asks, and logged
            get_logger("metrics").error("no page", error=f"{type(error).__name__}: {error}", exc_info=error)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if whole:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
