"""Handlers of urllib whose answers meet a deadline, however slowly they come: urllib's own time limit is for each part
of an answer, so that a head which comes byte by byte never meets it."""

from __future__ import annotations

import http.client
import io
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

from agents.setups.deadline import Deadline

SILENCE_LIMIT_S = 30.0


class Http(urllib.request.HTTPHandler):
    """For http. What is read of an answer after the deadline raises TransientError."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address."""
        return self.do_open(_made(http.client.HTTPConnection, self._deadline), req)


class Https(urllib.request.HTTPSHandler):
    """For https; as `Http`."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address."""
        return self.do_open(_made(http.client.HTTPSConnection, self._deadline), req)


class _Received(io.RawIOBase):
    """What a connection receives."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, deadline: Deadline) -> None:
        self._connection, self._raw, self._deadline = connection, raw, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(min(SILENCE_LIMIT_S, self._deadline.left_s()))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _made(kind: type[http.client.HTTPConnection], deadline: Deadline) -> Callable[..., http.client.HTTPConnection]:
    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp = io.BufferedReader(_Received(sock, self.fp.detach(), deadline))

    def make(*args: Any, **kwargs: Any) -> http.client.HTTPConnection:
        connection = kind(*args, **kwargs)
        connection.response_class = Response
        return connection

    return make
