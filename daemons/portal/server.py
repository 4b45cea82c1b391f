"""The HTTP server: uvicorn, with bounds of our own on connections and on how slowly a request may come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemons.portal.guard import HEAD_BYTES_MAX
from shared.errors import InvalidInput, PermanentError, Problem

KEEP_ALIVE_S = 15
GRACE_S = 3
TLS_S = 10.0
BACKLOG = 256
TURNED_AWAY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Bounds:
    """`connections_max` at a time; `request_s` for the head of a request to arrive after the first byte may come."""

    connections_max: int = 500
    request_s: float = 10.0


class _Bounded(H11Protocol):
    """A connection that is turned away when there are too many, and ended when a request does not come in time."""

    bounds = Bounds()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._head: asyncio.TimerHandle | None = None
        self._turned_away = len(self.connections) > self.bounds.connections_max
        if self._turned_away:
            transport.write(TURNED_AWAY)
            transport.close()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()  # a request has come: its body is the guard's affair
        elif self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.bounds.request_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self.transport.abort()


def protocol(bounds: Bounds) -> type[H11Protocol]:
    """The class of connections with these bounds."""
    return type("Bounded", (_Bounded,), {"bounds": bounds})


class Server(uvicorn.Server):
    """Leaves signals to whoever runs it; `on_started` is called when it listens."""

    on_started: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see above."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen on the sockets; as uvicorn does, with bounds on how long TLS may take to begin and to end."""
        await self.lifespan.startup()
        config, loop = self.config, asyncio.get_running_loop()
        limit_s = TLS_S if config.ssl else None

        def connection() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes it
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers = [
            await loop.create_server(
                connection,
                sock=sock,
                ssl=config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=limit_s,
            )
            for sock in sockets or []
        ]
        self.started = True
        if self.on_started is not None:
            self.on_started()


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens. Raises PermanentError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=BACKLOG, reuse_port=False)
    except OSError as error:
        raise PermanentError(f"server {address} port {port}: {error.strerror}") from error


def tls_of(cert_file: str, key_file: str) -> ssl.SSLContext:
    """What TLS is served with: 1.2 and later. Raises InvalidInput for files that do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_certificate(context, cert_file, key_file)
    return context


def load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Serve connections from now on with these files. Raises InvalidInput for files that do not fit."""
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        what = getattr(error, "reason", None) or error.strerror or "cannot be used"
        raise InvalidInput(Problem(f"tls: {cert_file}", str(what), "a certificate and its key, PEM")) from error


def server(app: ASGIApp, bounds: Bounds, tls: ssl.SSLContext | None = None) -> Server:
    """A server for an application; it logs nothing of its own but what is wrong."""
    named: dict[str, Any] = {"ssl_context_factory": lambda *_: tls} if tls is not None else {}
    config = uvicorn.Config(
        app,
        http=protocol(bounds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=bounds.connections_max + 1,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        backlog=BACKLOG,
        **named,
    )
    return Server(config)
