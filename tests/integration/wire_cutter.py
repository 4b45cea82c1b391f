"""A way to the broker that can be cut: what is sent waits, nobody is told, as with a switch that has died."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 65_536
LOOK_S = 0.2


class WireCutter:
    """Passes connections to `port` of this machine, or to a socket that listens elsewhere, on to `target` of this
    machine; `cut` and `heal` at will."""

    def __init__(self, target: int, listener: socket.socket | None = None) -> None:
        self._target = target
        self._passing = threading.Event()
        self._passing.set()
        self._ending = False
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_S)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """From now on nothing gets through either way; connections stay open."""
        self._passing.clear()

    def heal(self) -> None:
        """Everything gets through again, what has waited first."""
        self._passing.set()

    def close(self) -> None:
        """End every connection."""
        self._ending = True
        self._passing.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ending:
            with suppress(TimeoutError):
                here, _ = self._listener.accept()
                self._passing.wait()
                self._join(here)

    def _join(self, here: socket.socket) -> None:
        try:
            there = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            here.close()
            return
        for source, sink in ((here, there), (there, here)):
            source.settimeout(LOOK_S)
            thread = threading.Thread(target=self._pass_on, args=(source, sink), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source:
            while not self._ending:
                try:
                    chunk = source.recv(CHUNK_BYTES)
                except TimeoutError:
                    continue
                self._passing.wait()
                if not chunk:
                    break
                sink.settimeout(None)
                sink.sendall(chunk)
                sink.settimeout(LOOK_S)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
