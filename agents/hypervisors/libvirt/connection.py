"""The connection to this node's libvirt, kept in a thread of its own, and short ones to other nodes'."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from agents.hypervisors.libvirt.binding import Connection, Module
from agents.hypervisors.libvirt.codes import EventId
from agents.hypervisors.libvirt.errors import Unavailable, telling
from shared.base.errors import TrimtabError
from shared.runtime import logs

KEEPALIVE_COUNT = 3
RETRY_S = 1.0
LOOK_S = 5.0  # whether the connection still lives, should nobody have said so
FIRST_S = 5.0
REACH_S = 5.0
PORTS = {"tcp": 16509, "tls": 16514}


class Listener(Protocol):
    """Receiver of the connection's notifications; called in libvirt's event thread, or in the connection's."""

    def happened(self, vm: str, uuid: str, event: int, detail: int) -> None:
        """Handle a lifecycle change of a domain."""
        ...

    def edited(self, uuid: str) -> None:
        """Handle a change of a domain's metadata."""
        ...

    def connected(self) -> None:
        """Handle a new connection; events before it were missed."""
        ...

    def failed(self, error: BaseException) -> None:
        """Handle an unexpected error that ended the connection's thread."""
        ...


class LibvirtConnection:
    """Keeps one connection to `uri`; reconnects every `retry_s` after a failure.

    `use` is the way to call libvirt: it raises TrimtabError, and Unavailable at once while there is no connection.
    """

    def __init__(
        self, module: Module, uri: str, keepalive_s: int, listener: Listener, retry_s: float = RETRY_S
    ) -> None:
        self.module, self.uri = module, uri
        self._keepalive_s, self._listener, self._retry_s = keepalive_s, listener, retry_s
        self._log = logs.get_logger("libvirt")
        self._lock = threading.Lock()
        self._raw: Connection | None = None
        self._trouble = "not connected yet"
        self._wanted = threading.Event()
        self._there = threading.Event()
        self._tried = threading.Event()
        self._closed = False
        self._callbacks: list[int] = []
        self._thread = threading.Thread(target=self._keep, name="libvirt-connection", daemon=True)

    def start(self) -> None:
        """Connect; returns when that is done or has failed for the first time, at the latest after `FIRST_S`."""
        self._thread.start()
        self._tried.wait(FIRST_S)

    def raw(self) -> Connection:
        """Return the connection. Raises Unavailable while there is none."""
        raw = self._raw
        if raw is None:
            raise Unavailable(f"{self.uri}: {self._trouble}", broken=True)
        return raw

    @contextmanager
    def use(self, doing: str) -> Iterator[Connection]:
        """Yield the connection for some calls and map their errors to TrimtabError; Unavailable has `broken` set if the
        connection is gone."""
        raw = self.raw()
        try:
            with telling(self.module.libvirtError, doing):
                yield raw
        except Unavailable as error:
            if error.broken or not self._lives(raw):
                error.broken = not self._lives(raw)
                if error.broken:
                    self._lost(raw, str(error))
            raise

    def wait(self, limit_s: float) -> bool:
        """Wait for a connection; whether there is one."""
        return self._there.wait(limit_s) and self._raw is not None

    def close(self) -> None:
        """Close the connection to libvirt."""
        self._closed = True
        self._wanted.set()
        self._thread.join(FIRST_S)
        raw, self._raw = self._raw, None
        if raw is not None:
            self._drop(raw)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Run the thread of the connection."""
        try:
            self._hold()
        except BaseException as error:  # noqa: BLE001  handed on: the listener raises it where it is seen
            self._listener.failed(error)

    def _hold(self) -> None:
        while not self._closed:
            raw = self._raw
            if raw is None:
                self._try()
                self._wanted.wait(self._retry_s if self._raw is None else 0.0)
            else:
                self._wanted.wait(LOOK_S)
                if not self._lives(raw):
                    self._lost(raw, "the connection is gone")
            self._wanted.clear()

    def _try(self) -> None:
        raw: Connection | None = None
        try:
            with telling(self.module.libvirtError, "connect"):
                raw = self.module.open(self.uri)
                self._listen(raw)
        except TrimtabError as error:
            if str(error) != self._trouble:
                self._log.warning("libvirt cannot be reached", uri=self.uri, error=str(error))
            self._trouble = str(error)
            if raw is not None:
                self._drop(raw)
            self._tried.set()
            return
        with self._lock:
            self._raw = raw
        self._log.info("connected to libvirt", uri=self.uri)
        self._there.set()
        self._tried.set()
        self._listener.connected()

    def _listen(self, raw: Connection) -> None:
        with suppress(self.module.libvirtError):  # drivers without a wire have none
            raw.setKeepAlive(self._keepalive_s, KEEPALIVE_COUNT)
        with suppress(self.module.libvirtError):
            raw.registerCloseCallback(self._on_close, None)
        self._callbacks = [raw.domainEventRegisterAny(None, EventId.LIFECYCLE, self._on_life, None)]
        with suppress(self.module.libvirtError):
            self._callbacks.append(raw.domainEventRegisterAny(None, EventId.METADATA_CHANGE, self._on_edit, None))

    def _on_life(self, _conn: Any, domain: Any, event: int, detail: int, _opaque: Any) -> None:
        self._listener.happened(domain.name(), domain.UUIDString(), event, detail)

    def _on_edit(self, _conn: Any, domain: Any, *_rest: Any) -> None:
        self._listener.edited(domain.UUIDString())

    def _on_close(self, conn: Any, reason: int, _opaque: Any) -> None:
        """Handle a closed connection. The notification may be late: the loss may be known already, and there may be a
        new connection."""
        self._lost(conn, f"libvirt has closed the connection ({reason})", drop=False)

    def _lives(self, raw: Connection) -> bool:
        try:
            return raw.isAlive() == 1
        except self.module.libvirtError:
            return False

    def _lost(self, raw: Connection, why: str, drop: bool = True) -> None:
        with self._lock:
            if self._raw is not raw:
                return
            self._raw = None
            self._there.clear()
        self._trouble = why
        self._log.warning("the connection to libvirt is lost", uri=self.uri, error=why)
        if drop:
            self._drop(raw)
        self._wanted.set()

    def _drop(self, raw: Connection) -> None:
        for callback in self._callbacks:
            with suppress(self.module.libvirtError):
                raw.domainEventDeregisterAny(callback)
        self._callbacks = []
        for end in (raw.unregisterCloseCallback, raw.close):
            with suppress(self.module.libvirtError):
                end()


@contextmanager
def peer(module: Module, uri: str, reach: Callable[[str], None]) -> Iterator[Connection]:
    """Another node's libvirt for a while. `reach` is asked first, since libvirt itself waits for minutes. Raises our
    errors."""
    reach(uri)
    with telling(module.libvirtError, f"connect to {uri}"):
        raw = module.open(uri)
    try:
        with suppress(module.libvirtError):
            raw.setKeepAlive(5, KEEPALIVE_COUNT)
        with telling(module.libvirtError, uri):
            yield raw
    finally:
        with suppress(module.libvirtError):
            raw.close()


def reach(uri: str) -> None:
    """Raise Unavailable where nobody answers at the host and port of a URI; those of other kinds are not tried."""
    parts = urlsplit(uri)
    transport = parts.scheme.partition("+")[2] or ("tls" if parts.netloc else "")
    if transport not in PORTS or not parts.hostname:
        return
    try:
        socket.create_connection((parts.hostname, parts.port or PORTS[transport]), REACH_S).close()
    except OSError as error:
        raise Unavailable(f"{uri}: {error.strerror or error}", broken=True) from None
