"""A time limit for a whole exchange with a server: one for each read does not stop a byte at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.base.errors import TransientError


@contextmanager
def within(limit_s: float, socket_of: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Cut the connection of what is done inside after `limit_s`; TransientError then, whatever that led to."""
    over = threading.Event()

    def cut() -> None:
        over.set()
        connection = socket_of()
        if connection is not None:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # as a plain socket: TLS is not to say good-bye
            except OSError:
                return  # it has just ended by itself

    timer = threading.Timer(limit_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if over.is_set():
            raise TransientError(f"no answer within {limit_s:g} s") from error
        raise
    finally:
        timer.cancel()
