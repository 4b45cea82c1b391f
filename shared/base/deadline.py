"""The moment by which something must be done, and connections that keep to it: a limit for each read does not stop who
sends a byte at a time."""

from __future__ import annotations

import io
import math
import socket
from typing import Any

from shared.base.clock import SystemClock
from shared.base.errors import TransientError

_CLOCK = SystemClock()


class Deadline:
    """`limit_s` from now."""

    __slots__ = ("_until_s", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until_s = _CLOCK.monotonic_s() + limit_s

    @property
    def is_ahead(self) -> bool:
        """Whether something is left of it."""
        return _CLOCK.monotonic_s() < self._until_s

    def left_s(self) -> float:
        """Return the time left, above 0. Raises TransientError when none is."""
        left_s = self._until_s - _CLOCK.monotonic_s()
        if left_s <= 0.0:
            raise TransientError(f"not done within {self.limit_s:g} s")
        return left_s

    def wait_s(self, silence_s: float = math.inf) -> float:
        """Return how long a socket may wait now: the time left, at most `silence_s`. Raises TimeoutError when none is
        left, like a socket that has waited that long."""
        try:
            return min(self.left_s(), silence_s)
        except TransientError as error:
            raise TimeoutError("timed out") from error

    def within(self, limit_s: float) -> Deadline:
        """Return the same deadline, or one `limit_s` from now if that is sooner."""
        return Deadline(min(limit_s, self.left_s()))


def connected(host: str, port: int, deadline: Deadline, silence_s: float = math.inf) -> socket.socket:
    """Connect to the first address of a host that accepts. Each address gets its share of the time left, at most
    `silence_s`. An address that does not answer cannot use up the time of the others. Name resolution takes as long as
    the machine's resolver is configured to try: nothing can interrupt it. Raises OSError, TimeoutError in time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    latest = OSError("it has no address")
    for index, (family, kind, protocol, _, address) in enumerate(found):
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # no such family here
            latest = error
            continue
        try:
            made.settimeout(min(deadline.wait_s() / (len(found) - index), silence_s))
            made.connect(address)
        except OSError as error:
            made.close()
            latest = error
        else:
            return made
    raise latest


def send_all(connection: socket.socket, data: bytes, deadline: Deadline, silence_s: float = math.inf) -> None:
    """Send all of it, however slowly it is taken. Raises OSError, TimeoutError in time."""
    rest = memoryview(data)
    while rest:
        connection.settimeout(deadline.wait_s(silence_s))
        rest = rest[connection.send(rest) :]


def received(connection: socket.socket, deadline: Deadline, silence_s: float = math.inf) -> io.BufferedReader:
    """Read what comes over a connection. Reads raise OSError, TimeoutError in time; the connection is not closed."""
    return io.BufferedReader(_Received(connection, deadline, silence_s))


class _Received(io.RawIOBase):
    """What a connection receives."""

    def __init__(self, connection: socket.socket, deadline: Deadline, silence_s: float) -> None:
        self._connection, self._deadline, self._silence_s = connection, deadline, silence_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self._deadline.wait_s(self._silence_s))
        return self._connection.recv_into(buffer)
