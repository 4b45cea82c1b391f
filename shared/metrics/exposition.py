"""Serves metrics as Prometheus reads them; the only file that renders with prometheus_client.

The library's application, which gives text or OpenMetrics, compressed or not, as is asked for, in one small server of
HTTP or HTTPS with a thread of its own: GET and HEAD of /metrics, nothing else, without accounts; it is meant for the
loopback or a network of its own. Who connects is bounded in number and in time.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Rendered
from prometheus_client.registry import Collector

from shared.base.addresses import is_loopback
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.base.secrets import is_absent, path_of
from shared.config.common import Metrics
from shared.metrics.meter import BLOCKED, CONNECTED, HELD, QUEUE, Reader, ShellMeter
from shared.metrics.values import Family, Metric, MetricKind, Scrape, Spread
from shared.runtime.logs import get_logger
from shared.runtime.server_tls import file_problems, tls_of
from shared.runtime.shell import Shell
from shared.runtime.startup import HasLog, relog

PATH = "/metrics"
CLIENTS_MAX = 8
CLIENT_S = 10.0  # how long a client may take for all that it says and hears
IDLE_S = 5.0  # and for each part of it
BIND_AGAIN_S = 30.0
LOOK_S = 0.5  # how often the server looks for clients that are too slow
SERVER = "trimtab"  # what it calls itself: no versions

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


def is_local(listen: str) -> bool:
    """Return whether only this machine reaches an address and port."""
    return is_loopback(address_of(listen)[0])


def check(settings: Metrics) -> None:
    """Raise InvalidInput with everything for which metrics could not be served, but that the port is taken."""
    problems = file_problems("metrics", "certificate_file", settings.certificate_file, settings.key_file)
    has_files = settings.certificate_file and not (is_absent(settings.certificate_file) or is_absent(settings.key_file))
    looks: tuple[Callable[[], object], ...] = (
        lambda: settings.listen and address_of(settings.listen),
        lambda: has_files and not problems and _tls(settings),
    )
    for look in looks:
        try:
            look()
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(*problems)


def _tls(settings: Metrics) -> ssl.SSLContext | None:
    if not settings.certificate_file:
        return None
    return tls_of(path_of(settings.certificate_file), path_of(settings.key_file))


def rendered(family: Family) -> Rendered:
    """Convert a family to the library's form."""
    metric = family.metric
    if metric.kind is MetricKind.HISTOGRAM:
        return _histogram(family)
    kinds: dict[MetricKind, type[Any]] = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.INFO: InfoMetricFamily}
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
        """Return all families, in the order of their names."""
        return sorted(map(rendered, self._families()), key=lambda one: one.name)

    def describe(self) -> Iterable[Rendered]:
        """Return nothing: the families are known only when they are read."""
        return ()


def registry_of(families: Families) -> CollectorRegistry:
    """Make the whole of what is served: our families, what the library knows of the process and of Python. All is read
    whenever somebody asks."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Source(families))
    return registry


class MetricsServer:
    """Serves what is in a registry from `start` to `stop`.

    An address that cannot be had (another process has the port, say), or a certificate, ends nothing: `trouble` is
    called with why, it is tried again every `again_s`, and once it works `trouble` is called with "". From the server's
    own thread. No client takes longer than `client_s`. Raises InvalidInput for an address that is none.
    """

    def __init__(
        self,
        settings: Metrics,
        registry: CollectorRegistry,
        trouble: Trouble = lambda _: None,
        again_s: float = BIND_AGAIN_S,
        client_s: float = CLIENT_S,
    ) -> None:
        self._settings, self._address = settings, address_of(settings.listen)
        self._application, self._trouble = _application(registry), trouble
        self._again_s, self._client_s = again_s, client_s
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
        """Wait until the server is ready, at most `timeout_s`; return whether it is."""
        return self._serving.wait(timeout_s)

    def reload(self) -> None:
        """Show new clients the certificate as it is now. Files that cannot be used change nothing, and are logged."""
        server = self._server
        if server is None:
            return
        try:
            server.tls = _tls(self._settings)
        except InvalidInput as error:
            get_logger("reload").error("certificate not reloaded", problems=[str(it) for it in error.problems])

    def stop(self) -> None:
        """End; what is being answered is cut off after a moment."""
        with self._lock:
            self._ending.set()
            server = self._server
        if server is not None:
            server.shutdown()
        self._thread.join(IDLE_S)

    def _run(self) -> None:
        listen, told = self._settings.listen, ""
        while not self._ending.is_set():
            try:
                server = _Server(self._address, self._application, self._client_s, _tls(self._settings))
            except (OSError, InvalidInput) as error:
                why = f"{listen}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
                if why != told:
                    get_logger("metrics").error("metrics are not served", listen=listen, error=why)
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
        get_logger("metrics").info("metrics are served", listen=self._settings.listen)
        self._serving.set()
        try:
            if not ended:
                server.serve_forever(LOOK_S)
        finally:
            server.server_close()


def serve(
    shell: Shell, meter: ShellMeter, settings: Metrics, trouble: Trouble = lambda _: None
) -> MetricsServer | None:
    """Connect a shell to a meter, and serve its metrics (no address: nothing is metered). Call it before `run`.
    `trouble`: see MetricsServer. Raises InvalidInput for an invalid address."""
    if not settings.listen:
        return None

    def read(scrape: Scrape) -> None:
        scrape.put(CONNECTED, float(shell.is_connected))
        scrape.put(BLOCKED, float(shell.is_blocked))
        scrape.put(HELD, float(shell.held))
        scrape.put(QUEUE, float(shell.waiting))
        meter.read(scrape, shell.clock.now_s())

    reader = Reader(meter.book, shell.ask, read, shell.clock.monotonic_s)
    server = MetricsServer(settings, registry_of(reader.families), trouble)
    shell.meter = meter
    server.start()
    return server


def reload(read: Callable[[], HasLog], running: HasLog, server: MetricsServer | None) -> None:
    """Log as the configuration says now (see `relog`), and show the certificate as it is now."""
    relog(read, running)
    if server is not None:
        server.reload()


def _application(registry: CollectorRegistry) -> WSGIApplication:
    """Return the library's application, for GET and HEAD of one path."""
    library = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        def say(status: str, headers: list[tuple[str, str]], body: bytes) -> list[bytes]:
            start_response(status, [*headers, ("Content-Length", str(len(body))), ("Server", SERVER)])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

        def refuse(status: HTTPStatus) -> list[bytes]:
            line = f"{status.value} {status.phrase}"
            return say(line, [("Content-Type", "text/plain; charset=utf-8")], f"{line}\n".encode())

        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return refuse(HTTPStatus.NOT_IMPLEMENTED)
        if environ["PATH_INFO"] != PATH:
            return refuse(HTTPStatus.NOT_FOUND)
        told: list[tuple[str, list[tuple[str, str]]]] = []
        try:
            whole = {**environ, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
            (body,) = library(whole, lambda *status_and_headers: told.append(status_and_headers))
        except Exception as error:  # noqa: BLE001  whatever is wrong with a page is told to who asks, and logged
            get_logger("metrics").error("no page", error=f"{type(error).__name__}: {error}", exc_info=error)
            return refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
        return say(*told[0], body)

    return answer


class _Server(ThreadingMixIn, WSGIServer):
    """At most CLIENTS_MAX at a time, each for at most `client_s`; more are turned away at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(
        self, address: tuple[str, int], application: WSGIApplication, client_s: float, tls: ssl.SSLContext | None
    ) -> None:
        self.tls, self._client_s = tls, client_s
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._clock = SystemClock()
        self._room = BoundedSemaphore(CLIENTS_MAX)
        self._open: dict[Any, float] = {}
        super().__init__(address, _Handler)
        self.set_app(application)

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a client. The TLS handshake runs in the client's own thread: a client that sends nothing blocks
        nobody."""
        request, client_address = super().get_request()
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve one client in a thread of its own, if one is free."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open[request] = self._clock.monotonic_s() + self._client_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the client to the end in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._room.release()

    def service_actions(self) -> None:
        """Disconnect clients that take too long."""
        now_s = self._clock.monotonic_s()
        for request, until_s in list(self._open.items()):
            if now_s >= until_s:
                self._open.pop(request, None)
                try:
                    socket.socket.shutdown(request, socket.SHUT_RDWR)  # TLS's own would go on in plain text
                except OSError:
                    continue  # it has gone by itself

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  the library's
        """Ignore a client that disconnects or does not send HTTP."""
        get_logger("metrics").debug("a client was not served", client=str(client_address[0]))


class _Handler(WSGIRequestHandler):
    """One request of a client, which says each part of it in time. Logs nothing."""

    timeout = IDLE_S
    server_version = SERVER
    sys_version = ""

    def get_stderr(self) -> Any:
        """Discard the library's messages about clients that disconnect or read nothing."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
