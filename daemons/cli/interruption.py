"""End a command at once on Ctrl-C and SIGTERM, with 130 and 143, even in the middle of a computation."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
PATIENCE_S = 0.7  # from the signal on, for a command to clean up
_DONE = b"\0"


class Terminated(BaseException):
    """SIGTERM came. No error: what catches errors is not to catch it."""


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    raise Terminated


@contextmanager
def ending_at_once(last_words: Callable[[int], None]) -> Iterator[None]:
    """Raise Terminated on SIGTERM and, as Python does, KeyboardInterrupt on SIGINT. A process that does not end within
    PATIENCE_S, such as one in a long computation of a library, is ended: `last_words` receives the exit status and
    reports the reason. This has an effect only in the main thread, and only if no other code has set a SIGTERM
    handler."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(heard, last_words), name="signals", daemon=True)
    signal.signal(signal.SIGTERM, _terminate)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        told.send(_DONE)
        watcher.join()
        told.close()
        heard.close()


def _watch(heard: socket.socket, last_words: Callable[[int], None]) -> None:
    while True:
        number = heard.recv(1)
        if number == _DONE:
            return
        if number[0] in (signal.SIGINT, signal.SIGTERM):
            break
    heard.settimeout(PATIENCE_S)
    try:
        while heard.recv(1) != _DONE:
            continue  # more of the same
    except TimeoutError:
        last_words(128 + number[0])
        os._exit(128 + number[0])
