"""A TCP server of a test: one function says what becomes of every connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Serve = Callable[[socket.socket], None]
LOOPBACK = "127.0.0.1"
ACCEPT_S = 0.02
PEER_S = 5.0  # for a peer that says or takes nothing


@contextmanager
def server(serve: Serve, address: str = LOOPBACK) -> Iterator[int]:
    """A server that does this with every connection, one after the other, and its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listening:
        stop = threading.Event()
        listening.settimeout(ACCEPT_S)

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    continue
                with connection, suppress(OSError):
                    connection.settimeout(PEER_S)
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            stop.set()
            thread.join(5.0)
