"""The HTTP server: uvicorn, with bounds of our own on connections and on how slowly a request may come."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemons.portal.http.limits import AddressLimits
from daemons.portal.http.middleware import HEAD_BYTES_MAX
from shared.base.errors import PermanentError
from shared.runtime.logs import get_logger

KEEP_ALIVE_S = 15
GRACE_S = 3
TLS_S = 10.0
BACKLOG = 256
REQUEST_S = 10.0
ACCEPTED_AT_ONCE = 32
PAUSE_S = 1.0
OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
TURNED_AWAY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n"


class _Bounded(H11Protocol):
    """A connection that is ended when a request does not come in time."""

    request_s = REQUEST_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.ended = asyncio.Event()
        self._head: asyncio.TimerHandle | None = None
        self._await_head()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()  # a request has come: its body is the guard's affair
        elif self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.ended.set()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.request_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self.transport.abort()


class _Listener:
    """Takes connections from a socket as far as `limits` has room for them, before anything is done for them; the
    others are hung up on. What asyncio's own server does, with bounds that hold during the TLS handshake."""

    def __init__(
        self,
        sock: socket.socket,
        made: Callable[[], _Bounded],
        tls: ssl.SSLContext | None,
        limits: AddressLimits,
        is_proxy: Callable[[str], bool],
    ) -> None:
        self._sock, self._made, self._tls = sock, made, tls
        self._limits, self._is_proxy = limits, is_proxy
        self._loop = asyncio.get_running_loop()
        self._serving: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._sock)
        if self._again is not None:
            self._again.cancel()

    async def wait_closed(self) -> None:
        """Do nothing: uvicorn waits for the connections."""

    def _listen(self) -> None:
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):  # then others have their turn
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF:
                    raise
                self._pause(error)
                return
            self._take(sock, peer[0])

    def _pause(self, error: OSError) -> None:
        """Leave those that wait in the kernel's queue for a moment: files or memory have run out."""
        get_logger("portal").error("no connection can be taken", error=error.strerror)
        self._loop.remove_reader(self._sock)
        self._again = self._loop.call_later(PAUSE_S, self._listen)

    def _take(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        if not self._limits.connect(address, self._loop.time(), self._is_proxy(address)):
            if self._tls is None:
                with contextlib.suppress(OSError):
                    sock.send(TURNED_AWAY)
            sock.close()
            return
        task = self._loop.create_task(self._serve(sock, address))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, sock: socket.socket, address: str) -> None:
        limit_s = TLS_S if self._tls is not None else None
        try:
            with contextlib.suppress(OSError):  # it did not come as far as a request
                _, connection = await self._loop.connect_accepted_socket(
                    self._made, sock, ssl=self._tls, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s
                )
                await connection.ended.wait()
        finally:
            self._limits.disconnect(address)


class Server(uvicorn.Server):
    """Leaves signals to its caller; `on_started` is called when it listens."""

    on_started: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the caller handles signals."""
        yield

    def __init__(self, config: uvicorn.Config, limits: AddressLimits, is_proxy: Callable[[str], bool]) -> None:
        super().__init__(config)
        self._limits, self._is_proxy = limits, is_proxy

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen on the sockets; see `_Listener`."""
        await self.lifespan.startup()
        config = self.config

        def connection() -> _Bounded:
            made = config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes it
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            assert isinstance(made, _Bounded)
            return made

        self.servers = [
            _Listener(sock, connection, config.ssl, self._limits, self._is_proxy)  # type: ignore[misc]  # closed alike
            for sock in sockets or []
        ]
        self.started = True
        if self.on_started is not None:
            self.on_started()


def listening(address: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises PermanentError when the address is not available."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=BACKLOG, reuse_port=False)
    except OSError as error:
        raise PermanentError(f"server {address} port {port}: {error.strerror}") from error


def server(
    app: ASGIApp,
    limits: AddressLimits,
    tls: ssl.SSLContext | None = None,
    *,
    request_s: float = REQUEST_S,
    is_proxy: Callable[[str], bool] = lambda _: False,
) -> Server:
    """Return a server for an application; it logs only errors. `request_s`: time for the head of a request to arrive
    after its first byte may come; `is_proxy`: whether an address is a trusted proxy's."""
    named: dict[str, Any] = {"ssl_context_factory": lambda *_: tls} if tls is not None else {}
    config = uvicorn.Config(
        app,
        http=type("Bounded", (_Bounded,), {"request_s": request_s}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        backlog=BACKLOG,
        **named,
    )
    return Server(config, limits, is_proxy)
