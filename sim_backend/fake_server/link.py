"""The client's end of a connection to a fake server."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

from shared.base.errors import CodecError, TransientError
from sim_backend.fake_server.wire import Answer, Call, Frames, to_frame

RECEIVE_BYTES = 64 << 10


class ServerConnection:
    """A connected socket that sends calls and receives answers; safe for one receiving thread and many that send.

    Sending waits at most `timeout_s`. TransientError, with the reason, when the server cannot be reached or is gone;
    a connection that was lost stays lost.
    """

    def __init__(self, path: str | Path, timeout_s: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._frames = Frames()
        self._lock = threading.Lock()
        self._limit(socket.SO_SNDTIMEO, timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise TransientError(f"no fake server at {path}: {error.strerror or error}") from error

    def receive_within(self, timeout_s: float) -> None:
        """Let `receive` give up after this long."""
        self._limit(socket.SO_RCVTIMEO, timeout_s)

    def send(self, call: Call) -> None:
        """Send one call whole. CodecError for one that cannot be sent; the connection is as before."""
        frame = to_frame(call)
        with self._lock:
            try:
                self._socket.sendall(frame)
            except OSError as error:
                self.close()  # part of the frame may be out: nothing after it could be read
                raise TransientError(f"the fake server at {self._path} is gone: {error.strerror or error}") from error

    def receive(self) -> list[Answer]:
        """Wait for bytes and return the answers that are complete with them, perhaps none."""
        try:
            data = self._socket.recv(RECEIVE_BYTES)
            if data:
                return self._frames.feed(data, Answer)
        except (OSError, CodecError) as error:
            raise TransientError(f"the fake server at {self._path} is gone: {error}") from error
        raise TransientError(f"the fake server at {self._path} has closed the connection")

    def close(self) -> None:
        """End the connection, also under a thread that waits in `receive`."""
        with suppress(OSError):  # it had ended already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _limit(self, option: int, seconds: float) -> None:
        """Set the time limit of one direction. A timeout of the socket object would apply to both."""
        whole, part = divmod(seconds, 1.0)
        self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(whole), int(part * 1_000_000)))
